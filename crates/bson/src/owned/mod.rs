//! Documents, arrays and values that own their bytes.

mod array_buf;
mod docbuf;
mod not_utf8;

pub use array_buf::ArrayBuf;
pub use docbuf::DocBuf;
pub use not_utf8::NotUtf8Buf;

use crate::{Decimal128, ObjectId, Timestamp, Value};

/// The owned form of [`Value`], variant by variant.
#[derive(Clone, Debug, Default)]
pub enum OwnedValue {
    Double(f64),
    String(String),
    Document(DocBuf),
    /// The array's bytes; its names are "0", "1", …
    Array(DocBuf),
    Binary {
        subtype: u8,
        bytes: Vec<u8>,
    },
    Undefined,
    ObjectId(ObjectId),
    Bool(bool),
    DateTime(i64),
    #[default]
    Null,
    Regex {
        pattern: String,
        options: String,
    },
    DbPointer {
        ns: String,
        id: ObjectId,
    },
    JavaScript(String),
    Symbol(String),
    JavaScriptWithScope {
        code: String,
        scope: DocBuf,
    },
    Int32(i32),
    Timestamp(Timestamp),
    Int64(i64),
    Decimal128(Decimal128),
    MinKey,
    MaxKey,
    NotUtf8(NotUtf8Buf),
}

impl OwnedValue {
    #[inline]
    pub fn as_value(&self) -> Value<'_> {
        match self {
            OwnedValue::Double(d) => Value::Double(*d),
            OwnedValue::String(s) => Value::String(s),
            OwnedValue::Document(d) => Value::Document(d),
            OwnedValue::Array(d) => Value::Array(d),
            OwnedValue::Binary { subtype, bytes } => Value::Binary {
                subtype: *subtype,
                bytes,
            },
            OwnedValue::Undefined => Value::Undefined,
            OwnedValue::ObjectId(id) => Value::ObjectId(*id),
            OwnedValue::Bool(b) => Value::Bool(*b),
            OwnedValue::DateTime(ms) => Value::DateTime(*ms),
            OwnedValue::Null => Value::Null,
            OwnedValue::Regex { pattern, options } => Value::Regex { pattern, options },
            OwnedValue::DbPointer { ns, id } => Value::DbPointer { ns, id: *id },
            OwnedValue::JavaScript(s) => Value::JavaScript(s),
            OwnedValue::Symbol(s) => Value::Symbol(s),
            OwnedValue::JavaScriptWithScope { code, scope } => {
                Value::JavaScriptWithScope { code, scope }
            }
            OwnedValue::Int32(i) => Value::Int32(*i),
            OwnedValue::Timestamp(t) => Value::Timestamp(*t),
            OwnedValue::Int64(i) => Value::Int64(*i),
            OwnedValue::Decimal128(d) => Value::Decimal128(*d),
            OwnedValue::MinKey => Value::MinKey,
            OwnedValue::MaxKey => Value::MaxKey,
            OwnedValue::NotUtf8(value) => Value::NotUtf8(value.borrow()),
        }
    }

    /// The bytes that the value has allocated.
    #[inline]
    pub fn heap_bytes(&self) -> usize {
        match self {
            OwnedValue::String(text)
            | OwnedValue::JavaScript(text)
            | OwnedValue::Symbol(text)
            | OwnedValue::DbPointer { ns: text, .. } => text.capacity(),
            OwnedValue::Document(doc) | OwnedValue::Array(doc) => doc.capacity(),
            OwnedValue::Binary { bytes, .. } => bytes.capacity(),
            OwnedValue::Regex { pattern, options } => pattern.capacity() + options.capacity(),
            OwnedValue::JavaScriptWithScope { code, scope } => code.capacity() + scope.capacity(),
            OwnedValue::NotUtf8(value) => value.capacity(),
            _ => 0,
        }
    }
}

impl Value<'_> {
    pub fn to_owned(&self) -> OwnedValue {
        OwnedValue::from(*self)
    }
}

impl From<Value<'_>> for OwnedValue {
    fn from(value: Value<'_>) -> Self {
        match value {
            Value::Double(d) => OwnedValue::Double(d),
            Value::String(s) => OwnedValue::String(s.to_owned()),
            Value::Document(d) => OwnedValue::Document(d.to_owned()),
            Value::Array(d) => OwnedValue::Array(d.to_owned()),
            Value::Binary { subtype, bytes } => OwnedValue::Binary {
                subtype,
                bytes: bytes.to_owned(),
            },
            Value::Undefined => OwnedValue::Undefined,
            Value::ObjectId(id) => OwnedValue::ObjectId(id),
            Value::Bool(b) => OwnedValue::Bool(b),
            Value::DateTime(ms) => OwnedValue::DateTime(ms),
            Value::Null => OwnedValue::Null,
            Value::Regex { pattern, options } => OwnedValue::Regex {
                pattern: pattern.to_owned(),
                options: options.to_owned(),
            },
            Value::DbPointer { ns, id } => OwnedValue::DbPointer {
                ns: ns.to_owned(),
                id,
            },
            Value::JavaScript(s) => OwnedValue::JavaScript(s.to_owned()),
            Value::Symbol(s) => OwnedValue::Symbol(s.to_owned()),
            Value::JavaScriptWithScope { code, scope } => OwnedValue::JavaScriptWithScope {
                code: code.to_owned(),
                scope: scope.to_owned(),
            },
            Value::Int32(i) => OwnedValue::Int32(i),
            Value::Timestamp(t) => OwnedValue::Timestamp(t),
            Value::Int64(i) => OwnedValue::Int64(i),
            Value::Decimal128(d) => OwnedValue::Decimal128(d),
            Value::MinKey => OwnedValue::MinKey,
            Value::MaxKey => OwnedValue::MaxKey,
            Value::NotUtf8(value) => OwnedValue::NotUtf8(value.into()),
        }
    }
}

/// Identical, as for [`Value`].
impl PartialEq for OwnedValue {
    fn eq(&self, other: &Self) -> bool {
        self.as_value() == other.as_value()
    }
}

impl Eq for OwnedValue {}

impl PartialEq<Value<'_>> for OwnedValue {
    fn eq(&self, other: &Value<'_>) -> bool {
        self.as_value() == *other
    }
}

impl From<DocBuf> for OwnedValue {
    fn from(doc: DocBuf) -> Self {
        OwnedValue::Document(doc)
    }
}

impl From<ArrayBuf> for OwnedValue {
    fn from(array: ArrayBuf) -> Self {
        OwnedValue::Array(array.into_docbuf())
    }
}

impl From<String> for OwnedValue {
    fn from(text: String) -> Self {
        OwnedValue::String(text)
    }
}

impl From<&str> for OwnedValue {
    fn from(text: &str) -> Self {
        OwnedValue::String(text.to_owned())
    }
}

macro_rules! from_scalar {
    ($($type:ty => $variant:ident),* $(,)?) => {$(
        impl From<$type> for OwnedValue {
            fn from(value: $type) -> Self {
                OwnedValue::$variant(value)
            }
        }
    )*};
}

from_scalar! {
    f64 => Double, bool => Bool, i32 => Int32, i64 => Int64, ObjectId => ObjectId,
    Timestamp => Timestamp, Decimal128 => Decimal128,
}
