//! The store: one directory with many trees, one log, one data file and one cache.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;

use arc_swap::{ArcSwap, ArcSwapOption};
use frond_kv::{CLOSE_CALLED, Committed, Durability, MemoryBudget, MemoryUse};
use parking_lot::{Condvar, Mutex};

use crate::TreeStats;
use crate::WriteSet;
use crate::activity::Conditions;
use crate::background;
use crate::cache::PageCache;
use crate::checkpoint;
use crate::conflicts::{RecentCommits, WindowLimits};
use crate::damage::{Damage, DamageRegistry};
use crate::data_file::{DATA_FILE, DataFile};
use crate::disk_space::{DiskSpaceStats, SpaceWatch};
use crate::durable_stamp::DurableStamp;
use crate::engine::{CommitState, Counters, Engine};
use crate::flusher::Flusher;
use crate::log::{self, Log};
use crate::memtable::{Memtable, SpareBlocks};
use crate::node_memory::NodeMemory;
use crate::orphans::Orphans;
use crate::publisher::Publisher;
use crate::run::RunStore;
use crate::snapshot::Snapshot;
use crate::space::SpaceStats;
use crate::version::Version;
use crate::{Error, LogRecovery, Options, Result, TreeId};

/// A handle to an open store; clones are cheap and share the store. Dropping the last one closes it.
#[derive(Clone)]
pub struct Store {
    handle: Arc<Handle>,
}

/// Closes the store when the last handle is dropped. The background threads hold only the [`Engine`].
struct Handle {
    engine: Arc<Engine>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Earlier calls have reported errors, and the log is safe.
        let _ = self.engine.close();
    }
}

/// Statistics of an open store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Number of trees in the store.
    pub trees: u64,
    /// The memory budget in bytes.
    pub cache_bytes_max: u64,
    /// Bytes of pages, compressed blocks, indexes and filters in the cache.
    pub page_bytes: u64,
    /// Bytes of compressed blocks in the cache, its second tier. They are counted in `page_bytes`.
    pub block_bytes: u64,
    /// Bytes that compressed blocks may have while pages need the memory too; the cache changes it by what misses cost.
    pub block_bytes_max: u64,
    /// Bytes of internal nodes in memory that are on disk too. They are counted in `page_bytes`.
    pub node_bytes: u64,
    /// Bytes of the memtables alive in the current version.
    pub memtable_bytes: u64,
    /// Memtables that wait to be flushed.
    pub sealed_memtables: u64,
    /// Hits of the page cache.
    pub cache_hits: u64,
    /// Misses of the page cache.
    pub cache_misses: u64,
    /// Misses of the page cache for which the compressed block was in memory, so that the disk was not read.
    pub block_hits: u64,
    /// Misses of the page cache for which the compressed block was not in memory either.
    pub block_misses: u64,
    /// Reads of the data file.
    pub reads: u64,
    /// Bytes read from the data file.
    pub read_bytes: u64,
    /// Bytes written to the data file.
    pub written_bytes: u64,
    /// Position after the last frame of the log: bytes logged since the store was created, before compression.
    pub log_bytes: u64,
    /// Bytes written to the log's files since the store was opened.
    pub log_written_bytes: u64,
    /// Whether the log's buffer is mapped from a file. Otherwise, where files cannot be mapped, each commit writes to the
    /// log's file before it returns.
    pub log_is_mapped: bool,
    /// Space in the data file.
    pub space: SpaceStats,
    /// Space in the file system.
    pub disk_space: DiskSpaceStats,
    /// Commits since the store was opened.
    pub commits: u64,
    /// Memtables flushed to the trees since the store was opened.
    pub memtables_flushed: u64,
    /// Checkpoints since the store was opened.
    pub checkpoints: u64,
}

impl Store {
    /// Opens a store, and creates it if there is none. Replays the log.
    ///
    /// # Errors
    /// [`Error::InvalidOption`], [`Error::Corrupt`], or an error of the disk.
    pub fn open(options: Options) -> Result<Store> {
        Store::open_as(options, false)
    }

