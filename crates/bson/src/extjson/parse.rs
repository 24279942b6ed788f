//! Parser of Extended JSON.

use super::scan::{ParseError, Scanner};
use super::shell::Word;
use super::{shell, special};
use crate::{ArrayBuf, DocBuf, MAX_DEPTH, OwnedValue};

/// Reads a document, in the relaxed or canonical form or a mix of both, and the older forms of `$date`,
/// `$binary` and `$timestamp`. `$regex` stays a query operator.
///
/// # Errors
/// Where the text is not JSON, where the value of a type wrapper such as `$oid` does not fit it, or where
/// documents are nested deeper than [`MAX_DEPTH`].
pub fn parse(text: &str) -> Result<DocBuf, ParseError> {
    only_document(Scanner::new(text))
}

/// Reads a document of version 1 of Extended JSON, in which `$regex` is a regular expression, and with what
/// MongoDB's tools read besides: calls such as `ObjectId("…")`, `ISODate("…")` and `NumberLong(…)`, `NaN`, regular
/// expressions between slashes, names without quotes and strings in single quotes.
///
/// # Errors
/// As [`parse`].
pub fn parse_legacy(text: &str) -> Result<DocBuf, ParseError> {
    only_document(Scanner::of_shell(text))
}

fn only_document(mut s: Scanner<'_>) -> Result<DocBuf, ParseError> {
    match only_value(&mut s)? {
        OwnedValue::Document(doc) => Ok(doc),
        _ => {
            s.at = 0;
            s.fail("expected a document")
        }
    }
}

/// Reads one value of any type.
///
/// # Errors
/// As [`parse`].
pub fn parse_value(text: &str) -> Result<OwnedValue, ParseError> {
    only_value(&mut Scanner::new(text))
}

fn only_value(s: &mut Scanner<'_>) -> Result<OwnedValue, ParseError> {
    let value = value(s, 0)?;
    match s.peek() {
        None => Ok(value),
        Some(_) => s.fail("more text after the value"),
    }
}

fn value(s: &mut Scanner<'_>, depth: usize) -> Result<OwnedValue, ParseError> {
    match s.peek() {
        Some(b'{') => document(s, depth),
        Some(b'[') => array(s, depth),
        Some(b'"') => Ok(OwnedValue::String(s.string()?)),
        _ if s.is_shell => shell_value(s, depth),
        Some(b'-' | b'0'..=b'9') => s.number(),
        _ if s.word("true") => Ok(OwnedValue::Bool(true)),
        _ if s.word("false") => Ok(OwnedValue::Bool(false)),
        _ if s.word("null") => Ok(OwnedValue::Null),
        _ => s.fail("expected a value"),
    }
}

/// A value other than a document, an array or a string in double quotes.
fn shell_value(s: &mut Scanner<'_>, depth: usize) -> Result<OwnedValue, ParseError> {
    match s.peek() {
        Some(b'\'') => Ok(OwnedValue::String(s.quoted('\'')?)),
        Some(b'/') => shell::regex(s),
        Some(b'+' | b'-' | b'.' | b'0'..=b'9') => shell::number(s),
        _ => {
            let start = s.at;
            match shell::constant_or_call(s)? {
                Word::Constant(value) => Ok(value),
                Word::Call(name) => call(s, start, name, depth),
            }
        }
    }
}

/// The call of `name`, behind the name.
fn call(
    s: &mut Scanner<'_>,
    start: usize,
    name: &str,
    depth: usize,
) -> Result<OwnedValue, ParseError> {
    let Some(constructor) = shell::constructor(name) else {
        s.at = start;
        return s.fail("expected a value");
    };
    let depth = nested(s, depth)?;
    let mut arguments = Vec::new();
    s.expect(b'(')?;
    if !s.take(b')') {
        loop {
            arguments.push(value(s, depth)?);
            if !s.take(b',') {
                s.expect(b')')?;
                break;
            }
        }
    }
    match (constructor.make)(&arguments) {
        Some(value) => Ok(value),
        None => {
            s.at = start;
            s.fail(format!("{name} takes {}", constructor.takes))
        }
    }
}

fn nested(s: &Scanner<'_>, depth: usize) -> Result<usize, ParseError> {
    if depth >= MAX_DEPTH {
        return s.fail(format!("nested deeper than {MAX_DEPTH} levels"));
    }
    Ok(depth + 1)
}

fn document(s: &mut Scanner<'_>, depth: usize) -> Result<OwnedValue, ParseError> {
    let depth = nested(s, depth)?;
    let start = s.at;
    let mut doc = DocBuf::new();
    s.expect(b'{')?;
    if !s.take(b'}') {
        loop {
            s.peek();
            let key_at = s.at;
            let key = if s.is_shell {
                shell::name(s)?
            } else {
                s.string()?
            };
            if key.contains('\0') {
                s.at = key_at;
                return s.fail("zero byte in a field name");
            }
            s.expect(b':')?;
            doc.push(&key, &value(s, depth)?);
            if !more(s, b'}')? {
                break;
            }
        }
    }
    let meant = if s.is_shell {
        shell::special(&doc)
    } else {
        special::special(&doc)
    };
    match meant {
        Ok(Some(value)) => Ok(value),
        Ok(None) => Ok(OwnedValue::Document(doc)),
        Err(wrapper) => {
            s.at = start;
            s.fail(format!("invalid {wrapper}"))
        }
    }
}

/// Whether another element follows, rather than the end.
fn more(s: &mut Scanner<'_>, end: u8) -> Result<bool, ParseError> {
    if s.take(b',') {
        return Ok(!(s.is_shell && s.take(end)));
    }
    s.expect(end)?;
    Ok(false)
}

fn array(s: &mut Scanner<'_>, depth: usize) -> Result<OwnedValue, ParseError> {
    let depth = nested(s, depth)?;
    let mut array = ArrayBuf::new();
    s.expect(b'[')?;
    if !s.take(b']') {
        loop {
            array.push(&value(s, depth)?);
            if !more(s, b']')? {
                break;
            }
        }
    }
    Ok(array.into())
}
