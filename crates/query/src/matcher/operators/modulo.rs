//! `$mod`.

use frond_bson::Value;

use super::super::parse::Field;
use super::super::{Expr, Op};
use frond_error::{Error, Result};

/// The numbers whose remainder after division is as given. The remainder has the sign of the
/// dividend; fractions are cut off first.
#[derive(Clone, Copy, Debug)]
pub struct Modulo {
    divisor: i64,
    remainder: i64,
}

impl Modulo {
    pub(crate) fn matches(self, value: Option<Value<'_>>) -> bool {
        // Division of the least integer by -1 overflows; its remainder is 0.
        value
            .and_then(|value| truncate(&value))
            .is_some_and(|dividend| {
                dividend.checked_rem(self.divisor).unwrap_or(0) == self.remainder
            })
    }
}

/// A number without its fraction, if it fits 64 bits.
fn truncate(value: &Value<'_>) -> Option<i64> {
    if let Some(number) = value.as_i64_lossless() {
        return Some(number);
    }
    let number = value.as_f64()?.trunc();
    Value::Double(number).as_i64_lossless()
}

fn operand(name: &str, value: &Value<'_>) -> Result<i64> {
    if !value.is_number() {
        return Err(Error::bad_value(format!(
            "malformed mod, {name} not a number"
        )));
    }
    truncate(value).ok_or_else(|| {
        let reason = match value.as_f64() {
            Some(number) if number.is_finite() => "Out of bounds coercing to integral value",
            _ => "Unable to coerce NaN/Inf to integral type",
        };
        Error::bad_value(format!(
            "malformed mod, {name} value is invalid :: caused by :: {reason}"
        ))
    })
}

pub(crate) fn parse(field: &Field<'_>, argument: Value<'_>) -> Result<Option<Expr>> {
    let Value::Array(items) = argument else {
        return Err(Error::bad_value("malformed mod, needs to be an array"));
    };
    let mut items = items.values();
    let (Some(divisor), Some(remainder)) = (items.next(), items.next()) else {
        return Err(Error::bad_value("malformed mod, not enough elements"));
    };
    if items.next().is_some() {
        return Err(Error::bad_value("malformed mod, too many elements"));
    }
    let modulo = Modulo {
        divisor: operand("divisor", &divisor)?,
        remainder: operand("remainder", &remainder)?,
    };
    if modulo.divisor == 0 {
        return Err(Error::bad_value("divisor cannot be 0"));
    }
    Ok(Some(field.leaf(Op::Mod(modulo))))
}
