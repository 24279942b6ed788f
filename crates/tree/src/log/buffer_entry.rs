//! The entries of the frames in a buffer of the log.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::bytes::Reader;

/// Size of an entry in bytes.
pub(super) const ENTRY_BYTES: usize = 48;

/// The entry of a frame in a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) position: u64,
    /// Number of its first operation.
    pub(super) sequence: u64,
    /// Checksum of the payload of the frame before it, or 0 if this is the first frame of the epoch. It binds
    /// the frame to the log that it continues.
    pub(super) previous: u64,
    /// Checksum of the payload.
    pub(super) hash: u64,
    /// Where the frame begins in the half.
    pub(super) offset: u32,
    /// Length of the payload.
    pub(super) len: u32,
}

impl Entry {
    pub(super) fn encode(&self, epoch: u64) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        let (checksum, fields) = bytes.split_at_mut(8);
        let numbers = [self.position, self.sequence, self.previous, self.hash];
        let (longs, shorts) = fields.split_at_mut(32);
        for (place, number) in longs.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        for (place, number) in shorts.chunks_exact_mut(4).zip([self.offset, self.len]) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        checksum.copy_from_slice(&xxh3_64_with_seed(fields, epoch).to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8], epoch: u64) -> Option<Entry> {
        let mut reader = Reader(bytes);
        let checksum = reader.u64()?;
        if xxh3_64_with_seed(reader.0, epoch) != checksum {
            return None;
        }
        Some(Entry {
            position: reader.u64()?,
            sequence: reader.u64()?,
            previous: reader.u64()?,
            hash: reader.u64()?,
            offset: reader.u32()?,
            len: reader.u32()?,
        })
    }
}
