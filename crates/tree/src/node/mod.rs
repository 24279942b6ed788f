//! Nodes. They are immutable once published, so a root is a version of its tree.
//!
//! An internal node holds pivots, children and a buffer of pending messages. The buffer is a list of
//! runs, oldest first; each child records which of them it has not received yet. So a flush into an internal node
//! adds one run to it and rewrites no other (the size-tiered buffers of A. Conway et al.,
//! "SplinterDB: Closing the Bandwidth Gap for NVMe Key-Value Stores", USENIX ATC 2020).

mod append;
mod bulk;
mod codec;
mod compact;
mod dropped;
mod encode;
mod flush;
mod handle;
mod invariants;
mod quarantine;
mod ranges;
mod rewrite;
mod small_steps;
mod summary;

use std::sync::Arc;

use crate::range::RangeSet;
use crate::run::Run;
pub(crate) use codec::{BufferRef, DEPTH_MAX, Form, NodeRef, PlaceRef, RunRef, SubtreeRef};
pub(crate) use encode::{Encoder, NodeWriter, encode_subtree};
pub(crate) use flush::Builder;
pub(crate) use handle::{KnownRuns, Node};
pub(crate) use rewrite::Rewriting;
pub(crate) use summary::Summary;

/// A tree or a part of one.
#[derive(Clone)]
pub(crate) enum Subtree {
    /// A part without any keys.
    Empty,
    /// A leaf: a run of puts.
    Leaf(Arc<Run>),
    Internal(Arc<Node>),
}

impl Subtree {
    /// A part below a new node.
    pub(crate) fn internal(node: Internal) -> Subtree {
        Subtree::Internal(Node::new(node))
    }
}

/// An internal node (`invariants.rs`).
pub(crate) struct Internal {
    /// Children in key order. A child's range is from its pivot to the next one's.
    ///
    /// N1: there is at least one.
    /// N2: pivots ascend.
    /// N6: a leaf has keys of its child's range only; the first one may have keys below its pivot.
    /// N7: all pivots but the first are inside of the parent's bounds.
    pub(crate) children: Vec<Child>,
    /// The buffer: runs, oldest first. N4: their numbers ascend, and are below `next_number`.
    pub(crate) runs: Vec<BufferRun>,
    pub(crate) next_number: u64,
}

/// A child of an internal node.
#[derive(Clone)]
pub(crate) struct Child {
    /// The lower bound of its keys.
    pub(crate) pivot: Arc<[u8]>,
    pub(crate) subtree: Subtree,
    /// Runs from this number on hold messages that it has not received. N3: it only grows, up to the node's `next_number`.
    pub(crate) pending_from: u64,
    /// The approximate size of those messages in bytes.
    pub(crate) pending_bytes: u64,
    /// Set when a flush of the child met damage: the number of its node's next flushes that pass it over. Not stored.
    pub(crate) blocked: u32,
}

/// A run of a buffer: range deletes, and above them messages in parts with ascending key ranges.
#[derive(Clone)]
pub(crate) struct BufferRun {
    pub(crate) number: u64,
    /// Range deletes: they cover everything that is older than this run.
    pub(crate) ranges: RangeSet,
    /// N5: they are in key order and share no key.
    pub(crate) parts: Vec<Arc<Run>>,
}

impl Internal {
    /// A node without pending messages.
    pub(crate) fn new(children: Vec<Child>) -> Internal {
        Internal {
            children,
            runs: Vec::new(),
            next_number: 0,
        }
    }

    /// A copy for changes: it is not on disk.
    fn edit(&self) -> Internal {
        Internal {
            children: self.children.clone(),
            runs: self.runs.clone(),
            next_number: self.next_number,
        }
    }

    /// About how many bytes of memory this takes, with the handles of runs.
    fn memory_bytes(&self) -> usize {
        let run = |run: &Run| size_of::<Run>() + run.info.bounds_bytes();
        let mut bytes = size_of::<Internal>();
        for child in &self.children {
            bytes += size_of::<Child>() + child.pivot.len();
            bytes += match &child.subtree {
                Subtree::Empty => 0,
                Subtree::Leaf(leaf) => run(leaf),
                Subtree::Internal(_) => size_of::<Node>(),
            };
        }
        for buffer in &self.runs {
            bytes += size_of::<BufferRun>();
            bytes += buffer.parts.iter().map(|part| run(part)).sum::<usize>();
        }
        bytes
    }

    /// The child that holds `key`.
    pub(crate) fn child_of(&self, key: &[u8]) -> usize {
        self.children
            .partition_point(|child| &*child.pivot <= key)
            .saturating_sub(1)
    }

    /// The child that holds the keys just below `key`, or the last child for `None`.
    pub(crate) fn child_before(&self, key: Option<&[u8]>) -> usize {
        let below = match key {
            Some(key) => self.children.partition_point(|child| &*child.pivot < key),
            None => self.children.len(),
        };
        below.saturating_sub(1)
    }

    /// The upper bound of a child's keys, within that of the node.
    pub(crate) fn upper_of<'a>(
        &'a self,
        index: usize,
        upper: Option<&'a [u8]>,
    ) -> Option<&'a [u8]> {
        self.children
            .get(index + 1)
            .map(|next| &*next.pivot)
            .or(upper)
    }

    /// The pending runs of a child, newest first.
    pub(crate) fn pending<'a>(
        &'a self,
        child: &'a Child,
    ) -> impl Iterator<Item = &'a BufferRun> + 'a {
        self.runs
            .iter()
            .rev()
            .take_while(|run| run.number >= child.pending_from)
    }
}

impl BufferRun {
    fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.ranges.is_empty()
    }

    /// Keeps what reaches into `lower..upper`.
    fn clip(&mut self, lower: &[u8], upper: Option<&[u8]>) {
        self.parts.retain(|part| part.overlaps(lower, upper));
        self.ranges = self.ranges.clip(lower, upper);
    }

    /// The part that may hold `key`.
    pub(crate) fn part_of(&self, key: &[u8]) -> Option<&Arc<Run>> {
        self.parts
            .get(self.parts.partition_point(|part| &*part.info.max_key < key))
    }

    /// The parts that reach into `lower..upper`.
    pub(crate) fn parts_in(&self, lower: &[u8], upper: Option<&[u8]>) -> Vec<Arc<Run>> {
        self.parts
            .iter()
            .filter(|part| part.overlaps(lower, upper))
            .cloned()
            .collect()
    }
}
