//! The stored forms of superblocks, of the manifest, and of pages of trees. FORMAT.md describes them.

use std::sync::Arc;

use frond_encryption::Ciphers;
use frond_kv::EntryId;
use frond_kv::operation::{OPTIONS_BYTES, decode_options, encode_options};
use xxhash_rust::xxh3::xxh3_64;

use crate::block::{has_no_key, needs_key};
use crate::bytes::{Reader, Writer};
use crate::data_file::{DataFile, corrupt};
use crate::disk::{ALIGNMENT, AlignedBuf};
use crate::log::CommitPoint;
use crate::metadata::Copies;
use crate::node::{Encoder, Form, SubtreeRef, encode_subtree};
use crate::version::TreePage;
use crate::{Result, TreeId, TreeOptions};

pub(crate) const MAGIC: &[u8; 8] = b"FRONDTRE";
/// Incremented when older code cannot read the format any more, or when this code cannot read what older code wrote. A store with
/// another version is refused and left as it is.
pub(crate) const FORMAT_VERSION: u32 = 1;
/// A superblock is stored twice in its slot, so that one copy may be damaged.
pub(crate) const SUPERBLOCK_COPY_BYTES: usize = ALIGNMENT / 2;

/// Numbers of a position are below this: later ones, which are counted from there, do not overflow.
const NUMBER_MAX: u64 = 1 << 63;

/// Set in a manifest whose map has only space as used that something refers to.
const FLAG_EXACT: u8 = 1;

/// The numbers that a checkpoint records besides the trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Position {
    /// The position at which a replay of the log starts. K3: it only grows from one checkpoint to the next, as `sequence` and `next_tree` do.
    pub(crate) log_start: u64,
    /// The last sequence number of the commits before `log_start`: the log goes on with the next one. Those of later commits
    /// are used again if a crash loses them.
    pub(crate) sequence: u64,
    /// The next id of a tree.
    pub(crate) next_tree: u32,
    /// With the log from `log_start` to here or further the checkpoint is a state that there was: it has
    /// the trees of all commits up to here, and their bulk loads. K4: it is at `log_start` or behind.
    pub(crate) complete_at: u64,
    /// The last stamp of the commits before `log_start`, as far as it is known.
    pub(crate) last_stamp: u64,
}

/// The stored form of a page of trees.
pub(crate) fn encode_page(page: &TreePage) -> Vec<u8> {
    assert!(
        !page.trees().is_empty(),
        "V4: a page without trees is written"
    );
    Encoder::encode(|encoder| {
        encoder.put_count(page.trees().len());
        for (id, tree) in page.trees() {
            encoder.out.put_u32(id.0);
            encode_options(&tree.options, &mut encoder.out);
            encoder.out.push(u8::from(tree.loading));
            encode_subtree(&tree.root, encoder);
        }
    })
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
    let (form, count) = Form::split(reader.u32()?);
    for _ in 0..count {
        trees.push(TreeRef {
            id: TreeId(reader.u32()?),
            options: decode_options(reader.bytes(OPTIONS_BYTES)?)?,
            loading: match reader.u8()? {
                0 => false,
                1 => true,
                _ => return None,
            },
            root: SubtreeRef::parse(&mut reader, form)?,
        });
    }
    reader.0.is_empty().then_some(trees)
}

/// A reference to a page of trees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PageRef {
    /// The ids of its trees without their low 8 bits.
    pub(crate) number: u32,
    pub(crate) copies: Copies,
}

/// A reference to a page of trees that could not be read when the checkpoint was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LostRef {
    pub(crate) page: PageRef,
    /// Trees with this id or a higher one are not in it.
    pub(crate) until: u32,
    /// Trees that were dropped since.
    pub(crate) dropped: Vec<TreeId>,
}

/// The manifest that a superblock refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) position: Position,
    /// The name of the store's history.
    pub(crate) store_id: [u8; 16],
    /// The map of the free space.
    pub(crate) free_map: Copies,
    /// Whether all that the map has as used is referred to.
    pub(crate) is_exact: bool,
    pub(crate) pages: Vec<PageRef>,
    pub(crate) lost: Vec<LostRef>,
    /// The commit point of the replica set, if the store belongs to a member.
    pub(crate) point: Option<CommitPoint>,
}

