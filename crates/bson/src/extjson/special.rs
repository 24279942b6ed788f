//! The documents that stand for a type, such as `{"$oid": "…"}`.

use super::base64;
use super::date::parse_millis;
use crate::{Decimal128, Doc, OwnedValue, Timestamp, Value};

/// Reads the document of a wrapper; `None` when it is malformed.
type Reader = fn(&Doc) -> Option<OwnedValue>;

/// Every wrapper and its reader.
const WRAPPERS: &[(&str, Reader)] = &[
    ("$oid", oid),
    ("$date", date),
    ("$numberInt", number_int),
    ("$numberLong", number_long),
    ("$numberDouble", number_double),
    ("$numberDecimal", number_decimal),
    ("$binary", binary),
    ("$uuid", uuid),
    ("$timestamp", timestamp),
    ("$regularExpression", regular_expression),
    ("$code", code),
    ("$symbol", symbol),
    ("$dbPointer", db_pointer),
    ("$undefined", undefined),
    ("$minKey", min_key),
    ("$maxKey", max_key),
];

/// Keys that only accompany a wrapper.
const COMPANIONS: &[&str] = &["$type", "$scope"];

/// The value that a document stands for; `None` when it is just a document.
///
/// # Errors
/// The name of the wrapper whose contents do not fit.
pub(super) fn special(doc: &Doc) -> Result<Option<OwnedValue>, &'static str> {
    let Some((first, _)) = doc.first() else {
        return Ok(None);
    };
    if !first.starts_with('$') {
        return Ok(None);
    }
    let found = WRAPPERS.iter().find(|(name, _)| {
        *name == first || (COMPANIONS.contains(&first) && doc.contains_key(name))
    });
    match found {
        None => Ok(None),
        Some((name, read)) => read(doc).map(Some).ok_or(name),
    }
}

/// The value of a document's only element.
fn only(doc: &Doc) -> Option<Value<'_>> {
    let mut values = doc.values();
    let value = values.next()?;
    values.next().is_none().then_some(value)
}

/// The two values of a document that has just these keys, in any order.
fn pair<'a>(doc: &'a Doc, one: &str, two: &str) -> Option<(Value<'a>, Value<'a>)> {
    let values = (doc.get(one)?, doc.get(two)?);
    (doc.count() == 2).then_some(values)
}

fn only_str(doc: &Doc) -> Option<&str> {
    only(doc)?.as_str()
}

fn oid(doc: &Doc) -> Option<OwnedValue> {
    only_str(doc)?.parse().ok().map(OwnedValue::ObjectId)
}

fn date(doc: &Doc) -> Option<OwnedValue> {
    let ms = match only(doc)? {
        Value::String(text) => parse_millis(text)?,
        Value::Int64(ms) => ms,
        Value::Int32(ms) => i64::from(ms),
        _ => return None,
    };
    Some(OwnedValue::DateTime(ms))
}

fn number_int(doc: &Doc) -> Option<OwnedValue> {
    only_str(doc)?.parse().ok().map(OwnedValue::Int32)
}

fn number_long(doc: &Doc) -> Option<OwnedValue> {
    only_str(doc)?.parse().ok().map(OwnedValue::Int64)
}

fn number_double(doc: &Doc) -> Option<OwnedValue> {
    let double = match only_str(doc)? {
        "NaN" => f64::NAN,
        "Infinity" => f64::INFINITY,
        "-Infinity" => f64::NEG_INFINITY,
        // The standard parser knows more names, none of which starts like a number.
        text if text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)) => {
            text.parse().ok()?
        }
        _ => return None,
    };
    Some(OwnedValue::Double(double))
}

fn number_decimal(doc: &Doc) -> Option<OwnedValue> {
    only_str(doc)?
        .parse::<Decimal128>()
        .ok()
        .map(OwnedValue::Decimal128)
}

fn subtype(text: &str) -> Option<u8> {
    (text.len() <= 2).then_some(())?;
    u8::from_str_radix(text, 16).ok()
}

