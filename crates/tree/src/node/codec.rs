//! The encoding of nodes in the data file. FORMAT.md describes it.

use std::sync::Arc;

use super::handle::Stored;
use super::summary::Summary;
use super::{Internal, Subtree};
use crate::bytes::{Reader, Writer};
use crate::data_file::{push_block, seal_block};
use crate::range::{KeyRange, RangeSet};
use crate::run::{Run, RunInfo, RunStore};
use crate::space::Extent;
use crate::{Compression, Result};

const TAG_EMPTY: u8 = 0;
const TAG_LEAF: u8 = 1;
/// An internal node in older formats: offset and length only.
const TAG_INTERNAL_OLDER: u8 = 2;
const TAG_INTERNAL: u8 = 3;

/// Set in the number of a node's children, or of a page's trees, if its references have the births of extents. Older formats
/// have none.
pub(crate) const FLAG_BIRTHS: u32 = 1 << 31;

/// Bits of the flags of a reference to an internal node.
const FLAG_PENDING: u8 = 1;
const FLAG_MAX_KEY: u8 = 2;

/// Deeper trees than this are not built: 8 levels of the smallest fanout hold more than a disk.
pub(crate) const DEPTH_MAX: u32 = 64;

/// Writes the nodes that a checkpoint needs and that are not on disk yet.
pub(crate) struct NodeWriter<'a> {
    pub(crate) store: &'a Arc<RunStore>,
}

impl NodeWriter<'_> {
    /// Writes a tree's internal nodes that are not on disk yet.
    pub(crate) fn write(&self, root: &Subtree) -> Result<()> {
        self.write_below(root, &[], None)
    }

    /// Writes the nodes of a subtree that holds the keys of `lower..upper`.
    fn write_below(&self, subtree: &Subtree, lower: &[u8], upper: Option<&[u8]>) -> Result<()> {
        let Subtree::Internal(handle) = subtree else {
            return Ok(());
        };
        if handle.stored().is_some() {
            return Ok(());
        }
        let node = handle.load()?;
        for (index, child) in node.children.iter().enumerate() {
            let lower = if index == 0 { lower } else { &child.pivot };
            self.write_below(&child.subtree, lower, node.upper_of(index, upper))?;
        }
        let (extent, len) = self.write_block(&encode_internal(&node))?;
        let mut summary = Summary::of_internal(&node);
        summary.add_block(extent.len);
        let carried = node.runs_beyond(lower, upper);
        handle.set_stored(Stored::new(self.store, extent, len, carried, summary));
        Ok(())
    }

    /// Writes a payload as a block in an extent of its own.
    fn write_block(&self, payload: &[u8]) -> Result<(Arc<Extent>, u32)> {
        let mut block = Vec::new();
        push_block(&mut block, Compression::Lz4, payload);
        let extent = self.store.data.write_new(&mut block, seal_block)?;
        Ok((extent, block.len() as u32))
    }
}

impl Internal {
    /// The runs in this node and below that reach beyond a range of keys, each once. The nodes below are on disk.
    fn runs_beyond(&self, lower: &[u8], upper: Option<&[u8]>) -> Vec<Arc<Run>> {
        let own = self.runs.iter().flat_map(|run| &run.parts);
        let below = self
            .children
            .iter()
            .filter_map(|child| match &child.subtree {
                Subtree::Internal(node) => node.stored(),
                _ => None,
            });
        let below = below.flat_map(|stored| &stored.carried);
        let mut found: Vec<Arc<Run>> = Vec::new();
        for run in own.chain(below) {
            let is_inside =
                &*run.info.min_key >= lower && upper.is_none_or(|upper| &*run.info.max_key < upper);
            if !is_inside && !found.iter().any(|known| Arc::ptr_eq(known, run)) {
                found.push(run.clone());
            }
        }
        found
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
            let (place, stored) = (node.place(), node.stored());
            // `NodeWriter::write` came first; a zero offset is refused when it is read.
            let (offset, len, birth) = place.unwrap_or((0, 0, 0));
            out.put_u64(offset);
            out.put_u32(len);
            out.put_u64(birth);
            let carried = stored.map_or(&[][..], |stored| &stored.carried);
            let none = Summary::default();
            encode_summary(stored.map_or(&none, |stored| &stored.summary), out);
            out.put_u32(carried.len() as u32);
            for run in carried {
                encode_run(run, out);
            }
        }
    }
}

