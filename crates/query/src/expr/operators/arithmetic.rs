//! Arithmetic: `$add`, `$subtract`, `$multiply`, `$divide`, `$mod`, rounding, bits.

use super::array::integer;
use super::{Arguments, Entry, many, one, two};
use crate::expr::value::Val;
use crate::number::Number;
use frond_bson::{Decimal128, Rounding, Value};
use frond_error::{Error, Result};

pub(super) const OPERATORS: &[Entry] = &[
    many("$add", 0, Arguments::MANY, add),
    two("$subtract", subtract),
    many("$multiply", 0, Arguments::MANY, multiply),
    two("$divide", divide),
    two("$mod", modulo),
    one("$abs", abs),
    one("$ceil", |v| {
        rounded("$ceil", v, f64::ceil, Rounding::Ceiling)
    }),
    one("$floor", |v| {
        rounded("$floor", v, f64::floor, Rounding::Floor)
    }),
    many("$round", 1, 2, |a| {
        round_to("$round", a, Rounding::HalfEven)
    }),
    many("$trunc", 1, 2, |a| {
        round_to("$trunc", a, Rounding::TowardZero)
    }),
    many("$bitAnd", 0, Arguments::MANY, |a| {
        bitwise("$bitAnd", a, -1, |x, y| x & y)
    }),
    many("$bitOr", 0, Arguments::MANY, |a| {
        bitwise("$bitOr", a, 0, |x, y| x | y)
    }),
    many("$bitXor", 0, Arguments::MANY, |a| {
        bitwise("$bitXor", a, 0, |x, y| x ^ y)
    }),
    one("$bitNot", bit_not),
];

fn add<'a>(values: &[Val<'a>]) -> Result<Val<'a>> {
    let mut sum = Number::Int32(0);
    let mut date = None;
    for value in values {
        if value.is_nullish() {
            return Ok(Val::NULL);
        }
        match value.or_null() {
            Value::DateTime(_) if date.is_some() => {
                return Err(Error::location(
                    16612,
                    "only one date allowed in an $add expression",
                ));
            }
            Value::DateTime(ms) => date = Some(ms),
            other => match Number::from_value(&other) {
                Some(number) => sum = sum.add(number),
                None => {
                    return Err(Error::type_mismatch(format!(
                        "$add only supports numeric or date types, not {}",
                        other.type_name()
                    )));
                }
            },
        }
    }
    match date {
        None => Ok(sum.into()),
        Some(date) => {
            let sum = millis(sum).and_then(|ms| date.checked_add(ms));
            sum.map(date_val)
                .ok_or_else(|| Error::overflow("date overflow in $add"))
        }
    }
}

/// A number of milliseconds, rounded.
fn millis(number: Number) -> Option<i64> {
    match number {
        Number::Decimal(v) => v.round_to_integral(Rounding::HalfEven).to_i64_lossless(),
        Number::Int32(v) => Some(i64::from(v)),
        Number::Int64(v) => Some(v),
        other => {
            let rounded = other.to_f64().round();
            Value::Double(rounded).as_i64_lossless()
        }
    }
}

fn date_val<'a>(ms: i64) -> Val<'a> {
    Val::Ref(Value::DateTime(ms))
}

fn subtract<'a>(a: Val<'a>, b: Val<'a>) -> Result<Val<'a>> {
    if a.is_nullish() || b.is_nullish() {
        return Ok(Val::NULL);
    }
    let (x, y) = (a.or_null(), b.or_null());
    if let (Some(x), Some(y)) = (Number::from_value(&x), Number::from_value(&y)) {
        return Ok(x.sub(y).into());
    }
    match (x, y) {
        (Value::DateTime(x), Value::DateTime(y)) => x
            .checked_sub(y)
            .map(Val::from)
            .ok_or_else(|| Error::overflow("date overflow in $subtract")),
        (Value::DateTime(x), y) => {
            let Some(number) = Number::from_value(&y) else {
                return Err(Error::type_mismatch(format!(
                    "can't $subtract {} from Date",
                    y.type_name()
                )));
            };
            millis(number)
                .and_then(|ms| x.checked_sub(ms))
                .map(date_val)
                .ok_or_else(|| Error::overflow("date overflow in $subtract"))
        }
        (x, y) => Err(Error::type_mismatch(format!(
            "can't $subtract {} from {}",
            y.type_name(),
            x.type_name()
        ))),
    }
}

