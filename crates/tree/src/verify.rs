//! Verification of a store: everything that the newest checkpoint refers to, and the log.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use frond_kv::operation;

use crate::block::Place;
use crate::data_file::block_extent;
use crate::disk::{Disk, OverlayDisk};
use crate::free_map::{DATA_START, FreeMap, unreachable};
use crate::inspect::{Inspector, Problem, ProblemKind, Progress};
use crate::node::{BufferRef, DEPTH_MAX, NodeRef, PlaceRef, RunRef, SubtreeRef, Summary};
use crate::page::Page;
use crate::store::Store;
use crate::{Kind, Options, Result, TreeId, bounds, filter, log};

/// The result of a verification.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Problems, in the order in which they were found. Empty for an undamaged store.
    pub problems: Vec<Problem>,
    /// The number of the checkpoint that was verified; 0 if there was none yet.
    pub checkpoint: u64,
    /// Trees that were walked.
    pub trees: u64,
    /// Internal nodes that were read.
    pub nodes: u64,
    /// Runs: leaves and parts of buffers.
    pub runs: u64,
    /// Pages of runs that were read.
    pub pages: u64,
    /// Keys in leaves and messages in buffers.
    pub entries: u64,
    /// Length of the data file in bytes.
    pub file_bytes: u64,
    /// Bytes of it that the checkpoint uses, the superblocks included.
    pub reachable_bytes: u64,
    /// Bytes of it that the checkpoint does not use.
    pub free_bytes: u64,
    /// Bytes of these that the checkpoint has as used all the same: when it was written, a snapshot or a bulk load
    /// held them. The store frees them some time after the next start.
    pub leaked_bytes: u64,
    /// Commits in the log that the next open replays.
    pub log_frames: u64,
    /// Bytes of incomplete frames at the log's end, left by a crash. The next open drops them.
    pub log_torn_bytes: u64,
    /// Bytes of incomplete groups in the log before the checkpoint: lost in a crash before they were durable, or
    /// damaged since. They are not needed any more.
    pub log_lost_bytes: u64,
}

impl VerifyReport {
    /// Whether there are no problems.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}

impl Store {
    /// Verifies a store that is not open: checksums, order, bounds, filters, pivots, extents and the log.
    /// Nothing is changed. `progress` is called at intervals.
    ///
    /// # Errors
    /// If there is no store, or its directory cannot be read. What is wrong with the store is in the report.
    pub fn verify(options: &Options, progress: &mut dyn FnMut(Progress)) -> Result<VerifyReport> {
        let mut walk = Walk::new(&options.disk, progress)?;
        walk.all(&options.disk);
        Ok(VerifyReport {
            problems: walk.inspector.problems,
            ..walk.report
        })
    }
}

struct Walk<'a> {
    inspector: Inspector<'a>,
    report: VerifyReport,
    /// Offset and length of all extents that were visited.
    extents: Vec<(u64, u64)>,
    /// The free ranges of the checkpoint.
    free_map: Option<FreeMap>,
    /// The runs that were visited: siblings may share one.
    runs: HashMap<u64, RunRef>,
    /// The offsets of the nodes from the root to where the walk is.
    path: Vec<u64>,
    /// The path to the first reference to each run, and the runs that the reference to each node carries.
    places: HashMap<u64, Vec<u64>>,
    carried: HashMap<u64, HashSet<u64>>,
}

/// The keys that may lie in a part of a tree.
#[derive(Clone, Copy)]
struct Bounds<'a> {
    lower: &'a [u8],
    upper: Option<&'a [u8]>,
}

impl Bounds<'_> {
    fn hold(&self, key: &[u8]) -> bool {
        key >= self.lower && self.upper.is_none_or(|upper| key < upper)
    }
}

