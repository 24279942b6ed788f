//! An owned document that grows at its end.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;

use crate::raw::{RawElement, write_cstring, write_text};
use crate::{Doc, Error, Value, tag};

/// Length prefix and trailing zero of an empty document.
const EMPTY: [u8; 5] = [5, 0, 0, 0, 0];

/// An owned BSON document. Between two calls its bytes are always a whole, valid document.
pub struct DocBuf {
    pub(super) bytes: Vec<u8>,
    /// Where the document starts: above 0 only inside [`DocBuf::push_doc`] and [`DocBuf::push_array`],
    /// whose inner document is written in place, behind the elements of the outer one.
    pub(super) start: usize,
}

/// Where to continue after an inner document, see [`DocBuf::open`].
#[doc(hidden)]
#[must_use]
pub struct Mark(usize);

impl DocBuf {
    #[inline]
    pub fn new() -> Self {
        Self::with_capacity(64)
    }

    /// The empty document, with room for `bytes`.
    #[inline]
    pub fn with_capacity(bytes: usize) -> Self {
        let mut vec = Vec::with_capacity(bytes.max(EMPTY.len()));
        vec.extend_from_slice(&EMPTY);
        Self::from_vec_trusted(vec)
    }

    /// Takes bytes that were validated before. For others use [`DocBuf::from_vec`].
    pub fn from_vec_trusted(bytes: Vec<u8>) -> Self {
        Self { bytes, start: 0 }
    }

    /// Takes bytes after validating them.
    ///
    /// # Errors
    /// As [`Doc::validate`].
    pub fn from_vec(bytes: Vec<u8>) -> Result<Self, Error> {
        Doc::validate(&bytes)?;
        Ok(Self::from_vec_trusted(bytes))
    }

    pub fn into_vec(self) -> Vec<u8> {
        self.bytes
    }

    #[inline]
    pub fn as_doc(&self) -> &Doc {
        Doc::from_trusted(self.bytes.get(self.start..).unwrap_or_default())
    }

    /// Removes all elements and keeps the allocation.
    pub fn clear(&mut self) {
        self.bytes.truncate(self.start);
        self.bytes.extend_from_slice(&EMPTY);
    }

    /// Bytes that it can hold without more memory.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Makes room for `bytes` more.
    pub fn reserve(&mut self, bytes: usize) {
        self.bytes.reserve(bytes);
    }

    /// Bytes that can be appended without more memory.
    #[inline]
    pub fn spare_capacity(&self) -> usize {
        self.bytes.capacity() - self.bytes.len()
    }

    /// Makes room for `bytes` more, and no further room.
    pub fn reserve_exact(&mut self, bytes: usize) {
        self.bytes.reserve_exact(bytes);
    }

    /// The document whose only element, named `key`, is this one. It is made in the same buffer, and
    /// not copied to another one if there is room for a few bytes more.
    pub fn into_field(self, key: &str) -> DocBuf {
        self.wrapped(key, tag::DOCUMENT)
    }

    pub(crate) fn wrapped(mut self, key: &str, tag: u8) -> DocBuf {
        // The head is written behind the bytes first, and then changes places with them.
        self.bytes.extend_from_slice(&[0, 0, 0, 0, tag]);
        let end = self.bytes.len() - 5;
        write_cstring(&mut self.bytes, key);
        let head_bytes = self.bytes.len() - end;
        if let Some(all) = self.bytes.get_mut(self.start..) {
            all.rotate_right(head_bytes);
        }
        self.finish();
        self
    }

