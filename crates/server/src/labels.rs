//! `errorLabels`: what a driver may do about an error.
//!
//! `TransientTransactionError` says that the whole transaction may be run again, `RetryableWriteError` that the same command
//! may be sent again, `ResumableChangeStreamError` that a change stream may be opened again behind its last event, and
//! `NonResumableChangeStreamError` that it may not. `UnknownTransactionCommitResult` is added by drivers themselves, after a
//! commit whose outcome they do not know.

use frond_bson::{ArrayBuf, Doc, DocBuf};
use frond_error::ErrorCode;

/// The whole transaction may be run again.
pub const TRANSIENT_TRANSACTION: &str = "TransientTransactionError";

/// The same command may be sent again.
pub const RETRYABLE_WRITE: &str = "RetryableWriteError";

/// A change stream may be opened again behind its last event.
pub const RESUMABLE_CHANGE_STREAM: &str = "ResumableChangeStreamError";

/// A change stream cannot go on, also when it is opened again.
pub const NON_RESUMABLE_CHANGE_STREAM: &str = "NonResumableChangeStreamError";

/// The label of an error as far as change streams are concerned. `is_change_stream` indicates whether the command opens or reads
/// one; it is called only if the answer matters.
pub fn of_change_stream(
    code: ErrorCode,
    is_change_stream: impl FnOnce() -> bool,
) -> Option<&'static str> {
    const STALE_SHARD_VERSION: i32 = 63;
    const FAILED_TO_SATISFY_READ_PREFERENCE: i32 = 133;
    const STALE_EPOCH: i32 = 150;
    const RETRY_CHANGE_STREAM: i32 = 234;
    const STALE_CONFIG: i32 = 13388;
    let may_resume = code.is_retriable()
        || matches!(
            code.code(),
            STALE_SHARD_VERSION
                | FAILED_TO_SATISFY_READ_PREFERENCE
                | STALE_EPOCH
                | RETRY_CHANGE_STREAM
                | STALE_CONFIG
        );
    // Of every command, as in MongoDB: other commands do not fail with these.
    const CHANGE_STREAM_FATAL_ERROR: i32 = 280;
    const CHANGE_STREAM_HISTORY_LOST: i32 = 286;
    match code.code() {
        CHANGE_STREAM_FATAL_ERROR | CHANGE_STREAM_HISTORY_LOST => Some(NON_RESUMABLE_CHANGE_STREAM),
        _ if may_resume && is_change_stream() => Some(RESUMABLE_CHANGE_STREAM),
        _ => None,
    }
}

/// The unit of work that a command is part of, as far as its labels depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Neither a retryable write nor a transaction.
    Nothing,
    RetryableWrite,
    /// A statement of a transaction.
    Statement,
    /// The end of a transaction: `commitTransaction` or `abortTransaction`.
    End,
}

impl Part {
    /// The unit of work by the command's fields, which may be wrong otherwise.
    pub fn from_command(body: &Doc) -> Part {
        let name = body.first().map_or("", |(name, _)| name);
        match (
            body.contains_key("txnNumber"),
            body.contains_key("autocommit"),
        ) {
            (false, _) => Part::Nothing,
            (true, false) => Part::RetryableWrite,
            (true, true) if matches!(name, "commitTransaction" | "abortTransaction") => Part::End,
            (true, true) => Part::Statement,
        }
    }

    /// The label of an error, or of the `writeConcernError` of a command that succeeded otherwise.
    pub fn label(
        self,
        error: Option<ErrorCode>,
        write_concern_error: Option<ErrorCode>,
    ) -> Option<&'static str> {
        let is_transient = error.is_some_and(|code| match self {
            Part::Nothing | Part::RetryableWrite => false,
            Part::Statement => ends_transaction_for_now(code),
            // The outcome of a commit that failed for another reason may be unknown.
            Part::End => {
                is_conflict(code)
                    || (code == ErrorCode::NoSuchTransaction && write_concern_error.is_none())
            }
        });
        if is_transient {
            return Some(TRANSIENT_TRANSACTION);
        }
        let is_retriable = |code: Option<ErrorCode>| code.is_some_and(ErrorCode::is_retriable);
        let may_be_sent_again = matches!(self, Part::RetryableWrite | Part::End);
        (may_be_sent_again && (is_retriable(error) || is_retriable(write_concern_error)))
            .then_some(RETRYABLE_WRITE)
    }
}

/// Whether a statement's error ends its transaction, and the transaction may succeed when it is run again. Such an error is
/// always one of the whole command.
pub fn ends_transaction_for_now(code: ErrorCode) -> bool {
    is_conflict(code) || code == ErrorCode::NoSuchTransaction || code.is_retriable()
}

/// Codes of conflicts between transactions, of snapshots that cannot be read any more, and of locks that others hold.
fn is_conflict(code: ErrorCode) -> bool {
    const LOCK_TIMEOUT: i32 = 24;
    const SNAPSHOT_UNAVAILABLE: i32 = 246;
    const PREPARED_TRANSACTION_IN_PROGRESS: i32 = 267;
    const TEMPORARILY_UNAVAILABLE: i32 = 365;
    matches!(code, ErrorCode::WriteConflict | ErrorCode::SnapshotTooOld)
        || matches!(
            code.code(),
            LOCK_TIMEOUT
                | SNAPSHOT_UNAVAILABLE
                | PREPARED_TRANSACTION_IN_PROGRESS
                | TEMPORARILY_UNAVAILABLE
        )
}