    /// Opens a store that was restored: its history is a new one.
    pub(crate) fn open_restored(options: Options) -> Result<Store> {
        Store::open_as(options, true)
    }

    fn open_as(options: Options, is_restored: bool) -> Result<Store> {
        options.check()?;
        let disk = options.disk.clone();
        let file = disk
            .open(DATA_FILE, true)
            .map_err(Error::io(format!("opening {DATA_FILE}")))?;
        let budget = MemoryBudget::new(
            options.counted_bytes(),
            options.writers_bytes(),
            options.client_bytes.unwrap_or(options.cache_bytes),
        );
        let runs = Arc::new(RunStore {
            data: DataFile::new(&*disk, file),
            cache: PageCache::new(&budget, !options.inline),
            budget,
            damage: Arc::new(DamageRegistry::new(options.listener.clone())),
            nodes: NodeMemory::default(),
            orphans: Orphans::default(),
        });
        let weak = Arc::downgrade(&runs);
        runs.budget.on_shrink(move || {
            if let Some(runs) = weak.upgrade() {
                runs.cache.give_way();
            }
        });
        disk.sync_directory()
            .map_err(Error::io("syncing the store's directory"))?;
        checkpoint::check_magic(&runs)?;
        let mut opened = checkpoint::open(&runs, &*disk)?;
        if is_restored {
            opened.checkpointer.begin_history(&*disk);
        }
        let position = opened.position;
        let size = options.memtable_size();
        let budget = runs.budget.clone();
        let spare_blocks =
            SpareBlocks::new(move |bytes| budget.reserve(MemoryUse::Memtables, bytes));
        let active = Memtable::new(size, position.log_start, &spare_blocks);
        let version = Version {
            active: Arc::new(active.after_commits(position.sequence, position.last_stamp)),
            sealed: Vec::new(),
            trees: opened.trees,
            damage: runs.damage.clone(),
            operator: options.merge.clone(),
        };
        let disk_space = SpaceWatch::new(&disk, options.disk_reserve_bytes, size);
        disk_space.begin();
        let recent = RecentCommits::new(WindowLimits::of_budget(options.cache_bytes), &runs.budget);
        let publisher = Arc::new(Publisher::new(position.sequence));
        let engine = Arc::new(Engine {
            runs,
            disk_space,
            version: ArcSwap::from_pointee(version),
            spare_blocks,
            small_blocks: Arc::default(),
            spare_sets: Mutex::default(),
            commit_lock: Mutex::new(CommitState::new(position.sequence + 1, recent)),
            log_position: AtomicU64::new(0),
            flushed: Condvar::new(),
            durable_stamp: Arc::new(DurableStamp::new(publisher.clone())),
            publisher,
            log: OnceLock::new(),
            apply_listener: ArcSwapOption::empty(),
            applied_frames: Mutex::default(),
            replayed_point: Mutex::default(),
            checkpointer: Mutex::new(opened.checkpointer),
            flusher: Flusher::default(),
            next_tree: AtomicU32::new(position.next_tree),
            loaders: Arc::default(),
            loaded_at: AtomicU64::new(0),
            sweep: Mutex::new(opened.sweep),
            detaching: AtomicUsize::new(0),
            counters: Counters::default(),
            conditions: Conditions::default(),
            failure: OnceLock::new(),
            is_closed: Mutex::new(false),
            was_log_cut: OnceLock::new(),
            options,
        });
        let give_room = || {
            engine.disk_space.note_full();
        };
        let visit = |at, sequence, payload: &[u8]| engine.replay_frame(at, sequence, payload);
        if engine.options.log_recovery == LogRecovery::PointInTime
            && let Some(cut) = log::cut_damaged(&disk, position.log_start)?
        {
            engine.options.listener.log_cut(&cut);
        }
        let _ = engine.was_log_cut.set(log::was_cut(&*disk)?);
        let from = position.log_start;
        let recovered = if engine.options.member {
            let found = |point| *engine.replayed_point.lock() = Some(point);
            log::replay_member(&disk, from, opened.point, found, give_room, visit)?
        } else {
            log::replay_giving_room(&disk, from, give_room, visit)?
        };
        engine.advance_log_position(recovered.applied);
        engine
            .loaded_at
            .store(position.complete_at, Ordering::Relaxed);
        if engine.options.journal {
            let options = &engine.options;
            let interval = (!options.inline).then_some(options.journal_commit_interval);
            // About as much as a checkpoint releases; smaller segments cost more syncs than they save space.
            let segment_bytes = if options.inline {
                options.memtable_size()
            } else {
                options.memtable_size().max(1 << 20)
            };
            let segment_bytes = engine.disk_space.log_file_bytes(segment_bytes);
            let buffer_bytes = engine.disk_space.log_file_bytes(options.memtable_size());
            let stamps = engine.durable_stamp.clone();
            let log = Log::open(
                disk,
                recovered,
                interval,
                segment_bytes,
                buffer_bytes,
                stamps,
            )?;
            log.limit_holds(engine.options.log_hold_bytes);
            let _ = engine.log.set(log);
        } else {
            // The next checkpoint starts at the end of the old log.
            engine.seal_replayed(recovered.end);
            engine.flush_all()?;
        }
        // The replay has synced the log, and without a journal the checkpoint has everything.
        let recovered = engine.commit_lock.lock().last_stamp;
        engine.publisher.raise_durable_stamp(recovered);
        background::start(&engine)?;
        Ok(Store {
            handle: Arc::new(Handle { engine }),
        })
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.handle.engine
    }

