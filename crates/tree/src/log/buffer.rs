//! The log's buffers: two halves of a mapped file, which survive when the process is killed. FORMAT.md describes it.
//!
//! Committers fill one half while the log thread writes the other one to a segment. A half holds frames as a group does,
//! from its start on, and an entry for each of them, from its end on. An entry has the position of its frame in the log, and
//! a checksum over all of this, so the order in which the bytes reach the file does not matter.
//!
//! The checksum is seeded with an epoch. Every time the log is opened begins a new one, before anything is
//! appended: a crash of the machine may shorten the log, and then frames of an earlier epoch could fit its end.

use std::collections::HashMap;

use frond_kv::operation::{is_sound, numbers_of};
use xxhash_rust::xxh3::xxh3_64;

use super::buffer_entry::{ENTRY_BYTES, Entry};
use super::frame::FRAME_HEADER_BYTES;
use super::frame::Frame;
use super::sealed_buffer::{self, Sealing};
use crate::block::needs_key;
use crate::bytes::{Reader, Writer};
use crate::disk::{Disk, DiskFile, SharedMap};
use crate::{Error, Result};

/// The name of the file.
pub(super) const BUFFER_FILE: &str = "log-buffer.frond";

/// The header is the first page of the file. It is not part of a mapping: it is written and synced once per epoch.
pub(super) const HEADER_PAGE: usize = 4096;
pub(super) const HEADER_BYTES: usize = 32;
const MAGIC: &[u8; 8] = b"FRONDLOG";
const LAYOUT: u32 = 1;
/// The layout of the file of an encrypted store.
const SEALED_LAYOUT: u32 = 2;
/// The sizes of a half in bytes that are possible.
const HALF_BYTES: std::ops::RangeInclusive<usize> = 4096..=64 << 20;
/// Bytes that are written at once when the file is made.
const ZEROS: usize = 1 << 20;

/// The header of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) half_bytes: usize,
    pub(super) epoch: u64,
    /// Whether the store is encrypted.
    pub(super) is_sealed: bool,
}

impl Header {
    fn encode(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend_from_slice(MAGIC);
        let layout = if self.is_sealed {
            SEALED_LAYOUT
        } else {
            LAYOUT
        };
        bytes.put_u32(layout);
        bytes.put_u32(self.half_bytes as u32);
        bytes.put_u64(self.epoch);
        bytes.put_u64(xxh3_64(&bytes));
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Header> {
        let (fields, checksum) = bytes.get(..HEADER_BYTES)?.split_at(HEADER_BYTES - 8);
        if xxh3_64(fields) != Reader(checksum).u64()? || !fields.starts_with(MAGIC) {
            return None;
        }
        let mut reader = Reader(fields.get(MAGIC.len()..)?);
        let layout = reader.u32()?;
        let half_bytes = reader.u32()? as usize;
        let epoch = reader.u64()?;
        let is_known = [LAYOUT, SEALED_LAYOUT].contains(&layout);
        let is_possible = is_known && HALF_BYTES.contains(&half_bytes);
        is_possible.then_some(Header {
            half_bytes,
            epoch,
            is_sealed: layout == SEALED_LAYOUT,
        })
    }
}

/// Bytes of this process, where files cannot be mapped.
struct InMemory(Vec<u8>);

impl SharedMap for InMemory {
    fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.0[offset..offset + bytes.len()].copy_from_slice(bytes);
    }
}

/// One of the two buffers.
pub(super) struct Buffer {
    map: Box<dyn SharedMap>,
    is_mapped: bool,
    /// If the store is encrypted.
    sealing: Option<Box<Sealing>>,
    epoch: u64,
    /// Bytes of frames, and how many there are.
    ///
    /// L7: frames from the start and entries from the end do not meet.
    bytes: usize,
    frames: usize,
    /// L8: frames follow each other in the log: positions without gaps, numbers ascend.
    last_sequence: u64,
    /// Position of the first frame, and number of its first operation.
    pub(super) position: u64,
    pub(super) sequence: u64,
}

impl Buffer {
    /// A buffer whose frames do not survive the process.
    pub(super) fn in_memory(half_bytes: usize) -> Buffer {
        Buffer::new(Box::new(InMemory(vec![0; half_bytes])), false, None, 0)
    }

    fn new(
        map: Box<dyn SharedMap>,
        is_mapped: bool,
        sealing: Option<Box<Sealing>>,
        epoch: u64,
    ) -> Buffer {
        Buffer {
            map,
            is_mapped,
            sealing,
            epoch,
            bytes: 0,
            frames: 0,
            last_sequence: 0,
            position: 0,
            sequence: 0,
        }
    }

