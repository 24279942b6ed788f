//! Encoding of keys.

use super::number::{invert_from, put_number};
use super::type_bits::TypeBits;
use super::{Direction, tags};
use crate::collate::{Bytes, Foreign, Rules};
use crate::{Collator, Doc, MAX_DEPTH, NotUtf8, ObjectId, Text, Value, tag};

/// The first byte that is escaped in a text, 0x00 or 0x01; eight bytes at a time.
fn find_special(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const LEAST: u64 = tags::ESCAPE as u64 + 1;
    let (words, rest) = bytes.as_chunks();
    for (at, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        // The high bit of a smaller byte; borrows may set those of bytes behind it.
        let small = word.wrapping_sub(ONES * LEAST) & !word & (ONES << 7);
        if small != 0 {
            return Some(at * 8 + small.trailing_zeros() as usize / 8);
        }
    }
    let last = rest.iter().position(|&b| b <= tags::ESCAPE)?;
    Some(words.len() * 8 + last)
}

/// Appends the ascending encoding of `value`.
pub fn encode(value: &Value<'_>, out: &mut Vec<u8>) {
    directed(value, Direction::Ascending, out, None, &Bytes);
}

/// Appends the descending encoding of `value`: the ascending one with all bytes inverted.
pub fn encode_descending(value: &Value<'_>, out: &mut Vec<u8>) {
    encode_directed(value, Direction::Descending, out);
}

/// Appends the encoding of `value` in the given direction.
pub fn encode_directed(value: &Value<'_>, direction: Direction, out: &mut Vec<u8>) {
    directed(value, direction, out, None, &Bytes);
}

/// Appends the encoding of `value`, and to `lost` the type bits that are needed to restore it exactly.
pub fn encode_typed(
    value: &Value<'_>,
    direction: Direction,
    out: &mut Vec<u8>,
    lost: &mut TypeBits,
) {
    directed(value, direction, out, Some(lost), &Bytes);
}

/// The text of a string is replaced by its sort key.
impl Collator {
    /// As [`encode`], in this order. Such a key of a string cannot be decoded.
    pub fn encode(&self, value: &Value<'_>, out: &mut Vec<u8>) {
        self.encode_directed(value, Direction::Ascending, out);
    }

    /// As [`encode_directed`], in this order.
    pub fn encode_directed(&self, value: &Value<'_>, direction: Direction, out: &mut Vec<u8>) {
        match self.rules() {
            None => encode_directed(value, direction, out),
            Some(rules) => directed(value, direction, out, None, &Foreign(rules)),
        }
    }

    /// As [`encode_typed`], in this order.
    pub fn encode_typed(
        &self,
        value: &Value<'_>,
        direction: Direction,
        out: &mut Vec<u8>,
        lost: &mut TypeBits,
    ) {
        match self.rules() {
            None => encode_typed(value, direction, out, lost),
            Some(rules) => directed(value, direction, out, Some(lost), &Foreign(rules)),
        }
    }
}

fn directed<R: Rules>(
    value: &Value<'_>,
    direction: Direction,
    out: &mut Vec<u8>,
    lost: Option<&mut TypeBits>,
    rules: &R,
) {
    let start = out.len();
    Encoder { out, lost, rules }.value(value, 0);
    if direction == Direction::Descending {
        invert_from(out, start);
    }
}

struct Encoder<'o, R> {
    out: &'o mut Vec<u8>,
    lost: Option<&'o mut TypeBits>,
    rules: &'o R,
}

