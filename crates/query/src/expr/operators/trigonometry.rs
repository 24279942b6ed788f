//! Trigonometry.

use super::arithmetic::number;
use super::{Entry, one, two};
use crate::decimal;
use crate::expr::value::Val;
use crate::number::Number;
use frond_bson::Decimal128;
use frond_error::{Error, Result};

pub(super) const OPERATORS: &[Entry] = &[
    one("$sin", |v| {
        bounded("$sin", v, FINITE, (f64::sin, decimal::sin))
    }),
    one("$cos", |v| {
        bounded("$cos", v, FINITE, (f64::cos, decimal::cos))
    }),
    one("$tan", |v| {
        bounded("$tan", v, FINITE, (f64::tan, decimal::tan))
    }),
    one("$asin", |v| {
        bounded("$asin", v, UNIT, (f64::asin, decimal::asin))
    }),
    one("$acos", |v| {
        bounded("$acos", v, UNIT, (f64::acos, decimal::acos))
    }),
    one("$atan", |v| apply("$atan", v, (f64::atan, decimal::atan))),
    two("$atan2", atan2),
    one("$sinh", |v| apply("$sinh", v, (f64::sinh, decimal::sinh))),
    one("$cosh", |v| apply("$cosh", v, (f64::cosh, decimal::cosh))),
    one("$tanh", |v| apply("$tanh", v, (f64::tanh, decimal::tanh))),
    one("$asinh", |v| {
        apply("$asinh", v, (f64::asinh, decimal::asinh))
    }),
    one("$acosh", |v| {
        bounded("$acosh", v, FROM_ONE, (f64::acosh, decimal::acosh))
    }),
    one("$atanh", |v| {
        bounded("$atanh", v, UNIT, (f64::atanh, decimal::atanh))
    }),
    one("$degreesToRadians", |v| {
        let functions = (f64::to_radians as fn(f64) -> f64, decimal::to_radians as _);
        apply("$degreesToRadians", v, functions)
    }),
    one("$radiansToDegrees", |v| {
        let functions = (f64::to_degrees as fn(f64) -> f64, decimal::to_degrees as _);
        apply("$radiansToDegrees", v, functions)
    }),
];

/// A function of doubles, and the same of decimals.
type Functions = (fn(f64) -> f64, fn(Decimal128) -> Decimal128);

/// The arguments that a function has.
#[derive(Clone, Copy)]
struct Bounds {
    least: f64,
    most: f64,
    is_open: bool,
    shown: &'static str,
}

const FINITE: Bounds = Bounds {
    least: f64::NEG_INFINITY,
    most: f64::INFINITY,
    is_open: true,
    shown: "(-inf,inf)",
};
const UNIT: Bounds = Bounds {
    least: -1.0,
    most: 1.0,
    is_open: false,
    shown: "[-1,1]",
};
const FROM_ONE: Bounds = Bounds {
    least: 1.0,
    most: f64::INFINITY,
    is_open: false,
    shown: "[1,inf]",
};

impl Bounds {
    fn hold(self, number: Number) -> bool {
        let between =
            |least: bool, most: bool, at_end: bool| least && most && !(self.is_open && at_end);
        match number {
            Number::Decimal(v) if v.is_nan() => true,
            Number::Decimal(v) => {
                let [least, most] = [self.least, self.most].map(Decimal128::from_f64);
                let (from, to) = (v.compare(least), v.compare(most));
                between(from.is_ge(), to.is_le(), from.is_eq() || to.is_eq())
            }
            other => {
                let v = other.to_f64();
                let at_end = v == self.least || v == self.most;
                v.is_nan() || between(v >= self.least, v <= self.most, at_end)
            }
        }
    }
}

fn apply<'a>(operator: &str, value: Val<'a>, (double, decimal): Functions) -> Result<Val<'a>> {
    Ok(match number(operator, &value)? {
        None => Val::NULL,
        Some(Number::Decimal(v)) => decimal(v).into(),
        Some(other) => double(other.to_f64()).into(),
    })
}

fn bounded<'a>(
    operator: &str,
    value: Val<'a>,
    bounds: Bounds,
    functions: Functions,
) -> Result<Val<'a>> {
    match number(operator, &value)? {
        Some(number) if !bounds.hold(number) => Err(Error::location(
            50989,
            format!(
                "cannot apply {operator} to {}, value must be in {}",
                crate::display::computed(&value.or_null()),
                bounds.shown
            ),
        )),
        _ => apply(operator, value, functions),
    }
}

fn atan2<'a>(y: Val<'a>, x: Val<'a>) -> Result<Val<'a>> {
    Ok(match (number("$atan2", &y)?, number("$atan2", &x)?) {
        (Some(y), Some(x)) => match (y, x) {
            (Number::Decimal(_), _) | (_, Number::Decimal(_)) => {
                decimal::atan2(y.to_decimal(), x.to_decimal()).into()
            }
            _ => y.to_f64().atan2(x.to_f64()).into(),
        },
        _ => Val::NULL,
    })
}