    /// Whether the frames survive when the process is killed.
    pub(super) fn is_mapped(&self) -> bool {
        self.is_mapped
    }

    pub(super) fn is_empty(&self) -> bool {
        self.frames == 0
    }

    /// Bytes of the frames.
    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    /// The position after the last frame.
    pub(super) fn end(&self) -> u64 {
        self.position + self.bytes as u64
    }

    /// Number of the frames.
    pub(super) fn count(&self) -> usize {
        self.frames
    }

    /// The frames, as a group has them.
    pub(super) fn frames(&self) -> &[u8] {
        match &self.sealing {
            Some(sealing) => &sealing.frames,
            None => &self.map.bytes()[..self.bytes],
        }
    }

    /// Bytes of the half that frames take, the most that one takes besides its length, and the size of an entry.
    fn sizes(&self) -> (usize, usize, usize) {
        match &self.sealing {
            Some(sealing) => (
                sealing.stored,
                sealed_buffer::PREVIOUS_BYTES,
                sealed_buffer::ENTRY_BYTES,
            ),
            None => (self.bytes, 0, ENTRY_BYTES),
        }
    }

    /// Whether there is room for a frame.
    pub(super) fn has_room(&self, frame: &Frame<'_>) -> bool {
        let (stored, extra, entry) = self.sizes();
        let entries = (self.frames + 1) * entry;
        stored + frame.len() + extra + entries <= self.map.bytes().len()
    }

    /// Whether there would be room for a frame if this were empty.
    pub(super) fn could_hold(&self, frame: &Frame<'_>) -> bool {
        let (_, extra, entry) = self.sizes();
        frame.len() + extra + entry <= self.map.bytes().len()
    }

    /// Adds the frame at a position, for which there must be room. `previous` is the checksum of the payload before.
    pub(super) fn push(&mut self, frame: &Frame<'_>, position: u64, previous: u64) {
        if self.is_empty() {
            (self.position, self.sequence) = (position, frame.sequence);
        } else {
            assert!(
                position == self.end(),
                "L8: a frame does not begin where the one before ends"
            );
            assert!(
                frame.sequence > self.last_sequence,
                "L8: the numbers of frames do not ascend"
            );
        }
        assert!(self.has_room(frame), "L7: a buffer has no room for a frame");
        self.last_sequence = frame.sequence;
        let entry = Entry {
            position,
            sequence: frame.sequence,
            previous,
            hash: frame.hash,
            offset: self.sizes().0 as u32,
            len: frame.payload_len() as u32,
        };
        if self.sealing.is_some() {
            return self.push_sealed(frame, &entry);
        }
        self.map.write(self.bytes, &entry.len.to_le_bytes());
        self.bytes += FRAME_HEADER_BYTES;
        for part in frame.parts() {
            self.map.write(self.bytes, part);
            self.bytes += part.len();
        }
        self.frames += 1;
        let at = self.map.bytes().len() - self.frames * ENTRY_BYTES;
        assert!(
            at >= self.bytes,
            "L7: the entries of a buffer reach into its frames"
        );
        self.map.write(at, &entry.encode(self.epoch));
    }

    fn push_sealed(&mut self, frame: &Frame<'_>, entry: &Entry) {
        let Some(sealing) = &mut self.sealing else {
            return;
        };
        let (stored, bytes) = sealing.seal(frame, entry, self.epoch);
        self.map.write(entry.offset as usize, stored);
        let end = entry.offset as usize + stored.len();
        sealing.stored = end;
        self.bytes += frame.len();
        self.frames += 1;
        let at = self.map.bytes().len() - self.frames * sealed_buffer::ENTRY_BYTES;
        assert!(
            at >= end,
            "L7: the entries of a buffer reach into its frames"
        );
        self.map.write(at, &bytes);
    }

    /// Forgets the frames: they are in a segment.
    pub(super) fn clear(&mut self) {
        if let Some(sealing) = &mut self.sealing {
            sealing.clear();
        }
        (self.bytes, self.frames) = (0, 0);
    }
}

/// Makes the frames that are in the file durable.
pub(super) fn sync(disk: &dyn Disk) -> Result<()> {
    let file = disk.open(BUFFER_FILE, false);
    let synced = file.and_then(|file| file.sync());
    synced.map_err(Error::io(format!("syncing {BUFFER_FILE}")))
}

