//! Errors of migrations, imports and exports.

use std::fmt;
use std::io;

/// An error. Its text is for the person who started the program.
#[derive(Debug)]
pub enum Error {
    /// A request to a server failed.
    Client(frond_client::Error),
    /// Reading or writing a file failed; the text names it.
    Io(String, io::Error),
    /// The options cannot be used together, or with these servers.
    Usage(String),
    /// A file holds something that cannot be read; the text says where and what.
    Data(String),
    /// The target does not take all of it.
    Refused(String),
    /// The two sides are not equal.
    Differs(String),
}

impl Error {
    /// The code of a server's error.
    pub fn code(&self) -> Option<i32> {
        match self {
            Error::Client(frond_client::Error::Server { code, .. }) => Some(*code),
            _ => None,
        }
    }

    /// Whether the server refused a request, rather than the connection failing.
    pub fn is_refusal(&self) -> bool {
        self.code().is_some()
    }

    /// Whether the connection failed, so that another try may succeed.
    pub fn is_connection(&self) -> bool {
        matches!(
            self,
            Error::Client(frond_client::Error::Io(..) | frond_client::Error::Protocol(_))
        )
    }

    /// Whether the user asked to stop.
    pub fn is_stopped(&self) -> bool {
        matches!(self, Error::Client(frond_client::Error::Stopped))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Client(error) => write!(f, "{error}"),
            Error::Io(doing, error) => write!(f, "{doing}: {error}"),
            Error::Usage(text)
            | Error::Data(text)
            | Error::Refused(text)
            | Error::Differs(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Client(error) => Some(error),
            Error::Io(_, error) => Some(error),
            _ => None,
        }
    }
}

impl From<frond_client::Error> for Error {
    fn from(error: frond_client::Error) -> Self {
        Error::Client(error)
    }
}

/// The result of most functions here.
pub type Result<T> = std::result::Result<T, Error>;
