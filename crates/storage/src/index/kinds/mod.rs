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
//!    [`Slots::push_missing`]; an index with the option `sparse` leaves a document out if all its fields are missing.
//! 3. **Changes.** [`IndexMethod::is_affected`] says whether an update of certain paths can change the parts.
//! 4. **Plans.** [`IndexMethod::routes`] says how the index can find the documents of a query: bounds for each part,
//!    and what they guarantee. A route must find every document that matches, if the document is in the index at
//!    all. The filter is applied again unless the route is exact. No route: the index cannot be used.
//! 5. **Limits.** [`IndexMethod::check`] refuses options that the kind cannot have, such as `unique`.
//!
//! A kind that is not implemented has a line without a parser; creating such an index is an error that names it.

mod geo;
mod hashed;
mod ordered;
mod plane;
mod sphere;
pub(crate) mod text;
mod wildcard;

use std::fmt::Debug;
use std::sync::Arc;

use frond_bson::{Doc, DocBuf, Value};
use frond_error::{ErrorCode, Result};
use frond_query::geo::Near;
use frond_query::matcher::Expr;
use frond_query::paths::{MultikeyPaths, Path};
use frond_query::text::TextSpec;

use super::Index;
use super::spec::{IndexField, IndexSpec};
use crate::index::route::Route;
use crate::intervals::conditions::Conditions;

pub use geo::{GeoCells, GeoField};
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

/// The content of a part of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// The value at the path.
    Value,
    /// A part of the computed field with this number, counted from 0.
    Computed(usize),
}

/// One value of an alternative.
#[derive(Clone, Debug)]
pub enum Part<'a> {
    /// A value of the document, or a constant.
    Value(Value<'a>),
    /// A string that the kind made.
    Text(String),
}

impl Part<'_> {
    pub fn as_value(&self) -> Value<'_> {
        match self {
            Part::Value(value) => *value,
            Part::Text(text) => Value::String(text),
        }
    }
}

impl<'a> From<Value<'a>> for Part<'a> {
    fn from(value: Value<'a>) -> Part<'a> {
        Part::Value(value)
    }
}

/// The alternatives of the computed fields of one document.
#[derive(Debug, Default)]
pub struct Slots<'a> {
    slots: Vec<Slot<'a>>,
    multikey: MultikeyPaths,
}

#[derive(Debug)]
struct Slot<'a> {
    /// Parts of one alternative.
    width: usize,
    /// The alternatives, one after the other.
    parts: Vec<Part<'a>>,
    /// Whether the document lacks the field.
    missing: bool,
}

impl<'a> Slots<'a> {
    /// No alternatives yet, for an index with these parts.
    pub(super) fn for_fields(fields: &[IndexField]) -> Slots<'a> {
        let mut slots: Vec<Slot<'a>> = Vec::new();
        for field in fields {
            if let Holds::Computed(number) = field.holds {
                slots.resize_with(slots.len().max(number + 1), || Slot {
                    width: 0,
                    parts: Vec::new(),
                    missing: true,
                });
                slots[number].width += 1;
            }
        }
        Slots {
            slots,
            multikey: MultikeyPaths::default(),
        }
    }

    /// Adds an alternative of a computed field, with a value for each of its parts.
    pub fn push(&mut self, slot: usize, parts: impl IntoIterator<Item = Part<'a>>) {
        self.add(slot, parts);
        if let Some(slot) = self.slots.get_mut(slot) {
            slot.missing = false;
        }
    }

    /// Adds an alternative that stands for a field that the document lacks.
    pub fn push_missing(&mut self, slot: usize, parts: impl IntoIterator<Item = Part<'a>>) {
        self.add(slot, parts);
    }

    fn add(&mut self, slot: usize, parts: impl IntoIterator<Item = Part<'a>>) {
        let Some(slot) = self.slots.get_mut(slot) else {
            return;
        };
        slot.parts.extend(parts);
        debug_assert_eq!(slot.parts.len() % slot.width, 0, "whole alternatives");
    }

    /// Marks the part with this number as one for which the document has, or may have, several entries.
    pub fn set_multikey(&mut self, part: usize) {
        self.multikey.insert_all(part);
    }

    pub(super) fn multikey(&self) -> &MultikeyPaths {
        &self.multikey
    }

    pub(super) fn all_missing(&self) -> bool {
        self.slots.iter().all(|slot| slot.missing)
    }

    /// The number of combinations.
    pub(super) fn combinations(&self) -> usize {
        let count = |slot: &Slot<'_>| slot.parts.len() / slot.width.max(1);
        self.slots
            .iter()
            .map(count)
            .fold(1, |all, one| all.saturating_mul(one))
    }

    /// The parts of a computed field in one of the combinations.
    pub(super) fn alternative(&self, slot: usize, combination: usize) -> &[Part<'a>] {
        let mut rest = combination;
        for (number, slot_here) in self.slots.iter().enumerate() {
            let width = slot_here.width.max(1);
            let count = (slot_here.parts.len() / width).max(1);
            if number == slot {
                let start = rest % count * width;
                return slot_here
                    .parts
                    .get(start..start + width)
                    .unwrap_or_default();
            }
            rest /= count;
        }
        &[]
    }
}

