//! Appending: keys above all others of a tree become new leaves behind its last one, and nothing is rewritten. Each leaf is a
//! task of its own.

use std::sync::Arc;

use frond_kv::Direction;

use super::flush::Builder;
use super::{BufferRun, Child, Internal, Subtree};
use crate::Result;
use crate::flush_scope::Task;
use crate::memtable::{KeyPart, Memtable};
use crate::merger::{Merger, Source};
use crate::range::RangeSet;
use crate::run::{Fetch, PartsCursor, Run};

/// Messages of a memtable that are above all keys of a tree.
pub(super) struct NewLeaves {
    memtable: Arc<Memtable>,
    /// One for each leaf, or one for all of them; at least one. N9: they ascend, and begin above the last key of the tree.
    parts: Vec<KeyPart>,
}

/// New leaves of a tree in which no key is greater than `last`.
struct Above<'a> {
    leaves: &'a NewLeaves,
    last: &'a [u8],
}

impl NewLeaves {
    pub(super) fn first(&self) -> &[u8] {
        self.parts.first().map_or(&[], |part| &part.first)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).sum()
    }
}

impl Builder {
    /// The messages that can be appended to a tree as new leaves, if they are worth it: all from the first key of
    /// `messages` on, which have about `bytes` bytes, or those above the keys of the tree. Loaders that insert
    /// side by side leave some keys below the last one of the previous memtable.
    pub(super) fn new_leaves(
        &self,
        root: &Subtree,
        memtable: &Arc<Memtable>,
        messages: &Source,
        bytes: u64,
    ) -> Result<Option<NewLeaves>> {
        let (Some(last), Some(first)) = (root.max_key(), messages.key()) else {
            return Ok(None);
        };
        if !messages.ranges.is_empty() {
            return Ok(None);
        }
        let leaf_bytes = u64::from(self.options.node_bytes) / 4 * 3;
        let are_all = *last < *first;
        let new = |parts| NewLeaves {
            memtable: memtable.clone(),
            parts,
        };
        let new = if are_all && (bytes < leaf_bytes * 2 || self.scope.width() == 1) {
            let first = first.to_vec();
            new(vec![KeyPart { first, bytes }])
        } else {
            // Above the last key.
            let from = if are_all {
                first.to_vec()
            } else {
                [last.as_slice(), &[0]].concat()
            };
            let Some(source) = self.source_of(memtable) else {
                return Ok(None);
            };
            new(source.key_parts(&from, leaf_bytes))
        };
        let is_worth_it = are_all || new.bytes() >= leaf_bytes;
        let can = !new.parts.is_empty() && is_worth_it && self.can_append(root, new.first())?;
        Ok(can.then_some(new))
    }

    /// Whether leaves from `first` on can be appended to a tree.
    pub(super) fn can_append(&self, root: &Subtree, first: &[u8]) -> Result<bool> {
        let is_above = root.max_key().is_some_and(|last| *last < *first);
        Ok(is_above && self.unless_damaged(root.takes_leaves_from(first))? == Some(true))
    }

    /// The tree with the new leaves.
    pub(super) fn append(&self, root: &Subtree, new: &NewLeaves) -> Result<Subtree> {
        for pair in new.parts.windows(2) {
            assert!(
                pair[0].first < pair[1].first,
                "N9: the parts of new leaves do not ascend"
            );
        }
        let last = root.max_key();
        assert!(
            last.as_deref().is_none_or(|last| last < new.first()),
            "N9: new leaves begin below the end of their tree"
        );
        let new = &Above {
            leaves: new,
            last: last.as_deref().unwrap_or_else(|| new.first()),
        };
        let pieces = match root {
            Subtree::Internal(node) => self.append_to_node(&*node.load()?, new)?,
            Subtree::Leaf(leaf) => {
                let mut node = Internal::new(vec![Child::new(&[], root.clone(), 0)]);
                let last = node.children.remove(0);
                self.append_to_leaf(&node, &last, leaf, new)?
            }
            // An empty tree has no last key, so nothing is above it; new leaves would be correct all the same.
            Subtree::Empty => self.leaves(new, None, 0)?,
        };
        Ok(self.grow(pieces))
    }

