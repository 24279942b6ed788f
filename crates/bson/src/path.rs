//! Dotted paths over raw documents, without expanding arrays (those rules are the query crate's).

use crate::{Doc, Value};

/// The value at a dotted path such as `a.b.0`. Each part names a field of a document or, as a number in
/// plain decimal, an element of an array.
pub fn get_path<'a>(doc: &'a Doc, dotted: &str) -> Option<Value<'a>> {
    let mut current = doc;
    let mut rest = dotted;
    while let Some((head, tail)) = rest.split_once('.') {
        match current.get(head)? {
            Value::Document(d) | Value::Array(d) => current = d,
            _ => return None,
        }
        rest = tail;
    }
    current.get(rest)
}

impl Doc {
    /// The value at a dotted path, see [`get_path`].
    pub fn path(&self, dotted: &str) -> Option<Value<'_>> {
        get_path(self, dotted)
    }
}

/// The parts of a dotted path.
pub fn parts(dotted: &str) -> std::str::Split<'_, char> {
    dotted.split('.')
}
