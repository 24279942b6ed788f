//! A hot backup: a copy of what a snapshot sees, made while writes go on.
//!
//! Runs are immutable and the snapshot pins them, so their extents are copied unchanged, to the same
//! offsets of a new data file. The nodes above are written again, between and after the runs. Messages
//! that the snapshot sees in memtables are committed to the copy last.

use std::collections::HashMap;
use std::sync::Arc;

use frond_kv::{MemoryBudget, MemoryUse};

use crate::cache::PageCache;
use crate::checkpoint::Checkpointer;
use crate::data_file::{DATA_FILE, DataFile, check_block, corrupt};
use crate::disk::{ALIGNMENT, AlignedBuf};
use crate::inspect::Progress;
use crate::manifest::Position;
use crate::memtable::MemSource;
use crate::node::{BufferRun, Child, Internal, Subtree};
use crate::node_memory::NodeMemory;
use crate::orphans::Orphans;
use crate::run::{Run, RunStore};
use crate::run_index::RunIndex;
use crate::snapshot::Snapshot;
use crate::store::Store;
use crate::version::{Tree, Trees};
use crate::{Durability, Error, Kind, Options, Result, TreeId, WriteSet};

/// A write set of memtable messages is committed when it has this many bytes.
const COMMIT_BYTES: usize = 4 << 20;
/// It is also committed when it has this many range deletes.
pub(crate) const COMMIT_RANGES: usize = 1000;

/// The sizes of a finished backup.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BackupReport {
    /// Trees, the empty ones included.
    pub trees: u64,
    /// Runs: leaves and parts of buffers.
    pub runs: u64,
    /// Their bytes in the data file.
    pub run_bytes: u64,
    /// Messages that came from memtables.
    pub messages: u64,
}

impl Snapshot {
    /// Copies all that this snapshot sees into a new store, which has the same trees with the same ids and
    /// settings. Reads and writes of the store continue meanwhile. `target` is the destination; its disk must hold no
    /// store, and its merge operator must be the store's. Uses memory for one run and one memtable of the target.
    /// When this returns, the copy is durable and closed.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if there is a store already, [`Error::Corrupt`] if what would be copied is damaged,
    /// errors of the disks. After an error the copy is incomplete: delete it.
    pub fn backup(
        &self,
        target: Options,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<BackupReport> {
        target.check()?;
        target.check_holds_no_store("backup")?;
        if target.disk.ciphers().is_some() {
            return Err(is_encrypted());
        }
        let file = target
            .disk
            .open(DATA_FILE, true)
            .map_err(Error::io(format!("creating {DATA_FILE}")))?;
        // Nothing is read through this handle.
        let budget = MemoryBudget::new(0, 0, 0);
        let store = Arc::new(RunStore {
            data: DataFile::new(&*target.disk, file),
            cache: PageCache::new(&budget, false),
            budget,
            damage: self.version.damage.clone(),
            nodes: NodeMemory::default(),
            orphans: Orphans::default(),
        });
        let mut copy = Copy {
            store,
            runs: HashMap::new(),
            order: Vec::new(),
        };
        if let Some(lost) = self.version.trees.lost_pages().first() {
            return Err(lost.error());
        }
        let (mut trees, mut next_tree) = (Trees::default(), 0);
        for page in self.version.trees.pages() {
            let in_snapshot = |(_, tree): &&(_, Tree)| tree.created_at <= self.sequence;
            for (id, tree) in page.trees().iter().filter(in_snapshot) {
                let root = copy.subtree(&tree.root)?;
                let (options, loading) = (tree.options.clone(), tree.loading);
                let copied = Tree {
                    options,
                    root,
                    loading,
                    created_at: 0,
                };
                trees.insert(*id, copied);
                next_tree = id.0 + 1;
            }
        }
        let mut report = BackupReport {
            trees: trees.len() as u64,
            runs: copy.order.len() as u64,
            run_bytes: copy.order.iter().map(|run| run.extent.len).sum(),
            messages: 0,
        };
        copy.write(report.run_bytes, progress)?;
        let position = Position {
            log_start: 0,
            sequence: self.sequence,
            next_tree,
            ..Position::default()
        };
        let trees = Arc::new(trees);
        Checkpointer::new(&copy.store, &*target.disk).write(&trees, position, None, || true)?;
        drop((trees, copy));

        let store = Store::open(target)?;
        report.messages = self.commit_memtables(&store)?;
        store.close()?;
        Ok(report)
    }

    /// Commits what this snapshot sees in memtables to a copy of its trees. Returns the number of messages.
    fn commit_memtables(&self, store: &Store) -> Result<u64> {
        let memtables: Vec<_> = self.version.memtables().collect();
        let mut messages = 0;
        for memtable in memtables.into_iter().rev() {
            for (id, ..) in memtable.trees() {
                let resolver = self.resolver(id);
                let source = MemSource::new(memtable, id, self.sequence, resolver);
                let Some(mut source) = source.filter(|_| store.has_tree(id)) else {
                    continue;
                };
                let mut set = WriteSet::new();
                // The remaining messages are newer than the range deletes that cover them.
                for range in source.ranges().ranges() {
                    set.delete_range(id, &range.lower, range.upper.as_deref());
                    messages += 1;
                    if set.len() >= COMMIT_RANGES {
                        store.commit(std::mem::take(&mut set), Durability::Logged)?;
                    }
                }
                source.seek(None);
                while let Some(key) = source.key() {
                    let (kind, value) = source.folded()?;
                    push(&mut set, id, key, (kind, &value));
                    messages += 1;
                    if set.bytes() >= COMMIT_BYTES {
                        store.commit(std::mem::take(&mut set), Durability::Logged)?;
                    }
                    source.step();
                }
                store.commit(set, Durability::Logged)?;
            }
        }
        Ok(messages)
    }
}

/// Adds a message to a write set.
pub(crate) fn push(set: &mut WriteSet, tree: TreeId, key: &[u8], (kind, value): (Kind, &[u8])) {
    match kind {
        Kind::Put => set.put(tree, key, value),
        Kind::Delete => set.delete(tree, key),
        Kind::Merge => set.merge(tree, key, value),
    }
}

/// The trees of a copy, over its own data file.
struct Copy {
    store: Arc<RunStore>,
    /// The copy of the run at each offset.
    runs: HashMap<u64, Arc<Run>>,
    /// The runs to be copied.
    order: Vec<Arc<Run>>,
}

impl Copy {
    fn subtree(&mut self, subtree: &Subtree) -> Result<Subtree> {
        let node = match subtree {
            Subtree::Empty => return Ok(Subtree::Empty),
            Subtree::Leaf(run) => return Ok(Subtree::Leaf(self.run(run)?)),
            Subtree::Internal(node) => node.load()?,
        };
        let mut children = Vec::with_capacity(node.children.len());
        for child in &node.children {
            children.push(Child {
                subtree: self.subtree(&child.subtree)?,
                ..child.clone()
            });
        }
        let mut copied = Internal::new(children);
        copied.next_number = node.next_number;
        for run in &node.runs {
            let parts = run.parts.iter().map(|part| self.run(part));
            copied.runs.push(BufferRun {
                parts: parts.collect::<Result<_>>()?,
                ..run.clone()
            });
        }
        Ok(Subtree::internal(copied))
    }

