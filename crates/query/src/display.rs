//! Values in error messages, in the notation of the `mongo` shell.

use frond_bson::{Doc, Value, hex_upper};
use std::fmt::Write;

/// Longest rendering that goes into a message, in bytes; the rest becomes `...`.
const MAX_BYTES: usize = 1024;

/// An element: `name: value`.
pub(crate) fn element(name: &str, value: &Value<'_>) -> String {
    let mut out = format!("{name}: ");
    write_value(&mut out, value);
    out
}

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

/// A value that an expression or a stage has computed, `{a: 1, b: ["x", 2]}`: MongoDB shows these in another notation than
/// what a client has sent.
pub(crate) fn computed(value: &Value<'_>) -> String {
    let mut out = String::new();
    write_computed(&mut out, value);
    out
}

fn write_computed(out: &mut String, value: &Value<'_>) {
    if out.len() > MAX_BYTES {
        if !out.ends_with("...") {
            out.push_str("...");
        }
        return;
    }
    match value {
        Value::Double(v) => out.push_str(&six_digits(*v)),
        Value::ObjectId(v) => out.push_str(&v.to_string()),
        Value::Document(v) => {
            out.push('{');
            for (at, (name, value)) in v.iter().enumerate() {
                let comma = if at > 0 { ", " } else { "" };
                out.push_str(comma);
                out.push_str(name);
                out.push_str(": ");
                write_computed(out, &value);
            }
            out.push('}');
        }
        Value::Array(v) => {
            out.push('[');
            for (at, (_, value)) in v.iter().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                write_computed(out, &value);
            }
            out.push(']');
        }
        Value::Symbol(v) => out.push_str(&format!("Symbol(\"{v}\")")),
        Value::JavaScript(v) => out.push_str(&format!("Code(\"{v}\")")),
        other => write_value(out, other),
    }
}

/// A double with six significant digits at most, as C's `%g` writes it.
fn six_digits(v: f64) -> String {
    if v.is_nan() {
        return "nan".to_owned();
    }
    if v.is_infinite() {
        return if v < 0.0 { "-inf" } else { "inf" }.to_owned();
    }
    let scientific = format!("{v:.5e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let short = |text: &str| {
        if text.contains('.') {
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            text.to_owned()
        }
    };
    match usize::try_from(5 - exponent) {
        Ok(decimals) if exponent >= -4 => short(&format!("{v:.decimals$}")),
        _ => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{}e{sign}{:02}", short(digits), exponent.abs())
        }
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
        Value::Binary { subtype: 4, bytes } if bytes.len() == 16 => {
            let uuid = bytes.first_chunk::<16>().copied().unwrap_or_default();
            write!(out, "UUID(\"{}\")", frond_bson::uuid_text(&uuid))
        }
        Value::Binary { subtype, bytes } => {
            let shown = bytes.get(..80).unwrap_or(bytes);
            write!(out, "BinData({subtype}, {})", hex_upper(shown))
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

#[cfg(test)]
mod tests {
    use frond_bson::{ObjectId, doc};

    use super::*;

    #[test]
    fn computed_values_are_shown_without_spaces_inside_of_braces() {
        let id = ObjectId::new();
        let cases = [
            (doc! {}, "{}".to_owned()),
            (
                doc! {"a": 1, "b": {"c": "x", "d": []}, "e": [1, {"f": null}]},
                r#"{a: 1, b: {c: "x", d: []}, e: [1, {f: null}]}"#.to_owned(),
            ),
            (doc! {"id": id}, format!("{{id: {id}}}")),
            (
                doc! {"a": 1.0, "b": 0.1, "c": 12_345_678.0},
                "{a: 1, b: 0.1, c: 1.23457e+07}".to_owned(),
            ),
            (
                doc! {"a": 100_000.0, "b": 1e-5, "c": -2.5},
                "{a: 100000, b: 1e-05, c: -2.5}".to_owned(),
            ),
            (
                doc! {"a": f64::NAN, "b": f64::NEG_INFINITY, "c": 0.0},
                "{a: nan, b: -inf, c: 0}".to_owned(),
            ),
        ];
        for (given, expected) in cases {
            assert_eq!(computed(&Value::Document(&given)), expected);
        }
    }
}
