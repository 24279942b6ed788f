//! Errors of this crate.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something could not be encrypted or decrypted.
#[derive(Debug)]
pub enum Error {
    /// The master key cannot be had.
    MasterKey(String),
    /// The key store exists, is intact, and was not written with this master key.
    WrongMasterKey(PathBuf),
    /// The key store is damaged, or of another version.
    KeyStore(PathBuf, &'static str),
    /// There is no key store.
    NoKeyStore(PathBuf),
    /// The content is encrypted with a store key that the key store does not have.
    UnknownKey(u32),
    /// The content is not the one that was written there.
    NotAuthentic,
    /// The system gives no random numbers.
    NoRandomness,
    /// A file cannot be read or written.
    Io(String, io::Error),
}

impl Error {
    pub(crate) fn io(context: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let context = context.into();
        move |error| Error::Io(context, error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::MasterKey(text) => write!(f, "{text}"),
            Error::WrongMasterKey(path) => write!(
                f,
                "the master key is not the one that {} was written with",
                path.display()
            ),
            Error::KeyStore(path, what) => {
                write!(f, "the key store {} {what}", path.display())
            }
            Error::NoKeyStore(path) => write!(f, "there is no key store {}", path.display()),
            Error::UnknownKey(number) => write!(
                f,
                "it is encrypted with the store key {number}, which the key store does not have"
            ),
            Error::NotAuthentic => {
                write!(f, "it was changed, moved, or replaced by an older content")
            }
            Error::NoRandomness => write!(f, "the system gives no random numbers"),
            Error::Io(context, error) => write!(f, "{context}: {error}"),
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
