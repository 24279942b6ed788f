//! Collections in the order of insertion: capped ones, time series, and those with `naturalOrder: "insertion"`.
//!
//! Their documents are keyed by record ids, numbers that count up, instead of their `_id`. So a scan
//! gives the order of insertion, the oldest documents are the first ones of the tree, and a tailable cursor
//! continues after the last id it saw. The index on `_id` is a unique index like any other one; a time series
//! has none, as in MongoDB.
//!
//! (The alternative, a second tree from record ids to `_id`s, would need a third one from `_id`s to record ids for
//! deletes, and a look-up for each document of a scan.)

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use frond_bson::{Collator, DocBuf, Value, key};
use parking_lot::{Mutex, MutexGuard};

use super::Collection;
use crate::signal::TailSignal;
use frond_storage::error::{Result, corrupt};
use frond_storage::index::Index;
use frond_storage::index::spec::IndexSpec;
use frond_storage::keyspace::{Direction, Snapshot, TreeId, Wait, WaitFor};
use frond_storage::options::CollectionOptions;

/// The state that all versions of a collection in the order of insertion share.
#[derive(Debug, Default)]
pub(super) struct Records {
    /// The last record id that was given out.
    last: AtomicI64,
    /// Held by an insert into a capped collection until its commit, so that ids become visible in their
    /// order, and one writer at a time removes the oldest documents.
    insertion: Mutex<Insertion>,
    pub tail: Arc<TailSignal>,
}

/// State of a capped collection that the lock on inserts protects.
#[derive(Debug, Default)]
pub(crate) struct Insertion {
    /// The search for the oldest document starts at this key; no document lies below it.
    pub first: Vec<u8>,
}

/// The key of a record id, encoded as a date: a 64-bit integer whose encoding loses nothing.
pub(crate) fn record_key(record: i64) -> Vec<u8> {
    let mut encoded = Vec::new();
    key::encode(&Value::DateTime(record), &mut encoded);
    encoded
}

/// The record id of a key.
pub(crate) fn record_of_key(encoded: &[u8]) -> Option<i64> {
    let mut bits = key::TypeBitsReader::new(&[]);
    let mut out = DocBuf::new();
    let ascending = key::Direction::Ascending;
    let rest = key::decode_into(encoded, ascending, &mut bits, "r", &mut out).ok()?;
    if !rest.is_empty() {
        return None;
    }
    match out.get("r")? {
        Value::DateTime(record) => Some(record),
        _ => None,
    }
}

/// The specification of the index on `_id` of a collection in the order of insertion.
pub(super) fn id_index(collator: &Collator) -> Result<IndexSpec> {
    let spec = IndexSpec::inheriting(&IndexSpec::id_index_doc(), collator, None);
    Ok(unique_id(IndexSpec::parse(&spec)?))
}

/// The specification of an index on `_id` does not say that it is unique, but it is.
pub(super) fn unique_id(spec: IndexSpec) -> IndexSpec {
    IndexSpec {
        unique: spec.unique || spec.is_id_index(),
        ..spec
    }
}

/// The documents of a collection as an index on its primary key, if its options have one.
pub(super) fn primary_index(settings: &CollectionOptions, primary: TreeId) -> Option<Arc<Index>> {
    let spec = &settings.primary_key.as_ref()?.spec;
    Some(Arc::new(Index::new(IndexSpec::clone(spec), primary, true)))
}

impl Records {
    /// Finds the last record id of a tree.
    pub fn load(&self, snapshot: &Snapshot, primary: TreeId) -> Result<()> {
        let (low, high) = (Bound::Unbounded, Bound::Unbounded);
        let mut cursor = snapshot.cursor(primary, low, high, Direction::Backward)?;
        if let Some((last, _)) = cursor.next()? {
            let last = record_of_key(last).ok_or_else(|| corrupt("a record id"))?;
            self.last.store(last, Ordering::SeqCst);
        }
        Ok(())
    }
}

impl Collection {
    /// Whether documents lie under other keys than their `_id`: record ids or a primary key.
    pub fn is_by_record(&self) -> bool {
        self.settings.is_by_record()
    }

    /// Whether the index on `_id` is shown beside the others: a collection in the order of insertion has it among them, or
    /// none, and a time series shows none.
    pub(crate) fn lists_id_index(&self) -> bool {
        !self.is_by_record() && self.settings.time_series.is_none()
    }

    /// The primary key as an index that users see. A time series shows none.
    pub(crate) fn shown_primary_key(&self) -> Option<&Arc<Index>> {
        self.primary_key
            .as_ref()
            .filter(|_| self.settings.time_series.is_none())
    }

    /// The name of the tree of the documents among the indexes, if users see it as one.
    pub(crate) fn own_index_name(&self) -> Option<&str> {
        match self.shown_primary_key() {
            Some(index) => Some(&index.spec.name),
            None => (!self.is_by_record()).then(|| self.id_index_name()),
        }
    }

    /// Whether documents lie under record ids, which count up.
    pub(crate) fn numbers_records(&self) -> bool {
        self.settings.numbers_records()
    }

    /// The key for a new document of a collection in the order of insertion.
    pub(crate) fn next_record(&self) -> Vec<u8> {
        let last = &self.shared.records.last;
        record_key(self.shared.coordination.next_record(last))
    }

    /// The last record id of a capped collection that several servers write to; `None` if only this one does.
    ///
    /// # Errors
    /// Errors of the engine, `DataCorruptionDetected` (301).
    pub(crate) fn last_record(&self, snapshot: &Snapshot) -> Result<Option<i64>> {
        let coordination = &self.shared.coordination;
        let Some(stored) = coordination.stored_record(snapshot, &self.uuid)? else {
            return Ok(None);
        };
        if stored.is_some() {
            return Ok(stored);
        }
        self.shared.records.load(snapshot, self.primary)?;
        Ok(Some(self.shared.records.last.load(Ordering::SeqCst)))
    }

    /// Waits until no other insert into this capped collection is under way. The caller holds the gate.
    ///
    /// # Errors
    /// The operation was interrupted while it waited.
    pub(crate) fn lock_insertion(&self) -> Result<MutexGuard<'_, Insertion>> {
        Ok(Wait::for_lock(
            &self.shared.records.insertion,
            WaitFor::Commits,
        )?)
    }

    /// Notifies tailable cursors of insertions.
    pub(crate) fn tail(&self) -> &Arc<TailSignal> {
        &self.shared.records.tail
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn record_ids_ascend_as_keys() {
        let records = [1, 2, 255, 256, 1 << 31, 1 << 40, i64::MAX];
        for pair in records.windows(2) {
            assert!(record_key(pair[0]) < record_key(pair[1]));
        }
        for record in records {
            assert_eq!(record_of_key(&record_key(record)), Some(record));
        }
        assert_eq!(record_of_key(b""), None);
    }
}
