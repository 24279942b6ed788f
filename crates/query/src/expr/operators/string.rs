//! Strings: joining, case, parts by bytes and by code points, trimming, searching.
//!
//! Text need not be UTF-8. Operators then work on its bytes and return them unchanged; operators that need code points fail, as
//! in MongoDB.

use super::array::search_bounds;
use super::{Arguments, Entry, given, many, named, one, two};
use crate::bounds;
use crate::characters::{self, code_points, is_continuation};
use crate::expr::parse::{Named, optional, required};
use crate::expr::value::Val;
use frond_bson::{ArrayBuf, OwnedValue, Text, Value};
use frond_error::{Error, Result};
use memchr::memmem;
use std::borrow::Cow;

pub(super) const OPERATORS: &[Entry] = &[
    many("$concat", 0, Arguments::MANY, concat),
    one("$toUpper", |v| {
        case("$toUpper", v, <[u8]>::to_ascii_uppercase)
    }),
    one("$toLower", |v| {
        case("$toLower", v, <[u8]>::to_ascii_lowercase)
    }),
    many("$substr", 3, 3, |a| substr_bytes("$substrBytes", a)),
    many("$substrBytes", 3, 3, |a| substr_bytes("$substrBytes", a)),
    many("$substrCP", 3, 3, substr_code_points),
    one("$strLenBytes", |v| {
        length("$strLenBytes", 34473, v, <[u8]>::len)
    }),
    one("$strLenCP", |v| length("$strLenCP", 34471, v, code_points)),
    two("$split", split),
    given("$trim", TRIM, |a| trim("$trim", a, true, true)),
    given("$ltrim", TRIM, |a| trim("$ltrim", a, true, false)),
    given("$rtrim", TRIM, |a| trim("$rtrim", a, false, true)),
    many("$indexOfBytes", 2, 4, index_of_bytes),
    many("$indexOfCP", 2, 4, index_of_code_points),
    two("$strcasecmp", strcasecmp),
    named("$replaceOne", REPLACE, |a| replace("$replaceOne", a, 1)),
    named("$replaceAll", REPLACE, |a| {
        replace("$replaceAll", a, usize::MAX)
    }),
];

const TRIM: &[Named] = &[required("input"), optional("chars")];
const REPLACE: &[Named] = &[required("input"), required("find"), required("replacement")];

fn concat<'a>(values: &[Val<'a>]) -> Result<Val<'a>> {
    let mut bytes = 0;
    for value in values {
        let value = value.or_null();
        if value.is_nullish() {
            return Ok(Val::NULL);
        }
        let Some(part) = value.string_bytes() else {
            return Err(Error::location(
                16702,
                format!("$concat only supports strings, not {}", value.type_name()),
            ));
        };
        bytes += part.len();
    }
    bounds::reserve_value(bytes)?;
    let mut text = Vec::with_capacity(bytes);
    for value in values {
        text.extend_from_slice(value.or_null().string_bytes().unwrap_or_default());
    }
    Ok(Val::text(text))
}

/// The text that string operators read from a value: numbers and dates as they are printed, nothing
/// for null. `None` for types without one.
fn coerced<'v>(value: &'v Val<'_>) -> Option<Cow<'v, [u8]>> {
    let text = match value.or_null() {
        Value::Null | Value::Undefined => String::new(),
        Value::Int32(v) => v.to_string(),
        Value::Int64(v) => v.to_string(),
        Value::Double(v) => super::convert::double_text(v),
        Value::Decimal128(v) => v.to_string(),
        Value::DateTime(ms) => super::date::iso_text(ms)?,
        Value::Timestamp(t) => format!("Timestamp({}, {})", t.time, t.increment),
        other => {
            return match other.text() {
                Some(Text::Plain(text)) => Some(Cow::Borrowed(text)),
                _ => None,
            };
        }
    };
    Some(Cow::Owned(text.into_bytes()))
}

fn text_of<'v>(value: &'v Val<'_>) -> Result<Cow<'v, [u8]>> {
    coerced(value).ok_or_else(|| {
        Error::location(
            16007,
            format!(
                "can't convert from BSON type {} to String",
                value.type_name()
            ),
        )
    })
}