fn binary(doc: &Doc) -> Option<OwnedValue> {
    let (data, kind) = match doc.get("$binary")? {
        Value::Document(inner) => {
            only(doc)?;
            pair(inner, "base64", "subType")?
        }
        // The older form.
        _ => pair(doc, "$binary", "$type")?,
    };
    let (mut bytes, subtype) = (base64::decode(data.as_str()?)?, subtype(kind.as_str()?)?);
    if subtype == 2 {
        // The old subtype repeats the length inside.
        let mut with_length = (bytes.len() as u32).to_le_bytes().to_vec();
        with_length.append(&mut bytes);
        bytes = with_length;
    }
    Some(OwnedValue::Binary { subtype, bytes })
}

fn uuid(doc: &Doc) -> Option<OwnedValue> {
    let text = only_str(doc)?;
    let dashes = text
        .bytes()
        .enumerate()
        .filter(|(_, b)| *b == b'-')
        .map(|(i, _)| i);
    if text.len() != 36 || !dashes.eq([8, 13, 18, 23]) {
        return None;
    }
    let digits: Vec<u8> = text
        .chars()
        .filter(|c| *c != '-')
        .map(|c| c.to_digit(16).map(|d| d as u8))
        .collect::<Option<_>>()?;
    let bytes = digits
        .chunks(2)
        .map(|pair| pair.iter().fold(0, |n, d| (n << 4) | d))
        .collect();
    Some(OwnedValue::Binary { subtype: 4, bytes })
}

fn timestamp(doc: &Doc) -> Option<OwnedValue> {
    let (time, increment) = pair(only(doc)?.as_doc()?, "t", "i")?;
    Some(OwnedValue::Timestamp(Timestamp {
        time: u32::try_from(time.as_i64_lossless()?).ok()?,
        increment: u32::try_from(increment.as_i64_lossless()?).ok()?,
    }))
}

fn regular_expression(doc: &Doc) -> Option<OwnedValue> {
    let (pattern, options) = pair(only(doc)?.as_doc()?, "pattern", "options")?;
    let (pattern, options) = (pattern.as_str()?, options.as_str()?);
    if pattern.contains('\0') || options.contains('\0') {
        return None;
    }
    // Options are kept in order of the alphabet.
    let mut letters: Vec<char> = options.chars().collect();
    letters.sort_unstable();
    Some(OwnedValue::Regex {
        pattern: pattern.to_owned(),
        options: letters.into_iter().collect(),
    })
}

fn code(doc: &Doc) -> Option<OwnedValue> {
    let code = doc.get("$code")?.as_str()?.to_owned();
    if doc.count() == 1 {
        return Some(OwnedValue::JavaScript(code));
    }
    let (_, scope) = pair(doc, "$code", "$scope")?;
    Some(OwnedValue::JavaScriptWithScope {
        code,
        scope: scope.as_doc()?.to_owned(),
    })
}

fn symbol(doc: &Doc) -> Option<OwnedValue> {
    Some(OwnedValue::Symbol(only_str(doc)?.to_owned()))
}

fn db_pointer(doc: &Doc) -> Option<OwnedValue> {
    match pair(only(doc)?.as_doc()?, "$ref", "$id")? {
        (Value::String(ns), Value::ObjectId(id)) => Some(OwnedValue::DbPointer {
            ns: ns.to_owned(),
            id,
        }),
        _ => None,
    }
}

fn undefined(doc: &Doc) -> Option<OwnedValue> {
    (only(doc)? == Value::Bool(true)).then_some(OwnedValue::Undefined)
}

fn min_key(doc: &Doc) -> Option<OwnedValue> {
    (only(doc)? == Value::Int32(1)).then_some(OwnedValue::MinKey)
}

fn max_key(doc: &Doc) -> Option<OwnedValue> {
    (only(doc)? == Value::Int32(1)).then_some(OwnedValue::MaxKey)
}
