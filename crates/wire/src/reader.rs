//! Reading little-endian fields from bytes that may end anywhere.

use crate::Error;

/// Bytes not read yet. Every method takes the name of the field, for the error.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn bytes(&mut self, n: usize, what: &'static str) -> Result<&'a [u8], Error> {
        let (head, tail) = self
            .rest
            .split_at_checked(n)
            .ok_or(Error::Truncated(what))?;
        self.rest = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Error> {
        let (head, tail) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or(Error::Truncated(what))?;
        self.rest = tail;
        Ok(*head)
    }

    pub fn u8(&mut self, what: &'static str) -> Result<u8, Error> {
        self.array::<1>(what).map(|[byte]| byte)
    }

    pub fn i32(&mut self, what: &'static str) -> Result<i32, Error> {
        self.array(what).map(i32::from_le_bytes)
    }

    pub fn u32(&mut self, what: &'static str) -> Result<u32, Error> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub fn i64(&mut self, what: &'static str) -> Result<i64, Error> {
        self.array(what).map(i64::from_le_bytes)
    }

    /// Text that ends at a zero byte.
    pub fn cstring(&mut self, what: &'static str) -> Result<&'a str, Error> {
        let end = self
            .rest
            .iter()
            .position(|b| *b == 0)
            .ok_or(Error::Truncated(what))?;
        let bytes = self.bytes(end + 1, what)?;
        std::str::from_utf8(bytes.get(..end).unwrap_or_default()).map_err(|_| Error::NotUtf8(what))
    }

    /// A document: only its length prefix is checked, the rest is the reader's business.
    pub fn document(&mut self, what: &'static str) -> Result<&'a [u8], Error> {
        let length = Reader::new(self.rest).i32(what)?;
        let n = usize::try_from(length).unwrap_or(0);
        if n < 5 || n > self.rest.len() {
            return Err(Error::BadDocumentLength(length));
        }
        self.bytes(n, what)
    }

    /// All documents up to the end, each length prefix checked.
    pub fn documents(&mut self, what: &'static str) -> Result<DocIter<'a>, Error> {
        let all = self.rest;
        let mut count = 0;
        while !self.is_empty() {
            self.document(what)?;
            count += 1;
        }
        Ok(DocIter {
            rest: all,
            remaining: count,
        })
    }

    /// Nothing may be left.
    pub fn end(&self) -> Result<(), Error> {
        if self.is_empty() {
            Ok(())
        } else {
            Err(Error::TrailingBytes(self.rest.len()))
        }
    }
}

/// Documents one after the other, each as the bytes that its length prefix claims. The prefixes
/// were checked when the message was parsed; what is inside was not.
#[derive(Clone, Copy, Debug, Default)]
pub struct DocIter<'a> {
    rest: &'a [u8],
    remaining: usize,
}

impl<'a> DocIter<'a> {
    /// Bytes of the documents not returned yet.
    #[must_use]
    pub fn remaining_bytes(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for DocIter<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let mut reader = Reader::new(self.rest);
        let document = reader.document("document").ok()?;
        self.rest = reader.rest();
        self.remaining = self.remaining.saturating_sub(1);
        Some(document)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining, Some(self.remaining))
    }
}

impl ExactSizeIterator for DocIter<'_> {}
