//! Trees that are being loaded: messages gather in a root without children until a bulk loader supplies the leaves.

use std::sync::Arc;

use super::flush::{Builder, RUNS_MAX, pending_sources};
use super::{Child, Internal, Subtree};
use crate::Result;
use crate::memtable::{MemSource, Memtable};
use crate::merger::{Direction, Merger, Source};
use crate::range::RangeSet;
use crate::run::Run;

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
            Subtree::Internal(node) => node.edit(),
            _ => gathering(),
        };
        self.gather(&mut node, vec![Source::memtable(source)])?;
        if node.runs.len() > RUNS_MAX {
            // Nothing can be flushed, so the runs are merged into one to keep the buffer short.
            let mut merged = gathering();
            let sources = pending_sources(&node, &node.children[0], None);
            let gathered = sources.and_then(|sources| self.gather(&mut merged, sources));
            // Damage in one of the runs only means that they stay apart.
            if self.unless_damaged(gathered)?.is_some() {
                node = merged;
            }
        }
        Ok(Subtree::Internal(Arc::new(node)))
    }

    /// Adds messages as one run. Its range deletes are all kept: what they delete is still to come.
    fn gather(&self, node: &mut Internal, sources: Vec<Source>) -> Result<()> {
        let ranges = RangeSet::union(sources.iter().map(|source| &source.ranges));
        let mut messages = Merger::new(sources, Direction::Forward)?;
        self.push_messages(node, &mut messages, &ranges, ranges.clone(), None)
    }

    /// The tree with `leaves` at the bottom, and on top of them the messages that `gathered` in its root.
    pub(crate) fn put_under(&self, gathered: &Subtree, leaves: Vec<Arc<Run>>) -> Subtree {
        let mut children = self.children_of(leaves, 0);
        if let Some(first) = children.first_mut() {
            first.pivot = Arc::from([]);
        }
        let loaded = self.grow(children);
        let Subtree::Internal(gathered) = gathered else {
            return loaded;
        };
        if gathered.runs.is_empty() {
            return loaded;
        }
        let mut node = Internal::new(match &loaded {
            Subtree::Internal(top) => top.children.clone(),
            _ => vec![Child::new(&[], loaded, 0)],
        });
        node.runs = gathered.runs.clone();
        node.next_number = gathered.next_number;
        for part in gathered.runs.iter().flat_map(|run| &run.parts) {
            let reached = node.child_of(&part.info.min_key)..=node.child_of(&part.info.max_key);
            let share = part.info.logical_bytes / reached.clone().count() as u64;
            for child in &mut node.children[reached] {
                child.pending_bytes += share;
            }
        }
        for run in &gathered.runs {
            node.count_pending(&run.ranges);
        }
        Subtree::Internal(Arc::new(node))
    }
}

/// A root that takes messages for all keys and has nothing below it.
fn gathering() -> Internal {
    Internal::new(vec![Child::new(&[], Subtree::Empty, 0)])
}