/// Whether the store has a buffer file that is not encrypted.
pub(super) fn is_plain(disk: &dyn Disk) -> Result<bool> {
    let context = || Error::io(format!("reading {BUFFER_FILE}"));
    if !is_there(disk).map_err(context())? {
        return Ok(false);
    }
    let file = disk.open(BUFFER_FILE, false).map_err(context())?;
    let header = read_header(&*file).map_err(context())?;
    Ok(header.is_some_and(|header| !header.is_sealed))
}

/// Makes or reuses the file, begins a new epoch, and maps both halves. What the last epoch left is in the segments.
/// If this fails, it removes the file, and the inner error is the reason.
pub(super) fn open(disk: &dyn Disk, half_bytes: usize) -> Result<Result<[Buffer; 2]>> {
    let opened = begin_epoch(disk, half_bytes);
    if opened.is_err() {
        // A log that goes on without the file must not meet its old frames later.
        remove(disk)?;
    }
    Ok(opened)
}

fn is_there(disk: &dyn Disk) -> std::io::Result<bool> {
    let names = disk.list()?;
    Ok(names.iter().any(|name| name == BUFFER_FILE))
}

/// Removes the file, durably.
pub(super) fn remove(disk: &dyn Disk) -> Result<()> {
    let context = || Error::io(format!("removing {BUFFER_FILE}"));
    if is_there(disk).map_err(context())? {
        disk.remove(BUFFER_FILE).map_err(context())?;
        disk.sync_directory().map_err(context())?;
    }
    Ok(())
}

fn begin_epoch(disk: &dyn Disk, half_bytes: usize) -> Result<[Buffer; 2]> {
    let context = || Error::io(format!("mapping {BUFFER_FILE}"));
    let size = (HEADER_PAGE + 2 * half_bytes) as u64;
    let open = || disk.open(BUFFER_FILE, false);
    let mut file = open().map_err(context())?;
    let old = read_header(&*file).unwrap_or(None);
    let len = file.len().map_err(context())?;
    let is_sealed = disk.ciphers().is_some();
    // A file of the other layout may have frames that are not encrypted.
    let is_usable = len == size
        && old.is_some_and(|old| old.half_bytes == half_bytes && old.is_sealed == is_sealed);
    // A copy of the store may have holes in place of zeros. A mapping of a hole on a full disk would end the process, and
    // so would one of a bad sector.
    let allocated = file.allocated().map_err(context())?;
    let has_holes = allocated.is_some_and(|bytes| bytes < size);
    if !is_usable || has_holes {
        if len > 0 {
            // Without a valid header the epochs of its frames are unknown, so none of them may stay.
            disk.remove(BUFFER_FILE).map_err(context())?;
            file = open().map_err(context())?;
        }
        make(disk, &*file, size).map_err(context())?;
    }
    let epoch = old.map_or(0, |old| old.epoch) + 1;
    let header = Header {
        half_bytes,
        epoch,
        is_sealed,
    };
    let header = header.encode();
    file.write_at(&header, 0).map_err(context())?;
    file.sync().map_err(context())?;
    let half = |index: usize| {
        let offset = (HEADER_PAGE + index * half_bytes) as u64;
        let map = disk.map(BUFFER_FILE, offset, half_bytes);
        let sealing = disk
            .ciphers()
            .map(|ciphers| Box::new(Sealing::new(ciphers)));
        Ok(Buffer::new(map.map_err(context())?, true, sealing, epoch))
    };
    Ok([half(0)?, half(1)?])
}

/// Fills a new file with zeros and makes it durable, so that its blocks are allocated: a mapping cannot report that the
/// disk is full.
fn make(disk: &dyn Disk, file: &dyn DiskFile, size: u64) -> std::io::Result<()> {
    let zeros = vec![0; ZEROS.min(size as usize)];
    // Where files cannot be mapped, the rest would be written in vain.
    file.write_at(&zeros[..HEADER_PAGE], 0)?;
    drop(disk.map(BUFFER_FILE, 0, HEADER_PAGE)?);
    let mut at = HEADER_PAGE as u64;
    while at < size {
        let part = (size - at).min(zeros.len() as u64);
        file.write_at(&zeros[..part as usize], at)?;
        at += part;
    }
    file.sync()?;
    disk.sync_directory()
}

fn read_header(file: &dyn DiskFile) -> std::io::Result<Option<Header>> {
    if file.len()? < HEADER_BYTES as u64 {
        return Ok(None);
    }
    let mut bytes = [0; HEADER_BYTES];
    file.read_at(&mut bytes, 0)?;
    Ok(Header::decode(&bytes))
}

