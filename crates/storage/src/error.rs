//! The error of the store: what a client did wrong, or what the engine reports.

use std::fmt;

use frond_bson::Doc;
use frond_error::{Error as CommandError, ErrorCode};
use frond_query::paths::MultikeyPaths;

use crate::keyspace::{EngineError, TreeId};

/// Result of every operation of the store.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The message of error 112.
const CONFLICT: &str = "Plan executor error during write :: caused by :: WriteConflict error: this operation conflicted with \
                        another operation. Please retry your operation or multi-document transaction.";

/// Why an operation failed.
#[derive(Debug)]
pub enum Error {
    /// An error for the client, with MongoDB's code and message.
    Command(CommandError),
    /// The engine failed: I/O, a checksum, a full disk, or a conflict that outlasted every retry.
    Engine(EngineError),
    /// A commit needs multikey paths that other servers have to know first. The retry of the write announces them.
    #[doc(hidden)]
    Unannounced(Box<Unannounced>),
}

/// Multikey paths that other servers have to know before a commit.
#[derive(Clone, Debug)]
pub struct Unannounced {
    pub uuid: [u8; 16],
    /// The trees of the indexes, and their new paths.
    pub paths: Vec<(TreeId, MultikeyPaths)>,
}

impl Error {
    /// The code for the reply. Failures of the engine have codes too: `WriteConflict` (112) for a
    /// conflict that outlasted the retries, `NotWritablePrimary` (10107), `DataCorruptionDetected` (301), `BadValue` (2) for an
    /// option, 17280 for a key above the engine's limit, `BSONObjectTooLarge` (10334) for a value, `TransactionTooLargeForCache` (388), `InterruptedAtShutdown` (11600) after a close,
    /// `OutOfDiskSpace` (14031), `ChangeStreamHistoryLost` (286) for a part of the log that is not kept, `ExceededTimeLimit` (262) for a write that cannot proceed for now, which drivers retry;
    /// `InternalError` (1) for the others, also for a store that stopped after a failure: drivers take 11600 for a
    /// shutdown, though this server still reads.
    pub fn code(&self) -> ErrorCode {
        match self {
            Error::Command(error) => error.code(),
            Error::Unannounced(_) => ErrorCode::WriteConflict,
            Error::Engine(error) => match error {
                // The commit has waited for longer than stamps are reserved ahead.
                EngineError::Conflict { .. } | EngineError::NoStamp => ErrorCode::WriteConflict,
                EngineError::Corrupt { .. }
                | EngineError::CorruptMessage { .. }
                | EngineError::Unreadable { .. } => ErrorCode::DataCorruptionDetected,
                // The code that MongoDB had for keys above its limit.
                EngineError::TooLarge { what: "key", .. } => ErrorCode::Location(17280),
                // A document, or an entry of the oplog that has a large `_id` besides its document.
                EngineError::TooLarge { what: "value", .. } => ErrorCode::BSONObjectTooLarge,
                EngineError::TooLarge { .. } => ErrorCode::TransactionTooLargeForCache,
                EngineError::OutOfMemory { .. } => ErrorCode::ExceededMemoryLimit,
                EngineError::Closed(_) if error.is_close() => ErrorCode::InterruptedAtShutdown,
                EngineError::InvalidOption(_) => ErrorCode::BadValue,
                EngineError::LogGone { .. } => ErrorCode::ChangeStreamHistoryLost,
                error if error.is_disk_full() => ErrorCode::OutOfDiskSpace,
                EngineError::Stalled { .. } => ErrorCode::ExceededTimeLimit,
                // Drivers try both again: the records of retryable writes show what was done.
                EngineError::Unavailable(_) | EngineError::OutcomeUnknown(_) => {
                    ErrorCode::HostUnreachable
                }
                EngineError::SnapshotLost { .. } => ErrorCode::SnapshotTooOld,
                EngineError::Unsupported(_) => ErrorCode::CommandNotSupported,
                EngineError::NotLeading => ErrorCode::NotWritablePrimary,
                EngineError::Interrupted { timed_out: true } => ErrorCode::MaxTimeMSExpired,
                EngineError::Interrupted { timed_out: false } => ErrorCode::Interrupted,
                EngineError::Closed(_)
                | EngineError::Failed(_)
                | EngineError::Internal(_)
                | EngineError::MustReopen
                | EngineError::Io { .. }
                | EngineError::UnknownTree(_)
                | EngineError::NotLoading(_)
                | EngineError::Duplicate { .. } => ErrorCode::InternalError,
            },
        }
    }

    /// The message for the reply.
    pub fn message(&self) -> String {
        match self {
            Error::Command(error) => error.message().to_owned(),
            Error::Unannounced(_) => CONFLICT.to_owned(),
            Error::Engine(EngineError::Conflict { .. } | EngineError::NoStamp) => {
                CONFLICT.to_owned()
            }
            Error::Engine(EngineError::Closed(failure))
                if self.code() == ErrorCode::InternalError =>
            {
                format!(
                    "the store has failed and takes no writes until the server is restarted: {failure}"
                )
            }
            Error::Engine(error) => error.to_string(),
        }
    }

    /// Further fields for the reply, as `keyPattern` and `keyValue` of a duplicate key.
    pub fn details(&self) -> Option<&Doc> {
        match self {
            Error::Command(error) => error.details(),
            Error::Engine(_) | Error::Unannounced(_) => None,
        }
    }

