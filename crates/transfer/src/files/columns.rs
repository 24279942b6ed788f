//! Columns of CSV and TSV: their names, types and values.

use frond_bson::{Decimal128, DocBuf, OwnedValue, Value, extjson};

use super::dates::Layout;
use super::options::ParseGrace;
use crate::error::{Error, Result};

/// The type of a column.
#[derive(Clone, Debug, PartialEq)]
enum Kind {
    Auto,
    Text,
    Int32,
    Int64,
    Double,
    Decimal,
    Boolean,
    Binary(Encoding),
    Date(Layout),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Base64,
    Base32,
    Hex,
}

#[derive(Clone, Debug)]
pub struct Column {
    /// Its name, with dots.
    pub name: String,
    path: Vec<String>,
    kind: Kind,
}

impl Column {
    /// A column by its head, which has a type if `typed`.
    pub fn parse(head: &str, typed: bool) -> Result<Column> {
        let (name, kind) = if typed {
            split_type(head)?
        } else {
            (head, Kind::Auto)
        };
        let path: Vec<String> = name.split('.').map(str::to_owned).collect();
        if path.iter().any(|part| part.is_empty()) || name.contains('\0') {
            return Err(Error::Usage(format!("{name:?} is not the name of a field")));
        }
        Ok(Column {
            name: name.to_owned(),
            path,
            kind,
        })
    }

    fn value(&self, text: &str) -> Option<OwnedValue> {
        let number = || text.trim();
        Some(match &self.kind {
            Kind::Auto => guessed(text),
            Kind::Text => OwnedValue::from(text),
            Kind::Int32 => OwnedValue::Int32(number().parse().ok()?),
            Kind::Int64 => OwnedValue::Int64(number().parse().ok()?),
            Kind::Double => OwnedValue::Double(number().parse().ok()?),
            Kind::Decimal => OwnedValue::Decimal128(number().parse::<Decimal128>().ok()?),
            Kind::Boolean => match text.to_ascii_lowercase().as_str() {
                "true" | "1" => OwnedValue::Bool(true),
                "false" | "0" => OwnedValue::Bool(false),
                _ => return None,
            },
            Kind::Binary(encoding) => OwnedValue::Binary {
                subtype: 0,
                bytes: encoding.decode(text)?,
            },
            Kind::Date(layout) => OwnedValue::DateTime(layout.read(text)?),
        })
    }
}

/// `name.type(argument)`.
fn split_type(head: &str) -> Result<(&str, Kind)> {
    let wrong = || {
        Error::Usage(format!(
            "column {head:?}: --columnsHaveTypes needs name.type(argument), such as n.int32() or at.date_ms(yyyy-MM-dd)"
        ))
    };
    let (before, argument) = head
        .strip_suffix(')')
        .and_then(|rest| rest.split_once('('))
        .ok_or_else(wrong)?;
    let (name, kind) = before.rsplit_once('.').ok_or_else(wrong)?;
    let argument = argument
        .replace("\\(", "(")
        .replace("\\)", ")")
        .replace("\\\\", "\\");
    let plain = |kind: Kind| {
        if argument.is_empty() {
            Ok(kind)
        } else {
            Err(wrong())
        }
    };
    let kind = match kind {
        "auto" => plain(Kind::Auto)?,
        "string" => plain(Kind::Text)?,
        "int32" => plain(Kind::Int32)?,
        "int64" => plain(Kind::Int64)?,
        "double" => plain(Kind::Double)?,
        "decimal" => plain(Kind::Decimal)?,
        "boolean" => plain(Kind::Boolean)?,
        "binary" => Kind::Binary(match argument.as_str() {
            "base64" => Encoding::Base64,
            "base32" => Encoding::Base32,
            "hex" => Encoding::Hex,
            _ => {
                return Err(Error::Usage(format!(
                    "column {head:?}: binary(base64), binary(base32) or binary(hex)"
                )));
            }
        }),
        "date" | "date_go" | "date_ms" | "date_oracle" => {
            Kind::Date(Layout::parse(kind, &argument)?)
        }
        _ => return Err(wrong()),
    };
    Ok((name, kind))
}

