//! The meaning of the cluster's errors for the caller.

use std::error::Error as _;

use frond_kv::{Error, TreeId};
use tikv::Error as ClientError;
use tonic::{Code, Status, TimeoutExpired};

use crate::client::keys::Keys;

/// Why a request has failed, as far as that matters for the next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It would fail again.
    Lasting,
    /// A connection broke while the request was under way, or is not there any more.
    Connection,
    /// The client library could not connect to a node that it has not known before.
    Unreached,
    /// It was not answered in time.
    Slow,
    /// A lock is in the way, a region has moved, a node is busy, PD has no leader.
    Passing,
}

/// The failure of a commit.
#[derive(Debug)]
pub(crate) enum CommitFailure {
    /// Another transaction has written one of the keys, or one that must be absent is there. Nothing was committed.
    Conflict(Vec<u8>),
    /// A lock of another transaction, or the lack of a leader, was in the way before anything was committed.
    Blocked(String),
    /// It may have been committed.
    Unknown(String),
}

/// The meaning of a failed commit. `start` is the transaction's own timestamp.
pub(crate) fn of_commit(error: &ClientError, start: u64) -> CommitFailure {
    match error {
        ClientError::KeyError(key) => match &key.conflict {
            // It has met itself: committed or rolled back before.
            Some(conflict) if conflict.conflict_ts == start => {
                CommitFailure::Unknown(error.to_string())
            }
            Some(conflict) => CommitFailure::Conflict(conflict.key.clone()),
            // The first phase has met a key that must be absent.
            None => match &key.already_exist {
                Some(there) => CommitFailure::Conflict(there.key.clone()),
                None => CommitFailure::Unknown(error.to_string()),
            },
        },
        ClientError::MultipleKeyErrors(errors) | ClientError::ExtractedErrors(errors) => {
            let mut failures = errors.iter().map(|error| of_commit(error, start));
            let mut found = failures.next();
            for failure in failures {
                // An unknown outcome decides: the others may be consequences.
                match (&found, failure) {
                    (Some(CommitFailure::Unknown(_)), _) => {}
                    (_, unknown @ CommitFailure::Unknown(_)) => found = Some(unknown),
                    _ => {}
                }
            }
            found.unwrap_or_else(|| CommitFailure::Unknown(error.to_string()))
        }
        // Only the first phase meets locks of others.
        ClientError::ResolveLockError(_) => CommitFailure::Blocked(error.to_string()),
        _ => CommitFailure::Unknown(error.to_string()),
    }
}

/// The meaning of a failed read.
pub(crate) fn of_read(error: &ClientError) -> Fault {
    match error {
        ClientError::KeyError(key) if key.locked.is_none() && key.retryable.is_empty() => {
            Fault::Lasting
        }
        ClientError::MultipleKeyErrors(errors) | ClientError::ExtractedErrors(errors) => {
            let mut faults = errors.iter().map(of_read);
            let first = faults.next().unwrap_or(Fault::Passing);
            faults.fold(first, |worst, fault| match (worst, fault) {
                (Fault::Lasting, _) | (_, Fault::Lasting) => Fault::Lasting,
                (Fault::Passing, fault) => fault,
                (worst, _) => worst,
            })
        }
        ClientError::UndeterminedError(error) => of_read(error),
        ClientError::Grpc(_) => Fault::Unreached,
        ClientError::GrpcAPI(status) => of_status(status),
        ClientError::Io(_) => Fault::Connection,
        ClientError::Unimplemented
        | ClientError::InvalidTransactionType
        | ClientError::OperationAfterCommitError
        | ClientError::MaxScanLimitExceeded { .. }
        | ClientError::Url(_) => Fault::Lasting,
        _ => Fault::Passing,
    }
}

/// Whether a read failed because the answer is larger than the client takes.
pub(crate) fn is_too_large(error: &ClientError) -> bool {
    match error {
        ClientError::GrpcAPI(status) => status.code() == Code::OutOfRange,
        ClientError::MultipleKeyErrors(errors) | ClientError::ExtractedErrors(errors) => {
            errors.iter().any(is_too_large)
        }
        _ => false,
    }
}

