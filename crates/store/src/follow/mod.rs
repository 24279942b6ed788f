//! Taking over the oplog of another server: what a standby does with the entries of its primary.
//!
//! A commit has the effects of some entries, and the same entries, with the same timestamps, in the own oplog ([`Copied`]). So the
//! last own entry is the position to continue at, after a crash too, and nothing is applied twice or left out. Consecutive
//! entries of documents share a commit as long as no document has two of them, and as long as they are of one second, because
//! the timestamps of a commit lie close together.
//!
//! A change of the catalog is applied by the operation that made it on the primary. It commits its entry together with the effect, as
//! it does there. Where an operation has nothing left to do, because a crash came before its entry, the entry is committed alone. A
//! transaction is one here too, also if it has several entries.
//!
//! The store must be equal to what the primary was at the position: it was started from a copy. So an entry that does not fit is
//! an error, and is not passed over.

mod commands;
mod documents;
mod transaction;

use std::ops::Range;
use std::sync::Arc;

use frond_bson::{Doc, Timestamp};

use crate::catalog::Catalog;
use crate::oplog::{self, Copied, CopiedEntries, Log};
use crate::store::DocumentStore;
use frond_oplog::entry::{Decoder, Kind, RawEntry};
use frond_storage::error::Result;
use frond_storage::keyspace::{COMMIT_BYTES_MAX, COMMIT_DOCUMENTS_MAX, WriteSet};

/// Applies the entries of another server's oplog, in their order. A store that follows has one.
pub struct Follower {
    store: DocumentStore,
    decoder: Decoder,
    /// The values of entries that are not committed yet.
    values: Vec<u8>,
    waiting: Vec<Waiting>,
}

/// An entry that is not committed yet.
#[derive(Clone, Debug)]
struct Waiting {
    ts: u64,
    kind: Kind,
    value: Range<usize>,
}

/// The entries that were applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Entries that are in the own oplog now.
    pub entries: u64,
    /// Commits that they took.
    pub commits: u64,
}

/// The mode of applying an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ApplyMode {
    Document,
    /// In a commit of its own.
    Alone,
    /// With the other entries of the transaction.
    Transaction {
        is_complete: bool,
    },
}

impl DocumentStore {
    /// An applier of the oplog of another store, of which this one is a copy. The store was opened with
    /// [`crate::StoreOptions::following`], and nothing else writes to it.
    ///
    /// # Errors
    /// `IllegalOperation` (20) if this store has no oplog, so that it cannot be a copy of one that has.
    pub fn follower(&self) -> Result<Follower> {
        if !self.oplog().is_on() || !self.is_following() {
            return Err(oplog::is_off());
        }
        Ok(Follower {
            store: self.clone(),
            decoder: Decoder::default(),
            values: Vec::new(),
            waiting: Vec::new(),
        })
    }
}

impl Follower {
    /// The last entry that was applied: the next one to be read from the other oplog is the one after it.
    pub fn position(&self) -> Timestamp {
        self.store.oplog().last()
    }

    /// Bytes of an incomplete transaction that waits for its rest.
    pub fn waiting_bytes(&self) -> usize {
        self.values.len()
    }

    /// Forgets an incomplete transaction: entries are read again from the position on.
    pub fn restart(&mut self) {
        self.decoder = Decoder::default();
        self.values.clear();
        self.waiting.clear();
    }

    /// Applies entries, as `local.oplog.rs` shows them. Entries up to the position are left out. When it returns, all are committed
    /// but those of a transaction at the end whose last entry is not there yet.
    ///
    /// # Errors
    /// `DataCorruptionDetected` (301) for an entry that is not known, or does not fit this store; errors of the engine. What comes
    /// before the entry is applied.
    pub fn apply(&mut self, entries: &[&Doc]) -> Result<Applied> {
        let mut applied = Applied::default();
        let done = self.take(entries, &mut applied);
        if done.is_err() {
            self.restart();
        }
        self.store.oplog().applied().notify();
        done.map(|()| applied)
    }

