//! Integer arguments of operators, with MongoDB's reasons for refusing one.

use frond_bson::Value;

use crate::display;

/// The argument as a 64-bit integer. `name` is the operator or index that messages show.
pub(crate) fn integer(name: &str, argument: &Value<'_>) -> Result<i64, String> {
    let shown = || display::element(name, argument);
    if !argument.is_number() {
        return Err(format!("Expected a number in: {}", shown()));
    }
    if let Some(number) = argument.as_i64_lossless() {
        return Ok(number);
    }
    Err(match argument {
        Value::Double(number) if number.is_nan() => {
            format!("Expected an integer, but found NaN in: {}", shown())
        }
        Value::Double(number) if number.is_finite() && number.trunc() != *number => {
            format!("Expected an integer: {}", shown())
        }
        _ => format!("Cannot represent as a 64-bit integer: {}", shown()),
    })
}

/// The argument as an integer that is not negative.
pub(crate) fn non_negative(name: &str, argument: &Value<'_>) -> Result<u64, String> {
    u64::try_from(integer(name, argument)?).map_err(|_| {
        format!(
            "Expected a non-negative number in: {}",
            display::element(name, argument)
        )
    })
}

/// The argument as a 32-bit signed integer that is not negative.
pub(crate) fn non_negative_i32(name: &str, argument: &Value<'_>) -> Result<u32, String> {
    let number = non_negative(name, argument)?;
    i32::try_from(number).map(i32::unsigned_abs).map_err(|_| {
        format!(
            "Cannot represent {} in an int",
            display::element(name, argument)
        )
    })
}
