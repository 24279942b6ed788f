//! The bulk loader: builds trees by an external merge sort.
//!
//! Entries may come in any order. They are gathered in memory; when the loader's memory is full, the largest chunk is
//! sorted and written as a run to the data file. At the end the runs are merged into full leaves, and the nodes above
//! are built over them. Keys that come in order are written as leaves directly.
//!
//! # Design
//! ```text
//! add(key):     chunk of the tree += entry; while the memory is full: sort and write the largest chunk
//! write_chunk:  keys above the open run are appended to it; others begin a new run
//! merge:        while runs > fan_in: merge groups of adjacent runs          (adjacent keeps the order by age)
//!               merge the rest into leaves, unless one run of leaves is all (B2)
//! finish:       under `Flusher::working`: put the leaves below the messages that gathered in the roots,
//!               replace all roots in one version (B4), write a checkpoint
//! ```
//! - The load counts as older than every commit to the tree, whenever it ends. So commits need not wait for it: they gather in a
//!   root without children, and no delete among them is resolved, because its key may still come.
//! - Keys in order cost one write: the first run is written with the format of leaves, and stays if it is the only one.
//! - The largest chunk is written, not that of the tree that needs room: with several indexes, runs are as long as the memory allows,
//!   and there are fewer of them to merge.
//!
//! The alternative is to commit sorted batches to an ordinary tree. That writes each entry to the log, to a memtable and to a node of
//! each level.
//!
//! Until the load is finished, no version and no checkpoint refers to its runs and leaves. Their extents are free
//! again when the loader is dropped, and after a crash.

mod chunk;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use chunk::Chunk;

use frond_kv::{Direction, MemoryUse, PANICKED, Reservation, operation};

use crate::disk_space::SpaceWatch;
use crate::engine::Engine;
use crate::fail_stop::watch;
use crate::merger::{Merger, Source};
use crate::range::RangeSet;
use crate::run::{Fetch, PartsCursor, Run, RunStore, RunWriter};
use crate::store::Store;
use crate::version::Version;
use crate::{Compression, Error, Kind, Result, TreeId, TreeOptions};

/// The least memory of a loader for each of its trees, in bytes.
const MEMORY_BYTES_MIN: usize = 128 << 10;
/// The default limit of a loader's memory, in bytes.
const MEMORY_BYTES_DEFAULT_MAX: usize = 128 << 20;
/// Page size and size of a part of a sorted run, in bytes.
const RUN_PAGE_BYTES: usize = 64 << 10;
const RUN_PART_BYTES: u64 = 2 << 20;
/// The memory for reading one run during a merge, in bytes: read-ahead, a page, its index entry.
const MERGE_BYTES: usize = 256 << 10;
/// Bounds of the number of runs that are merged at once.
const FAN_IN_MIN: usize = 4;
const FAN_IN_MAX: usize = 64;
/// Entries merged between two calls of the watcher.
const WATCH_ENTRIES: u64 = 4096;

/// The treatment of entries of one load that have the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Duplicates {
    /// The one that was added last is kept.
    #[default]
    LastWins,
    /// The load fails with [`Error::Duplicate`].
    Fail,
}

/// Called at intervals with the number of entries merged so far and the total; `false` stops the merge.
pub type Watcher<'a> = &'a (dyn Fn(u64, u64) -> bool + Sync);

/// Fills trees that were created with [`crate::WriteSet::create_tree_to_load`]. Commits to them continue meanwhile.
///
/// Its memory is reserved from the store's budget; in addition, each tree whose keys come in order holds the leaf that
/// is being written. A loader that is dropped without [`BulkLoader::finish`] leaves nothing behind.
///
/// ```
/// # use frond_tree::{Duplicates, Durability, Options, Store, TreeOptions, WriteSet};
/// # fn main() -> frond_tree::Result<()> {
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let store = Store::open(Options::new(directory.path()))?;
/// let tree = store.allocate_tree();
/// let mut set = WriteSet::new();
/// set.create_tree_to_load(tree, &TreeOptions::default());
/// store.commit(set, Durability::Logged)?;
///
/// let mut loader = store.bulk_loader(&[(tree, Duplicates::LastWins)], None)?;
/// for fruit in ["quince", "apple", "medlar"] {
///     loader.add(0, fruit.as_bytes(), b"")?;
/// }
/// loader.finish()?;
/// assert!(store.snapshot().contains(tree, b"apple")?);
/// # Ok(())
/// # }
/// ```
pub struct BulkLoader {
    store: Store,
    loads: Vec<Load>,
    /// Memory for chunks in bytes, and the part of it that is used. B1: that is what the chunks of all loads take.
    memory: Reservation,
    used: usize,
    spare: Vec<Vec<u8>>,
    /// Set when the load failed or was stopped: then it cannot be finished.
    broken: bool,
    /// Counts the loaders; dropped after everything that holds space.
    alive: Option<Arc<()>>,
}

