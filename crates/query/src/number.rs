//! Arithmetic on BSON numbers with MongoDB's result types.
//!
//! The type of a result is the wider of the two operands': int32, int64, double, decimal. An int32
//! that overflows becomes an int64. An int64 that overflows is reported, and the caller decides.

use frond_bson::{Decimal128, Value};

/// A number of one of the four types.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Number {
    Int32(i32),
    Int64(i64),
    Double(f64),
    Decimal(Decimal128),
}

use Number::{Decimal, Double, Int32, Int64};

/// Two operands brought to one type.
enum Pair {
    Ints(i32, i32),
    Longs(i64, i64),
    Doubles(f64, f64),
    Decimals(Decimal128, Decimal128),
}

impl Number {
    /// The number of a value, if it is one.
    pub(crate) fn from_value(value: &Value<'_>) -> Option<Number> {
        match *value {
            Value::Int32(v) => Some(Int32(v)),
            Value::Int64(v) => Some(Int64(v)),
            Value::Double(v) => Some(Double(v)),
            Value::Decimal128(v) => Some(Decimal(v)),
            _ => None,
        }
    }

    fn pair(self, other: Number) -> Pair {
        match (self, other) {
            (Int32(a), Int32(b)) => Pair::Ints(a, b),
            (Decimal(_), _) | (_, Decimal(_)) => {
                Pair::Decimals(self.to_decimal(), other.to_decimal())
            }
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
            Pair::Decimals(a, b) => Some(Decimal(a + b)),
        }
    }

    /// The difference. `None` if it does not fit an int64.
    pub(crate) fn checked_sub(self, other: Number) -> Option<Number> {
        match self.pair(other) {
            Pair::Ints(a, b) => Some(narrow(i64::from(a) - i64::from(b))),
            Pair::Longs(a, b) => a.checked_sub(b).map(Int64),
            Pair::Doubles(a, b) => Some(Double(a - b)),
            Pair::Decimals(a, b) => Some(Decimal(a - b)),
        }
    }

    /// The product. `None` if it does not fit an int64.
    pub(crate) fn checked_mul(self, other: Number) -> Option<Number> {
        match self.pair(other) {
            Pair::Ints(a, b) => Some(narrow(i64::from(a) * i64::from(b))),
            Pair::Longs(a, b) => a.checked_mul(b).map(Int64),
            Pair::Doubles(a, b) => Some(Double(a * b)),
            Pair::Decimals(a, b) => Some(Decimal(a * b)),
        }
    }

    /// The sum as expressions and accumulators compute it: a double where an int64 overflows.
    pub(crate) fn add(self, other: Number) -> Number {
        self.checked_add(other)
            .unwrap_or_else(|| Double(self.to_f64() + other.to_f64()))
    }

    /// The difference, a double where an int64 overflows.
    pub(crate) fn sub(self, other: Number) -> Number {
        self.checked_sub(other)
            .unwrap_or_else(|| Double(self.to_f64() - other.to_f64()))
    }

    /// The product, a double where an int64 overflows.
    pub(crate) fn mul(self, other: Number) -> Number {
        self.checked_mul(other)
            .unwrap_or_else(|| Double(self.to_f64() * other.to_f64()))
    }

    /// The quotient, a double unless an operand is a decimal. `None` if `other` is zero.
    pub(crate) fn div(self, other: Number) -> Option<Number> {
        if other.is_zero() {
            return None;
        }
        Some(match self.pair(other) {
            Pair::Decimals(a, b) => Decimal(a / b),
            _ => Double(self.to_f64() / other.to_f64()),
        })
    }

    /// The remainder with the sign of `self`. `None` if `other` is zero.
    pub(crate) fn rem(self, other: Number) -> Option<Number> {
        if other.is_zero() {
            return None;
        }
        Some(match self.pair(other) {
            // The least integer by -1 overflows in hardware; the remainder is 0.
            Pair::Ints(a, b) => Int32(a.checked_rem(b).unwrap_or(0)),
            Pair::Longs(a, b) => Int64(a.checked_rem(b).unwrap_or(0)),
            Pair::Doubles(a, b) => Double(a % b),
            Pair::Decimals(a, b) => Decimal(a % b),
        })
    }

    /// Whether it is zero of any sign.
    pub(crate) fn is_zero(self) -> bool {
        match self {
            Int32(v) => v == 0,
            Int64(v) => v == 0,
            Double(v) => v == 0.0,
            Decimal(v) => v.is_zero(),
        }
    }

    pub(crate) fn to_f64(self) -> f64 {
        match self {
            Int32(v) => f64::from(v),
            Int64(v) => v as f64,
            Double(v) => v,
            Decimal(v) => v.to_f64(),
        }
    }

    /// The number as a decimal; doubles keep 15 digits, as in MongoDB.
    pub(crate) fn to_decimal(self) -> Decimal128 {
        match self {
            Int32(v) => v.into(),
            Int64(v) => v.into(),
            Double(v) => Decimal128::from_f64(v),
            Decimal(v) => v,
        }
    }

    /// The value of an integer type; other types are truncated.
    fn to_i64(self) -> i64 {
        match self {
            Int32(v) => i64::from(v),
            Int64(v) => v,
            Double(v) => v as i64,
            Decimal(v) => v.to_f64() as i64,
        }
    }

    /// The number in the notation of the shell, with its type, for messages.
    pub(crate) fn shell(self) -> String {
        match self {
            Int32(v) => format!("(NumberInt){v}"),
            Int64(v) => format!("(NumberLong){v}"),
            Double(v) => format!("(double){v}"),
            Decimal(v) => format!("(NumberDecimal){v}"),
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
            Decimal(v) => Value::Decimal128(v),
        }
    }
}
