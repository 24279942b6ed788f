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
        if self.is_disk_low() {
            return self.compact_in_small_steps(node, upper);
        }
        if let Some(index) = node.next_to_compact() {
            return self.flush_child(node, index, None, upper).map(Some);
        }
        for index in 0..node.children.len() {
            if let Some(pieces) = self.compact_below(node, index, upper)? {
                return Ok(Some(pieces));
            }
        }
        Ok(None)
    }

    /// The node after one child has received its messages, or those in runs below the number `until`.
    pub(super) fn flush_child(
        &self,
        node: &Internal,
        index: usize,
        until: Option<u64>,
        upper: Option<&[u8]>,
    ) -> Result<Vec<Child>> {
        let mut node = node.edit();
        if self.flush_or_block(&mut node, index, until, upper)? {
            self.rebalance(node, upper)
        } else {
            Ok(self.split(node))
        }
    }

    /// The node after one step of compaction below a child; `None` if nothing is pending there.
    pub(super) fn compact_below(
        &self,
        node: &Internal,
        index: usize,
        upper: Option<&[u8]>,
    ) -> Result<Option<Vec<Child>>> {
        let child = &node.children[index];
        let Subtree::Internal(below) = &child.subtree else {
            return Ok(None);
        };
        if !child.subtree.has_pending() {
            return Ok(None);
        }
        let bound = node.upper_of(index, upper).map(<[u8]>::to_vec);
        let below = below.load_within(&child.pivot, bound.as_deref());
        let Some(below) = self.unless_damaged(below)? else {
            return Ok(None);
        };
        let pieces = self.compact_node(&below, bound.as_deref())?;
        Ok(pieces.map(|pieces| {
            let mut node = node.edit();
            node.replace(index, pieces);
            self.split(node)
        }))
    }
}

impl Internal {
    /// Bytes on disk of the buffer.
    fn buffer_bytes(&self) -> u64 {
        let parts = self.runs.iter().flat_map(|run| &run.parts);
        parts.map(|part| part.extent.len).sum()
    }

    /// The child that compaction flushes next: the one with most pending messages that is not blocked by damage.
    fn next_to_compact(&self) -> Option<usize> {
        let oldest = self.runs.first()?;
        // The counts of pending bytes are estimates: some child still waits for the oldest run.
        let next = heaviest(self, 0, &[]).or_else(|| heaviest(self, oldest.number + 1, &[]));
        next.map(|(index, _)| index)
    }

    /// Replaces a child by `pieces`, which wait for the same messages.
    pub(super) fn replace(&mut self, index: usize, mut pieces: Vec<Child>) {
        let child = self.children[index].clone();
        assert!(!pieces.is_empty(), "N1: a child is replaced by nothing");
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
    /// About how many bytes are in buffers. Those of the uppermost one are the bytes on disk, of parts that some child still
    /// waits for.
    pub(crate) fn buffered_bytes(&self) -> Result<u64> {
        let Subtree::Internal(node) = self else {
            return Ok(0);
        };
        let node = node.load()?;
        let below = node
            .children
            .iter()
            .map(|child| child.subtree.pending_bytes());
        Ok(node.buffer_bytes() + below.sum::<u64>())
    }

    /// The bytes of messages that are pending anywhere in it, by estimate.
    fn pending_bytes(&self) -> u64 {
        match self {
            Subtree::Internal(_) => self.summary().pending_bytes,
            Subtree::Empty | Subtree::Leaf(_) => 0,
        }
    }

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
