//! The store: one directory with many trees, one log, one data file and one cache.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use parking_lot::{Condvar, Mutex};

use crate::budget::Budget;
use crate::cache::PageCache;
use crate::checkpoint::{self, Checkpointer};
use crate::commit::{CommitState, Durability};
use crate::data_file::{DATA_FILE, DataFile};
use crate::feeder::Feeder;
use crate::log::{self, Log};
use crate::memtable::{Memtable, SpareBlocks};
use crate::node::TreeStats;
use crate::publisher::Publisher;
use crate::run::RunStore;
use crate::snapshot::Snapshot;
use crate::space::SpaceStats;
use crate::version::{Trees, Version};
use crate::write_set::{self, WriteSet};
use crate::{Error, Options, Result, TreeId};

/// A handle to an open store; clones are cheap and mean the same store. The last one that goes
/// closes it.
#[derive(Clone)]
pub struct Store {
    pub(crate) inner: Arc<Handle>,
}

/// Closes the store when the last handle goes. The background thread holds only [`Inner`].
pub(crate) struct Handle {
    pub(crate) inner: Arc<Inner>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Errors were reported by the calls before, and what is logged is safe.
        let _ = self.inner.close();
    }
}

pub(crate) struct Inner {
    pub(crate) options: Options,
    pub(crate) runs: Arc<RunStore>,
    pub(crate) version: ArcSwap<Version>,
    /// Memory of dropped memtables.
    pub(crate) spare_blocks: Arc<SpareBlocks>,
    /// Room of write sets that were committed.
    pub(crate) spare_sets: Mutex<Vec<WriteSet>>,
    pub(crate) commit_lock: Mutex<CommitState>,
    /// Wakes committers that wait for a memtable to be fed; used with the commit lock.
    pub(crate) room: Condvar,
    pub(crate) publisher: Publisher,
    /// Set once the replay is over, unless the journal is off.
    pub(crate) log: OnceLock<Log>,
    pub(crate) checkpointer: Mutex<Checkpointer>,
    pub(crate) feeder: Feeder,
    pub(crate) next_tree: AtomicU32,
    pub(crate) figures: Figures,
    failure: OnceLock<String>,
    is_closed: Mutex<bool>,
}

/// Counters of what the store did since it was opened.
#[derive(Default)]
pub(crate) struct Figures {
    pub(crate) commits: AtomicU64,
    pub(crate) memtables_fed: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
}

/// Figures about an open store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Number of trees.
    pub trees: u64,
    /// The memory budget in bytes.
    pub cache_bytes_max: u64,
    /// Bytes of pages, indexes and filters in the cache.
    pub page_bytes: u64,
    /// Bytes of the memtables alive in the current version.
    pub memtable_bytes: u64,
    /// Memtables that wait to be fed.
    pub sealed_memtables: u64,
    /// Look-ups in the page cache that found, and that did not.
    pub cache_hits: u64,
    /// See `cache_hits`.
    pub cache_misses: u64,
    /// Reads of the data file, and their bytes.
    pub reads: u64,
    /// See `reads`.
    pub read_bytes: u64,
    /// Bytes written to the data file.
    pub written_bytes: u64,
    /// Position behind the last frame of the log: bytes logged since the store was created, before compression.
    pub log_bytes: u64,
    /// Bytes written to the log's files since the store was opened.
    pub log_written_bytes: u64,
    /// Space in the data file.
    pub space: SpaceStats,
    /// Commits since the store was opened.
    pub commits: u64,
    /// Memtables fed to the trees since the store was opened.
    pub memtables_fed: u64,
    /// Checkpoints since the store was opened.
    pub checkpoints: u64,
}

impl Store {
    /// Opens a store, and creates it if there is none. Replays the log.
    ///
    /// # Errors
    /// [`Error::InvalidOption`], [`Error::Corrupt`], or an error of the disk.
    pub fn open(options: Options) -> Result<Store> {
        options.check()?;
        let disk = options.disk.clone();
        let file = disk
            .open(DATA_FILE, true)
            .map_err(Error::io(format!("opening {DATA_FILE}")))?;
        let budget = Budget::new(options.counted_bytes(), options.writers_bytes());
        let runs = Arc::new(RunStore {
            data: DataFile::new(file),
            cache: PageCache::new(&budget),
            budget,
        });
        disk.sync_directory()
            .map_err(Error::io("syncing the store's directory"))?;
        checkpoint::check_magic(&runs)?;
        let opened = checkpoint::open(&runs)?;
        let position = opened.position;
        let size = options.memtable_size();
        let budget = runs.budget.clone();
        let spare_blocks = SpareBlocks::new(move |bytes| budget.lend(bytes));
        let version = Version {
            active: Arc::new(Memtable::new(size, position.log_start, &spare_blocks)),
            sealed: Vec::new(),
            trees: Arc::new(opened.trees),
        };
        let inner = Arc::new(Inner {
            runs,
            version: ArcSwap::from_pointee(version),
            spare_blocks,
            spare_sets: Mutex::default(),
            commit_lock: Mutex::new(CommitState::new(position.sequence + 1)),
            room: Condvar::new(),
            publisher: Publisher::new(position.sequence),
            log: OnceLock::new(),
            checkpointer: Mutex::new(opened.checkpointer),
            feeder: Feeder::default(),
            next_tree: AtomicU32::new(position.next_tree),
            figures: Figures::default(),
            failure: OnceLock::new(),
            is_closed: Mutex::new(false),
            options,
        });
        let end = log::replay(&*disk, position.log_start, |at, sequence, payload| {
            inner.replay_frame(at, sequence, payload)
        })?;
        if inner.options.journal {
            let options = &inner.options;
            let interval = (!options.inline).then_some(options.journal_commit_interval);
            // About as much as a checkpoint lets go; less costs more syncs than it saves space.
            let segment_bytes = match options.inline {
                true => options.memtable_size(),
                false => options.memtable_size().max(1 << 20),
            };
            let log = Log::open(disk, end, interval, segment_bytes)?;
            let _ = inner.log.set(log);
        } else {
            // The next checkpoint names the end of the old log.
            inner.seal_replayed(end);
            inner.feed_all()?;
        }
        Feeder::start(&inner)?;
        Ok(Store {
            inner: Arc::new(Handle { inner }),
        })
    }

