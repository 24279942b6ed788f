//! The forms that only version 1 of Extended JSON has, and those of the shell that MongoDB's tools read with it.

use super::date::parse_millis;
use super::scan::{ParseError, Scanner};
use super::{base64, special as types};
use crate::{Decimal128, Doc, DocBuf, OwnedValue, Timestamp, Value, doc, unhex};

/// A call that makes a value.
pub(super) struct Constructor {
    name: &'static str,
    /// The arguments in words.
    pub(super) takes: &'static str,
    /// Makes the value of the arguments; none if they do not fit.
    pub(super) make: fn(&[OwnedValue]) -> Option<OwnedValue>,
}

const fn call(
    name: &'static str,
    takes: &'static str,
    make: fn(&[OwnedValue]) -> Option<OwnedValue>,
) -> Constructor {
    Constructor { name, takes, make }
}

const CONSTRUCTORS: &[Constructor] = &[
    call("ObjectId", "a text of 24 hexadecimal digits", object_id),
    call("ISODate", "a date or the milliseconds since 1970", date),
    call("Date", "a date or the milliseconds since 1970", date),
    call("NumberInt", "an integer of 32 bits", number_int),
    call("NumberLong", "an integer of 64 bits", number_long),
    call("NumberDecimal", "a number", number_decimal),
    call("BinData", "a subtype and a text in Base64", bin_data),
    call("HexData", "a subtype and hexadecimal digits", hex_data),
    call("UUID", "the text of a UUID", uuid),
    call("MD5", "32 hexadecimal digits", md5),
    call("Timestamp", "seconds and a counter", timestamp),
    call("DBRef", "a collection and an _id", db_ref),
    call("Dbref", "a collection and an _id", db_ref),
    call("DBPointer", "a namespace and an ObjectId", db_pointer),
    call("RegExp", "a pattern and options", reg_exp),
    call("Boolean", "a value", boolean),
];

fn is_in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'$' || byte == b'_'
}

/// A word that does not begin with a digit; it may be empty.
fn word<'a>(s: &mut Scanner<'a>) -> &'a str {
    match s.byte() {
        Some(b'0'..=b'9') => "",
        _ => s.run(is_in_name),
    }
}

/// The name of a field, with quotes or without.
pub(super) fn name(s: &mut Scanner<'_>) -> Result<String, ParseError> {
    match s.peek() {
        Some(b'"') => s.string(),
        Some(b'\'') => s.quoted('\''),
        _ => match word(s) {
            "" => s.fail("expected the name of a field"),
            name => Ok(name.to_owned()),
        },
    }
}

/// A constant, or the name of a call.
pub(super) enum Word<'a> {
    Constant(OwnedValue),
    Call(&'a str),
}

/// Reads a constant, or the name of a call up to its arguments.
pub(super) fn constant_or_call<'a>(s: &mut Scanner<'a>) -> Result<Word<'a>, ParseError> {
    let constant = match word(s) {
        "true" => OwnedValue::Bool(true),
        "false" => OwnedValue::Bool(false),
        "null" => OwnedValue::Null,
        "undefined" => OwnedValue::Undefined,
        "NaN" => OwnedValue::Double(f64::NAN),
        "Infinity" => OwnedValue::Double(f64::INFINITY),
        name @ ("MinKey" | "MaxKey") => {
            // The shell writes them as calls, the tools do not.
            if s.take(b'(') {
                s.expect(b')')?;
            }
            match name {
                "MinKey" => OwnedValue::MinKey,
                _ => OwnedValue::MaxKey,
            }
        }
        "new" => {
            s.peek();
            return Ok(Word::Call(word(s)));
        }
        name => return Ok(Word::Call(name)),
    };
    Ok(Word::Constant(constant))
}

/// The constructor of this name.
pub(super) fn constructor(name: &str) -> Option<&'static Constructor> {
    CONSTRUCTORS.iter().find(|known| known.name == name)
}

/// A number of JSON, or with a plus, without digits before the point, hexadecimal, or infinite.
pub(super) fn number(s: &mut Scanner<'_>) -> Result<OwnedValue, ParseError> {
    let start = s.at;
    let is_negative = s.byte() == Some(b'-');
    s.at += usize::from(matches!(s.byte(), Some(b'+' | b'-')));
    let whole = s.at;
    match s.byte() {
        Some(b'I') if s.word("Infinity") => Ok(OwnedValue::Double(if is_negative {
            f64::NEG_INFINITY
        } else {
            f64::INFINITY
        })),
        Some(b'0') if s.word("0x") || s.word("0X") => {
            let digits = s.run(|byte| byte.is_ascii_hexdigit());
            match of_digits(digits, 16, is_negative) {
                Some(number) => Ok(smallest(number)),
                None => s.fail("invalid hexadecimal number"),
            }
        }
        Some(b'.') => {
            s.at += 1;
            s.digits()?;
            if let Some(b'e' | b'E') = s.byte() {
                s.at += 1;
                s.at += usize::from(matches!(s.byte(), Some(b'+' | b'-')));
                s.digits()?;
            }
            let end = s.at;
            s.at = whole;
            let text = s.run(|byte| matches!(byte, b'.' | b'+' | b'-' | b'e' | b'E' | b'0'..=b'9'));
            match text.parse::<f64>() {
                Ok(number) if s.at == end => Ok(OwnedValue::Double(if is_negative {
                    -number
                } else {
                    number
                })),
                _ => s.fail("invalid number"),
            }
        }
        Some(b'0'..=b'9') => {
            if is_negative {
                s.at = start;
            }
            s.number()
        }
        _ => s.fail("expected a digit"),
    }
}