impl<R: Rules> Encoder<'_, R> {
    fn value(&mut self, value: &Value<'_>, depth: usize) {
        match value {
            // The first byte of these depends on the value.
            Value::Int32(_) | Value::Int64(_) | Value::Double(_) | Value::Decimal128(_) => {}
            Value::Bool(b) => self.out.push(if *b { tags::TRUE } else { tags::FALSE }),
            _ => self.out.push(class_tag(value.type_code())),
        }
        self.body(value, depth);
    }

    /// Encodes the bytes after the type byte.
    fn body(&mut self, value: &Value<'_>, depth: usize) {
        match *value {
            Value::Int32(_) | Value::Int64(_) | Value::Double(_) | Value::Decimal128(_) => {
                put_number(value, self.out, self.lost.as_deref_mut());
            }
            Value::String(s) => {
                self.string(s.as_bytes());
                self.lose(false);
            }
            Value::Symbol(s) => {
                self.string(s.as_bytes());
                self.lose(true);
            }
            Value::Document(d) => self.document(d, depth),
            Value::Array(d) => self.array(d, depth),
            Value::Binary { subtype, bytes } => {
                self.length(bytes.len());
                self.out.push(subtype);
                self.out.extend_from_slice(bytes);
            }
            Value::ObjectId(id) => self.out.extend_from_slice(&id.0),
            Value::DateTime(ms) => {
                // With the sign bit flipped negative dates come first.
                self.out.extend_from_slice(&(ms ^ i64::MIN).to_be_bytes());
            }
            Value::Timestamp(t) => self.out.extend_from_slice(&t.to_u64().to_be_bytes()),
            Value::Regex { pattern, options } => {
                self.text(pattern.as_bytes());
                self.text(options.as_bytes());
            }
            Value::DbPointer { ns, id } => self.pointer(ns.as_bytes(), &id),
            Value::JavaScript(code) => self.text(code.as_bytes()),
            Value::JavaScriptWithScope { code, scope } => {
                self.text(code.as_bytes());
                self.document(scope, depth);
            }
            Value::Bool(_) | Value::MinKey | Value::Undefined | Value::Null | Value::MaxKey => {}
            Value::NotUtf8(value) => self.not_utf8(&value, depth),
        }
    }

    fn pointer(&mut self, ns: &[u8], id: &ObjectId) {
        self.length(ns.len());
        self.out.extend_from_slice(ns);
        self.out.extend_from_slice(&id.0);
    }

    /// As a value of the same type whose text is UTF-8.
    #[cold]
    fn not_utf8(&mut self, value: &NotUtf8<'_>, depth: usize) {
        match (value.type_code(), value.text()) {
            (tag::JAVASCRIPT, Text::Plain(text)) => self.text(text),
            (code, Text::Plain(text)) => {
                self.string(text);
                self.lose(code == tag::SYMBOL);
            }
            (_, Text::Regex { pattern, options }) => {
                self.text(pattern);
                self.text(options);
            }
            (_, Text::Pointer { ns, id }) => self.pointer(ns, &id),
            (_, Text::Scoped { code, scope }) => {
                self.text(code);
                self.document(scope, depth);
            }
        }
    }

    fn lose(&mut self, bit: bool) {
        if let Some(lost) = &mut self.lost {
            lost.bit(bit);
        }
    }

    fn string(&mut self, text: &[u8]) {
        let rules = self.rules;
        rules.with_key(text, |bytes| self.text(bytes));
    }

    /// Text and an end byte that sorts before every other byte; 0x00 and 0x01 are escaped.
    fn text(&mut self, mut bytes: &[u8]) {
        while let Some(at) = find_special(bytes) {
            let (plain, rest) = bytes.split_at(at);
            self.out.extend_from_slice(plain);
            if let Some((&special, rest)) = rest.split_first() {
                self.out.extend_from_slice(&[tags::ESCAPE, special + 1]);
                bytes = rest;
            }
        }
        self.out.extend_from_slice(bytes);
        self.out.push(tags::END);
    }

    fn length(&mut self, len: usize) {
        match u8::try_from(len) {
            Ok(short) if short < tags::LONG_LENGTH => self.out.push(short),
            _ => {
                self.out.push(tags::LONG_LENGTH);
                self.out.extend_from_slice(&(len as u32).to_be_bytes());
            }
        }
    }

    /// Elements as class, name and value: the order in which elements compare.
    fn document(&mut self, doc: &Doc, depth: usize) {
        // Validated documents are never this deep; damaged ones must not overflow the stack.
        if depth <= MAX_DEPTH {
            for element in doc.iter_raw() {
                let Some(value) = element.value() else { break };
                self.out.push(class_tag(element.tag));
                self.text(element.name);
                if has_own_tag(element.tag) {
                    self.value(&value, depth + 1);
                } else {
                    self.body(&value, depth + 1);
                }
            }
        }
        self.out.push(tags::END);
    }

    /// Elements without names. Names other than "0", "1", … are lost.
    fn array(&mut self, doc: &Doc, depth: usize) {
        if depth <= MAX_DEPTH {
            for value in doc.values() {
                self.value(&value, depth + 1);
            }
        }
        self.out.push(tags::END);
        if let Some(lost) = &mut self.lost {
            put_array_names(doc, lost);
        }
    }
}

/// One zero bit when the names count up from "0", else a one bit and all names.
fn put_array_names(doc: &Doc, lost: &mut TypeBits) {
    let regular = doc
        .iter_raw()
        .zip(0u32..)
        .all(|(e, i)| e.name == crate::raw::IndexName::new(i).as_str().as_bytes());
    lost.bit(!regular);
    if !regular {
        for element in doc.iter_raw() {
            for &byte in element.name {
                lost.bits(u128::from(byte), 8);
            }
            lost.bits(0, 8);
        }
    }
}

/// Whether the first byte of the encoding says more than the class.
pub(super) fn has_own_tag(type_code: u8) -> bool {
    matches!(
        type_code,
        tag::DOUBLE | tag::INT32 | tag::INT64 | tag::DECIMAL128 | tag::BOOL
    )
}

/// The first byte of the encoding of a class, which is also its mark before a name.
pub(super) fn class_tag(type_code: u8) -> u8 {
    match type_code {
        tag::MIN_KEY => tags::MIN_KEY,
        tag::UNDEFINED => tags::UNDEFINED,
        tag::NULL => tags::NULL,
        tag::DOUBLE | tag::INT32 | tag::INT64 | tag::DECIMAL128 => tags::NAN,
        tag::STRING | tag::SYMBOL => tags::STRING,
        tag::DOCUMENT => tags::DOCUMENT,
        tag::ARRAY => tags::ARRAY,
        tag::BINARY => tags::BINARY,
        tag::OBJECT_ID => tags::OBJECT_ID,
        tag::BOOL => tags::FALSE,
        tag::DATE_TIME => tags::DATE_TIME,
        tag::TIMESTAMP => tags::TIMESTAMP,
        tag::REGEX => tags::REGEX,
        tag::DB_POINTER => tags::DB_POINTER,
        tag::JAVASCRIPT => tags::JAVASCRIPT,
        tag::JAVASCRIPT_WITH_SCOPE => tags::JAVASCRIPT_WITH_SCOPE,
        _ => tags::MAX_KEY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_to_escape_are_found_at_any_place() {
        for length in 0..40 {
            for filler in [2u8, 0x7F, 0x80, 0xFF] {
                let plain = vec![filler; length];
                assert_eq!(find_special(&plain), None);
                for at in 0..length {
                    for special in [0, 1] {
                        let mut bytes = plain.clone();
                        bytes
                            .iter_mut()
                            .skip(at)
                            .step_by(3)
                            .for_each(|b| *b = special);
                        assert_eq!(find_special(&bytes), Some(at), "{length} {filler}");
                    }
                }
            }
        }
    }
}
