//! Arithmetic: `$add`, `$subtract`, `$multiply`, `$divide`, `$mod`, rounding, powers, logarithms, bits.

use super::{Arguments, Operator, many, one, two};
use crate::expr::value::Val;
use crate::number::Number;
use frond_bson::{Decimal128, Rounding, Value};
use frond_error::{Error, Result};

pub(super) const OPERATORS: &[Operator] = &[
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
    one("$sqrt", sqrt),
    two("$pow", pow),
    one("$exp", |v| real("$exp", v, f64::exp)),
    one("$ln", |v| logarithm("$ln", 28766, v, f64::ln)),
    one("$log10", |v| logarithm("$log10", 28761, v, f64::log10)),
    two("$log", log),
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
            other => match Number::of(&other) {
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
    if let (Some(x), Some(y)) = (Number::of(&x), Number::of(&y)) {
        return Ok(x.sub(y).into());
    }
    match (x, y) {
        (Value::DateTime(x), Value::DateTime(y)) => x
            .checked_sub(y)
            .map(Val::from)
            .ok_or_else(|| Error::overflow("date overflow in $subtract")),
        (Value::DateTime(x), y) => {
            let Some(number) = Number::of(&y) else {
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
        let Some(number) = Number::of(&value) else {
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
fn both(operator: &str, code: i32, a: &Val<'_>, b: &Val<'_>) -> Result<Option<(Number, Number)>> {
    if a.is_nullish() || b.is_nullish() {
        return Ok(None);
    }
    let (a, b) = (a.or_null(), b.or_null());
    match (Number::of(&a), Number::of(&b)) {
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
    match a.rem(b) {
        Some(remainder) => Ok(remainder.into()),
        None => Err(Error::location(16610, "can't $mod by zero")),
    }
}

/// The operand of an operator on one number; `None` if it is null or missing.
fn number(operator: &str, value: &Val<'_>) -> Result<Option<Number>> {
    if value.is_nullish() {
        return Ok(None);
    }
    let value = value.or_null();
    match Number::of(&value) {
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
    let (value, places) = match values {
        [value, places] => (value, places),
        _ => return Ok(Val::NULL),
    };
    let places = match places {
        Val::Missing => 0,
        places if places.is_nullish() => return Ok(Val::NULL),
        places => {
            let shown = places.or_null();
            let Some(whole) = shown.as_i64_lossless() else {
                return Err(Error::location(
                    51082,
                    format!("precision argument to {operator} must be a integral value"),
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
    let integer = |v: i64| round_integer(v, places, rounding);
    Ok(match number(operator, value)? {
        None => Val::NULL,
        Some(Number::Decimal(v)) => round_decimal(v, places, rounding).into(),
        Some(Number::Double(v)) => round_double(v, places, rounding).into(),
        Some(Number::Int32(v)) => match integer(i64::from(v)) {
            Some(rounded) => match i32::try_from(rounded) {
                Ok(narrow) => narrow.into(),
                Err(_) => rounded.into(),
            },
            None => v.into(),
        },
        Some(Number::Int64(v)) => integer(v).map(Val::from).ok_or_else(|| {
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

fn sqrt<'a>(value: Val<'a>) -> Result<Val<'a>> {
    let negative = || Error::location(28714, "$sqrt's argument must be greater than or equal to 0");
    Ok(match number("$sqrt", &value)? {
        None => Val::NULL,
        Some(Number::Decimal(v)) if v.is_negative() && !v.is_zero() => return Err(negative()),
        Some(Number::Decimal(v)) => decimal_sqrt(v).into(),
        Some(other) if other.to_f64() < 0.0 => return Err(negative()),
        Some(other) => other.to_f64().sqrt().into(),
    })
}

/// The square root, by Newton's method from that of the nearest double.
fn decimal_sqrt(value: Decimal128) -> Decimal128 {
    if value.is_zero() || !value.is_finite() {
        return value;
    }
    let half = Decimal128::from(1) / Decimal128::from(2);
    let mut root = Decimal128::from_f64_all_digits(value.to_f64().sqrt());
    if root.is_zero() || !root.is_finite() {
        // Beyond the range of doubles.
        root = Decimal128::from(1);
    }
    // Each round doubles the number of correct digits.
    for _ in 0..3 {
        root = (root + value / root) * half;
    }
    root
}

/// Most multiplications for a whole exponent; others go through doubles.
const MAX_WHOLE_EXPONENT: u64 = 1 << 20;

/// A power of a decimal: exact steps for whole exponents, the precision of a double for others.
fn decimal_pow(base: Decimal128, exponent: Decimal128) -> Decimal128 {
    let whole = exponent.to_i64_lossless();
    let Some(whole) = whole.filter(|n| n.unsigned_abs() <= MAX_WHOLE_EXPONENT) else {
        return Decimal128::from_f64(base.to_f64().powf(exponent.to_f64()));
    };
    let (mut power, mut square) = (Decimal128::from(1), base);
    let mut left = whole.unsigned_abs();
    while left > 0 {
        if left & 1 == 1 {
            power = power * square;
        }
        square = square * square;
        left >>= 1;
    }
    if whole < 0 {
        Decimal128::from(1) / power
    } else {
        power
    }
}

fn pow<'a>(base: Val<'a>, exponent: Val<'a>) -> Result<Val<'a>> {
    for (value, code, name) in [(&base, 28762, "base"), (&exponent, 28763, "exponent")] {
        if !value.is_nullish() && !value.or_null().is_number() {
            return Err(Error::location(
                code,
                format!("$pow's {name} must be numeric, not {}", value.type_name()),
            ));
        }
    }
    let Some((base, exponent)) = both("$pow", 28762, &base, &exponent)? else {
        return Ok(Val::NULL);
    };
    if base.is_zero() && exponent.to_f64() < 0.0 {
        return Err(Error::location(
            28764,
            "$pow cannot take a base of 0 and a negative exponent",
        ));
    }
    let (x, y) = match (base, exponent) {
        (Number::Decimal(_), _) | (_, Number::Decimal(_)) => {
            return Ok(decimal_pow(base.to_decimal(), exponent.to_decimal()).into());
        }
        (Number::Double(_), _) | (_, Number::Double(_)) => {
            return Ok(base.to_f64().powf(exponent.to_f64()).into());
        }
        (x, y) => (integral(x), integral(y)),
    };
    let both_narrow = matches!((base, exponent), (Number::Int32(_), Number::Int32(_)));
    let whole = u32::try_from(y).ok().and_then(|y| x.checked_pow(y));
    Ok(match (whole, y < 0, x) {
        (Some(v), ..) => match i32::try_from(v) {
            Ok(narrow) if both_narrow => narrow.into(),
            _ => v.into(),
        },
        // 1 and -1 stay whole under any exponent.
        (None, true, 1) => whole_unit(1, both_narrow),
        (None, true, -1) => whole_unit(if y % 2 == 0 { 1 } else { -1 }, both_narrow),
        (None, false, 0 | 1) => whole_unit(x, both_narrow),
        (None, false, -1) => whole_unit(if y % 2 == 0 { 1 } else { -1 }, both_narrow),
        _ => base.to_f64().powf(exponent.to_f64()).into(),
    })
}

fn whole_unit<'a>(value: i64, narrow: bool) -> Val<'a> {
    if narrow {
        (value as i32).into()
    } else {
        value.into()
    }
}

fn integral(number: Number) -> i64 {
    match number {
        Number::Int32(v) => i64::from(v),
        Number::Int64(v) => v,
        other => other.to_f64() as i64,
    }
}

/// A function of real numbers; decimals are computed with the precision of a double.
fn real<'a>(operator: &str, value: Val<'a>, function: fn(f64) -> f64) -> Result<Val<'a>> {
    Ok(match number(operator, &value)? {
        None => Val::NULL,
        Some(Number::Decimal(v)) => Decimal128::from_f64(function(v.to_f64())).into(),
        Some(other) => function(other.to_f64()).into(),
    })
}

fn logarithm<'a>(
    operator: &str,
    code: i32,
    value: Val<'a>,
    function: fn(f64) -> f64,
) -> Result<Val<'a>> {
    if let Some(number) = number(operator, &value)?
        && number.to_f64() <= 0.0
    {
        return Err(Error::location(
            code,
            format!(
                "{operator}'s argument must be a positive number, but is {}",
                crate::display::computed(&value.or_null())
            ),
        ));
    }
    real(operator, value, function)
}

fn log<'a>(value: Val<'a>, base: Val<'a>) -> Result<Val<'a>> {
    for (operand, code, name) in [(&value, 28756, "argument"), (&base, 28757, "base")] {
        if !operand.is_nullish() && !operand.or_null().is_number() {
            return Err(Error::location(
                code,
                format!("$log's {name} must be numeric, not {}", operand.type_name()),
            ));
        }
    }
    let Some((x, b)) = both("$log", 28756, &value, &base)? else {
        return Ok(Val::NULL);
    };
    if x.to_f64() <= 0.0 {
        return Err(Error::location(
            28758,
            format!(
                "$log's argument must be a positive number, but is {}",
                crate::display::computed(&value.or_null())
            ),
        ));
    }
    if b.to_f64() <= 0.0 || b.to_f64() == 1.0 {
        return Err(Error::location(
            28759,
            format!(
                "$log's base must be a positive number not equal to 1, but is {}",
                crate::display::computed(&base.or_null())
            ),
        ));
    }
    Ok((x.to_f64().ln() / b.to_f64().ln()).into())
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
