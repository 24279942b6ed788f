//! The parts of the log's files that carry a checksum, for fuzz targets, which change bytes below valid checksums.

use std::ops::Range;

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::frame::FRAME_HEADER_BYTES;
use super::{buffer, buffer_entry, group};
use crate::bytes::Reader;

/// A part that has a checksum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unit {
    /// A group of a segment: its header and its frames.
    Group(Range<usize>),
    /// The header of the buffer.
    BufferHeader,
    /// An entry of a half of the buffer: where the half and where the entry is.
    BufferEntry(Range<usize>, usize),
}

/// The sound parts of a file of the log.
pub(crate) fn units(name: &str, bytes: &[u8]) -> Vec<Unit> {
    if name == buffer::BUFFER_FILE {
        return buffer_units(bytes);
    }
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(header) = bytes.get(at..).and_then(group::Header::decode) {
        let end = at + group::HEADER_BYTES + header.stored_bytes as usize;
        if end > bytes.len() {
            break;
        }
        found.push(Unit::Group(at..end));
        at = end;
    }
    found
}

fn buffer_units(bytes: &[u8]) -> Vec<Unit> {
    let Some(header) = buffer::Header::decode(bytes) else {
        return Vec::new();
    };
    let mut found = vec![Unit::BufferHeader];
    for index in 0..2 {
        let start = buffer::HEADER_PAGE + index * header.half_bytes;
        let half = start..start + header.half_bytes;
        for number in 1..=header.half_bytes / buffer_entry::ENTRY_BYTES {
            let at = half.end - number * buffer_entry::ENTRY_BYTES;
            let entry = bytes.get(at..at + buffer_entry::ENTRY_BYTES);
            if entry.is_none_or(|entry| buffer_entry::Entry::decode(entry, header.epoch).is_none())
            {
                break;
            }
            found.push(Unit::BufferEntry(half.clone(), at));
        }
    }
    found
}

/// Computes the checksums of a part again.
pub(crate) fn seal(bytes: &mut [u8], unit: &Unit) -> Option<()> {
    match unit {
        Unit::Group(range) => {
            let group = bytes.get_mut(range.clone())?;
            let (header, frames) = group.split_at_mut_checked(group::HEADER_BYTES)?;
            let checksum = header.len() - 8;
            header[checksum..].copy_from_slice(&xxh3_64(frames).to_le_bytes());
            let sum = xxh3_64(&header[8..]);
            header[..8].copy_from_slice(&sum.to_le_bytes());
        }
        Unit::BufferHeader => {
            let header = bytes.get_mut(..buffer::HEADER_BYTES)?;
            let (fields, checksum) = header.split_at_mut(buffer::HEADER_BYTES - 8);
            checksum.copy_from_slice(&xxh3_64(fields).to_le_bytes());
        }
        Unit::BufferEntry(half, at) => {
            let epoch = Reader(bytes.get(16..)?).u64()?;
            let entry = bytes.get(*at..at + buffer_entry::ENTRY_BYTES)?;
            let mut place = Reader(&entry[40..]);
            let (offset, len) = (place.u32()? as usize, place.u32()? as usize);
            let start = half.start + offset + FRAME_HEADER_BYTES;
            // The entry may place its frame anywhere now.
            let hash = bytes.get(start..start + len).map(xxh3_64);
            let entry = bytes.get_mut(*at..at + buffer_entry::ENTRY_BYTES)?;
            if let Some(hash) = hash {
                entry[32..40].copy_from_slice(&hash.to_le_bytes());
            }
            let sum = xxh3_64_with_seed(&entry[8..], epoch);
            entry[..8].copy_from_slice(&sum.to_le_bytes());
        }
    }
    Some(())
}

/// Where a part is, to change it. Of an entry this is the entry, and of a group all of it.
pub(crate) fn place(unit: &Unit) -> Range<usize> {
    match unit {
        Unit::Group(range) => range.clone(),
        Unit::BufferHeader => 0..buffer::HEADER_BYTES,
        Unit::BufferEntry(_, at) => *at..at + buffer_entry::ENTRY_BYTES,
    }
}
