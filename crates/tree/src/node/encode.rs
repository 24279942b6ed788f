//! Writes nodes to the data file. FORMAT.md describes the encoding.

use std::sync::Arc;

use super::codec::{FLAG_LONG_KEYS, FLAG_MAX_KEY, FLAG_PENDING, TAG_EMPTY, TAG_INTERNAL, TAG_LEAF};
use super::handle::Stored;
use super::summary::Summary;
use super::{Internal, Subtree};
use crate::bytes::{SHORT_KEY_BYTES_MAX, Writer};
use crate::data_file::check_payload;
use crate::range::RangeSet;
use crate::run::{Run, RunStore};
use crate::space::Extent;
use crate::{Compression, Result};

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
        let data = &self.store.data;
        data.form.push(&mut block, Compression::Lz4, payload);
        let extent = data.write_new(&mut block, &[0], None)?;
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