fn smallest(number: i64) -> OwnedValue {
    i32::try_from(number).map_or(OwnedValue::Int64(number), OwnedValue::Int32)
}

fn of_digits(digits: &str, radix: u32, is_negative: bool) -> Option<i64> {
    if digits.is_empty() || digits.starts_with(['+', '-']) {
        return None;
    }
    let number = i128::from_str_radix(digits, radix).ok()?;
    i64::try_from(if is_negative { -number } else { number }).ok()
}

/// The text of an integer, decimal or hexadecimal.
fn integer_of(text: &str) -> Option<i64> {
    let (is_negative, digits) = match text.split_at_checked(1) {
        Some(("-", digits)) => (true, digits),
        Some(("+", digits)) => (false, digits),
        _ => (false, text),
    };
    let hex = digits
        .strip_prefix("0x")
        .or_else(|| digits.strip_prefix("0X"));
    match hex {
        Some(digits) => of_digits(digits, 16, is_negative),
        None => of_digits(digits, 10, is_negative),
    }
}

/// `/pattern/options`.
pub(super) fn regex(s: &mut Scanner<'_>) -> Result<OwnedValue, ParseError> {
    let start = s.at;
    s.expect(b'/')?;
    let mut pattern = String::new();
    loop {
        pattern.push_str(s.text_before('/')?);
        if s.byte() == Some(b'/') {
            break;
        }
        s.at += 1;
        let escaped = match s.byte() {
            Some(byte @ (b'\\' | b'/' | b'\'' | b'"')) => byte as char,
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                s.at += 1;
                pattern.push(s.unicode()?);
                continue;
            }
            // The tools refuse other escapes; in the shell they are a part of the pattern, such as `\d`.
            _ => {
                pattern.push('\\');
                continue;
            }
        };
        pattern.push(escaped);
        s.at += 1;
    }
    s.at += 1;
    let options = s.run(|byte| byte.is_ascii_alphabetic());
    match regex_of(&pattern, options) {
        Some(regex) => Ok(regex),
        None => {
            s.at = start;
            s.fail("invalid regular expression")
        }
    }
}

