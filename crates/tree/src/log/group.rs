//! A group: frames that were written to the log with one call. FORMAT.md describes it.
//!
//! The checksum of the header covers the position of the group, so bytes of an older log are never mistaken
//! for a group. A frame is a length (4 bytes, little-endian) and a write set's payload.
//!
//! In the log of a member of a replica set each group is an entry of the replicated log. Its frames are preceded by a mark that
//! identifies the entry, and by the note of the entry. An entry without frames has a byte of padding in their place, so that no two
//! entries have one position.

use std::sync::Arc;

use frond_encryption::SEAL_BYTES;
use frond_kv::{EntryId, WRITE_SET_BYTES_MAX};
use xxhash_rust::xxh3::{Xxh3, xxh3_64, xxh3_64_with_seed};

use super::frame::{FRAME_HEADER_BYTES, Frame};
use crate::bytes::{Reader, Writer};
use crate::{Compression, compress};

/// Size of a group's header in bytes.
pub(super) const HEADER_BYTES: usize = 52;
/// The longest payload of a frame: a write set, the header of its last operation, and a stamp.
pub(super) const PAYLOAD_BYTES_MAX: usize = WRITE_SET_BYTES_MAX + 64;
/// The largest buffer of the log.
pub(super) const BUFFER_BYTES_MAX: usize = 8 << 20;
/// Upper bound on the bytes of frames in a group, checked before memory is reserved for them.
pub(super) const GROUP_BYTES_MAX: usize = BUFFER_BYTES_MAX + FRAME_HEADER_BYTES + PAYLOAD_BYTES_MAX;
/// Size of a mark in bytes.
pub(super) const MARK_BYTES: usize = 44;
/// The longest note of an entry.
pub(super) const NOTE_BYTES_MAX: usize = 1 << 20;
/// In the field of the codec: the group is an entry.
const IS_ENTRY: u32 = 1 << 8;
/// In the field of the codec: the group is encrypted.
const IS_SEALED: u32 = 1 << 9;
/// In place of frames.
const PADDING: [u8; 1] = [0];
/// Smaller groups are stored as they are, and so are larger ones, whose compressed copy would take much memory.
const COMPRESS_BYTES: std::ops::RangeInclusive<usize> = 513..=2 * BUFFER_BYTES_MAX;

/// The header of a group. G6: its sizes pass the checks of [`Header::decode`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// Position of the first frame.
    pub(super) position: u64,
    /// Everything before this position was durable when the group was written.
    pub(super) durable: u64,
    /// Sequence number of the first operation.
    pub(super) sequence: u64,
    /// Bytes of the frames, uncompressed.
    pub(super) bytes: u32,
    /// Bytes of the frames as stored.
    pub(super) stored_bytes: u32,
    pub(super) codec: Compression,
    /// Whether a mark and a note precede the frames. They are counted in `stored_bytes`.
    pub(super) is_entry: bool,
    /// Whether a seal precedes what is encrypted. It is counted in `stored_bytes`.
    pub(super) is_sealed: bool,
    /// Checksum of what follows the header.
    pub(super) checksum: u64,
}

/// Identifies a group as an entry of the replicated log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) id: EntryId,
    /// The term of the entry before; 0 if there is none.
    pub(super) previous_term: u64,
    /// Entries with lower numbers were committed by the replica set when the group was made.
    pub(super) committed: u64,
    pub(super) note_bytes: u32,
}

impl Mark {
    /// The mark of the group at `position`, from the bytes after its header. It has a checksum of its own, so that it can be read
    /// without the rest of the group.
    pub(super) fn decode(bytes: &[u8], position: u64) -> Option<Mark> {
        let mut reader = Reader(bytes.get(..MARK_BYTES)?);
        let checksum = reader.u64()?;
        if xxh3_64_with_seed(reader.0, position) != checksum {
            return None;
        }
        let (term, index) = (reader.u64()?, reader.u64()?);
        let mark = Mark {
            id: EntryId { term, index },
            previous_term: reader.u64()?,
            committed: reader.u64()?,
            note_bytes: reader.u32()?,
        };
        (mark.note_bytes as usize <= NOTE_BYTES_MAX && mark.committed <= index).then_some(mark)
    }

    fn encode(&self, position: u64) -> Vec<u8> {
        let mut fields = Vec::with_capacity(MARK_BYTES);
        fields.put_u64(self.id.term);
        fields.put_u64(self.id.index);
        fields.put_u64(self.previous_term);
        fields.put_u64(self.committed);
        fields.put_u32(self.note_bytes);
        let mut bytes = Vec::with_capacity(MARK_BYTES);
        bytes.put_u64(xxh3_64_with_seed(&fields, position));
        bytes.extend_from_slice(&fields);
        bytes
    }
}

