//! Conversions of Rust values into [`Value`].

use crate::{ArrayBuf, Decimal128, Doc, DocBuf, ObjectId, OwnedValue, Timestamp, Value};

macro_rules! from_copy {
    ($($type:ty => $variant:ident),* $(,)?) => {$(
        impl From<$type> for Value<'_> {
            fn from(value: $type) -> Self {
                Value::$variant(value)
            }
        }

        impl ToValue for $type {
            fn to_value(&self) -> Value<'_> {
                Value::$variant(*self)
            }
        }
    )*};
}

from_copy! {
    f64 => Double, bool => Bool, i32 => Int32, i64 => Int64, ObjectId => ObjectId,
    Timestamp => Timestamp, Decimal128 => Decimal128,
}

macro_rules! from_ref {
    ($($type:ty, $value:ident => $make:expr;)*) => {$(
        impl<'a> From<&'a $type> for Value<'a> {
            fn from($value: &'a $type) -> Self {
                $make
            }
        }

        impl ToValue for $type {
            fn to_value(&self) -> Value<'_> {
                let $value = self;
                $make
            }
        }
    )*};
}

from_ref! {
    str, s => Value::String(s);
    String, s => Value::String(s);
    Doc, d => Value::Document(d);
    DocBuf, d => Value::Document(d);
    ArrayBuf, a => Value::Array(a.as_doc());
    OwnedValue, v => v.as_value();
}

impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Null, Into::into)
    }
}

impl<'a> From<&Value<'a>> for Value<'a> {
    fn from(value: &Value<'a>) -> Self {
        *value
    }
}

/// Types that convert to a value; accepted by the [`doc!`](crate::doc) macro.
pub trait ToValue {
    fn to_value(&self) -> Value<'_>;
}

impl<T: ToValue + ?Sized> ToValue for &T {
    fn to_value(&self) -> Value<'_> {
        (**self).to_value()
    }
}

impl<T: ToValue> ToValue for Option<T> {
    fn to_value(&self) -> Value<'_> {
        self.as_ref().map_or(Value::Null, ToValue::to_value)
    }
}

impl ToValue for Value<'_> {
    fn to_value(&self) -> Value<'_> {
        *self
    }
}
