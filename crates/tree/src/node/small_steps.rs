//! Compaction while the disk is nearly full: in steps for which there is room.
//!
//! The extent of a part of a run is free only when all children in its range have their messages. So a step may add more
//! to the leaves than it frees, above all where the parts are large: a tree that was small when its disk became nearly
//! full has few children, and many times its size in its buffer.

use std::cmp::Reverse;

use super::{BufferRun, Builder, Child, Internal, Subtree};
use crate::Result;

/// While parts stay that other children wait for, one step may use this share of the room for what it adds.
const GROWTH_SHARE: u64 = 8;

/// A step that was limited to less than this is not tried with less.
const STEP_BYTES_MIN: u64 = 128 << 10;

impl Builder {
    /// Whether a step that had no room can be tried again with less.
    pub(crate) fn has_smaller_steps(&self) -> bool {
        self.is_disk_low() && self.step_max >= STEP_BYTES_MIN
    }

    /// The node after one step for which there is room, or `None`. Upper nodes are emptied first, which takes little, and
    /// then the buffer that holds most: the rewrite of a leaf frees the more, the more deletes have gathered for it.
    /// If that would take too much, the step moves the oldest runs instead, so that their room is free soon.
    pub(super) fn compact_in_small_steps(
        &self,
        node: &Internal,
        upper: Option<&[u8]>,
    ) -> Result<Option<Vec<Child>>> {
        if let Some(index) = self.heaviest_that_fits(node, upper) {
            return self.flush_child(node, index, None, upper).map(Some);
        }
        let mut order = Vec::new();
        for (index, child) in node.children.iter().enumerate() {
            if child.subtree.has_pending()
                && let Some(bytes) = self.unless_damaged(child.subtree.buffered_bytes())?
            {
                order.push((bytes, index));
            }
        }
        order.sort_unstable_by_key(|(bytes, _)| Reverse(*bytes));
        for (_, index) in order {
            if let Some(pieces) = self.compact_below(node, index, upper)? {
                return Ok(Some(pieces));
            }
        }
        match self.oldest_that_fits(node) {
            Some((index, until)) => self.flush_child(node, index, Some(until), upper).map(Some),
            None => Ok(None),
        }
    }

    /// The child with most pending bytes among those for which there is room, for all that is pending.
    fn heaviest_that_fits(&self, node: &Internal, upper: Option<&[u8]>) -> Option<usize> {
        let fits = |index: usize| {
            let child = &node.children[index];
            let expected = child.expected_bytes();
            child.leaf_extent_bytes() + expected <= self.step_max
                && expected.saturating_sub(node.freed_by(index, upper))
                    <= self.step_max / GROWTH_SHARE
        };
        let candidates = (0..node.children.len()).filter(|index| {
            let child = &node.children[*index];
            child.blocked == 0 && child.pending_bytes > 0 && fits(*index)
        });
        candidates.max_by_key(|index| node.children[*index].pending_bytes)
    }

    /// The child that waits for the oldest run, and the number of the run up to which it can receive its messages: all
    /// children that wait for these runs do so one after the other.
    fn oldest_that_fits(&self, node: &Internal) -> Option<(usize, u64)> {
        let first = node.runs.first()?.number;
        let from = |child: &Child| child.pending_from.max(first);
        let waiting = node
            .children
            .iter()
            .enumerate()
            .filter(|(_, child)| child.blocked == 0 && child.pending_from < node.next_number);
        let (index, child) = waiting
            .clone()
            .min_by_key(|(_, child)| (from(child), Reverse(child.pending_bytes)))?;
        let others = waiting.map(|(_, other)| from(other));
        let end = others.filter(|other| *other > from(child)).min();
        let end = end.unwrap_or(node.next_number);

        let room = self.step_max.checked_sub(child.leaf_extent_bytes())?;
        let mut moved = 0;
        let mut until = None;
        for (at, run) in node.runs.iter().enumerate() {
            if run.number < from(child) {
                continue;
            }
            moved += run.extent_bytes();
            if run.number >= end || moved > room {
                break;
            }
            until = Some(
                node.runs
                    .get(at + 1)
                    .map_or(node.next_number, |next| next.number),
            );
        }
        assert!(
            until.is_none_or(|until| until > from(child)),
            "N3: a step moves no run"
        );
        // Its share of the runs may be small.
        let all_fits = child.expected_bytes() <= room;
        until
            .map(|until: u64| until.min(end))
            .or(all_fits.then_some(end))
            .map(|until| (index, until))
    }
}

impl Internal {
    /// The node with only the messages that a child waits for in runs below the number `until`.
    pub(super) fn older(&self, index: usize, until: u64, upper: Option<&[u8]>) -> Internal {
        let child = &self.children[index];
        let bound = self.upper_of(index, upper);
        let bytes_of = |run: &BufferRun| -> u64 {
            let parts = run.parts_in(&child.pivot, bound);
            parts.iter().map(|part| part.info.logical_bytes).sum()
        };
        let (mut moved, mut all) = (0, 0);
        for run in self.pending(child) {
            let bytes = bytes_of(run);
            all += bytes;
            if run.number < until {
                moved += bytes;
            }
        }
        let share = moved as f64 / all.max(1) as f64;
        let mut older = self.edit();
        older.runs.retain(|run| run.number < until);
        older.children[index].pending_bytes = (child.pending_bytes as f64 * share) as u64;
        older
    }

    /// The room of the parts that wait for one child only.
    fn freed_by(&self, index: usize, upper: Option<&[u8]>) -> u64 {
        let child = &self.children[index];
        let bound = self.upper_of(index, upper);
        let is_inside = |key: &[u8]| key >= &*child.pivot && bound.is_none_or(|bound| key < bound);
        let parts = self.pending(child).flat_map(|run| &run.parts);
        parts
            .filter(|part| is_inside(&part.info.min_key) && is_inside(&part.info.max_key))
            .map(|part| part.extent.len)
            .sum()
    }
}

impl BufferRun {
    fn extent_bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.extent.len).sum()
    }
}

impl Child {
    /// The room that its pending messages are likely to need: they are counted before they are compressed, and deletes
    /// leave nothing in a leaf.
    fn expected_bytes(&self) -> u64 {
        self.pending_bytes / 2
    }

    /// The room that the leaf takes; 0 if it is none.
    fn leaf_extent_bytes(&self) -> u64 {
        match &self.subtree {
            Subtree::Leaf(leaf) => leaf.extent.len,
            Subtree::Internal(_) | Subtree::Empty => 0,
        }
    }
}