    fn inner(&self) -> &Arc<Inner> {
        &self.inner.inner
    }

    /// An id for a new tree. Ids are never used twice.
    pub fn allocate_tree(&self) -> TreeId {
        TreeId(self.inner().next_tree.fetch_add(1, Ordering::AcqRel))
    }

    /// Gives out no id below `next`.
    pub(crate) fn reserve_trees(&self, next: TreeId) {
        self.inner().next_tree.fetch_max(next.0, Ordering::AcqRel);
    }

    /// A consistent view of everything that is committed now.
    pub fn snapshot(&self) -> Snapshot {
        self.inner().snapshot()
    }

    /// An empty write set whose guarded keys must not have changed since `snapshot`, with room for operations of
    /// about `bytes` bytes. Large write sets should begin like this: the memory of former ones is used again.
    pub fn write_set(&self, snapshot: &Snapshot, bytes: usize) -> WriteSet {
        let spare = self.inner().spare_sets.lock().pop();
        spare.unwrap_or_default().with_room(snapshot, bytes)
    }

    /// Commits a write set: all of it or nothing.
    ///
    /// # Errors
    /// [`Error::Conflict`] if a guarded key was committed after the set's snapshot,
    /// [`Error::TooLarge`], [`Error::InvalidOption`], or an error of the disk.
    pub fn commit(&self, set: WriteSet, how: Durability) -> Result<()> {
        self.inner().commit_and_reuse(set, how)?;
        self.inner().figures.commits.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Returns when everything that was committed before the call is durable. Without a journal
    /// this is a checkpoint.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn flush_log(&self) -> Result<()> {
        match self.inner().log.get() {
            Some(log) => log.wait_durable(log.end()),
            None => self.checkpoint(),
        }
    }

    /// Feeds everything that is committed to the trees and makes them durable.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn checkpoint(&self) -> Result<()> {
        self.inner().checkpoint_all()
    }

    /// Feeds everything that is committed and moves all pending messages down to the leaves, where reads are
    /// fastest. The store does the same by itself when nobody commits for a while, up to a bound
    /// on what it writes for that.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn settle(&self) -> Result<()> {
        self.inner().settle_now()
    }

    /// Whether a tree exists.
    pub fn has_tree(&self, tree: TreeId) -> bool {
        self.inner().version.load().trees.contains(tree)
    }

    /// The trees there are, in the order of their ids.
    pub fn trees(&self) -> Vec<TreeId> {
        let trees = self.inner().trees();
        let pages = trees.pages().iter();
        pages
            .flat_map(|page| page.trees())
            .map(|(id, _)| *id)
            .collect()
    }

    /// Figures about one tree; all zero if it does not exist. Walks its internal nodes.
    pub fn tree_stats(&self, tree: TreeId) -> TreeStats {
        let version = self.inner().version.load_full();
        let mut stats = TreeStats::default();
        if let Some(tree) = version.trees.get(tree) {
            tree.root.collect(0, &mut stats);
        }
        for memtable in version.memtables() {
            if let Some(figures) = memtable.tree_figures(tree) {
                stats.entries_estimate += figures.entries;
                stats.logical_bytes += figures.bytes;
                stats.memtable_bytes += figures.bytes;
                stats.search_bytes += figures.node_bytes;
            }
        }
        stats
    }

    /// Figures about the store.
    pub fn stats(&self) -> StoreStats {
        let inner = self.inner();
        let version = inner.version.load_full();
        let (page_bytes, cache_hits, cache_misses) = inner.runs.cache.figures();
        let (reads, read_bytes, written_bytes) = inner.runs.data.io_figures();
        let figure = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        StoreStats {
            trees: version.trees.len() as u64,
            cache_bytes_max: inner.options.cache_bytes as u64,
            page_bytes,
            memtable_bytes: version
                .memtables()
                .map(|memtable| memtable.bytes() as u64)
                .sum(),
            sealed_memtables: version.sealed.len() as u64,
            cache_hits,
            cache_misses,
            reads,
            read_bytes,
            written_bytes,
            log_bytes: inner.log.get().map_or(0, Log::end),
            log_written_bytes: inner.log.get().map_or(0, Log::written_bytes),
            space: inner.runs.data.space.stats(),
            commits: figure(&inner.figures.commits),
            memtables_fed: figure(&inner.figures.memtables_fed),
            checkpoints: figure(&inner.figures.checkpoints),
        }
    }

    /// Makes everything durable and stops. Later commits fail; snapshots still work.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn close(&self) -> Result<()> {
        self.inner().close()
    }
}

