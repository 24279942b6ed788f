//! Regular expressions in MongoDB's syntax: compiled patterns, and what they say about index bounds.

mod syntax;

use crate::bounds;
use std::fmt;

use fancy_regex::{Regex, RegexBuilder};
use frond_bson::Value;

use frond_error::{Error, ErrorCode, Result};

/// The longest pattern, in bytes; the limit of MongoDB's regular expression library.
const MAX_PATTERN_BYTES: usize = 32_764;

/// About the memory of a short pattern that is compiled.
const COMPILED_BYTES: usize = 10 << 10;

/// The limit of backtracking steps of a match, as in MongoDB.
const BACKTRACK_LIMIT: usize = 10_000_000;

/// A compiled regular expression. It matches strings that contain a match, and stored regular
/// expressions that are the same.
#[derive(Clone)]
pub struct Pattern {
    source: String,
    options: String,
    regex: Regex,
    /// The expression for non-ASCII text, if it differs.
    beyond_ascii: Option<Regex>,
}

/// The text that every string matched by a pattern starts with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// The text.
    pub text: String,
    /// Whether every string with this prefix matches, so that index bounds alone decide.
    pub exact: bool,
}

impl Pattern {
    /// Compiles a pattern. Options are the letters `i`, `m`, `s`, `x` and `u` (which changes nothing).
    ///
    /// Fails with code 51108 for another option, 51091 for an invalid pattern, 2 for a pattern with
    /// a zero byte.
    pub fn new(source: &str, options: &str) -> Result<Pattern> {
        if source.contains('\0') {
            return Err(Error::bad_value(
                "Regular expression cannot contain an embedded null byte",
            ));
        }
        if let Some(flag) = options.chars().find(|flag| !"imsxu".contains(*flag)) {
            return Err(Error::location(
                51108,
                format!("invalid flag in regex options: {flag}"),
            ));
        }
        let invalid = |reason: &dyn fmt::Display| {
            Error::location(51091, format!("Regular expression is invalid: {reason}"))
        };
        if source.len() > MAX_PATTERN_BYTES {
            return Err(invalid(&"regular expression is too large"));
        }
        bounds::reserve(COMPILED_BYTES)?;
        let has = |flag| options.contains(flag);
        let build = |pattern: &str| {
            RegexBuilder::new(pattern)
                .case_insensitive(has('i'))
                .multi_line(has('m'))
                .dot_matches_new_line(has('s'))
                .ignore_whitespace(has('x'))
                .backtrack_limit(BACKTRACK_LIMIT)
                .build()
                .map_err(|reason| invalid(&reason))
        };
        let translated = syntax::translate(source, has('x'), has('m'));
        let regex = build(&translated.pattern)?;
        let beyond_ascii = translated
            .with_ascii_boundaries
            .as_deref()
            .map(build)
            .transpose()?;
        Ok(Pattern {
            source: source.to_string(),
            options: options.to_string(),
            regex,
            beyond_ascii,
        })
    }

    /// Compiles a regular expression or the text of one.
    ///
    /// Fails as [`Pattern::new`], with code 51091 for one that is not UTF-8.
    pub(crate) fn of(value: &Value<'_>) -> Result<Pattern> {
        match *value {
            Value::Regex { pattern, options } => Pattern::new(pattern, options),
            Value::String(pattern) => Pattern::new(pattern, ""),
            _ => Err(Error::location(
                51091,
                "Regular expression is invalid: it has to be valid UTF-8",
            )),
        }
    }

    /// The pattern as written.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The option letters as written.
    pub fn options(&self) -> &str {
        &self.options
    }

    /// The literal text that matches must start with, if the pattern is anchored at the start: for
    /// index bounds.
    pub fn prefix(&self) -> Option<Prefix> {
        syntax::prefix(&self.source, &self.options)
    }

    /// The compiled expression to search `text` with.
    pub(crate) fn regex_for(&self, text: &str) -> &Regex {
        match &self.beyond_ascii {
            Some(regex) if !text.is_ascii() => regex,
            _ => &self.regex,
        }
    }

    /// Whether `text` contains a match. Fails with code 5073414 if that takes too many steps.
    pub fn is_match(&self, text: &str) -> Result<bool> {
        self.regex_for(text).is_match(text).map_err(|reason| {
            let message = format!("Error occurred while executing regular expression: {reason}");
            Error::new(ErrorCode::Location(5_073_414), message)
        })
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}/{}", self.source, self.options)
    }
}
