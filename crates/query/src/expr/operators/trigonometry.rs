//! Trigonometry. Decimals are computed with the precision of a double.

use super::{Operator, one, two};
use crate::expr::value::Val;
use crate::number::Number;
use frond_bson::Decimal128;
use frond_error::{Error, Result};

pub(super) const OPERATORS: &[Operator] = &[
    one("$sin", |v| finite("$sin", v, f64::sin)),
    one("$cos", |v| finite("$cos", v, f64::cos)),
    one("$tan", |v| finite("$tan", v, f64::tan)),
    one("$asin", |v| within("$asin", v, -1.0, 1.0, f64::asin)),
    one("$acos", |v| within("$acos", v, -1.0, 1.0, f64::acos)),
    one("$atan", |v| apply("$atan", v, f64::atan)),
    two("$atan2", atan2),
    one("$sinh", |v| apply("$sinh", v, f64::sinh)),
    one("$cosh", |v| apply("$cosh", v, f64::cosh)),
    one("$tanh", |v| apply("$tanh", v, f64::tanh)),
    one("$asinh", |v| apply("$asinh", v, f64::asinh)),
    one("$acosh", |v| {
        within("$acosh", v, 1.0, f64::INFINITY, f64::acosh)
    }),
    one("$atanh", |v| within("$atanh", v, -1.0, 1.0, f64::atanh)),
    one("$degreesToRadians", |v| {
        apply("$degreesToRadians", v, f64::to_radians)
    }),
    one("$radiansToDegrees", |v| {
        apply("$radiansToDegrees", v, f64::to_degrees)
    }),
];

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

fn apply<'a>(operator: &str, value: Val<'a>, function: fn(f64) -> f64) -> Result<Val<'a>> {
    Ok(match number(operator, &value)? {
        None => Val::NULL,
        Some(Number::Decimal(v)) => Decimal128::from_f64(function(v.to_f64())).into(),
        Some(other) => function(other.to_f64()).into(),
    })
}

fn finite<'a>(operator: &str, value: Val<'a>, function: fn(f64) -> f64) -> Result<Val<'a>> {
    if number(operator, &value)?.is_some_and(|n| n.to_f64().is_infinite()) {
        return Err(out_of_bounds(operator, &value, "(-inf,inf)"));
    }
    apply(operator, value, function)
}

fn within<'a>(
    operator: &str,
    value: Val<'a>,
    least: f64,
    most: f64,
    function: fn(f64) -> f64,
) -> Result<Val<'a>> {
    if let Some(number) = number(operator, &value)? {
        let number = number.to_f64();
        if number < least || number > most {
            return Err(out_of_bounds(
                operator,
                &value,
                &format!("[{least},{most}]"),
            ));
        }
    }
    apply(operator, value, function)
}

fn out_of_bounds(operator: &str, value: &Val<'_>, bounds: &str) -> Error {
    Error::location(
        50989,
        format!(
            "cannot apply {operator} to {}, value must be in {bounds}",
            crate::display::computed(&value.or_null())
        ),
    )
}

fn atan2<'a>(y: Val<'a>, x: Val<'a>) -> Result<Val<'a>> {
    Ok(match (number("$atan2", &y)?, number("$atan2", &x)?) {
        (Some(y), Some(x)) => {
            let angle = y.to_f64().atan2(x.to_f64());
            match (y, x) {
                (Number::Decimal(_), _) | (_, Number::Decimal(_)) => {
                    Decimal128::from_f64(angle).into()
                }
                _ => angle.into(),
            }
        }
        _ => Val::NULL,
    })
}