    /// An id for a new tree. Ids are never used twice.
    pub fn allocate_tree(&self) -> TreeId {
        TreeId(self.engine().next_tree.fetch_add(1, Ordering::AcqRel))
    }

    /// Makes sure that no id below `next` is allocated.
    pub(crate) fn reserve_trees(&self, next: TreeId) {
        self.engine().next_tree.fetch_max(next.0, Ordering::AcqRel);
    }

    /// A consistent view of everything that is committed now.
    pub fn snapshot(&self) -> Snapshot {
        self.engine().snapshot()
    }

    /// An empty write set whose guarded keys must not have changed since `snapshot`, with capacity for operations of
    /// about `bytes` bytes. For large write sets: it reuses the memory of earlier ones.
    pub fn write_set(&self, snapshot: &Snapshot, bytes: usize) -> WriteSet {
        let spare = self.engine().spare_sets.lock().pop();
        let mut set = spare.unwrap_or_default().with_capacity(snapshot, bytes);
        set.count_in(self.memory());
        set
    }

    /// Commits a write set: all of it or nothing.
    ///
    /// # Errors
    /// [`Error::Conflict`] if a guarded key was committed after the set's snapshot, or is held by an open transaction;
    /// [`Error::NoStamp`] if it needs more stamps than are reserved; [`Error::TooLarge`], [`Error::InvalidOption`], or an error
    /// of the disk.
    pub fn commit(&self, mut set: WriteSet, how: Durability) -> Result<Committed> {
        let result = self.engine().commit(&mut set, None, how);
        self.engine().reuse(set);
        result
    }

    /// As [`Store::commit`], for a write set with stamped keys. When no stamps are reserved, `reserve` is called without locks, and
    /// the commit is tried again if it returns true.
    ///
    /// # Errors
    /// As [`Store::commit`].
    pub fn commit_reserving(
        &self,
        mut set: WriteSet,
        how: Durability,
        reserve: impl FnMut() -> bool,
    ) -> Result<Committed> {
        let result = self.engine().commit_reserving(&mut set, None, how, reserve);
        self.engine().reuse(set);
        result
    }

    /// Waits until there is room in memory for small commits, for callers that commit under a lock of their own: they had
    /// better wait before they take it. Others may use up the room meanwhile.
    ///
    /// # Errors
    /// As [`Store::commit`], if no room can be made for now.
    pub fn await_room(&self) -> Result<()> {
        self.engine().await_room()
    }

