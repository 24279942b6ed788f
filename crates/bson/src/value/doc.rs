//! A borrowed document.

use ref_cast::{RefCastCustom, ref_cast_custom};

use super::Value;
use crate::raw::RawElement;
use crate::{Error, ObjectId, validate};

/// The bytes of one BSON document or array, its length prefix and trailing zero included.
///
/// Like `str` it is unsized and used behind a reference; [`DocBuf`](crate::DocBuf) owns one. Reading never allocates and
/// never panics: on corrupt bytes, which validation excludes, iteration ends early.
#[derive(RefCastCustom)]
#[repr(transparent)]
pub struct Doc([u8]);

const EMPTY: &[u8] = &[5, 0, 0, 0, 0];

impl Doc {
    #[ref_cast_custom]
    fn wrap(bytes: &[u8]) -> &Doc;

    /// Checks `bytes` completely, in one pass without allocating, and borrows them as a document.
    ///
    /// Checked are exact lengths, known types, zero terminators, UTF-8 of names, booleans and a nesting of at
    /// most [`crate::MAX_DEPTH`]. Repeated field names are allowed, as in BSON, and text that is not UTF-8, as in
    /// MongoDB ([`crate::NotUtf8`]).
    ///
    /// # Errors
    /// The first problem, with its offset.
    pub fn validate(bytes: &[u8]) -> Result<&Doc, Error> {
        validate::whole(bytes)?;
        Ok(Doc::wrap(bytes))
    }

    /// Validates the document at the start of `bytes` and returns it with the bytes that follow.
    ///
    /// # Errors
    /// As [`Doc::validate`].
    pub fn from_prefix(bytes: &[u8]) -> Result<(&Doc, &[u8]), Error> {
        let (doc, rest) = validate::split_prefix(bytes)?;
        Ok((Doc::validate(doc)?, rest))
    }

    /// Borrows bytes that were validated before, such as those from storage.
    pub fn from_trusted(bytes: &[u8]) -> &Doc {
        Doc::wrap(bytes)
    }

    pub fn empty() -> &'static Doc {
        Doc::wrap(EMPTY)
    }

    /// The bytes, length prefix included.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether two fields have the same name.
    pub fn has_duplicate_names(&self) -> bool {
        let mut names: Vec<&[u8]> = self
            .iter_raw()
            .map(|element| element.name_bytes())
            .collect();
        if names.is_sorted_by(|a, b| a < b) {
            return false;
        }
        names.sort_unstable();
        names
            .windows(2)
            .any(|pair| matches!(pair, [a, b] if a == b))
    }

    /// The length in bytes.
    pub fn len_bytes(&self) -> usize {
        self.0.len()
    }

    /// The bytes of the elements, without length prefix and trailing zero.
    pub fn elements_bytes(&self) -> &[u8] {
        let end = self.0.len().saturating_sub(1);
        self.0.get(4..end).unwrap_or_default()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.elements_bytes().is_empty()
    }

    /// The elements in order, as name and value.
    pub fn iter(&self) -> Iter<'_> {
        Iter {
            raw: self.iter_raw(),
        }
    }

    /// The elements in order, values not decoded: for copying and skipping.
    pub fn iter_raw(&self) -> RawIter<'_> {
        RawIter {
            rest: self.elements_bytes(),
        }
    }

    /// The values in order, for arrays.
    pub fn values(&self) -> impl Iterator<Item = Value<'_>> {
        self.iter_raw().map_while(|e| e.value())
    }

    /// The number of elements. Walks the document.
    pub fn count(&self) -> usize {
        self.iter_raw().count()
    }

    /// The first element called `key`, not decoded.
    pub fn get_raw(&self, key: &str) -> Option<RawElement<'_>> {
        self.iter_raw().find(|e| e.name == key.as_bytes())
    }

    /// The value of the first element called `key`. In an array the keys are "0", "1", …
    pub fn get(&self, key: &str) -> Option<Value<'_>> {
        self.get_raw(key)?.value()
    }

    /// Whether there is an element called `key`.
    pub fn contains_key(&self, key: &str) -> bool {
        self.get_raw(key).is_some()
    }

    pub fn first(&self) -> Option<(&str, Value<'_>)> {
        self.iter().next()
    }

    /// The string called `key`.
    pub fn get_str(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            Value::String(s) => Some(s),
            _ => None,
        }
    }

    /// The number called `key` when it is integral and fits, whatever its numeric type.
    pub fn get_i64(&self, key: &str) -> Option<i64> {
        self.get(key)?.as_i64_lossless()
    }

    /// The number called `key` when it is integral and fits, whatever its numeric type.
    pub fn get_i32(&self, key: &str) -> Option<i32> {
        i32::try_from(self.get_i64(key)?).ok()
    }

    /// The number called `key`, of any numeric type, rounded to a double if need be.
    pub fn get_f64(&self, key: &str) -> Option<f64> {
        self.get(key)?.as_f64()
    }

    /// The boolean called `key`.
    pub fn get_bool(&self, key: &str) -> Option<bool> {
        match self.get(key)? {
            Value::Bool(b) => Some(b),
            _ => None,
        }
    }

    /// The document called `key`.
    pub fn get_doc(&self, key: &str) -> Option<&Doc> {
        match self.get(key)? {
            Value::Document(d) => Some(d),
            _ => None,
        }
    }

    /// The array called `key`.
    pub fn get_array(&self, key: &str) -> Option<&Doc> {
        match self.get(key)? {
            Value::Array(d) => Some(d),
            _ => None,
        }
    }

    /// The ObjectId called `key`.
    pub fn get_object_id(&self, key: &str) -> Option<ObjectId> {
        match self.get(key)? {
            Value::ObjectId(id) => Some(id),
            _ => None,
        }
    }

    /// The binary data called `key`, of any subtype.
    pub fn get_binary(&self, key: &str) -> Option<&[u8]> {
        match self.get(key)? {
            Value::Binary { bytes, .. } => Some(bytes),
            _ => None,
        }
    }
}

/// Equal when the bytes are; for MongoDB's equality use [`crate::compare_docs`].
impl PartialEq for Doc {
    fn eq(&self, other: &Doc) -> bool {
        self.0 == other.0
    }
}

impl Eq for Doc {}

impl<'a> IntoIterator for &'a Doc {
    type Item = (&'a str, Value<'a>);
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// Iterator over names and values of a document.
#[derive(Clone)]
pub struct Iter<'a> {
    raw: RawIter<'a>,
}

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a str, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let e = self.raw.next()?;
        Some((std::str::from_utf8(e.name).ok()?, e.value()?))
    }
}

/// Iterator over the undecoded elements of a document.
#[derive(Clone)]
pub struct RawIter<'a> {
    rest: &'a [u8],
}

impl<'a> RawIter<'a> {
    /// The bytes not yet visited: the elements that are still to come.
    pub fn rest_bytes(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for RawIter<'a> {
    type Item = RawElement<'a>;

    #[inline]
    fn next(&mut self) -> Option<RawElement<'a>> {
        match RawElement::split(self.rest) {
            Some((element, rest)) => {
                self.rest = rest;
                Some(element)
            }
            None => {
                self.rest = &[];
                None
            }
        }
    }
}
