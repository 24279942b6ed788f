//! Tailable cursors of capped collections: who waits for documents that another server inserts.
//!
//! Inserts of this server wake the cursors. What other servers insert shows in the last record id of the collection, which is
//! looked at now and then while a cursor waits, with one request for all collections.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::id_allocator::record_of;
use super::{Cluster, Uuid};
use crate::signal::TailSignal;
use frond_storage::error::Result;
use frond_storage::keyspace::CATALOG_TREE;

/// The collections that tailable cursors are open on.
#[derive(Debug, Default)]
pub(super) struct Tails(Mutex<HashMap<Uuid, Tailed>>);

/// A collection with tailable cursors.
#[derive(Debug)]
struct Tailed {
    signal: Arc<TailSignal>,
    cursors: usize,
    /// The last record id at the last poll.
    last: Option<i64>,
}

/// While it lives, waiting cursors of a collection hear of what other servers insert.
#[derive(Debug)]
pub(crate) struct TailWatch {
    cluster: Arc<Cluster>,
    uuid: Uuid,
}

impl Drop for TailWatch {
    fn drop(&mut self) {
        let mut tails = self.cluster.tails.0.lock();
        if let Some(tailed) = tails.get_mut(&self.uuid) {
            tailed.cursors -= 1;
            if tailed.cursors == 0 {
                tails.remove(&self.uuid);
            }
        }
    }
}

impl Cluster {
    /// Begins to look for documents of other servers in a capped collection.
    pub fn watch_tail(self: &Arc<Cluster>, uuid: Uuid, signal: &Arc<TailSignal>) -> TailWatch {
        let mut tails = self.tails.0.lock();
        let tailed = tails.entry(uuid).or_insert_with(|| Tailed {
            signal: signal.clone(),
            cursors: 0,
            last: None,
        });
        tailed.cursors += 1;
        TailWatch {
            cluster: self.clone(),
            uuid,
        }
    }

    /// Wakes the cursors that wait for documents which are there. Reads nothing if none waits.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn look_at_tails(&self) -> Result<()> {
        let waiting: Vec<Uuid> = (self.tails.0.lock().iter())
            .filter(|(_, tailed)| tailed.signal.has_waiting())
            .map(|(uuid, _)| *uuid)
            .collect();
        if waiting.is_empty() {
            return Ok(());
        }
        let snapshot = self.engine.snapshot();
        let keys: Vec<[u8; 17]> = waiting.iter().map(record_of).collect();
        let wanted: Vec<_> = keys.iter().map(|key| (CATALOG_TREE, &key[..])).collect();
        snapshot.prefetch(&wanted)?;
        for uuid in waiting {
            let last = self.stored_record(&snapshot, &uuid)?;
            let mut tails = self.tails.0.lock();
            let Some(tailed) = tails.get_mut(&uuid) else {
                continue;
            };
            // The first look does not know what the cursors have seen.
            if tailed.last != last {
                tailed.last = last;
                let signal = tailed.signal.clone();
                drop(tails);
                signal.notify();
            }
        }
        Ok(())
    }
}
