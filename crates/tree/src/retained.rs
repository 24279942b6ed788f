//! Memtables that are flushed, and that snapshots keep in memory.
//!
//! A snapshot reads the memtables of its moment, so they stay in memory while it lives, however idle its owner is. When
//! such memtables take more than their share of the budget, a snapshot can be detached from them: what they have for
//! the trees that its owner reads goes to runs above the roots of these trees, as in a flush, but only up to the
//! snapshot's sequence number and for this snapshot alone. No other snapshot sees the runs. Their extents are free again
//! when the snapshot is dropped, and together they are bounded; after a crash the search for lost space finds them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::compress::free_compressors;
use crate::engine::Engine;
use crate::memtable::{Memtable, SpareBlocks};
use crate::run::free_buffers;
use crate::snapshot::Snapshot;
use crate::version::Version;
use crate::{Error, MemoryUse, Result, Store, TreeId};

/// Memtables that only snapshots hold may take this share of the engine's part of the budget, without what connections take, and at
/// least one may be there.
const SHARE: u64 = 4;
/// Scans that may detach their snapshots at a time.
const TURNS: usize = 8;
/// The data on disk for single snapshots may take this multiple of the engine's part of the budget: a memtable may be written
/// once for each.
const DETACHED_MULTIPLE: u64 = 6;

/// The right of a scan to detach its snapshot, until it is dropped.
struct Turn<'a>(&'a AtomicUsize);

impl Turn<'_> {
    fn take(taken: &AtomicUsize) -> Option<Turn<'_>> {
        let turn = Turn(taken);
        (taken.fetch_add(1, Ordering::Relaxed) < TURNS).then_some(turn)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Store {
    /// Bytes of memtables that only snapshots keep in memory.
    pub fn retained_bytes(&self) -> u64 {
        self.engine().retained_bytes()
    }

    /// Whether snapshots keep more memtables in memory than their share of the budget. Then those that are not used for a
    /// while should be detached ([`Store::detach`]) or dropped.
    pub fn retains_too_much(&self) -> bool {
        self.engine().retains_too_much()
    }

    /// Whether it is twice their share: more comes than is detached, and those that are not used have to be dropped.
    pub fn retains_far_too_much(&self) -> bool {
        self.engine().kept_multiple() > 2.0
    }

    /// Bytes of memtables that this snapshot keeps in memory beyond the current state.
    pub fn retained_by(&self, snapshot: &Snapshot) -> u64 {
        let (_, flushed) = self.engine().divide(snapshot);
        flushed
            .iter()
            .map(|memtable| memtable.capacity() as u64)
            .sum()
    }

    /// A snapshot of the same moment that keeps no flushed memtable in memory and reads only `trees`; other trees
    /// are unknown to it. What the memtables have for these trees is written to the data file.
    ///
    /// # Errors
    /// [`Error::Stalled`](crate::Error::Stalled) while the disk is nearly full, or while detached snapshots take too much
    /// of it; errors of the disk.
    pub fn detach(&self, snapshot: &Snapshot, trees: &[TreeId]) -> Result<Snapshot> {
        self.engine().detach(snapshot, Some(trees))
    }

    /// As [`Store::detach`]; `None` while some others do the same, because it takes memory. For a reader that can go on and try again
    /// later.
    ///
    /// # Errors
    /// As [`Store::detach`].
    pub fn try_detach(&self, snapshot: &Snapshot, trees: &[TreeId]) -> Result<Option<Snapshot>> {
        let engine = self.engine();
        let Some(_turn) = Turn::take(&engine.detaching) else {
            return Ok(None);
        };
        engine.detach(snapshot, Some(trees)).map(Some)
    }
}

impl Engine {
    /// A snapshot of the same moment that keeps no flushed memtable in memory, for readers of some trees, or of all.
    pub(crate) fn detach(&self, snapshot: &Snapshot, only: Option<&[TreeId]>) -> Result<Snapshot> {
        let detached = self.write_detached(snapshot, only);
        // Threads of commands seldom write runs, and there may be hundreds of them.
        free_buffers();
        free_compressors();
        detached
    }

