//! Flushing: a memtable to a tree, and pending messages of a node to its children.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use frond_kv::Direction;

use super::{BufferRun, Child, Internal, Subtree};
use crate::flush_scope::{FlushScope, Task};
use crate::memtable::{MemSource, Memtable};
use crate::merge::Resolver;
use crate::merger::{Merger, Source};
use crate::range::RangeSet;
use crate::run::{Fetch, PartsCursor, Run, RunStore, RunWriter};
use crate::{Compression, Kind, Result, TreeOptions, filter};

/// The most runs in a node's buffer. More runs make flushes larger, and reads look at more filters.
pub(super) const RUNS_MAX: usize = 16;
/// From this many runs on, each memtable flush also flushes a share of the children, so that they do not all reach
/// the limit at once.
const RUNS_SMOOTH: usize = RUNS_MAX / 2;
/// Up to this many runs gather while flushes are deferred.
pub(super) const RUNS_HARD: usize = RUNS_MAX * 2;
/// Up to this many runs gather while there is too little room to rewrite leaves. While the disk is nearly full there is no
/// limit: compaction empties buffers then, in steps for which there is room.
const RUNS_LITTLE_ROOM: usize = RUNS_MAX * 16;
/// With room for less than this share of a leaf, none is rewritten. The room is a small share of what there is.
const WORK_SHARE_MIN: u64 = 4;
/// With room for the work on fewer nodes than this, the runs of buffers have parts of this share of a node, and no part
/// from this many bytes on reaches into the range of another child.
const LITTLE_ROOM_NODES: u64 = 16;
const PARTS_OF_NODE: u64 = 32;
const PART_BYTES_MIN: u64 = 4 << 10;
/// Bytes that one memtable flush may read and write in the nodes below: this many for each byte of the memtable, and
/// as much again as this many nodes hold. On average it needs about half of that. Without a limit, large flushes of
/// several trees would sometimes coincide.
const ALLOWANCE: u64 = 10;
const ALLOWANCE_NODES: u64 = 4;
/// Bytes of pivots and of bounds of leaves from which a node has fewer children than usual, and bytes of bounds in its buffer
/// from which this is emptied in any case. Only long keys that begin with the same bytes reach that.
const BOUNDS_MAX: usize = 16 << 20;

/// Builds new versions of one tree. Old versions are not touched. Clones share the allowance.
#[derive(Clone)]
pub(crate) struct Builder {
    pub(crate) store: Arc<RunStore>,
    pub(crate) options: TreeOptions,
    pub(crate) resolver: Resolver,
    pub(crate) fanout: usize,
    /// About how many bytes flushes may still read and write before they are deferred.
    pub(crate) allowance: Arc<AtomicU64>,
    /// An upper limit of it: less while the disk is nearly full.
    pub(crate) allowance_max: u64,
    /// The most room that one step of compaction may take.
    pub(crate) step_max: u64,
    /// The threads that share the work.
    pub(crate) scope: Arc<FlushScope>,
}

impl Builder {
    /// Limits the work on nodes below the root to this many bytes. When they are too few there is none: a leaf is
    /// rewritten whole.
    pub(crate) fn limit_work(&mut self, bytes: u64) {
        let least = u64::from(self.options.node_bytes) / WORK_SHARE_MIN;
        self.allowance_max = if bytes < least { 0 } else { bytes };
    }

    /// The tree after all messages of a sealed memtable; `bytes` is about how many there are. Damage in the tree does
    /// not prevent that: the messages then stay above it.
    pub(crate) fn flush_memtable(
        &self,
        root: &Subtree,
        memtable: &Arc<Memtable>,
        bytes: u64,
    ) -> Result<Subtree> {
        match self.flush_messages(root, memtable, bytes) {
            Err(error) if error.is_damage() => {
                self.record_damage(&error);
                self.put_above(root, memtable)
            }
            flushed => flushed,
        }
    }

