//! Deletes the documents that have expired by `expireAfterSeconds`.
//!
//! A document expires this many seconds after the date in its indexed field, or after the earliest of an array of
//! dates. One without a date never expires. The expired dates are one range of the index. The same option of a
//! collection applies to the date in `_id` of a clustered collection, or to the time of a measurement; without an
//! index on that time the measurements are scanned.

use frond_bson::{Collator, DocBuf, Value, doc};

use crate::catalog::Collection;
use crate::plan::Hint;
use crate::store::DocumentStore;
use crate::write::delete::delete_expired_through;
use frond_storage::context::OpContext;
use frond_storage::error::{Error, Result};
use frond_storage::index::Index;
use frond_storage::index::spec::IndexSpec;
use frond_storage::keyspace::{Durability, Interrupt};
use frond_storage::namespace::Namespace;

/// The result of a pass over all TTL indexes.
#[derive(Debug, Default)]
pub struct TtlPass {
    pub deleted: u64,
    /// Indexes whose documents could not be deleted, with the reason.
    pub failed: Vec<(Namespace, String, Error)>,
}

/// The filter of documents whose date is at least this many seconds before a time in milliseconds since 1970.
fn expired_by(path: &str, seconds: i64, now_ms: i64) -> DocBuf {
    let until = now_ms.saturating_sub(seconds.saturating_mul(1000));
    let mut filter = DocBuf::new();
    filter.push(path, &doc! {"$lte": Value::DateTime(until)});
    filter
}

/// The filter of a TTL index's documents that have expired at a time in milliseconds since 1970.
fn expired(spec: &IndexSpec, seconds: i32, now_ms: i64) -> DocBuf {
    let path = spec.fields.first().map_or("_id", |field| &field.path);
    let filter = expired_by(path, i64::from(seconds), now_ms);
    match &spec.partial {
        None => filter,
        Some(partial) => doc! {"$and": [&filter, &partial.doc]},
    }
}

impl DocumentStore {
    /// Deletes the documents that have expired by a TTL index. `now_ms` is the time in milliseconds since 1970.
    /// An error in one index does not stop the others. Documents that an open transaction has written are left for the next
    /// pass. The context interrupts its waits.
    pub fn delete_expired(&self, now_ms: i64, context: &OpContext) -> TtlPass {
        let interrupt = Interrupt {
            killed: context.killed.clone(),
            deadline: context.deadline,
            ..Interrupt::default()
        };
        interrupt.run(|| self.delete_expired_within(now_ms, context))
    }

    fn delete_expired_within(&self, now_ms: i64, context: &OpContext) -> TtlPass {
        let mut pass = TtlPass::default();
        let collections: Vec<_> = self.catalog().view().iter().cloned().collect();
        for collection in collections {
            if context.check().is_err() {
                return pass;
            }
            match self.delete_expired_of(&collection, now_ms, context) {
                Ok(deleted) => pass.deleted += deleted,
                Err(error) => pass
                    .failed
                    .push((collection.ns.clone(), "_id_".to_owned(), error)),
            }
            for index in collection.ready_indexes() {
                let (Some(seconds), None) = (index.spec.expire_after, &index.spec.method) else {
                    continue;
                };
                if context.check().is_err() {
                    return pass;
                }
                match self.delete_expired_in(&collection, index, seconds, now_ms, context) {
                    Ok(deleted) => pass.deleted += deleted,
                    Err(error) => {
                        pass.failed
                            .push((collection.ns.clone(), index.spec.name.clone(), error))
                    }
                }
            }
        }
        pass
    }

    /// Deletes what has expired by a collection's own `expireAfterSeconds`: measurements of a time series by their
    /// time, documents of a clustered collection by the date in their `_id`.
    fn delete_expired_of(
        &self,
        collection: &Collection,
        now_ms: i64,
        context: &OpContext,
    ) -> Result<u64> {
        let Some(seconds) = collection.settings.expire_after_seconds else {
            return Ok(0);
        };
        if collection.settings.partition_period().is_some() {
            let until = now_ms.saturating_sub(seconds.saturating_mul(1000));
            return self
                .catalog()
                .drop_expired_partitions(&collection.ns, until);
        }
        let series = collection.settings.time_series.as_ref();
        let path = series.map_or("_id", |series| &series.time_field);
        delete_expired_through(
            self.catalog(),
            &collection.ns,
            &expired_by(path, seconds, now_ms),
            Collator::BINARY,
            None,
            Durability::Logged,
            context,
        )
    }

    fn delete_expired_in(
        &self,
        collection: &Collection,
        index: &Index,
        seconds: i32,
        now_ms: i64,
        context: &OpContext,
    ) -> Result<u64> {
        let filter = expired(&index.spec, seconds, now_ms);
        delete_expired_through(
            self.catalog(),
            &collection.ns,
            &filter,
            // The filter of a partial index compares strings as the index does.
            &index.spec.collator,
            Some(Hint::Tree(index.tree)),
            Durability::Logged,
            context,
        )
    }
}
