//! The encoding of nodes in the data file. FORMAT.md describes it.

use std::sync::Arc;

use super::handle::Stored;
use super::summary::Summary;
use super::{Internal, Subtree};
use crate::bytes::{Reader, SHORT_KEY_BYTES_MAX, Writer};
use crate::data_file::{check_payload, push_block, seal_block};
use crate::range::{KeyRange, RangeSet};
use crate::run::{Run, RunInfo, RunStore};
use crate::space::Extent;
use crate::{Compression, Result};

const TAG_EMPTY: u8 = 0;
const TAG_LEAF: u8 = 1;
const TAG_INTERNAL: u8 = 2;

/// Set in the number of a node's children, or of a page's trees, if all keys in it have four bytes for their length: one of
/// them is long.
const FLAG_LONG_KEYS: u32 = 1 << 31;

/// The form in which a node or a page of trees is encoded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    has_long_keys: bool,
}

impl Form {
    /// The form, and the number that has it in its highest bit.
    pub(crate) fn split(count: u32) -> (Form, u32) {
        let form = Form {
            has_long_keys: count & FLAG_LONG_KEYS != 0,
        };
        (form, count & !FLAG_LONG_KEYS)
    }

    fn key<'a>(self, reader: &mut Reader<'a>) -> Option<&'a [u8]> {
        if self.has_long_keys {
            reader.long_key()
        } else {
            reader.key()
        }
    }
}

/// The bytes of a node or of a page of trees.
pub(crate) struct Encoder {
    pub(crate) out: Vec<u8>,
    has_long_keys: bool,
    /// Whether a long key came although there were to be none.
    met_long_key: bool,
}

impl Encoder {
    /// The output of `encode`, which is called again if there is a long key.
    pub(crate) fn encode(encode: impl Fn(&mut Encoder)) -> Vec<u8> {
        let mut encoder = Encoder {
            out: Vec::new(),
            has_long_keys: false,
            met_long_key: false,
        };
        encode(&mut encoder);
        if encoder.met_long_key {
            encoder.out.clear();
            encoder.has_long_keys = true;
            encode(&mut encoder);
        }
        encoder.out
    }

    /// The number of a node's children or of a page's trees.
    pub(crate) fn put_count(&mut self, count: usize) {
        let long = if self.has_long_keys {
            FLAG_LONG_KEYS
        } else {
            0
        };
        self.out.put_u32(count as u32 | long);
    }

    fn put_key(&mut self, key: &[u8]) {
        if self.has_long_keys {
            self.out.put_long_key(key);
        } else if key.len() > SHORT_KEY_BYTES_MAX {
            self.met_long_key = true;
        } else {
            self.out.put_key(key);
        }
    }
}

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
        node.check();
        node.check_bounds(lower, upper);
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
        check_payload("internal node", payload)?;
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
pub(crate) fn encode_subtree(subtree: &Subtree, encoder: &mut Encoder) {
    let out = &mut encoder.out;
    match subtree {
        Subtree::Empty => out.push(TAG_EMPTY),
        Subtree::Leaf(run) => {
            out.push(TAG_LEAF);
            encode_run(run, encoder);
        }
        Subtree::Internal(node) => {
            out.push(TAG_INTERNAL);
            let (place, stored) = (node.place(), node.stored());
            assert!(
                place.is_some() && stored.is_some(),
                "K8: a reference to a node is written before the node"
            );
            let (offset, len, birth) = place.unwrap_or((0, 0, 0));
            out.put_u64(offset);
            out.put_u32(len);
            out.put_u64(birth);
            let carried = stored.map_or(&[][..], |stored| &stored.carried);
            let none = Summary::default();
            encode_summary(stored.map_or(&none, |stored| &stored.summary), encoder);
            encoder.out.put_u32(carried.len() as u32);
            for run in carried {
                encode_run(run, encoder);
            }
        }
    }
}

fn encode_summary(summary: &Summary, encoder: &mut Encoder) {
    let out = &mut encoder.out;
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
        encoder.put_key(key);
    }
}

/// `None` if the bytes are malformed.
fn parse_summary(reader: &mut Reader<'_>, form: Form) -> Option<Summary> {
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
            _ => Some(form.key(reader)?.into()),
        },
    })
}

fn encode_internal(node: &Internal) -> Vec<u8> {
    Encoder::encode(|encoder| {
        encoder.out.put_u64(node.next_number);
        encoder.put_count(node.children.len());
        for child in &node.children {
            encoder.put_key(&child.pivot);
            encoder.out.put_u64(child.pending_from);
            encoder.out.put_u64(child.pending_bytes);
            encode_subtree(&child.subtree, encoder);
        }
        encoder.out.put_u32(node.runs.len() as u32);
        for run in &node.runs {
            encoder.out.put_u64(run.number);
            encoder.out.put_u32(run.parts.len() as u32);
            for part in &run.parts {
                encode_run(part, encoder);
            }
            encode_ranges(&run.ranges, encoder);
        }
    })
}

fn encode_ranges(ranges: &RangeSet, encoder: &mut Encoder) {
    encoder.out.put_u32(ranges.ranges().len() as u32);
    for range in ranges.ranges() {
        encoder.put_key(&range.lower);
        encoder.out.push(u8::from(range.upper.is_some()));
        if let Some(upper) = &range.upper {
            encoder.put_key(upper);
        }
    }
}

