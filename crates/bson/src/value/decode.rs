//! Decoding values from their bytes.

use super::text::text_at;
use super::{Doc, NotUtf8, Text, Value};
use crate::raw::{RawElement, string};
use crate::{Decimal128, ObjectId, Timestamp, tag};

impl<'a> RawElement<'a> {
    /// Decodes the value; `None` when the bytes are corrupt.
    pub fn value(&self) -> Option<Value<'a>> {
        read_value(self.tag, self.value)
    }
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
fn read_value(tag: u8, bytes: &[u8]) -> Option<Value<'_>> {
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
