//! Checkpoints: a manifest of all trees, and two superblocks that alternate.
//!
//! A checkpoint writes the internal nodes and tree pages that are not on disk yet and a manifest, syncs, overwrites the
//! older of the two superblocks, and syncs again. Nothing that the newer superblock refers to is overwritten before that.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use crate::bytes::{Reader, Writer};
use crate::data_file::{DATA_FILE, DataFile, corrupt};
use crate::disk::{ALIGNMENT, AlignedBuf};
use crate::fail_stop::{FailStop, step};
use crate::node::{Decoder, NodeWriter, StoredNode, SubtreeRef, encode_subtree};
use crate::operation::{OPTIONS_BYTES, decode_options, encode_options};
use crate::run::RunStore;
use crate::space::Extent;
use crate::version::{Tree, TreePage, Trees};
use crate::{Error, Result, TreeId, TreeOptions};

const MAGIC: &[u8; 8] = b"FRONDTRE";
/// Incremented when older code cannot read the format any more.
const FORMAT_VERSION: u32 = 3;
/// The oldest version that is read. Pages of version 2 have no templates.
const FORMAT_VERSION_MIN: u32 = 2;
/// A superblock is stored twice in its slot, so that one copy may be damaged.
pub(crate) const SUPERBLOCK_COPY_BYTES: usize = ALIGNMENT / 2;

/// What a checkpoint records besides the trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Position {
    /// Where a replay of the log starts.
    pub(crate) log_start: u64,
    /// Every sequence number in the trees is at most this.
    pub(crate) sequence: u64,
    /// The next id of a tree.
    pub(crate) next_tree: u32,
}

/// Writes checkpoints.
pub(crate) struct Checkpointer {
    store: Arc<RunStore>,
    generation: u64,
    /// The manifest that the durable superblock names.
    manifest: Option<Arc<Extent>>,
    /// The manifests of superblocks whose write failed: they may be on disk all the same.
    unconfirmed: Vec<Arc<Extent>>,
}

impl Checkpointer {
    /// A writer for a data file that has no checkpoint.
    pub(crate) fn new(store: &Arc<RunStore>) -> Checkpointer {
        Checkpointer {
            store: store.clone(),
            generation: 0,
            manifest: None,
            unconfirmed: Vec::new(),
        }
    }

    /// Makes `trees` durable.
    pub(crate) fn write(&mut self, trees: &Trees, position: Position) -> Result<()> {
        let writer = NodeWriter { store: &self.store };
        let data = &self.store.data;
        let mut manifest = Vec::new();
        manifest.put_u64(position.log_start);
        manifest.put_u64(position.sequence);
        manifest.put_u32(position.next_tree);
        manifest.put_u32(trees.pages().len() as u32);
        for page in trees.pages() {
            let (offset, len) = match page.stored.get() {
                Some(stored) => (stored.extent.offset, stored.len),
                None => {
                    for (_, tree) in page.trees() {
                        writer.write(&tree.root)?;
                    }
                    let stored = writer.write_block(&encode_page(page))?;
                    let place = (stored.extent.offset, stored.len);
                    // There is one checkpoint at a time, so nobody else sets this.
                    let _ = page.stored.set(stored);
                    place
                }
            };
            manifest.put_u64(offset);
            manifest.put_u32(len);
        }
        // The old manifest must not be reused before the new superblock is durable. So it is released
        // only now, after the releases that wait for this checkpoint were collected.
        data.space.checkpoint_captured();
        let stored = writer.write_block(&manifest)?;
        data.sync()?;

        // Counted only after a success: a retry must not overwrite the last durable superblock.
        let generation = self.generation + 1;
        let mut copy = Vec::with_capacity(SUPERBLOCK_COPY_BYTES);
        copy.extend_from_slice(MAGIC);
        copy.put_u32(FORMAT_VERSION);
        copy.put_u32(stored.len);
        copy.put_u64(generation);
        copy.put_u64(stored.extent.offset);
        copy.resize(SUPERBLOCK_COPY_BYTES - 8, 0);
        copy.put_u64(xxh3_64(&copy));
        let mut superblock = AlignedBuf::with_capacity(ALIGNMENT);
        superblock.extend_from_slice(&copy);
        superblock.extend_from_slice(&copy);
        // If the write fails, its superblock may still be found after a crash.
        self.unconfirmed.push(stored.extent.clone());
        let guard = FailStop::begin("writing a superblock");
        let written = data.write_raw(&superblock, generation % 2 * ALIGNMENT as u64);
        let durable = written.and_then(|()| data.sync());
        step("a superblock is written");
        if durable.is_ok() {
            self.generation = generation;
            self.manifest = Some(stored.extent);
            self.unconfirmed.clear();
            data.space.checkpoint_durable();
        }
        guard.finish();
        durable?;
        data.cut()
    }
}

