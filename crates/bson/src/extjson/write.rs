//! Writing values as Extended JSON.

use std::fmt::Write;

use super::base64;
use super::date::format_millis;
use crate::{Doc, MAX_DEPTH, NotUtf8, Text, Value, tag};

/// The last millisecond of the year 9999; relaxed dates are text from 1970 to there.
const LAST_TEXT_DATE: i64 = 253_402_300_799_999;

pub(super) struct Writer<'o> {
    pub out: &'o mut String,
    pub canonical: bool,
}

impl Writer<'_> {
    /// Appends formatted text; writing to a `String` cannot fail.
    fn fmt(&mut self, args: std::fmt::Arguments<'_>) {
        let _ = self.out.write_fmt(args);
    }

    pub(super) fn value(&mut self, value: &Value<'_>, depth: usize) {
        match *value {
            Value::Double(d) => self.double(d),
            Value::String(s) => self.string(s),
            Value::Document(d) => self.document(d, depth),
            Value::Array(d) => self.array(d, depth),
            Value::Binary { subtype, bytes } => self.binary(subtype, bytes),
            Value::Undefined => self.out.push_str(r#"{"$undefined":true}"#),
            Value::ObjectId(id) => self.fmt(format_args!(r#"{{"$oid":"{id}"}}"#)),
            Value::Bool(b) => self.out.push_str(if b { "true" } else { "false" }),
            Value::DateTime(ms) => self.date(ms),
            Value::Null => self.out.push_str("null"),
            Value::Regex { pattern, options } => {
                self.out.push_str(r#"{"$regularExpression":{"pattern":"#);
                self.string(pattern);
                self.out.push_str(r#","options":"#);
                self.string(options);
                self.out.push_str("}}");
            }
            Value::DbPointer { ns, id } => {
                self.out.push_str(r#"{"$dbPointer":{"$ref":"#);
                self.string(ns);
                self.fmt(format_args!(r#","$id":{{"$oid":"{id}"}}}}}}"#));
            }
            Value::JavaScript(code) => {
                self.out.push_str(r#"{"$code":"#);
                self.string(code);
                self.out.push('}');
            }
            Value::Symbol(s) => {
                self.out.push_str(r#"{"$symbol":"#);
                self.string(s);
                self.out.push('}');
            }
            Value::JavaScriptWithScope { code, scope } => {
                self.out.push_str(r#"{"$code":"#);
                self.string(code);
                self.out.push_str(r#","$scope":"#);
                self.document(scope, depth);
                self.out.push('}');
            }
            Value::Int32(i) if self.canonical => {
                self.fmt(format_args!(r#"{{"$numberInt":"{i}"}}"#))
            }
            Value::Int32(i) => self.fmt(format_args!("{i}")),
            Value::Timestamp(t) => self.fmt(format_args!(
                r#"{{"$timestamp":{{"t":{},"i":{}}}}}"#,
                t.time, t.increment
            )),
            Value::Int64(i) if self.canonical => {
                self.fmt(format_args!(r#"{{"$numberLong":"{i}"}}"#))
            }
            Value::Int64(i) => self.fmt(format_args!("{i}")),
            Value::Decimal128(d) => self.fmt(format_args!(r#"{{"$numberDecimal":"{d}"}}"#)),
            Value::MinKey => self.out.push_str(r#"{"$minKey":1}"#),
            Value::MaxKey => self.out.push_str(r#"{"$maxKey":1}"#),
            Value::NotUtf8(value) => self.not_utf8(&value, depth),
        }
    }

    /// JSON is UTF-8: U+FFFD stands in the place of what is not.
    fn not_utf8(&mut self, value: &NotUtf8<'_>, depth: usize) {
        let lossy = String::from_utf8_lossy;
        match (value.type_code(), value.text()) {
            (tag::SYMBOL, Text::Plain(text)) => self.value(&Value::Symbol(&lossy(text)), depth),
            (tag::JAVASCRIPT, Text::Plain(text)) => {
                self.value(&Value::JavaScript(&lossy(text)), depth);
            }
            (_, Text::Plain(text)) => self.string(&lossy(text)),
            (_, Text::Regex { pattern, options }) => {
                let (pattern, options) = (&*lossy(pattern), &*lossy(options));
                self.value(&Value::Regex { pattern, options }, depth);
            }
            (_, Text::Pointer { ns, id }) => {
                let ns = &*lossy(ns);
                self.value(&Value::DbPointer { ns, id }, depth);
            }
            (_, Text::Scoped { code, scope }) => {
                let code = &*lossy(code);
                self.value(&Value::JavaScriptWithScope { code, scope }, depth);
            }
        }
    }

    fn double(&mut self, d: f64) {
        let special = if d.is_nan() {
            Some("NaN")
        } else if d.is_infinite() {
            Some(if d > 0.0 { "Infinity" } else { "-Infinity" })
        } else {
            None
        };
        match special {
            Some(name) => self.fmt(format_args!(r#"{{"$numberDouble":"{name}"}}"#)),
            // The debug form is the shortest that reads back exactly, always with a point or exponent.
            None if self.canonical => self.fmt(format_args!(r#"{{"$numberDouble":"{d:?}"}}"#)),
            None => self.fmt(format_args!("{d:?}")),
        }
    }

    fn date(&mut self, ms: i64) {
        if !self.canonical && (0..=LAST_TEXT_DATE).contains(&ms) {
            let text = format_millis(ms);
            self.fmt(format_args!(r#"{{"$date":"{text}"}}"#));
        } else {
            self.fmt(format_args!(r#"{{"$date":{{"$numberLong":"{ms}"}}}}"#));
        }
    }

    fn binary(&mut self, subtype: u8, bytes: &[u8]) {
        // The old subtype 2 repeats the length inside; JSON shows the data alone.
        let data = match bytes.split_at_checked(4) {
            Some((len, data)) if subtype == 2 && len == (data.len() as u32).to_le_bytes() => data,
            _ => bytes,
        };
        let text = base64::encode(data);
        self.fmt(format_args!(
            r#"{{"$binary":{{"base64":"{text}","subType":"{subtype:02x}"}}}}"#
        ));
    }

    fn document(&mut self, doc: &Doc, depth: usize) {
        self.out.push('{');
        // Validated documents are never this deep.
        if depth <= MAX_DEPTH {
            for (i, (name, value)) in doc.iter().enumerate() {
                if i > 0 {
                    self.out.push(',');
                }
                self.string(name);
                self.out.push(':');
                self.value(&value, depth + 1);
            }
        }
        self.out.push('}');
    }

    fn array(&mut self, doc: &Doc, depth: usize) {
        self.out.push('[');
        if depth <= MAX_DEPTH {
            for (i, value) in doc.values().enumerate() {
                if i > 0 {
                    self.out.push(',');
                }
                self.value(&value, depth + 1);
            }
        }
        self.out.push(']');
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                c if c < ' ' || c == '\u{7f}' => self.fmt(format_args!("\\u{:04x}", c as u32)),
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}
