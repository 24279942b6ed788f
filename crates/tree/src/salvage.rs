//! Salvage of a damaged store: everything readable goes into a new store.
//!
//! Messages are committed to the new store from the oldest to the newest: first the leaves of a tree, then the buffers
//! from the deepest to the root, oldest run first, then the log. So the newest message of a key wins again.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use frond_kv::operation::{self, Op};

use crate::backup::{COMMIT_RANGES, push};
use crate::block::Place;
use crate::disk::{Disk, OverlayDisk};
use crate::inspect::{Inspector, Problem, ProblemKind, Progress};
use crate::manifest::Manifest;
use crate::node::{DEPTH_MAX, NodeRef, RunRef, SubtreeRef};
use crate::range::KeyRange;
use crate::store::Store;
use crate::{Durability, Error, Kind, Options, Result, TreeId, WriteSet, log};

/// Salvaged messages are committed when they have this many bytes.
const COMMIT_BYTES: usize = 4 << 20;

/// A range of keys with unreadable parts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lost {
    /// The tree that has lost something.
    pub tree: TreeId,
    /// The lower bound of the keys.
    pub lower: Vec<u8>,
    /// The upper bound, exclusive; `None` for no bound.
    pub upper: Option<Vec<u8>>,
    /// Whether only newer changes of the keys are lost, so that older values may reappear. Otherwise
    /// the keys are lost, except those that were changed later.
    pub only_newer: bool,
}

impl Lost {
    fn holds(&self, key: &[u8]) -> bool {
        key >= &*self.lower && self.upper.as_deref().is_none_or(|upper| key < upper)
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = |key: &[u8]| -> String {
            let shown: String = key
                .iter()
                .take(32)
                .map(|byte| format!("{byte:02x}"))
                .collect();
            if key.len() > 32 { shown + "…" } else { shown }
        };
        let upper = self.upper.as_deref().map_or("the end".to_owned(), hex);
        let (tree, lower) = (self.tree.0, hex(&self.lower));
        write!(f, "tree {tree}, keys from {lower:?} to {upper:?}: ")?;
        f.write_str(if self.only_newer {
            "newer changes are lost; older values may have reappeared"
        } else {
            "lost, except keys that were changed later"
        })
    }
}

/// The result of a salvage.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SalvageReport {
    /// Parts that could not be read or are invalid.
    pub problems: Vec<Problem>,
    /// The losses, as far as they are known.
    pub lost: Vec<Lost>,
    /// Unreadable pages of the list of trees. Each lists up to 256 trees, all lost.
    pub lost_tree_pages: u64,
    /// The number of the checkpoint that was read; 0 if none could be.
    pub checkpoint: u64,
    /// Whether a newer checkpoint could not be read, so that changes between the two are lost.
    pub is_older_checkpoint: bool,
    /// Trees of the new store.
    pub trees: u64,
    /// Keys and messages that were taken from the trees.
    pub messages: u64,
    /// Commits that were taken from the log.
    pub log_frames: u64,
    /// Update messages that were dropped, because what they update is lost.
    pub dropped_updates: u64,
}

impl Store {
    /// Builds a new store from the readable parts of a damaged one, which must not be open and is not changed. The
    /// new store has the same trees with the same ids and settings. `source` is the old store, `target` the new one;
    /// its merge operator must be the old one's.
    ///
    /// Where newer messages are lost, older values reappear, also those of deleted keys. The report lists these ranges.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if there is a store at the target already, or if there is none at the source;
    /// errors of the target's disk. What is wrong with the source is in the report.
    pub fn salvage(
        source: &Options,
        target: Options,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<SalvageReport> {
        let inspector = Inspector::open(&*source.disk, progress)?;
        target.check_holds_no_store("salvage")?;
        let mut salvage = Salvage {
            inspector,
            target: Store::open(target)?,
            report: SalvageReport::default(),
            set: WriteSet::new(),
            ranges: 0,
        };
        let log_start = salvage.checkpoint()?;
        salvage.log(&source.disk, log_start)?;
        salvage.target.checkpoint()?;
        salvage.report.trees = salvage.target.stats().trees;
        salvage.target.close()?;
        let mut report = salvage.report;
        report.problems = salvage.inspector.problems;
        // Siblings may share a run that is damaged.
        let mut seen = HashSet::new();
        report
            .problems
            .retain(|p| seen.insert((p.file.clone(), p.offset, p.tree, p.kind)));
        let mut seen = HashSet::new();
        report.lost.retain(|lost| seen.insert(lost.clone()));
        Ok(report)
    }
}

/// A part of a tree's keys.
#[derive(Clone, Copy)]
struct Range<'a> {
    lower: &'a [u8],
    upper: Option<&'a [u8]>,
}

impl Range<'_> {
    fn holds(&self, key: &[u8]) -> bool {
        key >= self.lower && self.upper.is_none_or(|upper| key < upper)
    }
}

struct Salvage<'a> {
    inspector: Inspector<'a>,
    target: Store,
    report: SalvageReport,
    /// Messages that are not committed yet.
    set: WriteSet,
    /// Range deletes among them.
    ranges: usize,
}

