//! Damage below a node: the child that needs it is set apart, and everything else goes on.
//!
//! A flush that meets a block that is damaged, in the buffer of the node or below, cannot move the messages of that child
//! down. The child then gets a node of its own between itself and its parent, which takes over the parent's pending
//! runs for it, by reference. So the parent's buffer does not grow, the messages of the child's siblings move on as before, and
//! later messages for the child gather in the buffer of the new node. The flush is tried again now and then: the
//! damage may be gone, because a range delete covers the child, or the system can read the block again.
//!
//! # Design
//! ```text
//! flush of child c meets damage:
//!     one child only:  c.blocked = 16                          its messages gather in this node
//!     else:            n = new node { children: [c], runs: those pending for c, clipped }
//!                      c is replaced by n, which has received everything      (N3)
//! each flush of a node: blocked -= 1; at 0 the child is tried again
//! ```
//! - The parent's run numbers and those of the new node are the same, so no message is copied or lost: `n` refers to the parent's
//!   runs, and c's `pending_from` stays what it was.
//! - Runs above a blocked child are merged with each other when there are many, each message only when its run at least doubles.
//!   So reads stay bounded by the logarithm of what gathers.
//! - Only damage is met in this way. An error of the disk that may pass fails the flush as a whole, and it is repeated.
//!
//! The alternative is to fail the flush of the memtable. Then no memtable could be flushed any more, the log would grow, and in the end
//! all writes to all trees would be refused because of one bad sector. To drop the messages is none: they were acknowledged.
//!
//! On disk this is no special case: the new node is an internal node with one child. If even the root cannot be read, it is
//! the child that is set apart. So a memtable can always be flushed, and the log can always be replayed.

use std::sync::Arc;

use frond_kv::Direction;

use super::flush::Builder;
use super::{BufferRun, Child, Internal, Subtree};
use crate::memtable::{MemSource, Memtable};
use crate::merger::{Merger, Source};
use crate::range::RangeSet;
use crate::run::{Fetch, PartsCursor, Run};
use crate::{Error, Result};

/// Fewer runs than this are not merged: they would be written again with each flush.
const MERGED_RUNS_MIN: usize = 8;
/// A child that could not be flushed is tried again after this many flushes of its node.
const BLOCKED_FLUSHES: u32 = 16;

impl Builder {
    /// Records the damage that an error names.
    pub(super) fn record_damage(&self, error: &Error) {
        self.store.damage.record(Some(self.resolver.tree), error);
    }

