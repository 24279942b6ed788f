//! The value of an expression: borrowed where it is part of the document, owned where computed.

use crate::bounds;
use crate::number::Number;
use frond_bson::{ArrayBuf, Decimal128, Doc, DocBuf, OwnedValue, Value};
use frond_error::Result;

/// The result of an expression.
#[derive(Clone, Debug)]
pub enum Val<'a> {
    /// Nothing: the field is absent, or `$$REMOVE`.
    Missing,
    /// A scalar, or a part of the document, the expression or a variable.
    Ref(Value<'a>),
    Owned(OwnedValue),
}

impl From<Number> for Val<'_> {
    fn from(number: Number) -> Self {
        Val::Ref(number.into())
    }
}

impl<'a> Val<'a> {
    pub(crate) const NULL: Val<'static> = Val::Ref(Value::Null);

    /// The value, or `None` if it is missing.
    #[inline]
    pub fn get(&self) -> Option<Value<'_>> {
        match self {
            Val::Missing => None,
            Val::Ref(value) => Some(*value),
            Val::Owned(value) => Some(value.as_value()),
        }
    }

    /// The value, null if it is missing.
    pub fn or_null(&self) -> Value<'_> {
        self.get().unwrap_or(Value::Null)
    }

    /// Whether it is missing, null or undefined; most operators then give null.
    pub(crate) fn is_nullish(&self) -> bool {
        self.get().is_none_or(|v| v.is_nullish())
    }

    /// Whether it is missing.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Val::Missing)
    }

    /// Truth as conditions see it; a missing value is false.
    pub(crate) fn truthy(&self) -> bool {
        self.get().is_some_and(|v| v.truthy())
    }

    /// A copy of a value, whose bytes are reserved.
    pub(crate) fn copy_of(value: Value<'_>) -> Result<Val<'a>> {
        bounds::reserve(value.len_bytes())?;
        Ok(Val::Owned(value.to_owned()))
    }

    /// A copy that borrows nothing, whose bytes are reserved.
    pub(crate) fn into_owned<'b>(self) -> Result<Val<'b>> {
        match self {
            Val::Missing => Ok(Val::Missing),
            Val::Ref(value) => Val::copy_of(value),
            Val::Owned(value) => Ok(Val::Owned(value)),
        }
    }

    /// Whether the value has a fixed size, so that no operator makes much of it or reads it for long.
    #[inline]
    pub(crate) fn is_scalar(&self) -> bool {
        match self {
            Val::Missing => true,
            Val::Ref(value) => bounds::is_scalar(value),
            Val::Owned(_) => false,
        }
    }

    /// The bytes that the value has allocated.
    #[inline]
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Val::Owned(value) => value.heap_bytes(),
            Val::Missing | Val::Ref(_) => 0,
        }
    }

    /// The owned value; `None` if it is missing.
    pub fn into_value(self) -> Option<OwnedValue> {
        match self {
            Val::Missing => None,
            Val::Ref(value) => Some(value.to_owned()),
            Val::Owned(value) => Some(value),
        }
    }

    /// The name of the type, `missing` included, for messages and `$type`.
    pub(crate) fn type_name(&self) -> &'static str {
        self.get().map_or("missing", |v| v.type_name())
    }

    pub(crate) fn as_array(&self) -> Option<&Doc> {
        self.get().and_then(|v| v.as_array())
    }

    pub(crate) fn as_doc(&self) -> Option<&Doc> {
        self.get().and_then(|v| v.as_doc())
    }

    pub(crate) fn string(text: impl Into<String>) -> Val<'a> {
        Val::Owned(OwnedValue::String(text.into()))
    }

    /// A string of these bytes, which need not be UTF-8.
    pub(crate) fn text(bytes: Vec<u8>) -> Val<'a> {
        Val::Owned(OwnedValue::string(bytes))
    }

    pub(crate) fn array(array: ArrayBuf) -> Val<'a> {
        Val::Owned(OwnedValue::Array(array.into_docbuf()))
    }

    pub(crate) fn doc(doc: DocBuf) -> Val<'a> {
        Val::Owned(OwnedValue::Document(doc))
    }
}

macro_rules! from_scalar {
    ($($type:ty => $variant:ident),* $(,)?) => {$(
        impl From<$type> for Val<'_> {
            fn from(value: $type) -> Self {
                Val::Ref(Value::$variant(value))
            }
        }
    )*};
}

from_scalar! { f64 => Double, bool => Bool, i32 => Int32, i64 => Int64, Decimal128 => Decimal128 }

impl<'a> From<Value<'a>> for Val<'a> {
    fn from(value: Value<'a>) -> Val<'a> {
        Val::Ref(value)
    }
}

impl<'a> From<Option<Value<'a>>> for Val<'a> {
    #[inline]
    fn from(value: Option<Value<'a>>) -> Val<'a> {
        value.map_or(Val::Missing, Val::Ref)
    }
}