    fn flush_messages(
        &self,
        root: &Subtree,
        memtable: &Arc<Memtable>,
        bytes: u64,
    ) -> Result<Subtree> {
        let besides = u64::from(self.options.node_bytes) * ALLOWANCE_NODES;
        let allowance = bytes * ALLOWANCE + besides;
        let allowance = allowance.min(self.allowance_max);
        self.allowance.store(allowance, Ordering::Relaxed);
        let Some(mut source) = self.source_of(memtable) else {
            return Ok(root.clone());
        };
        source.seek(None);
        let mut messages = Source::memtable(source);
        let mut root = root.clone();
        let behind = |root: &Subtree, messages: &Source| {
            let (last, first) = (root.max_key(), messages.key());
            first.is_none_or(|first| last.is_some_and(|last| *last < *first))
        };
        if !messages.ranges.is_empty() && behind(&root, &messages) {
            // The remaining messages are newer than the range deletes, so the range deletes can go first. They
            // then do not prevent the fast path at the right edge.
            let none = PartsCursor::new(Vec::new(), Fetch::Stream, None);
            let deletes = Source::runs(none, std::mem::take(&mut messages.ranges));
            root = self.push_to_root(&root, deletes, 0, None)?;
        }
        if messages.key().is_none() {
            return Ok(root);
        }
        let Some(new) = self.new_leaves(&root, memtable, &messages, bytes)? else {
            return self.push_to_root(&root, messages, bytes, None);
        };
        let first = new.first();
        if messages.key().is_some_and(|key| key < first) {
            let below = bytes.saturating_sub(new.bytes());
            root = self.push_to_root(&root, messages, below, Some(first))?;
            if !self.can_append(&root, first)? {
                return match self.source_above(memtable, first) {
                    Some(rest) => self.push_to_root(&root, rest, new.bytes(), None),
                    None => Ok(root),
                };
            }
        }
        self.append(&root, &new)
    }

    /// All messages of a sealed memtable for the tree, without a position yet; `None` if there are none.
    pub(super) fn source_of(&self, memtable: &Arc<Memtable>) -> Option<MemSource> {
        let (tree, resolver) = (self.resolver.tree, self.resolver.clone());
        MemSource::of_sealed(memtable, tree, resolver)
    }

    /// The messages from a key on, without range deletes, which the tree below has received.
    pub(super) fn source_above(&self, memtable: &Arc<Memtable>, first: &[u8]) -> Option<Source> {
        let mut source = self.source_of(memtable)?;
        source.seek(Some(first));
        let mut source = Source::memtable(source);
        source.ranges = RangeSet::default();
        Some(source)
    }

    /// The tree after messages below `upper` that may lie anywhere. With range deletes there is no `upper`.
    fn push_to_root(
        &self,
        root: &Subtree,
        messages: Source,
        bytes: u64,
        upper: Option<&[u8]>,
    ) -> Result<Subtree> {
        let mut node = match root {
            Subtree::Internal(node) => node.load()?.edit(),
            Subtree::Leaf(_) | Subtree::Empty => {
                Internal::new(vec![Child::new(&[], root.clone(), 0)])
            }
        };
        let gathers = match root {
            Subtree::Internal(_) => true,
            // While the disk is nearly full, the run takes less room than the rewritten leaf.
            Subtree::Leaf(leaf) if self.allowance_max == 0 && leaf.info.logical_bytes > bytes => {
                true
            }
            Subtree::Leaf(leaf) => leaf.is_damaged() || self.is_large_for(leaf, bytes),
            Subtree::Empty => false,
        };
        if !gathers {
            self.rewrite_leaves(&mut node, 0..1, vec![messages], bytes, upper)?;
            return Ok(self.grow(node.children));
        }
        let ranges = messages.ranges.clone();
        let mut messages = Merger::new(vec![messages], Direction::Forward)?;
        self.push_run(&mut node, &mut messages, &ranges, upper)?;
        drop(messages);
        let pieces = self.rebalance(node, None)?;
        Ok(self.grow(pieces))
    }

    /// Whether the only leaf of a tree is too large to be rewritten for so few bytes: an index on a short field of long
    /// documents gets a small share of each memtable.
    fn is_large_for(&self, leaf: &Run, bytes: u64) -> bool {
        let leaf_bytes = leaf.info.logical_bytes;
        leaf_bytes >= u64::from(self.options.node_bytes) / 4 && bytes < leaf_bytes / 2
    }

    /// A root over siblings.
    pub(super) fn grow(&self, mut siblings: Vec<Child>) -> Subtree {
        while siblings.len() > 1 {
            siblings = self.split(Internal::new(siblings));
        }
        let mut root = siblings.pop().map_or(Subtree::Empty, |child| child.subtree);
        while let Subtree::Internal(node) = &root
            && let Some(node) = node.in_memory()
            && let [only] = node.children.as_slice()
            && node.runs.is_empty()
        {
            let only = only.subtree.clone();
            root = only;
        }
        root
    }

