//! The state of an open store, and the steps on it that commits and background work share: snapshots, sealing of
//! memtables, and publication of new versions.
//!
//! # Versions as epochs
//! A [`Version`] names the memtables and the roots that together are the content of the store. It is immutable and replaced as a
//! whole under the commit lock ([`Engine::set_version`]); readers load it without a lock. It is an epoch in the sense of
//! epoch-based reclamation, with reference counts in place of a global epoch: what a version holds is freed when the last
//! snapshot of it is dropped, and a long snapshot keeps only its own memtables and nodes.
//!
//! A snapshot is a version and a number, which must belong together: all commits up to the number are in the memtables or the
//! trees of the version, and its trees have no later commit.
//! ```text
//! snapshot():
//!     version = load
//!     loop:
//!         sequence = publisher.for_snapshot()
//!         if load == version: return (version, sequence)
//!         version = load                                         it was replaced: once more
//! ```
//! - If the version is the same before and after, a commit up to the number was inserted into one of its memtables: a later
//!   memtable has only numbers above those that were given out when it was made (V3).
//! - The trees have only commits of memtables that were visible when they were flushed (F3), so none is above the number.
//!
//! The gate for changes of the trees is `Flusher::working`: a flush, a compaction, a checkpoint and the end of a load hold it from
//! the read of a root until the publication of the new one. So each root is replaced by one that was made from it. The
//! commit lock alone would not do: a flush takes seconds. Commits that create or drop trees do not take the gate; `set_root`
//! leaves out a tree that was dropped meanwhile.
//!
//! To take both under the commit lock would be simpler. But each snapshot, and so each query, would wait for the lock of the
//! committers.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use frond_kv::ApplyListener;
use frond_kv::operation::Op;
use parking_lot::{Condvar, Mutex};

use crate::activity::{Conditions, Running};
use crate::checkpoint::Checkpointer;
use crate::conflicts::RecentCommits;
use crate::damage::Activity;
use crate::detached::DetachedBytes;
use crate::disk_space::SpaceWatch;
use crate::durable_stamp::DurableStamp;
use crate::fail_stop::{FailStop, step};
use crate::flush_scope::FlushScope;
use crate::flusher::Flusher;
use crate::intents::Intents;
use crate::log::{CommitPoint, Log};
use crate::memtable::{Memtable, SpareBlocks};
use crate::merge::Resolver;
use crate::node::{Builder, Subtree};
use crate::publisher::Publisher;
use crate::run::RunStore;
use crate::snapshot::Snapshot;
use crate::sweep::Sweep;
use crate::version::{Tree, Trees, Version};
use crate::write_throttle::WriteThrottle;
use crate::{Error, Options, Result, TreeId, WriteSet};

/// The state that the commit lock protects.
pub(crate) struct CommitState {
    /// C1: the numbers below were given out, each to one operation of one commit; it only grows, and is above what is visible.
    pub(crate) next_sequence: u64,
    /// The last stamp of the commits so far, as far as it is known; 0 before the first one.
    ///
    /// C2: the stamps of a commit are above those of the commits before it.
    pub(crate) last_stamp: u64,
    pub(crate) recent: RecentCommits,
    /// The keys that open transactions hold.
    pub(crate) intents: Intents,
    pub(crate) throttle: WriteThrottle,
    /// Whether a large commit has its room, and is not visible yet.
    ///
    /// C3: there is at most one.
    pub(crate) large_is_under_way: bool,
    /// The last number of the newest commit that later ones wait for, because it may take long.
    ///
    /// C4: it was given out, and only grows.
    pub(crate) awaited: u64,
}

impl CommitState {
    pub(crate) fn new(next_sequence: u64, recent: RecentCommits) -> CommitState {
        CommitState {
            next_sequence,
            last_stamp: 0,
            recent,
            intents: Intents::default(),
            throttle: WriteThrottle::new(),
            large_is_under_way: false,
            awaited: 0,
        }
    }
}

/// A listener in a form that can be replaced without a lock.
pub(crate) struct Listening(pub(crate) Arc<dyn ApplyListener>);