/// A number if it looks like one, else text.
fn guessed(text: &str) -> OwnedValue {
    if let Ok(whole) = text.parse::<i64>() {
        return i32::try_from(whole).map_or(OwnedValue::Int64(whole), OwnedValue::Int32);
    }
    let like_number = text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c));
    match text.parse::<f64>() {
        Ok(double) if like_number => OwnedValue::Double(double),
        _ => OwnedValue::from(text),
    }
}

impl Encoding {
    fn decode(self, text: &str) -> Option<Vec<u8>> {
        match self {
            Encoding::Base64 => extjson::base64_decode(text),
            Encoding::Hex => {
                let digit = |byte: u8| {
                    char::from(byte)
                        .to_digit(16)
                        .and_then(|digit| u8::try_from(digit).ok())
                };
                if text.len() % 2 == 1 {
                    return None;
                }
                text.as_bytes()
                    .chunks(2)
                    .map(|pair| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?))
                    .collect()
            }
            Encoding::Base32 => {
                let (mut bits, mut count, mut out) = (0_u32, 0, Vec::new());
                for byte in text.trim_end_matches('=').bytes() {
                    let value = match byte {
                        b'A'..=b'Z' => byte - b'A',
                        b'2'..=b'7' => byte - b'2' + 26,
                        _ => return None,
                    };
                    bits = (bits << 5) | u32::from(value);
                    count += 5;
                    if count >= 8 {
                        count -= 8;
                        out.push((bits >> count) as u8);
                        bits &= (1 << count) - 1;
                    }
                }
                Some(out)
            }
        }
    }
}

/// The conversion of rows into documents.
#[derive(Clone, Debug)]
pub struct Columns {
    columns: Vec<Column>,
    grace: ParseGrace,
    ignore_blanks: bool,
}

/// A document in the making: fields in the order in which they came.
enum Node {
    Leaf(OwnedValue),
    Inner(Vec<(String, Node)>),
}

impl Columns {
    /// The columns of a file.
    pub fn new(columns: Vec<Column>, grace: ParseGrace, ignore_blanks: bool) -> Result<Columns> {
        for (at, column) in columns.iter().enumerate() {
            let clashes = |other: &Column| {
                column.path.starts_with(&other.path) || other.path.starts_with(&column.path)
            };
            if let Some(other) = columns.iter().take(at).find(|other| clashes(other)) {
                return Err(Error::Usage(format!(
                    "columns {:?} and {:?} cannot both be there",
                    other.name, column.name
                )));
            }
        }
        Ok(Columns {
            columns,
            grace,
            ignore_blanks,
        })
    }

    /// The document of a row; none if the row is left out. The error says what is wrong with it.
    pub fn document<'a>(
        &self,
        row: impl Iterator<Item = &'a str>,
    ) -> std::result::Result<Option<DocBuf>, String> {
        let mut root = Vec::new();
        let mut row = row;
        for column in &self.columns {
            let Some(text) = row.next() else {
                break;
            };
            if text.is_empty() && self.ignore_blanks {
                continue;
            }
            let value = match (column.value(text), self.grace) {
                (Some(value), _) => value,
                (None, ParseGrace::AutoCast) => guessed(text),
                (None, ParseGrace::SkipField) => continue,
                (None, ParseGrace::SkipRow) => return Ok(None),
                (None, ParseGrace::Stop) => {
                    return Err(format!(
                        "column {}: {text:?} is not of its type",
                        column.name
                    ));
                }
            };
            insert(&mut root, &column.path, value);
        }
        if let Some(more) = row.next() {
            return Err(format!("more values than columns, the first is {more:?}"));
        }
        Ok(Some(build(&root)))
    }
}

fn insert(fields: &mut Vec<(String, Node)>, path: &[String], value: OwnedValue) {
    let Some((first, rest)) = path.split_first() else {
        return;
    };
    if rest.is_empty() {
        fields.push((first.clone(), Node::Leaf(value)));
        return;
    }
    if !fields.iter().any(|(name, _)| name == first) {
        fields.push((first.clone(), Node::Inner(Vec::new())));
    }
    if let Some((_, Node::Inner(inner))) = fields.iter_mut().find(|(name, _)| name == first) {
        insert(inner, rest, value);
    }
}

fn build(fields: &[(String, Node)]) -> DocBuf {
    let mut out = DocBuf::new();
    for (name, node) in fields {
        match node {
            Node::Leaf(value) => out.push(name, value),
            Node::Inner(inner) => out.push(name, &build(inner)),
        }
    }
    out
}