    /// Flushes the children that are due, merges small leaves, and splits the node if it has too many children.
    pub(super) fn rebalance(&self, mut node: Internal, upper: Option<&[u8]>) -> Result<Vec<Child>> {
        node.count_down_blocks();
        let mut quota = if node.runs.len() > RUNS_SMOOTH {
            node.children.len().div_ceil(RUNS_MAX - RUNS_SMOOTH)
        } else {
            0
        };
        let runs_hard = match self.allowance_max {
            0 if self.is_disk_low() => usize::MAX,
            0 => RUNS_LITTLE_ROOM,
            _ => RUNS_HARD,
        };
        // Later memtable flushes do what is deferred here.
        loop {
            let due = self.due_children(&node, &mut quota, runs_hard);
            if due.is_empty() {
                break;
            }
            self.flush_children(&mut node, due, upper)?;
        }
        if node.runs.len() > RUNS_HARD {
            self.merge_blocked_runs(&mut node, upper)?;
        }
        self.merge_small_leaves(&mut node, upper)?;
        let nothing = node
            .children
            .iter()
            .all(|child| matches!(child.subtree, Subtree::Empty));
        if nothing && node.runs.is_empty() {
            let pivot = node.children.first().map_or(&[][..], |child| &child.pivot);
            return Ok(vec![Child::new(pivot, Subtree::Empty, 0)]);
        }
        Ok(self.split(node))
    }

    /// The next children to flush, those with most pending bytes first: as many as can be flushed side by side.
    fn due_children(&self, node: &Internal, quota: &mut usize, runs_hard: usize) -> Vec<usize> {
        // With little room, what one flush takes must be known before the next one begins.
        let most = if self.has_little_room() {
            1
        } else {
            self.scope.width()
        };
        let mut allowance = self.allowance.load(Ordering::Relaxed);
        let mut due = Vec::new();
        let is_crowded = node.runs.len() > runs_hard || node.buffer_bounds_bytes() > BOUNDS_MAX;
        while due.len() < most && (allowance > 0 || is_crowded) {
            let is_due = |(index, pending): &(usize, u64)| {
                *quota > 0 || *pending >= self.flush_bytes(&node.children[*index])
            };
            let target = match heaviest(node, 0, &due).filter(is_due) {
                None if is_crowded || node.runs.len() > RUNS_MAX => {
                    heaviest(node, node.runs[0].number + 1, &due)
                }
                target => target,
            };
            let Some((index, pending)) = target else {
                break;
            };
            due.push(index);
            allowance = allowance.saturating_sub(pending);
            *quota = quota.saturating_sub(1);
        }
        due
    }

    /// Flushes some children side by side. Those whose flush damage prevents are set apart.
    fn flush_children(
        &self,
        node: &mut Internal,
        mut due: Vec<usize>,
        upper: Option<&[u8]>,
    ) -> Result<()> {
        if let [only] = due.as_slice() {
            self.flush_or_block(node, *only, None, upper)?;
            return Ok(());
        }
        // From the right, so that the others stay where they are.
        due.sort_unstable_by_key(|index| std::cmp::Reverse(*index));
        let before = Arc::new(node.edit());
        let flush = |index: &usize| -> Task<Vec<Child>> {
            let (builder, node, index) = (self.clone(), before.clone(), *index);
            let upper = upper.map(<[u8]>::to_vec);
            Box::new(move || builder.flushed_child(&node, index, upper.as_deref()))
        };
        let flushed = self.scope.run(due.iter().map(flush).collect());
        for (index, pieces) in due.into_iter().zip(flushed) {
            match self.unless_damaged(pieces)? {
                Some(mut pieces) => node.received(index..index + 1, &mut pieces),
                None => node.set_apart(index, upper),
            }
        }
        Ok(())
    }

    fn spend(&self, bytes: u64) {
        let left = |allowance: u64| Some(allowance.saturating_sub(bytes));
        let order = Ordering::Relaxed;
        // The closure always returns a value.
        let _ = self.allowance.fetch_update(order, order, left);
    }

