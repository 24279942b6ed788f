//! Compaction: moving all pending messages down to the leaves.

use super::{Builder, Child, Internal, Subtree};
use crate::Result;

impl Builder {
    /// The tree after one more flush, or `None` when no messages are pending. Upper nodes are emptied first, the
    /// child with most pending messages before its siblings.
    pub(crate) fn compact_step(&self, root: &Subtree) -> Result<Option<Subtree>> {
        let Subtree::Internal(node) = root else {
            return Ok(None);
        };
        let pieces = self.compact_node(node, None)?;
        Ok(pieces.map(|pieces| self.grow(pieces)))
    }

    fn compact_node(&self, node: &Internal, upper: Option<&[u8]>) -> Result<Option<Vec<Child>>> {
        if let Some(oldest) = node.runs.first() {
            let mut node = node.edit();
            let next = match super::flush::heaviest(&node, 0) {
                // The counts of pending bytes are estimates: some child still waits for the oldest run.
                None => super::flush::heaviest(&node, oldest.number + 1),
                heaviest => heaviest,
            };
            return match next {
                Some((index, _)) => {
                    self.flush(&mut node, index, upper)?;
                    self.rebalance(node, upper).map(Some)
                }
                None => Ok(None),
            };
        }
        for (index, child) in node.children.iter().enumerate() {
            let Subtree::Internal(below) = &child.subtree else {
                continue;
            };
            let bound = node.upper_of(index, upper).map(<[u8]>::to_vec);
            if let Some(mut pieces) = self.compact_node(below, bound.as_deref())? {
                let mut node = node.edit();
                node.received(index..index + 1, &mut pieces);
                return Ok(Some(self.split(node)));
            }
        }
        Ok(None)
    }
}

impl Subtree {
    /// Whether messages are pending anywhere in the tree.
    pub(crate) fn has_pending(&self) -> bool {
        match self {
            Subtree::Internal(node) => {
                !node.runs.is_empty()
                    || node
                        .children
                        .iter()
                        .any(|child| child.subtree.has_pending())
            }
            Subtree::Empty | Subtree::Leaf(_) => false,
        }
    }
}
