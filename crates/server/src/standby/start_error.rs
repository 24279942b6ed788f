//! The error of a standby that cannot start.

use std::fmt;

/// Why a standby cannot start.
#[derive(Debug)]
pub struct StartError(String);

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StartError {
    pub(super) fn new(message: impl Into<String>) -> StartError {
        StartError(message.into())
    }
}

impl From<std::io::Error> for StartError {
    fn from(error: std::io::Error) -> StartError {
        StartError(format!("the data directory of the standby: {error}"))
    }
}
