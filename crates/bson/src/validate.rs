//! The complete check of bytes that come from outside: one pass, no allocation, no recursion.

use crate::raw::{find_byte, u32_at};
use crate::{Error, ErrorKind, MAX_DEPTH, tag};

/// The smallest document: length prefix and trailing zero.
const EMPTY_BYTES: usize = 5;

fn fail<T>(kind: ErrorKind, offset: usize) -> Result<T, Error> {
    Err(Error::new(kind, offset))
}

/// Splits the length-prefixed document at the start of `bytes` from what follows, unchecked inside.
pub(crate) fn split_prefix(bytes: &[u8]) -> Result<(&[u8], &[u8]), Error> {
    let Some(len) = u32_at(bytes, 0) else {
        return fail(ErrorKind::Truncated, 0);
    };
    if len < EMPTY_BYTES {
        return fail(ErrorKind::InvalidLength, 0);
    }
    match bytes.split_at_checked(len) {
        Some(parts) => Ok(parts),
        None => fail(ErrorKind::Truncated, 0),
    }
}

/// Checks that `bytes` is exactly one valid document.
pub(crate) fn whole(bytes: &[u8]) -> Result<(), Error> {
    let (_, rest) = split_prefix(bytes)?;
    if !rest.is_empty() {
        return fail(ErrorKind::TrailingBytes, bytes.len() - rest.len());
    }
    let mut walk = Walk {
        bytes,
        at: 0,
        ends: [0; MAX_DEPTH],
        depth: 0,
    };
    walk.open(bytes.len())?;
    walk.run()
}

/// A cursor over the bytes, with the ends of the documents it is inside of.
struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Offsets of the trailing zero byte of each open document.
    ends: [usize; MAX_DEPTH],
    depth: usize,
}

impl<'a> Walk<'a> {
    /// Enters the document at `self.at`, which may not pass `limit`.
    fn open(&mut self, limit: usize) -> Result<(), Error> {
        let start = self.at;
        let Some(len) = u32_at(self.bytes, start) else {
            return fail(ErrorKind::Truncated, start);
        };
        if len < EMPTY_BYTES {
            return fail(ErrorKind::InvalidLength, start);
        }
        if len > limit - start {
            return fail(ErrorKind::Truncated, start);
        }
        let end = start + len - 1;
        if self.bytes.get(end) != Some(&0) {
            return fail(ErrorKind::MissingTerminator, end);
        }
        let Some(slot) = self.ends.get_mut(self.depth) else {
            return fail(ErrorKind::TooDeep, start);
        };
        *slot = end;
        self.depth += 1;
        self.at = start + 4;
        Ok(())
    }

    /// The end of the innermost open document.
    fn end(&self) -> usize {
        self.ends
            .get(self.depth.wrapping_sub(1))
            .copied()
            .unwrap_or(0)
    }

    fn run(&mut self) -> Result<(), Error> {
        let mut end = self.end();
        while self.depth > 0 {
            if self.at == end {
                self.depth -= 1;
                self.at += 1;
                end = self.end();
                continue;
            }
            let Some(&tag) = self.bytes.get(self.at) else {
                return fail(ErrorKind::Truncated, self.at);
            };
            if tag == 0 {
                // The terminator before the place that the length prefix promised.
                return fail(ErrorKind::InvalidLength, self.at);
            }
            self.at += 1;
            self.name(end)?;
            self.value(tag, end)?;
            end = self.end();
        }
        Ok(())
    }

    fn value(&mut self, tag: u8, end: usize) -> Result<(), Error> {
        match tag {
            tag::INT32 => self.skip(4, end),
            tag::DOUBLE | tag::DATE_TIME | tag::TIMESTAMP | tag::INT64 => self.skip(8, end),
            tag::STRING | tag::JAVASCRIPT | tag::SYMBOL => self.string(end),
            tag::DOCUMENT | tag::ARRAY => self.open(end),
            tag::OBJECT_ID => self.skip(12, end),
            tag::BOOL => {
                if !matches!(self.bytes.get(self.at), Some(0 | 1)) {
                    return fail(ErrorKind::InvalidBool, self.at);
                }
                self.skip(1, end)
            }
            tag::NULL | tag::UNDEFINED | tag::MIN_KEY | tag::MAX_KEY => Ok(()),
            tag::BINARY => {
                let len = self.length(end)?;
                self.skip(len + 1, end)
            }
            tag::REGEX => {
                self.cstring(end)?;
                self.cstring(end)
            }
            tag::DECIMAL128 => self.skip(16, end),
            tag::DB_POINTER => {
                self.string(end)?;
                self.skip(12, end)
            }
            tag::JAVASCRIPT_WITH_SCOPE => self.code_with_scope(end),
            other => fail(ErrorKind::UnknownType(other), self.at - 1),
        }
    }

    fn skip(&mut self, len: usize, end: usize) -> Result<(), Error> {
        if len > end - self.at {
            return fail(ErrorKind::Truncated, self.at);
        }
        self.at += len;
        Ok(())
    }