/// The text of a value in a column.
pub fn text_of(value: &Value<'_>) -> String {
    match value {
        Value::String(text) | Value::Symbol(text) => (*text).to_owned(),
        Value::ObjectId(id) => format!("ObjectId({id})"),
        Value::DateTime(millis) => extjson::format_millis(*millis),
        Value::Null | Value::Undefined => String::new(),
        Value::Double(double) if double.is_finite() => format!("{double}"),
        Value::Double(double) if double.is_nan() => "NaN".to_owned(),
        Value::Double(double) => if *double > 0.0 { "+Inf" } else { "-Inf" }.to_owned(),
        Value::Decimal128(decimal) => decimal.to_string(),
        other => extjson::value_to_relaxed(other),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use frond_bson::doc;

    fn columns(heads: &[&str], typed: bool, grace: ParseGrace) -> Result<Columns> {
        let columns = heads
            .iter()
            .map(|head| Column::parse(head, typed))
            .collect::<Result<_>>()?;
        Columns::new(columns, grace, false)
    }

    #[test]
    fn rows_of_guessed_types() {
        let columns = columns(&["_id", "a.b", "a.c", "d"], false, ParseGrace::Stop).unwrap();
        let document = columns
            .document(["1", "2.5", "x", "nan"].into_iter())
            .unwrap()
            .unwrap();
        assert_eq!(
            document,
            doc! { "_id": 1, "a": { "b": 2.5, "c": "x" }, "d": "nan" }
        );
        assert!(
            columns
                .document(["1", "2", "3", "4", "5"].into_iter())
                .is_err()
        );
        assert_eq!(
            columns
                .document(["5000000000"].into_iter())
                .unwrap()
                .unwrap(),
            doc! { "_id": 5_000_000_000_i64 }
        );
    }

    #[test]
    fn rows_of_given_types() {
        let heads = [
            "a.int32()",
            "b.int64()",
            "c.string()",
            "d.boolean()",
            "e.decimal()",
            "f.binary(hex)",
            "g.binary(base32)",
            "h.date_ms(yyyy-MM-dd)",
            "i.double()",
            "j.binary(base64)",
        ];
        let typed = columns(&heads, true, ParseGrace::Stop).unwrap();
        let row = [
            "1",
            "2",
            "3",
            "TRUE",
            "4.50",
            "0aff",
            "MFRGG===",
            "1970-01-02",
            "6",
            "YWJj",
        ];
        let document = typed.document(row.into_iter()).unwrap().unwrap();
        assert_eq!(
            format!("{document:?}"),
            "{\"a\":1,\"b\":2,\"c\":\"3\",\"d\":true,\"e\":{\"$numberDecimal\":\"4.50\"},\
             \"f\":{\"$binary\":{\"base64\":\"Cv8=\",\"subType\":\"00\"}},\"g\":{\"$binary\":{\"base64\":\"YWJj\",\"subType\":\"00\"}},\
             \"h\":{\"$date\":\"1970-01-02T00:00:00Z\"},\"i\":6.0,\"j\":{\"$binary\":{\"base64\":\"YWJj\",\"subType\":\"00\"}}}"
        );
        for (grace, expected) in [
            (ParseGrace::AutoCast, Ok(Some(doc! { "a": "x" }))),
            (ParseGrace::SkipField, Ok(Some(doc! {}))),
            (ParseGrace::SkipRow, Ok(None)),
            (
                ParseGrace::Stop,
                Err("column a: \"x\" is not of its type".to_owned()),
            ),
        ] {
            let columns = columns(&["a.int32()"], true, grace).unwrap();
            assert_eq!(columns.document(["x"].into_iter()), expected);
        }
        for head in [
            "a",
            "a.int32",
            "a.int33()",
            "a.binary()",
            "a.int32(x)",
            ".int32()",
        ] {
            assert!(Column::parse(head, true).is_err(), "{head}");
        }
    }

    #[test]
    fn columns_that_exclude_each_other() {
        assert!(columns(&["a", "a.b"], false, ParseGrace::Stop).is_err());
        assert!(columns(&["a.b", "a.b"], false, ParseGrace::Stop).is_err());
        assert!(columns(&["a.b", "a.bc"], false, ParseGrace::Stop).is_ok());
    }
}
