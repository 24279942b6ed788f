//! Borrowed documents and their values. The two are one module because a value may be a document, and a document
//! holds values.

mod decode;
mod doc;
mod text;

pub use doc::{Doc, Iter, RawIter};
pub use text::{NotUtf8, Text};

use crate::raw::{write_cstring, write_len, write_text};
use crate::{Decimal128, ObjectId, Timestamp, tag};

/// A BSON value that borrows its text, documents and binary.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// 64-bit floating point.
    Double(f64),
    /// UTF-8 text.
    String(&'a str),
    Document(&'a Doc),
    /// An array: a document with the names "0", "1", …
    Array(&'a Doc),
    Binary {
        /// The subtype: 0 generic, 4 UUID, …
        subtype: u8,
        /// The bytes as stored; those of subtype 2 start with a second length.
        bytes: &'a [u8],
    },
    /// The deprecated undefined value.
    Undefined,
    /// A 12-byte identifier.
    ObjectId(ObjectId),
    Bool(bool),
    /// Milliseconds since 1970-01-01 UTC.
    DateTime(i64),
    Null,
    Regex {
        pattern: &'a str,
        options: &'a str,
    },
    /// The deprecated pointer to a document.
    DbPointer {
        ns: &'a str,
        /// The document's `_id`.
        id: ObjectId,
    },
    JavaScript(&'a str),
    Symbol(&'a str),
    /// The deprecated JavaScript code with variables.
    JavaScriptWithScope {
        code: &'a str,
        scope: &'a Doc,
    },
    /// 32-bit integer.
    Int32(i32),
    Timestamp(Timestamp),
    /// 64-bit integer.
    Int64(i64),
    /// 128-bit decimal floating point.
    Decimal128(Decimal128),
    /// Less than every other value.
    MinKey,
    /// Greater than every other value.
    MaxKey,
    /// A value of one of the types above whose text is not UTF-8. [`Value::text`], [`Value::string_bytes`] and
    /// [`Value::characters`] are for code that does not need valid UTF-8.
    NotUtf8(NotUtf8<'a>),
}

impl<'a> Value<'a> {
    /// The BSON type byte (see [`crate::tag`]).
    pub fn type_code(&self) -> u8 {
        match self {
            Value::Double(_) => tag::DOUBLE,
            Value::String(_) => tag::STRING,
            Value::Document(_) => tag::DOCUMENT,
            Value::Array(_) => tag::ARRAY,
            Value::Binary { .. } => tag::BINARY,
            Value::Undefined => tag::UNDEFINED,
            Value::ObjectId(_) => tag::OBJECT_ID,
            Value::Bool(_) => tag::BOOL,
            Value::DateTime(_) => tag::DATE_TIME,
            Value::Null => tag::NULL,
            Value::Regex { .. } => tag::REGEX,
            Value::DbPointer { .. } => tag::DB_POINTER,
            Value::JavaScript(_) => tag::JAVASCRIPT,
            Value::Symbol(_) => tag::SYMBOL,
            Value::JavaScriptWithScope { .. } => tag::JAVASCRIPT_WITH_SCOPE,
            Value::Int32(_) => tag::INT32,
            Value::Timestamp(_) => tag::TIMESTAMP,
            Value::Int64(_) => tag::INT64,
            Value::Decimal128(_) => tag::DECIMAL128,
            Value::MinKey => tag::MIN_KEY,
            Value::MaxKey => tag::MAX_KEY,
            Value::NotUtf8(value) => value.type_code(),
        }
    }

    /// MongoDB's name of the type, as in `$type` and error messages.
    pub fn type_name(&self) -> &'static str {
        tag::type_name_of_code(self.type_code()).unwrap_or("unknown")
    }

    /// Whether this is a double, int, long or decimal.
    #[inline]
    pub fn is_number(&self) -> bool {
        matches!(
            self,
            Value::Double(_) | Value::Int32(_) | Value::Int64(_) | Value::Decimal128(_)
        )
    }

    /// Whether this is null or undefined.
    #[inline]
    pub fn is_nullish(&self) -> bool {
        matches!(self, Value::Null | Value::Undefined)
    }

    /// Whether this is the NaN of a double or decimal.
    pub fn is_nan(&self) -> bool {
        match self {
            Value::Double(d) => d.is_nan(),
            Value::Decimal128(d) => d.is_nan(),
            _ => false,
        }
    }

    /// A number of any type that is integral and within 64 bits.
    pub fn as_i64_lossless(&self) -> Option<i64> {
        match *self {
            Value::Int32(i) => Some(i64::from(i)),
            Value::Int64(i) => Some(i),
            Value::Double(d) => {
                // 2^63 is a double, i64::MAX is not.
                let fits = d.trunc() == d
                    && (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&d);
                fits.then_some(d as i64)
            }
            Value::Decimal128(d) => d.to_i64_lossless(),
            _ => None,
        }
    }

    /// A number of any type, rounded to the nearest double.
    #[inline]
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            Value::Int32(i) => Some(f64::from(i)),
            Value::Int64(i) => Some(i as f64),
            Value::Double(d) => Some(d),
            Value::Decimal128(d) => Some(d.to_f64()),
            _ => None,
        }
    }

    /// The text of a string, if it is UTF-8.
    #[inline]
    pub fn as_str(&self) -> Option<&'a str> {
        match self {
            Value::String(s) => Some(s),
            _ => None,
        }
    }

    #[inline]
    pub fn as_doc(&self) -> Option<&'a Doc> {
        match self {
            Value::Document(d) => Some(d),
            _ => None,
        }
    }

    #[inline]
    pub fn as_array(&self) -> Option<&'a Doc> {
        match self {
            Value::Array(d) => Some(d),
            _ => None,
        }
    }

    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(b) => Some(*b),
            _ => None,
        }
    }

    /// Truth as in MongoDB: false, null, undefined and zero are false, everything else is true (NaN too).
    #[inline]
    pub fn truthy(&self) -> bool {
        match self {
            Value::Bool(b) => *b,
            Value::Null | Value::Undefined => false,
            Value::Int32(i) => *i != 0,
            Value::Int64(i) => *i != 0,
            Value::Double(d) => *d != 0.0,
            Value::Decimal128(d) => !d.is_zero(),
            _ => true,
        }
    }

    /// Length of the value in a document, without type byte and name.
    #[inline]
    pub fn len_bytes(&self) -> usize {
        match self {
            Value::String(s) | Value::JavaScript(s) | Value::Symbol(s) => 5 + s.len(),
            Value::Document(d) | Value::Array(d) => d.len_bytes(),
            Value::Binary { bytes, .. } => 5 + bytes.len(),
            Value::Undefined | Value::Null | Value::MinKey | Value::MaxKey => 0,
            Value::ObjectId(_) => 12,
            Value::Bool(_) => 1,
            Value::Double(_) | Value::DateTime(_) | Value::Timestamp(_) | Value::Int64(_) => 8,
            Value::Regex { pattern, options } => 2 + pattern.len() + options.len(),
            Value::DbPointer { ns, .. } => 17 + ns.len(),
            Value::JavaScriptWithScope { code, scope } => 9 + code.len() + scope.len_bytes(),
            Value::Int32(_) => 4,
            Value::Decimal128(_) => 16,
            Value::NotUtf8(value) => value.value_bytes().len(),
        }
    }

    /// Appends the value's bytes as in a document, without type byte and name.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        match *self {
            Value::Double(d) => out.extend_from_slice(&d.to_le_bytes()),
            Value::String(s) | Value::JavaScript(s) | Value::Symbol(s) => {
                write_text(out, s.as_bytes());
            }
            Value::Document(d) | Value::Array(d) => out.extend_from_slice(d.as_bytes()),
            Value::Binary { subtype, bytes } => {
                write_len(out, bytes.len());
                out.push(subtype);
                out.extend_from_slice(bytes);
            }
            Value::Undefined | Value::Null | Value::MinKey | Value::MaxKey => {}
            Value::ObjectId(id) => out.extend_from_slice(&id.0),
            Value::Bool(b) => out.push(u8::from(b)),
            Value::DateTime(ms) => out.extend_from_slice(&ms.to_le_bytes()),
            Value::Regex { pattern, options } => {
                write_cstring(out, pattern);
                write_cstring(out, options);
            }
            Value::DbPointer { ns, id } => {
                write_text(out, ns.as_bytes());
                out.extend_from_slice(&id.0);
            }
            Value::JavaScriptWithScope { code, scope } => {
                write_len(out, 9 + code.len() + scope.len_bytes());
                write_text(out, code.as_bytes());
                out.extend_from_slice(scope.as_bytes());
            }
            Value::Int32(i) => out.extend_from_slice(&i.to_le_bytes()),
            Value::Timestamp(t) => out.extend_from_slice(&t.to_u64().to_le_bytes()),
            Value::Int64(i) => out.extend_from_slice(&i.to_le_bytes()),
            Value::Decimal128(d) => out.extend_from_slice(&d.to_bytes()),
            Value::NotUtf8(value) => out.extend_from_slice(value.value_bytes()),
        }
    }
}

