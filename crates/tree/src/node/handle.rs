//! Handles to internal nodes. A node that is on disk is read when it is first used, and may leave the memory again.
//!
//! Extents are freed when their handles are dropped, so it matters who holds the extents below a node that is not in
//! memory. They belong to the node's handle: when it is dropped, the node is read in the background (see `orphans.rs`),
//! and what it refers to is dropped.
//!
//! A run of a buffer may be shared by siblings: a node that splits gives both halves the runs that reach into both. So
//! a handle carries the runs that are referred to anywhere below it and reach beyond its range of keys. Only those can be
//! referred to from elsewhere: a node refers to runs only that reach into its own range.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwapOption, Guard};
use parking_lot::Mutex;

use super::codec::{DEPTH_MAX, NodeRef, RunRef, SubtreeRef};
use super::summary::Summary;
use super::{BufferRun, Child, Internal, Subtree};
use crate::Result;
use crate::data_file::{block_extent, corrupt};
use crate::node_memory::Evict;
use crate::orphans::Orphan;
use crate::run::{Run, RunStore};
use crate::space::Extent;

/// An internal node, in memory, on disk or both.
pub(crate) struct Node {
    content: ArcSwapOption<Internal>,
    stored: OnceLock<Stored>,
    /// Held while the content comes or goes.
    changing: Mutex<()>,
}

/// Where a node is on disk, and what is known of it without reading it.
pub(crate) struct Stored {
    store: Arc<RunStore>,
    extent: Arc<Extent>,
    len: u32,
    /// The runs below that reach beyond the node's range of keys.
    pub(super) carried: Vec<Arc<Run>>,
    pub(super) summary: Summary,
    /// Whether it was used since memory was last searched for nodes to evict.
    used: AtomicBool,
    /// Bytes of the budget that the content takes.
    charged: Mutex<usize>,
}

/// The content of a node. It stays in memory while this lives.
pub(crate) struct Loaded(Guard<Option<Arc<Internal>>>);

impl Deref for Loaded {
    type Target = Internal;

    fn deref(&self) -> &Internal {
        self.0.as_ref().expect("made only of a node in memory")
    }
}

impl Node {
    /// A new node, which is not on disk.
    pub(super) fn new(content: Internal) -> Arc<Node> {
        Arc::new(Node {
            content: ArcSwapOption::from_pointee(content),
            stored: OnceLock::new(),
            changing: Mutex::default(),
        })
    }

    /// A handle to a node on disk, which is not read.
    fn on_disk(stored: Stored) -> Arc<Node> {
        Arc::new(Node {
            content: ArcSwapOption::empty(),
            stored: OnceLock::from(stored),
            changing: Mutex::default(),
        })
    }

    pub(super) fn stored(&self) -> Option<&Stored> {
        self.stored.get()
    }

    /// Offset and length of the node's block, if it is on disk, and the birth of its extent.
    pub(crate) fn place(&self) -> Option<(u64, u32, u64)> {
        let stored = self.stored.get()?;
        Some((stored.extent.offset, stored.len, stored.extent.birth))
    }

    /// The content, if it is in memory.
    pub(crate) fn in_memory(&self) -> Option<Loaded> {
        let content = self.content.load();
        content.is_some().then_some(Loaded(content))
    }

    /// The content, read if necessary.
    pub(crate) fn load(self: &Arc<Node>) -> Result<Loaded> {
        if let Some(loaded) = self.in_memory() {
            if let Some(stored) = self.stored.get()
                && !stored.used.load(Ordering::Relaxed)
            {
                stored.used.store(true, Ordering::Relaxed);
            }
            return Ok(loaded);
        }
        let loaded = self.read()?;
        if let Some(stored) = self.stored.get() {
            stored.store.nodes.make_room(&stored.store.budget);
        }
        Ok(loaded)
    }

    fn read(self: &Arc<Node>) -> Result<Loaded> {
        let _changing = self.changing.lock();
        if let Some(loaded) = self.in_memory() {
            return Ok(loaded);
        }
        let stored = self.stored.get().expect("it is in memory or on disk");
        let content = stored.read()?;
        self.charge(&content);
        let content = Arc::new(content);
        self.content.store(Some(content));
        Ok(Loaded(self.content.load()))
    }

    /// Counts the content in the budget.
    fn charge(self: &Arc<Node>, content: &Internal) {
        if let Some(stored) = self.stored.get() {
            let bytes = content.memory_bytes();
            let before = std::mem::replace(&mut *stored.charged.lock(), bytes);
            assert!(before == 0, "H1: the content of a node is counted twice");
            stored.used.store(true, Ordering::Relaxed);
            let node: Arc<dyn Evict> = self.clone();
            stored.store.nodes.add(&node, bytes, &stored.store.budget);
        }
    }

