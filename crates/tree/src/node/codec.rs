//! Nodes as the data file holds them, their references not followed. FORMAT.md describes the encoding.

use std::sync::Arc;

use super::summary::Summary;
use crate::bytes::Reader;
use crate::data_file::block_extent;
use crate::range::{KeyRange, RangeSet};
use crate::run::RunInfo;

pub(super) const TAG_EMPTY: u8 = 0;
pub(super) const TAG_LEAF: u8 = 1;
pub(super) const TAG_INTERNAL: u8 = 2;

/// Set in the number of a node's children, or of a page's trees, if all keys in it have four bytes for their length: one of
/// them is long.
pub(super) const FLAG_LONG_KEYS: u32 = 1 << 31;

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

/// Bits of the flags of a reference to an internal node.
pub(super) const FLAG_PENDING: u8 = 1;
pub(super) const FLAG_MAX_KEY: u8 = 2;

/// Deeper trees than this are not built: 8 levels of the smallest fanout hold more than a disk.
pub(crate) const DEPTH_MAX: u32 = 64;

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

impl Summary {
    /// The summary of a stored node whose block has `len` bytes.
    pub(crate) fn of_stored(node: &NodeRef, len: u32) -> Summary {
        let mut summary = Summary::node();
        for child in &node.children {
            let below = match &child.subtree {
                SubtreeRef::Empty => Summary::default(),
                SubtreeRef::Leaf(run) => Summary::leaf(&run.info, run.len),
                SubtreeRef::Internal(node) => node.below.summary.clone(),
            };
            summary.add_child(&below, child.pending_bytes);
        }
        summary.has_pending |= !node.runs.is_empty();
        for part in node.runs.iter().flat_map(|run| &run.parts) {
            summary.add_part(&part.info, part.len);
        }
        summary.add_block(block_extent(len));
        summary
    }
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