impl Inner {
    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut version = self.version.load_full();
        loop {
            let sequence = self.publisher.visible();
            let again = self.version.load_full();
            // If the version did not change around the look at the number, all commits up to it are in the
            // version's memtables, and none of its trees holds a later one.
            if version.trees.changed_at > sequence {
                // Trees come and go with their commit, which is about to become visible.
                self.publisher.wait(version.trees.changed_at);
            } else if Arc::ptr_eq(&version, &again) {
                let operator = self.options.merge.clone();
                return Snapshot {
                    version,
                    sequence,
                    operator,
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

    /// Stops the store for this reason.
    pub(crate) fn fail(&self, reason: String) {
        let _ = self.failure.set(reason);
        // Under the lock, so that nobody misses it between a check and a wait.
        let _state = self.commit_lock.lock();
        self.room.notify_all();
    }

    /// Only the first call does anything. If the store has failed, what is logged is still made durable.
    fn close(&self) -> Result<()> {
        let mut is_closed = self.is_closed.lock();
        if std::mem::replace(&mut *is_closed, true) {
            return Ok(());
        }
        let result = match (self.failure.get(), self.log.get()) {
            (None, _) => self.checkpoint_all(),
            (Some(_), Some(_)) => Ok(()),
            (Some(failure), None) => Err(Error::Closed(failure.clone())),
        };
        self.fail("close was called".to_owned());
        self.feeder.stop();
        match self.log.get() {
            Some(log) => {
                let logged = log.close();
                result.and(logged)
            }
            None => result,
        }
    }

    /// Applies a frame of the log, before anything else runs. Returns the next sequence number.
    fn replay_frame(&self, at: u64, sequence: u64, payload: &[u8]) -> Result<u64> {
        let bytes = write_set::decode(payload)
            .map(|op| match op {
                write_set::Op::Entry { key, value, .. } => {
                    Memtable::op_bytes_max(key.len(), value.len()) + Memtable::LIST_BYTES
                }
                write_set::Op::DeleteRange { lower, upper, .. } => {
                    Memtable::range_bytes(lower, upper) + Memtable::LIST_BYTES
                }
                _ => 0,
            })
            .sum();
        if !self.version.load().active.reserve(bytes) {
            self.seal_replayed(at);
            self.feed_all()?;
            // The new memtable has room for one frame of any size.
            let size = self.options.memtable_size().max(bytes + 4096);
            let version = self.version.load_full();
            let active = Arc::new(Memtable::new(size, at, &self.spare_blocks));
            active.reserve(bytes);
            self.version.store(Arc::new(Version {
                active,
                ..(*version).clone()
            }));
        }
        let version = self.version.load_full();
        self.change_trees_replayed(&version, payload);
        let numbers = write_set::numbers_of(payload);
        let last = sequence + numbers - 1;
        version.active.note_last_sequence(last);
        let ops = write_set::decode(payload);
        let hot = (version.active).insert(ops, numbers as usize, sequence, bytes);
        self.commit_lock.lock().next_sequence = last + 1;
        self.publisher.reset(last);
        self.fold_hot(&version.active, hot);
        Ok(last + 1)
    }

    fn change_trees_replayed(&self, version: &Version, payload: &[u8]) {
        let changes = |op: write_set::Op<'_>| {
            matches!(
                op,
                write_set::Op::CreateTree(..) | write_set::Op::DropTree(_)
            )
        };
        if write_set::decode(payload).any(changes) {
            // All of the replay is visible before there is a snapshot.
            self.change_trees(version, payload, 0);
        }
    }

    /// Seals the active memtable during a replay; the log goes on at `position`.
    fn seal_replayed(&self, position: u64) {
        let version = self.version.load_full();
        let size = self.options.memtable_size();
        self.version.store(Arc::new(Version {
            active: Arc::new(Memtable::new(size, position, &self.spare_blocks)),
            sealed: vec![version.active.clone()],
            trees: version.trees.clone(),
        }));
    }

    /// The trees as they are now.
    pub(crate) fn trees(&self) -> Arc<Trees> {
        self.version.load().trees.clone()
    }
}