fn case<'a>(_operator: &str, value: Val<'a>, change: fn(&[u8]) -> Vec<u8>) -> Result<Val<'a>> {
    let text = text_of(&value)?;
    bounds::reserve(text.len())?;
    Ok(Val::text(change(&text)))
}

fn strcasecmp<'a>(a: Val<'a>, b: Val<'a>) -> Result<Val<'a>> {
    let (a, b) = (text_of(&a)?, text_of(&b)?);
    let order = (a.iter().map(u8::to_ascii_uppercase)).cmp(b.iter().map(u8::to_ascii_uppercase));
    Ok((order as i32).into())
}

fn substr_bytes<'a>(operator: &str, values: &[Val<'a>]) -> Result<Val<'a>> {
    let [text, start, length] = values else {
        return Ok(Val::NULL);
    };
    let text = text_of(text)?;
    let number = |value: &Val<'_>, code: i32, what: &str| match value.get() {
        Some(v) if v.is_number() => Ok(v.as_f64().unwrap_or(0.0) as i64),
        _ => Err(Error::location(
            code,
            format!(
                "{operator}: {what} must be a numeric type (is BSON type {})",
                value.type_name()
            ),
        )),
    };
    let start = number(start, 16034, "starting index")?;
    let length = number(length, 16035, "length")?;
    let Ok(start) = usize::try_from(start) else {
        return Err(Error::location(
            50752,
            format!("{operator}: starting index must be non-negative (got: {start})"),
        ));
    };
    if start >= text.len() {
        return Ok(Val::string(""));
    }
    // A negative length means the rest.
    let end = match usize::try_from(length) {
        Ok(length) => start.saturating_add(length).min(text.len()),
        Err(_) => text.len(),
    };
    let is_inside = |at: usize| text.get(at).is_some_and(|byte| is_continuation(*byte));
    if is_inside(start) {
        return Err(Error::location(
            28656,
            format!("{operator}: Invalid range, starting index is a UTF-8 continuation byte."),
        ));
    }
    if is_inside(end) {
        return Err(Error::location(
            28657,
            format!(
                "{operator}: Invalid range, ending index is in the middle of a UTF-8 character."
            ),
        ));
    }
    let part = text.get(start..end).unwrap_or_default();
    bounds::reserve(part.len())?;
    Ok(Val::text(part.to_vec()))
}

fn substr_code_points<'a>(values: &[Val<'a>]) -> Result<Val<'a>> {
    let [text, start, length] = values else {
        return Ok(Val::NULL);
    };
    let text = text_of(text)?;
    let number = |value: &Val<'_>, code: i32, what: &str| {
        let shown = value.or_null();
        if !shown.is_number() {
            return Err(Error::location(
                code,
                format!(
                    "$substrCP: {what} must be a numeric type (is BSON type {})",
                    value.type_name()
                ),
            ));
        }
        let whole = shown.as_i64_lossless().ok_or_else(|| {
            Error::location(
                code + 1,
                format!(
                    "$substrCP: {what} cannot be represented as a 32-bit integral value: {}",
                    crate::display::computed(&shown)
                ),
            )
        })?;
        usize::try_from(whole).map_err(|_| {
            Error::location(
                if code == 34450 { 34455 } else { 34454 },
                format!("$substrCP: {what} must be a nonnegative integer."),
            )
        })
    };
    let start = number(start, 34450, "starting index")?;
    let length = number(length, 34452, "length")?;
    let text = std::str::from_utf8(&text)
        .map_err(|_| Error::location(34456, "$substrCP: invalid UTF-8 string"))?;
    let part = characters::part(text, start, length);
    bounds::reserve(part.len())?;
    Ok(Val::string(part))
}

fn length<'a>(
    operator: &str,
    code: i32,
    value: Val<'a>,
    measure: fn(&[u8]) -> usize,
) -> Result<Val<'a>> {
    match string(&value) {
        Some(text) => Ok((measure(text) as i32).into()),
        None => Err(Error::location(
            code,
            format!(
                "{operator} requires a string argument, found: {}",
                value.type_name()
            ),
        )),
    }
}