/// A whole group that is an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SealedEntry {
    pub(super) header: Header,
    pub(super) mark: Mark,
    /// Header, mark, note and frames.
    pub(super) bytes: Arc<[u8]>,
}

impl SealedEntry {
    /// Parses and checks a group that is an entry.
    pub(super) fn parse(bytes: Arc<[u8]>) -> Option<SealedEntry> {
        let header = Header::decode(&bytes)?;
        let body = &bytes[HEADER_BYTES..];
        if !header.is_entry || header.is_sealed || !header.matches(body) {
            return None;
        }
        let mark = Mark::decode(body, header.position)?;
        let prefix = MARK_BYTES + mark.note_bytes as usize;
        (prefix <= body.len()).then_some(SealedEntry {
            header,
            mark,
            bytes,
        })
    }

    /// A copy of the entry whose mark states a commit point of at most `committed`.
    pub(super) fn with_committed(&self, committed: u64) -> SealedEntry {
        let mark = Mark {
            committed: self.mark.committed.min(committed),
            ..self.mark
        };
        let mut bytes = self.bytes.to_vec();
        let place = HEADER_BYTES..HEADER_BYTES + MARK_BYTES;
        bytes[place].copy_from_slice(&mark.encode(self.header.position));
        let mut header = self.header;
        header.checksum = xxh3_64(&bytes[HEADER_BYTES..]);
        header.encode(&mut bytes);
        SealedEntry {
            header,
            mark,
            bytes: bytes.into(),
        }
    }

    pub(super) fn note(&self) -> &[u8] {
        let start = HEADER_BYTES + MARK_BYTES;
        &self.bytes[start..start + self.mark.note_bytes as usize]
    }

    /// Restores the uncompressed frames, of which there may be none.
    pub(super) fn frames(&self, out: &mut Vec<u8>) -> Option<()> {
        let prefix = HEADER_BYTES + MARK_BYTES + self.mark.note_bytes as usize;
        self.header.restore(self.bytes.get(prefix..)?, out)
    }

    /// The header for the log of this member, in which everything before `durable` is durable.
    pub(super) fn header_with(&self, durable: u64) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        Header {
            durable,
            ..self.header
        }
        .encode(&mut bytes);
        bytes
    }
}

impl Header {
    /// The header at the start of `bytes`, if it is valid.
    pub(super) fn decode(bytes: &[u8]) -> Option<Header> {
        let mut reader = Reader(bytes.get(..HEADER_BYTES)?);
        let checksum = reader.u64()?;
        if xxh3_64(reader.0) != checksum {
            return None;
        }
        let (position, durable, sequence) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let (bytes, stored_bytes, codec) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let header = Header {
            position,
            durable,
            sequence,
            bytes,
            stored_bytes,
            codec: Compression::from_code((codec & !(IS_ENTRY | IS_SEALED)).try_into().ok()?)?,
            is_entry: codec & IS_ENTRY != 0,
            is_sealed: codec & IS_SEALED != 0,
            checksum: reader.u64()?,
        };
        let seal_bytes = if header.is_sealed { SEAL_BYTES } else { 0 };
        let prefix_max = seal_bytes
            + if header.is_entry {
                MARK_BYTES + NOTE_BYTES_MAX
            } else {
                0
            };
        let is_bounded = bytes as usize <= GROUP_BYTES_MAX;
        let is_possible = stored_bytes as usize <= bytes as usize + prefix_max;
        (is_bounded && is_possible).then_some(header)
    }

    /// The position field of the header at the start of `bytes`, valid or not.
    pub(super) fn claimed_position(bytes: &[u8]) -> Option<u64> {
        Reader(bytes.get(8..)?).u64()
    }

    pub(super) fn encode(&self, out: &mut [u8]) {
        let mut fields = Vec::with_capacity(HEADER_BYTES);
        fields.put_u64(self.position);
        fields.put_u64(self.durable);
        fields.put_u64(self.sequence);
        fields.put_u32(self.bytes);
        fields.put_u32(self.stored_bytes);
        let is_entry = if self.is_entry { IS_ENTRY } else { 0 };
        let is_sealed = if self.is_sealed { IS_SEALED } else { 0 };
        fields.put_u32(u32::from(self.codec.code()) | is_entry | is_sealed);
        fields.put_u64(self.checksum);
        out[..8].copy_from_slice(&xxh3_64(&fields).to_le_bytes());
        out[8..HEADER_BYTES].copy_from_slice(&fields);
    }