impl Salvage<'_> {
    /// Takes the data of the newest readable checkpoint. Returns the position from which the log continues.
    fn checkpoint(&mut self) -> Result<u64> {
        let superblocks = self.inspector.superblocks();
        let mut found = None;
        for superblock in &superblocks {
            found = self
                .inspector
                .manifest(superblock)
                .map(|manifest| (superblock, manifest));
            if found.is_some() {
                break;
            }
            self.report.is_older_checkpoint = true;
        }
        let Some((superblock, manifest)) = found else {
            return Ok(0);
        };
        self.report.checkpoint = superblock.generation;
        // The damaged one of two superblocks may have been the newer, unless there was only one checkpoint.
        let problems = &self.inspector.problems;
        let both = superblocks.len() == 2 || (superblock.generation == 1 && problems.is_empty());
        self.report.is_older_checkpoint |= !both;
        let Manifest {
            position,
            pages,
            lost,
            ..
        } = manifest;
        self.target.reserve_trees(TreeId(position.next_tree));
        // First those pages for whose trees newer messages have gathered in the others.
        let lost = lost.into_iter().map(|lost| (lost.page, lost.dropped));
        for (page, dropped) in lost.chain(pages.into_iter().map(|page| (page, Vec::new()))) {
            let at = page.copies.at[0];
            let Some(trees) = self.inspector.trees(&page.copies) else {
                self.report.lost_tree_pages += 1;
                continue;
            };
            for tree in trees.into_iter().filter(|tree| !dropped.contains(&tree.id)) {
                self.inspector.tree = Some(tree.id);
                self.set.create_tree(tree.id, &tree.options);
                let all = Range {
                    lower: &[],
                    upper: None,
                };
                self.subtree(tree.id, &tree.root, at, all, 0)?;
                self.commit()?;
                self.inspector.tree = None;
            }
        }
        Ok(position.log_start)
    }

    fn subtree(
        &mut self,
        tree: TreeId,
        subtree: &SubtreeRef,
        at: u64,
        range: Range<'_>,
        depth: u32,
    ) -> Result<()> {
        match subtree {
            SubtreeRef::Empty => Ok(()),
            SubtreeRef::Leaf(run) => self.run(tree, run, &[range], false),
            SubtreeRef::Internal(..) if depth > DEPTH_MAX => {
                let what = "a tree is deeper than possible";
                self.inspector.note(at, ProblemKind::Malformed, what);
                self.lose(tree, range.lower, range.upper, false);
                Ok(())
            }
            SubtreeRef::Internal(place) => {
                match (self.inspector).node(Place::new(place.offset, place.birth), place.len) {
                    Some(node) if node.pivots_ascend() => {
                        self.node(tree, &node, place.offset, range, depth)
                    }
                    Some(_) => {
                        let what = "the pivots of a node do not ascend";
                        self.inspector.note(place.offset, ProblemKind::Order, what);
                        self.lose(tree, range.lower, range.upper, false);
                        Ok(())
                    }
                    None => {
                        self.lose(tree, range.lower, range.upper, false);
                        Ok(())
                    }
                }
            }
        }
    }

    fn node(
        &mut self,
        tree: TreeId,
        node: &NodeRef,
        at: u64,
        range: Range<'_>,
        depth: u32,
    ) -> Result<()> {
        let range_of = |index: usize| {
            let own = &*node.children[index].pivot;
            let next = node.children.get(index + 1).map(|next| &*next.pivot);
            Range {
                lower: if index == 0 { range.lower } else { own },
                upper: next.or(range.upper),
            }
        };
        for (index, child) in node.children.iter().enumerate() {
            self.subtree(tree, &child.subtree, at, range_of(index), depth + 1)?;
        }
        for run in &node.runs {
            // A child that has received the run has its messages below.
            let waits = |index: &usize| node.children[*index].pending_from <= run.number;
            let waiting: Vec<Range<'_>> = (0..node.children.len())
                .filter(waits)
                .map(range_of)
                .collect();
            for waits in &waiting {
                // Older than the run's messages, newer than everything before.
                for range in run.ranges.clip(waits.lower, waits.upper).ranges() {
                    self.take_range(tree, &range.lower, range.upper.as_deref())?;
                }
            }
            for part in &run.parts {
                self.run(tree, part, &waiting, true)?;
            }
        }
        Ok(())
    }

    /// Takes the messages of a run in some ranges, which ascend.
    fn run(
        &mut self,
        tree: TreeId,
        run: &RunRef,
        ranges: &[Range<'_>],
        only_newer: bool,
    ) -> Result<()> {
        let (min, max) = (&*run.info.min_key, &*run.info.max_key);
        let Some(image) = self.inspector.run(run) else {
            self.lose_part(tree, min, Some(max), ranges, only_newer);
            return Ok(());
        };
        for number in 0..image.index.pages() {
            // An older checkpoint may refer to an extent that was reused since.
            let page = self.inspector.page(&image, number).filter(|page| {
                let (first, last) = (page.key(0), page.key(page.count() - 1));
                min <= first && first <= last && last <= max
            });
            let Some(page) = page else {
                let lower = image.index.separator(number).max(min);
                let is_last = number + 1 == image.index.pages();
                let upper = if is_last {
                    max
                } else {
                    image.index.separator(number + 1)
                };
                self.lose_part(tree, lower, Some(upper), ranges, only_newer);
                continue;
            };
            for index in 0..page.count() {
                let key = page.key(index);
                if ranges.iter().any(|range| range.holds(key)) {
                    self.take(tree, key, page.message(index))?;
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, tree: TreeId, key: &[u8], message: (Kind, &[u8])) -> Result<()> {
        if message.0 == Kind::Merge && !self.has_base(tree, key)? {
            self.report.dropped_updates += 1;
            return Ok(());
        }
        push(&mut self.set, tree, key, message);
        self.report.messages += 1;
        if self.set.bytes() >= COMMIT_BYTES {
            self.commit()?;
        }
        Ok(())
    }

    /// Takes one range delete. Losses of the keys that it covers do not matter any more.
    fn take_range(&mut self, tree: TreeId, lower: &[u8], upper: Option<&[u8]>) -> Result<()> {
        let Some(range) = KeyRange::new(lower, upper) else {
            return Ok(());
        };
        let is_over =
            |lost: &Lost| lost.tree == tree && range.covers(&lost.lower, lost.upper.as_deref());
        self.report.lost.retain(|lost| !is_over(lost));
        self.set.delete_range(tree, lower, upper);
        self.report.messages += 1;
        self.ranges += 1;
        if self.ranges >= COMMIT_RANGES {
            self.commit()?;
        }
        Ok(())
    }

    /// Whether the base of a key's update message is known: false if it is lost.
    fn has_base(&mut self, tree: TreeId, key: &[u8]) -> Result<bool> {
        let is_lost = |lost: &Lost| lost.tree == tree && lost.holds(key);
        if !self.report.lost.iter().any(is_lost) {
            return Ok(true);
        }
        self.commit()?;
        self.target.snapshot().contains(tree, key)
    }

    fn commit(&mut self) -> Result<()> {
        self.ranges = 0;
        let set = std::mem::take(&mut self.set);
        self.target.commit(set, Durability::Logged).map(drop)
    }

    fn lose(&mut self, tree: TreeId, lower: &[u8], upper: Option<&[u8]>, only_newer: bool) {
        self.report.lost.push(Lost {
            tree,
            lower: lower.to_vec(),
            upper: upper.map(<[u8]>::to_vec),
            only_newer,
        });
    }

    /// Records that the keys up to and including `upper` are lost where one of the ranges contains them.
    fn lose_part(
        &mut self,
        tree: TreeId,
        lower: &[u8],
        last: Option<&[u8]>,
        ranges: &[Range<'_>],
        only_newer: bool,
    ) {
        // The first key above the last one.
        let end = last.map(|last| [last, &[0]].concat());
        for range in ranges {
            let lower = lower.max(range.lower);
            let upper = match (end.as_deref(), range.upper) {
                (Some(end), Some(upper)) => Some(end.min(upper)),
                (end, upper) => end.or(upper),
            };
            if upper.is_none_or(|upper| lower < upper) {
                self.lose(tree, lower, upper, only_newer);
            }
        }
    }

    /// Takes the log from `start` on, up to the first damage.
    fn log(&mut self, disk: &Arc<dyn Disk>, start: u64) -> Result<()> {
        let oldest = match log::oldest_position(&**disk) {
            Ok(Some(oldest)) => oldest,
            Ok(None) => return Ok(()),
            Err(error) => {
                self.inspector.note_log(error);
                return Ok(());
            }
        };
        if oldest > start {
            self.inspector.note_log(Error::Corrupt {
                file: "the log".to_owned(),
                offset: 0,
                what: "the log begins after the checkpoint; the commits in between are lost",
            });
        }
        let overlay: Arc<dyn Disk> = Arc::new(OverlayDisk::new(disk.clone()));
        let mut failure = None;
        let outcome = log::replay(&overlay, start.max(oldest), |_, sequence, payload| {
            let next = sequence + operation::numbers_of(payload);
            self.frame(payload).map(|()| next).map_err(|error| {
                let text = error.to_string();
                failure = Some(error);
                Error::Failed(text)
            })
        });
        match (failure, outcome) {
            (Some(error), _) => return Err(error),
            (None, Err(error)) => self.inspector.note_log(error),
            (None, Ok(_)) => {}
        }
        Ok(())
    }

    /// Commits the operations of a frame of the log.
    fn frame(&mut self, payload: &[u8]) -> Result<()> {
        let (payload, _) = operation::with_stamps(payload);
        for op in operation::decode(&payload) {
            match op {
                Op::Entry {
                    tree,
                    kind,
                    key,
                    value,
                } => self.take(tree, key, (kind, value))?,
                Op::CreateTree(tree, options, _) => self.set.create_tree(tree, &options),
                Op::DropTree(tree) => self.set.drop_tree(tree),
                Op::DeleteRange { tree, lower, upper } => self.take_range(tree, lower, upper)?,
            }
        }
        self.report.log_frames += 1;
        self.commit()
    }
}
