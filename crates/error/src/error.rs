//! The error of a command: a code, a message and further fields of the reply.

use std::fmt;

use frond_bson::{Doc, DocBuf};

use crate::code::ErrorCode;

/// Result of everything that can refuse a client's request.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error as the client sees it: `code`, `codeName`, `errmsg` and further fields of the reply.
#[derive(Clone, Debug, PartialEq)]
pub struct Error {
    code: ErrorCode,
    message: String,
    details: Option<Box<DocBuf>>,
}

impl Error {
    /// An error with any code.
    #[cold]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Error {
        Error {
            code,
            message: message.into(),
            details: None,
        }
    }

    /// An error whose code is known only by its number (`LocationNNNNN`); named numbers get their name.
    #[cold]
    pub fn location(code: i32, message: impl Into<String>) -> Error {
        Error::new(ErrorCode::from_code(code), message)
    }

    /// Code 2, `BadValue`: an argument has the right type but a wrong value, or an operator is unknown.
    #[cold]
    pub fn bad_value(message: impl Into<String>) -> Error {
        Error::new(ErrorCode::BadValue, message)
    }

    /// Code 9, `FailedToParse`: the structure of the request is wrong.
    #[cold]
    pub fn failed_to_parse(message: impl Into<String>) -> Error {
        Error::new(ErrorCode::FailedToParse, message)
    }

    /// Code 14, `TypeMismatch`: an argument has the wrong BSON type.
    #[cold]
    pub fn type_mismatch(message: impl Into<String>) -> Error {
        Error::new(ErrorCode::TypeMismatch, message)
    }

    /// Code 15, `Overflow`: nested deeper than the server follows, or a number out of range.
    #[cold]
    pub fn overflow(message: impl Into<String>) -> Error {
        Error::new(ErrorCode::Overflow, message)
    }

    /// Code 1, `InternalError`: a broken invariant of the server itself.
    #[cold]
    pub fn internal(message: impl Into<String>) -> Error {
        Error::new(ErrorCode::InternalError, message)
    }

    /// Code 238, `NotImplemented`: MongoDB knows `what`, this server does not. `what` begins with
    /// the name that the user wrote, for example ``"the query operator '$where'"``.
    #[cold]
    pub fn not_supported(what: impl fmt::Display) -> Error {
        Error::new(
            ErrorCode::NotImplemented,
            format!("{what} is not supported by this server"),
        )
    }

    /// The `code` and `codeName` of the reply.
    pub fn code(&self) -> ErrorCode {
        self.code
    }

    /// The `errmsg` of the reply.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Further fields of the reply, such as `keyPattern` and `keyValue` of a duplicate key.
    pub fn details(&self) -> Option<&Doc> {
        self.details.as_deref().map(|details| &**details)
    }

    /// The code, the message and the further fields.
    pub fn into_parts(self) -> (ErrorCode, String, Option<DocBuf>) {
        (
            self.code,
            self.message,
            self.details.map(|details| *details),
        )
    }

    /// The same error with further fields for the reply.
    pub fn with_details(mut self, details: DocBuf) -> Error {
        self.details = Some(Box::new(details));
        self
    }

    /// The same error with `prefix` and the separator `" :: caused by :: "` before its message, as
    /// MongoDB reports where a nested failure came from.
    pub fn context(mut self, prefix: impl fmt::Display) -> Error {
        self.message = format!("{prefix} :: caused by :: {}", self.message);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.name(), self.message)
    }
}

impl std::error::Error for Error {}

impl From<frond_bson::Error> for Error {
    fn from(error: frond_bson::Error) -> Error {
        Error::location(error.code(), error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_goes_before_the_message() {
        let error = Error::bad_value("x").context("Failed to parse: f");
        assert_eq!(error.message(), "Failed to parse: f :: caused by :: x");
        assert_eq!(
            error.to_string(),
            "BadValue: Failed to parse: f :: caused by :: x"
        );
    }
}