    /// The pending bytes from which a flush is worth its cost. It differs by up to a quarter between
    /// children, so that children that fill at the same rate are not all due at once.
    fn flush_bytes(&self, child: &Child) -> u64 {
        let node_bytes = u64::from(self.options.node_bytes);
        let worth_it = match &child.subtree {
            Subtree::Empty => return 1,
            // The whole leaf is rewritten, so a good part of it should be new.
            Subtree::Leaf(_) => node_bytes / 4 * 3,
            Subtree::Internal(_) => node_bytes,
        };
        worth_it / 256 * (192 + filter::hash(&child.pivot) % 128)
    }

    /// Moves the pending messages of one child down: all, or those in runs below the number `until`.
    pub(super) fn flush(
        &self,
        node: &mut Internal,
        index: usize,
        until: Option<u64>,
        upper: Option<&[u8]>,
    ) -> Result<()> {
        let older = until.map(|until| node.older(index, until, upper));
        let mut pieces = self.flushed_child(older.as_ref().unwrap_or(node), index, upper)?;
        match (older, until) {
            (Some(older), Some(until)) => {
                let moved = older.children[index].pending_bytes;
                let left = node.children[index].pending_bytes.saturating_sub(moved);
                node.received_until(until, left, index..index + 1, &mut pieces);
            }
            _ => node.received(index..index + 1, &mut pieces),
        }
        Ok(())
    }

    /// The children that take the place of one when it has received its pending messages.
    fn flushed_child(
        &self,
        node: &Internal,
        index: usize,
        upper: Option<&[u8]>,
    ) -> Result<Vec<Child>> {
        let child = &node.children[index];
        self.spend(child.pending_bytes);
        let Subtree::Internal(below) = &child.subtree else {
            return self.rewritten_leaves(node, index..index + 1, Vec::new(), 0, upper);
        };
        let bound = node.upper_of(index, upper).map(<[u8]>::to_vec);
        let sources = pending_sources(node, child, bound.as_deref())?;
        let ranges = RangeSet::union(sources.iter().map(|source| &source.ranges));
        let mut messages = Merger::new(sources, Direction::Forward)?;
        let mut below = below.load_within(&child.pivot, bound.as_deref())?.edit();
        self.push_run(&mut below, &mut messages, &ranges, bound.as_deref())?;
        // Their read-ahead must not stay in memory while the levels below are flushed.
        drop(messages);
        self.rebalance(below, bound.as_deref())
    }

    /// Adds messages up to `upper` to a node's buffer as one run, and `ranges`, all range deletes among them.
    pub(super) fn push_run(
        &self,
        node: &mut Internal,
        messages: &mut Merger,
        ranges: &RangeSet,
        upper: Option<&[u8]>,
    ) -> Result<()> {
        let waiting = if ranges.is_empty() {
            RangeSet::default()
        } else {
            node.delete_ranges(ranges, upper, |child| self.flush_bytes(child))
        };
        self.push_messages(node, messages, ranges, waiting, upper)?;
        if !ranges.is_empty() {
            node.drop_received();
        }
        Ok(())
    }

    /// Adds messages up to `upper` to a node's buffer as one run above the range deletes `waiting`: those of
    /// `ranges` that children still need.
    pub(super) fn push_messages(
        &self,
        node: &mut Internal,
        messages: &mut Merger,
        ranges: &RangeSet,
        waiting: RangeSet,
        upper: Option<&[u8]>,
    ) -> Result<()> {
        let compression = match self.options.compression {
            Compression::None => Compression::None,
            _ => Compression::Lz4,
        };
        let lower = node.children.first().map(|child| child.pivot.clone());
        let writer = self.writer(compression, self.part_bytes());
        let mut writer = writer.within(lower.as_deref().unwrap_or_default(), upper);
        let part_min = if self.has_little_room() {
            PART_BYTES_MIN
        } else {
            u64::MAX
        };
        let (mut child, mut key_now) = (0, Vec::new());
        while let Some((key, kind, value)) = messages.peek() {
            if upper.is_some_and(|upper| key >= upper) {
                break;
            }
            let is_behind = |next: &Child| &*next.pivot <= key;
            if node.children.get(child + 1).is_some_and(is_behind) {
                writer.end_run_from(part_min, key)?;
                while node.children.get(child + 1).is_some_and(is_behind) {
                    child += 1;
                }
            }
            let pending = &mut node.children[child].pending_bytes;
            let mut add = |key: &[u8], kind, value: &[u8]| {
                // A delete is redundant above a range delete.
                if kind == Kind::Delete && ranges.covering(key).is_some() {
                    return Ok(());
                }
                *pending += (key.len() + value.len()) as u64;
                writer.add(key, kind, value)
            };
            if kind != Kind::Merge && messages.is_alone() {
                add(key, kind, value)?;
                messages.step()?;
                continue;
            }
            key_now.clear();
            key_now.extend_from_slice(key);
            if kind == Kind::Merge {
                let (kind, value) =
                    messages.fold_for_buffer(&key_now, &self.resolver, |error| {
                        self.record_damage(error)
                    })?;
                add(&key_now, kind, &value)?;
            } else {
                add(key, kind, value)?;
            }
            messages.skip(&key_now)?;
        }
        let parts = writer.finish()?;
        if !parts.is_empty() || !waiting.is_empty() {
            let last = node.runs.last();
            assert!(
                last.is_none_or(|last| last.number < node.next_number),
                "N4: two runs of a node have one number"
            );
            node.runs.push(BufferRun {
                number: node.next_number,
                ranges: waiting,
                parts,
            });
            node.next_number += 1;
        }
        Ok(())
    }

