//! How nodes stand in the data file. FORMAT.md draws it.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use super::{BufferRun, Child, Internal, StoredNode, Subtree};
use crate::bytes::{Reader, Writer};
use crate::data_file::{corrupt, push_block, seal_block};
use crate::run::{Run, RunInfo, RunStore};
use crate::space::Extent;
use crate::{Compression, Result};

const TAG_EMPTY: u8 = 0;
const TAG_LEAF: u8 = 1;
const TAG_INTERNAL: u8 = 2;
/// Deeper trees than this are not built: 8 levels of the smallest fanout hold more than a disk.
const DEPTH_MAX: u32 = 64;

/// Writes the nodes that a checkpoint needs and that are not on disk yet.
pub(crate) struct NodeWriter<'a> {
    pub(crate) store: &'a Arc<RunStore>,
}

impl NodeWriter<'_> {
    /// Makes sure that a subtree's internal nodes are on disk.
    pub(crate) fn write(&self, subtree: &Subtree) -> Result<()> {
        let Subtree::Internal(node) = subtree else {
            return Ok(());
        };
        if node.stored.get().is_some() {
            return Ok(());
        }
        for child in &node.children {
            self.write(&child.subtree)?;
        }
        let stored = self.write_block(&encode_internal(node))?;
        // Only the one checkpoint at a time sets this.
        let _ = node.stored.set(stored);
        Ok(())
    }

    /// Writes a payload as a block in an extent of its own.
    pub(crate) fn write_block(&self, payload: &[u8]) -> Result<StoredNode> {
        let mut block = Vec::new();
        push_block(&mut block, Compression::Lz4, payload);
        let extent = self.store.data.space.allocate(block.len());
        seal_block(&mut block, extent.offset);
        self.store.data.write(&extent, &block)?;
        Ok(StoredNode {
            extent,
            len: block.len() as u32,
        })
    }
}

/// Appends a reference to a subtree whose nodes are on disk.
pub(crate) fn encode_subtree(subtree: &Subtree, out: &mut Vec<u8>) {
    match subtree {
        Subtree::Empty => out.push(TAG_EMPTY),
        Subtree::Leaf(run) => {
            out.push(TAG_LEAF);
            encode_run(run, out);
        }
        Subtree::Internal(node) => {
            out.push(TAG_INTERNAL);
            // `NodeWriter::write` came first; a zero offset is refused when it is read.
            let (offset, len) = node
                .stored
                .get()
                .map_or((0, 0), |stored| (stored.extent.offset, stored.len));
            out.put_u64(offset);
            out.put_u32(len);
        }
    }
}

fn encode_internal(node: &Internal) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_u64(node.next_number);
    out.put_u32(node.children.len() as u32);
    for child in &node.children {
        out.put_key(&child.pivot);
        out.put_u64(child.pending_from);
        out.put_u64(child.pending_bytes);
        encode_subtree(&child.subtree, &mut out);
    }
    out.put_u32(node.runs.len() as u32);
    for run in &node.runs {
        out.put_u64(run.number);
        out.put_u32(run.parts.len() as u32);
        for part in &run.parts {
            encode_run(part, &mut out);
        }
    }
    out
}

fn encode_run(run: &Run, out: &mut Vec<u8>) {
    let info = &run.info;
    out.put_u64(run.extent.offset);
    out.put_u64(run.extent.len);
    out.put_u32(info.meta_at);
    out.put_u32(info.meta_len);
    out.put_u32(info.pages);
    out.put_u64(info.entries);
    out.put_u64(info.logical_bytes);
    out.put_key(&info.min_key);
    out.put_key(&info.max_key);
}