    /// Notes where the node was written; its content is in memory.
    pub(super) fn set_stored(self: &Arc<Node>, stored: Stored) {
        let is_first = self.stored.set(stored).is_ok();
        assert!(is_first, "K7: two checkpoints write a node at a time");
        let content = self.in_memory().expect("it was written from memory");
        self.charge(&content);
    }
}

impl Stored {
    pub(super) fn new(
        store: &Arc<RunStore>,
        extent: Arc<Extent>,
        len: u32,
        carried: Vec<Arc<Run>>,
        summary: Summary,
    ) -> Stored {
        Stored {
            store: store.clone(),
            extent,
            len,
            carried,
            summary,
            used: AtomicBool::new(false),
            charged: Mutex::default(),
        }
    }

    /// Reads the node. Handles to what it refers to are made here and nowhere else, so the node must not be in memory.
    fn read(&self) -> Result<Internal> {
        let offset = self.extent.offset;
        let data = &self.store.data;
        let place = self.extent.place();
        let node = data.read_block(place, self.len as usize, NodeRef::parse)?;
        let node = node.ok_or_else(|| corrupt(offset, "an internal node is malformed"))?;
        if !node.pivots_ascend() {
            return Err(corrupt(offset, "the pivots of a node are out of order"));
        }
        if !node.numbers_ascend() {
            return Err(corrupt(offset, "the runs of a node are out of order"));
        }
        let mut runs = KnownRuns::new(&self.store, offset);
        for run in &self.carried {
            runs.known.insert(run.extent.offset, run.clone());
        }
        let content = node.resolve(&mut runs, self.summary.height);
        content.inspect_err(|_| runs.disown())
    }

    /// Counts the content as gone.
    fn uncharge(&self) {
        let bytes = std::mem::take(&mut *self.charged.lock());
        if bytes > 0 {
            self.store.nodes.remove(bytes, &self.store.budget);
        }
    }
}

impl Orphan for Stored {
    fn release(self: Box<Stored>) -> Result<()> {
        // Its handles are dropped at once. If the node cannot be read, only its own extent is released.
        self.read().map(drop)
    }
}

impl Evict for Node {
    fn evict(&self) -> bool {
        let Some(stored) = self.stored.get() else {
            return false;
        };
        if stored.used.swap(false, Ordering::Relaxed) {
            return false;
        }
        let Some(_changing) = self.changing.try_lock() else {
            return false;
        };
        let Some(content) = self.content.swap(None) else {
            return true;
        };
        // A thread that is using the node holds a reference to its content. Threads that come later wait for the lock
        // and find it restored.
        let is_unused = Arc::strong_count(&content) == 1;
        // Everything that was done with its handles is seen from here on.
        fence(Ordering::Acquire);
        if !is_unused || !content.disown(&stored.carried) {
            self.content.store(Some(content));
            return false;
        }
        drop(content);
        stored.uncharge();
        true
    }
}

impl Internal {
    /// Makes the handles of all that this node refers to drop without releasing anything, unless one of
    /// them is shared: by another version of the node, a snapshot's cursor, or the memory, if a node below is in it. `carried`
    /// stay as they are.
    fn disown(&self, carried: &[Arc<Run>]) -> bool {
        let mut runs: HashMap<*const Run, (&Arc<Run>, usize)> = HashMap::new();
        let mut count = |run| runs.entry(Arc::as_ptr(run)).or_insert((run, 0)).1 += 1;
        let mut nodes = Vec::new();
        for part in self.runs.iter().flat_map(|run| &run.parts) {
            count(part);
        }
        for child in &self.children {
            match &child.subtree {
                Subtree::Empty => {}
                Subtree::Leaf(leaf) => count(leaf),
                Subtree::Internal(node) => {
                    let Some(stored) = node.stored() else {
                        return false;
                    };
                    if Arc::strong_count(node) > 1 || node.content.load().is_some() {
                        return false;
                    }
                    stored.carried.iter().for_each(&mut count);
                    nodes.push(stored);
                }
            }
        }
        for run in carried {
            runs.remove(&Arc::as_ptr(run));
        }
        let is_own = |(run, count): &(&Arc<Run>, usize)| Arc::strong_count(run) == *count;
        if !runs.values().all(is_own) {
            return false;
        }
        // Those who shared them have let go before.
        fence(Ordering::Acquire);
        runs.values().for_each(|(run, _)| run.extent.disarm());
        nodes.iter().for_each(|stored| stored.extent.disarm());
        true
    }
}

