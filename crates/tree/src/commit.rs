//! The commit path: conflict check, sequence numbers, log, memtable, publication.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::memtable::{HotKey, Memtable};
use crate::merge::Resolver;
use crate::pace::Pace;
use crate::store::Inner;
use crate::version::Version;
use crate::write_set::{self, NewTree, Op, WriteSet};
use crate::{Error, Result};

/// When a commit returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// After the append to the log, which is synced once an interval.
    Logged,
    /// After the sync of the log.
    Synced,
}

/// Sealed memtables that may wait before committers do.
const SEALED_MAX: usize = 2;
/// Guards of this many recent commits are kept in each of two generations.
const RECENT_MAX: usize = 128 << 10;

/// So many write sets' room is kept.
const SPARE_SETS_MAX: usize = 2;

/// What the commit lock protects.
pub(crate) struct CommitState {
    pub(crate) next_sequence: u64,
    recent: RecentCommits,
    pace: Pace,
}

impl CommitState {
    pub(crate) fn new(next_sequence: u64) -> CommitState {
        CommitState {
            next_sequence,
            recent: RecentCommits::default(),
            pace: Pace::new(),
        }
    }
}

/// A hasher for keys that are hashes.
#[derive(Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes
            .iter()
            .fold(self.0, |hash, byte| hash << 8 | u64::from(*byte));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

/// The sequence numbers at which guarded keys were committed.
#[derive(Default)]
struct Generation {
    by_hash: HashMap<u64, u64, BuildHasherDefault<Identity>>,
    /// Hashes and numbers that nobody has looked for yet: a writer alone never does.
    waiting: Vec<(u64, u64)>,
    /// The last number.
    end: u64,
}

impl Generation {
    fn len(&self) -> usize {
        self.by_hash.len() + self.waiting.len()
    }

    /// Whether the key was committed after `snapshot`.
    fn has_newer(&mut self, hash: u64, snapshot: u64) -> bool {
        if snapshot >= self.end {
            return false;
        }
        self.by_hash.extend(self.waiting.drain(..));
        let found = self.by_hash.get(&hash);
        found.is_some_and(|sequence| *sequence > snapshot)
    }
}

/// What guarded keys were committed lately. Two generations: when the young one is full
/// the old one is forgotten, and snapshots from before its end conflict with everything.
#[derive(Default)]
struct RecentCommits {
    young: Generation,
    old: Generation,
    /// Commits up to here are forgotten.
    floor: u64,
}

impl RecentCommits {
    /// Whether the key was committed after `snapshot`, or may have been.
    fn conflicts(&mut self, hash: u64, snapshot: u64) -> bool {
        snapshot < self.floor
            || self.young.has_newer(hash, snapshot)
            || self.old.has_newer(hash, snapshot)
    }

    fn record(&mut self, hash: u64, sequence: u64) {
        if self.young.len() >= RECENT_MAX {
            self.floor = self.old.end;
            self.old = std::mem::take(&mut self.young);
        }
        self.young.waiting.push((hash, sequence));
        self.young.end = sequence;
    }
}

impl Inner {
    /// Commits a write set, and keeps its room for the next one.
    pub(crate) fn commit_and_reuse(&self, mut set: WriteSet, how: Durability) -> Result<()> {
        let result = self.commit(&mut set, how);
        if let Some(room) = set.into_room() {
            let mut spare = self.spare_sets.lock();
            if spare.len() < SPARE_SETS_MAX {
                spare.push(room);
            }
        }
        result
    }

    /// Commits a write set.
    fn commit(&self, set: &mut WriteSet, how: Durability) -> Result<()> {
        set.take_failure()?;
        self.check_running()?;
        if set.is_empty() && set.guards().is_empty() {
            return Ok(());
        }
        if how == Durability::Synced && self.log.get().is_none() {
            return Err(Error::InvalidOption(
                "a synced commit needs a journal, and this store has none".to_owned(),
            ));
        }
        let ops = set.len() as u64;

        let mut state = self.make_room(set.memtable_bytes())?;
        if let Some(snapshot) = set.snapshot() {
            let since = snapshot.sequence;
            let changed = |guard: &&write_set::Guard| state.recent.conflicts(guard.hash, since);
            let changed = set.guards().iter().find(changed);
            if let Some(guard) = changed {
                let key = set.guarded_key(guard).to_vec();
                let tree = guard.tree;
                self.version.load().active.cancel(set.memtable_bytes());
                return Err(Error::Conflict { tree, key });
            }
        }
        let first = state.next_sequence;
        // A set of guards alone takes a number too, so that it is ordered among the commits.
        let last = first + ops.max(1) - 1;
        let version = self.version.load_full();
        let position = match self.log.get() {
            Some(log) => match log.append(set.payload(), first) {
                Ok(position) => position,
                Err(error) => {
                    version.active.cancel(set.memtable_bytes());
                    return Err(error);
                }
            },
            None => 0,
        };
        state.next_sequence = last + 1;
        for guard in set.guards() {
            state.recent.record(guard.hash, last);
        }
        version.active.note_last_sequence(last);
        if set.changes_trees() {
            version.active.note_tree_changes();
            self.change_trees(&version, set.payload(), last);
        }
        let delay = match version.sealed.len() {
            0 => Duration::ZERO,
            _ if self.options.inline => Duration::ZERO,
            waiting => state.pace.delay(
                &self.feeder.speed,
                Memtable::ops_bytes(set.len(), set.bytes()),
                waiting,
                version.active.fill(),
                self.options.memtable_size(),
            ),
        };
        drop(state);

        let hot = version.active.insert(
            write_set::decode(set.payload()),
            set.len(),
            first,
            set.memtable_bytes(),
        );
        self.publisher.publish(first, last);
        self.fold_hot(&version.active, hot);
        if !delay.is_zero() {
            std::thread::sleep(delay);
        }
        match (how, self.log.get()) {
            (Durability::Synced, Some(log)) => log.wait_durable(position),
            _ => Ok(()),
        }
    }

