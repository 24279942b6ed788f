//! The encoding of nodes in the data file. FORMAT.md describes it.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use super::{BufferRun, Child, Internal, StoredNode, Subtree};
use crate::bytes::{Reader, Writer};
use crate::data_file::{corrupt, push_block, seal_block};
use crate::disk::ALIGNMENT;
use crate::range::{KeyRange, RangeSet};
use crate::run::{Run, RunInfo, RunStore};
use crate::space::Extent;
use crate::{Compression, Result};

const TAG_EMPTY: u8 = 0;
const TAG_LEAF: u8 = 1;
const TAG_INTERNAL: u8 = 2;
/// Deeper trees than this are not built: 8 levels of the smallest fanout hold more than a disk.
pub(crate) const DEPTH_MAX: u32 = 64;

/// Writes the nodes that a checkpoint needs and that are not on disk yet.
pub(crate) struct NodeWriter<'a> {
    pub(crate) store: &'a Arc<RunStore>,
}

impl NodeWriter<'_> {
    /// Writes a subtree's internal nodes that are not on disk yet.
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
        // There is one checkpoint at a time, so nobody else sets this.
        let _ = node.stored.set(stored);
        Ok(())
    }

    /// Writes a payload as a block in an extent of its own.
    pub(crate) fn write_block(&self, payload: &[u8]) -> Result<StoredNode> {
        let mut block = Vec::new();
        push_block(&mut block, Compression::Lz4, payload);
        let extent = self.store.data.write_new(&mut block, seal_block)?;
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
        encode_ranges(&run.ranges, &mut out);
    }
    out
}

fn encode_ranges(ranges: &RangeSet, out: &mut Vec<u8>) {
    out.put_u32(ranges.ranges().len() as u32);
    for range in ranges.ranges() {
        out.put_key(&range.lower);
        out.push(u8::from(range.upper.is_some()));
        if let Some(upper) = &range.upper {
            out.put_key(upper);
        }
    }
}

fn encode_run(run: &Run, out: &mut Vec<u8>) {
    let info = &run.info;
    out.put_u64(run.extent.offset);
    out.put_u64(run.extent.len);
    out.put_u32(info.index_at);
    out.put_u32(info.index_len);
    out.put_u32(info.filter_len);
    out.put_u32(info.pages);
    out.put_u64(info.entries);
    out.put_u64(info.logical_bytes);
    out.put_key(&info.min_key);
    out.put_key(&info.max_key);
}

/// A stored reference to a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunRef {
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) info: RunInfo,
}

impl RunRef {
    /// `None` if the bytes are malformed.
    fn parse(reader: &mut Reader<'_>) -> Option<RunRef> {
        let (offset, len) = (reader.u64()?, reader.u64()?);
        let info = RunInfo {
            index_at: reader.u32()?,
            index_len: reader.u32()?,
            filter_len: reader.u32()?,
            pages: reader.u32()?,
            entries: reader.u64()?,
            logical_bytes: reader.u64()?,
            min_key: reader.key()?.into(),
            max_key: reader.key()?.into(),
        };
        (info.end() <= len && info.min_key <= info.max_key).then_some(RunRef { offset, len, info })
    }
}

fn parse_ranges(reader: &mut Reader<'_>) -> Option<RangeSet> {
    let mut ranges = Vec::new();
    for _ in 0..reader.u32()? {
        let lower = reader.key()?;
        let upper = match reader.u8()? {
            0 => None,
            1 => Some(reader.key()?),
            _ => return None,
        };
        ranges.push(KeyRange::new(lower, upper)?);
    }
    let count = ranges.len();
    let set = RangeSet::new(ranges);
    // The encoder never writes ranges that overlap or touch.
    (set.ranges().len() == count).then_some(set)
}

/// A stored reference to a subtree, not followed.
#[derive(Debug)]
pub(crate) enum SubtreeRef {
    Empty,
    Leaf(RunRef),
    /// Offset and length of an internal node's block.
    Internal(u64, u32),
}

impl SubtreeRef {
    /// `None` if the bytes are malformed.
    pub(crate) fn parse(reader: &mut Reader<'_>) -> Option<SubtreeRef> {
        Some(match reader.u8()? {
            TAG_EMPTY => SubtreeRef::Empty,
            TAG_LEAF => SubtreeRef::Leaf(RunRef::parse(reader)?),
            TAG_INTERNAL => SubtreeRef::Internal(reader.u64()?, reader.u32()?),
            _ => return None,
        })
    }
}

/// A stored internal node, its references not followed.
pub(crate) struct NodeRef {
    pub(crate) next_number: u64,
    pub(crate) children: Vec<ChildRef>,
    /// Oldest first.
    pub(crate) runs: Vec<BufferRef>,
}

/// A run of a [`NodeRef`]'s buffer.
pub(crate) struct BufferRef {
    pub(crate) number: u64,
    pub(crate) parts: Vec<RunRef>,
    /// Range deletes that cover everything older than the run.
    pub(crate) ranges: RangeSet,
}

/// A child of a [`NodeRef`].
pub(crate) struct ChildRef {
    pub(crate) pivot: Arc<[u8]>,
    pub(crate) pending_from: u64,
    pub(crate) pending_bytes: u64,
    pub(crate) subtree: SubtreeRef,
}

impl NodeRef {
    /// `None` if the bytes are malformed.
    pub(crate) fn parse(payload: &[u8]) -> Option<NodeRef> {
        let mut reader = Reader(payload);
        let next_number = reader.u64()?;
        let mut children = Vec::new();
        for _ in 0..reader.u32()? {
            children.push(ChildRef {
                pivot: Arc::from(reader.key()?),
                pending_from: reader.u64()?,
                pending_bytes: reader.u64()?,
                subtree: SubtreeRef::parse(&mut reader)?,
            });
        }
        let mut runs = Vec::new();
        for _ in 0..reader.u32()? {
            let number = reader.u64()?;
            let mut parts = Vec::new();
            for _ in 0..reader.u32()? {
                parts.push(RunRef::parse(&mut reader)?);
            }
            let ranges = parse_ranges(&mut reader)?;
            runs.push(BufferRef {
                number,
                parts,
                ranges,
            });
        }
        let node = NodeRef {
            next_number,
            children,
            runs,
        };
        (!node.children.is_empty() && reader.0.is_empty()).then_some(node)
    }

    /// Whether each child starts above the one before it.
    pub(crate) fn pivots_ascend(&self) -> bool {
        let mut pairs = self.children.windows(2);
        pairs.all(|pair| pair[0].pivot < pair[1].pivot)
    }
}

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
            SubtreeRef::Internal(offset, len) => {
                Subtree::Internal(Arc::new(self.internal(offset, len, depth)?))
            }
        })
    }

    fn internal(&mut self, offset: u64, len: u32, depth: u32) -> Result<Internal> {
        let (extent, payload) = self.block(offset, len)?;
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
            stored: OnceLock::from(StoredNode { extent, len }),
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

    /// Claims the extent of a block that has one of its own, and reads its payload.
    pub(crate) fn block(&self, offset: u64, len: u32) -> Result<(Arc<Extent>, Vec<u8>)> {
        let extent = self.claim(offset, u64::from(len).next_multiple_of(ALIGNMENT as u64))?;
        let payload = self
            .store
            .data
            .read_block(offset, len as usize, <[u8]>::to_vec)?;
        Ok((extent, payload))
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