/// The handles of the runs that a node refers to: one for each, however often it is referred to.
pub(crate) struct KnownRuns<'a> {
    store: &'a Arc<RunStore>,
    /// Where the reference is, for error messages.
    at: u64,
    known: HashMap<u64, Arc<Run>>,
    /// The extents of all handles that were made here, and the handles of nodes.
    made: Vec<Arc<Extent>>,
    nodes: Vec<Arc<Node>>,
}

impl<'a> KnownRuns<'a> {
    pub(crate) fn new(store: &'a Arc<RunStore>, at: u64) -> KnownRuns<'a> {
        KnownRuns {
            store,
            at,
            known: HashMap::new(),
            made: Vec::new(),
            nodes: Vec::new(),
        }
    }

    /// Makes the handles that were made here drop without releasing anything, because not all could be made.
    pub(crate) fn disown(&self) {
        self.made.iter().for_each(|extent| extent.disarm());
    }

    fn adopt(&mut self, offset: u64, len: u64, birth: u64) -> Result<Arc<Extent>> {
        let adopted = self.store.data.space.adopt(offset, len, birth);
        let what = "the extent of a node is impossible, or overlaps free space";
        let adopted = adopted.ok_or_else(|| corrupt(self.at, what))?;
        self.made.push(adopted.clone());
        Ok(adopted)
    }

    fn run(&mut self, run: RunRef) -> Result<Arc<Run>> {
        if let Some(known) = self.known.get(&run.offset) {
            return if known.info == run.info {
                Ok(known.clone())
            } else {
                Err(corrupt(self.at, "two runs share an extent"))
            };
        }
        let extent = self.adopt(run.offset, run.len, run.birth)?;
        let handle = Run::new(self.store, extent, run.info);
        self.known.insert(run.offset, handle.clone());
        Ok(handle)
    }

    /// Handles to what a reference refers to; nodes are not read. They must be lower than `height`.
    pub(crate) fn subtree(&mut self, subtree: SubtreeRef, height: u32) -> Result<Subtree> {
        Ok(match subtree {
            SubtreeRef::Empty => Subtree::Empty,
            SubtreeRef::Leaf(run) => Subtree::Leaf(self.run(run)?),
            SubtreeRef::Internal(node) => {
                let below = node.below;
                if below.summary.height > DEPTH_MAX {
                    return Err(corrupt(self.at, "a tree is higher than possible"));
                }
                if below.summary.height >= height {
                    return Err(corrupt(
                        self.at,
                        "a node is not higher than the one below it",
                    ));
                }
                let carried = below.carried.into_iter().map(|run| self.run(run));
                let carried = carried.collect::<Result<_>>()?;
                let extent = self.adopt(node.offset, block_extent(node.len), node.birth)?;
                let stored = Stored::new(self.store, extent, node.len, carried, below.summary);
                let node = Node::on_disk(stored);
                self.nodes.push(node.clone());
                Subtree::Internal(node)
            }
        })
    }
}

impl NodeRef {
    /// The node, with handles to what it refers to.
    fn resolve(self, known: &mut KnownRuns<'_>, height: u32) -> Result<Internal> {
        if !self.keys_are_in_place() {
            return Err(corrupt(
                known.at,
                "a part of a node is outside of its range of keys",
            ));
        }
        let mut children = Vec::with_capacity(self.children.len());
        for child in self.children {
            children.push(Child {
                pivot: child.pivot,
                subtree: known.subtree(child.subtree, height)?,
                pending_from: child.pending_from,
                pending_bytes: child.pending_bytes,
                blocked: 0,
            });
        }
        let mut runs = Vec::with_capacity(self.runs.len());
        for run in self.runs {
            let parts = run.parts.into_iter().map(|part| known.run(part));
            runs.push(BufferRun {
                number: run.number,
                ranges: run.ranges,
                parts: parts.collect::<Result<_>>()?,
            });
        }
        Ok(Internal {
            children,
            runs,
            next_number: self.next_number,
        })
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let Some(stored) = self.stored.take() else {
            return;
        };
        stored.uncharge();
        if self.content.load().is_some() || !stored.extent.is_armed() {
            // The content holds the handles, or they belong to the handle of the parent now.
            return;
        }
        let store = stored.store.clone();
        store.orphans.push(Box::new(stored));
    }
}