    /// The copy of a run: the same offset in the new file.
    fn run(&mut self, run: &Arc<Run>) -> Result<Arc<Run>> {
        if run.store().data.form.is_encrypted() {
            return Err(is_encrypted());
        }
        let offset = run.extent.offset;
        if let Some(copied) = self.runs.get(&offset) {
            return Ok(copied.clone());
        }
        let extent = self.store.data.space.claim(offset, run.extent.len);
        let extent = extent.ok_or_else(|| corrupt(offset, "two runs overlap"))?;
        let copied = Run::new(&self.store, extent, run.info.clone());
        self.runs.insert(offset, copied.clone());
        self.order.push(run.clone());
        Ok(copied)
    }

    /// Copies the bytes of all runs.
    fn write(&mut self, total_bytes: u64, progress: &mut dyn FnMut(Progress)) -> Result<()> {
        let mut superblocks = AlignedBuf::with_capacity(2 * ALIGNMENT);
        superblocks.resize(2 * ALIGNMENT);
        self.store.data.write_raw(&superblocks, 0)?;
        // In the order of the file, so that the reads are sequential.
        self.order.sort_unstable_by_key(|run| run.extent.offset);
        let (mut buffer, mut done_bytes) = (AlignedBuf::default(), 0);
        for run in &self.order {
            let (offset, len) = (run.extent.offset, run.extent.len);
            let source = run.store();
            let _reserved = source.budget.reserve(MemoryUse::Runs, len as usize);
            source.data.read(offset, len as usize, &mut buffer)?;
            check(run, &buffer)?;
            self.store.data.write_raw(&buffer, offset)?;
            done_bytes += len;
            progress(Progress {
                done_bytes,
                total_bytes,
            });
        }
        Ok(())
    }
}

/// The blocks of an encrypted store belong to their references, which a backup makes again.
fn is_encrypted() -> Error {
    let text = "an encrypted store has no backups of snapshots; make a copy of the running store";
    Error::InvalidOption(text.to_owned())
}

/// Fails if the checksum of a block does not match: a copy of a damaged run would be useless.
fn check(run: &Run, bytes: &[u8]) -> Result<()> {
    let (offset, info) = (run.extent.offset, &run.info);
    let filter_at = info.index_at + info.index_len;
    let block = |at: u32, len: u32| {
        bytes
            .get(at as usize..(at + len) as usize)
            .unwrap_or_default()
    };
    check_block(
        block(filter_at, info.filter_len),
        offset + u64::from(filter_at),
    )?;
    let index_at = offset + u64::from(info.index_at);
    let decode = |payload: &[u8]| RunIndex::decode(payload, info.pages, info.index_at);
    let form = &run.store().data.form;
    let place = run.extent.place().plus(u64::from(info.index_at));
    let index = form.decode(block(info.index_at, info.index_len), place, decode)?;
    let index = index.ok_or_else(|| corrupt(index_at, "the index of a run is malformed"))?;
    for page in 0..index.pages() {
        let (at, len) = index.block(page);
        check_block(block(at, len), offset + u64::from(at))?;
    }
    Ok(())
}
