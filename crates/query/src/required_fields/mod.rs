//! The fields of a document that a computation requires, so that the rest of a very large document need not be
//! loaded.
//!
//! Filters, updates, sorts and projections have [`RequiredFields`]. Their contract: consider a document, and another one
//! that has the same fields at all paths that are *related* to a required path,
//! in the same order. A path is related to another one if they are equal or one leads to the other. At
//! the other paths, fields may be missing or have other values of the same type; arrays are whole. Then
//! the computation gives the same result for both, or the same error. An update makes the same changes,
//! all of them at required paths, and appends new fields in the same order; only
//! the size of the result ([`frond_bson::MAX_DOCUMENT_BYTES`]) must be checked by the caller.
//!
//! So a document on the way to a required path is present, with its type, even if the path itself is
//! missing; a value on the way that is not a document is present unchanged. [`RequiredFields::part_of`] makes the
//! smallest such document.

#[cfg(test)]
mod tests;

use frond_bson::{Doc, DocBuf, Value};
use std::cmp::Ordering;
use std::collections::BTreeSet;

/// The parts of a document that a computation requires: all of it, or the values at some dotted paths.
///
/// A path is as it was written; a numeric component may be a field or the index of an array.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequiredFields {
    whole: bool,
    /// In the order of [`order`]; none is below another one. Empty if `whole`.
    paths: Vec<Box<str>>,
}

/// The required share of the value at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// Nothing, not even its presence.
    None,
    /// Of a document its presence and the paths of [`RequiredFields::below`]; of other values everything.
    Part,
    Whole,
}

impl RequiredFields {
    pub fn none() -> RequiredFields {
        RequiredFields::default()
    }

    /// The whole document is required.
    pub fn whole() -> RequiredFields {
        RequiredFields {
            whole: true,
            paths: Vec::new(),
        }
    }

    /// The value at one path; the empty path is the whole document.
    pub fn path(path: &str) -> RequiredFields {
        let mut required = RequiredFields::none();
        required.add(path);
        required
    }

    /// Adds the value at a path; the empty path is the whole document.
    pub fn add(&mut self, path: &str) {
        if self.whole {
            return;
        }
        if path.is_empty() {
            *self = RequiredFields::whole();
            return;
        }
        // Most paths come in order.
        let at = match self.paths.last() {
            Some(last) if order(last, path).is_gt() => self.behind(path),
            _ => self.paths.len(),
        };
        let before = at.checked_sub(1).and_then(|at| self.paths.get(at));
        if before.is_some_and(|before| leads_to(before, path)) {
            return;
        }
        let covered = self.from(at).take_while(|known| leads_to(path, known));
        let end = at + covered.count();
        self.paths.drain(at..end);
        self.paths.insert(at, path.into());
    }

    /// Adds everything that `other` requires.
    pub fn extend(&mut self, other: &RequiredFields) {
        if other.whole || self.is_none() {
            *self = other.clone();
            return;
        }
        other.paths().for_each(|path| self.add(path));
    }

    /// Whether the whole document is required.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// Whether nothing is required.
    pub fn is_none(&self) -> bool {
        !self.whole && self.paths.is_empty()
    }

    /// The paths, unless the whole document is required. They are sorted component by component, so that
    /// those below a path stand together; none is below another one.
    pub fn paths(&self) -> impl ExactSizeIterator<Item = &str> {
        self.paths.iter().map(|path| &**path)
    }

    /// The paths as a set, `None` if the whole document is required.
    pub fn into_set(self) -> Option<BTreeSet<String>> {
        (!self.whole).then(|| self.paths.into_iter().map(String::from).collect())
    }

