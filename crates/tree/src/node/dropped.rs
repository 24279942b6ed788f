//! Trees that were dropped.
//!
//! The last handle to a run removes its pages from the cache, one by one, and frees its extent. For a whole tree
//! that takes long: a second for some gigabytes. So a commit that drops a tree gives it to the orphans (see
//! `orphans.rs`), and the background thread takes it apart.

use std::sync::Arc;

use super::Subtree;
use crate::Result;
use crate::orphans::Orphan;
use crate::run::RunStore;

/// A tree that was dropped, or a part of one.
struct Dropped {
    part: Subtree,
    /// Whether it is a root, which snapshots may hold. Parts do not wait: siblings share runs.
    is_root: bool,
    store: Arc<RunStore>,
}

impl Subtree {
    /// Gives a tree that was dropped to the orphans.
    pub(crate) fn abandon(self, store: &Arc<RunStore>) {
        Dropped::push(self, true, store);
    }
}

impl Dropped {
    fn push(part: Subtree, is_root: bool, store: &Arc<RunStore>) {
        if matches!(part, Subtree::Empty) {
            return;
        }
        store.orphans.push(Box::new(Dropped {
            part,
            is_root,
            store: store.clone(),
        }));
    }
}

impl Orphan for Dropped {
    fn release(self: Box<Self>) -> Result<()> {
        // Each part becomes an orphan of its own. Those of a node that is not in memory do so when it is dropped.
        if let Subtree::Internal(node) = &self.part
            && let Some(content) = node.in_memory()
        {
            for run in content.runs.iter().flat_map(|run| &run.parts) {
                Dropped::push(Subtree::Leaf(run.clone()), false, &self.store);
            }
            for child in &content.children {
                Dropped::push(child.subtree.clone(), false, &self.store);
            }
        }
        Ok(())
    }

    fn is_shared(&self) -> bool {
        self.is_root
            && match &self.part {
                Subtree::Empty => false,
                Subtree::Leaf(run) => Arc::strong_count(run) > 1,
                Subtree::Internal(node) => Arc::strong_count(node) > 1,
            }
    }
}
