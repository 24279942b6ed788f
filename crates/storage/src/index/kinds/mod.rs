//! The kinds of indexes: one file for each, one line in [`KINDS`] for each.
//!
//! An index entry is a row of *parts*, each the encoding of one value, see [`super::entry`]. In an ordered index
//! there is one part for each field of the key pattern: the value at its path. Indexes of other kinds
//! have one or more *computed* fields, whose parts are made by an [`IndexMethod`]: the hash of a value, the cells of a
//! geometry, the words of a text, the paths below a wildcard. Whatever they hold, parts are encoded values. So bounds,
//! scans, unique keys, index builds and `validate` know nothing of kinds.
//!
//! A kind defines:
//!
//! 1. **Parsing.** [`Kind::parse`] gets the key pattern and the whole specification. It checks both, and returns
//!    [`Parsed`]: the parts of an entry, the key pattern and the options as `listIndexes` shows them, with the
//!    defaults filled in, and the object that does the rest. What it returns is stored and parsed again when the
//!    store is opened, so parsing its own result must give the same.
//! 2. **Keys.** [`IndexMethod::parts`] turns a document into the *alternatives* of each computed field: rows of values,
//!    one for each part of the field. An entry is made for every combination of the alternatives of all computed
//!    fields with the values of the ordinary ones. A field without alternatives leaves the document out of the
//!    index; that is how a kind is sparse by nature. A value that stands for a missing field is pushed with
//!    [`Slots::push_missing`](super::slots::Slots::push_missing); an index with the option `sparse` leaves a document out if all its fields are missing.
//! 3. **Changes.** [`IndexMethod::is_affected`] says whether an update of certain paths can change the parts.
//! 4. **Plans.** [`IndexMethod::routes`] says how the index can find the documents of a query: bounds for each part,
//!    and what they guarantee. A route must find every document that matches, if the document is in the index at
//!    all. The filter is applied again unless the route is exact. No route: the index cannot be used.
//! 5. **Limits.** [`IndexMethod::check`] refuses options that the kind cannot have, such as `unique`.
//!
//! A kind that is not implemented has a line without a parser; creating such an index is an error that names it.

mod geo;
mod hashed;
pub mod near;
mod ordered;
mod plane;
mod sphere;
pub(crate) mod text;
mod wildcard;

use std::sync::Arc;

use frond_bson::{Doc, DocBuf, Value};
use frond_error::{ErrorCode, Result};

use super::field::IndexField;
use super::spec::IndexMethod;

pub(crate) use ordered::{check_path, field as ordinary_field};

/// A kind of index.
#[derive(Debug)]
pub struct Kind {
    /// Its name, which is the value of its fields in a key pattern, except for ordered and wildcard indexes.
    pub name: &'static str,
    /// Options that have a meaning only for this kind. On other indexes they are kept and do nothing, as in
    /// MongoDB, unless [`Kind::own_only`] has them.
    pub options: &'static [&'static str],
    /// Those of the options that are an error on indexes of other kinds.
    pub own_only: &'static [&'static str],
    /// Reads a key pattern and its options. `None` if the kind is not implemented.
    pub parse: Option<fn(&Request<'_>) -> Result<Parsed>>,
}

/// All kinds. The first one is that of key patterns with numbers only.
pub static KINDS: &[Kind] = &[
    ordered::KIND,
    hashed::KIND,
    wildcard::KIND,
    text::KIND,
    plane::KIND,
    sphere::KIND,
];

/// A key pattern and its options, to be parsed.
pub struct Request<'a> {
    /// The key pattern; its fields are distinct, and each value is a number or the name of the kind.
    pub key: &'a Doc,
    pub spec: &'a Doc,
}

/// A parsed key pattern and its options.
pub struct Parsed {
    /// The parts of an entry in order. Those of one computed field are adjacent.
    pub fields: Vec<IndexField>,
    /// The key pattern, if it is stored and listed in another form than it was given.
    pub key: Option<DocBuf>,
    /// The options of this kind as they are stored and listed.
    pub options: DocBuf,
    /// Computes the other fields and finds them again; `None` for an ordered index.
    pub method: Option<Arc<dyn IndexMethod>>,
}

/// The kind of a key pattern: that of its first string or wildcard.
///
/// # Errors
/// `CannotCreateIndex` (67) for an unknown one, and for two.
pub(crate) fn of_key(key: &Doc) -> Result<&'static Kind> {
    let is_wildcard = |path: &str| path == "$**" || path.ends_with(".$**");
    let name = key.iter().find_map(|(path, value)| match value {
        Value::String(name) => Some(name),
        _ if is_wildcard(path) => Some("wildcard"),
        _ => None,
    });
    let name = name.unwrap_or(ordered::KIND.name);
    if name == "geoHaystack" {
        return Err(refuse(
            "GeoHaystack indexes cannot be created in version 5.0 and above",
        ));
    }
    let kind = KINDS
        .iter()
        .find(|kind| kind.name == name)
        .ok_or_else(|| refuse(format!("Unknown index plugin '{name}'")))?;
    for (path, value) in key.iter() {
        match value {
            Value::String(other) if other != name => {
                return Err(refuse(
                    "Can't use more than one index plugin for a single index.",
                ));
            }
            Value::String("wildcard") => {
                return Err(refuse(
                    "The key pattern value for an 'wildcard' index must be a non-zero number, not \
                     a string.",
                ));
            }
            Value::String("") => {
                return Err(refuse(
                    "Values in the index key pattern cannot be empty strings",
                ));
            }
            Value::String(_) => {}
            number => ordered::check_direction(number)?,
        }
        if path == "_fts" && name != "text" {
            return Err(refuse("Index key contains an illegal field name: '_fts'"));
        }
    }
    Ok(kind)
}

/// Error 67.
pub(crate) fn refuse(message: impl Into<String>) -> frond_error::Error {
    frond_error::Error::new(ErrorCode::CannotCreateIndex, message)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use frond_bson::doc;

    #[test]
    fn the_key_pattern_decides_the_kind() {
        for (key, kind) in [
            (doc! {"a": 1, "b": -1}, "ordered"),
            (doc! {"a": 1, "b": "hashed"}, "hashed"),
            (doc! {"$**": 1}, "wildcard"),
            (doc! {"a": 1, "b.$**": -1}, "wildcard"),
            (doc! {"$**": "text"}, "text"),
            (doc! {"a": "2dsphere", "b": "2dsphere"}, "2dsphere"),
        ] {
            assert_eq!(of_key(&key).unwrap().name, kind, "{key:?}");
        }
        for (key, part) in [
            (doc! {"a": "x"}, "Unknown index plugin 'x'"),
            (doc! {"a": "2d", "b": "text"}, "more than one index plugin"),
            (doc! {"$**": 1, "b": "hashed"}, "more than one index plugin"),
            (doc! {"a": "wildcard"}, "must be a non-zero number"),
            (doc! {"a": "geoHaystack"}, "version 5.0"),
            (doc! {"_fts": 1}, "'_fts'"),
            (doc! {"a": 1, "b": null}, "of type null"),
        ] {
            let error = of_key(&key).unwrap_err();
            assert_eq!(error.code(), ErrorCode::CannotCreateIndex);
            assert!(error.message().contains(part), "{key:?}: {error}");
        }
    }
}