    fn of(place: Place, bytes: usize) -> Header {
        Header {
            position: place.position,
            durable: place.durable,
            sequence: place.sequence,
            bytes: bytes as u32,
            stored_bytes: bytes as u32,
            codec: Compression::None,
            is_entry: false,
            is_sealed: false,
            checksum: 0,
        }
    }

    /// Whether the group is an entry without frames.
    pub(super) fn is_padding(&self) -> bool {
        self.is_entry && self.bytes as usize == PADDING.len()
    }

    /// Position after the last frame.
    pub(super) fn end(&self) -> u64 {
        self.position + u64::from(self.bytes)
    }

    /// Whether these are the bytes after the header.
    pub(super) fn matches(&self, stored: &[u8]) -> bool {
        stored.len() == self.stored_bytes as usize && xxh3_64(stored) == self.checksum
    }

    /// The frames, from the bytes after the header in the file.
    pub(super) fn frames(&self, stored: &[u8]) -> Option<Vec<u8>> {
        self.matches(stored).then(|| self.frames_of(stored))?
    }

    /// As [`Header::frames`], for bytes that were checked.
    pub(super) fn frames_of(&self, stored: &[u8]) -> Option<Vec<u8>> {
        let mut prefix = 0;
        if self.is_entry {
            let mark = Mark::decode(stored, self.position)?;
            prefix = MARK_BYTES + mark.note_bytes as usize;
        }
        let mut frames = Vec::new();
        self.restore(stored.get(prefix..)?, &mut frames)?;
        Some(frames)
    }

    /// Restores the frames from bytes that are known to be of this group, without its mark.
    fn restore(&self, stored: &[u8], out: &mut Vec<u8>) -> Option<()> {
        if self.is_padding() {
            out.clear();
            return (stored == PADDING).then_some(());
        }
        compress::decompress(self.codec, stored, self.bytes as usize, out)
    }
}

/// Appends a frame to the frames of a group. Returns the size of the frame.
pub(super) fn push_frame(frames: &mut Vec<u8>, payload: &[u8]) -> usize {
    frames.put_u32(payload.len() as u32);
    frames.extend_from_slice(payload);
    FRAME_HEADER_BYTES + payload.len()
}

/// The payloads of a group's frames. `None` marks malformed bytes.
pub(super) fn payloads(frames: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    let mut reader = Reader(frames);
    std::iter::from_fn(move || {
        if reader.0.is_empty() {
            return None;
        }
        let payload = reader.u32().and_then(|len| reader.bytes(len as usize));
        if payload.is_none() {
            reader.0 = &[];
        }
        Some(payload)
    })
}

/// The place of a group in the log, which its header has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// Position of the first frame.
    pub(super) position: u64,
    /// Everything before this position is durable.
    pub(super) durable: u64,
    /// Sequence number of the first operation.
    pub(super) sequence: u64,
}

/// Makes the bytes of a group from its frames, in `packed`: header and frames, compressed if that makes them shorter.
pub(super) fn seal<'a>(frames: &[u8], packed: &'a mut Vec<u8>, place: Place) -> &'a [u8] {
    let bytes = frames.len();
    assert!(
        bytes <= GROUP_BYTES_MAX,
        "G6: a group is larger than one that can be read"
    );
    let room = HEADER_BYTES + lz4_flex::block::get_maximum_output_size(bytes);
    if packed.len() < room {
        packed.resize(room, 0);
    }
    let mut header = Header::of(place, bytes);
    if is_compressed(bytes)
        && let Some(stored) = compress::lz4_into(frames, &mut packed[HEADER_BYTES..])
        && stored < bytes
    {
        header.codec = Compression::Lz4;
        header.stored_bytes = stored as u32;
    } else {
        packed[HEADER_BYTES..HEADER_BYTES + bytes].copy_from_slice(frames);
    }
    assert!(
        header.stored_bytes <= header.bytes,
        "G6: a group is longer on disk than its frames"
    );
    let whole = &mut packed[..HEADER_BYTES + header.stored_bytes as usize];
    header.checksum = xxh3_64(&whole[HEADER_BYTES..]);
    header.encode(whole);
    whole
}

