//! Decoding of keys.

use super::number::{Bytes, build_number, split_number};
use super::type_bits::TypeBitsReader;
use super::{Direction, tags};
use crate::raw::{IndexName, write_text};
use crate::{
    Doc, DocBuf, Error, ErrorKind, MAX_DEPTH, ObjectId, OwnedValue, Timestamp, Value, tag,
};

/// Reads the date at the start of a key, in milliseconds since 1970, without an allocation. `None` if the key begins with another type.
pub fn leading_date(bytes: &[u8]) -> Option<i64> {
    let (tags::DATE_TIME, rest) = bytes.split_first().map(|(tag, rest)| (*tag, rest))? else {
        return None;
    };
    let date = rest.first_chunk().map(|date| u64::from_be_bytes(*date))?;
    Some(date.cast_signed() ^ i64::MIN)
}

/// Decodes the value at the start of `bytes` and returns it with the bytes that follow.
///
/// `bits` are those that [`encode_typed`](super::encode_typed) collected; for a key of several values one reader
/// has the bits of all values.
///
/// # Errors
/// [`ErrorKind::InvalidKey`] when the bytes, or the bits for them, are not those of a key.
pub fn decode<'a>(
    bytes: &'a [u8],
    direction: Direction,
    bits: &mut TypeBitsReader<'_>,
) -> Result<(OwnedValue, &'a [u8]), Error> {
    let mut doc = DocBuf::new();
    let rest = decode_into(bytes, direction, bits, "", &mut doc)?;
    let value = doc.first().map(|(_, value)| OwnedValue::from(value));
    Ok((value.unwrap_or_default(), rest))
}

/// As [`decode`], but appends the value to `doc` under `name`, which saves a copy.
///
/// # Errors
/// As [`decode`]. Then `doc` holds a part of the value and must be discarded.
pub fn decode_into<'a>(
    bytes: &'a [u8],
    direction: Direction,
    bits: &mut TypeBitsReader<'_>,
    name: &str,
    doc: &mut DocBuf,
) -> Result<&'a [u8], Error> {
    let mut decoder = Decoder {
        bytes: Bytes {
            rest: bytes,
            mask: direction.mask(),
        },
        bits: bits.clone(),
    };
    let done = decoder.value(doc, name, 0);
    *bits = decoder.bits;
    let rest = decoder.bytes.rest;
    match done {
        Some(()) => Ok(rest),
        None => Err(Error::new(ErrorKind::InvalidKey, bytes.len() - rest.len())),
    }
}

struct Decoder<'a, 'b> {
    bytes: Bytes<'a>,
    bits: TypeBitsReader<'b>,
}

impl Decoder<'_, '_> {
    fn value(&mut self, doc: &mut DocBuf, name: &str, depth: usize) -> Option<()> {
        let tag = self.bytes.next()?;
        self.tagged(tag, doc, name, depth)
    }

