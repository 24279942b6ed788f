//! The JSON of audit events: version 1 of Extended JSON in its strict form, as in the audit log of MongoDB.

use std::fmt::Write;

use frond_bson::{Doc, Value, extjson};

/// An event as one line, without the end of the line.
pub fn line(event: &Doc) -> String {
    let mut out = String::with_capacity(event.len_bytes() * 2);
    document(event, &mut out);
    out
}

fn document(doc: &Doc, out: &mut String) {
    let mut separator = "{ ";
    for (name, value) in doc.iter() {
        out.push_str(separator);
        separator = ", ";
        string(name, out);
        out.push_str(" : ");
        self::value(&value, out);
    }
    out.push_str(if separator == "{ " { "{}" } else { " }" });
}

fn array(values: &Doc, out: &mut String) {
    let mut separator = "[ ";
    for value in values.values() {
        out.push_str(separator);
        separator = ", ";
        self::value(&value, out);
    }
    out.push_str(if separator == "[ " { "[]" } else { " ]" });
}

fn value(value: &Value<'_>, out: &mut String) {
    match value {
        Value::Document(doc) => document(doc, out),
        Value::Array(values) => array(values, out),
        Value::String(text) => string(text, out),
        Value::Bool(on) => out.push_str(if *on { "true" } else { "false" }),
        Value::Null => out.push_str("null"),
        Value::Int32(n) => write_to(out, format_args!("{n}")),
        Value::Int64(n) => write_to(out, format_args!("{{ \"$numberLong\" : \"{n}\" }}")),
        Value::DateTime(ms) => date(*ms, out),
        Value::Binary { subtype, bytes } => {
            let text = extjson::base64_encode(bytes);
            write_to(
                out,
                format_args!("{{ \"$binary\" : \"{text}\", \"$type\" : \"{subtype:02x}\" }}"),
            );
        }
        Value::Timestamp(at) => write_to(
            out,
            format_args!(
                "{{ \"$timestamp\" : {{ \"t\" : {}, \"i\" : {} }} }}",
                at.time, at.increment
            ),
        ),
        Value::Regex { pattern, options } => {
            out.push_str("{ \"$regex\" : ");
            string(pattern, out);
            out.push_str(", \"$options\" : ");
            string(options, out);
            out.push_str(" }");
        }
        // Their forms are the same in both versions.
        other => out.push_str(&extjson::value_to_relaxed(other)),
    }
}

/// A date outside of the years that ISO 8601 has is a number, as in MongoDB.
fn date(ms: i64, out: &mut String) {
    match jiff::Timestamp::from_millisecond(ms) {
        Ok(time) if ms >= 0 => {
            let time = time.strftime("%Y-%m-%dT%H:%M:%S%.3f");
            write_to(out, format_args!("{{ \"$date\" : \"{time}+00:00\" }}"));
        }
        _ => write_to(
            out,
            format_args!("{{ \"$date\" : {{ \"$numberLong\" : \"{ms}\" }} }}"),
        ),
    }
}

fn write_to(out: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = out.write_fmt(arguments);
}

fn string(text: &str, out: &mut String) {
    out.push('"');
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_control() || c == '"' || c == '\\') {
        let (plain, special) = rest.split_at(at);
        out.push_str(plain);
        let mut characters = special.chars();
        match characters.next() {
            Some('"') => out.push_str("\\\""),
            Some('\\') => out.push_str("\\\\"),
            Some('\n') => out.push_str("\\n"),
            Some('\r') => out.push_str("\\r"),
            Some('\t') => out.push_str("\\t"),
            Some(other) => write_to(out, format_args!("\\u{:04x}", u32::from(other))),
            None => {}
        }
        rest = characters.as_str();
    }
    out.push_str(rest);
    out.push('"');
}

#[cfg(test)]
mod tests {
    use frond_bson::{DocBuf, ObjectId, Timestamp, doc};

    use super::*;

    #[test]
    fn values_have_the_forms_of_mongodbs_audit_log() {
        let one = |value: Value<'_>| {
            let mut doc = DocBuf::new();
            doc.push_value("a", &value);
            line(&doc)
        };
        let inner = doc! {"b": [1, "x"]};
        let cases = [
            (Value::Int32(27017), r#"{ "a" : 27017 }"#),
            (Value::Int64(-5), r#"{ "a" : { "$numberLong" : "-5" } }"#),
            (Value::Bool(true), r#"{ "a" : true }"#),
            (Value::Null, r#"{ "a" : null }"#),
            (
                Value::String("a\"\\\n\u{1}é"),
                "{ \"a\" : \"a\\\"\\\\\\n\\u0001é\" }",
            ),
            (
                Value::DateTime(1_628_516_705_372),
                r#"{ "a" : { "$date" : "2021-08-09T13:45:05.372+00:00" } }"#,
            ),
            (
                Value::DateTime(i64::MIN),
                r#"{ "a" : { "$date" : { "$numberLong" : "-9223372036854775808" } } }"#,
            ),
            (
                Value::Binary {
                    subtype: 4,
                    bytes: &[1, 2, 3],
                },
                r#"{ "a" : { "$binary" : "AQID", "$type" : "04" } }"#,
            ),
            (
                Value::Timestamp(Timestamp {
                    time: 7,
                    increment: 1,
                }),
                r#"{ "a" : { "$timestamp" : { "t" : 7, "i" : 1 } } }"#,
            ),
            (
                Value::Regex {
                    pattern: "^a",
                    options: "i",
                },
                r#"{ "a" : { "$regex" : "^a", "$options" : "i" } }"#,
            ),
            (Value::Document(&inner), r#"{ "a" : { "b" : [ 1, "x" ] } }"#),
            (Value::Document(Doc::empty()), r#"{ "a" : {} }"#),
            (
                Value::ObjectId(ObjectId([0; 12])),
                r#"{ "a" : {"$oid":"000000000000000000000000"} }"#,
            ),
        ];
        for (value, expected) in cases {
            assert_eq!(one(value), expected);
        }
        let nested = doc! {"a": [], "b": 1.5};
        assert_eq!(line(&nested), r#"{ "a" : [], "b" : 1.5 }"#);
        // Each line is JSON.
        assert_eq!(extjson::parse(&line(&nested)), Ok(nested));
    }
}