    /// Reads a 32-bit length. As a signed number it must not be negative.
    fn length(&mut self, end: usize) -> Result<usize, Error> {
        let at = self.at;
        self.skip(4, end)?;
        match u32_at(self.bytes, at) {
            Some(len) if len <= i32::MAX as usize => Ok(len),
            _ => fail(ErrorKind::InvalidLength, at),
        }
    }

    /// A part of a regular expression: up to a zero byte before `end`.
    fn cstring(&mut self, end: usize) -> Result<(), Error> {
        let text = self.bytes.get(self.at..end).unwrap_or_default();
        match find_byte(text, 0) {
            Some(len) => {
                self.at += len + 1;
                Ok(())
            }
            None => fail(ErrorKind::MissingTerminator, end),
        }
    }

    /// A name: UTF-8 up to a zero byte before `end`.
    fn name(&mut self, end: usize) -> Result<(), Error> {
        let start = self.at;
        let text = self.bytes.get(start..end).unwrap_or_default();
        let mut seen = 0u8;
        let mut len = 0;
        for &b in text {
            if b == 0 {
                break;
            }
            seen |= b;
            len += 1;
        }
        if len == text.len() {
            return fail(ErrorKind::MissingTerminator, end);
        }
        if seen >= 0x80 {
            utf8(text.get(..len).unwrap_or_default(), start)?;
        }
        self.at = start + len + 1;
        Ok(())
    }

    /// A length-prefixed string; the length counts the zero byte at its end.
    fn string(&mut self, end: usize) -> Result<(), Error> {
        let start = self.at;
        let len = self.length(end)?;
        if len == 0 {
            return fail(ErrorKind::InvalidLength, start);
        }
        let text_start = self.at;
        self.skip(len, end)?;
        match self
            .bytes
            .get(text_start..self.at)
            .and_then(<[u8]>::split_last)
        {
            Some((0, _)) => Ok(()),
            _ => fail(ErrorKind::MissingTerminator, self.at - 1),
        }
    }

    fn code_with_scope(&mut self, end: usize) -> Result<(), Error> {
        let start = self.at;
        let len = self.length(end)?;
        // Its own length, the shortest code (length and zero byte) and the empty scope.
        if len < 4 + 5 + EMPTY_BYTES {
            return fail(ErrorKind::InvalidLength, start);
        }
        if len > end - start {
            return fail(ErrorKind::Truncated, start);
        }
        let inner_end = start + len;
        self.string(inner_end)?;
        if u32_at(self.bytes, self.at) != Some(inner_end - self.at) {
            return fail(ErrorKind::InvalidLength, self.at);
        }
        self.open(inner_end)
    }
}

