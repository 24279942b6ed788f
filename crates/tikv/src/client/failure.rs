//! The meaning of the cluster's errors for the caller.

use frond_kv::{Error, TreeId};
use tikv::Error as ClientError;

use crate::client::keys::Keys;

/// The failure of a commit.
#[derive(Debug)]
pub(crate) enum CommitFailure {
    /// Another transaction has written one of the keys. Nothing was committed.
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
            None => CommitFailure::Unknown(error.to_string()),
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