pub(crate) struct Engine {
    pub(crate) options: Options,
    pub(crate) runs: Arc<RunStore>,
    pub(crate) version: ArcSwap<Version>,
    /// Arena blocks of dropped memtables, for reuse.
    pub(crate) spare_blocks: Arc<SpareBlocks>,
    /// Arena blocks of small memtables of transactions, for reuse.
    pub(crate) small_blocks: Arc<SpareBlocks>,
    /// Buffers of committed write sets, for reuse.
    pub(crate) spare_sets: Mutex<Vec<WriteSet>>,
    pub(crate) commit_lock: Mutex<CommitState>,
    /// C5: the position in the log after the last commit that has a number. It changes under the commit lock.
    pub(crate) log_position: AtomicU64,
    /// Wakes committers that wait for a memtable to be flushed, or for a large commit; used with the commit lock.
    pub(crate) flushed: Condvar,
    pub(crate) publisher: Arc<Publisher>,
    pub(crate) durable_stamp: Arc<DurableStamp>,
    /// Set once the replay is over, unless the journal is off.
    pub(crate) log: OnceLock<Log>,
    /// Gets the commits that a member of a replica set applies.
    pub(crate) apply_listener: ArcSwapOption<Listening>,
    /// A buffer for the frames of the entries that are applied.
    pub(crate) applied_frames: Mutex<Vec<u8>>,
    /// The commit point of the replica set, for checkpoints during the replay.
    pub(crate) replayed_point: Mutex<Option<CommitPoint>>,
    pub(crate) checkpointer: Mutex<Checkpointer>,
    pub(crate) flusher: Flusher,
    pub(crate) disk_space: SpaceWatch,
    pub(crate) next_tree: AtomicU32,
    /// Shared by the bulk loaders: they use space that no checkpoint refers to.
    pub(crate) loaders: Arc<()>,
    /// The log's end when the last bulk load was put under its trees: the load may have what is committed up to there.
    pub(crate) loaded_at: AtomicU64,
    /// The search for used space that nothing refers to, after a crash.
    pub(crate) sweep: Mutex<Option<Sweep>>,
    /// The scans that detach their snapshots from memtables now: each writes runs and has buffers for it, and many scans may find
    /// at a time that they keep too much.
    pub(crate) detaching: AtomicUsize,
    pub(crate) counters: Counters,
    pub(crate) conditions: Conditions,
    pub(crate) failure: OnceLock<String>,
    pub(crate) is_closed: Mutex<bool>,
    /// Whether parts of a damaged log are set aside; set when the store is opened.
    pub(crate) was_log_cut: OnceLock<bool>,
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.runs.orphans.close();
    }
}

/// Counters of what the store did since it was opened.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) commits: AtomicU64,
    pub(crate) memtables_flushed: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
    /// Bytes that are on disk for single snapshots.
    pub(crate) detached: DetachedBytes,
}

