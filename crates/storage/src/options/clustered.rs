//! `clusteredIndex`: documents stored in the index on `_id`. Collections are clustered anyway, so the option only
//! changes how the index is shown and named.

use frond_bson::{Doc, DocBuf, Value, doc};
use frond_error::ErrorCode;

use super::read::Given;
use crate::error::{Result, command};
use crate::index::spec::ID_INDEX_NAME;

/// Reads the option. The result is the specification as it is shown.
pub(super) fn parse(given: &Given<'_>) -> Result<DocBuf> {
    let spec = given.doc()?;
    let mut name = ID_INDEX_NAME;
    let mut unique = None;
    let mut key = None;
    let known = ["v", "name", "unique", "key"];
    for inner in Given::each("create.clusteredIndex", spec, &known)? {
        match inner.name {
            "v" if inner.integer()? == 2 => {}
            "v" => {
                return Err(command(
                    ErrorCode::CannotCreateIndex,
                    "A clustered index has version 2",
                ));
            }
            "name" => name = inner.str()?,
            "unique" => unique = Some(inner.flag()?),
            _ => key = Some(inner.doc()?),
        }
    }
    let missing = |field| super::read::missing("create.clusteredIndex", field);
    let key = key.ok_or_else(|| missing("key"))?;
    if !is_id_key(key) {
        return Err(command(
            ErrorCode::InvalidIndexSpecificationOption,
            "The clusteredIndex option is only supported for key: { _id: 1 }",
        ));
    }
    if !unique.ok_or_else(|| missing("unique"))? {
        return Err(command(
            ErrorCode::Location(5979700),
            "The clusteredIndex option requires unique: true to be specified",
        ));
    }
    if name.is_empty() || name.contains('\0') {
        return Err(command(
            ErrorCode::CannotCreateIndex,
            "The name of a clustered index cannot be empty",
        ));
    }
    Ok(doc! {"v": 2, "key": {"_id": 1}, "name": name, "unique": true})
}

/// Whether a key pattern is that of the index on `_id`.
pub(super) fn is_id_key(key: &Doc) -> bool {
    let mut fields = key.iter();
    matches!(
        (fields.next(), fields.next()),
        (Some(("_id", direction)), None) if direction.as_f64() == Some(1.0)
    )
}

/// Checks `idIndex`, which restore tools send.
pub(super) fn check_id_index(given: &Given<'_>) -> Result<()> {
    let spec = given.doc()?;
    match spec.get("key") {
        Some(Value::Document(key)) if is_id_key(key) => Ok(()),
        Some(Value::Document(key)) => Err(command(
            ErrorCode::BadValue,
            format!(
                "The field 'key' for an _id index must be {{_id: 1}}, but got {}",
                crate::text::document(key)
            ),
        )),
        _ => Err(command(
            ErrorCode::FailedToParse,
            "The 'key' field is a required property of an index specification",
        )),
    }
}
