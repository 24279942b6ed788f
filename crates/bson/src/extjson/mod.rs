//! MongoDB Extended JSON (version 2): relaxed and canonical output, and a parser for both, and for version 1.

mod base64;
mod date;
mod parse;
mod scan;
mod shell;
mod special;
#[cfg(test)]
mod tests;
mod write;

use std::fmt;

use crate::{ArrayBuf, Doc, Value};

pub use base64::{decode as base64_decode, encode as base64_encode};
pub use date::{format_millis, parse_millis};
pub use parse::{parse, parse_legacy, parse_value};
pub use scan::ParseError;

/// The relaxed form: plain numbers and ISO 8601 dates. Some numeric types are lost.
pub fn to_relaxed(doc: &Doc) -> String {
    value_to_relaxed(&Value::Document(doc))
}

/// The canonical form: every type is kept.
pub fn to_canonical(doc: &Doc) -> String {
    value_to_canonical(&Value::Document(doc))
}

/// The relaxed form of one value.
pub fn value_to_relaxed(value: &Value<'_>) -> String {
    written(value, false)
}

/// The canonical form of one value.
pub fn value_to_canonical(value: &Value<'_>) -> String {
    written(value, true)
}

fn written(value: &Value<'_>, canonical: bool) -> String {
    let mut out = String::new();
    write::Writer {
        out: &mut out,
        canonical,
    }
    .value(value, 0);
    out
}

impl fmt::Debug for Doc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_relaxed(self))
    }
}

impl fmt::Debug for ArrayBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&value_to_relaxed(&self.as_value()))
    }
}
