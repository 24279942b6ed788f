//! Values in error messages, in the notation of the `mongo` shell.

use frond_bson::{Doc, Value};
use std::fmt::Write;

/// Longest rendering that goes into a message, in bytes; the rest becomes `...`.
const MAX_BYTES: usize = 1024;

/// An element: `name: value`.
pub(crate) fn element(name: &str, value: &Value<'_>) -> String {
    let mut out = format!("{name}: ");
    write_value(&mut out, value);
    out
}

/// A value.
pub(crate) fn value(value: &Value<'_>) -> String {
    let mut out = String::new();
    write_value(&mut out, value);
    out
}

/// A document, `{ a: 1, b: [ "x" ] }`.
pub(crate) fn doc(doc: &Doc) -> String {
    value(&Value::Document(doc))
}

/// `{_id: 1}`: the document that an update failed on, for messages.
pub(crate) fn id(doc: &Doc) -> String {
    match doc.get("_id") {
        Some(id) => format!("{{{}}}", element("_id", &id)),
        None => "{no id}".to_owned(),
    }
}

fn write_value(out: &mut String, value: &Value<'_>) {
    if out.len() > MAX_BYTES {
        if !out.ends_with("...") {
            out.push_str("...");
        }
        return;
    }
    // Writing to a String cannot fail.
    let _ = match value {
        Value::Double(v) if v.is_nan() => write!(out, "nan.0"),
        Value::Double(v) if v.is_infinite() => {
            write!(out, "{}inf.0", if *v < 0.0 { "-" } else { "" })
        }
        Value::Double(v) => write!(out, "{v:?}"),
        Value::String(v) | Value::Symbol(v) => {
            let end = (0..=v.len().min(160))
                .rev()
                .find(|i| v.is_char_boundary(*i));
            let head = v.get(..end.unwrap_or(0)).unwrap_or_default();
            let dots = if head.len() < v.len() { "..." } else { "" };
            write!(out, "\"{head}{dots}\"")
        }
        Value::Document(v) => {
            let mut open = "{ ";
            for (name, value) in v.iter() {
                let _ = write!(out, "{open}{name}: ");
                write_value(out, &value);
                open = ", ";
            }
            write!(out, "{}", if open == "{ " { "{}" } else { " }" })
        }
        Value::Array(v) => {
            let mut open = "[ ";
            for (_, value) in v.iter() {
                out.push_str(open);
                write_value(out, &value);
                open = ", ";
            }
            write!(out, "{}", if open == "[ " { "[]" } else { " ]" })
        }
        Value::Binary { subtype, bytes } => {
            let _ = write!(out, "BinData({subtype}, ");
            for byte in bytes.iter().take(80) {
                let _ = write!(out, "{byte:02X}");
            }
            write!(out, ")")
        }
        Value::Undefined => write!(out, "undefined"),
        Value::ObjectId(v) => write!(out, "ObjectId('{v}')"),
        Value::Bool(v) => write!(out, "{v}"),
        Value::DateTime(v) => write!(out, "new Date({v})"),
        Value::Null => write!(out, "null"),
        Value::Regex { pattern, options } => write!(out, "/{pattern}/{options}"),
        Value::DbPointer { ns, id } => write!(out, "DBRef('{ns}',{id})"),
        Value::JavaScript(v) => write!(out, "{v}"),
        Value::JavaScriptWithScope { code, scope } => {
            let _ = write!(out, "CodeWScope( {code}, ");
            write_value(out, &Value::Document(scope));
            write!(out, ")")
        }
        Value::Int32(v) => write!(out, "{v}"),
        Value::Timestamp(v) => write!(out, "Timestamp({}, {})", v.time, v.increment),
        Value::Int64(v) => write!(out, "{v}"),
        Value::Decimal128(v) => write!(out, "{v}"),
        Value::MinKey => write!(out, "MinKey"),
        Value::MaxKey => write!(out, "MaxKey"),
        Value::NotUtf8(text) => {
            let text = text.to_lossy();
            if value.string_bytes().is_some() {
                write_value(out, &Value::String(&text));
            } else {
                out.push_str(&text);
            }
            Ok(())
        }
    };
}
