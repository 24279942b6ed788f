//! The bytes of documents: elements with their values still encoded, lengths, text and names of array elements.

use crate::{hex, tag};

/// One element of a document before its value is decoded.
#[derive(Clone, Copy, Debug)]
pub struct RawElement<'a> {
    pub(crate) tag: u8,
    pub(crate) name: &'a [u8],
    pub(crate) value: &'a [u8],
    /// Type byte, name, zero byte and value.
    pub(crate) whole: &'a [u8],
}

impl<'a> RawElement<'a> {
    /// The BSON type byte.
    pub fn tag(&self) -> u8 {
        self.tag
    }

    /// The field name's bytes, without the zero byte.
    pub fn name_bytes(&self) -> &'a [u8] {
        self.name
    }

    /// The field name; empty when it is not UTF-8, which validation excludes.
    pub fn name(&self) -> &'a str {
        std::str::from_utf8(self.name).unwrap_or_default()
    }

    /// The bytes of the value alone.
    pub fn value_bytes(&self) -> &'a [u8] {
        self.value
    }

    /// All bytes of the element: type, name, zero byte, value.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.whole
    }

    /// Splits the first element from `bytes`: the elements of a document, or some of them. `None` at the end of the
    /// document and on corrupt bytes.
    #[inline]
    pub fn split(bytes: &'a [u8]) -> Option<(RawElement<'a>, &'a [u8])> {
        let (&tag, after_tag) = bytes.split_first()?;
        if tag == 0 {
            return None;
        }
        let name_len = find_byte(after_tag, 0)?;
        let len = value_len(tag, after_tag.get(name_len + 1..)?)?;
        let (whole, rest) = bytes.split_at_checked(2 + name_len + len)?;
        let (head, value) = whole.split_at_checked(2 + name_len)?;
        let name = head.get(1..1 + name_len)?;
        Some((
            RawElement {
                tag,
                name,
                value,
                whole,
            },
            rest,
        ))
    }
}

/// The index of the first `byte`. For names: eight bytes at a time, without set-up cost.
#[inline]
pub fn find_byte(bytes: &[u8], byte: u8) -> Option<usize> {
    match bytes
        .first_chunk()
        .and_then(|word| find_in_word(*word, byte))
    {
        Some(at) => Some(at),
        None => find_far(bytes, byte),
    }
}

#[inline]
fn find_in_word(word: [u8; 8], byte: u8) -> Option<usize> {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    // The searched byte becomes zero; its high bit is then the lowest one that is set.
    let word = u64::from_le_bytes(word) ^ (ONES * u64::from(byte));
    let zeros = word.wrapping_sub(ONES) & !word & (ONES << 7);
    (zeros != 0).then(|| zeros.trailing_zeros() as usize / 8)
}

fn find_far(bytes: &[u8], byte: u8) -> Option<usize> {
    let (words, rest) = bytes.as_chunks();
    for (at, word) in words.iter().enumerate() {
        if let Some(found) = find_in_word(*word, byte) {
            return Some(at * 8 + found);
        }
    }
    let last = rest.iter().position(|&b| b == byte)?;
    Some(words.len() * 8 + last)
}

#[inline]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<usize> {
    let b = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(b.try_into().ok()?) as usize)
}

/// Length of the value of type `tag` at the start of `bytes`; `None` for unknown types and corrupt bytes. The length
/// may exceed `bytes`.
#[inline]
pub fn value_len(tag: u8, bytes: &[u8]) -> Option<usize> {
    Some(match tag {
        tag::INT32 | tag::ELSEWHERE => 4,
        tag::DOUBLE | tag::DATE_TIME | tag::TIMESTAMP | tag::INT64 => 8,
        tag::STRING | tag::JAVASCRIPT | tag::SYMBOL => 4 + u32_at(bytes, 0)?,
        tag::DOCUMENT | tag::ARRAY | tag::JAVASCRIPT_WITH_SCOPE => u32_at(bytes, 0)?,
        tag::OBJECT_ID => 12,
        tag::BOOL => 1,
        tag::NULL | tag::UNDEFINED | tag::MIN_KEY | tag::MAX_KEY => 0,
        tag::BINARY => 5 + u32_at(bytes, 0)?,
        tag::DB_POINTER => 16 + u32_at(bytes, 0)?,
        tag::DECIMAL128 => 16,
        tag::REGEX => {
            let pattern = find_byte(bytes, 0)? + 1;
            let options = find_byte(bytes.get(pattern..)?, 0)? + 1;
            pattern + options
        }
        _ => return None,
    })
}

/// The text of a length-prefixed string that fills `bytes`.
#[inline]
pub(crate) fn string(bytes: &[u8]) -> Option<&[u8]> {
    bytes.get(4..bytes.len().checked_sub(1)?)
}

/// A UUID as text, in five groups of hexadecimal digits.
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let digits = hex(uuid);
    let groups = [0..8, 8..12, 12..16, 16..20, 20..32];
    groups
        .map(|group| digits.get(group).unwrap_or_default())
        .join("-")
}

/// Appends text as in a document: with its length and a zero byte.
#[inline]
pub(crate) fn write_text(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(&(text.len() as u32 + 1).to_le_bytes());
    out.extend_from_slice(text);
    out.push(0);
}

/// Writes text up to its first zero byte, and a zero byte.
#[inline]
pub(crate) fn write_cstring(out: &mut Vec<u8>, text: &str) {
    let bytes = text.as_bytes();
    let len = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    out.extend_from_slice(bytes.get(..len).unwrap_or_default());
    out.push(0);
}

/// Appends a length as four bytes.
#[inline]
pub(crate) fn write_len(out: &mut Vec<u8>, len: usize) {
    out.extend_from_slice(&(len as u32).to_le_bytes());
}

/// The decimal digits of an array index, without allocating.
pub(crate) struct IndexName {
    digits: [u8; 10],
    start: usize,
}

impl IndexName {
    #[inline]
    pub(crate) fn new(mut index: u32) -> Self {
        let mut name = Self {
            digits: [b'0'; 10],
            start: 10,
        };
        for slot in name.digits.iter_mut().rev() {
            *slot = b'0' + (index % 10) as u8;
            index /= 10;
            name.start -= 1;
            if index == 0 {
                break;
            }
        }
        name
    }

    #[inline]
    pub(crate) fn as_str(&self) -> &str {
        let digits = self.digits.get(self.start..).unwrap_or_default();
        std::str::from_utf8(digits).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::find_byte;

    #[test]
    fn the_first_of_several_bytes_is_found() {
        // 1 and 0x2f come after borrows of the words, 0x80 has the bit that is looked at.
        for filler in [1, b'/', 0x80, 0xff] {
            for length in 0..40 {
                for at in 0..=length {
                    for byte in [0, b'.'] {
                        let mut bytes = vec![filler; length];
                        let expected = bytes.get_mut(at).map(|found| {
                            *found = byte;
                            at
                        });
                        if let Some(later) = bytes.get_mut(at + 3) {
                            *later = byte;
                        }
                        assert_eq!(find_byte(&bytes, byte), expected, "{bytes:?}");
                    }
                }
            }
        }
    }
}