/// The entries and the runs of one tree.
struct Load {
    tree: TreeId,
    options: TreeOptions,
    duplicates: Duplicates,
    runs: Arc<RunStore>,
    chunk: Chunk,
    /// The run that is being written, as long as the keys come in order.
    open: Option<OpenRun>,
    /// Sorted runs, oldest first. B2: none is leaves but the only one of a finished merge, or the first.
    done: Vec<Sorted>,
}

struct OpenRun {
    writer: RunWriter,
    last_key: Vec<u8>,
    is_leaves: bool,
}

/// A sorted run. B3: its parts follow each other.
struct Sorted {
    parts: Vec<Arc<Run>>,
    /// Whether the parts can be leaves of the tree.
    is_leaves: bool,
}

impl Sorted {
    fn new(parts: Vec<Arc<Run>>, is_leaves: bool) -> Sorted {
        for pair in parts.windows(2) {
            assert!(
                pair[0].info.max_key < pair[1].info.min_key,
                "B3: the parts of a sorted run do not ascend"
            );
        }
        Sorted { parts, is_leaves }
    }

    fn entries(&self) -> u64 {
        self.parts.iter().map(|part| part.info.entries).sum()
    }
}

/// The progress of a merge, and whether it was stopped.
struct Progress<'a> {
    watcher: Watcher<'a>,
    disk_space: &'a SpaceWatch,
    merged: AtomicU64,
    total: AtomicU64,
    stopped: AtomicBool,
}

impl Progress<'_> {
    fn add(&self, entries: u64) {
        let merged = self.merged.fetch_add(entries, Ordering::Relaxed) + entries;
        if !(self.watcher)(merged, self.total.load(Ordering::Relaxed)) {
            self.stopped.store(true, Ordering::Relaxed);
        }
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}

impl Store {
    /// A loader for trees that wait for a load, each with its policy for duplicate keys. `memory_bytes` is the total
    /// for all trees; `None` takes an eighth of the store's budget, at most 128 MiB. The loader gets less than it
    /// asks for when the budget is small or other loaders are active.
    ///
    /// # Errors
    /// [`Error::UnknownTree`], [`Error::NotLoading`].
    pub fn bulk_loader(
        &self,
        trees: &[(TreeId, Duplicates)],
        memory_bytes: Option<usize>,
    ) -> Result<BulkLoader> {
        let engine = self.engine();
        engine.check_running()?;
        let known = engine.trees();
        let mut loads = Vec::with_capacity(trees.len());
        for (id, duplicates) in trees {
            let tree = known.get(*id).ok_or_else(|| known.missing(*id))?;
            if !tree.loading {
                return Err(Error::NotLoading(*id));
            }
            loads.push(Load {
                tree: *id,
                options: tree.options.clone(),
                duplicates: *duplicates,
                runs: engine.runs.clone(),
                chunk: Chunk::new(),
                open: None,
                done: Vec::new(),
            });
        }
        let default = (engine.options.cache_bytes / 8).min(MEMORY_BYTES_DEFAULT_MAX);
        let least = MEMORY_BYTES_MIN * loads.len().max(1);
        let wanted = memory_bytes.unwrap_or(default).max(least);
        Ok(BulkLoader {
            store: self.clone(),
            loads,
            memory: (engine.runs.budget).reserve_up_to(MemoryUse::Loads, wanted, least),
            used: 0,
            spare: Vec::new(),
            broken: false,
            alive: Some(engine.loaders.clone()),
        })
    }