    /// Folds the update messages of hot keys of a memtable, if that still takes commits and has room.
    pub(crate) fn fold_hot(&self, memtable: &Arc<Memtable>, hot: Vec<HotKey>) {
        for hot in hot {
            let resolver = Resolver {
                tree: hot.tree,
                operator: self.options.merge.clone(),
            };
            let Some(folded) = memtable.fold(hot, self.publisher.visible(), &resolver) else {
                continue;
            };
            let bytes = memtable.folded_bytes(&folded);
            let state = self.commit_lock.lock();
            let is_active = Arc::ptr_eq(&self.version.load().active, memtable);
            if !is_active || !memtable.reserve(bytes) {
                return;
            }
            drop(state);
            memtable.insert_folded(&folded, bytes);
        }
    }

    /// Takes the commit lock with `bytes` reserved in the active memtable. Seals a full memtable, and
    /// waits while too many sealed ones are not fed yet. Fails if they cannot be fed for now.
    pub(crate) fn make_room(
        &self,
        bytes: usize,
    ) -> Result<parking_lot::MutexGuard<'_, CommitState>> {
        let mut state = self.commit_lock.lock();
        loop {
            self.check_running()?;
            let version = self.version.load();
            if version.active.reserve(bytes) {
                return Ok(state);
            }
            let is_full = version.sealed.len() >= SEALED_MAX;
            drop(version);
            if !is_full {
                self.seal(bytes);
            }
            if self.options.inline {
                drop(state);
                let fed = self.feed_all();
                self.check_running()?;
                // There is a new memtable, or none could be made.
                if is_full && fed.is_err() {
                    return Err(self
                        .feeder
                        .stall()
                        .or(fed.err())
                        .unwrap_or_else(|| Error::Closed("a feed failed".to_owned())));
                }
                state = self.commit_lock.lock();
            } else if is_full {
                if let Some(error) = self.feeder.stall() {
                    return Err(error);
                }
                self.room.wait(&mut state);
            }
        }
    }

    /// Puts a new memtable in front; called under the commit lock.
    pub(crate) fn seal(&self, bytes: usize) {
        let version = self.version.load();
        let size = self.options.memtable_size().max(bytes + 4096);
        let log_start = self
            .log
            .get()
            .map_or(version.active.log_start, |log| log.end());
        let mut sealed = vec![version.active.clone()];
        sealed.extend_from_slice(&version.sealed);
        self.version.store(Arc::new(Version {
            active: Arc::new(Memtable::new(size, log_start, &self.spare_blocks)),
            sealed,
            trees: version.trees.clone(),
        }));
        self.runs.cache.share();
        self.feeder.wake();
    }

    /// Creates and drops the trees that a write set with the last sequence number `last` says; called under
    /// the commit lock.
    pub(crate) fn change_trees(&self, version: &Version, payload: &[u8], last: u64) {
        let mut trees = (*version.trees).clone();
        trees.changed_at = last;
        for op in write_set::decode(payload) {
            match op {
                Op::CreateTree(id, options, state) => {
                    self.next_tree.fetch_max(id.0 + 1, Ordering::AcqRel);
                    let root = crate::node::Subtree::Empty;
                    let loading = state == NewTree::ToBeLoaded;
                    let tree = crate::version::Tree {
                        options,
                        root,
                        loading,
                    };
                    trees.insert(id, tree);
                }
                Op::DropTree(id) => {
                    trees.remove(id);
                }
                Op::Entry { .. } | Op::DeleteRange { .. } => {}
            }
        }
        self.version.store(Arc::new(Version {
            trees: Arc::new(trees),
            ..version.clone()
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgotten_commits_conflict_with_old_snapshots() {
        let mut recent = RecentCommits::default();
        recent.record(7, 10);
        assert!(recent.conflicts(7, 9));
        assert!(!recent.conflicts(7, 10));
        assert!(!recent.conflicts(8, 0));
        for i in 0..3 * RECENT_MAX as u64 {
            recent.record(1000 + i, 11 + i);
        }
        assert!(recent.conflicts(7, 9), "its generation is gone");
        assert!(!recent.conflicts(7, 3 * RECENT_MAX as u64));
    }
}
