//! Segments: their keys and their contents.
//!
//! A key is the record's key, the container's number and the segment's number, both of two bytes, big-endian. A segment is a
//! sequence of elements, each behind its ordinal of four bytes, little-endian. The only segment of
//! a value that is no document holds its type and its bytes.

use std::ops::Range;

use frond_bson::RawElement;
use xxhash_rust::xxh3::xxh3_64;

/// Bytes of a key behind the record's.
pub const PLACE_BYTES: usize = 4;
/// Bytes before each element.
pub const ORDINAL_BYTES: usize = 4;

/// The key of a segment.
pub fn write_key(record: &[u8], container: u16, segment: u16, key: &mut Vec<u8>) {
    key.clear();
    key.extend_from_slice(record);
    key.extend_from_slice(&container.to_be_bytes());
    key.extend_from_slice(&segment.to_be_bytes());
}

/// The container and the segment of a key of a segment of this record.
pub fn split_key(record: &[u8], key: &[u8]) -> Option<(u16, u16)> {
    let [a, b, c, d] = *key.strip_prefix(record)?.first_chunk()?;
    (key.len() == record.len() + PLACE_BYTES)
        .then(|| (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
}

/// The hash that spreads fields over segments.
pub fn hash(name: &[u8]) -> u64 {
    xxh3_64(name)
}

/// The segment of a hash.
pub fn of_hash(hash: u64, bits: u8) -> u16 {
    match bits {
        0 => 0,
        bits => (hash >> (64 - u32::from(bits.min(16)))) as u16,
    }
}

/// The segment of a field.
pub fn of_name(name: &[u8], bits: u8) -> u16 {
    of_hash(hash(name), bits)
}

/// An element of a segment.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Its place among the fields of the container: they are ordered by it.
    pub ordinal: u32,
    /// The element.
    pub element: RawElement<'a>,
    /// Where the ordinal begins.
    pub at: usize,
}

impl Entry<'_> {
    /// Where the element and its ordinal are in the segment.
    pub fn range(&self) -> Range<usize> {
        self.at..self.at + ORDINAL_BYTES + self.element.as_bytes().len()
    }

    /// Where the value is in the segment.
    pub fn value_range(&self) -> Range<usize> {
        let end = self.range().end;
        end - self.element.value_bytes().len()..end
    }
}

/// The elements of a segment.
pub struct Entries<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// Walks over the elements of a segment. It ends where the bytes are damaged.
pub fn entries(bytes: &[u8]) -> Entries<'_> {
    Entries { bytes, at: 0 }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        let rest = self.bytes.get(self.at..)?;
        let (ordinal, rest) = rest.split_first_chunk::<ORDINAL_BYTES>()?;
        let (element, _) = RawElement::split(rest)?;
        let entry = Entry {
            ordinal: u32::from_le_bytes(*ordinal),
            element,
            at: self.at,
        };
        self.at = entry.range().end;
        Some(entry)
    }
}

/// The element of a name.
pub fn find<'a>(bytes: &'a [u8], name: &[u8]) -> Option<Entry<'a>> {
    entries(bytes).find(|entry| entry.element.name_bytes() == name)
}