    /// Replaces neighbouring leaves by new ones that have received all their pending messages, and `newer` ones.
    fn rewrite_leaves(
        &self,
        node: &mut Internal,
        range: std::ops::Range<usize>,
        newer: Vec<Source>,
        newer_bytes: u64,
        upper: Option<&[u8]>,
    ) -> Result<()> {
        let mut pieces = self.rewritten_leaves(node, range.clone(), newer, newer_bytes, upper)?;
        node.received(range, &mut pieces);
        Ok(())
    }

    /// The new leaves for [`Builder::rewrite_leaves`].
    fn rewritten_leaves(
        &self,
        node: &Internal,
        range: std::ops::Range<usize>,
        newer: Vec<Source>,
        newer_bytes: u64,
        upper: Option<&[u8]>,
    ) -> Result<Vec<Child>> {
        let mut bytes = newer_bytes;
        let mut sources = newer;
        // The oldest pending run may differ between the children. A child must not see a run again that it has
        // received already, so each child is merged separately.
        let mut streams = Vec::new();
        let lower = node.children[range.start].pivot.clone();
        let last_bound = node.upper_of(range.end - 1, upper);
        for index in range {
            let child = &node.children[index];
            let bound = node.upper_of(index, upper).map(<[u8]>::to_vec);
            let mut own = pending_sources(node, child, bound.as_deref())?;
            bytes += child.pending_bytes;
            if let Subtree::Leaf(leaf) = &child.subtree {
                let deleted = sources.iter().chain(&own).map(|source| &source.ranges);
                let deleted = RangeSet::union(deleted);
                // A leaf without live keys is not read at all.
                if !deleted.covers_keys(&leaf.info.min_key, &leaf.info.max_key) {
                    let mut cursor = PartsCursor::new(vec![leaf.clone()], Fetch::Stream, None);
                    cursor.seek(&child.pivot)?;
                    own.push(Source::runs(cursor, RangeSet::default()));
                    bytes += leaf.info.logical_bytes;
                }
            }
            streams.push((own, bound));
        }
        let mut output = self.leaf_output(bytes).within(&lower, last_bound);
        for (mut own, bound) in streams {
            sources.append(&mut own);
            let mut messages = Merger::new(std::mem::take(&mut sources), Direction::Forward)?;
            self.write_leaves(&mut messages, bound.as_deref(), &mut output)?;
        }
        Ok(self.children_of(output.finish()?, node.next_number))
    }

    /// Joins neighbouring leaves that together fill less than half of one. Not while the disk is nearly full: deletions that
    /// are spread evenly shrink all leaves of a tree alike, and to rewrite them all at once takes as much room as the tree.
    fn merge_small_leaves(&self, node: &mut Internal, upper: Option<&[u8]>) -> Result<()> {
        if self.is_disk_low() {
            return Ok(());
        }
        let limit = u64::from(self.options.node_bytes) / 2;
        let mut index = 0;
        while index + 1 < node.children.len() {
            let (mut end, mut sum) = (index, 0);
            while let Some(child) = node.children.get(end)
                && let Some(bytes) = leaf_bytes(child)
                && sum + bytes < limit
            {
                (end, sum) = (end + 1, sum + bytes);
            }
            if end > index + 1 {
                let merged = self.rewrite_leaves(node, index..end, Vec::new(), 0, upper);
                self.unless_damaged(merged)?;
            }
            index += 1;
        }
        Ok(())
    }

