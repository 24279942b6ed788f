//! Counting the documents of a collection again, after fast updates whose effect on the counter is not known.

use frond_storage::context::OpContext;
use frond_storage::error::Result;
use frond_storage::keyspace::{CATALOG_TREE, Direction, WriteSet};
use frond_storage::merge::Counts;
use frond_storage::namespace::Namespace;
use frond_storage::record;
use std::ops::Bound;

use crate::catalog::{change_counter, counter_key};
use crate::store::DocumentStore;

/// Documents between two checks of the limits.
const DOCUMENTS_BETWEEN_CHECKS: i64 = 1024;

impl DocumentStore {
    /// Counts the documents of a snapshot, and corrects the counter by the difference. What is written meanwhile changes the counter
    /// as before, so it is exact afterwards if there were no fast updates meanwhile. Returns the number of documents.
    ///
    /// # Errors
    /// Errors of the engine, the limits of the context.
    pub(crate) fn count_again(&self, ns: &Namespace, context: &OpContext) -> Result<u64> {
        let catalog = self.catalog();
        let Some((collection, snapshot)) = catalog.read(ns)? else {
            return Ok(0);
        };
        let mut counted = Counts::default();
        let (low, high) = (Bound::Unbounded, Bound::Unbounded);
        let mut cursor = snapshot.cursor(collection.primary, low, high, Direction::Forward)?;
        while let Some((_, stored)) = cursor.next()? {
            counted.add_document(record::counted_bytes(stored));
            if counted.documents % DOCUMENTS_BETWEEN_CHECKS == 0 {
                context.check()?;
            }
        }
        let documents = u64::try_from(counted.documents).unwrap_or(0);
        if !catalog.is_live() || catalog.check_writable(ns).is_err() {
            return Ok(documents);
        }
        let change = counted - collection.stored_counts(&snapshot)?;
        let mut batch = WriteSet::with_snapshot(&snapshot);
        // If two requests count at the same time, only one may correct the counter.
        batch.guard(CATALOG_TREE, &counter_key(&collection.uuid));
        change_counter(&mut batch, &collection.uuid, change);
        let committed = catalog.commit_on(&collection, || catalog.commit_logged(batch, None))?;
        if let Some(Ok(())) = committed {
            collection.count(change);
        }
        Ok(documents)
    }
}