/// The meaning of a status, which was sent by the peer, or was made here because of the connection: then it has a cause.
fn of_status(status: &Status) -> Fault {
    let mut cause = status.source();
    let mut is_expired = false;
    while let Some(error) = cause {
        is_expired |= error.is::<TimeoutExpired>();
        cause = error.source();
    }
    match status.code() {
        Code::DeadlineExceeded => Fault::Slow,
        Code::Cancelled if is_expired => Fault::Slow,
        // The answer is larger than the client takes.
        Code::OutOfRange => Fault::Lasting,
        _ if status.source().is_some() => Fault::Connection,
        Code::InvalidArgument
        | Code::Unimplemented
        | Code::PermissionDenied
        | Code::Unauthenticated => Fault::Lasting,
        _ => Fault::Passing,
    }
}

/// The engine's error for a conflict on a stored key. Long keys are found among those that the commit concerns.
pub(crate) fn conflict<'a>(
    keys: &Keys,
    stored: &'a [u8],
    mut concerned: impl Iterator<Item = &'a (TreeId, Vec<u8>)>,
) -> Error {
    let (tree, mut key) = keys.split(stored).unwrap_or((TreeId(0), &[]));
    if keys.is_long(stored)
        && let Some((_, whole)) = concerned.find(|(of, key)| keys.value(*of, key) == stored)
    {
        key = whole;
    }
    Error::Conflict {
        tree,
        key: key.to_vec(),
        held: false,
    }
}

/// Of a value or an entry that cannot be read.
pub(crate) fn malformed(tree: TreeId, key: &[u8]) -> Error {
    Error::CorruptMessage {
        tree,
        key: key.to_vec(),
        what: "the stored form of the value is not known",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_say_what_the_next_attempt_can_expect() {
        let status = |code| ClientError::GrpcAPI(Status::new(code, "of the peer"));
        let caused_by = |cause: Box<dyn std::error::Error + Send + Sync>| {
            ClientError::GrpcAPI(Status::from_error(cause))
        };
        let broken = || {
            let cause = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
            caused_by(Box::new(cause))
        };
        let text = || ClientError::StringError("PD has no leader".to_owned());
        let cases = [
            (status(Code::Unavailable), Fault::Passing),
            (status(Code::ResourceExhausted), Fault::Passing),
            (caused_by(Box::new(TimeoutExpired(()))), Fault::Slow),
            (status(Code::Cancelled), Fault::Passing),
            (status(Code::DeadlineExceeded), Fault::Slow),
            // The test store refuses a scan without a bound with this.
            (status(Code::InvalidArgument), Fault::Lasting),
            (status(Code::Unimplemented), Fault::Lasting),
            (status(Code::OutOfRange), Fault::Lasting),
            (broken(), Fault::Connection),
            (ClientError::Unimplemented, Fault::Lasting),
            (text(), Fault::Passing),
            (ClientError::ResolveLockError(Vec::new()), Fault::Passing),
            (
                ClientError::UndeterminedError(Box::new(broken())),
                Fault::Connection,
            ),
            (
                ClientError::ExtractedErrors(vec![text(), broken(), text()]),
                Fault::Connection,
            ),
            (
                ClientError::MultipleKeyErrors(vec![broken(), status(Code::Unimplemented), text()]),
                Fault::Lasting,
            ),
            (ClientError::ExtractedErrors(Vec::new()), Fault::Passing),
        ];
        for (error, fault) in cases {
            assert_eq!(of_read(&error), fault, "{error:?}");
        }
    }

    #[test]
    fn a_commit_that_got_no_answer_may_have_taken_place() {
        for error in [
            ClientError::GrpcAPI(Status::new(Code::Cancelled, "no answer")),
            ClientError::UndeterminedError(Box::new(ClientError::Unimplemented)),
            ClientError::ExtractedErrors(Vec::new()),
        ] {
            assert!(
                matches!(of_commit(&error, 7), CommitFailure::Unknown(_)),
                "{error:?}"
            );
        }
        let locked = ClientError::ResolveLockError(Vec::new());
        assert!(matches!(of_commit(&locked, 7), CommitFailure::Blocked(_)));
    }
}
