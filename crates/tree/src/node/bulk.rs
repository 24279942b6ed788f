//! Trees that are being loaded: messages gather in a root without children until a bulk loader supplies the leaves.

use std::sync::Arc;

use frond_kv::Direction;

use super::flush::{Builder, RUNS_MAX};
use super::{BufferRun, Child, Internal, Subtree};
use crate::Result;
use crate::memtable::{MemSource, Memtable};
use crate::merger::{Merger, Source};
use crate::range::RangeSet;
use crate::run::Run;

/// The most bytes of messages that one memtable flush writes again, in full nodes. What gathers beyond stays in several
/// runs: nothing reads them before the load is finished.
const MERGE_NODES: u64 = 64;

impl Builder {
    /// The root of a tree that is being loaded, after all messages of a sealed memtable. Deletes and update
    /// messages are kept: their keys may still come from the loader.
    pub(crate) fn flush_memtable_while_loading(
        &self,
        root: &Subtree,
        memtable: &Arc<Memtable>,
    ) -> Result<Subtree> {
        let (tree, resolver) = (self.resolver.tree, self.resolver.clone());
        let Some(mut source) = MemSource::of_sealed(memtable, tree, resolver) else {
            return Ok(root.clone());
        };
        source.seek(None);
        let mut node = match root {
            Subtree::Internal(node) => match self.unless_damaged(node.load())? {
                Some(node) => node.edit(),
                // The messages gather above it.
                None => Internal::new(vec![Child::new(&[], root.clone(), 0)]),
            },
            _ => gathering(),
        };
        self.gather(&mut node, vec![Source::memtable(source)])?;
        if node.runs.len() > RUNS_MAX {
            // Nothing can be flushed, so runs are merged to keep the buffer short, within the work of one flush.
            let newest = node.runs.last().map_or(0, BufferRun::logical_bytes);
            let node_bytes = u64::from(self.options.node_bytes);
            let bytes_max = (node_bytes * MERGE_NODES).max(newest * RUNS_MAX as u64);
            self.merge_newest_runs(&mut node, bytes_max, None)?;
        }
        Ok(Subtree::internal(node))
    }

    /// Adds messages as one run. Its range deletes are all kept: what they delete is still to come.
    fn gather(&self, node: &mut Internal, sources: Vec<Source>) -> Result<()> {
        let ranges = RangeSet::union(sources.iter().map(|source| &source.ranges));
        let mut messages = Merger::new(sources, Direction::Forward)?;
        self.push_messages(node, &mut messages, &ranges, ranges.clone(), None)
    }

    /// The tree with `leaves` at the bottom, and on top of them the messages that `gathered` in its root.
    ///
    /// # Errors
    /// If some of these messages cannot be read.
    pub(crate) fn put_under(&self, gathered: &Subtree, leaves: Vec<Arc<Run>>) -> Result<Subtree> {
        for pair in leaves.windows(2) {
            assert!(
                pair[0].info.max_key < pair[1].info.min_key,
                "B3: the leaves of a load do not ascend"
            );
        }
        let mut children = self.children_of(leaves, 0);
        if let Some(first) = children.first_mut() {
            first.pivot = Arc::from([]);
        }
        let runs = gathered.gathered_runs()?;
        Ok(self.grow(children).below(runs))
    }
}

impl Subtree {
    /// The tree with runs that gathered in the root of another one on top of it.
    pub(crate) fn below(self, mut runs: Vec<BufferRun>) -> Subtree {
        if runs.is_empty() {
            return self;
        }
        let children = match &self {
            // A root that cannot be read stays as it is.
            Subtree::Internal(top) => top.load().ok().filter(|top| top.runs.is_empty()),
            Subtree::Empty | Subtree::Leaf(_) => None,
        };
        let children = children.map(|top| top.children.clone());
        let mut node = Internal::new(children.unwrap_or_else(|| vec![Child::new(&[], self, 0)]));
        for child in &mut node.children {
            child.pending_from = 0;
        }
        for (number, run) in runs.iter_mut().enumerate() {
            run.number = number as u64;
        }
        node.next_number = runs.len() as u64;
        node.runs = runs;
        node.check();
        let parts = node.runs.iter().flat_map(|run| &run.parts).cloned();
        for part in parts.collect::<Vec<_>>() {
            let reached = node.child_of(&part.info.min_key)..=node.child_of(&part.info.max_key);
            let share = part.info.logical_bytes / reached.clone().count() as u64;
            for child in &mut node.children[reached] {
                child.pending_bytes += share;
            }
        }
        for ranges in node
            .runs
            .iter()
            .map(|run| run.ranges.clone())
            .collect::<Vec<_>>()
        {
            node.count_pending(&ranges);
        }
        Subtree::internal(node)
    }

    /// The runs that gathered in the root of a tree that is being loaded, oldest first.
    ///
    /// # Errors
    /// If the root cannot be read.
    pub(crate) fn gathered_runs(&self) -> Result<Vec<BufferRun>> {
        let mut runs = Vec::new();
        gathered_runs(self, &mut runs)?;
        Ok(runs)
    }
}

/// Adds the runs of a root to `runs`. A root that could not be read for a while has another one above it.
fn gathered_runs(root: &Subtree, runs: &mut Vec<BufferRun>) -> Result<()> {
    if let Subtree::Internal(node) = root {
        let node = node.load()?;
        for child in &node.children {
            gathered_runs(&child.subtree, runs)?;
        }
        runs.extend(node.runs.iter().cloned());
    }
    Ok(())
}

/// A root that takes messages for all keys and has nothing below it.
fn gathering() -> Internal {
    Internal::new(vec![Child::new(&[], Subtree::Empty, 0)])
}