/// Identical: same type and same bytes. For MongoDB's equality use [`crate::compare()`].
impl PartialEq for Value<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Value::Double(a), Value::Double(b)) => a.to_bits() == b.to_bits(),
            (Value::String(a), Value::String(b))
            | (Value::JavaScript(a), Value::JavaScript(b))
            | (Value::Symbol(a), Value::Symbol(b)) => a == b,
            (Value::Document(a), Value::Document(b)) | (Value::Array(a), Value::Array(b)) => a == b,
            (
                Value::Binary {
                    subtype: s,
                    bytes: a,
                },
                Value::Binary {
                    subtype: t,
                    bytes: b,
                },
            ) => s == t && a == b,
            (Value::ObjectId(a), Value::ObjectId(b)) => a == b,
            (Value::Bool(a), Value::Bool(b)) => a == b,
            (Value::DateTime(a), Value::DateTime(b)) | (Value::Int64(a), Value::Int64(b)) => a == b,
            (
                Value::Regex {
                    pattern: a,
                    options: o,
                },
                Value::Regex {
                    pattern: b,
                    options: p,
                },
            ) => a == b && o == p,
            (Value::DbPointer { ns: a, id: i }, Value::DbPointer { ns: b, id: j }) => {
                a == b && i == j
            }
            (
                Value::JavaScriptWithScope { code: a, scope: s },
                Value::JavaScriptWithScope { code: b, scope: t },
            ) => a == b && s == t,
            (Value::Int32(a), Value::Int32(b)) => a == b,
            (Value::Timestamp(a), Value::Timestamp(b)) => a == b,
            (Value::Decimal128(a), Value::Decimal128(b)) => a == b,
            (Value::NotUtf8(a), Value::NotUtf8(b)) => a == b,
            (Value::Undefined, Value::Undefined)
            | (Value::Null, Value::Null)
            | (Value::MinKey, Value::MinKey)
            | (Value::MaxKey, Value::MaxKey) => true,
            _ => false,
        }
    }
}

impl Eq for Value<'_> {}
