//! Validation of the paths of sorts, projections and expressions.

use frond_error::{Error, Result};

/// The most components that a path in a sort, a projection or an expression may have.
pub(crate) const MAX_PATH_COMPONENTS: usize = 200;

/// Whether a name is reserved: it begins with `$`, except for those of a DBRef.
pub(crate) fn is_reserved(name: &str) -> bool {
    name.starts_with('$') && !matches!(name, "$id" | "$ref" | "$db")
}

/// Checks a dotted path as expressions and sorts write them: no empty component, none that is
/// reserved or holds a zero byte.
pub(crate) fn check_field_path(path: &str) -> Result<()> {
    if path.is_empty() {
        return Err(Error::location(
            40352,
            "FieldPath cannot be constructed with empty string",
        ));
    }
    if path.ends_with('.') {
        return Err(Error::location(40353, "FieldPath must not end with a '.'."));
    }
    if path.split('.').count() > MAX_PATH_COMPONENTS {
        return Err(path_too_long());
    }
    for name in path.split('.') {
        if name.is_empty() {
            return Err(Error::location(
                15998,
                "FieldPath field names may not be empty strings.",
            ));
        }
        if is_reserved(name) {
            return Err(Error::location(
                16410,
                "FieldPath field names may not start with '$'. Consider using $getField or \
                 $setField.",
            ));
        }
        if name.contains('\0') {
            return Err(Error::location(
                16411,
                "FieldPath field names may not contain '\\0'.",
            ));
        }
    }
    Ok(())
}

/// The error for a path of too many components.
#[cold]
pub(crate) fn path_too_long() -> Error {
    Error::overflow("FieldPath is too long")
}