/// The stored form of a page of trees.
fn encode_page(page: &TreePage) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_u32(page.trees().len() as u32);
    for (id, tree) in page.trees() {
        out.put_u32(id.0);
        encode_options(&tree.options, &mut out);
        out.push(u8::from(tree.loading));
        encode_subtree(&tree.root, &mut out);
    }
    out
}

/// A tree in its stored form, in a page of the manifest.
pub(crate) struct TreeRef {
    pub(crate) id: TreeId,
    pub(crate) options: TreeOptions,
    pub(crate) loading: bool,
    pub(crate) root: SubtreeRef,
}

/// The trees of a page; `None` if the bytes are malformed.
pub(crate) fn parse_page(payload: &[u8]) -> Option<Vec<TreeRef>> {
    let mut reader = Reader(payload);
    let mut trees = Vec::new();
    for _ in 0..reader.u32()? {
        trees.push(TreeRef {
            id: TreeId(reader.u32()?),
            options: decode_options(reader.bytes(OPTIONS_BYTES)?)?,
            loading: match reader.u8()? {
                0 => false,
                1 => true,
                _ => return None,
            },
            root: SubtreeRef::parse(&mut reader)?,
        });
    }
    reader.0.is_empty().then_some(trees)
}

/// The manifest that a superblock refers to.
pub(crate) struct Manifest {
    pub(crate) position: Position,
    /// Offset and length of the block of each page of trees.
    pub(crate) pages: Vec<(u64, u32)>,
}

impl Manifest {
    /// `None` if the bytes are malformed.
    pub(crate) fn parse(payload: &[u8]) -> Option<Manifest> {
        let mut reader = Reader(payload);
        let position = Position {
            log_start: reader.u64()?,
            sequence: reader.u64()?,
            next_tree: reader.u32()?,
        };
        let mut pages = Vec::new();
        for _ in 0..reader.u32()? {
            pages.push((reader.u64()?, reader.u32()?));
        }
        let manifest = Manifest { position, pages };
        reader.0.is_empty().then_some(manifest)
    }
}

/// A superblock that was read.
pub(crate) struct Superblock {
    pub(crate) generation: u64,
    pub(crate) manifest_at: u64,
    pub(crate) manifest_len: u32,
}

/// Reads one of the superblocks; `None` if both of its copies are damaged.
pub(crate) fn read_superblock(data: &DataFile, slot: u64) -> Result<Option<Superblock>> {
    let mut buffer = AlignedBuf::with_capacity(ALIGNMENT);
    data.read(slot * ALIGNMENT as u64, ALIGNMENT, &mut buffer)?;
    let read = |copy: &[u8]| {
        let mut reader = Reader(copy);
        let magic = reader.bytes(8)?;
        let version = reader.u32()?;
        let manifest_len = reader.u32()?;
        let (generation, manifest_at) = (reader.u64()?, reader.u64()?);
        let (fields, checksum) = copy.split_at_checked(SUPERBLOCK_COPY_BYTES - 8)?;
        (Reader(checksum).u64()? == xxh3_64(fields) && magic == MAGIC).then_some((
            version,
            Superblock {
                generation,
                manifest_at,
                manifest_len,
            },
        ))
    };
    let copies = buffer[..ALIGNMENT].chunks(SUPERBLOCK_COPY_BYTES);
    let newest = copies
        .filter_map(read)
        .max_by_key(|(_, superblock)| superblock.generation);
    let unknown = || {
        let what = "the store was written in a format that this version does not support";
        Err(corrupt(slot * ALIGNMENT as u64, what))
    };
    match newest {
        Some((FORMAT_VERSION_MIN..=FORMAT_VERSION, superblock)) => Ok(Some(superblock)),
        Some(_) => unknown(),
        None => {
            // Other versions have their checksum elsewhere.
            let mut reader = Reader(&buffer);
            let is_ours = reader.bytes(8) == Some(MAGIC);
            match reader.u32() {
                Some(FORMAT_VERSION_MIN..=FORMAT_VERSION) | None => Ok(None),
                Some(_) if is_ours => unknown(),
                Some(_) => Ok(None),
            }
        }
    }
}

