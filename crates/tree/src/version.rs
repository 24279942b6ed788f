//! What a snapshot holds on to: the memtables alive at a moment, and one root per tree.

use std::collections::HashMap;
use std::sync::Arc;

use crate::memtable::Memtable;
use crate::node::Subtree;
use crate::{TreeId, TreeOptions};

/// A tree's settings and its root.
#[derive(Clone)]
pub(crate) struct Tree {
    pub(crate) options: TreeOptions,
    pub(crate) root: Subtree,
}

/// The trees of a store by id.
pub(crate) type Trees = HashMap<TreeId, Tree>;

/// A version of the store. Replaced as a whole, under the commit lock.
#[derive(Clone)]
pub(crate) struct Version {
    /// Takes the commits.
    pub(crate) active: Arc<Memtable>,
    /// Sealed memtables that are not fed to the trees yet, newest first.
    pub(crate) sealed: Vec<Arc<Memtable>>,
    pub(crate) trees: Arc<Trees>,
}

impl Version {
    /// All memtables, newest first.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.active).chain(&self.sealed)
    }

    /// The position in the log that a replay must start from when only the trees are durable.
    pub(crate) fn log_start(&self) -> u64 {
        self.sealed.last().unwrap_or(&self.active).log_start
    }
}