fn multiply<'a>(values: &[Val<'a>]) -> Result<Val<'a>> {
    let mut product = Number::Int32(1);
    for value in values {
        if value.is_nullish() {
            return Ok(Val::NULL);
        }
        let value = value.or_null();
        let Some(number) = Number::from_value(&value) else {
            return Err(Error::type_mismatch(format!(
                "$multiply only supports numeric types, not {}",
                value.type_name()
            )));
        };
        product = product.mul(number);
    }
    Ok(product.into())
}

/// Both operands as numbers; `None` if one is null or missing.
pub(super) fn both(
    operator: &str,
    code: i32,
    a: &Val<'_>,
    b: &Val<'_>,
) -> Result<Option<(Number, Number)>> {
    if a.is_nullish() || b.is_nullish() {
        return Ok(None);
    }
    let (a, b) = (a.or_null(), b.or_null());
    match (Number::from_value(&a), Number::from_value(&b)) {
        (Some(a), Some(b)) => Ok(Some((a, b))),
        _ => Err(Error::location(
            code,
            format!(
                "{operator} only supports numeric types, not {} and {}",
                a.type_name(),
                b.type_name()
            ),
        )),
    }
}

fn divide<'a>(a: Val<'a>, b: Val<'a>) -> Result<Val<'a>> {
    let Some((a, b)) = both("$divide", 14, &a, &b)? else {
        return Ok(Val::NULL);
    };
    match a.div(b) {
        Some(quotient) => Ok(quotient.into()),
        None => Err(Error::bad_value("can't $divide by zero")),
    }
}

fn modulo<'a>(a: Val<'a>, b: Val<'a>) -> Result<Val<'a>> {
    let Some((a, b)) = both("$mod", 16611, &a, &b)? else {
        return Ok(Val::NULL);
    };
    let is_decimal = matches!((a, b), (Number::Decimal(_), _) | (_, Number::Decimal(_)));
    match a.rem(b) {
        Some(remainder) => Ok(remainder.into()),
        None if is_decimal => Err(Error::location(5_733_415, "can't $mod by zero")),
        None => Err(Error::location(16610, "can't $mod by zero")),
    }
}

/// The operand of an operator on one number; `None` if it is null or missing.
pub(super) fn number(operator: &str, value: &Val<'_>) -> Result<Option<Number>> {
    if value.is_nullish() {
        return Ok(None);
    }
    let value = value.or_null();
    match Number::from_value(&value) {
        Some(number) => Ok(Some(number)),
        None => Err(Error::location(
            28765,
            format!(
                "{operator} only supports numeric types, not {}",
                value.type_name()
            ),
        )),
    }
}

fn abs<'a>(value: Val<'a>) -> Result<Val<'a>> {
    let Some(number) = number("$abs", &value)? else {
        return Ok(Val::NULL);
    };
    Ok(match number {
        Number::Int32(v) => match v.checked_abs() {
            Some(v) => v.into(),
            None => i64::from(v).abs().into(),
        },
        Number::Int64(v) => v
            .checked_abs()
            .map(Val::from)
            .ok_or_else(|| Error::location(28680, "can't take $abs of long long min"))?,
        Number::Double(v) => v.abs().into(),
        Number::Decimal(v) => v.abs().into(),
    })
}

/// A decimal with `places` digits after the point; as it is where that needs more than 34 digits.
fn round_decimal(value: Decimal128, places: i32, rounding: Rounding) -> Decimal128 {
    if places == 0 {
        return value.round_to_integral(rounding);
    }
    let rounded = value.quantize(-places, rounding);
    if rounded.is_nan() { value } else { rounded }
}

fn rounded<'a>(
    operator: &str,
    value: Val<'a>,
    double: fn(f64) -> f64,
    decimal: Rounding,
) -> Result<Val<'a>> {
    Ok(match number(operator, &value)? {
        None => Val::NULL,
        Some(Number::Double(v)) => double(v).into(),
        Some(Number::Decimal(v)) => v.round_to_integral(decimal).into(),
        Some(integer) => integer.into(),
    })
}

