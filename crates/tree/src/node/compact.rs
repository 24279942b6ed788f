//! Compaction: moving all pending messages down to the leaves.

use super::flush::heaviest;
use super::{Builder, Child, Internal, Subtree};
use crate::Result;

impl Builder {
    /// The tree after one more flush, or `None` when no messages are pending. Upper nodes are emptied first, the
    /// child with most pending messages before its siblings.
    pub(crate) fn compact_step(&self, root: &Subtree) -> Result<Option<Subtree>> {
        let Subtree::Internal(node) = root else {
            return Ok(None);
        };
        let node = node.load();
        let Some(node) = self.unless_damaged(node)? else {
            return Ok(None);
        };
        let pieces = self.compact_node(&node, None)?;
        Ok(pieces.map(|pieces| self.grow(pieces)))
    }

    fn compact_node(&self, node: &Internal, upper: Option<&[u8]>) -> Result<Option<Vec<Child>>> {
        let fits = |index: &usize| self.has_room_for(&node.children[*index]);
        let next = node.next_to_compact().filter(fits);
        if let Some(index) = next.or_else(|| self.heaviest_that_fits(node)) {
            let mut node = node.edit();
            return match self.flush_or_block(&mut node, index, upper)? {
                true => self.rebalance(node, upper).map(Some),
                false => Ok(Some(self.split(node))),
            };
        }
        for (index, child) in node.children.iter().enumerate() {
            let Subtree::Internal(below) = &child.subtree else {
                continue;
            };
            let bound = node.upper_of(index, upper).map(<[u8]>::to_vec);
            if !child.subtree.has_pending() {
                continue;
            }
            let below = below.load();
            let Some(below) = self.unless_damaged(below)? else {
                continue;
            };
            if let Some(pieces) = self.compact_node(&below, bound.as_deref())? {
                let mut node = node.edit();
                node.replace(index, pieces);
                return Ok(Some(self.split(node)));
            }
        }
        Ok(None)
    }

    /// The child with most pending bytes for which there is room, when there is little.
    fn heaviest_that_fits(&self, node: &Internal) -> Option<usize> {
        if self.step_max == u64::MAX {
            return None;
        }
        let children = node.children.iter().enumerate();
        children
            .filter(|(_, child)| child.blocked == 0 && child.pending_bytes > 0)
            .filter(|(_, child)| self.has_room_for(child))
            .max_by_key(|(_, child)| child.pending_bytes)
            .map(|(index, _)| index)
    }

    /// Whether the flush of a child may take as much room as it could need.
    fn has_room_for(&self, child: &Child) -> bool {
        let leaf = match &child.subtree {
            Subtree::Leaf(leaf) => leaf.extent.len,
            Subtree::Internal(_) | Subtree::Empty => 0,
        };
        leaf + child.pending_bytes <= self.step_max
    }
}

impl Internal {
    /// The child that compaction flushes next: the one with most pending messages that is not blocked by damage.
    fn next_to_compact(&self) -> Option<usize> {
        let oldest = self.runs.first()?;
        // The counts of pending bytes are estimates: some child still waits for the oldest run.
        let next = heaviest(self, 0).or_else(|| heaviest(self, oldest.number + 1));
        next.map(|(index, _)| index)
    }

    /// Replaces a child by `pieces`, which wait for the same messages.
    fn replace(&mut self, index: usize, mut pieces: Vec<Child>) {
        let child = self.children[index].clone();
        for piece in &mut pieces {
            (piece.pending_from, piece.pending_bytes) = (child.pending_from, 0);
        }
        if let Some(first) = pieces.first_mut() {
            (first.pivot, first.pending_bytes) = (child.pivot, child.pending_bytes);
        }
        self.children.splice(index..=index, pieces);
    }
}

impl Subtree {
    /// Whether messages that compaction can move are pending anywhere in the tree.
    pub(crate) fn has_pending(&self) -> bool {
        match self {
            Subtree::Internal(node) => match (node.in_memory(), node.stored()) {
                (Some(node), _) => {
                    let mut children = node.children.iter();
                    node.next_to_compact().is_some()
                        || children.any(|child| child.subtree.has_pending())
                }
                (None, stored) => stored.is_some_and(|stored| stored.summary.has_pending),
            },
            Subtree::Empty | Subtree::Leaf(_) => false,
        }
    }
}
