//! The errors of malformed entries and tokens.

use frond_error::{Error, ErrorCode};

pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Stored data that cannot be read, though its checksum was right: a bug of the server.
#[cold]
pub(crate) fn corrupt(what: &str) -> Error {
    let message = format!("stored data is damaged: {what}");
    Error::new(ErrorCode::DataCorruptionDetected, message)
}
