//! Exact comparison of numbers across their four types.

use std::cmp::Ordering;

use crate::decimal128::compare_double;
use crate::{Decimal128, Value};

/// Compares two numbers by value; `None` when one is not a number.
pub(crate) fn compare(a: &Value<'_>, b: &Value<'_>) -> Option<Ordering> {
    let (a, b) = (Number::from_value(a)?, Number::from_value(b)?);
    Some(match (a, b) {
        (Number::Int(a), Number::Int(b)) => a.cmp(&b),
        (Number::Double(a), Number::Double(b)) => doubles(a, b),
        (Number::Int(a), Number::Double(b)) => int_double(a, b),
        (Number::Double(a), Number::Int(b)) => int_double(b, a).reverse(),
        (Number::Decimal(a), Number::Decimal(b)) => a.compare(b),
        (Number::Int(a), Number::Decimal(b)) => Decimal128::from(a).compare(b),
        (Number::Decimal(a), Number::Int(b)) => a.compare(Decimal128::from(b)),
        (Number::Double(a), Number::Decimal(b)) => compare_double(b, a).reverse(),
        (Number::Decimal(a), Number::Double(b)) => compare_double(a, b),
    })
}

enum Number {
    Int(i64),
    Double(f64),
    Decimal(Decimal128),
}

impl Number {
    fn from_value(value: &Value<'_>) -> Option<Number> {
        Some(match *value {
            Value::Int32(i) => Number::Int(i64::from(i)),
            Value::Int64(i) => Number::Int(i),
            Value::Double(d) => Number::Double(d),
            Value::Decimal128(d) => Number::Decimal(d),
            _ => return None,
        })
    }
}

/// NaN first and equal to itself, -0.0 equal to 0.0.
fn doubles(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b)
        .unwrap_or_else(|| b.is_nan().cmp(&a.is_nan()))
}

/// 2^63, the first double above every 64-bit integer.
const TWO_63: f64 = 9_223_372_036_854_775_808.0;

fn int_double(a: i64, b: f64) -> Ordering {
    if b.is_nan() || b < -TWO_63 {
        return Ordering::Greater;
    }
    if b >= TWO_63 {
        return Ordering::Less;
    }
    // Now the integral part fits, and the fraction decides between equals.
    let whole = b.trunc();
    a.cmp(&(whole as i64)).then_with(|| doubles(whole, b))
}