    /// Turns damage into `None`, after it was recorded.
    pub(super) fn unless_damaged<T>(&self, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.is_damage() => {
                self.record_damage(&error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Moves pending messages of one child down, as [`Builder::flush`] does, or sets the child apart if damage prevents
    /// that. False in the second case.
    pub(super) fn flush_or_block(
        &self,
        node: &mut Internal,
        index: usize,
        until: Option<u64>,
        upper: Option<&[u8]>,
    ) -> Result<bool> {
        let flushed = self.flush(node, index, until, upper);
        let flushed = self.unless_damaged(flushed)?.is_some();
        if !flushed {
            node.set_apart(index, upper);
        }
        Ok(flushed)
    }

    /// The tree with the messages of a sealed memtable above everything else in it; nothing of the tree is read.
    pub(super) fn put_above(&self, root: &Subtree, memtable: &Arc<Memtable>) -> Result<Subtree> {
        let (tree, resolver) = (self.resolver.tree, self.resolver.clone());
        match MemSource::of_sealed(memtable, tree, resolver) {
            Some(source) => self.put_source_above(root, source),
            None => Ok(root.clone()),
        }
    }

    /// The tree with all messages of a memtable up to a sequence number above it: for the snapshot of that number.
    pub(crate) fn put_visible_above(
        &self,
        root: &Subtree,
        memtable: &Arc<Memtable>,
        sequence: u64,
    ) -> Result<Subtree> {
        let (tree, resolver) = (self.resolver.tree, self.resolver.clone());
        match MemSource::new(memtable, tree, sequence, resolver) {
            Some(source) => self.put_source_above(root, source),
            None => Ok(root.clone()),
        }
    }

    fn put_source_above(&self, root: &Subtree, mut source: MemSource) -> Result<Subtree> {
        source.seek(None);
        if source.key().is_none() && source.ranges().is_empty() {
            return Ok(root.clone());
        }
        let above = || Internal::new(vec![Child::new(&[], root.clone(), 0)]);
        let mut node = match root {
            Subtree::Internal(node) => match self.unless_damaged(node.load())? {
                Some(node) => node.edit(),
                None => above(),
            },
            _ => above(),
        };
        let messages = Source::memtable(source);
        let ranges = messages.ranges.clone();
        let mut messages = Merger::new(vec![messages], Direction::Forward)?;
        self.push_messages(&mut node, &mut messages, &ranges, ranges.clone(), None)?;
        node.count_pending(&ranges);
        Ok(Subtree::internal(node))
    }

    /// Merges runs that gather for an only child that is blocked.
    pub(super) fn merge_blocked_runs(
        &self,
        node: &mut Internal,
        upper: Option<&[u8]>,
    ) -> Result<()> {
        match node.children.as_slice() {
            [only] if only.blocked > 0 => self.merge_newest_runs(node, u64::MAX, upper),
            _ => Ok(()),
        }
    }

    /// Merges runs that gather above an only child, which has received none of them: the newest ones, which can be read,
    /// of together at most `bytes_max` bytes, and of them no large one for the sake of small ones. So a
    /// message is written again only when the run that it is in at least doubles.
    pub(super) fn merge_newest_runs(
        &self,
        node: &mut Internal,
        bytes_max: u64,
        upper: Option<&[u8]>,
    ) -> Result<()> {
        let is_readable = |run: &&BufferRun| !run.parts.iter().any(|part| part.is_damaged());
        let readable = node.runs.iter().rev().take_while(is_readable).count();
        let mut first = node.runs.len() - readable;
        let sizes: Vec<u64> = node.runs.iter().map(BufferRun::logical_bytes).collect();
        let mut together: u64 = sizes[first..].iter().sum();
        while first < sizes.len() && (sizes[first] > together / 2 || together > bytes_max) {
            together -= sizes[first];
            first += 1;
        }
        if node.runs.len() - first < MERGED_RUNS_MIN {
            return Ok(());
        }
        let pivot = node.children[0].pivot.clone();
        let cursor = |run: &BufferRun| {
            let mut cursor = PartsCursor::new(run.parts.clone(), Fetch::Stream, upper);
            cursor.seek(&pivot)?;
            Ok(Source::runs(cursor, run.ranges.clone()))
        };
        let sources: Result<Vec<Source>> = node.runs[first..].iter().rev().map(cursor).collect();
        let Some(sources) = self.unless_damaged(sources)? else {
            return Ok(());
        };
        let ranges = RangeSet::union(sources.iter().map(|source| &source.ranges));
        let mut merged = node.edit();
        merged.runs.truncate(first);
        let messages = Merger::new(sources, Direction::Forward);
        let pushed = messages.and_then(|mut messages| {
            self.push_messages(&mut merged, &mut messages, &ranges, ranges.clone(), upper)
        });
        if self.unless_damaged(pushed)?.is_some() {
            assert!(
                merged.runs.len() <= node.runs.len(),
                "Q1: a merge of runs makes more of them"
            );
            // The messages were counted when they came.
            merged.children[0].pending_bytes = node.children[0].pending_bytes;
            *node = merged;
        }
        Ok(())
    }
}

impl BufferRun {
    pub(super) fn logical_bytes(&self) -> u64 {
        let bytes = |part: &Arc<Run>| part.info.logical_bytes;
        self.parts.iter().map(bytes).sum()
    }
}

impl Internal {
    /// Puts a node between this one and a child that could not be flushed, with the runs that are pending for it.
    pub(super) fn set_apart(&mut self, index: usize, upper: Option<&[u8]>) {
        self.children[index].blocked = BLOCKED_FLUSHES;
        if self.children.len() == 1 {
            return;
        }
        let child = self.children[index].clone();
        let upper = self.upper_of(index, upper);
        let mut runs: Vec<BufferRun> = self.pending(&child).cloned().collect();
        runs.reverse();
        for run in &mut runs {
            run.clip(&child.pivot, upper);
        }
        runs.retain(|run| !run.is_empty());
        let pivot = child.pivot.clone();
        let mut apart = Internal::new(vec![child]);
        (apart.runs, apart.next_number) = (runs, self.next_number);
        apart.check();
        let apart = Child::new(&pivot, Subtree::internal(apart), 0);
        self.received(index..index + 1, &mut vec![apart]);
    }

    /// Called once for each flush to this node.
    pub(super) fn count_down_blocks(&mut self) {
        for child in &mut self.children {
            child.blocked = child.blocked.saturating_sub(1);
        }
    }
}
