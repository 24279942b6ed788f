//! An owned value with text that is not UTF-8.

use std::fmt;

use super::OwnedValue;
use crate::raw::write_text;
use crate::{NotUtf8, tag};

/// An owned [`NotUtf8`].
#[derive(Clone, PartialEq, Eq)]
pub struct NotUtf8Buf {
    tag: u8,
    bytes: Vec<u8>,
}

impl NotUtf8Buf {
    pub fn borrow(&self) -> NotUtf8<'_> {
        NotUtf8::new(self.tag, &self.bytes)
    }

    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }
}

impl From<NotUtf8<'_>> for NotUtf8Buf {
    fn from(value: NotUtf8<'_>) -> Self {
        NotUtf8Buf {
            tag: value.type_code(),
            bytes: value.value_bytes().to_vec(),
        }
    }
}

impl fmt::Debug for NotUtf8Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.borrow().fmt(f)
    }
}

impl OwnedValue {
    /// The string of these bytes.
    pub fn string(text: Vec<u8>) -> OwnedValue {
        match String::from_utf8(text) {
            Ok(text) => OwnedValue::String(text),
            Err(error) => {
                let text = error.as_bytes();
                let mut bytes = Vec::with_capacity(text.len() + 5);
                write_text(&mut bytes, text);
                OwnedValue::NotUtf8(NotUtf8Buf {
                    tag: tag::STRING,
                    bytes,
                })
            }
        }
    }
}
