//! Frames in the buffer of an encrypted log. FORMAT.md describes them.
//!
//! In place of a frame the half of a buffer has the encrypted checksum of the frame before and the encrypted payload. Its
//! entry has the tag, and nothing that depends on the payload besides its length.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use frond_encryption::{Ciphers, SEAL_BYTES};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::buffer_entry::Entry;
use super::frame::Frame;
use crate::bytes::Reader;

/// Size of an entry in bytes.
pub(super) const ENTRY_BYTES: usize = 8 + FIELDS_BYTES + SEAL_BYTES;
const FIELDS_BYTES: usize = 24;
/// Before a payload is the checksum of the one before it.
pub(super) const PREVIOUS_BYTES: usize = 8;

/// More memory is given back when the frames are in a segment.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// The part of a buffer that only an encrypted store has.
pub(super) struct Sealing {
    ciphers: Arc<Ciphers>,
    /// The frames as a group has them.
    pub(super) frames: Vec<u8>,
    /// Bytes of the half that stored frames take.
    pub(super) stored: usize,
    /// A frame while it is encrypted.
    scratch: Vec<u8>,
}

impl Sealing {
    pub(super) fn new(ciphers: &Arc<Ciphers>) -> Sealing {
        Sealing {
            ciphers: ciphers.clone(),
            frames: Vec::new(),
            stored: 0,
            scratch: Vec::new(),
        }
    }

    /// Forgets the frames, and the memory of many.
    pub(super) fn clear(&mut self) {
        self.frames.clear();
        self.frames.shrink_to(KEPT_BYTES_MAX);
        self.scratch.shrink_to(KEPT_BYTES_MAX);
        self.stored = 0;
    }

    /// Adds a frame. Returns its stored form and its entry.
    pub(super) fn seal(
        &mut self,
        frame: &Frame<'_>,
        entry: &Entry,
        epoch: u64,
    ) -> (&[u8], [u8; ENTRY_BYTES]) {
        self.frames.extend_from_slice(&entry.len.to_le_bytes());
        self.scratch.clear();
        self.scratch
            .extend_from_slice(&entry.previous.to_le_bytes());
        for part in frame.parts() {
            self.frames.extend_from_slice(part);
            self.scratch.extend_from_slice(part);
        }
        let mut bytes = [0; ENTRY_BYTES];
        let (fields, seal) = bytes[8..].split_at_mut(FIELDS_BYTES);
        fields[..8].copy_from_slice(&entry.position.to_le_bytes());
        fields[8..16].copy_from_slice(&entry.sequence.to_le_bytes());
        fields[16..20].copy_from_slice(&entry.offset.to_le_bytes());
        fields[20..].copy_from_slice(&entry.len.to_le_bytes());
        seal.copy_from_slice(&self.ciphers.buffer.seal(fields, &mut self.scratch));
        let sum = xxh3_64_with_seed(&bytes[8..], epoch);
        bytes[..8].copy_from_slice(&sum.to_le_bytes());
        (&self.scratch, bytes)
    }
}

/// Decrypts the frames of a half, and appends their payloads to `payloads`, where `found` places them. The first entry that is not
/// complete ends what the half has. Older entries may follow it, whose frames newer ones have overwritten, so nothing is
/// decrypted in place.
pub(super) fn open(
    ciphers: &Ciphers,
    half: &[u8],
    epoch: u64,
    payloads: &mut Vec<u8>,
    found: &mut HashMap<u64, (Entry, Range<usize>)>,
) {
    let mut scratch = Vec::new();
    for entry in half.rchunks_exact(ENTRY_BYTES) {
        let Some(entry) = open_one(ciphers, half, entry, epoch, &mut scratch) else {
            return;
        };
        let start = payloads.len();
        payloads.extend_from_slice(&scratch[PREVIOUS_BYTES..]);
        found.insert(entry.position, (entry, start..payloads.len()));
    }
}

/// Decrypts the frame of an entry into `scratch`, after the checksum of the one before.
fn open_one(
    ciphers: &Ciphers,
    half: &[u8],
    entry: &[u8],
    epoch: u64,
    scratch: &mut Vec<u8>,
) -> Option<Entry> {
    let mut reader = Reader(entry);
    if reader.u64()? != xxh3_64_with_seed(reader.0, epoch) {
        return None;
    }
    let (fields, seal) = reader.0.split_at_checked(FIELDS_BYTES)?;
    let mut reader = Reader(fields);
    let (position, sequence) = (reader.u64()?, reader.u64()?);
    let (offset, len) = (reader.u32()?, reader.u32()?);
    let start = offset as usize;
    let end = start.checked_add(PREVIOUS_BYTES + len as usize)?;
    scratch.clear();
    scratch.extend_from_slice(half.get(start..end)?);
    let opened = ciphers.buffer.open(seal.first_chunk()?, fields, scratch);
    opened.ok()?;
    let (previous, payload) = scratch.split_first_chunk()?;
    Some(Entry {
        position,
        sequence,
        previous: u64::from_le_bytes(*previous),
        hash: xxh3_64(payload),
        offset,
        len,
    })
}