/// What a store had at its last checkpoint.
pub(crate) struct Opened {
    pub(crate) checkpointer: Checkpointer,
    pub(crate) trees: Trees,
    pub(crate) position: Position,
}

/// Reads the newest checkpoint, or starts an empty store.
pub(crate) fn open(store: &Arc<RunStore>) -> Result<Opened> {
    let mut opened = Opened {
        checkpointer: Checkpointer::new(store),
        trees: Trees::default(),
        position: Position {
            next_tree: 1,
            ..Position::default()
        },
    };
    if store.data.len()? < 2 * ALIGNMENT as u64 {
        let mut zeros = AlignedBuf::with_capacity(2 * ALIGNMENT);
        zeros.resize(2 * ALIGNMENT);
        store.data.write_raw(&zeros, 0)?;
        store.data.sync()?;
        return Ok(opened);
    }
    // After a crash of the process alone, unsynced writes can be read but are not durable. The superblock
    // in use must be, because what only the other one refers to is overwritten from now on.
    store.data.sync()?;
    let slots = [
        read_superblock(&store.data, 0)?,
        read_superblock(&store.data, 1)?,
    ];
    let Some(newest) = slots
        .into_iter()
        .flatten()
        .max_by_key(|slot| slot.generation)
    else {
        // Before the first checkpoint is complete there are only superblocks, unless a crash interrupted
        // that checkpoint: then everything is still in the log. It writes the second superblock.
        let mut first = AlignedBuf::with_capacity(ALIGNMENT);
        store.data.read(0, ALIGNMENT, &mut first)?;
        if first.iter().any(|byte| *byte != 0) {
            return Err(corrupt(0, "both superblocks are damaged"));
        }
        return Ok(opened);
    };
    opened.checkpointer.generation = newest.generation;
    let manifest_at = newest.manifest_at;
    let mut decoder = Decoder::new(store);
    let (extent, payload) = decoder.block(manifest_at, newest.manifest_len)?;
    opened.checkpointer.manifest = Some(extent);
    let malformed = |at| corrupt(at, "the manifest is malformed");
    let manifest = Manifest::parse(&payload).ok_or_else(|| malformed(manifest_at))?;
    opened.position = manifest.position;
    for (at, len) in manifest.pages {
        let (extent, payload) = decoder.block(at, len)?;
        let mut trees = Vec::new();
        for tree in parse_page(&payload).ok_or_else(|| malformed(at))? {
            let root = decoder.subtree(tree.root, at, 0)?;
            let (options, loading) = (tree.options, tree.loading);
            let read = Tree {
                options,
                root,
                loading,
            };
            trees.push((tree.id, read));
        }
        let page = TreePage::new(trees, StoredNode { extent, len });
        if !page.is_some_and(|page| opened.trees.push_page(page)) {
            return Err(malformed(at));
        }
    }
    Ok(opened)
}

/// Fails if the data file is not one of a store.
pub(crate) fn check_magic(store: &RunStore) -> Result<()> {
    if store.data.len()? < 2 * ALIGNMENT as u64 {
        return Ok(());
    }
    let mut buffer = AlignedBuf::with_capacity(2 * ALIGNMENT);
    store.data.read(0, 2 * ALIGNMENT, &mut buffer)?;
    let ours = |slot: &[u8]| slot.starts_with(MAGIC) || slot.iter().all(|byte| *byte == 0);
    if buffer.chunks(ALIGNMENT).take(2).any(ours) {
        return Ok(());
    }
    Err(Error::Corrupt {
        file: DATA_FILE.to_owned(),
        offset: 0,
        what: "both superblocks are unreadable, or this is not a data file of a store",
    })
}
