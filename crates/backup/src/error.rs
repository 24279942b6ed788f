//! Errors of backups, archives and restores.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The result of an operation on a repository.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a backup, an archive or a restore failed. The text is for the person who started the program.
#[derive(Debug)]
pub enum Error {
    /// The server refused, or the connection failed.
    Server(frond_client::Error),
    /// A file could not be read or written.
    Io(String, io::Error),
    /// A stored file is damaged: the file, the offset of the record, and what is wrong.
    Damaged(PathBuf, u64, String),
    /// The request cannot be fulfilled.
    Refused(String),
    /// The restored data directory is not usable.
    Store(frond_store::Error),
    /// The user asked to stop.
    Stopped,
}

impl Error {
    /// An error of a file operation.
    pub(crate) fn io(doing: &str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        let what = format!("{doing} {}", path.display());
        move |error| Error::Io(what, error)
    }

    /// The code of the server's refusal.
    pub(crate) fn code(&self) -> Option<i32> {
        match self {
            Error::Server(frond_client::Error::Server { code, .. }) => Some(*code),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Server(error) => write!(f, "{error}"),
            Error::Io(doing, error) => write!(f, "{doing}: {error}"),
            Error::Damaged(path, offset, what) => {
                write!(f, "{} is damaged at byte {offset}: {what}", path.display())
            }
            Error::Refused(text) => f.write_str(text),
            Error::Store(error) => write!(f, "{error}"),
            Error::Stopped => f.write_str("stopped"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Server(error) => Some(error),
            Error::Io(_, error) => Some(error),
            Error::Store(error) => Some(error),
            Error::Damaged(..) | Error::Refused(_) | Error::Stopped => None,
        }
    }
}

impl From<frond_client::Error> for Error {
    fn from(error: frond_client::Error) -> Error {
        match error {
            frond_client::Error::Stopped => Error::Stopped,
            other => Error::Server(other),
        }
    }
}

impl From<frond_store::Error> for Error {
    fn from(error: frond_store::Error) -> Error {
        Error::Store(error)
    }
}

impl From<String> for Error {
    fn from(text: String) -> Error {
        Error::Refused(text)
    }
}
