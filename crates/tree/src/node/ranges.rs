//! Range deletes in a node: children that they cover are dropped at once, the others keep them pending.

use super::{Child, Internal, Subtree};
use crate::Result;
use crate::range::{KeyRange, RangeSet};

/// Bytes that a pending range delete counts as besides its bounds. It stays in memory, so there must not be many.
const PENDING_BYTES: u64 = 4096;

impl Internal {
    /// The range deletes that wait for a child, clipped to it.
    pub(super) fn pending_ranges(&self, child: &Child, upper: Option<&[u8]>) -> RangeSet {
        let clip = |run: &super::BufferRun| run.ranges.clip(&child.pivot, upper);
        let ranged = self.pending(child).filter(|run| !run.ranges.is_empty());
        RangeSet::union(&ranged.map(clip).collect::<Vec<_>>())
    }

    /// Applies range deletes that are newer than everything here, as part of the next run. Returns those that
    /// stay pending for children. `is_due` says how many pending bytes make a child due.
    pub(super) fn delete_ranges(
        &mut self,
        ranges: &RangeSet,
        upper: Option<&[u8]>,
        is_due: impl Fn(&Child) -> u64,
    ) -> RangeSet {
        let mut waiting: Vec<KeyRange> = Vec::new();
        for index in 0..self.children.len() {
            let child = &self.children[index];
            let bound = self.upper_of(index, upper);
            if ranges.covers(&child.pivot, bound) {
                // Nothing older in the child matters.
                let child = &mut self.children[index];
                (child.subtree, child.blocked) = (Subtree::Empty, 0);
                (child.pending_from, child.pending_bytes) = (self.next_number, 0);
                continue;
            }
            let own = ranges.clip(&child.pivot, bound);
            if own.is_empty() {
                continue;
            }
            // The subtree is older than all pending messages. It is dropped when they cover it, and
            // the pending messages stay.
            let all = RangeSet::union([&own, &self.pending_ranges(child, bound)]);
            let is_dead = all.covers(&child.pivot, bound)
                || matches!(&child.subtree, Subtree::Leaf(leaf)
                    if all.covers_keys(&leaf.info.min_key, &leaf.info.max_key));
            let frees = covers_child(&child.subtree, bound, &all);
            let child = &mut self.children[index];
            if is_dead {
                (child.subtree, child.blocked) = (Subtree::Empty, 0);
            }
            child.pending_bytes += own.ranges().iter().map(weight).sum::<u64>();
            if frees {
                child.pending_bytes = child.pending_bytes.max(is_due(child));
            }
            waiting.extend_from_slice(own.ranges());
        }
        RangeSet::new(waiting)
    }

    /// Counts range deletes as pending for all children that they reach.
    pub(super) fn count_pending(&mut self, ranges: &RangeSet) {
        for index in 0..self.children.len() {
            let pivot = self.children[index].pivot.clone();
            let reaching = ranges.overlapping(&pivot, self.upper_of(index, None));
            let bytes = reaching.iter().map(weight).sum::<u64>();
            self.children[index].pending_bytes += bytes;
        }
    }

    /// Drops range deletes where no child waits for them.
    pub(super) fn drop_received_ranges(&mut self) {
        for index in 0..self.runs.len() {
            let run = &self.runs[index];
            if run.ranges.is_empty() {
                continue;
            }
            let mut waiting: Vec<KeyRange> = Vec::new();
            for (index, child) in self.children.iter().enumerate() {
                if child.pending_from <= run.number {
                    let ranges = run.ranges.clip(&child.pivot, self.upper_of(index, None));
                    waiting.extend_from_slice(ranges.ranges());
                }
            }
            self.runs[index].ranges = RangeSet::new(waiting);
        }
    }
}

impl Subtree {
    /// Whether new leaves from `first` on can be appended to this subtree. Range deletes that are pending on the path
    /// to its last leaf would cover the new leaves, although they are older.
    pub(super) fn takes_leaves_from(&self, first: &[u8]) -> Result<bool> {
        let Subtree::Internal(node) = self else {
            return Ok(true);
        };
        let node = node.load()?;
        let Some(last) = node.children.last() else {
            return Ok(true);
        };
        // A new leaf beside the last one has received all runs of their node.
        let is_beside = !matches!(last.subtree, Subtree::Internal(_));
        let mut pending = node.pending(last);
        let is_free =
            is_beside || pending.all(|run| run.ranges.overlapping(first, None).is_empty());
        Ok(is_free && last.subtree.takes_leaves_from(first)?)
    }
}

/// The pending bytes that a range delete counts as.
fn weight(range: &KeyRange) -> u64 {
    let upper = range.upper.as_ref().map_or(0, |upper| upper.len());
    PENDING_BYTES + (range.lower.len() + upper) as u64
}

/// Whether a whole child of an internal node is covered, so that a flush to the node frees extents.
fn covers_child(subtree: &Subtree, upper: Option<&[u8]>, ranges: &RangeSet) -> bool {
    let Subtree::Internal(node) = subtree else {
        return false;
    };
    // Below a node that cannot be read nothing is freed early.
    let Ok(node) = node.load() else {
        return false;
    };
    node.children.iter().enumerate().any(|(index, child)| {
        let upper = node.upper_of(index, upper);
        match &child.subtree {
            _ if ranges.overlapping(&child.pivot, upper).is_empty() => false,
            Subtree::Empty => false,
            Subtree::Leaf(leaf) if ranges.covers_keys(&leaf.info.min_key, &leaf.info.max_key) => {
                true
            }
            below => ranges.covers(&child.pivot, upper) || covers_child(below, upper, ranges),
        }
    })
}
