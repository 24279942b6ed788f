//! `delete`: one document or all that match.

use frond_bson::{Collator, Doc, Value};

use super::modify::{Change, Effect, Target};
use super::recording::{Recorder, Recording};
use super::staging::Staging;
use crate::catalog::Catalog;
use crate::exec::operator::Row;
use crate::find::{PlannedQuery, one_id};
use crate::plan::required_fields;
use frond_storage::context::OpContext;
use frond_storage::environment::environment;
use frond_storage::error::Result;
use frond_storage::keyspace::Durability;
use frond_storage::namespace::Namespace;
use frond_storage::record::field_set::ChangeFields;

/// A request to `delete`.
#[derive(Clone, Debug)]
pub struct DeleteRequest<'a> {
    pub filter: &'a Doc,
    /// Whether to delete only the first one.
    pub limit_one: bool,
    /// The index to use, as in a find.
    pub hint: Option<Value<'a>>,
    /// Variables for `$expr`.
    pub variables: Option<&'a Doc>,
    /// The collation; none for that of the collection.
    pub collation: Option<Collator>,
}

pub(super) struct Remove;

impl Change for Remove {
    fn stage(&mut self, staging: &mut Staging<'_>, row: &Row) -> Result<Effect> {
        match &row.stored {
            None => staging.delete(&row.key, &row.doc, None)?,
            Some(stored) => {
                let wanted = if staging.keeps_pre_images() {
                    ChangeFields::everything()
                } else {
                    required_fields::of_delete(staging.collection())
                };
                let (doc, parts) = staging
                    .document_reader()
                    .for_change(&row.key, stored, &wanted)?;
                staging.delete(&row.key, &doc, Some(&parts))?;
            }
        }
        Ok(Effect::Staged)
    }

    fn removes(&self) -> bool {
        true
    }
}

/// Runs a delete. Returns the number of documents deleted.
///
/// # Errors
/// Errors of the filter and the hint.
pub fn delete(
    catalog: &Catalog,
    ns: &Namespace,
    request: &DeleteRequest<'_>,
    durability: Durability,
    context: &OpContext,
    recording: Option<Recording<'_, u64>>,
) -> Result<u64> {
    catalog.check_writable(ns)?;
    let recorder = recording
        .map(|recording| recording.recorder(catalog))
        .transpose()?;
    let collator = catalog.collator(ns, request.collation.as_ref());
    let target = Target {
        command: "delete",
        catalog,
        ns,
        question: PlannedQuery::parse(
            Some(request.filter),
            None,
            request.hint,
            &environment(request.variables, &collator),
        )?,
        id: one_id(request.filter)
            .filter(|_| request.hint.is_none() && request.collation.is_none()),
        record: recorder.as_ref().map(Recorder::key),
        context,
        durability,
        bypass_validation: true,
        whole: false,
    };
    if request.limit_one {
        let deleted = match &recorder {
            Some(recorder) => {
                target.change_one(&mut recorder.recorded(&mut Remove, &|_, _| Ok(1)))?
            }
            None => target.change_one(&mut Remove)?,
        };
        return Ok(u64::from(deleted.is_some()));
    }
    let at_once = match request.hint {
        None => catalog.delete_at_once(ns, &target.question.filter)?,
        Some(_) => 0,
    };
    Ok(at_once + target.change_all(&mut Remove)?.modified)
}
