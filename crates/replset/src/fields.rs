//! Fields of a configuration, with the errors of a wrong type.

use frond_bson::{Doc, Value};
use frond_error::{Error, ErrorCode, Result};

/// `InvalidReplicaSetConfig` (93).
pub(crate) fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::InvalidReplicaSetConfig, message)
}

/// `NewReplicaSetConfigurationIncompatible` (103).
pub(crate) fn incompatible(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::NewReplicaSetConfigurationIncompatible, message)
}

/// An optional boolean. As in MongoDB, a number is one, too.
pub(crate) fn flag(doc: &Doc, name: &str, default: bool) -> Result<bool> {
    match doc.get(name) {
        None => Ok(default),
        Some(Value::Bool(on)) => Ok(on),
        Some(number) if number.is_number() => Ok(number.truthy()),
        Some(other) => Err(Error::type_mismatch(format!(
            "Expected boolean or number type for field \"{name}\", found {}",
            other.type_name()
        ))),
    }
}

/// An optional number, as an integer: truncated towards zero and clamped to 64 bits.
pub(crate) fn integer(doc: &Doc, name: &str) -> Result<Option<i64>> {
    match doc.get(name) {
        None => Ok(None),
        Some(number) if number.is_number() => Ok(Some(whole(&number))),
        Some(other) => Err(Error::type_mismatch(format!(
            "Expected field \"{name}\" to have numeric type, but found {}",
            other.type_name()
        ))),
    }
}

/// A number as an integer: truncated towards zero and clamped to 64 bits, NaN as 0.
pub(crate) fn whole(number: &Value<'_>) -> i64 {
    number
        .as_i64_lossless()
        .unwrap_or_else(|| number.as_f64().unwrap_or(0.0) as i64)
}

pub(crate) fn object<'a>(doc: &'a Doc, name: &str) -> Result<Option<&'a Doc>> {
    match doc.get(name) {
        None => Ok(None),
        Some(Value::Document(inner)) => Ok(Some(inner)),
        Some(other) => Err(Error::type_mismatch(format!(
            "Expected field \"{name}\" to be an object, but found {}",
            other.type_name()
        ))),
    }
}

/// Refuses unknown and repeated fields.
pub(crate) fn only(doc: &Doc, known: &[&str], owner: &str) -> Result<()> {
    for (at, (name, _)) in doc.iter().enumerate() {
        if !known.contains(&name) {
            return Err(invalid(format!(
                "Unexpected field {name} in {owner}; this server knows {}",
                known.join(", ")
            )));
        }
        if doc.iter().take(at).any(|(other, _)| other == name) {
            return Err(invalid(format!("The field {name} is twice in {owner}")));
        }
    }
    Ok(())
}
