//! Sums and bounds of a part of a tree that are known without reading its nodes.

use super::{Internal, Subtree};
use crate::TreeStats;
use crate::run::RunInfo;

/// Sums over a part of a tree. The parent of a stored node holds its summary.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    /// Levels: 0 for no keys, 1 for a leaf.
    pub(crate) height: u32,
    /// Whether messages are pending in it.
    pub(crate) has_pending: bool,
    /// No key in it is greater; `None` also when that is not cheap to find.
    pub(crate) max_key: Option<Box<[u8]>>,
    pub(crate) leaves: u64,
    pub(crate) internal_nodes: u64,
    pub(crate) entries: u64,
    pub(crate) logical_bytes: u64,
    pub(crate) disk_bytes: u64,
    pub(crate) pending_bytes: u64,
    pub(crate) search_bytes: u64,
}

impl Summary {
    pub(super) fn leaf(info: &RunInfo, extent_bytes: u64) -> Summary {
        Summary {
            height: 1,
            max_key: Some(info.max_key.clone()),
            leaves: 1,
            entries: info.entries,
            logical_bytes: info.logical_bytes,
            disk_bytes: extent_bytes,
            search_bytes: info.search_bytes(),
            ..Summary::default()
        }
    }

    /// Begins the summary of an internal node.
    pub(super) fn node() -> Summary {
        Summary {
            height: 1,
            internal_nodes: 1,
            ..Summary::default()
        }
    }

    /// Adds the node's own block.
    pub(super) fn add_block(&mut self, extent_bytes: u64) {
        self.disk_bytes += extent_bytes;
        self.search_bytes += extent_bytes;
    }

    /// Adds the next child, and the bytes that are pending for it.
    pub(super) fn add_child(&mut self, child: &Summary, pending_bytes: u64) {
        self.height = self.height.max(child.height + 1);
        self.has_pending |= child.has_pending;
        self.max_key.clone_from(&child.max_key);
        self.leaves += child.leaves;
        self.internal_nodes += child.internal_nodes;
        self.entries += child.entries;
        self.logical_bytes += child.logical_bytes + pending_bytes;
        self.disk_bytes += child.disk_bytes;
        self.pending_bytes += child.pending_bytes + pending_bytes;
        self.search_bytes += child.search_bytes;
    }

    /// Adds a part of a run of the buffer; all children come before.
    pub(super) fn add_part(&mut self, info: &RunInfo, extent_bytes: u64) {
        self.disk_bytes += extent_bytes;
        self.search_bytes += info.search_bytes();
        if let Some(last) = &mut self.max_key
            && *last < info.max_key
        {
            last.clone_from(&info.max_key);
        }
    }

    pub(super) fn of_internal(node: &Internal) -> Summary {
        let mut summary = Summary::node();
        for child in &node.children {
            let below = child.subtree.summary();
            summary.add_child(&below, child.pending_bytes);
        }
        summary.has_pending |= !node.runs.is_empty();
        for part in node.runs.iter().flat_map(|run| &run.parts) {
            summary.add_part(&part.info, part.extent.len);
        }
        summary
    }
}

impl Subtree {
    /// Sums over this part. Nodes on disk are not read.
    pub(super) fn summary(&self) -> Summary {
        match self {
            Subtree::Empty => Summary::default(),
            Subtree::Leaf(run) => Summary::leaf(&run.info, run.extent.len),
            Subtree::Internal(node) => match node.stored() {
                Some(stored) => stored.summary.clone(),
                None => (node.in_memory())
                    .map_or_else(Summary::node, |node| Summary::of_internal(&node)),
            },
        }
    }

    /// The entries of its leaves, without the copy of a key that a summary holds. Nodes on disk are not read.
    pub(crate) fn entries(&self) -> u64 {
        match self {
            Subtree::Empty => 0,
            Subtree::Leaf(run) => run.info.entries,
            Subtree::Internal(node) => match (node.stored(), node.in_memory()) {
                (Some(stored), _) => stored.summary.entries,
                (None, Some(node)) => node.children.iter().map(|one| one.subtree.entries()).sum(),
                (None, None) => 0,
            },
        }
    }

    /// Statistics of this part.
    pub(crate) fn stats(&self) -> TreeStats {
        let summary = self.summary();
        TreeStats {
            entries_estimate: summary.entries,
            logical_bytes: summary.logical_bytes,
            disk_bytes: summary.disk_bytes,
            height: summary.height,
            leaves: summary.leaves,
            internal_nodes: summary.internal_nodes,
            pending_bytes: summary.pending_bytes,
            memtable_bytes: 0,
            search_bytes: summary.search_bytes,
        }
    }

    /// No key in leaves and buffers is greater; `None` when there is none, or when that is not cheap to find: if the
    /// last leaf is empty.
    pub(crate) fn max_key(&self) -> Option<Vec<u8>> {
        match self {
            Subtree::Empty => None,
            Subtree::Leaf(run) => Some(run.info.max_key.to_vec()),
            Subtree::Internal(node) => match (node.stored(), node.in_memory()) {
                (Some(stored), _) => stored.summary.max_key.as_deref().map(<[u8]>::to_vec),
                (None, Some(node)) => {
                    let child = node.children.last()?.subtree.max_key()?;
                    let parts = node.runs.iter().filter_map(|run| run.parts.last());
                    let parts = parts.map(|part| &*part.info.max_key).max();
                    Some(match parts {
                        Some(part) if *part > *child => part.to_vec(),
                        _ => child,
                    })
                }
                (None, None) => None,
            },
        }
    }
}
