//! The invariants of internal nodes, which `Internal` and its fields name.
//!
//! A node in memory is checked when it is made by a flush and when it is written. What is read from the disk is checked by the
//! same rules where it is read, and is damage otherwise: `NodeRef::pivots_ascend`, `NodeRef::numbers_ascend`,
//! `NodeRef::keys_are_in_place`, and `Node::load_within`, because only the parent knows the bounds.

use std::sync::Arc;

use super::{Internal, Node, Subtree};
use crate::Result;
use crate::data_file::corrupt;
use crate::node::handle::Loaded;

impl Internal {
    /// Checks what holds for every node.
    pub(super) fn check(&self) {
        assert!(!self.children.is_empty(), "N1: a node has no children");
        for pair in self.children.windows(2) {
            assert!(
                pair[0].pivot < pair[1].pivot,
                "N2: the pivots of a node do not ascend"
            );
        }
        for child in &self.children {
            assert!(
                child.pending_from <= self.next_number,
                "N3: a child has received runs that do not exist"
            );
        }
        self.check_runs();
        self.check_leaves();
    }

    fn check_runs(&self) {
        for pair in self.runs.windows(2) {
            assert!(
                pair[0].number < pair[1].number,
                "N4: the numbers of runs do not ascend"
            );
        }
        assert!(
            self.runs
                .last()
                .is_none_or(|run| run.number < self.next_number),
            "N4: the number of a run can be given out again"
        );
        for run in &self.runs {
            for pair in run.parts.windows(2) {
                assert!(
                    pair[0].info.max_key < pair[1].info.min_key,
                    "N5: the parts of a run do not follow each other"
                );
            }
        }
    }

    fn check_leaves(&self) {
        for (index, child) in self.children.iter().enumerate() {
            let Subtree::Leaf(leaf) = &child.subtree else {
                continue;
            };
            assert!(
                index == 0 || *child.pivot <= *leaf.info.min_key,
                "N6: a leaf has keys below its child's range"
            );
            let next = self.children.get(index + 1);
            assert!(
                next.is_none_or(|next| *leaf.info.max_key < *next.pivot),
                "N6: a leaf has keys above its child's range"
            );
        }
    }

    /// Checks what depends on the node's range of keys.
    pub(super) fn check_bounds(&self, lower: &[u8], upper: Option<&[u8]>) {
        assert!(
            self.is_within(lower, upper),
            "N7: a child's pivot is outside of the parent's bounds"
        );
    }

    /// Whether the children but the first one begin inside of `lower..upper`, and the last leaf ends there. The first child may
    /// have keys below its pivot.
    fn is_within(&self, lower: &[u8], upper: Option<&[u8]>) -> bool {
        let second = self.children.get(1).map(|child| &*child.pivot);
        let last = match self.children.as_slice() {
            [_, .., last] => Some(&*last.pivot),
            _ => None,
        };
        let max_key = self.children.last().and_then(|last| match &last.subtree {
            Subtree::Leaf(leaf) => Some(&*leaf.info.max_key),
            Subtree::Empty | Subtree::Internal(_) => None,
        });
        second.is_none_or(|second| *second > *lower)
            && upper.is_none_or(|upper| {
                last.is_none_or(|last| *last < *upper) && max_key.is_none_or(|key| *key < *upper)
            })
    }
}

impl Node {
    /// As [`Node::load`], for a node whose parent gives it the keys of `lower..upper`.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] if the node is of another range: its block was not written, and an older one is there.
    pub(super) fn load_within(
        self: &Arc<Node>,
        lower: &[u8],
        upper: Option<&[u8]>,
    ) -> Result<Loaded> {
        let loaded = self.load()?;
        if let Some((offset, _, _)) = self.place()
            && !loaded.is_within(lower, upper)
        {
            return Err(corrupt(offset, "a node is outside of its parent's bounds"));
        }
        Ok(loaded)
    }
}
