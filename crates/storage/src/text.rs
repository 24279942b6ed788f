//! Documents and values in the notation of MongoDB's messages: `{ a: 1, b: "x" }`.
//!
//! Drivers and object mappers pick values out of such messages (above all out of duplicate key
//! errors), so the notation is part of the protocol.

use std::fmt::Write;

use frond_bson::{Doc, Value, hex_upper};

/// The longest text of one string or binary value; longer ones are truncated, as in MongoDB.
const STRING_CHARS_MAX: usize = 160;

/// A document as `{ a: 1 }`; an empty one as `{}`.
pub fn document(doc: &Doc) -> String {
    let mut out = String::new();
    write_document(&mut out, doc);
    out
}

pub fn value(value: Value<'_>) -> String {
    let mut out = String::new();
    write_value(&mut out, value);
    out
}

fn write_document(out: &mut String, doc: &Doc) {
    write_fields(out, doc, "{", "}", true);
}

fn write_fields(out: &mut String, doc: &Doc, open: &str, close: &str, names: bool) {
    out.push_str(open);
    let mut first = true;
    for (name, field) in doc.iter() {
        out.push_str(if first { " " } else { ", " });
        first = false;
        if names {
            out.push_str(name);
            out.push_str(": ");
        }
        write_value(out, field);
    }
    if !first {
        out.push(' ');
    }
    out.push_str(close);
}

fn write_string(out: &mut String, text: &str) {
    out.push('"');
    match text.char_indices().nth(STRING_CHARS_MAX) {
        Some((cut, _)) => {
            out.push_str(&text[..cut]);
            out.push_str("...");
        }
        None => out.push_str(text),
    }
    out.push('"');
}

fn write_double(out: &mut String, number: f64) {
    // Writing to a string cannot fail.
    let _ = if number.is_nan() {
        write!(out, "nan.0")
    } else if number.is_infinite() {
        write!(out, "{}inf.0", if number < 0.0 { "-" } else { "" })
    } else if number == number.trunc() && number.abs() < 1e15 {
        write!(out, "{number:.1}")
    } else {
        write!(out, "{number}")
    };
}

fn write_value(out: &mut String, value: Value<'_>) {
    let _ = match value {
        Value::Double(number) => {
            write_double(out, number);
            Ok(())
        }
        Value::String(text) | Value::Symbol(text) => {
            write_string(out, text);
            Ok(())
        }
        Value::Document(doc) => {
            write_document(out, doc);
            Ok(())
        }
        Value::Array(array) => {
            write_fields(out, array, "[", "]", false);
            Ok(())
        }
        Value::Binary { subtype: 4, bytes } if bytes.len() == 16 => {
            let uuid = bytes.first_chunk::<16>().copied().unwrap_or_default();
            write!(out, "UUID(\"{}\")", frond_bson::uuid_text(&uuid))
        }
        Value::Binary { subtype, bytes } => {
            let _ = write!(out, "BinData({subtype}, ");
            let shown = bytes.get(..STRING_CHARS_MAX / 2).unwrap_or(bytes);
            out.push_str(&hex_upper(shown));
            if bytes.len() > STRING_CHARS_MAX / 2 {
                out.push_str("...");
            }
            out.push(')');
            Ok(())
        }
        Value::Undefined => write!(out, "undefined"),
        Value::ObjectId(id) => write!(out, "ObjectId('{id}')"),
        Value::Bool(flag) => write!(out, "{flag}"),
        Value::DateTime(millis) => write!(out, "new Date({millis})"),
        Value::Null => write!(out, "null"),
        Value::Regex { pattern, options } => write!(out, "/{pattern}/{options}"),
        Value::DbPointer { ns, id } => write!(out, "DBRef('{ns}', {id})"),
        Value::JavaScript(code) => write!(out, "{code}"),
        Value::JavaScriptWithScope { code, scope } => {
            let _ = write!(out, "CodeWScope( {code}, ");
            write_document(out, scope);
            out.push(')');
            Ok(())
        }
        Value::Int32(number) => write!(out, "{number}"),
        Value::Int64(number) => write!(out, "{number}"),
        Value::Timestamp(at) => write!(out, "Timestamp({}, {})", at.time, at.increment),
        Value::Decimal128(number) => write!(out, "{number}"),
        Value::MinKey => write!(out, "MinKey"),
        Value::MaxKey => write!(out, "MaxKey"),
        Value::NotUtf8(text) => {
            let text = text.to_lossy();
            match value.string_bytes() {
                Some(_) => write_string(out, &text),
                None => out.push_str(&text),
            }
            Ok(())
        }
    };
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use frond_bson::doc;

    #[test]
    fn notation_of_messages() {
        for (doc, text) in [
            (doc! {}, "{}"),
            (doc! {"a": 1}, "{ a: 1 }"),
            (doc! {"a": 1.0, "b": 1.5}, "{ a: 1.0, b: 1.5 }"),
            (doc! {"a": "x", "b": Value::Null}, r#"{ a: "x", b: null }"#),
            (
                doc! {"a": {"b": true}, "c": [1, "y"]},
                r#"{ a: { b: true }, c: [ 1, "y" ] }"#,
            ),
            (doc! {"a": {}, "b": []}, "{ a: {}, b: [] }"),
            (
                doc! {"u": Value::Binary { subtype: 4, bytes: &[0xab; 16] }},
                r#"{ u: UUID("abababab-abab-abab-abab-abababababab") }"#,
            ),
            (
                doc! {"u": Value::Binary { subtype: 4, bytes: &[0xab; 2] }},
                "{ u: BinData(4, ABAB) }",
            ),
            (
                doc! {"a": Value::DateTime(5), "b": Value::Binary { subtype: 0, bytes: &[1, 0xff] }},
                "{ a: new Date(5), b: BinData(0, 01FF) }",
            ),
        ] {
            assert_eq!(document(&doc), text);
        }
        let long = "x".repeat(200);
        assert_eq!(value(Value::String(&long)).len(), 165);
    }
}