/// The bytes of a string; `None` for other types, symbols too.
fn string<'v>(value: &'v Val<'_>) -> Option<&'v [u8]> {
    let value = value.get().filter(Value::is_string)?;
    value.string_bytes()
}

fn split<'a>(text: Val<'a>, separator: Val<'a>) -> Result<Val<'a>> {
    if text.is_nullish() || separator.is_nullish() {
        return Ok(Val::NULL);
    }
    let Some(whole) = string(&text) else {
        return Err(Error::location(
            40085,
            format!(
                "$split requires an expression that evaluates to a string as a first argument, \
                 found: {}",
                text.type_name()
            ),
        ));
    };
    let Some(between) = string(&separator) else {
        return Err(Error::location(
            40086,
            format!(
                "$split requires an expression that evaluates to a string as a second argument, \
                 found: {}",
                separator.type_name()
            ),
        ));
    };
    if between.is_empty() {
        return Err(Error::location(
            40087,
            "$split requires a non-empty separator",
        ));
    }
    // Each separator found makes another part.
    let mut parts = ArrayBuf::new();
    if let (Value::String(text), Value::String(separator)) = (text.or_null(), separator.or_null()) {
        for part in text.split(separator) {
            bounds::work_on(part.len())?;
            bounds::push(&mut parts, &Value::String(part))?;
        }
        return Ok(Val::array(parts));
    }
    let mut start = 0;
    for end in memmem::find_iter(whole, between).chain([whole.len()]) {
        let part = whole.get(start..end).unwrap_or_default();
        bounds::work_on(part.len())?;
        bounds::push(&mut parts, &OwnedValue::string(part.to_vec()).as_value())?;
        start = end + between.len();
    }
    Ok(Val::array(parts))
}

/// The characters that `$trim` removes by default, in order: white space and the null character, as in MongoDB's manual.
const TRIMMED: &[char] = &[
    '\0', '\t', '\n', '\u{b}', '\u{c}', '\r', ' ', '\u{a0}', '\u{1680}', '\u{2000}', '\u{2001}',
    '\u{2002}', '\u{2003}', '\u{2004}', '\u{2005}', '\u{2006}', '\u{2007}', '\u{2008}', '\u{2009}',
    '\u{200a}',
];

fn trim<'a>(operator: &str, values: &[Val<'a>], left: bool, right: bool) -> Result<Val<'a>> {
    let [input, chars] = values else {
        return Ok(Val::NULL);
    };
    if input.is_nullish() {
        return Ok(Val::NULL);
    }
    let Some(text) = string(input) else {
        return Err(Error::location(
            50699,
            format!(
                "{operator} requires its input to be a string, got {} (of type {}) instead.",
                crate::display::computed(&input.or_null()),
                input.type_name()
            ),
        ));
    };
    let chosen: Vec<char> = match chars.get() {
        None => TRIMMED.to_vec(),
        Some(Value::Null | Value::Undefined) => return Ok(Val::NULL),
        Some(Value::String(chars)) => {
            let count = chars.chars().count();
            bounds::reserve_list::<char>(count)?;
            let mut chosen = Vec::with_capacity(count);
            chosen.extend(chars.chars());
            // Most of the time there are a few; otherwise each must not be compared with all.
            chosen.sort_unstable();
            chosen.dedup();
            chosen
        }
        Some(chars) if chars.is_string() => {
            return Err(Error::location(
                5_156_305,
                format!("{operator} requires 'chars' to be valid UTF-8"),
            ));
        }
        Some(other) => {
            return Err(Error::location(
                50700,
                format!(
                    "{operator} requires 'chars' to be a string, got {} (of type {}) instead.",
                    crate::display::computed(&other),
                    other.type_name()
                ),
            ));
        }
    };
    let trimmed = characters::trim(text, &chosen, left, right);
    bounds::reserve(trimmed.len())?;
    Ok(Val::text(trimmed.to_vec()))
}

