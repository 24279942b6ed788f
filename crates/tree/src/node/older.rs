//! Reading the nodes of a store of an older format: all of them, while it is opened. What they refer to is claimed, and
//! everything else is free. The next checkpoint writes the nodes again.

use std::collections::HashMap;
use std::sync::Arc;

use super::codec::{DEPTH_MAX, NodeRef, RunRef, SubtreeRef};
use super::{BufferRun, Child, Internal, Subtree};
use crate::Result;
use crate::data_file::{block_extent, corrupt};
use crate::run::{Run, RunStore};
use crate::space::Extent;

/// Reads the nodes of a store while it is opened, and claims their extents.
pub(crate) struct Decoder<'a> {
    pub(crate) store: &'a Arc<RunStore>,
    /// Runs that were read already: siblings may share one.
    runs: HashMap<u64, Arc<Run>>,
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(store: &'a Arc<RunStore>) -> Decoder<'a> {
        Decoder {
            store,
            runs: HashMap::new(),
        }
    }

    /// Follows a reference. `at` is its offset, for error messages.
    pub(crate) fn subtree(&mut self, subtree: SubtreeRef, at: u64, depth: u32) -> Result<Subtree> {
        if depth > DEPTH_MAX {
            return Err(corrupt(at, "a tree is deeper than possible"));
        }
        Ok(match subtree {
            SubtreeRef::Empty => Subtree::Empty,
            SubtreeRef::Leaf(run) => Subtree::Leaf(self.run(run)?),
            SubtreeRef::Internal(node) => {
                Subtree::internal(self.internal(node.offset, node.len, depth)?)
            }
        })
    }

    fn internal(&mut self, offset: u64, len: u32, depth: u32) -> Result<Internal> {
        let payload = self.block(offset, len)?;
        let node = NodeRef::parse(&payload)
            .ok_or_else(|| corrupt(offset, "an internal node is malformed"))?;
        if !node.pivots_ascend() {
            return Err(corrupt(offset, "the pivots of a node are out of order"));
        }
        let mut children = Vec::with_capacity(node.children.len());
        for child in node.children {
            children.push(Child {
                pivot: child.pivot,
                subtree: self.subtree(child.subtree, offset, depth + 1)?,
                pending_from: child.pending_from,
                pending_bytes: child.pending_bytes,
                blocked: 0,
            });
        }
        let mut runs = Vec::with_capacity(node.runs.len());
        for run in node.runs {
            let parts = run.parts.into_iter().map(|part| self.run(part));
            runs.push(BufferRun {
                number: run.number,
                ranges: run.ranges,
                parts: parts.collect::<Result<_>>()?,
            });
        }
        Ok(Internal {
            children,
            runs,
            next_number: node.next_number,
        })
    }

    fn run(&mut self, run: RunRef) -> Result<Arc<Run>> {
        if let Some(known) = self.runs.get(&run.offset)
            && known.info == run.info
        {
            return Ok(known.clone());
        }
        let extent = self.claim(run.offset, run.len)?;
        let handle = Run::new(self.store, extent, run.info);
        self.runs.insert(run.offset, handle.clone());
        Ok(handle)
    }

    /// Claims the extent of a block that has one of its own.
    pub(crate) fn claim_block(&self, offset: u64, len: u32) -> Result<Arc<Extent>> {
        self.claim(offset, block_extent(len))
    }

    /// Claims the extent of a block that has one of its own, and reads its payload.
    fn block(&self, offset: u64, len: u32) -> Result<Vec<u8>> {
        // The extent is released at once, and reused after the next checkpoint.
        self.claim_block(offset, len)?;
        let data = &self.store.data;
        data.read_block(offset, len as usize, <[u8]>::to_vec)
    }

    /// Takes an extent out of the free space.
    fn claim(&self, offset: u64, len: u64) -> Result<Arc<Extent>> {
        let claimed = self.store.data.space.claim(offset, len);
        claimed.ok_or_else(|| {
            corrupt(
                offset,
                "the extent of a node is impossible, or overlaps another one",
            )
        })
    }
}
