//! The formats on disk for the fuzz targets of `crates/fuzz`. Nothing else uses it.

use std::ops::Range;

use frond_kv::operation;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::block::{BLOCK_HEADER_BYTES, BlockForm, DATA_FILE, Place, seal_block};
use crate::bytes::Reader;
use crate::disk::ALIGNMENT;
use crate::free_map::FreeMap;
use crate::log;
use crate::manifest::{Manifest, SUPERBLOCK_COPY_BYTES, parse_page};
use crate::node::NodeRef;
use crate::page::Page;
use crate::run_index::RunIndex;
use crate::{Kind, filter};

/// Decodes bytes, and reads what is decoded.
pub type Decoder = fn(&[u8]);

/// The decoders of payloads by name. No bytes make one of them panic.
pub const DECODERS: &[(&str, Decoder)] = &[
    ("page", page),
    ("run_index", run_index),
    ("filter", |bytes| {
        filter::may_contain(bytes, filter::hash(b"key"));
    }),
    ("node", |bytes| {
        if let Some(node) = NodeRef::parse(bytes) {
            node.pivots_ascend();
        }
    }),
    ("tree_page", |bytes| {
        parse_page(bytes);
    }),
    ("manifest", manifest),
    ("free_map", free_map),
    ("operations", |bytes| {
        if operation::is_sound(bytes) {
            let decoded = operation::decode(bytes).count() as u64;
            assert_eq!(operation::numbers_of(bytes), decoded.max(1));
            let (ordinary, stamp) = operation::with_stamps(bytes);
            assert!(operation::is_sound(&ordinary));
            assert_eq!(operation::decode(&ordinary).count() as u64, decoded);
            assert_eq!(stamp.is_none(), ordinary.len() == bytes.len());
        }
    }),
    ("block", block),
];

fn page(bytes: &[u8]) {
    let Ok(page) = Page::decode(bytes) else {
        return;
    };
    for index in 0..page.count() {
        let (kind, _) = page.message(index);
        assert_eq!(Kind::from_byte(kind.to_byte()), Some(kind));
        page.search(page.key(index));
    }
    page.search(bytes);
}

/// The first eight bytes are the number of pages and their end, which a run's reference has.
fn run_index(bytes: &[u8]) {
    let mut reader = Reader(bytes);
    let (Some(pages), Some(end)) = (reader.u32(), reader.u32()) else {
        return;
    };
    let Some(index) = RunIndex::decode(reader.0, pages, end) else {
        return;
    };
    for page in 0..index.pages() {
        let (at, len) = index.block(page);
        assert!(at + len <= end);
        assert!(index.page_of(index.separator(page)) < index.pages());
    }
}

fn manifest(bytes: &[u8]) {
    if let Some(manifest) = Manifest::parse(bytes) {
        assert_eq!(manifest.encode(), bytes);
    }
}

fn free_map(bytes: &[u8]) {
    if let Some(map) = FreeMap::parse(bytes) {
        assert_eq!(FreeMap::parse(&map.encode()).as_ref(), Some(&map));
        map.used();
    }
}

/// A block with a checksum that is right.
fn block(bytes: &[u8]) {
    let mut block = vec![0; 8];
    block.extend_from_slice(bytes);
    seal_block(&mut block, 0);
    let decoded = BlockForm::default().decode(&block, Place::new(0, 0), <[u8]>::len);
    let is_short = block.len() < BLOCK_HEADER_BYTES;
    assert!(!is_short || decoded.is_err());
}

/// A part of a file that carries a checksum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed(Part);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Superblock(usize),
    Block(Range<usize>),
    Log(log::Unit),
}

impl Sealed {
    /// The sound parts of a store's file.
    pub fn find(name: &str, bytes: &[u8]) -> Vec<Sealed> {
        let parts: Vec<Part> = if name == DATA_FILE {
            data_parts(bytes)
        } else {
            let units = log::units(name, bytes).into_iter();
            units.map(Part::Log).collect()
        };
        parts.into_iter().map(Sealed).collect()
    }

    /// Where it is in the file.
    pub fn range(&self) -> Range<usize> {
        match &self.0 {
            Part::Superblock(at) => *at..at + SUPERBLOCK_COPY_BYTES,
            Part::Block(range) => range.clone(),
            Part::Log(unit) => log::unit_place(unit),
        }
    }

    /// Computes its checksum again, after its bytes were changed.
    pub fn seal(&self, bytes: &mut [u8]) {
        match &self.0 {
            Part::Superblock(at) => {
                let Some(copy) = bytes.get_mut(*at..at + SUPERBLOCK_COPY_BYTES) else {
                    return;
                };
                let (fields, checksum) = copy.split_at_mut(SUPERBLOCK_COPY_BYTES - 8);
                checksum.copy_from_slice(&xxh3_64(fields).to_le_bytes());
            }
            Part::Block(range) => {
                if let Some(block) = bytes.get_mut(range.clone()) {
                    seal_block(block, range.start as u64);
                }
            }
            Part::Log(unit) => {
                log::seal_unit(bytes, unit);
            }
        }
    }
}

fn data_parts(bytes: &[u8]) -> Vec<Part> {
    let mut found = Vec::new();
    for at in (0..2 * ALIGNMENT).step_by(SUPERBLOCK_COPY_BYTES) {
        let copy = bytes.get(at..at + SUPERBLOCK_COPY_BYTES);
        if copy.is_some_and(|copy| copy.iter().any(|byte| *byte != 0)) {
            found.push(Part::Superblock(at));
        }
    }
    for start in (2 * ALIGNMENT..bytes.len()).step_by(ALIGNMENT) {
        let mut at = start;
        // The pages of a run follow each other.
        while let Some(len) = block_len(bytes, at) {
            found.push(Part::Block(at..at + len));
            at += len;
        }
    }
    found
}

/// The length of the block at `at`, of which only its reference knows: where its checksum is right.
fn block_len(bytes: &[u8], at: usize) -> Option<usize> {
    const LEN_MAX: usize = 64 << 10;
    let checksum = Reader(bytes.get(at..)?).u64()?;
    let mut hash = Xxh3::with_seed(at as u64);
    if checksum == 0 {
        return None;
    }
    let rest = bytes.get(at + 8..)?;
    for (index, byte) in rest.iter().take(LEN_MAX).enumerate() {
        hash.update(std::slice::from_ref(byte));
        if hash.digest() == checksum {
            return Some(8 + index + 1);
        }
    }
    None
}
