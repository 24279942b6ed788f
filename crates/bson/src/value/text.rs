//! Text that is not UTF-8.
//!
//! BSON specifies UTF-8, but old clients stored other encodings, and MongoDB keeps them. Such a value is
//! [`Value::NotUtf8`]: so the text of a [`Value::String`] is always valid, and code that works on bytes handles both.

use std::borrow::Cow;
use std::fmt;

use super::{Doc, Value};
use crate::raw::{find_byte, string, u32_at};
use crate::{ObjectId, tag};

/// A value with text that is not UTF-8: a string, a symbol, code, a regular expression or a DBPointer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NotUtf8<'a> {
    tag: u8,
    /// The value's bytes in a document. Their lengths and terminators are valid.
    bytes: &'a [u8],
}

/// The text of a value as bytes, and its other parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Text<'a> {
    /// Of a string, a symbol or code.
    Plain(&'a [u8]),
    /// Of a regular expression.
    Regex {
        pattern: &'a [u8],
        options: &'a [u8],
    },
    Pointer {
        ns: &'a [u8],
        /// The document's `_id`.
        id: ObjectId,
    },
    /// Of code with variables.
    Scoped { code: &'a [u8], scope: &'a Doc },
}

/// The text of a value whose bytes are exactly `bytes`, and its other parts; `None` when they are corrupt and for types
/// without text.
#[inline]
pub(super) fn text_at(tag: u8, bytes: &[u8]) -> Option<Text<'_>> {
    Some(match tag {
        tag::STRING | tag::JAVASCRIPT | tag::SYMBOL => Text::Plain(string(bytes)?),
        tag::REGEX => {
            let end = find_byte(bytes, 0)?;
            Text::Regex {
                pattern: bytes.get(..end)?,
                options: bytes.get(end + 1..bytes.len().checked_sub(1)?)?,
            }
        }
        tag::DB_POINTER => {
            let (ns, id) = bytes.split_at_checked(bytes.len().checked_sub(12)?)?;
            Text::Pointer {
                ns: string(ns)?,
                id: ObjectId(id.try_into().ok()?),
            }
        }
        tag::JAVASCRIPT_WITH_SCOPE => {
            let code_end = u32_at(bytes, 4)?.checked_add(8)?;
            Text::Scoped {
                code: string(bytes.get(4..code_end)?)?,
                scope: Doc::from_trusted(bytes.get(code_end..)?),
            }
        }
        _ => return None,
    })
}

impl<'a> NotUtf8<'a> {
    pub(crate) fn new(tag: u8, bytes: &'a [u8]) -> NotUtf8<'a> {
        NotUtf8 { tag, bytes }
    }

    /// The BSON type byte.
    pub fn type_code(&self) -> u8 {
        self.tag
    }

    /// The value's bytes as in a document, without type byte and name.
    #[inline]
    pub fn value_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The text and the other parts.
    #[inline]
    pub fn text(&self) -> Text<'a> {
        text_at(self.tag, self.bytes).unwrap_or(Text::Plain(&[]))
    }

    /// The text with U+FFFD for each invalid sequence.
    pub fn to_lossy(&self) -> String {
        match self.text() {
            Text::Plain(text) => lossy(text).into_owned(),
            Text::Regex { pattern, options } => format!("/{}/{}", lossy(pattern), lossy(options)),
            Text::Pointer { ns, id } => format!("DBRef('{}', {id})", lossy(ns)),
            Text::Scoped { code, scope } => format!("CodeWScope({}, {scope:?})", lossy(code)),
        }
    }
}

impl fmt::Debug for NotUtf8<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NotUtf8({:?})", self.to_lossy())
    }
}

impl<'a> Value<'a> {
    /// The text of the value as bytes, for types that have some, UTF-8 or not.
    #[inline]
    pub fn text(&self) -> Option<Text<'a>> {
        Some(match *self {
            Value::String(text) | Value::Symbol(text) | Value::JavaScript(text) => {
                Text::Plain(text.as_bytes())
            }
            Value::Regex { pattern, options } => Text::Regex {
                pattern: pattern.as_bytes(),
                options: options.as_bytes(),
            },
            Value::DbPointer { ns, id } => Text::Pointer {
                ns: ns.as_bytes(),
                id,
            },
            Value::JavaScriptWithScope { code, scope } => Text::Scoped {
                code: code.as_bytes(),
                scope,
            },
            Value::NotUtf8(value) => value.text(),
            _ => return None,
        })
    }

    /// The bytes of a string or a symbol, UTF-8 or not.
    #[inline]
    pub fn string_bytes(&self) -> Option<&'a [u8]> {
        match (self.type_code(), self.text()) {
            (tag::STRING | tag::SYMBOL, Some(Text::Plain(text))) => Some(text),
            _ => None,
        }
    }

    /// The characters of a string or a symbol, with U+FFFD for each invalid sequence.
    pub fn characters(&self) -> Option<Cow<'a, str>> {
        match *self {
            Value::String(text) | Value::Symbol(text) => Some(Cow::Borrowed(text)),
            _ => self.string_bytes().map(lossy),
        }
    }

    /// Whether this is a string, UTF-8 or not.
    #[inline]
    pub fn is_string(&self) -> bool {
        self.type_code() == tag::STRING
    }

    /// Whether this is a regular expression, UTF-8 or not.
    pub fn is_regex(&self) -> bool {
        self.type_code() == tag::REGEX
    }
}

fn lossy(text: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(text)
}