    /// Appends an element. BSON names cannot hold a zero byte: a name is cut there, as are the two parts
    /// of a regular expression.
    pub fn push<'a>(&mut self, key: &str, value: impl Into<Value<'a>>) {
        self.push_value(key, &value.into());
    }

    /// As [`DocBuf::push`], for a value at hand.
    pub fn push_value(&mut self, key: &str, value: &Value<'_>) {
        self.begin_element(value.type_code(), key);
        value.write_to(&mut self.bytes);
        self.finish();
    }

    /// Appends a string, symbol or code of these bytes.
    pub(crate) fn push_text(&mut self, key: &str, tag: u8, text: &[u8]) {
        self.push_written(key, tag, |out| write_text(out, text));
    }

    /// Appends an element whose value `write` writes.
    pub(crate) fn push_written(&mut self, key: &str, tag: u8, write: impl FnOnce(&mut Vec<u8>)) {
        self.begin_element(tag, key);
        write(&mut self.bytes);
        self.finish();
    }

    /// Appends an element of another document as it is.
    #[inline]
    pub fn push_raw(&mut self, element: &RawElement<'_>) {
        self.push_elements(element.whole);
    }

    /// Appends an element's value, not decoded, under another name.
    pub fn push_raw_as(&mut self, key: &str, element: &RawElement<'_>) {
        self.begin_element(element.tag, key);
        self.bytes.extend_from_slice(element.value);
        self.finish();
    }

    /// Appends all elements of `doc`.
    pub fn push_all(&mut self, doc: &Doc) {
        self.push_elements(doc.elements_bytes());
    }

    pub(crate) fn push_elements(&mut self, elements: &[u8]) {
        self.bytes.pop();
        self.bytes.extend_from_slice(elements);
        self.finish();
    }

    /// Appends a document that `fill` writes in place, and returns what `fill` returns.
    ///
    /// # Panics
    /// When `fill` puts another `DocBuf` in the place of the one that it is given.
    pub fn push_doc<R>(&mut self, key: &str, fill: impl FnOnce(&mut DocBuf) -> R) -> R {
        let mark = self.open(key, tag::DOCUMENT);
        let start = self.start;
        let result = fill(self);
        assert_eq!(self.start, start, "DocBuf replaced inside push_doc");
        self.close(mark);
        result
    }

    /// Starts an inner document or array; [`DocBuf::close`] with the mark must follow. For the `doc!` macro.
    #[doc(hidden)]
    pub fn open(&mut self, key: &str, tag: u8) -> Mark {
        self.begin_element(tag, key);
        let mark = Mark(self.start);
        self.start = self.bytes.len();
        self.bytes.extend_from_slice(&EMPTY);
        mark
    }

    /// Ends the inner document.
    #[doc(hidden)]
    pub fn close(&mut self, mark: Mark) {
        self.start = mark.0;
        self.finish();
    }

    /// The bytes so far, with those of the documents around an inner one that is open.
    #[doc(hidden)]
    pub fn written_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Drops the trailing zero, and writes type and name.
    fn begin_element(&mut self, tag: u8, key: &str) {
        self.bytes.pop();
        self.bytes.push(tag);
        write_cstring(&mut self.bytes, key);
    }

    /// Writes the trailing zero and the length.
    fn finish(&mut self) {
        self.bytes.push(0);
        let len = ((self.bytes.len() - self.start) as u32).to_le_bytes();
        if let Some(prefix) = self.bytes.get_mut(self.start..self.start + 4) {
            prefix.copy_from_slice(&len);
        }
    }
}

impl Default for DocBuf {
    fn default() -> Self {
        Self::new()
    }
}

impl Clone for DocBuf {
    fn clone(&self) -> Self {
        self.as_doc().to_owned()
    }
}

/// Equal when the bytes are.
impl PartialEq for DocBuf {
    fn eq(&self, other: &DocBuf) -> bool {
        self.as_doc() == other.as_doc()
    }
}

impl Eq for DocBuf {}

impl PartialEq<Doc> for DocBuf {
    fn eq(&self, other: &Doc) -> bool {
        self.as_doc() == other
    }
}

impl PartialEq<&Doc> for DocBuf {
    fn eq(&self, other: &&Doc) -> bool {
        self.as_doc() == *other
    }
}

impl Deref for DocBuf {
    type Target = Doc;

    #[inline]
    fn deref(&self) -> &Doc {
        self.as_doc()
    }
}

impl Borrow<Doc> for DocBuf {
    fn borrow(&self) -> &Doc {
        self
    }
}

impl AsRef<Doc> for DocBuf {
    fn as_ref(&self) -> &Doc {
        self
    }
}

impl From<&Doc> for DocBuf {
    fn from(doc: &Doc) -> Self {
        doc.to_owned()
    }
}

impl fmt::Debug for DocBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_doc(), f)
    }
}

impl PartialEq<DocBuf> for Doc {
    fn eq(&self, other: &DocBuf) -> bool {
        *self == **other
    }
}

impl ToOwned for Doc {
    type Owned = DocBuf;

    fn to_owned(&self) -> DocBuf {
        DocBuf::from_vec_trusted(self.as_bytes().to_vec())
    }
}

impl<'a> IntoIterator for &'a DocBuf {
    type Item = (&'a str, Value<'a>);
    type IntoIter = crate::Iter<'a>;

    fn into_iter(self) -> crate::Iter<'a> {
        self.iter()
    }
}