/// The error of a part that cannot be read. The system may be able to read it later, so the store does not open without it.
fn unreadable(error: std::io::Error) -> Error {
    let context = format!(
        "reading {BUFFER_FILE}, which may hold commits that are nowhere else (without the file the store opens, and \
         these commits are lost)"
    );
    Error::io(context)(error)
}

/// The frames that a replay finds in the file.
#[derive(Default)]
pub(super) struct Found {
    /// The bytes of both halves, or of the payloads in an encrypted file.
    bytes: Vec<u8>,
    /// The complete frames by their positions, and where their payloads are in `bytes`. Within an epoch there is
    /// one frame for a position.
    frames: HashMap<u64, (Entry, std::ops::Range<usize>)>,
}

impl Found {
    /// Reads the file, if there is one.
    pub(super) fn read(disk: &dyn Disk) -> Result<Found> {
        let context = || Error::io(format!("reading {BUFFER_FILE}"));
        if !is_there(disk).map_err(context())? {
            return Ok(Found::default());
        }
        let file = disk.open(BUFFER_FILE, false).map_err(context())?;
        let Some(header) = read_header(&*file).map_err(unreadable)? else {
            return Ok(Found::default());
        };
        let size = 2 * header.half_bytes;
        if file.len().map_err(context())? < (HEADER_PAGE + size) as u64 {
            return Ok(Found::default());
        }
        let mut bytes = vec![0; size];
        file.read_at(&mut bytes, HEADER_PAGE as u64)
            .map_err(unreadable)?;
        let mut frames = HashMap::new();
        if header.is_sealed {
            let ciphers = disk.ciphers().ok_or_else(needs_key)?;
            let mut payloads = Vec::new();
            for half in bytes.chunks_exact(header.half_bytes) {
                sealed_buffer::open(ciphers, half, header.epoch, &mut payloads, &mut frames);
            }
            return Ok(Found {
                bytes: payloads,
                frames,
            });
        }
        if disk
            .ciphers()
            .is_some_and(|ciphers| !ciphers.accepts_plain())
        {
            return Err(Error::Corrupt {
                file: BUFFER_FILE.to_owned(),
                offset: 0,
                what: "the buffer of the log is not encrypted, but the store is",
            });
        }
        for (index, half) in bytes.chunks_exact(header.half_bytes).enumerate() {
            for entry in half.rchunks_exact(ENTRY_BYTES) {
                // The first entry that is not complete ends what this half has.
                let Some(entry) = Entry::decode(entry, header.epoch) else {
                    break;
                };
                let Some(payload) = payload(half, &entry) else {
                    break;
                };
                let base = index * header.half_bytes;
                let range = base + payload.start..base + payload.end;
                frames.insert(entry.position, (entry, range));
            }
        }
        Ok(Found { bytes, frames })
    }

    /// The frames that continue a log: position and number of the first operation, then the payload. `sequence` and
    /// `last`, the checksum of the payload before, are compared if they are known.
    ///
    /// # Errors
    /// If a complete frame cannot be decoded.
    pub(super) fn after(
        &self,
        mut position: u64,
        mut sequence: Option<u64>,
        mut last: Option<u64>,
    ) -> Result<Vec<(u64, u64, &[u8])>> {
        let mut found = Vec::new();
        loop {
            let next = self.frames.get(&position).filter(|(entry, _)| {
                sequence.is_none_or(|sequence| sequence == entry.sequence)
                    && last.is_none_or(|last| entry.previous == 0 || last == entry.previous)
            });
            let Some((entry, range)) = next else {
                return Ok(found);
            };
            let payload = &self.bytes[range.clone()];
            if !is_sound(payload) {
                return Err(Error::Corrupt {
                    file: BUFFER_FILE.to_owned(),
                    offset: (HEADER_PAGE + range.start) as u64,
                    what: "a frame of the log is malformed",
                });
            }
            found.push((entry.position, entry.sequence, payload));
            position += (FRAME_HEADER_BYTES + payload.len()) as u64;
            sequence = Some(entry.sequence + numbers_of(payload));
            last = Some(entry.hash);
        }
    }
}

/// Where the payload of a frame is in its half, if it is complete.
fn payload(half: &[u8], entry: &Entry) -> Option<std::ops::Range<usize>> {
    let start = entry.offset as usize;
    let mut reader = Reader(half.get(start..)?);
    if reader.u32()? != entry.len || xxh3_64(reader.bytes(entry.len as usize)?) != entry.hash {
        return None;
    }
    let start = start + FRAME_HEADER_BYTES;
    Some(start..start + entry.len as usize)
}