impl Engine {
    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut version = self.version.load();
        loop {
            let sequence = self.publisher.for_snapshot();
            let again = self.version.load();
            // If the version is the same before and after the number was read, all commits up to the number are in
            // the version's memtables, and none of its trees holds a later commit.
            if version.trees.dropped_at > sequence {
                // The version lacks a tree that a snapshot of this number has. The commit that drops it is about to become
                // visible. Created trees need no wait: they have the number of their commit.
                self.publisher.wait(version.trees.dropped_at);
            } else if Arc::ptr_eq(&version, &again) {
                return Snapshot {
                    version: Guard::into_inner(version),
                    sequence,
                    detached: None,
                    own: None,
                };
            }
            version = again;
        }
    }

    /// Fails when the store was closed or a background thread failed.
    pub(crate) fn check_running(&self) -> Result<()> {
        match self.failure.get() {
            Some(failure) => Err(Error::Closed(failure.clone())),
            None => Ok(()),
        }
    }

    /// Stops the store, with this reason.
    pub(crate) fn fail(&self, reason: String) {
        let _ = self.failure.set(reason);
        // Under the lock, so that no committer misses it between its check and its wait.
        let _state = self.commit_lock.lock();
        self.flushed.notify_all();
    }

    pub(crate) fn trees(&self) -> Arc<Trees> {
        self.version.load().trees.clone()
    }

    /// The position in the log after the last commit that has a number.
    pub(crate) fn log_position(&self) -> u64 {
        self.log_position.load(Ordering::Acquire)
    }

    /// Records that commits up to a position have their numbers. The caller holds the commit lock.
    pub(crate) fn advance_log_position(&self, position: u64) {
        self.log_position.fetch_max(position, Ordering::Release);
    }

    /// Seals the active memtable if it has more than `bytes` bytes.
    pub(crate) fn seal_if_over(&self, bytes: usize) {
        let state = self.commit_lock.lock();
        let version = self.version.load();
        if !version.active.is_empty() && version.active.bytes() > bytes {
            self.seal(&state, 0);
        }
    }

    /// Whether new memtables should be small, because clients take much memory or snapshots keep many memtables.
    pub(crate) fn needs_small_memtables(&self) -> bool {
        self.runs.budget.clients_are_many() || self.retains_too_much()
    }

    /// The size of the next memtable in bytes.
    fn new_memtable_size(&self) -> usize {
        if self.needs_small_memtables() {
            self.options.small_memtable_size()
        } else {
            self.options.memtable_size()
        }
    }

    /// Seals the active memtable and puts a new one in its place. The caller holds the commit lock: it has its state.
    pub(crate) fn seal(&self, state: &CommitState, bytes: usize) {
        let guard = FailStop::begin("sealing a memtable");
        let version = self.version.load();
        assert!(
            version.active.last_sequence() < state.next_sequence,
            "C1: a memtable has numbers that were not given out"
        );
        let size = self.new_memtable_size().max(bytes + 4096);
        self.spare_blocks.keep_fitting(size);
        let log_start = match self.log.get() {
            Some(_) => self.log_position(),
            None => version.active.log_start,
        };
        let mut sealed = vec![version.active.clone()];
        sealed.extend_from_slice(&version.sealed);
        let active = Memtable::new(size, log_start, &self.spare_blocks);
        assert!(
            active.capacity() >= bytes.min(u32::MAX as usize / 2),
            "M4: a new memtable has no room for what it is made for"
        );
        self.set_version(Version {
            active: Arc::new(active.after(
                &version.active,
                state.next_sequence - 1,
                state.last_stamp,
            )),
            sealed,
            ..Version::clone(&version)
        });
        step("a memtable is sealed");
        self.runs.cache.share();
        self.flusher.wake();
        guard.finish();
        // With little room the committer measures it: commits could fill the disk before a thread gets a processor.
        if self.disk_space.is_tight() {
            self.check_space()
        } else {
            self.disk_space.measure_soon()
        }
    }

    /// Applies the tree creations and drops among the operations of a write set whose last sequence number is `last`. The
    /// caller holds the commit lock.
    pub(crate) fn change_trees<'a>(
        &self,
        version: &Version,
        ops: impl Iterator<Item = Op<'a>>,
        last: u64,
    ) {
        let mut trees = (*version.trees).clone();
        for op in ops {
            match op {
                Op::CreateTree(id, options, state) => {
                    self.next_tree.fetch_max(id.0 + 1, Ordering::AcqRel);
                    trees.insert(id, Tree::new(options, state, last));
                }
                Op::DropTree(id) => {
                    assert!(
                        last >= trees.dropped_at,
                        "V5: trees are dropped in another order than that of the commits"
                    );
                    trees.dropped_at = last;
                    if let Some(tree) = trees.get(id) {
                        tree.root.clone().abandon(&self.runs);
                    }
                    trees.remove(id);
                }
                Op::Entry { .. } | Op::DeleteRange { .. } => {}
            }
        }
        step("a commit changes trees");
        self.set_version(Version {
            trees: Arc::new(trees),
            ..version.clone()
        });
    }

    pub(crate) fn publish_roots(&self, roots: impl IntoIterator<Item = (TreeId, Subtree)>) {
        self.publish(roots, None);
    }

    /// Publishes the roots that hold all of the oldest sealed memtable, and drops that memtable.
    pub(crate) fn publish_flushed(
        &self,
        roots: impl IntoIterator<Item = (TreeId, Subtree)>,
        memtable: &Arc<Memtable>,
    ) {
        self.publish(roots, Some(memtable));
    }

    fn publish(
        &self,
        roots: impl IntoIterator<Item = (TreeId, Subtree)>,
        flushed: Option<&Arc<Memtable>>,
    ) {
        let _state = self.commit_lock.lock();
        let guard = FailStop::begin("publishing what it has flushed");
        let version = self.version.load_full();
        let mut trees = (*version.trees).clone();
        for (id, root) in roots {
            // A tree that was dropped in the meantime stays dropped.
            trees.set_root(id, root);
        }
        let mut sealed = version.sealed.clone();
        if let Some(flushed) = flushed {
            let oldest = sealed.pop();
            assert!(
                oldest.is_some_and(|oldest| Arc::ptr_eq(&oldest, flushed)),
                "F1: the memtable that was flushed is not the oldest one"
            );
            assert!(
                flushed.has_no_writers(),
                "F2: a memtable that is written to is dropped"
            );
            assert!(
                flushed.last_sequence() <= self.publisher.visible(),
                "F3: trees get commits that are not visible"
            );
        }
        self.set_version(Version {
            sealed,
            trees: Arc::new(trees),
            ..Version::clone(&version)
        });
        step("a version is published");
        guard.finish();
    }

    /// Runs work, and reports its beginning and its end. `bytes` is the size at the beginning; at the end it is the number of bytes
    /// written to the data file meanwhile.
    pub(crate) fn report<T>(
        &self,
        activity: Activity,
        bytes: u64,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let running = Running::begin(&self.options.listener, activity, bytes, None);
        let (_, _, before) = self.runs.data.io_stats();
        let result = work();
        let (_, _, after) = self.runs.data.io_stats();
        running.end(after - before, result.as_ref().err());
        result
    }

    /// Reports when a condition begins or ends. `error` is the reason for it.
    pub(crate) fn report_condition(
        &self,
        activity: Activity,
        holds: bool,
        bytes: u64,
        error: Option<&Error>,
    ) {
        let listener = &self.options.listener;
        (self.conditions).report(listener, activity, holds, bytes, error);
    }

    /// Replaces the version. The caller holds the commit lock, or nothing else runs yet.
    pub(crate) fn set_version(&self, version: Version) {
        version.check_order();
        let before = self.version.load();
        assert!(
            version.active.sequence_before >= before.active.sequence_before,
            "V1: an older memtable becomes the active one"
        );
        assert!(
            version.log_start() >= before.log_start(),
            "V2: a version needs log that the one before did not need"
        );
        assert!(
            version.sequence_in_trees() >= before.sequence_in_trees(),
            "V3: the trees of a version have fewer commits than those before"
        );
        assert!(
            version.trees.dropped_at >= before.trees.dropped_at,
            "V5: a version forgets that trees were dropped"
        );
        self.version.store(Arc::new(version));
    }

    pub(crate) fn builder(&self, id: TreeId, tree: &Tree) -> Builder {
        let mut options = tree.options.clone();
        let leaf_bytes_max = self.disk_space.leaf_bytes_max();
        options.node_bytes = u64::from(options.node_bytes).min(leaf_bytes_max) as u32;
        Builder {
            store: self.runs.clone(),
            options,
            resolver: Resolver {
                tree: id,
                operator: self.options.merge.clone(),
                settles: true,
            },
            fanout: self.options.fanout,
            allowance: Arc::new(AtomicU64::new(self.disk_space.spare_bytes())),
            allowance_max: self.disk_space.spare_bytes(),
            step_max: self.disk_space.step_max(),
            scope: FlushScope::of_one_thread(),
        }
    }
}