fn encode_summary(summary: &Summary, out: &mut Vec<u8>) {
    let max_key = summary.max_key.as_deref();
    let has_max_key = if max_key.is_some() { FLAG_MAX_KEY } else { 0 };
    let has_pending = if summary.has_pending { FLAG_PENDING } else { 0 };
    out.push(has_max_key | has_pending);
    out.put_u32(summary.height);
    for sum in [
        summary.leaves,
        summary.internal_nodes,
        summary.entries,
        summary.logical_bytes,
        summary.disk_bytes,
        summary.pending_bytes,
        summary.search_bytes,
    ] {
        out.put_u64(sum);
    }
    if let Some(key) = max_key {
        out.put_key(key);
    }
}

/// `None` if the bytes are malformed.
fn parse_summary(reader: &mut Reader<'_>) -> Option<Summary> {
    let flags = reader.u8()?;
    if flags & !(FLAG_PENDING | FLAG_MAX_KEY) != 0 {
        return None;
    }
    Some(Summary {
        has_pending: flags & FLAG_PENDING != 0,
        height: reader.u32()?,
        leaves: reader.u64()?,
        internal_nodes: reader.u64()?,
        entries: reader.u64()?,
        logical_bytes: reader.u64()?,
        disk_bytes: reader.u64()?,
        pending_bytes: reader.u64()?,
        search_bytes: reader.u64()?,
        max_key: match flags & FLAG_MAX_KEY {
            0 => None,
            _ => Some(reader.key()?.into()),
        },
    })
}

fn encode_internal(node: &Internal) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_u64(node.next_number);
    out.put_u32(node.children.len() as u32 | FLAG_BIRTHS);
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
    out.put_u64(run.extent.birth);
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
    /// The newest durable checkpoint when the extent was allocated; 0 in older formats.
    pub(crate) birth: u64,
    pub(crate) info: RunInfo,
}

impl RunRef {
    /// `None` if the bytes are malformed.
    fn parse(reader: &mut Reader<'_>, has_births: bool) -> Option<RunRef> {
        let (offset, len) = (reader.u64()?, reader.u64()?);
        let birth = parse_birth(reader, has_births)?;
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
        (info.end() <= len && info.min_key <= info.max_key).then_some(RunRef {
            offset,
            len,
            birth,
            info,
        })
    }
}