    fn append_to_node(&self, node: &Internal, new: &Above<'_>) -> Result<Vec<Child>> {
        let mut node = node.edit();
        let Some(last) = node.children.pop() else {
            return Ok(Vec::new());
        };
        let mut pieces = match &last.subtree {
            Subtree::Internal(below) => {
                // The pieces share what was pending for the one child.
                let mut pieces =
                    self.append_to_node(&*below.load_within(&last.pivot, None)?, new)?;
                for piece in &mut pieces {
                    piece.pending_from = last.pending_from;
                }
                if let Some(first) = pieces.first_mut() {
                    first.pending_bytes = last.pending_bytes;
                }
                pieces
            }
            Subtree::Leaf(leaf) => self.append_to_leaf(&node, &last, leaf, new)?,
            // `max_key` is `None` for a tree that ends in an empty child, so nothing is appended here; a
            // new leaf would be correct all the same.
            Subtree::Empty => self.leaves(new, None, node.next_number)?,
        };
        if let Some(first) = pieces.first_mut() {
            first.pivot = last.pivot;
        }
        node.children.append(&mut pieces);
        Ok(self.split(node))
    }

    /// New leaves behind the last leaf of a node. A small one is rewritten with them, unless messages
    /// are pending for it.
    fn append_to_leaf(
        &self,
        node: &Internal,
        last: &Child,
        leaf: &Arc<Run>,
        new: &Above<'_>,
    ) -> Result<Vec<Child>> {
        let is_small = leaf.info.logical_bytes < u64::from(self.options.node_bytes) / 2;
        let is_pending = |run: &BufferRun| {
            !run.parts_in(&last.pivot, None).is_empty()
                || !run.ranges.overlapping(&last.pivot, None).is_empty()
        };
        if is_small && !leaf.is_damaged() && !node.pending(last).any(is_pending) {
            let mut pieces = self.leaves(new, Some(leaf), node.next_number)?;
            if let Some(first) = pieces.first_mut() {
                first.pivot = last.pivot.clone();
            }
            return Ok(pieces);
        }
        let mut pieces = vec![last.clone()];
        pieces.append(&mut self.leaves(new, None, node.next_number)?);
        Ok(pieces)
    }

    /// Writes the new leaves, the first ones together with the keys of a small leaf before them.
    fn leaves(
        &self,
        new: &Above<'_>,
        small: Option<&Arc<Run>>,
        next_number: u64,
    ) -> Result<Vec<Child>> {
        let NewLeaves { memtable, parts } = new.leaves;
        let pieces = parts.iter().enumerate();
        let pieces = pieces.map(|(index, part)| -> Task<Vec<Arc<Run>>> {
            let upper = parts.get(index + 1).map(|next| next.first.clone());
            let small = small.filter(|_| index == 0).cloned();
            let lower = match (&small, index) {
                (Some(small), _) => small.info.min_key.to_vec(),
                (None, 0) => new.last.to_vec(),
                (None, _) => part.first.clone(),
            };
            let (builder, memtable, part) = (self.clone(), memtable.clone(), part.clone());
            let bounds = (lower, upper);
            Box::new(move || builder.write_part(&memtable, &part, &bounds, small))
        });
        let written = self.scope.run(pieces.collect());
        let written: Result<Vec<_>> = written.into_iter().collect();
        Ok(self.children_of(written?.concat(), next_number))
    }

    fn write_part(
        &self,
        memtable: &Arc<Memtable>,
        part: &KeyPart,
        (lower, upper): &(Vec<u8>, Option<Vec<u8>>),
        small: Option<Arc<Run>>,
    ) -> Result<Vec<Arc<Run>>> {
        let mut bytes = part.bytes;
        let mut sources: Vec<Source> = self
            .source_above(memtable, &part.first)
            .into_iter()
            .collect();
        if let Some(small) = small {
            bytes += small.info.logical_bytes;
            let mut cursor = PartsCursor::new(vec![small], Fetch::Stream, None);
            cursor.seek(&[])?;
            sources.push(Source::runs(cursor, RangeSet::default()));
        }
        let mut messages = Merger::new(sources, Direction::Forward)?;
        let upper = upper.as_deref();
        let mut output = self.leaf_output(bytes).within(lower, upper);
        self.write_leaves(&mut messages, upper, &mut output)?;
        output.finish()
    }
}
