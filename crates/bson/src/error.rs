//! The error of reading bytes as BSON.

use std::fmt;

/// The fault of malformed bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The bytes end before the document does, or a length points outside of its document.
    Truncated,
    /// A length prefix disagrees with the bytes it describes.
    InvalidLength,
    /// More bytes follow the end of the document.
    TrailingBytes,
    /// A document, string or code does not end with a zero byte.
    MissingTerminator,
    /// The name of a field is not valid UTF-8.
    InvalidUtf8,
    /// A boolean byte is neither 0 nor 1.
    InvalidBool,
    /// A type byte that BSON does not define.
    UnknownType(u8),
    /// Nested deeper than [`crate::MAX_DEPTH`].
    TooDeep,
    /// An encoded key, or its type bits, that [`crate::key`] did not write.
    InvalidKey,
}

/// Bytes that are not valid BSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    offset: usize,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, offset: usize) -> Self {
        Self { kind, offset }
    }

    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Where, in bytes from the start of the outermost document or key.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// MongoDB's error code: 15 (Overflow) for too deep nesting, else 22 (InvalidBSON).
    pub fn code(&self) -> i32 {
        match self.kind {
            ErrorKind::TooDeep => 15,
            _ => 22,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            ErrorKind::Truncated => f.write_str("incorrect BSON length")?,
            ErrorKind::InvalidLength => f.write_str("invalid BSON length prefix")?,
            ErrorKind::TrailingBytes => f.write_str("bytes after the end of the BSON object")?,
            ErrorKind::MissingTerminator => f.write_str("not null terminated string or object")?,
            ErrorKind::InvalidUtf8 => f.write_str("the name of a field is not valid UTF-8")?,
            ErrorKind::InvalidBool => f.write_str("invalid boolean value")?,
            ErrorKind::UnknownType(t) => write!(f, "Unrecognized BSON type 0x{t:02x}")?,
            ErrorKind::TooDeep => write!(
                f,
                "BSONObj exceeded maximum nested object depth: {}",
                crate::MAX_DEPTH
            )?,
            ErrorKind::InvalidKey => f.write_str("invalid encoded key")?,
        }
        write!(f, " at offset {}", self.offset)
    }
}

impl std::error::Error for Error {}