impl Manifest {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u64(self.position.log_start);
        out.put_u64(self.position.sequence);
        out.put_u32(self.position.next_tree);
        out.put_u64(self.position.complete_at);
        out.put_u64(self.position.last_stamp);
        out.extend_from_slice(&self.store_id);
        out.push(if self.is_exact { FLAG_EXACT } else { 0 });
        encode_copies(&self.free_map, &mut out);
        out.put_u32(self.pages.len() as u32);
        for page in &self.pages {
            out.put_u32(page.number);
            encode_copies(&page.copies, &mut out);
        }
        out.put_u32(self.lost.len() as u32);
        for lost in &self.lost {
            out.put_u32(lost.page.number);
            encode_copies(&lost.page.copies, &mut out);
            out.put_u32(lost.until);
            out.put_u32(lost.dropped.len() as u32);
            lost.dropped.iter().for_each(|tree| out.put_u32(tree.0));
        }
        if let Some(point) = &self.point {
            encode_point(point, &mut out);
        }
        out
    }

    /// `None` if the bytes are malformed.
    pub(crate) fn parse(payload: &[u8]) -> Option<Manifest> {
        let mut reader = Reader(payload);
        let position = Position {
            log_start: reader.u64()?,
            sequence: reader.u64()?,
            next_tree: reader.u32()?,
            complete_at: reader.u64()?,
            last_stamp: reader.u64()?,
        };
        let store_id = reader.bytes(16)?.try_into().ok()?;
        let is_exact = match reader.u8()? {
            0 => false,
            FLAG_EXACT => true,
            _ => return None,
        };
        let free_map = parse_copies(&mut reader)?;
        let mut pages = Vec::new();
        for _ in 0..reader.u32()? {
            let number = reader.u32()?;
            let copies = parse_copies(&mut reader)?;
            pages.push(PageRef { number, copies });
        }
        let mut lost = Vec::new();
        for _ in 0..reader.u32()? {
            let number = reader.u32()?;
            let copies = parse_copies(&mut reader)?;
            let until = reader.u32()?;
            let mut dropped = Vec::new();
            for _ in 0..reader.u32()? {
                dropped.push(TreeId(reader.u32()?));
            }
            lost.push(LostRef {
                page: PageRef { number, copies },
                until,
                dropped,
            });
        }
        let point = if reader.0.is_empty() {
            None
        } else {
            Some(parse_point(&mut reader)?)
        };
        let manifest = Manifest {
            position,
            store_id,
            free_map,
            is_exact,
            pages,
            lost,
            point,
        };
        let numbers = [position.log_start, position.sequence, position.complete_at];
        let is_possible = numbers.iter().all(|number| *number < NUMBER_MAX);
        (reader.0.is_empty() && is_possible).then_some(manifest)
    }
}

fn encode_point(point: &CommitPoint, out: &mut Vec<u8>) {
    let put = |id: &EntryId, out: &mut Vec<u8>| {
        out.put_u64(id.term);
        out.put_u64(id.index);
    };
    put(&point.id, out);
    out.put_u64(point.to);
    if let Some((id, note)) = &point.note {
        put(id, out);
        out.put_u32(note.len() as u32);
        out.extend_from_slice(note);
    }
}

fn parse_point(reader: &mut Reader<'_>) -> Option<CommitPoint> {
    let id = |reader: &mut Reader<'_>| {
        Some(EntryId {
            term: reader.u64()?,
            index: reader.u64()?,
        })
    };
    let (committed, to) = (id(reader)?, reader.u64()?);
    let note = if reader.0.is_empty() {
        None
    } else {
        let id = id(reader)?;
        let len = reader.u32()? as usize;
        Some((id, reader.bytes(len)?.into()))
    };
    Some(CommitPoint {
        id: committed,
        to,
        note,
    })
}

fn encode_copies(copies: &Copies, out: &mut Vec<u8>) {
    assert!(
        copies.have_places(),
        "K5: two copies of a block have one place"
    );
    out.put_u64(copies.at[0]);
    out.put_u64(copies.at[1]);
    out.put_u32(copies.len);
    out.put_u64(copies.birth);
}

fn parse_copies(reader: &mut Reader<'_>) -> Option<Copies> {
    let copies = Copies {
        at: [reader.u64()?, reader.u64()?],
        len: reader.u32()?,
        birth: reader.u64()?,
    };
    copies.have_places().then_some(copies)
}

/// Set in the version of an encrypted store.
pub(crate) const IS_ENCRYPTED: u32 = 1 << 31;
/// The fields of an encrypted store's superblock that its seal covers, which follows them.
const SEALED_FIELDS_BYTES: usize = 48;

/// A superblock that was read.
pub(crate) struct Superblock {
    pub(crate) generation: u64,
    pub(crate) manifest: Copies,
}