/// `$round` and `$trunc`: to a number of places after the point, negative for before it.
fn round_to<'a>(operator: &str, values: &[Val<'a>], rounding: Rounding) -> Result<Val<'a>> {
    let [value, places @ ..] = values else {
        return Ok(Val::NULL);
    };
    if value.is_nullish() {
        return Ok(Val::NULL);
    }
    let Some(rounded) = Number::from_value(&value.or_null()) else {
        return Err(Error::location(
            51081,
            format!(
                "{operator} only supports numeric types, not {}",
                value.type_name()
            ),
        ));
    };
    let places = match places {
        [] => 0,
        [places, ..] if places.is_nullish() => return Ok(Val::NULL),
        [places, ..] => {
            if !places.or_null().is_number() {
                return Err(Error::location(
                    16004,
                    format!(
                        "can't convert from BSON type {} to long",
                        places.type_name()
                    ),
                ));
            }
            let Some(whole) = integer(places) else {
                return Err(Error::location(
                    51082,
                    format!("precision argument to  {operator} must be a integral value"),
                ));
            };
            if !(-20..=100).contains(&whole) {
                return Err(Error::location(
                    51083,
                    format!(
                        "cannot apply {operator} with precision value {whole} value must be in \
                         [-20, 100]"
                    ),
                ));
            }
            whole as i32
        }
    };
    let whole = |v: i64| round_integer(v, places, rounding);
    Ok(match rounded {
        Number::Decimal(v) => round_decimal(v, places, rounding).into(),
        Number::Double(v) => round_double(v, places, rounding).into(),
        Number::Int32(v) => match whole(i64::from(v)) {
            Some(rounded) => match i32::try_from(rounded) {
                Ok(narrow) => narrow.into(),
                Err(_) => rounded.into(),
            },
            None => v.into(),
        },
        Number::Int64(v) => whole(v).map(Val::from).ok_or_else(|| {
            Error::location(51080, format!("invalid conversion from Decimal128 result in {operator} resulting from arguments: [{v}, {places}]"))
        })?,
    })
}

/// Rounds at a power of ten at or before the point; `None` if the result does not fit.
fn round_integer(value: i64, places: i32, rounding: Rounding) -> Option<i64> {
    if places >= 0 {
        return Some(value);
    }
    let Some(unit) = 10i128.checked_pow(places.unsigned_abs()) else {
        return Some(0);
    };
    let value = i128::from(value);
    let truncated = value / unit * unit;
    let rest = (value - truncated).abs() * 2;
    let up = match rounding {
        Rounding::HalfEven => rest > unit || (rest == unit && (truncated / unit) % 2 != 0),
        _ => false,
    };
    let step = if up { unit * value.signum() } else { 0 };
    i64::try_from(truncated + step).ok()
}

/// Rounds the decimal that the double stands for.
fn round_double(value: f64, places: i32, rounding: Rounding) -> f64 {
    if !value.is_finite() || value == 0.0 {
        return value;
    }
    if places == 0 {
        return match rounding {
            Rounding::HalfEven => value.round_ties_even(),
            _ => value.trunc(),
        };
    }
    let exact = Decimal128::from_f64_all_digits(value);
    round_decimal(exact, places, rounding).to_f64()
}

fn bitwise<'a>(
    operator: &str,
    values: &[Val<'a>],
    start: i64,
    apply: fn(i64, i64) -> i64,
) -> Result<Val<'a>> {
    let (mut result, mut wide) = (start, false);
    for value in values {
        if value.is_nullish() {
            return Ok(Val::NULL);
        }
        match value.or_null() {
            Value::Int32(v) => result = apply(result, i64::from(v)),
            Value::Int64(v) => {
                wide = true;
                result = apply(result, v);
            }
            other => {
                return Err(Error::type_mismatch(format!(
                    "{operator} only supports int and long operands, not {}",
                    other.type_name()
                )));
            }
        }
    }
    Ok(match i32::try_from(result) {
        Ok(narrow) if !wide => narrow.into(),
        _ => result.into(),
    })
}

fn bit_not<'a>(value: Val<'a>) -> Result<Val<'a>> {
    if value.is_nullish() {
        return Ok(Val::NULL);
    }
    match value.or_null() {
        Value::Int32(v) => Ok((!v).into()),
        Value::Int64(v) => Ok((!v).into()),
        other => Err(Error::type_mismatch(format!(
            "$bitNot only supports int and long, not: {}.",
            other.type_name()
        ))),
    }
}