fn regex_of(pattern: &str, options: &str) -> Option<OwnedValue> {
    let is_known = |letter: char| "gilmsux".contains(letter);
    if pattern.contains('\0') || !options.chars().all(is_known) {
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

/// The value that a document stands for; `None` when it is just a document.
///
/// # Errors
/// As [`types::special`].
pub(super) fn special(doc: &Doc) -> Result<Option<OwnedValue>, &'static str> {
    let first = doc.first();
    let meant = match (first, doc.count()) {
        (Some(("$regex", Value::String(pattern))), 1) => regex_of(pattern, ""),
        (Some(("$regex" | "$options", _)), 2) => {
            let parts = doc.get_str("$regex").zip(doc.get_str("$options"));
            parts.and_then(|(pattern, options)| regex_of(pattern, options))
        }
        (Some(("$undefined", _)), 1) => Some(OwnedValue::Undefined),
        (Some(("$minKey", _)), 1) => Some(OwnedValue::MinKey),
        (Some(("$maxKey", _)), 1) => Some(OwnedValue::MaxKey),
        (Some(("$date", Value::DateTime(ms))), 1) => Some(OwnedValue::DateTime(ms)),
        (Some(("$date", Value::Double(ms))), 1) if ms.is_finite() => {
            Some(OwnedValue::DateTime(ms as i64))
        }
        (Some(("$numberLong", Value::String(text))), 1) => integer_of(text).map(OwnedValue::Int64),
        _ => None,
    };
    match meant {
        Some(value) => Ok(Some(value)),
        None => types::special(doc),
    }
}

fn object_id(arguments: &[OwnedValue]) -> Option<OwnedValue> {
    match arguments {
        [OwnedValue::String(text)] => text.parse().ok().map(OwnedValue::ObjectId),
        _ => None,
    }
}

fn date(arguments: &[OwnedValue]) -> Option<OwnedValue> {
    let ms = match arguments {
        [OwnedValue::String(text)] => parse_millis(text)?,
        [OwnedValue::Int32(ms)] => i64::from(*ms),
        [OwnedValue::Int64(ms)] => *ms,
        _ => return None,
    };
    Some(OwnedValue::DateTime(ms))
}

/// The only argument as an integer.
fn integer(arguments: &[OwnedValue]) -> Option<i64> {
    match arguments {
        [OwnedValue::Int32(number)] => Some(i64::from(*number)),
        [OwnedValue::Int64(number)] => Some(*number),
        [OwnedValue::String(text)] => integer_of(text),
        _ => None,
    }
}

fn number_int(arguments: &[OwnedValue]) -> Option<OwnedValue> {
    i32::try_from(integer(arguments)?)
        .ok()
        .map(OwnedValue::Int32)
}

fn number_long(arguments: &[OwnedValue]) -> Option<OwnedValue> {
    integer(arguments).map(OwnedValue::Int64)
}

fn number_decimal(arguments: &[OwnedValue]) -> Option<OwnedValue> {
    let text = match arguments {
        [OwnedValue::String(text)] => text.clone(),
        [OwnedValue::Int32(number)] => number.to_string(),
        [OwnedValue::Int64(number)] => number.to_string(),
        [OwnedValue::Double(number)] => number.to_string(),
        _ => return None,
    };
    text.parse::<Decimal128>().ok().map(OwnedValue::Decimal128)
}

fn binary(subtype: &OwnedValue, mut bytes: Vec<u8>) -> Option<OwnedValue> {
    let OwnedValue::Int32(subtype) = subtype else {
        return None;
    };
    let subtype = u8::try_from(*subtype).ok()?;
    if subtype == 2 {
        // The old subtype repeats the length inside.
        let length = u32::try_from(bytes.len()).ok()?.to_le_bytes();
        bytes.splice(0..0, length);
    }
    Some(OwnedValue::Binary { subtype, bytes })
}

fn bin_data(arguments: &[OwnedValue]) -> Option<OwnedValue> {
    match arguments {
        [subtype, OwnedValue::String(text)] => binary(subtype, base64::decode(text)?),
        _ => None,
    }
}

fn hex_data(arguments: &[OwnedValue]) -> Option<OwnedValue> {
    match arguments {
        [subtype, OwnedValue::String(text)] => binary(subtype, unhex(text)?),
        _ => None,
    }
}

fn uuid(arguments: &[OwnedValue]) -> Option<OwnedValue> {
    match arguments {
        [OwnedValue::String(text)] if text.contains('-') => {
            types::special(&doc! { "$uuid": text.as_str() })
                .ok()
                .flatten()
        }
        [OwnedValue::String(text)] if text.len() == 32 => {
            binary(&OwnedValue::Int32(4), unhex(text)?)
        }
        _ => None,
    }
}

fn md5(arguments: &[OwnedValue]) -> Option<OwnedValue> {
    match arguments {
        [OwnedValue::String(text)] if text.len() == 32 => {
            binary(&OwnedValue::Int32(5), unhex(text)?)
        }
        _ => None,
    }
}

fn timestamp(arguments: &[OwnedValue]) -> Option<OwnedValue> {
    let [time, increment] = arguments else {
        return None;
    };
    let part = |value: &OwnedValue| u32::try_from(value.as_value().as_i64_lossless()?).ok();
    Some(OwnedValue::Timestamp(Timestamp {
        time: part(time)?,
        increment: part(increment)?,
    }))
}

fn db_ref(arguments: &[OwnedValue]) -> Option<OwnedValue> {
    let (collection, id, database) = match arguments {
        [OwnedValue::String(collection), id] => (collection, id, None),
        [
            OwnedValue::String(collection),
            id,
            OwnedValue::String(database),
        ] => (collection, id, Some(database)),
        _ => return None,
    };
    let mut out = DocBuf::new();
    out.push("$ref", collection.as_str());
    out.push("$id", id);
    if let Some(database) = database {
        out.push("$db", database.as_str());
    }
    Some(OwnedValue::Document(out))
}

fn db_pointer(arguments: &[OwnedValue]) -> Option<OwnedValue> {
    match arguments {
        [OwnedValue::String(ns), OwnedValue::ObjectId(id)] => Some(OwnedValue::DbPointer {
            ns: ns.clone(),
            id: *id,
        }),
        _ => None,
    }
}

fn reg_exp(arguments: &[OwnedValue]) -> Option<OwnedValue> {
    match arguments {
        [OwnedValue::String(pattern)] => regex_of(pattern, ""),
        [OwnedValue::String(pattern), OwnedValue::String(options)] => regex_of(pattern, options),
        _ => None,
    }
}

/// Only the first argument counts, as in JavaScript.
fn boolean(arguments: &[OwnedValue]) -> Option<OwnedValue> {
    let is_true = match arguments.first() {
        None => false,
        Some(OwnedValue::String(text)) => !text.is_empty(),
        Some(other) => other.as_value().truthy(),
    };
    Some(OwnedValue::Bool(is_true))
}
