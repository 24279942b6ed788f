//! Roots, powers, exponentials and logarithms.

use super::arithmetic::{both, number};
use super::{Entry, one, two};
use crate::decimal;
use crate::expr::value::Val;
use crate::number::Number;
use frond_bson::Decimal128;
use frond_error::{Error, Result};

pub(super) const OPERATORS: &[Entry] = &[
    one("$sqrt", sqrt),
    two("$pow", pow),
    one("$exp", exp),
    one("$ln", |v| logarithm("$ln", 28766, v, f64::ln, decimal::ln)),
    one("$log10", |v| {
        logarithm("$log10", 28761, v, f64::log10, decimal::log10)
    }),
    two("$log", log),
];

fn sqrt<'a>(value: Val<'a>) -> Result<Val<'a>> {
    let negative = || Error::location(28714, "$sqrt's argument must be greater than or equal to 0");
    Ok(match number("$sqrt", &value)? {
        None => Val::NULL,
        Some(Number::Decimal(v)) if v.is_negative() && !v.is_zero() && !v.is_nan() => {
            return Err(negative());
        }
        Some(Number::Decimal(v)) => decimal::sqrt(v).into(),
        Some(other) if other.to_f64() < 0.0 => return Err(negative()),
        Some(other) => other.to_f64().sqrt().into(),
    })
}

fn pow<'a>(base: Val<'a>, exponent: Val<'a>) -> Result<Val<'a>> {
    if base.is_nullish() || exponent.is_nullish() {
        return Ok(Val::NULL);
    }
    for (value, code, name) in [(&base, 28762, "base"), (&exponent, 28763, "exponent")] {
        if !value.or_null().is_number() {
            return Err(Error::location(
                code,
                format!("$pow's {name} must be numeric, not {}", value.type_name()),
            ));
        }
    }
    let Some((base, exponent)) = both("$pow", 28762, &base, &exponent)? else {
        return Ok(Val::NULL);
    };
    let is_below = match exponent {
        Number::Decimal(v) => v.is_negative(),
        other => other.to_f64() < 0.0,
    };
    if base.is_zero() && is_below {
        return Err(Error::location(
            28764,
            "$pow cannot take a base of 0 and a negative exponent",
        ));
    }
    let (x, y) = match (base, exponent) {
        (Number::Decimal(_), _) | (_, Number::Decimal(_)) => {
            return Ok(decimal::pow(base.to_decimal(), exponent.to_decimal()).into());
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

fn exp<'a>(value: Val<'a>) -> Result<Val<'a>> {
    Ok(match number("$exp", &value)? {
        None => Val::NULL,
        Some(Number::Decimal(v)) => decimal::exp(v).into(),
        Some(other) => other.to_f64().exp().into(),
    })
}

/// Whether a decimal is above zero, as no NaN is.
fn is_positive(number: Decimal128) -> bool {
    !number.is_nan() && !number.is_negative() && !number.is_zero()
}

fn logarithm<'a>(
    operator: &str,
    code: i32,
    value: Val<'a>,
    of_double: fn(f64) -> f64,
    of_decimal: fn(Decimal128) -> Decimal128,
) -> Result<Val<'a>> {
    let argument = match number(operator, &value)? {
        None => return Ok(Val::NULL),
        Some(Number::Decimal(v)) if is_positive(v) => return Ok(of_decimal(v).into()),
        // The result for a decimal NaN is a double.
        Some(Number::Decimal(v)) if !v.is_nan() => 0.0,
        Some(other) => other.to_f64(),
    };
    if argument <= 0.0 {
        return Err(Error::location(
            code,
            format!(
                "{operator}'s argument must be a positive number, but is {}",
                crate::display::computed(&value.or_null())
            ),
        ));
    }
    Ok(of_double(argument).into())
}

fn log<'a>(value: Val<'a>, base: Val<'a>) -> Result<Val<'a>> {
    if value.is_nullish() || base.is_nullish() {
        return Ok(Val::NULL);
    }
    for (operand, code, name) in [(&value, 28756, "argument"), (&base, 28757, "base")] {
        if !operand.or_null().is_number() {
            return Err(Error::location(
                code,
                format!("$log's {name} must be numeric, not {}", operand.type_name()),
            ));
        }
    }
    let Some((x, b)) = both("$log", 28756, &value, &base)? else {
        return Ok(Val::NULL);
    };
    if let (Number::Decimal(_), _) | (_, Number::Decimal(_)) = (x, b) {
        let (x, b) = (x.to_decimal(), b.to_decimal());
        let is_one = b.compare(Decimal128::from(1)).is_eq();
        if is_positive(x) && is_positive(b) && !is_one {
            return Ok(decimal::log(x, b).into());
        }
    }
    // A decimal may be too small for a double.
    let sign = |number: Number| match number {
        Number::Decimal(v) if is_positive(v) => 1.0,
        other => other.to_f64(),
    };
    if sign(x) <= 0.0 {
        return Err(Error::location(
            28758,
            format!(
                "$log's argument must be a positive number, but is {}",
                crate::display::computed(&value.or_null())
            ),
        ));
    }
    if sign(b) <= 0.0 || b.to_f64() == 1.0 {
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
