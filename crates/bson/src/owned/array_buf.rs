//! An owned array that grows at its end.

use std::ops::Deref;

use super::DocBuf;
use crate::raw::{IndexName, RawElement};
use crate::{Doc, Value, tag};

/// A BSON array under construction: a document whose names are "0", "1", …
#[derive(Clone, PartialEq, Eq)]
pub struct ArrayBuf {
    doc: DocBuf,
    next: u32,
}

impl ArrayBuf {
    #[inline]
    pub fn new() -> Self {
        Self::resume(DocBuf::new(), 0)
    }

    fn resume(doc: DocBuf, next: u32) -> Self {
        Self { doc, next }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.next as usize
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.next == 0
    }

    /// The array's bytes as a document.
    #[inline]
    pub fn as_doc(&self) -> &Doc {
        &self.doc
    }

    /// The array as a value.
    #[inline]
    pub fn as_value(&self) -> Value<'_> {
        Value::Array(&self.doc)
    }

    pub fn into_docbuf(self) -> DocBuf {
        self.doc
    }

    /// The document whose only element, named `key`, is this array: see [`DocBuf::into_field`].
    pub fn into_field(self, key: &str) -> DocBuf {
        self.doc.wrapped(key, tag::ARRAY)
    }

    fn next_name(&mut self) -> IndexName {
        let name = IndexName::new(self.next);
        self.next += 1;
        name
    }

    /// Makes room for `bytes` more.
    pub fn reserve(&mut self, bytes: usize) {
        self.doc.reserve(bytes);
    }

    /// Bytes that it can hold without more memory.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.doc.capacity()
    }

    /// Bytes that can be appended without more memory.
    #[inline]
    pub fn spare_capacity(&self) -> usize {
        self.doc.spare_capacity()
    }

    /// Makes room for `bytes` more, and no further room.
    pub fn reserve_exact(&mut self, bytes: usize) {
        self.doc.reserve_exact(bytes);
    }

    pub fn push<'a>(&mut self, value: impl Into<Value<'a>>) {
        self.push_value(&value.into());
    }

    /// As [`ArrayBuf::push`], for a value at hand.
    #[inline]
    pub fn push_value(&mut self, value: &Value<'_>) {
        let name = self.next_name();
        self.doc.push_value(name.as_str(), value);
    }

    /// Appends the value of an element of another document, not decoded.
    #[inline]
    pub fn push_raw(&mut self, element: &RawElement<'_>) {
        let name = self.next_name();
        self.doc.push_raw_as(name.as_str(), element);
    }

    /// Appends a document that `fill` writes in place.
    pub fn push_doc<R>(&mut self, fill: impl FnOnce(&mut DocBuf) -> R) -> R {
        let name = self.next_name();
        self.doc.push_doc(name.as_str(), fill)
    }

    /// Appends an array that `fill` writes in place.
    pub fn push_array<R>(&mut self, fill: impl FnOnce(&mut ArrayBuf) -> R) -> R {
        let name = self.next_name();
        self.doc.push_array(name.as_str(), fill)
    }
}

impl DocBuf {
    /// Appends an array that `fill` writes in place, and returns what `fill` returns.
    ///
    /// # Panics
    /// When `fill` puts another `ArrayBuf` in the place of the one that it is given.
    pub fn push_array<R>(&mut self, key: &str, fill: impl FnOnce(&mut ArrayBuf) -> R) -> R {
        let mark = self.open(key, tag::ARRAY);
        let start = self.start;
        let mut array = ArrayBuf::resume(
            DocBuf {
                bytes: std::mem::take(&mut self.bytes),
                start,
            },
            0,
        );
        let result = fill(&mut array);
        *self = array.into_docbuf();
        assert_eq!(self.start, start, "ArrayBuf replaced inside push_array");
        self.close(mark);
        result
    }
}

impl Default for ArrayBuf {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for ArrayBuf {
    type Target = Doc;

    #[inline]
    fn deref(&self) -> &Doc {
        &self.doc
    }
}

impl<'a, V: Into<Value<'a>>> Extend<V> for ArrayBuf {
    fn extend<I: IntoIterator<Item = V>>(&mut self, values: I) {
        for value in values {
            self.push(value);
        }
    }
}

impl<'a, V: Into<Value<'a>>> FromIterator<V> for ArrayBuf {
    fn from_iter<I: IntoIterator<Item = V>>(values: I) -> Self {
        let mut array = Self::new();
        array.extend(values);
        array
    }
}
