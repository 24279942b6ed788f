//! Segments: their keys and their contents.
//!
//! A key is the record's key, the container's number and the segment's number, both of two bytes, big-endian. The
//! only segment of a value that is no document holds its type and its bytes. Any other segment is a sequence of
//! **runs**: elements whose ordinals follow each other. A run is the ordinal of the first one (4 bytes,
//! little-endian), the length of the elements (7 bits a byte, lowest first), and the elements.
//!
//! The field name determines its segment: by its hash, or in a numbered container by the number at its end.
//! Fields with consecutive numbers then lie together, in long runs. These are assembled faster than single
//! elements, and compress better.

use frond_bson::RawElement;
use xxhash_rust::xxh3::xxh3_64;

use super::header::Container;

/// Bytes of a key after the record's.
pub const PLACE_BYTES: usize = 4;
const ORDINAL_BYTES: usize = 4;
/// Fields of a numbered container whose numbers differ only in these low bits share a segment.
const BLOCK_BITS: u32 = 6;
/// Any number of this many digits fits 64 bits.
const DIGITS_MAX: usize = 18;

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

/// The number at the end of a name.
pub fn number(name: &[u8]) -> Option<u64> {
    let digits = name
        .iter()
        .rev()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let digits = name.get(name.len() - digits.min(DIGITS_MAX)..)?;
    let digit = |number: u64, byte: &u8| number * 10 + u64::from(byte - b'0');
    (!digits.is_empty()).then(|| digits.iter().fold(0, digit))
}

/// The segment of a field in a container with this many bits. In a numbered container `number` is that of the name.
pub fn number_of(name: &[u8], number: Option<u64>, bits: u8) -> u16 {
    let bits = u32::from(bits.min(16));
    if bits == 0 {
        return 0;
    }
    match number {
        Some(number) => ((number >> BLOCK_BITS) & ((1 << bits) - 1)) as u16,
        None => (hash(name) >> (64 - bits)) as u16,
    }
}

/// The segment of a field.
pub fn of_name(name: &[u8], container: &Container) -> u16 {
    let is_numbered = container.is(Container::NUMBERED);
    let number = is_numbered.then(|| number(name)).flatten();
    number_of(name, number, container.bits)
}

#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The ordinal of the first one.
    pub ordinal: u32,
    pub elements: &'a [u8],
    /// Where they begin in the segment.
    pub at: usize,
}

/// The runs of a segment.
pub struct Runs<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// Iterates over the runs of a segment, up to the first damaged one.
pub fn runs(bytes: &[u8]) -> Runs<'_> {
    Runs { bytes, at: 0 }
}

impl<'a> Iterator for Runs<'a> {
    type Item = Run<'a>;

    fn next(&mut self) -> Option<Run<'a>> {
        let rest = self.bytes.get(self.at..)?;
        let (ordinal, mut rest) = rest.split_first_chunk::<ORDINAL_BYTES>()?;
        let length = read_length(&mut rest)?;
        let elements = rest.get(..length)?;
        let at = self.bytes.len() - rest.len();
        self.at = at + length;
        Some(Run {
            ordinal: u32::from_le_bytes(*ordinal),
            elements,
            at,
        })
    }
}

/// Reads a length of 7 bits a byte, lowest first.
pub fn read_length(bytes: &mut &[u8]) -> Option<usize> {
    let (mut length, mut shift) = (0_usize, 0);
    loop {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        length |= usize::from(byte & 0x7F).checked_shl(shift)?;
        shift += 7;
        if byte < 0x80 {
            return Some(length);
        }
    }
}

/// Appends a length of 7 bits a byte, lowest first.
pub fn write_length(mut length: usize, out: &mut Vec<u8>) {
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
}

/// An element of a segment.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Its ordinal, which orders the fields of the container.
    pub ordinal: u32,
    pub element: RawElement<'a>,
    /// Where it begins in the segment.
    pub at: usize,
}