/// Adds `errorLabels` to a reply. Those of a fail point replace the others, also if there are none.
pub fn write(reply: &mut DocBuf, forced: Option<&ArrayBuf>, label: Option<&str>) {
    match forced {
        Some(forced) if forced.is_empty() => {}
        Some(forced) => {
            reply.push("errorLabels", forced);
        }
        None => {
            if let Some(label) = label {
                reply.push_array("errorLabels", |labels| labels.push(label));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use frond_bson::doc;

    use super::*;

    #[test]
    fn the_fields_of_a_command_tell_what_it_is_part_of() {
        for (body, expected) in [
            (doc! {"insert": "c"}, Part::Nothing),
            (
                doc! {"insert": "c", "txnNumber": 1i64},
                Part::RetryableWrite,
            ),
            (
                doc! {"insert": "c", "txnNumber": 1i64, "autocommit": false},
                Part::Statement,
            ),
            (doc! {"commitTransaction": 1}, Part::Nothing),
            (
                doc! {"commitTransaction": 1, "txnNumber": 1i64, "autocommit": false},
                Part::End,
            ),
            (
                doc! {"abortTransaction": 1, "txnNumber": 1i64, "autocommit": false},
                Part::End,
            ),
        ] {
            assert_eq!(Part::from_command(&body), expected, "{body:?}");
        }
    }

    #[test]
    fn labels_follow_the_error_and_what_the_command_is_part_of() {
        const T: Option<&str> = Some(TRANSIENT_TRANSACTION);
        const R: Option<&str> = Some(RETRYABLE_WRITE);
        // The code, and the label outside, of a retryable write, of a statement, and of a commit.
        let cases = [
            (112, [None, None, T, T]),
            (24, [None, None, T, T]),
            (239, [None, None, T, T]),
            (246, [None, None, T, T]),
            (267, [None, None, T, T]),
            (251, [None, None, T, T]),
            (267, [None, None, T, T]),
            (262, [None, R, T, R]),
            (6, [None, R, T, R]),
            (91, [None, R, T, R]),
            (11600, [None, R, T, R]),
            (10107, [None, R, T, R]),
            (50, [None, None, None, None]),
            (64, [None, None, None, None]),
            (256, [None, None, None, None]),
            (263, [None, None, None, None]),
            (290, [None, None, None, None]),
            (11000, [None, None, None, None]),
            (11601, [None, None, None, None]),
        ];
        let parts = [
            Part::Nothing,
            Part::RetryableWrite,
            Part::Statement,
            Part::End,
        ];
        for (code, expected) in cases {
            let code = ErrorCode::from_code(code);
            let labels = parts.map(|part| part.label(Some(code), None));
            assert_eq!(labels, expected, "{code:?}");
        }
        for (code, expected) in [(91, [None, R, None, R]), (64, [None; 4]), (251, [None; 4])] {
            let code = ErrorCode::from_code(code);
            let labels = parts.map(|part| part.label(None, Some(code)));
            assert_eq!(labels, expected, "writeConcernError {code:?}");
        }
        let gone = ErrorCode::NoSuchTransaction;
        assert_eq!(
            Part::End.label(Some(gone), Some(ErrorCode::from_code(64))),
            None
        );
    }

    #[test]
    fn errors_of_change_streams_tell_whether_to_resume() {
        for code in [
            6, 7, 63, 89, 91, 133, 150, 189, 234, 262, 9001, 10107, 11600, 11602, 13388, 13435,
            13436,
        ] {
            let code = ErrorCode::from_code(code);
            assert_eq!(
                of_change_stream(code, || true),
                Some(RESUMABLE_CHANGE_STREAM)
            );
            assert_eq!(of_change_stream(code, || false), None, "{code:?}");
        }
        for code in [280, 286] {
            let code = ErrorCode::from_code(code);
            assert_eq!(
                of_change_stream(code, || true),
                Some(NON_RESUMABLE_CHANGE_STREAM)
            );
        }
        // A driver resumes after CursorNotFound by itself.
        for code in [2, 43, 50, 136, 216, 237, 260, 11601, 40573] {
            let code = ErrorCode::from_code(code);
            assert_eq!(of_change_stream(code, || true), None, "{code:?}");
        }
    }

    #[test]
    fn labels_of_a_fail_point_replace_the_others() {
        let forced: ArrayBuf = ["Other"].into_iter().collect();
        let mut reply = doc! {};
        write(&mut reply, Some(&forced), Some(RETRYABLE_WRITE));
        assert_eq!(reply, doc! {"errorLabels": ["Other"]});
        let mut reply = doc! {};
        write(&mut reply, Some(&ArrayBuf::new()), Some(RETRYABLE_WRITE));
        assert_eq!(reply, doc! {});
        write(&mut reply, None, Some(RETRYABLE_WRITE));
        assert_eq!(reply, doc! {"errorLabels": ["RetryableWriteError"]});
    }
}