/// Reads the nodes of a store while it is opened, and claims their extents.
pub(crate) struct Decoder<'a> {
    pub(crate) store: &'a Arc<RunStore>,
    /// Runs that were met already: siblings may share one.
    runs: HashMap<u64, Arc<Run>>,
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(store: &'a Arc<RunStore>) -> Decoder<'a> {
        Decoder {
            store,
            runs: HashMap::new(),
        }
    }

    /// Reads a subtree. `at` is where the reference stands, for error messages.
    pub(crate) fn subtree(
        &mut self,
        reader: &mut Reader<'_>,
        at: u64,
        depth: u32,
    ) -> Result<Subtree> {
        if depth > DEPTH_MAX {
            return Err(corrupt(at, "a tree is deeper than any tree can be"));
        }
        let malformed = || corrupt(at, "a reference to a node is malformed");
        match reader.u8() {
            Some(TAG_EMPTY) => Ok(Subtree::Empty),
            Some(TAG_LEAF) => Ok(Subtree::Leaf(self.run(reader, at)?)),
            Some(TAG_INTERNAL) => {
                let offset = reader.u64().ok_or_else(malformed)?;
                let len = reader.u32().ok_or_else(malformed)?;
                Ok(Subtree::Internal(Arc::new(
                    self.internal(offset, len, depth)?,
                )))
            }
            _ => Err(malformed()),
        }
    }

    fn internal(&mut self, offset: u64, len: u32, depth: u32) -> Result<Internal> {
        let extent = self.claim(offset, u64::from(len).next_multiple_of(4096))?;
        let payload = self.store.data.read_block(offset, len as usize)?;
        let malformed = || corrupt(offset, "an internal node is malformed");
        let mut reader = Reader(&payload);
        let next_number = reader.u64().ok_or_else(malformed)?;
        let mut children: Vec<Child> = Vec::new();
        for _ in 0..reader.u32().ok_or_else(malformed)? {
            let pivot = Arc::from(reader.key().ok_or_else(malformed)?);
            let pending_from = reader.u64().ok_or_else(malformed)?;
            let pending_bytes = reader.u64().ok_or_else(malformed)?;
            if children.last().is_some_and(|last| last.pivot >= pivot) {
                return Err(corrupt(offset, "the pivots of a node are out of order"));
            }
            let subtree = self.subtree(&mut reader, offset, depth + 1)?;
            children.push(Child {
                pivot,
                subtree,
                pending_from,
                pending_bytes,
            });
        }
        let mut runs = Vec::new();
        for _ in 0..reader.u32().ok_or_else(malformed)? {
            let number = reader.u64().ok_or_else(malformed)?;
            let mut parts = Vec::new();
            for _ in 0..reader.u32().ok_or_else(malformed)? {
                parts.push(self.run(&mut reader, offset)?);
            }
            runs.push(BufferRun { number, parts });
        }
        if children.is_empty() || !reader.0.is_empty() {
            return Err(malformed());
        }
        let stored = OnceLock::from(StoredNode { extent, len });
        Ok(Internal {
            children,
            runs,
            next_number,
            stored,
        })
    }

    fn run(&mut self, reader: &mut Reader<'_>, at: u64) -> Result<Arc<Run>> {
        let mut read = || {
            let (offset, len) = (reader.u64()?, reader.u64()?);
            let info = RunInfo {
                meta_at: reader.u32()?,
                meta_len: reader.u32()?,
                pages: reader.u32()?,
                entries: reader.u64()?,
                logical_bytes: reader.u64()?,
                min_key: reader.key()?.into(),
                max_key: reader.key()?.into(),
            };
            let end = u64::from(info.meta_at) + u64::from(info.meta_len);
            (end <= len && info.min_key <= info.max_key).then_some((offset, len, info))
        };
        let (offset, len, info) =
            read().ok_or_else(|| corrupt(at, "a reference to a run is malformed"))?;
        if let Some(run) = self.runs.get(&offset)
            && run.info == info
        {
            return Ok(run.clone());
        }
        let extent = self.claim(offset, len)?;
        let run = Run::new(self.store, extent, info);
        self.runs.insert(offset, run.clone());
        Ok(run)
    }

    /// Takes an extent out of the free space.
    pub(crate) fn claim(&self, offset: u64, len: u64) -> Result<Arc<Extent>> {
        let claimed = self.store.data.space.claim(offset, len);
        claimed.ok_or_else(|| {
            corrupt(
                offset,
                "two nodes claim the same place, or an impossible one",
            )
        })
    }
}