/// The bytes of a superblock's slot.
pub(crate) fn encode_superblock(
    generation: u64,
    manifest: &Copies,
    ciphers: Option<&Arc<Ciphers>>,
) -> AlignedBuf {
    let mut copy = Vec::with_capacity(SUPERBLOCK_COPY_BYTES);
    copy.extend_from_slice(MAGIC);
    copy.put_u32(version(ciphers));
    copy.put_u32(manifest.len);
    copy.put_u64(generation);
    copy.put_u64(manifest.at[0]);
    copy.put_u64(manifest.at[1]);
    if let Some(ciphers) = ciphers {
        copy.put_u64(manifest.birth);
        let seal = ciphers.superblock.seal(&copy, &mut []);
        copy.extend_from_slice(&seal);
    }
    copy.resize(SUPERBLOCK_COPY_BYTES - 8, 0);
    copy.put_u64(xxh3_64(&copy));
    let mut slot = AlignedBuf::with_capacity(ALIGNMENT);
    slot.extend_from_slice(&copy);
    slot.extend_from_slice(&copy);
    assert!(
        slot.len() == ALIGNMENT,
        "K1: a superblock does not fill its slot"
    );
    slot
}

/// A superblock from one of its copies, which is returned with its version.
fn parse_superblock(copy: &[u8]) -> Option<((u32, &[u8]), Superblock)> {
    let mut reader = Reader(copy);
    let magic = reader.bytes(8)?;
    let version = reader.u32()?;
    let len = reader.u32()?;
    let generation = reader.u64()?;
    let at = [reader.u64()?, reader.u64()?];
    let birth = match version & IS_ENCRYPTED {
        0 => generation.saturating_sub(1),
        _ => reader.u64()?,
    };
    let (fields, checksum) = copy.split_at_checked(SUPERBLOCK_COPY_BYTES - 8)?;
    (Reader(checksum).u64()? == xxh3_64(fields) && magic == MAGIC).then_some((
        (version, copy),
        Superblock {
            generation,
            manifest: Copies { at, len, birth },
        },
    ))
}

/// Reads one of the superblocks; `None` if both of its copies are damaged.
pub(crate) fn read_superblock(data: &DataFile, slot: u64) -> Result<Option<Superblock>> {
    let mut buffer = AlignedBuf::with_capacity(ALIGNMENT);
    data.read(slot * ALIGNMENT as u64, ALIGNMENT, &mut buffer)?;
    let copies = buffer[..ALIGNMENT].chunks(SUPERBLOCK_COPY_BYTES);
    let newest = copies
        .filter_map(parse_superblock)
        .max_by_key(|(_, superblock)| superblock.generation);
    let unknown = || {
        let what = "the store was written in a format that this version does not support";
        corrupt(slot * ALIGNMENT as u64, what)
    };
    let ciphers = data.form.ciphers();
    let check = |found: u32| match (found & IS_ENCRYPTED != 0, ciphers) {
        _ if found & !IS_ENCRYPTED != FORMAT_VERSION => Err(unknown()),
        (true, None) => Err(needs_key()),
        (false, Some(ciphers)) if !ciphers.accepts_plain() => Err(has_no_key()),
        _ => Ok(()),
    };
    match newest {
        Some(((version, copy), superblock)) => {
            check(version)?;
            if let Some(ciphers) = ciphers.filter(|_| version & IS_ENCRYPTED != 0) {
                check_seal(ciphers, copy, slot)?;
            }
            Ok(Some(superblock))
        }
        None => {
            // Other versions have their checksum elsewhere.
            let mut reader = Reader(&buffer);
            let is_ours = reader.bytes(8) == Some(MAGIC);
            match reader.u32() {
                Some(version) if is_ours && version & !IS_ENCRYPTED != FORMAT_VERSION => {
                    Err(unknown())
                }
                _ => Ok(None),
            }
        }
    }
}

/// The version in a superblock.
fn version(ciphers: Option<&Arc<Ciphers>>) -> u32 {
    match ciphers {
        Some(_) => FORMAT_VERSION | IS_ENCRYPTED,
        None => FORMAT_VERSION,
    }
}

/// Fails unless a copy of a superblock was written with a key of the store.
fn check_seal(ciphers: &Ciphers, copy: &[u8], slot: u64) -> Result<()> {
    let at = slot * ALIGNMENT as u64;
    let (fields, rest) = copy.split_at(SEALED_FIELDS_BYTES);
    let seal = rest.first_chunk().expect("a copy is longer than its seal");
    let opened = ciphers.superblock.open(seal, fields, &mut []);
    opened.map_err(|error| match error {
        frond_encryption::Error::UnknownKey(_) => {
            let what = "a superblock was written with a key that the key store does not have";
            corrupt(at, what)
        }
        _ => corrupt(at, "a superblock was changed, or written with another key"),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_a_block_in_one_place_are_damage() {
        let copies = Copies {
            at: [4096, 8192],
            len: 10,
            birth: 1,
        };
        let mut bytes = Vec::new();
        encode_copies(&copies, &mut bytes);
        assert_eq!(parse_copies(&mut Reader(&bytes)), Some(copies));
        bytes.copy_within(0..8, 8);
        assert_eq!(parse_copies(&mut Reader(&bytes)), None);
    }
}
