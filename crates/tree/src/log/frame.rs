//! A frame: one commit in the log.
//!
//! Little-endian: XXH3-64 over the next 28 bytes (8 bytes), the position of the frame in the log (8), the sequence
//! number of its first operation (8), length of the payload (4), XXH3-64 of the payload (8), payload.
//! The position is covered by the checksum, so bytes of an older log are never taken for a frame.

use xxhash_rust::xxh3::xxh3_64;

use crate::bytes::{Reader, Writer};

/// Bytes in front of a payload.
pub(super) const HEADER_BYTES: usize = 36;

/// The checksum of a payload, taken before the commit lock.
pub(crate) fn checksum_payload(payload: &[u8]) -> u64 {
    xxh3_64(payload)
}

/// Appends a frame and returns its size.
pub(super) fn append(
    out: &mut Vec<u8>,
    position: u64,
    payload: &[u8],
    checksum: u64,
    sequence: u64,
) -> usize {
    let mut fields = Vec::with_capacity(HEADER_BYTES - 8);
    fields.put_u64(position);
    fields.put_u64(sequence);
    fields.put_u32(payload.len() as u32);
    fields.put_u64(checksum);
    out.put_u64(xxh3_64(&fields));
    out.extend_from_slice(&fields);
    out.extend_from_slice(payload);
    HEADER_BYTES + payload.len()
}

/// A frame as it was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    pub(super) sequence: u64,
    pub(super) payload: &'a [u8],
}

/// The length of the payload that a header at `position` announces, if it is a sound one.
pub(super) fn payload_len(header: &[u8], position: u64) -> Option<usize> {
    let mut reader = Reader(header);
    let checksum = reader.u64()?;
    if xxh3_64(header.get(8..HEADER_BYTES)?) != checksum || reader.u64()? != position {
        return None;
    }
    reader.u64()?;
    Some(reader.u32()? as usize)
}

/// The frame that stands at `position` with these bytes, if it is whole.
pub(super) fn decode(bytes: &[u8], position: u64) -> Option<Frame<'_>> {
    let len = payload_len(bytes, position)?;
    let mut reader = Reader(bytes.get(16..)?);
    let sequence = reader.u64()?;
    reader.u32()?;
    let checksum = reader.u64()?;
    let payload = reader.bytes(len)?;
    (xxh3_64(payload) == checksum).then_some(Frame { sequence, payload })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torn_flipped_and_misplaced_frames_are_refused() {
        let mut bytes = Vec::new();
        let len = append(&mut bytes, 77, b"payload", checksum_payload(b"payload"), 5);
        assert_eq!(len, bytes.len());
        assert_eq!(
            decode(&bytes, 77),
            Some(Frame {
                sequence: 5,
                payload: b"payload"
            })
        );
        assert_eq!(decode(&bytes, 78), None);
        for cut in 0..len {
            assert_eq!(decode(&bytes[..cut], 77), None);
        }
        for bit in 0..len * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&bytes, 77), None, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