    /// Splits a node with too many children.
    pub(super) fn split(&self, node: Internal) -> Vec<Child> {
        node.check();
        let (count, most) = (node.children.len(), self.fanout * 2);
        let pieces = if count > most {
            count.div_ceil(self.fanout + self.fanout / 2)
        } else {
            1
        };
        // At least two children each, so that the tree does not grow without end.
        let pieces = pieces.max((node.bounds_bytes() / BOUNDS_MAX).min(count / 2));
        let mut rest = node.children;
        let mut made = Vec::with_capacity(pieces);
        for piece in (0..pieces).rev() {
            let children = rest.split_off(count * piece / pieces);
            let Some(pivot) = children.first().map(|child| child.pivot.clone()) else {
                continue;
            };
            let upper: Option<Arc<[u8]>> = made.last().map(|next: &Child| next.pivot.clone());
            let mut runs = node.runs.clone();
            for run in &mut runs {
                run.clip(&pivot, upper.as_deref());
            }
            runs.retain(|run| !run.is_empty());
            let mut new = Internal::new(children);
            (new.runs, new.next_number) = (runs, node.next_number);
            new.check_bounds(&pivot, upper.as_deref());
            made.push(Child::new(&pivot, Subtree::internal(new), 0));
        }
        assert!(rest.is_empty(), "N1: a split loses children");
        made.reverse();
        made
    }

    /// Whether the disk is nearly full, so that each step may take only a part of the room.
    pub(super) fn is_disk_low(&self) -> bool {
        self.step_max < u64::MAX
    }

    /// Whether there is room for the work on few nodes only.
    fn has_little_room(&self) -> bool {
        self.allowance_max < u64::from(self.options.node_bytes) * LITTLE_ROOM_NODES
    }

    /// The size of the parts of a run in a buffer. The room of a part is free when all children in its range have their
    /// messages, so there are small parts while there is little room.
    fn part_bytes(&self) -> u64 {
        let node_bytes = u64::from(self.options.node_bytes);
        if self.has_little_room() {
            (node_bytes / PARTS_OF_NODE).max(self.options.page_bytes.into())
        } else {
            node_bytes
        }
    }

    fn writer(&self, compression: Compression, run_bytes: u64) -> RunWriter {
        RunWriter::new(
            &self.store,
            compression,
            self.options.page_bytes as usize,
            run_bytes,
        )
    }

    /// A writer of leaves of about equal size for `bytes` bytes.
    pub(super) fn leaf_output(&self, bytes: u64) -> RunWriter {
        let node_bytes = u64::from(self.options.node_bytes);
        let leaves = if bytes <= node_bytes * 5 / 4 {
            1
        } else {
            bytes.div_ceil(node_bytes * 3 / 4)
        };
        // The last page of a leaf may overshoot; one more page avoids a tiny last leaf.
        let run_bytes = bytes / leaves + u64::from(self.options.page_bytes);
        self.writer(self.options.compression, run_bytes)
    }

    /// Writes the values that result from the messages when nothing is below them.
    pub(super) fn write_leaves(
        &self,
        messages: &mut Merger,
        upper: Option<&[u8]>,
        output: &mut RunWriter,
    ) -> Result<()> {
        let mut key_now = Vec::new();
        while let Some((key, kind, value)) = messages.peek() {
            if upper.is_some_and(|upper| key >= upper) {
                break;
            }
            if kind == Kind::Put && messages.is_alone() {
                output.add(key, kind, value)?;
                messages.step()?;
                continue;
            }
            key_now.clear();
            key_now.extend_from_slice(key);
            match kind {
                Kind::Put => output.add(key, kind, value)?,
                Kind::Delete => {}
                Kind::Merge => {
                    let (kind, value) = messages.fold(&key_now, &self.resolver)?;
                    if kind == Kind::Put {
                        output.add(&key_now, kind, &value)?;
                    }
                }
            }
            messages.skip(&key_now)?;
        }
        Ok(())
    }

    pub(super) fn children_of(&self, leaves: Vec<Arc<Run>>, next_number: u64) -> Vec<Child> {
        let child = |leaf: Arc<Run>| {
            Child::new(&leaf.info.min_key.clone(), Subtree::Leaf(leaf), next_number)
        };
        leaves.into_iter().map(child).collect()
    }
}

