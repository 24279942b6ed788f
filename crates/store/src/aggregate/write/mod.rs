//! `$out` and `$merge`: write a pipeline's documents into a collection.

mod merge;
mod out;

use frond_bson::Doc;
use frond_error::ErrorCode;

use crate::catalog::Uuid;
use crate::store::DocumentStore;
use crate::write::insert::{InsertOptions, insert_into};
use frond_storage::context::OpContext;
use frond_storage::error::{Error, Result, command};
use frond_storage::keyspace::Durability;
use frond_storage::namespace::Namespace;

/// Documents of one insert.
const BATCH_DOCUMENTS: usize = 1000;
/// Bytes of the documents that are written together.
const BATCH_BYTES: usize = 16 * 1024 * 1024;

/// The collection that a stage writes to.
pub(super) struct Target<'a> {
    pub store: &'a DocumentStore,
    /// The database of the pipeline.
    pub db: &'a str,
    pub durability: Durability,
    pub bypass_validation: bool,
    pub context: OpContext,
}

/// The errors of a stage for names that no stage may write.
struct Reserved {
    special: (i32, &'static str),
    internal: (i32, &'static str),
}

impl Target<'_> {
    /// The collection that a stage names.
    fn namespace(&self, db: Option<&str>, coll: &str, reserved: &Reserved) -> Result<Namespace> {
        let target = Namespace::new(db.unwrap_or(self.db), coll)?;
        let refused = |(code, message): (i32, &str), name: &str| {
            command(ErrorCode::Location(code), format!("{message}: {name}"))
        };
        if target.coll().starts_with("system.") {
            return Err(refused(reserved.special, target.coll()));
        }
        if matches!(target.db(), "admin" | "config" | "local") {
            return Err(refused(reserved.internal, target.db()));
        }
        Ok(target)
    }

    /// Inserts documents. Returns the first error; the documents after it are inserted too.
    fn insert(&self, ns: &Namespace, only: Option<&Uuid>, docs: &[&Doc]) -> Result<Option<Error>> {
        let options = InsertOptions {
            ordered: false,
            durability: self.durability,
            bypass_validation: self.bypass_validation,
            keep_empty_timestamps: false,
        };
        let outcome = insert_into(self.store.catalog(), ns, only, None, docs, options)?;
        Ok(outcome.errors.into_iter().next().map(|failed| failed.error))
    }
}