fn parse_birth(reader: &mut Reader<'_>, has_births: bool) -> Option<u64> {
    match has_births {
        true => reader.u64(),
        false => Some(0),
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
    Internal(PlaceRef),
}

/// A stored reference to an internal node.
#[derive(Debug)]
pub(crate) struct PlaceRef {
    /// Where its block is.
    pub(crate) offset: u64,
    pub(crate) len: u32,
    /// The newest durable checkpoint when its extent was allocated; 0 in older formats.
    pub(crate) birth: u64,
    /// What is known of it without reading it; nothing in older formats.
    pub(crate) below: Option<Below>,
}

/// What a reference says of the node that it refers to.
#[derive(Debug)]
pub(crate) struct Below {
    pub(crate) summary: Summary,
    /// The runs in it and below that reach beyond its range of keys.
    pub(crate) carried: Vec<RunRef>,
}

impl Below {
    fn parse(reader: &mut Reader<'_>, has_births: bool) -> Option<Below> {
        let summary = parse_summary(reader)?;
        let mut carried = Vec::new();
        for _ in 0..reader.u32()? {
            carried.push(RunRef::parse(reader, has_births)?);
        }
        Some(Below { summary, carried })
    }
}

impl SubtreeRef {
    /// `None` if the bytes are malformed.
    pub(crate) fn parse(reader: &mut Reader<'_>, has_births: bool) -> Option<SubtreeRef> {
        Some(match reader.u8()? {
            TAG_EMPTY => SubtreeRef::Empty,
            TAG_LEAF => SubtreeRef::Leaf(RunRef::parse(reader, has_births)?),
            tag @ (TAG_INTERNAL | TAG_INTERNAL_OLDER) => SubtreeRef::Internal(PlaceRef {
                offset: reader.u64()?,
                len: reader.u32()?,
                birth: parse_birth(reader, has_births)?,
                below: match tag {
                    TAG_INTERNAL => Some(Below::parse(reader, has_births)?),
                    _ => None,
                },
            }),
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
        let count = reader.u32()?;
        let has_births = count & FLAG_BIRTHS != 0;
        for _ in 0..count & !FLAG_BIRTHS {
            children.push(ChildRef {
                pivot: Arc::from(reader.key()?),
                pending_from: reader.u64()?,
                pending_bytes: reader.u64()?,
                subtree: SubtreeRef::parse(&mut reader, has_births)?,
            });
        }
        let mut runs = Vec::new();
        for _ in 0..reader.u32()? {
            let number = reader.u64()?;
            let mut parts = Vec::new();
            for _ in 0..reader.u32()? {
                parts.push(RunRef::parse(&mut reader, has_births)?);
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

    /// Whether leaves lie between their pivots, and the parts of each run follow each other. The first child may have keys
    /// below its pivot.
    pub(crate) fn keys_are_in_place(&self) -> bool {
        let leaves_fit = self.children.iter().enumerate().all(|(index, child)| {
            let SubtreeRef::Leaf(leaf) = &child.subtree else {
                return true;
            };
            let next = self.children.get(index + 1);
            (index == 0 || child.pivot[..] <= leaf.info.min_key[..])
                && next.is_none_or(|next| leaf.info.max_key[..] < next.pivot[..])
        });
        let parts_ascend = self.runs.iter().all(|run| {
            let mut pairs = run.parts.windows(2);
            pairs.all(|pair| pair[0].info.max_key < pair[1].info.min_key)
        });
        leaves_fit && parts_ascend
    }

    /// Whether each child starts above the one before it.
    pub(crate) fn pivots_ascend(&self) -> bool {
        let mut pairs = self.children.windows(2);
        pairs.all(|pair| pair[0].pivot < pair[1].pivot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(min: &str, max: &str) -> RunRef {
        let info = RunInfo {
            index_at: 0,
            index_len: 0,
            filter_len: 0,
            pages: 1,
            entries: 1,
            logical_bytes: 1,
            min_key: min.as_bytes().into(),
            max_key: max.as_bytes().into(),
        };
        RunRef {
            offset: 8192,
            len: 4096,
            birth: 0,
            info,
        }
    }

    fn node(leaves: &[(&str, &str, &str)], parts: &[(&str, &str)]) -> NodeRef {
        let child = |(pivot, min, max): &(&str, &str, &str)| ChildRef {
            pivot: pivot.as_bytes().into(),
            pending_from: 0,
            pending_bytes: 0,
            subtree: SubtreeRef::Leaf(run(min, max)),
        };
        NodeRef {
            next_number: 1,
            children: leaves.iter().map(child).collect(),
            runs: vec![BufferRef {
                number: 0,
                parts: parts.iter().map(|(min, max)| run(min, max)).collect(),
                ranges: RangeSet::new(Vec::new()),
            }],
        }
    }

    #[test]
    fn leaves_and_parts_outside_of_their_ranges_are_noticed() {
        let parts = [("a", "b"), ("c", "d")];
        let leaves = [("f", "b", "k"), ("m", "m", "p"), ("q", "r", "z")];
        assert!(node(&leaves, &parts).keys_are_in_place());
        for wrong in [("m", "l", "p"), ("m", "m", "q"), ("m", "m", "x")] {
            let leaves = [leaves[0], wrong, leaves[2]];
            assert!(!node(&leaves, &parts).keys_are_in_place(), "{wrong:?}");
        }
        for wrong in [("b", "d"), ("a", "a")] {
            assert!(!node(&leaves, &[parts[0], wrong]).keys_are_in_place());
        }
    }
}