/// Makes a group that is an entry from its frames, of which there may be none.
pub(super) fn seal_entry(frames: &[u8], place: Place, mark: Mark, note: &[u8]) -> SealedEntry {
    assert!(
        frames.len() <= GROUP_BYTES_MAX && note.len() <= NOTE_BYTES_MAX,
        "G6: an entry is larger than one that can be read"
    );
    assert!(
        mark.note_bytes as usize == note.len() && mark.committed <= mark.id.index,
        "G6: the mark of an entry is wrong"
    );
    let frames = if frames.is_empty() { &PADDING } else { frames };
    let prefix = HEADER_BYTES + MARK_BYTES + note.len();
    let mut header = Header::of(place, frames.len());
    header.is_entry = true;
    let mut bytes = vec![0; HEADER_BYTES];
    bytes.extend_from_slice(&mark.encode(place.position));
    bytes.extend_from_slice(note);
    if is_compressed(frames.len()) {
        bytes.resize(
            prefix + lz4_flex::block::get_maximum_output_size(frames.len()),
            0,
        );
        match compress::lz4_into(frames, &mut bytes[prefix..]) {
            Some(stored) if stored < frames.len() => {
                header.codec = Compression::Lz4;
                bytes.truncate(prefix + stored);
            }
            _ => bytes.truncate(prefix),
        }
    }
    if header.codec == Compression::None {
        bytes.extend_from_slice(frames);
    }
    header.stored_bytes = (bytes.len() - HEADER_BYTES) as u32;
    header.checksum = xxh3_64(&bytes[HEADER_BYTES..]);
    header.encode(&mut bytes);
    SealedEntry {
        header,
        mark,
        bytes: bytes.into(),
    }
}

/// Whether the frames of a group are compressed.
pub(super) fn is_compressed(bytes: usize) -> bool {
    COMPRESS_BYTES.contains(&bytes)
}

/// The bytes before the payload in a group of one frame, which is not compressed.
pub(super) fn seal_large(frame: &Frame<'_>, place: Place) -> Vec<u8> {
    assert!(
        frame.len() <= GROUP_BYTES_MAX,
        "G6: a frame is larger than one that can be read"
    );
    let mut header = Header::of(place, frame.len());
    let len = (frame.payload_len() as u32).to_le_bytes();
    let mut checksum = Xxh3::new();
    checksum.update(&len);
    for part in frame.parts() {
        checksum.update(part);
    }
    header.checksum = checksum.digest();
    let mut bytes = vec![0; HEADER_BYTES];
    header.encode(&mut bytes);
    bytes.extend_from_slice(&len);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(payloads: &[&[u8]]) -> Vec<u8> {
        let mut buffer = Vec::new();
        for payload in payloads {
            let len = push_frame(&mut buffer, payload);
            assert_eq!(len, payload.len() + FRAME_HEADER_BYTES);
        }
        let place = Place {
            position: 77,
            durable: 70,
            sequence: 5,
        };
        seal(&buffer, &mut vec![9; 3], place).to_vec()
    }

    fn decode(bytes: &[u8]) -> Option<(Header, Vec<Vec<u8>>)> {
        let header = Header::decode(bytes)?;
        let stored = bytes[HEADER_BYTES..].get(..header.stored_bytes as usize)?;
        let frames = header.frames(stored)?;
        let owned = payloads(&frames).map(|payload| payload.map(<[u8]>::to_vec));
        Some((header, owned.collect::<Option<Vec<Vec<u8>>>>()?))
    }

    #[test]
    fn holds_its_frames_compressed_or_not() {
        let repeated = b"a value of many ".repeat(100);
        let noise: Vec<u8> = (0..150u64)
            .flat_map(|i| xxh3_64(&i.to_le_bytes()).to_le_bytes())
            .collect();
        let cases: [(&[&[u8]], Compression); 4] = [
            (&[b"payload", b""], Compression::None),
            (&[b""], Compression::None),
            (&[&noise], Compression::None),
            (&[b"first", &repeated, b"last"], Compression::Lz4),
        ];
        for (payloads, codec) in cases {
            let bytes = group(payloads);
            let (header, found) = decode(&bytes).unwrap();
            assert_eq!(found, payloads);
            assert_eq!(header.codec, codec);
            assert_eq!(
                (header.position, header.durable, header.sequence),
                (77, 70, 5)
            );
            let frames: usize = payloads.iter().map(|p| p.len() + FRAME_HEADER_BYTES).sum();
            assert_eq!(header.end(), 77 + frames as u64);
            assert_eq!(Header::claimed_position(&bytes), Some(77));
        }
    }

    #[test]
    fn torn_and_flipped_groups_are_refused() {
        let mut bytes = group(&[b"payload", &[7; 600]]);
        for cut in 0..bytes.len() {
            assert_eq!(decode(&bytes[..cut]), None);
        }
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&bytes), None, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