    fn tagged(&mut self, tag: u8, doc: &mut DocBuf, name: &str, depth: usize) -> Option<()> {
        match tag {
            tags::MIN_KEY => doc.push(name, Value::MinKey),
            tags::UNDEFINED => doc.push(name, Value::Undefined),
            tags::NULL => doc.push(name, Value::Null),
            tags::NAN..=tags::POSITIVE_LARGE => {
                let (negative, magnitude) = split_number(tag, &mut self.bytes)?;
                doc.push(name, build_number(negative, &magnitude, &mut self.bits)?);
            }
            tags::STRING => {
                let text = self.text()?;
                let tag = if self.bits.bit() {
                    tag::SYMBOL
                } else {
                    tag::STRING
                };
                doc.push_text(name, tag, &text);
            }
            tags::DOCUMENT => {
                let mark = doc.open(name, tag::DOCUMENT);
                self.elements(doc, depth)?;
                doc.close(mark);
            }
            tags::ARRAY => self.array(doc, name, depth)?,
            tags::BINARY => {
                let len = self.length()?;
                let subtype = self.bytes.next()?;
                let bytes = self.take(len)?;
                doc.push(
                    name,
                    Value::Binary {
                        subtype,
                        bytes: &bytes,
                    },
                );
            }
            tags::OBJECT_ID => doc.push(name, self.object_id()?),
            tags::FALSE => doc.push(name, false),
            tags::TRUE => doc.push(name, true),
            tags::DATE_TIME => doc.push(
                name,
                Value::DateTime(self.bytes.integer(8)? as i64 ^ i64::MIN),
            ),
            tags::TIMESTAMP => doc.push(name, Timestamp::from_u64(self.bytes.integer(8)?)),
            tags::REGEX => {
                let (pattern, options) = (self.cstring()?, self.cstring()?);
                doc.push_written(name, tag::REGEX, |out| {
                    for part in [pattern, options] {
                        out.extend_from_slice(&part);
                        out.push(0);
                    }
                });
            }
            tags::DB_POINTER => {
                let len = self.length()?;
                let ns = self.take(len)?;
                let id = self.object_id()?;
                doc.push_written(name, tag::DB_POINTER, |out| {
                    write_text(out, &ns);
                    out.extend_from_slice(&id.0);
                });
            }
            tags::JAVASCRIPT => doc.push_text(name, tag::JAVASCRIPT, &self.text()?),
            tags::JAVASCRIPT_WITH_SCOPE => {
                let code = self.text()?;
                let mut scope = DocBuf::new();
                self.elements(&mut scope, depth)?;
                doc.push_written(name, tag::JAVASCRIPT_WITH_SCOPE, |out| {
                    let len = (9 + code.len() + scope.len_bytes()) as u32;
                    out.extend_from_slice(&len.to_le_bytes());
                    write_text(out, &code);
                    out.extend_from_slice(scope.as_bytes());
                });
            }
            tags::MAX_KEY => doc.push(name, Value::MaxKey),
            _ => return None,
        }
        Some(())
    }

    fn elements(&mut self, doc: &mut DocBuf, depth: usize) -> Option<()> {
        loop {
            let class = self.bytes.next()?;
            if class == tags::END {
                return Some(());
            }
            if depth > MAX_DEPTH {
                return None;
            }
            let name = String::from_utf8(self.cstring()?).ok()?;
            match class {
                tags::NAN | tags::FALSE => self.value(doc, &name, depth + 1)?,
                _ => self.tagged(class, doc, &name, depth + 1)?,
            }
        }
    }

    fn array(&mut self, doc: &mut DocBuf, name: &str, depth: usize) -> Option<()> {
        let mut array = DocBuf::new();
        for index in 0u32.. {
            let tag = self.bytes.next()?;
            if tag == tags::END {
                break;
            }
            if depth > MAX_DEPTH {
                return None;
            }
            self.tagged(tag, &mut array, IndexName::new(index).as_str(), depth + 1)?;
        }
        if self.bits.bit() {
            array = self.renamed(&array)?;
        }
        doc.push(name, Value::Array(&array));
        Some(())
    }

    /// The same array with the names from the type bits.
    fn renamed(&mut self, array: &Doc) -> Option<DocBuf> {
        let mut renamed = DocBuf::with_capacity(array.len_bytes());
        let mut name = Vec::new();
        for element in array.iter_raw() {
            name.clear();
            loop {
                match self.bits.bits(8) as u8 {
                    0 => break,
                    byte => name.push(byte),
                }
            }
            renamed.push_raw_as(std::str::from_utf8(&name).ok()?, &element);
        }
        Some(renamed)
    }

    fn text(&mut self) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        loop {
            match self.bytes.next()? {
                tags::END => return Some(text),
                tags::ESCAPE => match self.bytes.next()? {
                    byte @ (1 | 2) => text.push(byte - 1),
                    _ => return None,
                },
                byte => text.push(byte),
            }
        }
    }

    /// Text that ends with a zero byte in a document, and so has none.
    fn cstring(&mut self) -> Option<Vec<u8>> {
        self.text().filter(|text| !text.contains(&0))
    }

    fn length(&mut self) -> Option<usize> {
        match self.bytes.next()? {
            tags::LONG_LENGTH => Some(self.bytes.integer(4)? as usize),
            short => Some(usize::from(short)),
        }
    }

    fn take(&mut self, len: usize) -> Option<Vec<u8>> {
        let (bytes, rest) = self.bytes.rest.split_at_checked(len)?;
        self.bytes.rest = rest;
        Some(bytes.iter().map(|b| b ^ self.bytes.mask).collect())
    }

    fn object_id(&mut self) -> Option<ObjectId> {
        Some(ObjectId(self.take(12)?.try_into().ok()?))
    }
}