/// A query, for which an index method has to find routes.
pub struct PlanRequest<'a> {
    /// The filter of the query.
    pub filter: &'a Expr,
    /// The conditions of its filter that all documents must meet. A branch of an `$or` comes with those of
    /// the whole filter, too.
    pub conditions: &'a Conditions,
    pub index: &'a Arc<Index>,
    /// The components of the parts that have several values in some document.
    pub multikey: &'a MultikeyPaths,
    /// Whether the query has a hint of this index.
    pub hinted: bool,
}

/// The behaviour of one index of a kind other than the ordered one: PostgreSQL calls it an access method.
pub trait IndexMethod: Debug + Send + Sync {
    /// Its line in [`KINDS`].
    fn kind(&self) -> &'static str;

    /// Refuses options that the kind cannot have.
    ///
    /// # Errors
    /// `CannotCreateIndex` (67) and others.
    fn check(&self, spec: &IndexSpec) -> Result<()> {
        let _ = spec;
        Ok(())
    }

    /// Fills in the alternatives of the computed fields of `doc`.
    ///
    /// # Errors
    /// Errors in the document.
    fn parts<'a>(&self, doc: &'a Doc, out: &mut Slots<'a>) -> Result<()>;

    /// Whether a change at the paths that `touches` accepts can change the parts of the computed fields.
    /// `touches` takes a path and tells whether a value there, or above, or below, may differ.
    fn is_affected(&self, touches: &dyn Fn(&str) -> bool) -> bool;

    /// The routes by which the index can find the documents of a query.
    fn routes(&self, request: &PlanRequest<'_>) -> Vec<Route>;

    /// The part that finds geometries at `path` near a point. `None` if there is none.
    fn near(&self, path: &Path, near: &Near) -> Option<GeoField> {
        let _ = (path, near);
        None
    }

    /// The fields that a text index covers; other kinds answer no `$text`.
    fn text(&self) -> Option<&Arc<TextSpec>> {
        None
    }
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
    use frond_bson::{doc, key};

    fn field(holds: Holds) -> IndexField {
        IndexField {
            path: "x".to_owned(),
            direction: key::Direction::Ascending,
            holds,
        }
    }

    #[test]
    fn every_combination_of_alternatives_comes_once() {
        let fields = [
            Holds::Computed(0),
            Holds::Value,
            Holds::Computed(1),
            Holds::Computed(1),
        ]
        .map(field);
        let mut slots = Slots::for_fields(&fields);
        assert!(slots.all_missing());
        assert_eq!(slots.combinations(), 0);
        let number = |number: i32| Part::Value(Value::Int32(number));
        for one in [1, 2, 3] {
            slots.push(0, [number(one)]);
        }
        for two in [10, 20] {
            slots.push_missing(1, [number(two), number(two + 1)]);
        }
        assert!(!slots.all_missing());
        assert_eq!(slots.combinations(), 6);
        let mut seen: Vec<Vec<i64>> = (0..6)
            .map(|combination| {
                let parts = [0, 1].map(|slot| slots.alternative(slot, combination));
                parts
                    .concat()
                    .iter()
                    .map(|part| part.as_value().as_i64_lossless().unwrap())
                    .collect()
            })
            .collect();
        seen.sort();
        let expected = [1, 2, 3].map(|one| [10, 20].map(|two| vec![one, two, two + 1]));
        assert_eq!(seen, expected.concat());
    }

    #[test]
    fn kinds_are_told_by_the_key_pattern() {
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