    /// Whether a tree waits for a bulk load to finish. After a crash such a tree has lost its load: load it
    /// again, or drop it.
    pub fn is_loading(&self, tree: TreeId) -> bool {
        let trees = self.engine().trees();
        trees.get(tree).is_some_and(|tree| tree.loading)
    }
}

impl BulkLoader {
    /// Adds an entry to the tree at index `place` of the list that the loader was created with.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::Duplicate`] if one is found this early, [`Error::Stalled`] while the disk is nearly
    /// full, errors of the disk. The load cannot continue after an error.
    pub fn add(&mut self, place: usize, key: &[u8], value: &[u8]) -> Result<()> {
        operation::check_sizes(key.len(), value.len())?;
        let Some(load) = self.loads.get_mut(place) else {
            return Err(Error::InvalidOption(format!(
                "tree {place} of a bulk loader that has {}",
                self.loads.len()
            )));
        };
        let before = load.chunk.bytes();
        load.chunk.add(key, value, &mut self.spare);
        self.used += load.chunk.bytes() - before;
        self.broken = true;
        while self.used > self.memory.bytes() {
            let Some(largest) = self.loads.iter_mut().max_by_key(|load| load.chunk.bytes()) else {
                break;
            };
            let before = largest.chunk.bytes();
            let engine = self.store.engine();
            if engine.disk_space.is_low() {
                return Err(engine.disk_space.refuse());
            }
            let written = largest.write_chunk(&mut self.spare);
            written.inspect_err(|error| engine.note_if_full(error))?;
            let after = largest.chunk.bytes();
            assert!(
                after <= before && self.used >= before - after,
                "B1: a chunk has taken more memory than was counted"
            );
            self.used -= before - after;
            if after >= before {
                break;
            }
        }
        self.broken = false;
        Ok(())
    }

    /// Merges what was added until only the leaves are left. [`BulkLoader::finish`] does it too, but cannot be stopped.
    /// Returns false if the watcher stopped it; then the load cannot be finished.
    ///
    /// # Errors
    /// [`Error::Duplicate`], [`Error::Stalled`] when the disk is nearly full, errors of the disk.
    pub fn merge(&mut self, watcher: Watcher<'_>) -> Result<bool> {
        self.broken = true;
        for load in &mut self.loads {
            load.write_chunk(&mut self.spare)?;
            load.close_run()?;
        }
        (self.spare, self.used) = (Vec::new(), 0);
        let options = &self.store.engine().options;
        let threads = if options.inline {
            1
        } else {
            options.flush_threads.min(self.loads.len()).max(1)
        };
        let fan_in = self.memory.bytes() / MERGE_BYTES / threads;
        let fan_in = fan_in.clamp(FAN_IN_MIN, FAN_IN_MAX);
        let total = self.loads.iter().map(|load| load.entries_to_merge(fan_in));
        let engine = self.store.engine();
        let progress = Progress {
            watcher,
            disk_space: &engine.disk_space,
            merged: AtomicU64::new(0),
            total: AtomicU64::new(total.sum()),
            stopped: AtomicBool::new(false),
        };
        let merge = |loads: &mut [Load]| -> Result<()> {
            let mut loads = loads.iter_mut();
            loads.try_for_each(|load| load.merge(fan_in, &progress))
        };
        let share = self.loads.len().div_ceil(threads);
        let (first, others) = self.loads.split_at_mut(share);
        let share = share.max(1);
        std::thread::scope(|scope| {
            let workers: Vec<_> = others
                .chunks_mut(share)
                .map(|loads| scope.spawn(|| merge(loads)))
                .collect();
            let mut result = merge(first);
            for worker in workers {
                let defect = |_| Err(Error::Internal(PANICKED));
                result = result.and(worker.join().unwrap_or_else(defect));
            }
            result
        })
        .inspect_err(|error| engine.note_if_full(error))?;
        self.broken = progress.is_stopped();
        Ok(!self.broken)
    }

