//! Reading and changing parameters while the server runs.

use frond_bson::{OwnedValue, Value};
use frond_error::{Error, ErrorCode, Result};

use crate::arguments::whole;
use crate::state::Server;

/// The function by which `setParameter` changes a parameter. Except for [`Setter::Value`], the type and the range of the value
/// are checked before the call.
#[derive(Clone, Copy)]
pub enum Setter {
    /// For [`super::Kind::Switch`].
    Switch(fn(&Server, bool)),
    /// For [`super::Kind::Integer`].
    Integer(fn(&Server, i64)),
    /// The same, for a change that can fail.
    TryInteger(fn(&Server, i64) -> Result<()>),
    /// Reads the value itself.
    Value(fn(&Server, &Value<'_>) -> Result<()>),
}

/// The value of a parameter as BSON.
pub fn owned<'a>(value: impl Into<Value<'a>>) -> OwnedValue {
    OwnedValue::from(value.into())
}

/// A number as an `int`, at most the largest one.
pub fn saturated(n: impl TryInto<i32>) -> OwnedValue {
    owned(n.try_into().unwrap_or(i32::MAX))
}

/// Reads a whole number in an inclusive range.
///
/// # Errors
/// `TypeMismatch` (14), `BadValue` (2).
pub fn number(name: &str, value: &Value<'_>, low: i64, high: i64) -> Result<i64> {
    if !value.is_number() {
        return Err(Error::new(
            ErrorCode::TypeMismatch,
            format!(
                "the parameter '{name}' must be a number, not a {}",
                value.type_name()
            ),
        ));
    }
    let n = whole(value);
    if (low..=high).contains(&n) {
        return Ok(n);
    }
    Err(Error::bad_value(format!(
        "Invalid value for parameter {name}: {n} is not between {low} and {high}"
    )))
}

/// Reads a boolean.
///
/// # Errors
/// `TypeMismatch` (14).
pub fn boolean(name: &str, value: &Value<'_>) -> Result<bool> {
    match value {
        Value::Bool(on) => Ok(*on),
        other => Err(Error::new(
            ErrorCode::TypeMismatch,
            format!(
                "the parameter '{name}' must be a bool, not a {}",
                other.type_name()
            ),
        )),
    }
}
