//! MongoDB Extended JSON (version 2): relaxed and canonical output, and a parser for both.

mod base64;
mod date;
mod write;

use crate::{Doc, Value};

/// The relaxed form: numbers and dates as people write them. Some numeric types are lost.
pub fn to_relaxed(doc: &Doc) -> String {
    value_to_relaxed(&Value::Document(doc))
}

/// The canonical form: every type is kept.
pub fn to_canonical(doc: &Doc) -> String {
    value_to_canonical(&Value::Document(doc))
}

/// The relaxed form of one value.
pub fn value_to_relaxed(value: &Value<'_>) -> String {
    let mut out = String::new();
    write::Writer {
        out: &mut out,
        canonical: false,
    }
    .value(value, 0);
    out
}

/// The canonical form of one value.
pub fn value_to_canonical(value: &Value<'_>) -> String {
    let mut out = String::new();
    write::Writer {
        out: &mut out,
        canonical: true,
    }
    .value(value, 0);
    out
}

pub use base64::{decode as base64_decode, encode as base64_encode};
pub use date::{format_millis, parse_millis};