impl<'a> Walk<'a> {
    fn new(disk: &Arc<dyn Disk>, progress: &'a mut dyn FnMut(Progress)) -> Result<Walk<'a>> {
        let inspector = Inspector::open(&**disk, progress)?;
        let report = VerifyReport {
            file_bytes: inspector.file_len,
            ..VerifyReport::default()
        };
        Ok(Walk {
            inspector,
            report,
            extents: Vec::new(),
            free_map: None,
            runs: HashMap::new(),
            path: Vec::new(),
            places: HashMap::new(),
            carried: HashMap::new(),
        })
    }

    fn all(&mut self, disk: &Arc<dyn Disk>) {
        let log_start = self.checkpoint();
        self.entries();
        self.log(disk, log_start);
    }

    /// Walks all trees. Returns the position at which the replay of the log starts.
    fn checkpoint(&mut self) -> u64 {
        let superblocks = self.inspector.superblocks();
        let Some(newest) = superblocks.first() else {
            return 0;
        };
        self.report.checkpoint = newest.generation;
        self.extents.extend(newest.manifest.extents());
        let Some(manifest) = self.inspector.manifest(newest) else {
            return 0;
        };
        let mut last: Option<TreeId> = None;
        self.extents.extend(manifest.free_map.extents());
        self.free_map = self.inspector.free_map(&manifest.free_map);
        for lost in &manifest.lost {
            self.extents.extend(lost.page.copies.extents());
            // It is a problem as long as it cannot be read; then the next open takes its trees back.
            self.inspector.trees(&lost.page.copies);
        }
        for page in manifest.pages {
            let at = page.copies.at[0];
            self.extents.extend(page.copies.extents());
            for tree in self.inspector.trees(&page.copies).unwrap_or_default() {
                self.inspector.tree = Some(tree.id);
                if last.is_some_and(|last| last >= tree.id) {
                    let what = "the trees of the manifest do not ascend";
                    self.inspector.note(at, ProblemKind::Order, what);
                }
                if tree.id.0 >= manifest.position.next_tree {
                    let what = "a tree has an id that was never allocated";
                    self.inspector.note(at, ProblemKind::Bounds, what);
                }
                last = Some(tree.id);
                self.report.trees += 1;
                let all = Bounds {
                    lower: &[],
                    upper: None,
                };
                self.subtree(&tree.root, at, all, 0);
                self.inspector.tree = None;
            }
        }
        manifest.position.log_start
    }

    fn subtree(&mut self, subtree: &SubtreeRef, at: u64, bounds: Bounds<'_>, depth: u32) {
        match subtree {
            SubtreeRef::Empty => {}
            SubtreeRef::Leaf(run) => {
                if !bounds.hold(&run.info.min_key) || !bounds.hold(&run.info.max_key) {
                    let what = "the keys of a leaf lie outside of its parent's range";
                    self.inspector.note(run.offset, ProblemKind::Bounds, what);
                }
                self.run(run, true);
            }
            SubtreeRef::Internal(..) if depth > DEPTH_MAX => {
                let what = "a tree is deeper than possible";
                self.inspector.note(at, ProblemKind::Malformed, what);
            }
            SubtreeRef::Internal(place) => {
                let (offset, len) = (place.offset, place.len);
                self.extents.push((offset, block_extent(len)));
                if let Some(node) = self.inspector.node(Place::new(offset, place.birth), len) {
                    self.report.nodes += 1;
                    self.reference(&node, place);
                    self.path.push(offset);
                    self.node(&node, offset, bounds, depth);
                    self.path.pop();
                }
            }
        }
    }

    /// Compares a node with what its parent says of it.
    fn reference(&mut self, node: &NodeRef, place: &PlaceRef) {
        if Summary::of_stored(node, place.len) != place.below.summary {
            let what = "the figures of a node differ from those in its parent";
            self.inspector.note(place.offset, ProblemKind::Bounds, what);
        }
        let carried = place.below.carried.iter().map(|run| run.offset);
        self.carried.insert(place.offset, carried.collect());
    }

    /// Checks that a run that is shared by nodes is carried by the handles of these nodes, up to the node above both.
    fn check_shared(&mut self, run: &RunRef) {
        let Some(first) = self.places.get(&run.offset) else {
            self.places.insert(run.offset, self.path.clone());
            return;
        };
        let both = first.iter().zip(&self.path);
        let shared = both.take_while(|(a, b)| a == b).count();
        let nodes = first[shared..].iter().chain(&self.path[shared..]);
        let lacks = |node: &&u64| {
            let carried = self.carried.get(node);
            carried.is_some_and(|carried| !carried.contains(&run.offset))
        };
        if let Some(node) = nodes.copied().find(|node| lacks(&node)) {
            let what = "the reference to a node lacks a run that the node shares with others";
            self.inspector.note(node, ProblemKind::Bounds, what);
        }
    }

    fn node(&mut self, node: &NodeRef, at: u64, bounds: Bounds<'_>, depth: u32) {
        if !node.pivots_ascend() {
            let what = "the pivots of a node do not ascend";
            self.inspector.note(at, ProblemKind::Order, what);
        }
        // The first child also takes the keys below its pivot.
        if !node
            .children
            .iter()
            .skip(1)
            .all(|child| bounds.hold(&child.pivot))
        {
            let what = "a pivot lies outside of its node's range";
            self.inspector.note(at, ProblemKind::Bounds, what);
        }
        if node
            .children
            .iter()
            .any(|child| child.pending_from > node.next_number)
        {
            let what = "a child waits for a run that never existed";
            self.inspector.note(at, ProblemKind::Bounds, what);
        }
        let numbers = node.runs.iter().map(|run| run.number);
        let numbers: Vec<u64> = numbers.chain([node.next_number]).collect();
        if !numbers.is_sorted_by(|a, b| a < b) {
            let what = "the numbers of a node's runs do not ascend";
            self.inspector.note(at, ProblemKind::Order, what);
        }
        for BufferRef { parts, ranges, .. } in &node.runs {
            let apart = |a: &RunRef, b: &RunRef| a.info.max_key < b.info.min_key;
            if (parts.is_empty() && ranges.is_empty()) || !parts.is_sorted_by(apart) {
                let what = "the parts of a run do not ascend, or it is empty";
                self.inspector.note(at, ProblemKind::Order, what);
            }
            let (lower, upper) = (bounds.lower, bounds.upper);
            if ranges.overlapping(lower, upper).len() != ranges.ranges().len() {
                let what = "a range delete in a buffer covers no key of its node's range";
                self.inspector.note(at, ProblemKind::Bounds, what);
            }
            for part in parts {
                let reaches = *part.info.max_key >= *bounds.lower
                    && bounds.upper.is_none_or(|upper| &*part.info.min_key < upper);
                if !reaches {
                    let what = "a run in a buffer has no key in its node's range";
                    self.inspector.note(part.offset, ProblemKind::Bounds, what);
                }
                self.run(part, false);
            }
        }
        for (index, child) in node.children.iter().enumerate() {
            let lower = if index == 0 {
                bounds.lower
            } else {
                &child.pivot
            };
            let next = node.children.get(index + 1).map(|next| &*next.pivot);
            let upper = next.or(bounds.upper);
            self.subtree(&child.subtree, at, Bounds { lower, upper }, depth + 1);
        }
    }

    /// Checks all of a run, once.
    fn run(&mut self, run: &RunRef, is_leaf: bool) {
        self.check_shared(run);
        match self.runs.entry(run.offset) {
            Entry::Occupied(known) if known.get() == run => return,
            Entry::Occupied(_) => {}
            Entry::Vacant(new) => {
                new.insert(run.clone());
            }
        }
        self.extents.push((run.offset, run.len));
        self.report.runs += 1;
        let Some(image) = self.inspector.run(run) else {
            return;
        };
        let filter = self.inspector.filter(run, &image);
        let mut sums = Sums::default();
        let mut all_read = true;
        for number in 0..image.index.pages() {
            let Some(page) = self.inspector.page(&image, number) else {
                all_read = false;
                continue;
            };
            self.report.pages += 1;
            let next =
                (number + 1 < image.index.pages()).then(|| image.index.separator(number + 1));
            let bounds = Bounds {
                lower: image.index.separator(number),
                upper: next,
            };
            let (at, _) = image.index.block(number);
            let at = run.offset + u64::from(at);
            for (kind, what) in sums.add(&page, bounds, filter.as_deref(), is_leaf) {
                self.inspector.note(at, kind, what);
            }
        }
        self.report.entries += sums.entries;
        if all_read && !sums.agree(run) {
            let what = "the keys or figures of a run differ from those in its parent";
            self.inspector.note(run.offset, ProblemKind::Bounds, what);
        }
    }

    /// Checks that no two extents overlap, and that none is in what the checkpoint has as free.
    fn entries(&mut self) {
        self.extents.sort_unstable();
        let mut reachable = DATA_START.min(self.report.file_bytes);
        let mut end = 0;
        for (offset, len) in self.extents.iter().copied() {
            if offset < end {
                let what = "two extents overlap";
                self.inspector.note(offset, ProblemKind::Overlap, what);
            }
            let behind = offset.saturating_add(len);
            reachable += behind.saturating_sub(end.max(offset));
            end = end.max(behind);
        }
        if let Some(map) = self.free_map.take() {
            self.extents.dedup();
            self.report.leaked_bytes = unreachable(&map.used(), &self.extents)
                .iter()
                .map(|(_, len)| len)
                .sum();
            let mut free = map
                .ranges
                .iter()
                .copied()
                .chain([(map.end, u64::MAX / 2)])
                .peekable();
            for (offset, len) in &self.extents {
                while free.peek().is_some_and(|(at, len)| at + len <= *offset) {
                    free.next();
                }
                if free
                    .peek()
                    .is_some_and(|(at, _)| *at < offset.saturating_add(*len))
                {
                    let what = "an extent is in use, and also in the map of the free space";
                    self.inspector.note(*offset, ProblemKind::Overlap, what);
                }
            }
        }
        self.report.reachable_bytes = reachable;
        self.report.free_bytes = self.report.file_bytes.saturating_sub(reachable);
    }

    /// Reads the log as a replay does, and checks the segments from before the checkpoint as well: they are not needed
    /// any more, but damage there is a sign of a failing disk.
    fn log(&mut self, disk: &Arc<dyn Disk>, start: u64) {
        let overlay = OverlayDisk::new(disk.clone());
        let inspector = &mut self.inspector;
        self.report.log_lost_bytes =
            log::check_passed(&overlay, start, |error| inspector.note_log(error));
        self.replay(disk, start);
    }

    /// Reads the log and counts the frames that the next open replays.
    fn replay(&mut self, disk: &Arc<dyn Disk>, start: u64) {
        let overlay = Arc::new(OverlayDisk::new(disk.clone()));
        let mut frames = 0;
        let over: Arc<dyn Disk> = overlay.clone();
        let end = log::replay(&over, start, |_, sequence, payload| {
            frames += 1;
            Ok(sequence + operation::numbers_of(payload))
        });
        self.report.log_frames = frames;
        match end {
            Ok(_) => self.report.log_torn_bytes = overlay.cut_bytes(),
            Err(error) => self.inspector.note_log(error),
        }
    }
}

/// Sums over the pages of a run.
#[derive(Default)]
struct Sums {
    entries: u64,
    logical_bytes: u64,
    first: Vec<u8>,
    last: Vec<u8>,
}

impl Sums {
    /// Adds a page and returns its problems, each once.
    fn add(
        &mut self,
        page: &Page,
        bounds: Bounds<'_>,
        filter: Option<&[u8]>,
        is_leaf: bool,
    ) -> Vec<(ProblemKind, &'static str)> {
        let mut wrong = Vec::new();
        let mut note = |kind, what| {
            if !wrong.contains(&(kind, what)) {
                wrong.push((kind, what));
            }
        };
        for index in 0..page.count() {
            let (key, (kind, value)) = (page.key(index), page.message(index));
            if self.entries == 0 {
                self.first = key.to_vec();
            } else if key <= self.last.as_slice() {
                note(ProblemKind::Order, "the keys of a run do not ascend");
            }
            if !bounds.hold(key) {
                let what = "a page has keys outside of the range that the run's index gives it";
                note(ProblemKind::Bounds, what);
            }
            if is_leaf && kind != Kind::Put {
                note(
                    ProblemKind::Malformed,
                    "a leaf holds a message other than a put",
                );
            }
            if filter.is_some_and(|bits| !filter::may_contain(bits, filter::hash(key))) {
                note(
                    ProblemKind::Filter,
                    "the filter of a run lacks a key of this page",
                );
            }
            self.last.clear();
            self.last.extend_from_slice(key);
            self.entries += 1;
            self.logical_bytes += (key.len() + value.len()) as u64;
        }
        wrong
    }

    fn agree(&self, run: &RunRef) -> bool {
        let info = &run.info;
        self.entries == info.entries
            && self.logical_bytes == info.logical_bytes
            && bounds::fit(&self.first, &self.last, &info.min_key, &info.max_key)
    }
}

#[cfg(test)]
mod tests;
