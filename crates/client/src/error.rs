//! Errors of the client.

use std::fmt;
use std::io;

/// An error of a connection or of a server. Its text is for the person who started the program.
#[derive(Debug)]
pub enum Error {
    /// The connection string cannot be used.
    Uri(String),
    /// A setting cannot work, alone or with this server.
    Settings(String),
    /// Reading or writing failed; the text names the operation.
    Io(String, io::Error),
    /// The server sent bytes that are not a valid answer.
    Protocol(String),
    /// The server refused a command.
    Server {
        /// The command that failed.
        command: String,
        /// MongoDB's error code; 0 if the server gave none.
        code: i32,
        message: String,
    },
    /// The server holds something else than it should.
    Wrong(String),
    /// The user asked to stop.
    Stopped,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Uri(text) => write!(f, "connection string: {text}"),
            Error::Settings(text) => f.write_str(text),
            Error::Io(doing, error) => write!(f, "{doing}: {error}"),
            Error::Protocol(text) => write!(f, "the server's answer cannot be used: {text}"),
            Error::Server {
                command,
                code,
                message,
            } => write!(f, "the server refused `{command}`: {message} (code {code})"),
            Error::Wrong(text) => write!(f, "wrong result: {text}"),
            Error::Stopped => f.write_str("stopped"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io(_, error) => Some(error),
            _ => None,
        }
    }
}

impl From<frond_wire::Error> for Error {
    fn from(error: frond_wire::Error) -> Self {
        Error::Protocol(error.to_string())
    }
}

/// The result of a call of the client.
pub type Result<T> = std::result::Result<T, Error>;
