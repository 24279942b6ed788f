//! JSON text: tokens, strings and numbers.

use std::fmt;

use crate::OwnedValue;

/// A text that is not Extended JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    message: String,
    offset: usize,
}

impl ParseError {
    /// Where, in bytes from the start of the text.
    pub fn offset(&self) -> usize {
        self.offset
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.message, self.offset)
    }
}

impl std::error::Error for ParseError {}

pub(super) struct Scanner<'a> {
    text: &'a str,
    pub at: usize,
    /// The forms of [`super::shell`] are read, too.
    pub is_shell: bool,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            text,
            at: 0,
            is_shell: false,
        }
    }

    /// A scanner that reads the forms of the shell, too.
    pub(super) fn of_shell(text: &'a str) -> Self {
        Self {
            is_shell: true,
            ..Self::new(text)
        }
    }

    pub(super) fn fail<T>(&self, message: impl Into<String>) -> Result<T, ParseError> {
        Err(ParseError {
            message: message.into(),
            offset: self.at,
        })
    }

    pub(super) fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// The next byte that is not white space, not taken.
    pub(super) fn peek(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.byte() {
            self.at += 1;
        }
        self.byte()
    }

    /// Takes `wanted` if it is the next byte after white space.
    pub(super) fn take(&mut self, wanted: u8) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    pub(super) fn expect(&mut self, wanted: u8) -> Result<(), ParseError> {
        if self.take(wanted) {
            return Ok(());
        }
        let found = match self
            .text
            .get(self.at..)
            .and_then(|rest| rest.chars().next())
        {
            Some(c) => format!("'{c}'"),
            None => "the end".to_owned(),
        };
        self.fail(format!("expected '{}' but found {found}", wanted as char))
    }

    /// Takes `word` if the text continues with it.
    pub(super) fn word(&mut self, word: &str) -> bool {
        let found = self
            .text
            .get(self.at..)
            .is_some_and(|rest| rest.starts_with(word));
        self.at += if found { word.len() } else { 0 };
        found
    }

    /// Takes the longest run of bytes that `is_part` accepts.
    pub(super) fn run(&mut self, is_part: impl Fn(u8) -> bool) -> &'a str {
        let start = self.at;
        while self.byte().is_some_and(&is_part) {
            self.at += 1;
        }
        self.text.get(start..self.at).unwrap_or_default()
    }

    pub(super) fn string(&mut self) -> Result<String, ParseError> {
        self.quoted('"')
    }

    /// The text up to the next of these signs, or to the next backslash.
    pub(super) fn text_before(&mut self, end: char) -> Result<&'a str, ParseError> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let Some(len) = rest.find(|c: char| c == end || c == '\\' || c < ' ') else {
            return self.fail("unterminated string");
        };
        self.at += len;
        if self.byte().is_some_and(|byte| byte < b' ') {
            return self.fail("control character in string");
        }
        Ok(rest.get(..len).unwrap_or_default())
    }

    /// A string between two of these signs.
    pub(super) fn quoted(&mut self, quote: char) -> Result<String, ParseError> {
        self.expect(quote as u8)?;
        let mut out = String::new();
        loop {
            out.push_str(self.text_before(quote)?);
            match self.byte() {
                Some(b'\\') => out.push(self.escape(quote)?),
                _ => {
                    self.at += 1;
                    return Ok(out);
                }
            }
        }
    }

    fn escape(&mut self, quote: char) -> Result<char, ParseError> {
        self.at += 1;
        let c = match self.byte() {
            Some(b) if b == quote as u8 => quote,
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.at += 1;
                return self.unicode();
            }
            _ => return self.fail("invalid escape"),
        };
        self.at += 1;
        Ok(c)
    }

    /// Four hexadecimal digits, or two times four for a surrogate pair.
    pub(super) fn unicode(&mut self) -> Result<char, ParseError> {
        let first = self.hex4()?;
        let code = match first {
            0xD800..=0xDBFF => {
                if !self.word("\\u") {
                    return self.fail("half a surrogate pair");
                }
                let second = self.hex4()?;
                if !(0xDC00..=0xDFFF).contains(&second) {
                    return self.fail("half a surrogate pair");
                }
                0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00)
            }
            code => code,
        };
        match char::from_u32(code) {
            Some(c) => Ok(c),
            None => self.fail("half a surrogate pair"),
        }
    }

    fn hex4(&mut self) -> Result<u32, ParseError> {
        let mut code = 0;
        for _ in 0..4 {
            let Some(digit) = self.byte().and_then(|b| (b as char).to_digit(16)) else {
                return self.fail("invalid \\u escape");
            };
            code = code * 16 + digit;
            self.at += 1;
        }
        Ok(code)
    }

    pub(super) fn digits(&mut self) -> Result<(), ParseError> {
        let start = self.at;
        while self.byte().is_some_and(|b| b.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == start {
            self.fail("expected a digit")
        } else {
            Ok(())
        }
    }

    /// An int32 where it fits, else an int64; with a point or exponent, or when too large, a double.
    pub(super) fn number(&mut self) -> Result<OwnedValue, ParseError> {
        let start = self.at;
        self.at += usize::from(self.byte() == Some(b'-'));
        let whole = self.at;
        self.digits()?;
        if self.at > whole + 1 && self.text.as_bytes().get(whole) == Some(&b'0') {
            return self.fail("leading zero in number");
        }
        let mut integral = true;
        if self.byte() == Some(b'.') {
            integral = false;
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.byte() {
            integral = false;
            self.at += 1;
            self.at += usize::from(matches!(self.byte(), Some(b'+' | b'-')));
            self.digits()?;
        }
        let text = self.text.get(start..self.at).unwrap_or_default();
        if integral && let Ok(i) = text.parse::<i64>() {
            return Ok(i32::try_from(i).map_or(OwnedValue::Int64(i), OwnedValue::Int32));
        }
        match text.parse::<f64>() {
            Ok(double) => Ok(OwnedValue::Double(double)),
            Err(_) => self.fail("invalid number"),
        }
    }
}