    /// The last stamp that readers may rely on: all commits with stamps up to it are durable and in every snapshot that is
    /// taken from now on, and no commit will take a stamp up to it. Without a journal they need not be durable.
    ///
    /// When a store is opened this is the last stamp that the replay of the log has found, or 0 if it has found none.
    /// Everything that is in the store then is durable, so the last key of a tree with stamped keys is a lower bound too.
    pub fn durable_stamp(&self) -> u64 {
        self.engine().publisher.durable_stamp()
    }

    /// Sets the function that is called whenever [`Store::durable_stamp`] has grown, with the stamp. It is called by the log's
    /// thread or by a committer, without locks, and must be quick; it must not panic. Two calls may overlap, the later one
    /// with the lower stamp. It gets no call for what was durable before it is set: the caller reads that afterwards. It may be called
    /// until the store is closed, and should not own a [`Store`].
    pub fn set_stamp_listener(&self, listener: Arc<dyn Fn(u64) + Send + Sync>) {
        self.engine().durable_stamp.set_listener(listener);
    }

    /// Asks for a sync of the log soon, which comes at the earliest 10 ms after the one before. Never waits. It has no effect
    /// without a journal. A store with [`Options::inline`] syncs at once.
    pub fn request_sync(&self) {
        if let Some(log) = self.engine().log.get() {
            log.request_sync();
            self.engine().notify_durable_stamp();
        }
    }

