//! Ordered indexes, and the ordinary fields of all others: the value at a path, ascending or descending.

use frond_bson::{DocBuf, Value, key};
use frond_error::Result;

use super::{Kind, Parsed, Request, refuse};
use crate::index::field::{Holds, IndexField};

/// The line in [`super::KINDS`].
pub(super) const KIND: Kind = Kind {
    name: "ordered",
    options: &[],
    own_only: &[],
    parse: Some(parse),
};

fn parse(request: &Request<'_>) -> Result<Parsed> {
    let fields = request.key.iter();
    Ok(Parsed {
        fields: fields
            .map(|(path, direction)| field(path, direction))
            .collect::<Result<_>>()?,
        key: None,
        options: DocBuf::new(),
        method: None,
    })
}

/// Checks the direction of a field: a number.
pub(super) fn check_direction(direction: Value<'_>) -> Result<()> {
    if !direction.is_number() {
        return Err(refuse(format!(
            "Values in v:2 index key pattern cannot be of type {}. Only numbers > 0, numbers < 0, \
             and strings are allowed.",
            direction.type_name()
        )));
    }
    if direction.is_nan() {
        return Err(refuse("Values in the index key pattern cannot be NaN."));
    }
    if !direction.truthy() {
        return Err(refuse("Values in the index key pattern cannot be 0."));
    }
    Ok(())
}

/// Checks the path of a field.
///
/// # Errors
/// `CannotCreateIndex` (67).
pub(crate) fn check_path(path: &str) -> Result<()> {
    if path.is_empty() {
        return Err(refuse("Index keys cannot be an empty field."));
    }
    for (depth, part) in path.split('.').enumerate() {
        if part.is_empty() {
            return Err(refuse("Index keys cannot contain an empty field."));
        }
        let reference = depth > 0 && matches!(part, "$id" | "$ref" | "$db");
        if part.starts_with('$') && !reference {
            return Err(refuse(
                "Index key contains an illegal field name: field name starts with '$'.",
            ));
        }
    }
    Ok(())
}

/// An ordinary field of any kind of index.
///
/// # Errors
/// `CannotCreateIndex` (67).
pub(crate) fn field(path: &str, direction: Value<'_>) -> Result<IndexField> {
    check_direction(direction)?;
    check_path(path)?;
    let descending = direction.as_f64().is_some_and(|number| number < 0.0);
    Ok(IndexField {
        path: path.to_owned(),
        direction: if descending {
            key::Direction::Descending
        } else {
            key::Direction::Ascending
        },
        holds: Holds::Value,
    })
}
