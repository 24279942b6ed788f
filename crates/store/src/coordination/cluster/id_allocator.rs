//! Numbers that no two servers may give out: of trees, and of records in the order of insertion.

use std::ops::Range;

use frond_bson::{DocBuf, doc};
use parking_lot::Mutex;

use super::{Cluster, RECORDS, TREES_KEY, read_doc};
use frond_storage::error::{Result, corrupt};
use frond_storage::keyspace::{CATALOG_TREE, Snapshot, TreeId, WriteSet};

/// Trees that are created outside of a change of the catalog, by transactions, have numbers from here on. Those of changes lie
/// below, in the order of the changes.
const FIRST_OF_TRANSACTIONS: u32 = 1 << 30;
/// Ids that a server takes at once.
const BLOCK: u32 = 64;

/// Bits of a record id for the server, and for the records of a millisecond.
const SERVER_BITS: u32 = 10;
const COUNTER_BITS: u32 = 12;
/// The time from which record ids count: 2024-01-01, in milliseconds since 1970.
const EPOCH_MS: i64 = 1_704_067_200_000;

/// Numbers that this server has reserved.
#[derive(Debug, Default)]
pub(super) struct IdAllocator {
    trees: Mutex<Range<u32>>,
    records: Mutex<Ticks>,
}

/// The last record id: its time and its counter.
#[derive(Debug, Default)]
struct Ticks {
    ms: i64,
    counter: i64,
}

impl Ticks {
    fn next(&mut self, now_ms: i64, server: u32) -> i64 {
        if now_ms > self.ms {
            *self = Ticks {
                ms: now_ms,
                counter: 0,
            };
        } else if self.counter + 1 < 1 << COUNTER_BITS {
            self.counter += 1;
        } else {
            // Ahead of the clock.
            *self = Ticks {
                ms: self.ms + 1,
                counter: 0,
            };
        }
        let time = (self.ms - EPOCH_MS).max(0) << (SERVER_BITS + COUNTER_BITS);
        let server = i64::from(server) & ((1 << SERVER_BITS) - 1);
        time | server << COUNTER_BITS | self.counter
    }
}

impl IdAllocator {
    /// The server may get another number.
    pub fn forget(&self) {
        *self.trees.lock() = 0..0;
    }
}

impl Cluster {
    /// A number for a tree that is created in a transaction.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn tree_of_transaction(&self) -> Result<TreeId> {
        let mut trees = self.id_allocator.trees.lock();
        if trees.is_empty() {
            let first = self.update(TREES_KEY, |stored| {
                let next = stored.and_then(|stored| stored.get_i64("next"));
                let next = next.unwrap_or(i64::from(FIRST_OF_TRANSACTIONS));
                let after = doc! {"next": next + i64::from(BLOCK)};
                Ok((Some(after), next))
            })?;
            let first = u32::try_from(first).map_err(|_| corrupt("the numbers of the trees"))?;
            *trees = first..first.saturating_add(BLOCK);
        }
        let next = trees.next();
        next.map(TreeId)
            .ok_or_else(|| corrupt("the numbers of the trees"))
    }

    /// The next record id of a collection in the order of insertion: no other server gives it out. Ids of one server ascend;
    /// between servers their order is that of their clocks.
    pub fn next_record(&self) -> i64 {
        let server = self.number();
        let now_ms = self.about_now_ms();
        self.id_allocator.records.lock().next(now_ms, server)
    }
}

pub(super) fn record_of(uuid: &[u8; 16]) -> [u8; 17] {
    let mut key = [RECORDS; 17];
    key[1..].copy_from_slice(uuid);
    key
}

/// Removes the last record id of a capped collection that is dropped.
pub(crate) fn stage_forget_record(batch: &mut WriteSet, uuid: &[u8; 16]) {
    batch.delete(CATALOG_TREE, &record_of(uuid));
}

impl Cluster {
    /// The last record id of a capped collection in a snapshot, if it is stored.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn stored_record(&self, snapshot: &Snapshot, uuid: &[u8; 16]) -> Result<Option<i64>> {
        let stored = read_doc(snapshot, &record_of(uuid))?;
        Ok(stored.and_then(|stored| stored.get_i64("last")))
    }

    /// Adds the last record id of a capped collection to a commit. So inserts are committed one after the other, in the order of
    /// their ids.
    pub fn stage_last_record(&self, batch: &mut WriteSet, uuid: &[u8; 16], last: i64) {
        let mut entry = DocBuf::new();
        entry.push("last", last);
        batch.put_guarded(CATALOG_TREE, &record_of(uuid), entry.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_ids_ascend_and_are_those_of_one_server() {
        let (mut one, mut two) = (Ticks::default(), Ticks::default());
        let mut last = 0;
        let now = EPOCH_MS + 77;
        for _ in 0..3 << COUNTER_BITS {
            let (a, b) = (one.next(now, 1), two.next(now, 2));
            assert!(a > last && a != b);
            last = a;
        }
        // The clock goes back.
        assert!(one.next(now - 10, 1) > last);
        assert!(one.next(now + 10, 1) > last);
    }
}
