//! Regular expressions: compiled patterns, and what they say about index bounds.
//!
//! As in MongoDB they are those of PCRE2, which is linked into the program. A pattern that is plain text, as most are, is
//! searched for without it.

mod engine;
mod literal;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;

use frond_bson::Value;

use crate::bounds;
use engine::Engine;
use frond_error::{Error, ErrorCode, Result};
use literal::Literal;

/// The longest pattern, in bytes; the limit of MongoDB's regular expression library.
const MAX_PATTERN_BYTES: usize = 32_764;

/// About the memory of a compiled pattern besides its texts and its code.
const COMPILED_BYTES: usize = 512;

/// A compiled regular expression. It matches strings that contain a match, and stored regular
/// expressions that are the same.
#[derive(Clone)]
pub struct Pattern {
    source: String,
    options: String,
    search: Search,
}

#[derive(Clone)]
enum Search {
    Literal(Box<Literal>),
    Engine(Engine),
}

/// The text that every string matched by a pattern starts with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix {
    pub text: String,
    /// Whether every string with this prefix matches, so that index bounds alone decide.
    pub exact: bool,
}

/// The bytes in which a pattern matches, and those of each group.
#[derive(Debug, PartialEq)]
pub(crate) struct Found {
    pub(crate) whole: Range<usize>,
    /// `None` for a group that has no part in the match.
    pub(crate) groups: Vec<Option<Range<usize>>>,
}

/// The reason why a search has no result.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The operation was interrupted, or has too little memory.
    Interrupted(Error),
    /// A limit of the match, in the words of PCRE2.
    Reason(String),
}

impl Failure {
    /// The error with this code, if the operation goes on; `action` is what failed.
    pub(crate) fn into_error(self, code: i32, action: fmt::Arguments<'_>) -> Error {
        match self {
            Failure::Interrupted(error) => error,
            Failure::Reason(reason) => Error::new(
                ErrorCode::Location(code),
                format!("Error occurred while executing {action}: {reason}"),
            ),
        }
    }
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
        let invalid = |reason: &str| {
            Error::location(51091, format!("Regular expression is invalid: {reason}"))
        };
        if source.len() > MAX_PATTERN_BYTES {
            return Err(invalid("regular expression is too large"));
        }
        bounds::reserve(COMPILED_BYTES + 2 * source.len())?;
        let search = match Literal::extract(source, options) {
            Some(literal) => Search::Literal(Box::new(literal)),
            None => {
                let engine = Engine::new(source, options).map_err(|reason| invalid(&reason))?;
                bounds::reserve(engine.bytes())?;
                Search::Engine(engine)
            }
        };
        Ok(Pattern {
            source: source.to_string(),
            options: options.to_string(),
            search,
        })
    }

    /// Compiles a regular expression or the text of one.
    ///
    /// Fails as [`Pattern::new`], with code 51091 for one that is not UTF-8.
    pub(crate) fn from_value(value: &Value<'_>) -> Result<Pattern> {
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
        literal::prefix(&self.source, &self.options)
    }

    /// Whether `text` contains a match.
    ///
    /// Fails with code 5073414 if that takes too many steps or too much memory, and if the operation is interrupted.
    pub fn is_match(&self, text: &str) -> Result<bool> {
        self.test(text).map_err(Pattern::failed)
    }

    /// The error of a condition that has no result.
    pub(crate) fn failed(failure: Failure) -> Error {
        failure.into_error(5_073_414, format_args!("regular expression"))
    }

    /// As [`Pattern::is_match`], for callers with another error.
    #[inline]
    pub(crate) fn test(&self, text: &str) -> Result<bool, Failure> {
        match &self.search {
            Search::Literal(literal) => Ok(literal.find(text, 0).is_some()),
            Search::Engine(engine) => engine.is_match(text),
        }
    }

    /// The first match in `text` at byte `from` or later.
    pub(crate) fn find(&self, text: &str, from: usize) -> Result<Option<Found>, Failure> {
        match &self.search {
            Search::Literal(literal) => Ok(literal.find(text, from).map(|whole| Found {
                whole,
                groups: Vec::new(),
            })),
            Search::Engine(engine) => engine.find(text, from),
        }
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}/{}", self.source, self.options)
    }
}
