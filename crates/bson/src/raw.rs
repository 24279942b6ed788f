//! Elements as bytes: the type byte, the name and the still encoded value.

use crate::{Decimal128, Doc, NotUtf8, ObjectId, Text, Timestamp, Value, tag};

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

    /// Decodes the value; `None` when the bytes are corrupt.
    pub fn value(&self) -> Option<Value<'a>> {
        read_value(self.tag, self.value)
    }

    /// Splits the first element from `bytes`: the inside of a document, or elements that were taken out of one. `None` at the end of the
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

/// Where `byte` is first. Made for names: eight bytes at a time, and nothing to set up.
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
    // The byte that is looked for becomes zero; its high bit is then the lowest one that is set.
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

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<usize> {
    let b = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(b.try_into().ok()?) as usize)
}

/// How many bytes the value of type `tag` takes at the start of `bytes`; `None` for unknown types and corrupt
/// bytes. The length may be more than there is.
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
fn string(bytes: &[u8]) -> Option<&[u8]> {
    bytes.get(4..bytes.len().checked_sub(1)?)
}

/// The text of a value whose bytes are exactly `bytes`, and what goes with it; `None` when they are corrupt and for types
/// without text.
#[inline]
pub(crate) fn text_at(tag: u8, bytes: &[u8]) -> Option<Text<'_>> {
    Some(match tag {
        tag::STRING | tag::JAVASCRIPT | tag::SYMBOL => Text::Plain(string(bytes)?),
        tag::REGEX => {
            let end = find_byte(bytes, 0)?;
            Text::Regex {
                pattern: bytes.get(..end)?,
                options: bytes.get(end + 1..bytes.len().checked_sub(1)?)?,
            }
        }
        tag::DB_POINTER => {
            let (ns, id) = bytes.split_at_checked(bytes.len().checked_sub(12)?)?;
            Text::Pointer {
                ns: string(ns)?,
                id: ObjectId(id.try_into().ok()?),
            }
        }
        tag::JAVASCRIPT_WITH_SCOPE => {
            let code_end = u32_at(bytes, 4)?.checked_add(8)?;
            Text::Scoped {
                code: string(bytes.get(4..code_end)?)?,
                scope: Doc::from_trusted(bytes.get(code_end..)?),
            }
        }
        _ => return None,
    })
}

/// Decodes a value with text other than a string.
fn read_text(tag: u8, bytes: &[u8]) -> Option<Value<'_>> {
    let value = match text_at(tag, bytes)? {
        Text::Plain(text) => std::str::from_utf8(text).map(|text| match tag {
            tag::JAVASCRIPT => Value::JavaScript(text),
            tag::SYMBOL => Value::Symbol(text),
            _ => Value::String(text),
        }),
        Text::Regex { pattern, options } => std::str::from_utf8(pattern).and_then(|pattern| {
            let options = std::str::from_utf8(options)?;
            Ok(Value::Regex { pattern, options })
        }),
        Text::Pointer { ns, id } => std::str::from_utf8(ns).map(|ns| Value::DbPointer { ns, id }),
        Text::Scoped { code, scope } => {
            std::str::from_utf8(code).map(|code| Value::JavaScriptWithScope { code, scope })
        }
    };
    Some(value.unwrap_or(Value::NotUtf8(NotUtf8::new(tag, bytes))))
}

/// Decodes a value whose bytes are exactly `bytes`; `None` when they are corrupt.
pub(crate) fn read_value(tag: u8, bytes: &[u8]) -> Option<Value<'_>> {
    Some(match tag {
        tag::DOUBLE => Value::Double(f64::from_le_bytes(bytes.try_into().ok()?)),
        tag::STRING => match std::str::from_utf8(string(bytes)?) {
            Ok(text) => Value::String(text),
            Err(_) => Value::NotUtf8(NotUtf8::new(tag, bytes)),
        },
        tag::REGEX
        | tag::DB_POINTER
        | tag::JAVASCRIPT
        | tag::SYMBOL
        | tag::JAVASCRIPT_WITH_SCOPE => return read_text(tag, bytes),
        tag::DOCUMENT => Value::Document(Doc::from_trusted(bytes)),
        tag::ARRAY => Value::Array(Doc::from_trusted(bytes)),
        tag::BINARY => Value::Binary {
            subtype: *bytes.get(4)?,
            bytes: bytes.get(5..)?,
        },
        tag::UNDEFINED => Value::Undefined,
        tag::OBJECT_ID => Value::ObjectId(ObjectId(bytes.try_into().ok()?)),
        tag::BOOL => Value::Bool(*bytes.first()? != 0),
        tag::DATE_TIME => Value::DateTime(i64::from_le_bytes(bytes.try_into().ok()?)),
        tag::NULL => Value::Null,
        tag::INT32 => Value::Int32(i32::from_le_bytes(bytes.try_into().ok()?)),
        tag::TIMESTAMP => Value::Timestamp(Timestamp::from_u64(u64::from_le_bytes(
            bytes.try_into().ok()?,
        ))),
        tag::INT64 => Value::Int64(i64::from_le_bytes(bytes.try_into().ok()?)),
        tag::DECIMAL128 => Value::Decimal128(Decimal128::from_bytes(bytes.try_into().ok()?)),
        tag::MIN_KEY => Value::MinKey,
        tag::MAX_KEY => Value::MaxKey,
        _ => return None,
    })
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