impl Child {
    pub(super) fn new(pivot: &[u8], subtree: Subtree, pending_from: u64) -> Child {
        Child {
            pivot: pivot.into(),
            subtree,
            pending_from,
            pending_bytes: 0,
            blocked: 0,
        }
    }
}

impl Internal {
    /// Bytes of the pivots and of the bounds of leaves.
    fn bounds_bytes(&self) -> usize {
        let bytes = |child: &Child| match &child.subtree {
            Subtree::Leaf(leaf) => child.pivot.len() + leaf.info.bounds_bytes(),
            Subtree::Empty | Subtree::Internal(_) => child.pivot.len(),
        };
        self.children.iter().map(bytes).sum()
    }

    /// Bytes of the bounds of the parts of the buffer.
    fn buffer_bounds_bytes(&self) -> usize {
        let parts = self.runs.iter().flat_map(|run| &run.parts);
        parts.map(|part| part.info.bounds_bytes()).sum()
    }

    /// Replaces children that have received all their pending messages by `pieces`.
    pub(super) fn received(&mut self, range: std::ops::Range<usize>, pieces: &mut Vec<Child>) {
        self.received_until(self.next_number, 0, range, pieces);
    }

    /// Replaces children that have received the runs below the number `until` by `pieces`; about `left` bytes of
    /// messages are still pending for them.
    fn received_until(
        &mut self,
        until: u64,
        left: u64,
        range: std::ops::Range<usize>,
        pieces: &mut Vec<Child>,
    ) {
        let pivot = self.children[range.start].pivot.clone();
        assert!(
            until <= self.next_number,
            "N3: a child receives runs that do not exist"
        );
        for child in &self.children[range.clone()] {
            assert!(
                child.pending_from <= until,
                "N3: a child has received a run before"
            );
        }
        if pieces.is_empty() {
            pieces.push(Child::new(&pivot, Subtree::Empty, 0));
        }
        let each = left.div_ceil(pieces.len() as u64);
        for piece in pieces.iter_mut() {
            (piece.pending_from, piece.pending_bytes) = (until, each);
        }
        pieces[0].pivot = pivot;
        self.children.splice(range, pieces.drain(..));
        self.drop_received();
    }

    /// Drops the parts of runs that no child waits for.
    fn drop_received(&mut self) {
        let children = &self.children;
        for run in &mut self.runs {
            let number = run.number;
            run.parts.retain(|part| {
                let first = children
                    .partition_point(|child| *child.pivot <= *part.info.min_key)
                    .saturating_sub(1);
                children[first..]
                    .iter()
                    .enumerate()
                    .take_while(|(at, child)| *at == 0 || *child.pivot <= *part.info.max_key)
                    .any(|(_, child)| child.pending_from <= number)
            });
        }
        self.drop_received_ranges();
        self.runs.retain(|run| !run.is_empty());
    }
}

/// The child with most pending bytes among those that are not blocked and wait for a run below `before` (0: any), and those
/// bytes; none of `except`.
pub(super) fn heaviest(node: &Internal, before: u64, except: &[usize]) -> Option<(usize, u64)> {
    let waits = |child: &Child| match before {
        _ if child.blocked > 0 => false,
        0 => child.pending_bytes > 0,
        before => child.pending_from < before,
    };
    let children = node
        .children
        .iter()
        .enumerate()
        .filter(|(index, child)| waits(child) && !except.contains(index));
    children
        .map(|(index, child)| (index, child.pending_bytes))
        .max_by_key(|(_, bytes)| *bytes)
}

/// The messages that wait for a child, newest first, each source at its first one.
fn pending_sources(node: &Internal, child: &Child, upper: Option<&[u8]>) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    for run in node.pending(child) {
        let parts = run.parts_in(&child.pivot, upper);
        let ranges = run.ranges.clip(&child.pivot, upper);
        if !parts.is_empty() || !ranges.is_empty() {
            let mut cursor = PartsCursor::new(parts, Fetch::Stream, upper);
            cursor.seek(&child.pivot)?;
            sources.push(Source::runs(cursor, ranges));
        }
    }
    Ok(sources)
}

fn leaf_bytes(child: &Child) -> Option<u64> {
    match &child.subtree {
        Subtree::Empty => Some(child.pending_bytes),
        Subtree::Leaf(leaf) if leaf.is_damaged() => None,
        Subtree::Leaf(leaf) => Some(leaf.info.logical_bytes + child.pending_bytes),
        Subtree::Internal(_) => None,
    }
}