    /// Puts the load below everything that was committed to the trees since they were created, in all
    /// trees atomically, and makes it durable.
    ///
    /// # Errors
    /// [`Error::Duplicate`], [`Error::UnknownTree`] if a tree was dropped meanwhile, [`Error::NotLoading`] if another loader
    /// finished first: then none of the trees is changed. After an error of the disk the trees may be loaded or
    /// not; [`Store::is_loading`] returns it.
    pub fn finish(mut self) -> Result<()> {
        if self.broken {
            return Err(Error::failed("the load failed before, or was stopped"));
        }
        self.merge(&|_, _| true)?;
        let leaves = self.loads.drain(..).map(|mut load| {
            assert!(
                load.done.len() <= 1 && load.open.is_none() && load.chunk.is_empty(),
                "B2: a load ends before it was merged"
            );
            let leaves = load.done.pop().map_or_else(Vec::new, |run| run.parts);
            (load.tree, leaves)
        });
        let leaves = leaves.collect();
        // The rest belongs to the trees.
        self.alive = None;
        watch(|| self.store.engine().install(leaves))
    }
}

impl Load {
    /// Sorts the chunk and writes it: appended to the last run if all its keys are greater, else as a new run.
    fn write_chunk(&mut self, spare: &mut Vec<Vec<u8>>) -> Result<()> {
        if self.chunk.is_empty() {
            return Ok(());
        }
        let mut chunk = std::mem::take(&mut self.chunk);
        // Only then are the keys of the next chunk likely to be greater than these.
        let next_may_follow = chunk.is_in_order();
        let last_key = chunk.last_key().to_vec();
        let (tree, fail) = (self.tree, self.duplicates == Duplicates::Fail);
        let mut older: Option<Vec<u8>> = None;
        let mut output: Option<OpenRun> = None;
        chunk.drain(spare, |key, value, again| -> Result<()> {
            if let Some(older) = older.take() {
                return Err(Error::duplicate(tree, key, older, value.to_vec()));
            }
            if again {
                older = fail.then(|| value.to_vec());
                return Ok(());
            }
            let output = match &mut output {
                Some(output) => output,
                None => output.insert(self.run_from(key)?),
            };
            output.writer.add(key, Kind::Put, value)
        })?;
        self.chunk = chunk;
        self.open = output.map(|open| OpenRun { last_key, ..open });
        if next_may_follow {
            Ok(())
        } else {
            self.close_run()
        }
    }

    /// The open run if `key` is greater than all of its keys, else a new one.
    fn run_from(&mut self, key: &[u8]) -> Result<OpenRun> {
        match self.open.take() {
            Some(open) if open.last_key.as_slice() < key => return Ok(open),
            other => self.open = other,
        }
        self.close_run()?;
        let is_leaves = self.done.is_empty();
        Ok(OpenRun {
            writer: self.writer(is_leaves),
            last_key: Vec::new(),
            is_leaves,
        })
    }

    fn close_run(&mut self) -> Result<()> {
        if let Some(open) = self.open.take() {
            let parts = open.writer.finish()?;
            assert!(
                !open.is_leaves || self.done.is_empty(),
                "B2: leaves are not the first run of a load"
            );
            self.done.push(Sorted::new(parts, open.is_leaves));
        }
        Ok(())
    }

    fn writer(&self, is_leaves: bool) -> RunWriter {
        let options = &self.options;
        if is_leaves {
            let (page, leaf) = (options.page_bytes as usize, u64::from(options.node_bytes));
            let writer = RunWriter::new(&self.runs, options.compression, page, leaf);
            // They become all leaves of the tree.
            return writer.within(&[], None);
        }
        let compression = match options.compression {
            Compression::None => Compression::None,
            _ => Compression::Lz4,
        };
        RunWriter::new(&self.runs, compression, RUN_PAGE_BYTES, RUN_PART_BYTES).within(&[], None)
    }

    /// The approximate number of entries that [`Load::merge`] will write.
    fn entries_to_merge(&self, fan_in: usize) -> u64 {
        let entries: u64 = self.done.iter().map(Sorted::entries).sum();
        let (mut runs, mut passes) = (self.done.len(), u64::from(self.done.len() > 1));
        while runs > fan_in {
            runs = runs.div_ceil(fan_in);
            passes += 1;
        }
        entries * passes
    }

