//! How a measurement can fail.

use std::fmt::{self, Display};
use std::io;

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug)]
pub enum Error {
    /// An engine returned an error: the operation, and its text.
    Engine(&'static str, String),
    /// A file could not be read or written: the operation, and the cause.
    File(String, io::Error),
    /// An engine returned something that was not written.
    Wrong(String),
    /// Settings of the command line that cannot work.
    Settings(String),
}

impl Error {
    /// Wraps an error of the file system.
    pub fn file(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        move |error| Error::File(what.into(), error)
    }
}

/// Names the operation of an engine in its error.
pub trait During<T> {
    fn during(self, what: &'static str) -> Result<T>;
}

impl<T, E: Display> During<T> for std::result::Result<T, E> {
    fn during(self, what: &'static str) -> Result<T> {
        self.map_err(|error| Error::Engine(what, error.to_string()))
    }
}

impl Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Engine(what, text) => write!(out, "{what}: {text}"),
            Error::File(what, error) => write!(out, "{what}: {error}"),
            Error::Wrong(text) => write!(out, "the engine is wrong: {text}"),
            Error::Settings(text) => out.write_str(text),
        }
    }
}

impl std::error::Error for Error {}