    /// The same error with a prefix for the plan that has failed, as MongoDB gives it to errors that are not those of a
    /// request's fields.
    pub fn in_execution(self, plan: impl fmt::Display) -> Error {
        match self {
            Error::Command(error) => error.context(plan).into(),
            other => other,
        }
    }

    /// Whether another transaction was faster. Such an operation may be tried again from its start.
    pub fn is_conflict(&self) -> bool {
        self.code() == ErrorCode::WriteConflict
    }

    /// Whether stored data is damaged or cannot be read.
    pub fn is_damage(&self) -> bool {
        matches!(self, Error::Engine(error) if error.is_damage())
    }

    /// Whether the disk is full.
    pub fn is_disk_full(&self) -> bool {
        self.code() == ErrorCode::OutOfDiskSpace
    }

    /// Whether a unique index refused the document.
    pub fn is_duplicate_key(&self) -> bool {
        matches!(self, Error::Command(error) if error.code() == ErrorCode::DuplicateKey)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Command(error) => error.fmt(f),
            Error::Engine(error) => error.fmt(f),
            Error::Unannounced(_) => f.write_str(CONFLICT),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Command(_) | Error::Unannounced(_) => None,
            Error::Engine(error) => Some(error),
        }
    }
}

impl From<CommandError> for Error {
    fn from(error: CommandError) -> Error {
        Error::Command(error)
    }
}

impl From<Error> for CommandError {
    fn from(error: Error) -> CommandError {
        match error {
            Error::Command(error) => error,
            Error::Engine(_) | Error::Unannounced(_) => {
                CommandError::new(error.code(), error.message())
            }
        }
    }
}

impl From<EngineError> for Error {
    fn from(error: EngineError) -> Error {
        Error::Engine(error)
    }
}

/// An error for the client.
#[cold]
pub fn command(code: ErrorCode, message: impl Into<String>) -> Error {
    Error::Command(CommandError::new(code, message))
}

/// Error 112 of a transaction that cannot be committed because of what others did. Nothing tries it again here.
#[cold]
pub fn write_conflict() -> Error {
    command(ErrorCode::WriteConflict, CONFLICT)
}

/// The error of a commit that is applied and was to be synced. It is not one that asks for another try.
#[cold]
pub fn not_durable(error: EngineError) -> Error {
    command(
        ErrorCode::WriteConcernTimeout,
        format!("the write is applied, but the journal is not synced yet: {error}"),
    )
}

/// A stored structure that cannot be read, though its checksum was right: a bug of the server.
#[cold]
pub fn corrupt(what: impl fmt::Display) -> Error {
    command(
        ErrorCode::DataCorruptionDetected,
        format!("stored data is damaged: {what}"),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::error::Error as _;
    use std::io::{self, ErrorKind};

    use super::*;

    #[test]
    fn a_write_that_cannot_proceed_for_now_may_be_retried() {
        let stalled = |disk_full| {
            let reason = "reading 4096 bytes of data at 8192: Input/output error".to_owned();
            Error::from(EngineError::Stalled { disk_full, reason })
        };
        assert_eq!(stalled(false).code(), ErrorCode::ExceededTimeLimit);
        assert!(stalled(false).message().contains("Input/output error"));
        assert_eq!(stalled(true).code(), ErrorCode::OutOfDiskSpace);
    }

    #[test]
    fn a_store_that_failed_is_not_one_that_was_closed() {
        let closed = Error::from(EngineError::Closed("close was called".to_owned()));
        assert_eq!(closed.code(), ErrorCode::InterruptedAtShutdown);
        let failed = Error::from(EngineError::Closed("the log failed: EIO".to_owned()));
        assert_eq!(failed.code(), ErrorCode::InternalError);
        let message = failed.message();
        assert!(
            message.contains("restarted") && message.contains("EIO"),
            "{message}"
        );
        let too_large = |what| {
            let (bytes, limit) = (10, 9);
            Error::from(EngineError::TooLarge { what, bytes, limit }).code()
        };
        assert_eq!(too_large("key"), ErrorCode::Location(17280));
        assert_eq!(too_large("value"), ErrorCode::BSONObjectTooLarge);
        assert_eq!(
            too_large("write set"),
            ErrorCode::TransactionTooLargeForCache
        );
        // A copy, a cursor or a load that fails leaves the store as it is.
        let copy = Error::from(EngineError::Failed("no checkpoint".to_owned()));
        assert_eq!(copy.code(), ErrorCode::InternalError);
        assert_eq!(copy.message(), "no checkpoint");
    }

    #[test]
    fn the_error_of_the_engine_is_the_source() {
        let error = Error::from(EngineError::Io {
            context: "writing data".to_owned(),
            source: io::Error::from(ErrorKind::StorageFull),
        });
        assert_eq!(error.code(), ErrorCode::OutOfDiskSpace);
        let source = error.source().unwrap();
        assert!(source.downcast_ref::<EngineError>().is_some());
        let cause = source
            .source()
            .unwrap()
            .downcast_ref::<io::Error>()
            .unwrap();
        assert_eq!(cause.kind(), ErrorKind::StorageFull);
        assert!(command(ErrorCode::BadValue, "x").source().is_none());
    }
}