    /// Merges the runs into leaves. A stopped merge leaves only part of them.
    fn merge(&mut self, fan_in: usize, progress: &Progress<'_>) -> Result<()> {
        while self.done.len() > fan_in {
            let mut runs = std::mem::take(&mut self.done);
            for left in (1..=runs.len().div_ceil(fan_in)).rev() {
                // Adjacent runs are merged, which keeps the order by age.
                let group = runs.drain(..runs.len().div_ceil(left)).collect();
                let merged = self.merge_runs(group, false, progress)?;
                self.done.push(merged);
            }
        }
        match self.done.as_slice() {
            [] => return Ok(()),
            [only] if only.is_leaves => return Ok(()),
            _ => {}
        }
        let runs = std::mem::take(&mut self.done);
        let leaves = self.merge_runs(runs, true, progress)?;
        assert!(
            self.done.is_empty(),
            "B2: a merge leaves runs beside the leaves"
        );
        self.done.push(leaves);
        Ok(())
    }

    fn merge_runs(
        &self,
        runs: Vec<Sorted>,
        is_leaves: bool,
        progress: &Progress<'_>,
    ) -> Result<Sorted> {
        let fail = self.duplicates == Duplicates::Fail;
        let mut sources = Vec::with_capacity(runs.len());
        for run in runs.into_iter().rev() {
            let mut cursor = PartsCursor::new(run.parts, Fetch::Stream, None);
            cursor.seek(&[])?;
            sources.push(Source::runs(cursor, RangeSet::default()));
        }
        let mut entries = Merger::new(sources, Direction::Forward)?;
        let mut writer = self.writer(is_leaves);
        let (mut key_now, mut newest) = (Vec::new(), Vec::new());
        let mut since_watched = 0;
        while let Some((key, kind, value)) = entries.peek() {
            writer.add(key, kind, value)?;
            key_now.clear();
            key_now.extend_from_slice(key);
            if fail {
                newest.clear();
                newest.extend_from_slice(value);
            }
            entries.step()?;
            while let Some((key, _, value)) = entries.peek()
                && key == key_now
            {
                if fail {
                    return Err(Error::duplicate(self.tree, key, value.to_vec(), newest));
                }
                entries.step()?;
            }
            since_watched += 1;
            if since_watched == WATCH_ENTRIES {
                if progress.disk_space.is_low() {
                    return Err(progress.disk_space.refuse());
                }
                progress.add(std::mem::take(&mut since_watched));
                if progress.is_stopped() {
                    break;
                }
            }
        }
        progress.add(since_watched);
        Ok(Sorted::new(writer.finish()?, is_leaves))
    }
}

impl Engine {
    /// Puts leaves under the messages of trees that are being loaded, and makes that durable.
    fn install(&self, loads: Vec<(TreeId, Vec<Arc<Run>>)>) -> Result<()> {
        self.check_running()?;
        // Nothing is flushed meanwhile, so the roots do not change; trees can only be dropped.
        let mut checkpoint_due = self.flusher.working.lock();
        // The load may have what was committed before. Without that the checkpoint must not have the load.
        let end = self.log.get().map(|log| log.end());
        if let Some((log, end)) = self.log.get().zip(end) {
            log.wait_durable(end)?;
        }
        let trees = self.trees();
        let mut roots = Vec::with_capacity(loads.len());
        for (id, leaves) in loads {
            let tree = trees.get(id).ok_or_else(|| trees.missing(id))?;
            if !tree.loading {
                return Err(Error::NotLoading(id));
            }
            roots.push((id, self.builder(id, tree).put_under(&tree.root, leaves)?));
        }
        {
            let _state = self.commit_lock.lock();
            let version = self.version.load_full();
            let mut trees = (*version.trees).clone();
            let count = trees.len();
            for (id, root) in roots {
                if !trees.set_loaded(id, root) {
                    return Err(Error::UnknownTree(id));
                }
            }
            assert!(trees.len() == count, "B4: a load adds or drops trees");
            self.set_version(Version {
                trees: Arc::new(trees),
                ..(*version).clone()
            });
            self.loaded_at
                .fetch_max(end.unwrap_or(0), Ordering::Relaxed);
        }
        *checkpoint_due = true;
        self.flush_sealed(&mut checkpoint_due, usize::MAX).map(drop)
    }
}