    fn take(&mut self, entries: &[&Doc], applied: &mut Applied) -> Result<()> {
        let mut last = match self.waiting.last() {
            Some(waiting) => waiting.ts,
            None => self.position().to_u64(),
        };
        for entry in entries {
            let start = self.values.len();
            let decoded = self.decoder.decode(entry, &mut self.values)?;
            let value = start..self.values.len();
            if decoded.ts <= last {
                // Read again.
                self.values.truncate(start);
                continue;
            }
            last = decoded.ts;
            let next = Waiting {
                ts: decoded.ts,
                kind: decoded.kind,
                value,
            };
            let way = way(&next, self.values.get(start..).unwrap_or_default())?;
            let waits = self.waiting.first();
            let ends_documents = waits.is_some_and(|first| first.kind != Kind::Transaction)
                && (way != ApplyMode::Document || self.is_full(&next));
            if ends_documents {
                self.commit_documents(applied)?;
            }
            // Committed entries have left the buffer.
            let value = if self.waiting.is_empty() {
                self.values.drain(..next.value.start);
                0..self.values.len()
            } else {
                next.value.clone()
            };
            self.waiting.push(Waiting { value, ..next });
            match way {
                ApplyMode::Document | ApplyMode::Transaction { is_complete: false } => continue,
                ApplyMode::Alone => self.commit_alone()?,
                ApplyMode::Transaction { is_complete: true } => self.commit_transaction()?,
            }
            applied.entries += self.waiting.len() as u64;
            applied.commits += 1;
            self.waiting.clear();
            self.values.clear();
        }
        if (self.waiting.first()).is_some_and(|first| first.kind != Kind::Transaction) {
            self.commit_documents(applied)?;
        }
        Ok(())
    }

    /// Whether an entry does not fit into the commit of those that wait.
    fn is_full(&self, next: &Waiting) -> bool {
        let second = |ts: u64| ts >> 32;
        let first = self.waiting.first().map_or(0, |first| first.ts);
        self.waiting.len() >= COMMIT_DOCUMENTS_MAX
            || next.value.end > COMMIT_BYTES_MAX
            || second(first) != second(next.ts)
    }

    /// Commits the entries of documents that wait.
    fn commit_documents(&mut self, applied: &mut Applied) -> Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        let mut rest = waiting.as_slice();
        while !rest.is_empty() {
            let taken = documents::commit(self.store.catalog(), rest, &self.values)?;
            applied.entries += taken as u64;
            applied.commits += 1;
            rest = rest.get(taken..).unwrap_or_default();
        }
        // The value of an entry that was read since stays.
        let end = waiting.last().map_or(0, |last| last.value.end);
        if end >= self.values.len() {
            self.values.clear();
        }
        Ok(())
    }

    /// The value of a waiting entry.
    fn value(&self, waiting: &Waiting) -> &[u8] {
        self.values.get(waiting.value.clone()).unwrap_or_default()
    }

    fn commit_alone(&self) -> Result<()> {
        let Some(waiting) = self.waiting.first() else {
            return Ok(());
        };
        let value = self.value(waiting);
        let entry = RawEntry::read(value)?;
        let copied = Arc::new(Copied::new(waiting.ts));
        let mut entries = CopiedEntries::default();
        entries.add(0, entry.ns(), value);
        copied.fill(entries);
        let catalog = self.store.catalog().copying(copied.clone());
        commands::apply(&self.store.with_catalog(catalog), &entry)?;
        commit_rest(self.store.catalog(), &copied)
    }

    fn commit_transaction(&self) -> Result<()> {
        let first = self.waiting.first().map_or(0, |first| first.ts);
        let values = self
            .waiting
            .iter()
            .map(|waiting| (waiting.ts, self.value(waiting)));
        let copied = transaction::commit(&self.store, first, &values.collect::<Vec<_>>())?;
        commit_rest(self.store.catalog(), &copied)
    }
}

/// Commits entries that the operations did not commit, because there was nothing to do.
fn commit_rest(catalog: &Catalog, copied: &Arc<Copied>) -> Result<()> {
    if copied.is_put() {
        return Ok(());
    }
    let trees = catalog.oplog().trees().ok_or_else(oplog::is_off)?;
    let log = Log::new(trees, false).copying_here(copied.clone());
    catalog.commit_logged(WriteSet::new(), Some(&log))
}

fn way(waiting: &Waiting, value: &[u8]) -> Result<ApplyMode> {
    Ok(match waiting.kind {
        Kind::Command => ApplyMode::Alone,
        Kind::Transaction => ApplyMode::Transaction {
            is_complete: !RawEntry::read(value)?.is_partial(),
        },
        Kind::Noop => ApplyMode::Document,
        Kind::Insert | Kind::Update | Kind::Replace | Kind::Delete => {
            if commands::is_of_view(RawEntry::read(value)?.ns()) {
                ApplyMode::Alone
            } else {
                ApplyMode::Document
            }
        }
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(crate) mod tests;
