//! The one error type of everything that a client can ask, and the one table of MongoDB's error codes.
#![forbid(unsafe_code)]

mod code;
mod error;

pub use code::ErrorCode;
pub use error::{Error, Result};