fn encode_run(run: &Run, encoder: &mut Encoder) {
    let (out, info) = (&mut encoder.out, &run.info);
    out.put_u64(run.extent.offset);
    out.put_u64(run.extent.len);
    out.put_u64(run.extent.birth);
    out.put_u32(info.index_at);
    out.put_u32(info.index_len);
    out.put_u32(info.filter_len);
    out.put_u32(info.pages);
    out.put_u64(info.entries);
    out.put_u64(info.logical_bytes);
    encoder.put_key(&info.min_key);
    encoder.put_key(&info.max_key);
}

/// A stored reference to a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunRef {
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// The newest durable checkpoint when the extent was allocated.
    pub(crate) birth: u64,
    pub(crate) info: RunInfo,
}

impl RunRef {
    /// `None` if the bytes are malformed.
    fn parse(reader: &mut Reader<'_>, form: Form) -> Option<RunRef> {
        let (offset, len, birth) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let info = RunInfo {
            index_at: reader.u32()?,
            index_len: reader.u32()?,
            filter_len: reader.u32()?,
            pages: reader.u32()?,
            entries: reader.u64()?,
            logical_bytes: reader.u64()?,
            min_key: form.key(reader)?.into(),
            max_key: form.key(reader)?.into(),
        };
        (info.end() <= len && info.min_key <= info.max_key).then_some(RunRef {
            offset,
            len,
            birth,
            info,
        })
    }
}

fn parse_ranges(reader: &mut Reader<'_>, form: Form) -> Option<RangeSet> {
    let mut ranges = Vec::new();
    for _ in 0..reader.u32()? {
        let lower = form.key(reader)?;
        let upper = match reader.u8()? {
            0 => None,
            1 => Some(form.key(reader)?),
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
    /// The newest durable checkpoint when its extent was allocated.
    pub(crate) birth: u64,
    pub(crate) below: Below,
}

/// The part of a reference that describes the node.
#[derive(Debug)]
pub(crate) struct Below {
    pub(crate) summary: Summary,
    /// The runs in it and below that reach beyond its range of keys.
    pub(crate) carried: Vec<RunRef>,
}

impl Below {
    fn parse(reader: &mut Reader<'_>, form: Form) -> Option<Below> {
        let summary = parse_summary(reader, form)?;
        let mut carried = Vec::new();
        for _ in 0..reader.u32()? {
            carried.push(RunRef::parse(reader, form)?);
        }
        Some(Below { summary, carried })
    }
}

impl SubtreeRef {
    /// `None` if the bytes are malformed.
    pub(crate) fn parse(reader: &mut Reader<'_>, form: Form) -> Option<SubtreeRef> {
        Some(match reader.u8()? {
            TAG_EMPTY => SubtreeRef::Empty,
            TAG_LEAF => SubtreeRef::Leaf(RunRef::parse(reader, form)?),
            TAG_INTERNAL => SubtreeRef::Internal(PlaceRef {
                offset: reader.u64()?,
                len: reader.u32()?,
                birth: reader.u64()?,
                below: Below::parse(reader, form)?,
            }),
            _ => return None,
        })
    }
}

/// A stored internal node, its references not followed.
pub(crate) struct NodeRef {
    pub(crate) next_number: u64,
    pub(crate) children: Vec<ChildRef>,
    /// The oldest run comes first.
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
        let (form, count) = Form::split(reader.u32()?);
        for _ in 0..count {
            children.push(ChildRef {
                pivot: Arc::from(form.key(&mut reader)?),
                pending_from: reader.u64()?,
                pending_bytes: reader.u64()?,
                subtree: SubtreeRef::parse(&mut reader, form)?,
            });
        }
        let mut runs = Vec::new();
        for _ in 0..reader.u32()? {
            let number = reader.u64()?;
            let mut parts = Vec::new();
            for _ in 0..reader.u32()? {
                parts.push(RunRef::parse(&mut reader, form)?);
            }
            let ranges = parse_ranges(&mut reader, form)?;
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

    /// Whether the numbers of runs ascend, and no child has received one that does not exist.
    pub(crate) fn numbers_ascend(&self) -> bool {
        let next = self.next_number;
        let mut pairs = self.runs.windows(2);
        pairs.all(|pair| pair[0].number < pair[1].number)
            && self.runs.last().is_none_or(|run| run.number < next)
            && self.children.iter().all(|child| child.pending_from <= next)
            && next < u64::MAX / 2
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
    fn runs_and_children_with_impossible_numbers_are_noticed() {
        let sound = || node(&[("", "b", "k"), ("m", "m", "p")], &[("a", "b")]);
        assert!(sound().numbers_ascend());
        let spoil: [fn(&mut NodeRef); 4] = [
            |node| node.next_number = 0,
            |node| node.next_number = u64::MAX,
            |node| node.children[1].pending_from = 2,
            |node| {
                node.runs.push(BufferRef {
                    number: 0,
                    parts: Vec::new(),
                    ranges: RangeSet::new(Vec::new()),
                });
            },
        ];
        for spoil in spoil {
            let mut node = sound();
            spoil(&mut node);
            assert!(!node.numbers_ascend());
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
