//! Arithmetic on BSON numbers with MongoDB's result types.
//!
//! The type of a result is the wider of the two operands': int32, int64, double, decimal. An int32
//! that overflows becomes an int64. An int64 that overflows is reported, and the caller decides.

use frond_bson::Value;

/// A number of one of the four types.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Number {
    Int32(i32),
    Int64(i64),
    Double(f64),
}

use Number::{Double, Int32, Int64};

/// Two operands brought to one type.
enum Pair {
    Ints(i32, i32),
    Longs(i64, i64),
    Doubles(f64, f64),
}

impl Number {
    /// The number that a value is, if it is one.
    pub(crate) fn of(value: &Value<'_>) -> Option<Number> {
        match *value {
            Value::Int32(v) => Some(Int32(v)),
            Value::Int64(v) => Some(Int64(v)),
            Value::Double(v) => Some(Double(v)),
            _ => None,
        }
    }

    fn pair(self, other: Number) -> Pair {
        match (self, other) {
            (Int32(a), Int32(b)) => Pair::Ints(a, b),
            (Double(_), _) | (_, Double(_)) => Pair::Doubles(self.to_f64(), other.to_f64()),
            _ => Pair::Longs(self.to_i64(), other.to_i64()),
        }
    }

    /// The sum. `None` if it does not fit an int64.
    pub(crate) fn checked_add(self, other: Number) -> Option<Number> {
        match self.pair(other) {
            Pair::Ints(a, b) => Some(narrow(i64::from(a) + i64::from(b))),
            Pair::Longs(a, b) => a.checked_add(b).map(Int64),
            Pair::Doubles(a, b) => Some(Double(a + b)),
        }
    }

    /// The product. `None` if it does not fit an int64.
    pub(crate) fn checked_mul(self, other: Number) -> Option<Number> {
        match self.pair(other) {
            Pair::Ints(a, b) => Some(narrow(i64::from(a) * i64::from(b))),
            Pair::Longs(a, b) => a.checked_mul(b).map(Int64),
            Pair::Doubles(a, b) => Some(Double(a * b)),
        }
    }

    /// Zero of the same type.
    pub(crate) fn zero(self) -> Number {
        match self {
            Int32(_) => Int32(0),
            Int64(_) => Int64(0),
            Double(_) => Double(0.0),
        }
    }

    /// The nearest double.
    pub(crate) fn to_f64(self) -> f64 {
        match self {
            Int32(v) => f64::from(v),
            Int64(v) => v as f64,
            Double(v) => v,
        }
    }

    /// The value of an integer type; other types are cut off.
    fn to_i64(self) -> i64 {
        match self {
            Int32(v) => i64::from(v),
            Int64(v) => v,
            Double(v) => v as i64,
        }
    }

    /// As the shell would write it in a message, with its type.
    pub(crate) fn shell(self) -> String {
        match self {
            Int32(v) => format!("(NumberInt){v}"),
            Int64(v) => format!("(NumberLong){v}"),
            Double(v) => format!("(double){v}"),
        }
    }
}

/// An int32 where the value fits.
fn narrow(value: i64) -> Number {
    i32::try_from(value).map_or(Int64(value), Int32)
}

impl From<Number> for Value<'_> {
    fn from(number: Number) -> Self {
        match number {
            Int32(v) => Value::Int32(v),
            Int64(v) => Value::Int64(v),
            Double(v) => Value::Double(v),
        }
    }
}
