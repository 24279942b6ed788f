//! Parser of Extended JSON.

use super::scan::{ParseError, Scanner};
use super::special::special;
use crate::{ArrayBuf, DocBuf, MAX_DEPTH, OwnedValue};

/// Reads a document, in the relaxed or canonical form or a mix of both, and the older forms of `$date`,
/// `$binary` and `$timestamp`. `$regex` stays a query operator.
///
/// # Errors
/// Where the text is not JSON, where the value of a type wrapper such as `$oid` does not fit it, or where
/// documents are nested deeper than [`MAX_DEPTH`].
pub fn parse(text: &str) -> Result<DocBuf, ParseError> {
    let start = Scanner::new(text);
    match parse_value(text)? {
        OwnedValue::Document(doc) => Ok(doc),
        _ => start.fail("expected a document"),
    }
}

/// Reads one value of any type.
///
/// # Errors
/// As [`parse`].
pub fn parse_value(text: &str) -> Result<OwnedValue, ParseError> {
    let mut scanner = Scanner::new(text);
    let value = value(&mut scanner, 0)?;
    match scanner.peek() {
        None => Ok(value),
        Some(_) => scanner.fail("more text after the value"),
    }
}

fn value(s: &mut Scanner<'_>, depth: usize) -> Result<OwnedValue, ParseError> {
    match s.peek() {
        Some(b'{') => document(s, depth),
        Some(b'[') => array(s, depth),
        Some(b'"') => Ok(OwnedValue::String(s.string()?)),
        Some(b'-' | b'0'..=b'9') => s.number(),
        _ if s.word("true") => Ok(OwnedValue::Bool(true)),
        _ if s.word("false") => Ok(OwnedValue::Bool(false)),
        _ if s.word("null") => Ok(OwnedValue::Null),
        _ => s.fail("expected a value"),
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
            let key = s.string()?;
            if key.contains('\0') {
                s.at = key_at;
                return s.fail("zero byte in a field name");
            }
            s.expect(b':')?;
            doc.push(&key, &value(s, depth)?);
            if !s.take(b',') {
                s.expect(b'}')?;
                break;
            }
        }
    }
    match special(&doc) {
        Ok(Some(value)) => Ok(value),
        Ok(None) => Ok(OwnedValue::Document(doc)),
        Err(wrapper) => {
            s.at = start;
            s.fail(format!("invalid {wrapper}"))
        }
    }
}

fn array(s: &mut Scanner<'_>, depth: usize) -> Result<OwnedValue, ParseError> {
    let depth = nested(s, depth)?;
    let mut array = ArrayBuf::new();
    s.expect(b'[')?;
    if !s.take(b']') {
        loop {
            array.push(&value(s, depth)?);
            if !s.take(b',') {
                s.expect(b']')?;
                break;
            }
        }
    }
    Ok(array.into())
}
