//! Errors of the files of TLS.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The result of reading a configuration.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a configuration cannot be used. No text holds key material.
#[derive(Debug)]
pub enum Error {
    /// A file cannot be read.
    Read(PathBuf, io::Error),
    /// A file with a key can be read or written by others than its owner.
    Permissions(PathBuf, u32),
    /// A file with a key belongs to another user.
    Owner(PathBuf),
    /// The content of a file cannot be used.
    File(PathBuf, String),
    /// The options contradict each other.
    Options(String),
    /// The name of a server is neither a host name nor an address.
    ServerName(String),
}

impl Error {
    /// An error about the content of a file.
    pub(crate) fn file(path: &Path, what: impl fmt::Display) -> Error {
        Error::File(path.to_owned(), what.to_string())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Read(path, error) => write!(f, "cannot read {}: {error}", path.display()),
            Error::Permissions(path, mode) => write!(
                f,
                "permissions on {} are too open ({mode:04o}): it holds a private key, which only its owner may read; run \
                 chmod 600 on it",
                path.display()
            ),
            Error::Owner(path) => write!(
                f,
                "{} belongs to another user: it holds a private key, so its owner must be root or the user that runs this \
                 process",
                path.display()
            ),
            Error::File(path, what) => write!(f, "{}: {what}", path.display()),
            Error::Options(what) => f.write_str(what),
            Error::ServerName(name) => {
                write!(f, "'{name}' is neither a host name nor an IP address")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Read(_, error) => Some(error),
            _ => None,
        }
    }
}
