//! The replacement of one document by another one with the same `_id`, for copies of collections.

use frond_bson::{Collator, Doc};

use super::modify::{Change, Effect, Target};
use super::staging::{Staging, Updated};
use super::written::How;
use crate::catalog::Catalog;
use crate::exec::operator::Row;
use crate::find::PlannedQuery;
use frond_storage::context::OpContext;
use frond_storage::environment::environment;
use frond_storage::error::Result;
use frond_storage::keyspace::Durability;
use frond_storage::namespace::Namespace;

struct Replace<'a>(&'a Doc);

impl Change for Replace<'_> {
    fn stage(&mut self, staging: &mut Staging<'_>, row: &Row) -> Result<Effect> {
        let updated = Updated {
            touches: &|_| true,
            how: How::Replaced,
        };
        let staged = staging.update(&row.key, &row.doc, None, self.0, updated)?;
        Ok(staged.into())
    }
}

/// Replaces the first document that matches, in a collection that stores documents whole. False if there is none.
/// Unlike an update, it takes field names that begin with `$`.
///
/// # Errors
/// Errors of the filter and the indexes.
pub(crate) fn replace_one(
    catalog: &Catalog,
    ns: &Namespace,
    filter: &Doc,
    doc: &Doc,
    context: &OpContext,
) -> Result<bool> {
    let environment = environment(None, Collator::BINARY);
    let target = Target {
        command: "update",
        catalog,
        ns,
        question: PlannedQuery::parse(Some(filter), None, None, &environment)?,
        id: None,
        record: None,
        context,
        durability: Durability::Logged,
        bypass_validation: true,
        whole: true,
    };
    Ok(target.change_one(&mut Replace(doc))?.is_some())
}