    /// The required share of the value at `path`; the empty path is the whole document.
    pub fn requirement(&self, path: &str) -> Requirement {
        if self.whole {
            return Requirement::Whole;
        }
        if path.is_empty() {
            return Requirement::Part;
        }
        let at = self.behind(path);
        let before = at.checked_sub(1).and_then(|at| self.paths.get(at));
        if before.is_some_and(|before| leads_to(before, path)) {
            return Requirement::Whole;
        }
        match self.from(at).next() {
            Some(next) if leads_to(path, next) => Requirement::Part,
            _ => Requirement::None,
        }
    }

    /// The required paths below `path`, relative to it: `b.c` of `a.b.c` for `a`.
    pub fn below<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a str> {
        let below = self.from(self.behind(path));
        below.map_while(move |known| known.strip_prefix(path)?.strip_prefix('.'))
    }

    /// Whether one of the paths is related to one of `other`.
    pub fn meets(&self, other: &RequiredFields) -> bool {
        match (self.whole, other.whole) {
            (true, _) => !other.is_none(),
            (_, true) => !self.is_none(),
            _ => (self.paths()).any(|path| other.requirement(path) != Requirement::None),
        }
    }

    /// The fields of `doc` at paths related to a required one. Arrays are whole.
    pub fn part_of(&self, doc: &Doc) -> DocBuf {
        if self.whole {
            return doc.to_owned();
        }
        let mut part = DocBuf::new();
        copy_part(doc, &self.paths().collect::<Vec<_>>(), &mut part);
        part
    }

    /// The index of the first path after `path`.
    fn behind(&self, path: &str) -> usize {
        (self.paths).partition_point(|known| order(known, path).is_le())
    }

    fn from(&self, at: usize) -> impl Iterator<Item = &str> {
        self.paths.iter().skip(at).map(|path| &**path)
    }
}

impl<'a> FromIterator<&'a str> for RequiredFields {
    fn from_iter<I: IntoIterator<Item = &'a str>>(paths: I) -> RequiredFields {
        let mut all: Vec<&str> = paths.into_iter().collect();
        all.sort_unstable_by(|a, b| order(a, b));
        if all.first().is_some_and(|first| first.is_empty()) {
            return RequiredFields::whole();
        }
        let mut paths: Vec<Box<str>> = Vec::with_capacity(all.len());
        for path in all {
            if !paths.last().is_some_and(|last| leads_to(last, path)) {
                paths.push(path.into());
            }
        }
        RequiredFields {
            whole: false,
            paths,
        }
    }
}

/// Compares paths component by component.
fn order(a: &str, b: &str) -> Ordering {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    // Common prefixes are skipped in large steps.
    let words = a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0);
    let shared = 8 * words.take_while(|(x, y)| x == y).count();
    let rests = (a.get(shared..).unwrap_or_default())
        .iter()
        .zip(b.get(shared..).unwrap_or_default());
    // No name has a zero byte: the end of a component sorts before everything else.
    let rank = |byte: u8| if byte == b'.' { 0 } else { byte };
    for (x, y) in rests {
        if x != y {
            return rank(*x).cmp(&rank(*y));
        }
    }
    a.len().cmp(&b.len())
}

/// Whether `long` is `path` or below it.
pub(crate) fn leads_to(path: &str, long: &str) -> bool {
    // The byte after the prefix is compared first: it decides most cases.
    matches!(long.as_bytes().get(path.len()), None | Some(b'.')) && long.starts_with(path)
}

/// Copies the values at the paths and their parents. The recursion is as deep as a path or the document.
fn copy_part(doc: &Doc, paths: &[&str], out: &mut DocBuf) {
    for element in doc.iter_raw() {
        let name = element.name();
        let mut whole = false;
        let mut below = Vec::new();
        for path in paths {
            match path.split_once('.') {
                Some((first, rest)) if first == name => below.push(rest),
                None if *path == name => whole = true,
                _ => {}
            }
        }
        match element.value() {
            _ if !whole && below.is_empty() => {}
            Some(Value::Document(inner)) if !whole => {
                out.push_doc(name, |out| copy_part(inner, &below, out));
            }
            _ => out.push_raw(&element),
        }
    }
}
