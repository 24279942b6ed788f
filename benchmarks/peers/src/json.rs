//! Documents as JSON text for `jsonb`, and back.
//!
//! The text is what a user who moves from MongoDB writes: an ObjectId as 24 hexadecimal digits, a date
//! as milliseconds since 1970 (jsonb has no dates, and the index wants an immutable expression).

use frond_bench::{Error, Result};
use frond_bson::{Doc, DocBuf, Value};
use serde::ser::{Error as _, Serialize, SerializeMap, Serializer};

/// A document; its own `_id`, which has a column, is left out.
struct Fields<'a> {
    doc: &'a Doc,
    without_id: bool,
}

impl Serialize for Fields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.doc.iter() {
            if !(self.without_id && name == "_id") {
                map.serialize_entry(name, &Json(value))?;
            }
        }
        map.end()
    }
}

struct Json<'a>(Value<'a>);

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match &self.0 {
            Value::String(text) => serializer.serialize_str(text),
            Value::Int32(number) => serializer.serialize_i32(*number),
            Value::Int64(number) | Value::DateTime(number) => serializer.serialize_i64(*number),
            Value::Double(number) if number.is_finite() => serializer.serialize_f64(*number),
            Value::Bool(value) => serializer.serialize_bool(*value),
            Value::Null => serializer.serialize_unit(),
            Value::ObjectId(id) => serializer.collect_str(id),
            Value::Document(doc) => Fields {
                doc,
                without_id: false,
            }
            .serialize(serializer),
            Value::Array(array) => serializer.collect_seq(array.values().map(Json)),
            other => Err(S::Error::custom(format!(
                "a value of type {} has no counterpart in jsonb",
                other.type_name()
            ))),
        }
    }
}

/// Appends a document without its `_id`.
pub fn append(doc: &Doc, out: &mut Vec<u8>) -> Result<()> {
    let fields = Fields {
        doc,
        without_id: true,
    };
    serde_json::to_writer(out, &fields).map_err(|error| Error::Settings(error.to_string()))
}

pub fn append_value(value: &Value<'_>, out: &mut Vec<u8>) -> Result<()> {
    serde_json::to_writer(out, &Json(*value)).map_err(|error| Error::Settings(error.to_string()))
}

/// The document that a jsonb's text is, with `id` as its `_id`. jsonb sorts the fields of a document by
/// its own rules. Those of the workload whose documents are compared have numbers at their ends, and
/// come back in the order of these.
pub fn to_doc(id: &Value<'_>, text: &str) -> Result<DocBuf> {
    let value: serde_json::Value = serde_json::from_str(text)
        .map_err(|error| Error::Protocol(format!("no JSON in an answer: {error}")))?;
    let serde_json::Value::Object(fields) = value else {
        return Err(Error::Protocol("an answer is no document".to_owned()));
    };
    let mut doc = DocBuf::new();
    doc.push_value("_id", id);
    push_fields(&mut doc, &fields)?;
    Ok(doc)
}

type Map = serde_json::Map<String, serde_json::Value>;

fn push_fields(doc: &mut DocBuf, fields: &Map) -> Result<()> {
    let mut ordered: Vec<_> = fields.iter().collect();
    ordered.sort_by_cached_key(|(name, value)| smallest_number(name, value));
    ordered
        .into_iter()
        .try_for_each(|(name, value)| push(doc, name, value))
}

/// The number after the last hyphen of a name, or the smallest of those of the names in a document.
fn smallest_number(name: &str, value: &serde_json::Value) -> Option<u64> {
    let own = name.rsplit_once('-').and_then(|(_, n)| n.parse().ok());
    let inner = value.as_object().into_iter().flatten();
    own.or_else(|| {
        inner
            .filter_map(|(name, value)| smallest_number(name, value))
            .min()
    })
}

/// Pushes a value, integers as 64-bit ones.
fn push(doc: &mut DocBuf, name: &str, value: &serde_json::Value) -> Result<()> {
    match value {
        serde_json::Value::Null => doc.push(name, Value::Null),
        serde_json::Value::Bool(value) => doc.push(name, *value),
        serde_json::Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => doc.push(name, integer),
            (None, Some(double)) => doc.push(name, double),
            (None, None) => {
                return Err(Error::Protocol(format!("{number} is no number of BSON")));
            }
        },
        serde_json::Value::String(text) => doc.push(name, text.as_str()),
        serde_json::Value::Object(fields) => {
            doc.push_doc(name, |inner| push_fields(inner, fields))?;
        }
        serde_json::Value::Array(values) => {
            let mut inner = DocBuf::new();
            for (index, value) in values.iter().enumerate() {
                push(&mut inner, &index.to_string(), value)?;
            }
            doc.push_value(name, &Value::Array(inner.as_doc()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use frond_bson::{ObjectId, doc};

    fn text(doc: &Doc) -> String {
        let mut out = Vec::new();
        append(doc, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn documents_become_json_without_their_id() {
        let doc = doc! {
            "_id": 5_i32,
            "s": "a\"b\\c\nd\u{1}é",
            "n": i64::MIN,
            "i": -7_i32,
            "z": 0_i32,
            "d": 1.5,
            "t": true,
            "date": Value::DateTime(1_577_836_800_000),
            "oid": Value::ObjectId(ObjectId([0x0a; 12])),
            "inner": { "_id": 1_i32 },
            "list": ["x", 2_i32],
            "nothing": Value::Null,
        };
        assert_eq!(
            text(&doc),
            r#"{"s":"a\"b\\c\nd\u0001é","n":-9223372036854775808,"i":-7,"z":0,"d":1.5,"t":true,"date":1577836800000,"oid":"0a0a0a0a0a0a0a0a0a0a0a0a","inner":{"_id":1},"list":["x",2],"nothing":null}"#
        );
        assert_eq!(text(Doc::empty()), "{}");
        assert_eq!(text(&doc! { "_id": 1_i32 }), "{}");
    }

    #[test]
    fn what_json_lacks_is_an_error_that_names_it() {
        for (value, name) in [
            (Value::Double(f64::NAN), "double"),
            (Value::MinKey, "minKey"),
        ] {
            let mut out = Vec::new();
            let error = append_value(&value, &mut out).unwrap_err();
            assert!(error.to_string().contains(name), "{error}");
        }
    }

    #[test]
    fn fields_come_back_in_the_order_of_their_numbers() {
        let text = r#"{"07":{"x-10":1,"x-2":1},"1f":{"y-0":1,"y-100":1},"a":1}"#;
        let doc = to_doc(&Value::Null, text).unwrap();
        let names: Vec<&str> = doc.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["_id", "a", "1f", "07"]);
        let inner: Vec<&str> = doc
            .get_doc("07")
            .unwrap()
            .iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(inner, ["x-2", "x-10"]);
    }

    #[test]
    fn json_becomes_a_document_again() {
        let id = Value::Int32(3);
        let doc = to_doc(&id, r#"{"a":{"b":1},"c":["x",2.5,null],"d":true}"#).unwrap();
        let expected = doc! {
            "_id": 3_i32, "a": { "b": 1_i64 }, "c": ["x", 2.5, Value::Null], "d": true,
        };
        assert_eq!(doc.as_doc(), expected.as_doc());
        for text in ["[1]", "{", ""] {
            assert!(to_doc(&id, text).is_err(), "{text}");
        }
    }
}
