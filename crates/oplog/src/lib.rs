//! The formats of the oplog: entries, differences of documents, resume tokens of change streams.
#![forbid(unsafe_code)]

pub mod diff;
pub mod entry;
pub mod token;

use frond_error::{Error, ErrorCode};

type Result<T> = std::result::Result<T, Error>;

/// Stored data that cannot be read, though its checksum was right: a bug of the server.
#[cold]
fn corrupt(what: &str) -> Error {
    let message = format!("stored data is damaged: {what}");
    Error::new(ErrorCode::DataCorruptionDetected, message)
}
