//! The formats of the oplog: entries, differences of documents, resume tokens of change streams.
#![forbid(unsafe_code)]

pub mod diff;
pub mod entry;
mod error;
pub mod token;