    fn write_detached(&self, snapshot: &Snapshot, only: Option<&[TreeId]>) -> Result<Snapshot> {
        self.check_running()?;
        let (kept, flushed) = self.divide(snapshot);
        if flushed.is_empty() {
            return Ok(snapshot.clone());
        }
        self.check_room()?;
        let written: Vec<TreeId>;
        let trees = match only {
            Some(trees) => trees,
            None => {
                let trees = flushed.iter().flat_map(|memtable| memtable.trees());
                let trees: BTreeSet<TreeId> = trees.map(|(tree, ..)| tree).collect();
                written = trees.into_iter().collect();
                &written
            }
        };
        let in_trees = |memtable: &Arc<Memtable>| -> u64 {
            let stats = trees.iter().filter_map(|tree| memtable.tree_stats(*tree));
            stats.map(|stats| stats.bytes).sum()
        };
        let bytes = flushed.iter().map(in_trees).sum();
        let limit = self.runs.budget.bytes() * DETACHED_MULTIPLE;
        let before = snapshot.detached.as_ref();
        let Some(detached) = self.counters.detached.take(bytes, limit, before) else {
            return Err(Error::Stalled {
                disk_full: false,
                reason: format!("{limit} bytes of the disk are in use for old snapshots"),
            });
        };
        let version = &snapshot.version;
        let mut roots = Vec::with_capacity(trees.len());
        for id in trees {
            let Some(tree) = version.trees.get(*id) else {
                continue;
            };
            let (mut tree, builder) = (tree.clone(), self.builder(*id, tree));
            for memtable in flushed.iter().rev() {
                tree.root = builder.put_visible_above(&tree.root, memtable, snapshot.sequence)?;
            }
            roots.push((*id, tree));
        }
        let trees = match only {
            Some(_) => version.trees.with_only(roots),
            None => {
                let mut trees = (*version.trees).clone();
                for (id, tree) in roots {
                    trees.set_root(id, tree.root);
                }
                trees
            }
        };
        let mut kept = kept.into_iter();
        Ok(Snapshot {
            version: Arc::new(Version {
                active: kept.next().unwrap_or_else(no_memtable),
                sealed: kept.collect(),
                trees: Arc::new(trees),
                damage: version.damage.clone(),
                operator: version.operator.clone(),
            }),
            detached: Some(detached),
            ..snapshot.clone()
        })
    }

    /// The memtables of a snapshot, newest first: those of the current version, and those that are flushed.
    fn divide(&self, snapshot: &Snapshot) -> (Vec<Arc<Memtable>>, Vec<Arc<Memtable>>) {
        let current = self.version.load();
        let is_current =
            |memtable: &&Arc<Memtable>| current.memtables().any(|now| Arc::ptr_eq(now, memtable));
        let memtables = snapshot.version.memtables();
        let memtables = memtables.filter(|memtable| !memtable.is_empty());
        let (kept, flushed): (Vec<_>, Vec<_>) = memtables.partition(is_current);
        let cloned = |memtables: Vec<&Arc<Memtable>>| memtables.into_iter().cloned().collect();
        (cloned(kept), cloned(flushed))
    }

    /// As [`Store::retains_too_much`].
    pub(crate) fn retains_too_much(&self) -> bool {
        self.kept_multiple() > 1.0
    }

    /// The bytes that snapshots keep, as a multiple of what they may; 0 if it is surely less.
    pub(crate) fn kept_multiple(&self) -> f64 {
        let memtable = self.options.memtable_size() as u64;
        let allowed = (self.runs.budget.beside_connections() / SHARE).max(memtable);
        // Cheap, and mostly enough: the current memtables alone seldom take that much.
        if self.runs.budget.used(MemoryUse::Memtables) <= allowed {
            return 0.0;
        }
        self.retained_bytes() as f64 / allowed as f64
    }

    fn retained_bytes(&self) -> u64 {
        let all = self.runs.budget.used(MemoryUse::Memtables);
        let version = self.version.load();
        let current: usize = version
            .memtables()
            .map(|memtable| memtable.capacity())
            .sum();
        all.saturating_sub((current + self.spare_blocks.bytes()) as u64)
    }
}

/// An empty memtable, of the least size.
fn no_memtable() -> Arc<Memtable> {
    Arc::new(Memtable::new(0, 0, &Arc::<SpareBlocks>::default()))
}

#[cfg(test)]
mod tests {
    use super::{TURNS, Turn};
    use crate::{Durability, Options, Store, TreeOptions, WriteSet};

    /// 50 sorts that found at the same time that they keep too many memtables wrote runs at the same time, each with buffers of
    /// its own.
    #[test]
    fn a_few_scans_detach_their_snapshots_at_a_time() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::open(Options::new(directory.path())).expect("a store");
        let tree = store.allocate_tree();
        let mut set = WriteSet::new();
        set.create_tree(tree, &TreeOptions::default());
        set.put(tree, b"key", b"value");
        store.commit(set, Durability::Logged).expect("a commit");
        let snapshot = store.snapshot();
        store.checkpoint().expect("a checkpoint");
        let turns: Vec<_> = (0..TURNS)
            .map(|_| Turn::take(&store.engine().detaching))
            .collect();
        assert!(turns.iter().all(Option::is_some));
        let detached = store.try_detach(&snapshot, &[tree]).expect("no error");
        assert!(detached.is_none());
        drop(turns);
        let detached = store.try_detach(&snapshot, &[tree]).expect("no error");
        let detached = detached.expect("a snapshot");
        assert_eq!(store.retained_by(&detached), 0);
        assert!(detached.contains(tree, b"key").expect("a look-up"));
    }
}
