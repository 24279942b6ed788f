//! The walk over the nodes of a store that finds which space is in use, where that is not recorded.
//!
//! A store that was not closed may have used space that nothing refers to: of snapshots, and of loads that were not
//! finished. The sweep walks the trees as they were opened, a few nodes at a time, and frees that space at its end. It
//! keeps the nodes on disk by a handle to these trees.

use std::collections::HashSet;
use std::sync::Arc;

use crate::block::Place;
use crate::data_file::{block_extent, corrupt};
use crate::free_map::{DATA_START, FreeMap, unreachable};
use crate::metadata::Copies;
use crate::node::{NodeRef, RunRef, Subtree, SubtreeRef};
use crate::run::RunStore;
use crate::version::Trees;
use crate::{Error, Result};

/// The extents that trees refer to.
#[derive(Default)]
pub(crate) struct Reach {
    extents: Vec<(u64, u64)>,
    /// Nodes that were not read yet: the places and lengths of their blocks.
    nodes: Vec<(Place, u32)>,
    /// All nodes. In damaged metadata a node may be below itself.
    seen: HashSet<(u64, u32)>,
}

impl Reach {
    /// Adds a block that is stored twice.
    pub(crate) fn add_copies(&mut self, copies: &Copies) {
        self.extents.extend(copies.extents());
    }

    /// Adds what a stored reference refers to.
    pub(crate) fn add_subtree(&mut self, subtree: &SubtreeRef) {
        match subtree {
            SubtreeRef::Empty => {}
            SubtreeRef::Leaf(run) => self.add_run(run),
            SubtreeRef::Internal(node) => {
                self.add_node(Place::new(node.offset, node.birth), node.len);
            }
        }
    }

    fn add_run(&mut self, run: &RunRef) {
        self.extents.push((run.offset, run.len));
    }

    fn add_node(&mut self, place: Place, len: u32) {
        self.extents.push((place.offset, block_extent(len)));
        if self.seen.insert((place.offset, len)) {
            self.nodes.push((place, len));
        }
    }

    /// Reads up to `most` nodes. True when all are read.
    pub(crate) fn follow(&mut self, store: &RunStore, most: usize) -> Result<bool> {
        for _ in 0..most {
            let Some((place, len)) = self.nodes.pop() else {
                return Ok(true);
            };
            let parsed = store.data.read_block(place, len as usize, NodeRef::parse)?;
            let node =
                parsed.ok_or_else(|| corrupt(place.offset, "an internal node is malformed"))?;
            for part in node.runs.iter().flat_map(|run| &run.parts) {
                self.add_run(part);
            }
            for child in &node.children {
                self.add_subtree(&child.subtree);
            }
        }
        Ok(self.nodes.is_empty())
    }

    fn into_extents(mut self) -> Vec<(u64, u64)> {
        self.extents.sort_unstable();
        // Siblings may share a run.
        self.extents.dedup();
        self.extents
    }

    /// The map of a file in which everything else is free.
    pub(crate) fn into_map(self) -> FreeMap {
        let extents = self.into_extents();
        let ends = extents.iter().map(|(at, len)| at.saturating_add(*len));
        let end = ends.max().unwrap_or(DATA_START).max(DATA_START);
        let all = [(DATA_START, end - DATA_START)];
        let free = unreachable(&all, &extents);
        // They were computed one after the other.
        FreeMap::new(end, free, |_| ())
    }
}

/// A search for used space that nothing refers to.
pub(crate) struct Sweep {
    reach: Reach,
    /// The ranges that were used when the store was opened.
    used: Vec<(u64, u64)>,
    /// The number of leaks that were noted by then.
    noted: u64,
    /// Keeps what the walk reads.
    _trees: Arc<Trees>,
}

impl Sweep {
    /// `blocks` are in use besides the trees. `None` if a root is not on disk: then it is not known what is used below it.
    pub(crate) fn new(
        trees: &Arc<Trees>,
        used: Vec<(u64, u64)>,
        blocks: &[Copies],
        noted: u64,
    ) -> Option<Sweep> {
        let mut reach = Reach::default();
        blocks.iter().for_each(|copies| reach.add_copies(copies));
        for page in trees.pages() {
            for (_, tree) in page.trees() {
                match &tree.root {
                    Subtree::Empty => {}
                    Subtree::Leaf(run) => reach.extents.push((run.extent.offset, run.extent.len)),
                    Subtree::Internal(node) => {
                        let (offset, len, birth) = node.place()?;
                        reach.add_node(Place::new(offset, birth), len);
                    }
                }
            }
        }
        Some(Sweep {
            reach,
            used,
            noted,
            _trees: trees.clone(),
        })
    }

    /// Reads a few nodes. At the end it frees what no node refers to, and returns true.
    ///
    /// # Errors
    /// If a node cannot be read: then it is not known what is in use below it, and nothing must be freed.
    pub(crate) fn step(&mut self, store: &RunStore, nodes: usize) -> Result<bool, Error> {
        if !self.reach.follow(store, nodes)? {
            return Ok(false);
        }
        let reachable = std::mem::take(&mut self.reach).into_extents();
        let leaked = unreachable(&self.used, &reachable);
        store.data.space.give_leaked(&leaked, self.noted);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node that damaged metadata has below itself was read without end.
    #[test]
    fn each_node_is_read_once() {
        let mut reach = Reach::default();
        reach.add_node(Place::new(8192, 0), 100);
        let node = (Place::new(8192, 0), 100);
        assert_eq!(reach.nodes.pop(), Some(node));
        reach.add_node(Place::new(8192, 0), 100);
        assert_eq!(reach.nodes, []);
        assert_eq!(reach.into_extents(), [(8192, 4096)]);
    }
}
