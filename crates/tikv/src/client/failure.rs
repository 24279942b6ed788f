//! The meaning of the cluster's errors for the caller.

use frond_kv::{Error, TreeId};
use tikv::Error as ClientError;

use crate::client::keys::Keys;

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

/// Whether a read may succeed when it is tried again.
pub(crate) fn may_pass(error: &ClientError) -> bool {
    match error {
        ClientError::KeyError(key) => key.locked.is_some() || !key.retryable.is_empty(),
        ClientError::MultipleKeyErrors(errors) | ClientError::ExtractedErrors(errors) => {
            errors.iter().all(may_pass)
        }
        ClientError::Unimplemented
        | ClientError::InvalidTransactionType
        | ClientError::OperationAfterCommitError
        | ClientError::MaxScanLimitExceeded { .. }
        | ClientError::Url(_) => false,
        _ => true,
    }
}

/// The engine's error for a conflict on a stored key.
pub(crate) fn conflict(keys: &Keys, key: &[u8]) -> Error {
    let (tree, key) = keys.split(key).unwrap_or((TreeId(0), &[]));
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