/// Iterates over the elements of a segment, up to the first damaged one.
pub fn entries(bytes: &[u8]) -> impl Iterator<Item = Entry<'_>> {
    runs(bytes).flat_map(|run| {
        let (mut rest, mut at, mut ordinal) = (run.elements, run.at, run.ordinal);
        std::iter::from_fn(move || {
            let (element, behind) = RawElement::split(rest)?;
            let entry = Entry {
                ordinal,
                element,
                at,
            };
            at += rest.len() - behind.len();
            rest = behind;
            ordinal = ordinal.wrapping_add(1);
            Some(entry)
        })
    })
}

/// The element of a name.
pub fn find<'a>(bytes: &'a [u8], name: &[u8]) -> Option<Entry<'a>> {
    entries(bytes).find(|entry| entry.element.name_bytes() == name)
}

/// Whether a segment can be read to its end.
pub fn is_sound(bytes: &[u8]) -> bool {
    let mut runs = runs(bytes);
    let are_whole = runs.by_ref().all(|run| {
        let mut rest = run.elements;
        while let Some((_, behind)) = RawElement::split(rest) {
            rest = behind;
        }
        rest.is_empty()
    });
    are_whole && runs.at == bytes.len()
}

pub fn push_run(first: u32, elements: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&first.to_le_bytes());
    write_length(elements.len(), out);
    out.extend_from_slice(elements);
}

/// Makes runs of elements.
#[derive(Default)]
struct Builder {
    run: Vec<u8>,
    first: u32,
    next: u32,
}

impl Builder {
    /// Adds an element. If it begins a new run, the run before it is appended to `out`.
    fn push(&mut self, ordinal: u32, element: &[u8], out: &mut Vec<u8>) {
        if self.run.is_empty() || ordinal != self.next {
            self.finish(out);
            self.first = ordinal;
        }
        self.run.extend_from_slice(element);
        self.next = ordinal.wrapping_add(1);
    }

    /// Appends the last run.
    fn finish(&mut self, out: &mut Vec<u8>) {
        if !self.run.is_empty() {
            push_run(self.first, &self.run, out);
            self.run.clear();
        }
    }
}

/// The segment with the element that begins at `at` replaced, or removed, and with another one appended.
pub fn rebuilt(
    bytes: &[u8],
    at: Option<usize>,
    replacement: Option<&[u8]>,
    appended: Option<(u32, &[u8])>,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + appended.map_or(0, |(_, one)| one.len() + 8));
    let mut builder = Builder::default();
    for entry in entries(bytes) {
        if at != Some(entry.at) {
            builder.push(entry.ordinal, entry.element.as_bytes(), &mut out);
        } else if let Some(replacement) = replacement {
            builder.push(entry.ordinal, replacement, &mut out);
        }
    }
    if let Some((ordinal, element)) = appended {
        builder.push(ordinal, element, &mut out);
    }
    builder.finish(&mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_end_names() {
        for (name, expected) in [
            ("foo-12", Some(12)),
            ("7", Some(7)),
            ("foo", None),
            ("", None),
            ("12a", None),
            ("00064", Some(64)),
            ("x1234567890123456789", Some(234_567_890_123_456_789)),
        ] {
            assert_eq!(number(name.as_bytes()), expected, "{name}");
        }
    }

    #[test]
    fn numbered_fields_lie_together() {
        let place = |name: &str, numbered: bool| {
            let name = name.as_bytes();
            number_of(name, number(name).filter(|_| numbered), 4)
        };
        assert_eq!(place("foo-64", true), place("bar-127", true));
        assert_eq!(place("foo-128", true), place("foo-127", true) + 1);
        assert_eq!(place("foo-1024", true), 0);
        assert_eq!(place("foo", true), place("foo", false));
        assert_eq!(super::number_of(b"foo-999", Some(999), 0), 0);
    }
}