    /// Returns when everything that was committed before the call is durable. Without a journal
    /// this is a checkpoint.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn flush_log(&self) -> Result<()> {
        let flushed = match self.engine().log.get() {
            Some(log) => log.wait_durable(log.end()),
            None => self.checkpoint(),
        };
        self.engine().publisher.settle_durable_stamp();
        self.engine().notify_durable_stamp();
        flushed
    }

    /// As [`Store::flush_log`], without a thread that waits.
    ///
    /// # Errors
    /// As [`Store::flush_log`].
    pub async fn log_flushed(&self) -> Result<()> {
        let end = self.engine().log.get().map(Log::end);
        let flushed = std::future::poll_fn(|context| match self.engine().log.get().zip(end) {
            Some((log, end)) => log.poll_durable(end, context.waker()),
            None => Poll::Ready(self.checkpoint()),
        })
        .await;
        self.engine().publisher.settle_durable_stamp();
        self.engine().notify_durable_stamp();
        flushed
    }

    /// Flushes everything that is committed to the trees and makes them durable.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn checkpoint(&self) -> Result<()> {
        self.engine().checkpoint_all()
    }

    /// Flushes everything that is committed and moves all pending messages down to the leaves, where reads are
    /// fastest. The store does the same in the background when there are no commits for a while, within a limit
    /// on the bytes that it writes for that.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn compact(&self) -> Result<()> {
        self.engine().compact_now()
    }

    /// Whether a tree exists.
    pub fn has_tree(&self, tree: TreeId) -> bool {
        let engine = self.engine();
        let trees = &engine.version.load().trees;
        trees.contains_at(tree, engine.publisher.visible())
    }

    /// All trees, in the order of their ids.
    pub fn trees(&self) -> Vec<TreeId> {
        let trees = self.engine().trees();
        let pages = trees.pages().iter();
        pages
            .flat_map(|page| page.trees())
            .map(|(id, _)| *id)
            .collect()
    }

    /// Statistics of one tree; all zero if it does not exist. Walks the internal nodes that are not on disk yet.
    pub fn tree_stats(&self, tree: TreeId) -> TreeStats {
        let version = self.engine().version.load_full();
        let mut stats = TreeStats::default();
        if let Some(tree) = version.trees.get(tree) {
            stats = tree.root.stats();
        }
        for memtable in version.memtables() {
            if let Some(in_memory) = memtable.tree_stats(tree) {
                stats.entries_estimate += in_memory.entries;
                stats.logical_bytes += in_memory.bytes;
                stats.memtable_bytes += in_memory.bytes;
                stats.search_bytes += in_memory.node_bytes;
            }
        }
        stats
    }

    /// Whether a damaged log was cut when the store was opened, or earlier, and what was cut off is still there. Trees are created and dropped by checkpoints, which may be
    /// newer than what is left of the log, so the trees may not be those that the commits name.
    pub fn was_log_cut(&self) -> bool {
        self.engine().was_log_cut.get() == Some(&true)
    }

    /// Whether the disk is nearly full: only commits that free space are taken. They do that the sooner, the fewer snapshots
    /// keep what they delete.
    pub fn is_disk_low(&self) -> bool {
        self.engine().disk_space.is_low()
    }

    /// Waits for an attempt to free space, after a commit that would have freed some has failed because the disk is full.
    /// Snapshots of the caller would keep what is deleted. False if the attempt was of no use.
    ///
    /// # Errors
    /// `Interrupted`, and those of a store that has stopped.
    pub fn await_space(&self) -> Result<bool> {
        self.engine().await_space()
    }

    /// The memory budget of the process. Callers reserve in it what they hold for clients.
    pub fn memory(&self) -> &MemoryBudget {
        &self.engine().runs.budget
    }

    /// Statistics of the store.
    pub fn stats(&self) -> StoreStats {
        let engine = self.engine();
        let version = engine.version.load_full();
        let cache = engine.runs.cache.stats();
        let (reads, read_bytes, written_bytes) = engine.runs.data.io_stats();
        let figure = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        StoreStats {
            trees: version.trees.len() as u64,
            cache_bytes_max: engine.options.cache_bytes as u64,
            page_bytes: cache.bytes,
            block_bytes: cache.block_bytes,
            block_bytes_max: cache.block_bytes_max,
            node_bytes: engine.runs.nodes.bytes(),
            memtable_bytes: version
                .memtables()
                .map(|memtable| memtable.bytes() as u64)
                .sum(),
            sealed_memtables: version.sealed.len() as u64,
            cache_hits: cache.hits,
            cache_misses: cache.misses,
            block_hits: cache.block_hits,
            block_misses: cache.block_misses,
            reads,
            read_bytes,
            written_bytes,
            log_bytes: engine.log.get().map_or(0, Log::end),
            log_written_bytes: engine.log.get().map_or(0, Log::written_bytes),
            log_is_mapped: engine.log.get().is_some_and(Log::is_mapped),
            space: engine.runs.data.space.stats(),
            disk_space: engine.disk_space.stats(),
            commits: figure(&engine.counters.commits),
            memtables_flushed: figure(&engine.counters.memtables_flushed),
            checkpoints: figure(&engine.counters.checkpoints),
        }
    }

    /// The damaged blocks that this process has met and that are still in use, by file and offset. Reads that need such
    /// a block fail; what is written meanwhile to its keys is kept above it. [`Store::verify`] finds all of them.
    pub fn damage(&self) -> Vec<Damage> {
        self.engine().runs.damage.list()
    }

    /// The room of the file system, as it was measured last.
    pub fn disk_space(&self) -> DiskSpaceStats {
        self.engine().disk_space.stats()
    }

    /// Makes everything durable and stops. Later commits fail; snapshots still work.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn close(&self) -> Result<()> {
        self.engine().close()
    }
}

impl Engine {
    /// Only the first call has an effect. If the store has failed, the log is still made durable.
    fn close(&self) -> Result<()> {
        let mut is_closed = self.is_closed.lock();
        if std::mem::replace(&mut *is_closed, true) {
            return Ok(());
        }
        let result = match (self.failure.get(), self.log.get()) {
            (None, _) => self.checkpoint_committed().and_then(|()| {
                if self.runs.orphans.is_empty() {
                    return Ok(());
                }
                // The next open must not have to search for what they free.
                while self.release_orphans(usize::MAX) {}
                self.checkpoint_committed_trees()
            }),
            (Some(_), Some(_)) => Ok(()),
            (Some(failure), None) => Err(Error::Closed(failure.clone())),
        };
        self.fail(CLOSE_CALLED.to_owned());
        self.flusher.stop();
        self.disk_space.stop();
        match self.log.get() {
            Some(log) => {
                let logged = log.close();
                self.notify_durable_stamp();
                result.and(logged)
            }
            None => result,
        }
    }
}