fn utf8(text: &[u8], offset: usize) -> Result<(), Error> {
    match std::str::from_utf8(text) {
        Ok(_) => Ok(()),
        Err(e) => fail(ErrorKind::InvalidUtf8, offset + e.valid_up_to()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{Doc, DocBuf, Value, doc};

    /// A document of the given element bytes, with a right length and terminator.
    fn wrap(elements: &[u8]) -> Vec<u8> {
        let mut bytes = ((elements.len() + 5) as u32).to_le_bytes().to_vec();
        bytes.extend_from_slice(elements);
        bytes.push(0);
        bytes
    }

    #[test]
    fn finds_each_fault() {
        use ErrorKind::*;
        let cases: &[(&str, Vec<u8>, ErrorKind)] = &[
            ("nothing", vec![], Truncated),
            ("half a length", vec![5, 0], Truncated),
            ("length below five", vec![4, 0, 0, 0], InvalidLength),
            (
                "negative length",
                vec![0xFF, 0xFF, 0xFF, 0xFF, 0],
                Truncated,
            ),
            ("longer than the bytes", vec![6, 0, 0, 0, 0], Truncated),
            ("trailing bytes", vec![5, 0, 0, 0, 0, 0], TrailingBytes),
            ("no terminator", vec![5, 0, 0, 0, 1], MissingTerminator),
            ("early terminator", vec![6, 0, 0, 0, 0, 0], InvalidLength),
            ("unknown type", wrap(b"\x20a\0"), UnknownType(0x20)),
            ("name without end", wrap(b"\x0Aab"), MissingTerminator),
            ("name not UTF-8", wrap(b"\x0A\xFF\0"), InvalidUtf8),
            ("short double", wrap(b"\x01a\0\0\0\0\0\0\0\0"), Truncated),
            ("short int", wrap(b"\x10a\0\0\0\0"), Truncated),
            ("bool of two", wrap(b"\x08a\0\x02"), InvalidBool),
            (
                "string of length zero",
                wrap(b"\x02a\0\0\0\0\0"),
                InvalidLength,
            ),
            ("string too long", wrap(b"\x02a\0\x03\0\0\0x\0"), Truncated),
            (
                "string of negative length",
                wrap(b"\x02a\0\xFF\xFF\xFF\xFFx\0"),
                InvalidLength,
            ),
            (
                "string without zero",
                wrap(b"\x02a\0\x02\0\0\0xy"),
                MissingTerminator,
            ),
            ("binary too long", wrap(b"\x05a\0\x02\0\0\0\0x"), Truncated),
            ("regex of one part", wrap(b"\x0Ba\0x\0"), MissingTerminator),
            (
                "inner document too long",
                wrap(b"\x03a\0\x06\0\0\0\0"),
                Truncated,
            ),
            (
                "inner document too short",
                wrap(b"\x03a\0\x04\0\0\0\0"),
                InvalidLength,
            ),
            (
                "code with scope too short",
                wrap(b"\x0Fa\0\x0D\0\0\0\x01\0\0\0\0\x05\0\0\0\0"),
                InvalidLength,
            ),
            (
                "scope of another length",
                wrap(b"\x0Fa\0\x0F\0\0\0\x01\0\0\0\0\x05\0\0\0\0\0"),
                InvalidLength,
            ),
        ];
        for (what, bytes, kind) in cases {
            let got = Doc::validate(bytes).map_err(|e| e.kind());
            assert_eq!(got.map(Doc::len_bytes), Err(*kind), "{what}");
            // Reading unvalidated bytes must end, and not panic.
            let _ = Doc::from_trusted(bytes).iter().count();
        }
        Doc::validate(&wrap(b"\x0Fa\0\x0E\0\0\0\x01\0\0\0\0\x05\0\0\0\0")).unwrap();
    }

    /// MongoDB stores such text, so that it has to be taken; names are UTF-8.
    #[test]
    fn text_need_not_be_utf8() {
        for (what, bytes) in [
            ("string", wrap(b"\x02a\0\x02\0\0\0\xC3\0")),
            ("symbol", wrap(b"\x0Ea\0\x02\0\0\0\xFF\0")),
            ("code", wrap(b"\x0Da\0\x03\0\0\0x\x80\0")),
            ("pattern", wrap(b"\x0Ba\0\xFF\0i\0")),
            ("options", wrap(b"\x0Ba\0x\0\xFF\0")),
            ("namespace", wrap(b"\x0Ca\0\x02\0\0\0\xFF\0aaaaaaaaaaaa")),
            (
                "scoped",
                wrap(b"\x0Fa\0\x0F\0\0\0\x02\0\0\0\xFF\0\x05\0\0\0\0"),
            ),
            (
                "inside",
                wrap(b"\x03a\0\x0E\0\0\0\x02b\0\x02\0\0\0\xFF\0\0"),
            ),
        ] {
            let doc = Doc::validate(&bytes).unwrap_or_else(|error| panic!("{what}: {error}"));
            let mut copy = DocBuf::new();
            copy.push("a", doc.get("a").unwrap());
            assert_eq!(copy, *doc, "{what}");
            let mut owned = DocBuf::new();
            owned.push("a", &doc.get("a").unwrap().to_owned());
            assert_eq!(owned, *doc, "{what}");
        }
    }

    fn nested(levels: usize) -> DocBuf {
        let mut inner = DocBuf::new();
        for _ in 1..levels {
            let mut outer = DocBuf::new();
            outer.push("a", &inner);
            inner = outer;
        }
        inner
    }

    #[test]
    fn nesting_is_bounded() {
        Doc::validate(nested(MAX_DEPTH).as_bytes()).unwrap();
        let error = Doc::validate(nested(MAX_DEPTH + 1).as_bytes()).unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::TooDeep, 15));
    }

    #[test]
    fn splits_a_prefix() {
        let mut bytes = doc! {"a": 1}.into_vec();
        bytes.extend_from_slice(&[9, 9]);
        let (doc, rest) = Doc::from_prefix(&bytes).unwrap();
        assert_eq!((doc.get("a"), rest), (Some(Value::Int32(1)), &[9u8, 9][..]));
    }

    /// Every single-byte change and every cut is either refused or safe to read.
    #[test]
    fn damaged_bytes_never_panic() {
        let whole = doc! {"a": "text", "b": {"c": [1, 2.5, true]}, "d": Value::Regex { pattern: "a", options: "i" },
        "e": Value::JavaScriptWithScope { code: "f", scope: &doc! {"x": 1i64} }}
        .into_vec();
        for at in 0..whole.len() {
            for value in [0, 1, 2, 5, 0x7F, 0x80, 0xFF] {
                let mut bytes = whole.clone();
                bytes[at] = value;
                let valid = Doc::validate(&bytes).is_ok();
                let text = format!("{:?}", Doc::from_trusted(&bytes));
                assert!(!valid || !text.is_empty());
            }
            let cut = Doc::from_trusted(&whole[..at]);
            assert!(Doc::validate(cut.as_bytes()).is_err());
            let _ = format!("{cut:?}");
        }
    }
}