/// The two strings of the `$indexOf` operators; `None` if the first is null.
fn searched<'v>(
    operator: &str,
    text: &'v Val<'_>,
    part: &'v Val<'_>,
) -> Result<Option<(&'v [u8], &'v [u8])>> {
    if text.is_nullish() {
        return Ok(None);
    }
    let string = |value: &'v Val<'_>, code: i32, which: &str| {
        string(value).ok_or_else(|| {
            Error::location(
                code,
                format!(
                    "{operator} requires a string as the {which} argument, found: {}",
                    value.type_name()
                ),
            )
        })
    };
    let (first, second) = match operator {
        "$indexOfBytes" => (40091, 40092),
        _ => (40093, 40094),
    };
    Ok(Some((
        string(text, first, "first")?,
        string(part, second, "second")?,
    )))
}

fn index_of_bytes<'a>(values: &[Val<'a>]) -> Result<Val<'a>> {
    let [text, part, bounds @ ..] = values else {
        return Ok(Val::NULL);
    };
    let Some((text, part)) = searched("$indexOfBytes", text, part)? else {
        return Ok(Val::NULL);
    };
    let (start, end) = search_bounds("$indexOfBytes", bounds)?;
    let end = end.min(text.len());
    let range = text.get(start..end);
    let found = range.and_then(|range| Some(start + memmem::find(range, part)?));
    Ok(found.map_or(-1, |at| at as i32).into())
}

fn index_of_code_points<'a>(values: &[Val<'a>]) -> Result<Val<'a>> {
    let [text, part, bounds @ ..] = values else {
        return Ok(Val::NULL);
    };
    let Some((text, part)) = searched("$indexOfCP", text, part)? else {
        return Ok(Val::NULL);
    };
    let (start, end) = search_bounds("$indexOfCP", bounds)?;
    let text = std::str::from_utf8(text)
        .map_err(|_| Error::location(40095, "$indexOfCP found bad UTF-8 in the input"))?;
    // Text that is not UTF-8 does not occur in text that is.
    let Ok(part) = std::str::from_utf8(part) else {
        return Ok((-1).into());
    };
    // No occurrence begins inside a character, because both are UTF-8.
    let found = if start <= end.min(code_points(text.as_bytes())) {
        let range = characters::part(text, start, end - start);
        let at = memmem::find(range.as_bytes(), part.as_bytes());
        at.and_then(|at| Some(start + code_points(range.as_bytes().get(..at)?)))
    } else {
        None
    };
    Ok(found.map_or(-1, |at| at as i32).into())
}

fn replace<'a>(operator: &str, values: &[Val<'a>], most: usize) -> Result<Val<'a>> {
    let [input, find, replacement] = values else {
        return Ok(Val::NULL);
    };
    for (value, name, code) in [
        (input, "input", 51746),
        (find, "find", 51745),
        (replacement, "replacement", 51744),
    ] {
        if !value.is_nullish() && string(value).is_none() {
            return Err(Error::location(
                code,
                format!(
                    "{operator} requires that '{name}' be a string, found: {}",
                    crate::display::computed(&value.or_null())
                ),
            ));
        }
    }
    let (Some(text), Some(find), Some(with)) = (string(input), string(find), string(replacement))
    else {
        return Ok(Val::NULL);
    };
    // The result may be much larger than its input, so it grows within the bounds.
    bounds::reserve_value(text.len())?;
    let mut replaced = Vec::with_capacity(text.len());
    let mut start = 0;
    let mut replace = |at: usize| {
        let before = text.get(start..at).unwrap_or_default();
        start = at + find.len();
        append(&mut replaced, before, with)
    };
    if find.is_empty() {
        // It occurs before each character and at the end.
        let is_place = |at: &usize| text.get(*at).is_none_or(|byte| !is_continuation(*byte));
        let mut places = (0..=text.len()).filter(is_place).take(most);
        places.try_for_each(&mut replace)?;
    } else {
        let mut places = memmem::find_iter(text, find).take(most);
        places.try_for_each(&mut replace)?;
    }
    append(&mut replaced, text.get(start..).unwrap_or_default(), &[])?;
    Ok(Val::text(replaced))
}

/// Appends two parts of a text.
fn append(text: &mut Vec<u8>, first: &[u8], second: &[u8]) -> Result<()> {
    bounds::work(1)?;
    bounds::make_room(text, first.len() + second.len())?;
    text.extend_from_slice(first);
    text.extend_from_slice(second);
    Ok(())
}
