//! Errors of a member that may not serve a request, with the texts that drivers and applications know.

use frond_error::{Error, ErrorCode, Result};

use crate::state::State;

/// The kind of access that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Every member serves it, in any state.
    Any,
    /// A read. `secondary_ok` is true for a read preference other than `primary`.
    Read {
        /// Whether a secondary may serve it.
        secondary_ok: bool,
    },
    /// A write, which only the primary serves.
    Write,
}

/// Whether a member may serve a request now. `takes_writes` is false for a primary that still catches up or steps down.
///
/// # Errors
/// `NotWritablePrimary` (10107), `NotPrimaryNoSecondaryOk` (13435), `NotPrimaryOrSecondary` (13436).
pub fn check_access(state: State, takes_writes: bool, access: Access) -> Result<()> {
    let is_primary = state == State::Primary && takes_writes;
    match access {
        Access::Any => Ok(()),
        _ if is_primary => Ok(()),
        Access::Write => Err(Error::new(ErrorCode::NotWritablePrimary, "not primary")),
        Access::Read {
            secondary_ok: false,
        } => Err(Error::new(
            ErrorCode::NotPrimaryNoSecondaryOk,
            "not primary and secondaryOk=false",
        )),
        Access::Read { secondary_ok: true } if state.is_readable() => Ok(()),
        Access::Read { secondary_ok: true } => Err(Error::new(
            ErrorCode::NotPrimaryOrSecondary,
            if state == State::Recovering {
                "node is recovering"
            } else {
                "node is not in primary or recovering state"
            },
        )),
    }
}

/// Whether an error is one of [`check_access`].
pub fn is_refusal(error: &Error) -> bool {
    matches!(
        error.code(),
        ErrorCode::NotWritablePrimary
            | ErrorCode::NotPrimaryNoSecondaryOk
            | ErrorCode::NotPrimaryOrSecondary
    )
}

/// `NotPrimaryOrSecondary` (13436): a read of the oplog, which changes in these states.
pub fn oplog_unreadable() -> Error {
    Error::new(
        ErrorCode::NotPrimaryOrSecondary,
        "Oplog collection reads are not allowed while in the rollback or startup state.",
    )
}

/// `PrimarySteppedDown` (189): the write is applied, and its write concern cannot be waited for here any more.
pub fn stepped_down() -> Error {
    Error::new(
        ErrorCode::PrimarySteppedDown,
        "Primary stepped down while waiting for replication",
    )
}

/// `InterruptedDueToReplStateChange` (11602): the member became or ceased to be the primary during the operation.
pub fn interrupted() -> Error {
    Error::new(
        ErrorCode::InterruptedDueToReplStateChange,
        "operation was interrupted",
    )
}

/// `NotYetInitialized` (94): there is no configuration yet.
pub fn not_yet_initialized() -> Error {
    Error::new(
        ErrorCode::NotYetInitialized,
        "no replset config has been received",
    )
}

/// `ExceededTimeLimit` (262): a primary that found no member to step down for. `now` is the time, as text.
pub fn no_successor(now: &str) -> Error {
    Error::new(
        ErrorCode::ExceededTimeLimit,
        format!(
            "No electable secondaries caught up as of {now}. Please use the replSetStepDown command with the argument \
             {{force: true}} to force node to step down."
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// See the manual on read preferences, and the specification of server discovery on these codes.
    #[test]
    fn a_state_decides_on_a_request() {
        let read = |secondary_ok| Access::Read { secondary_ok };
        let secondary_only = "not primary and secondaryOk=false";
        let neither = "node is not in primary or recovering state";
        for (state, takes_writes, access, expected) in [
            (State::Primary, true, Access::Write, None),
            (State::Primary, true, read(false), None),
            (State::Primary, true, read(true), None),
            (
                State::Primary,
                false,
                Access::Write,
                Some((10107, "not primary")),
            ),
            (
                State::Primary,
                false,
                read(false),
                Some((13435, secondary_only)),
            ),
            (State::Primary, false, read(true), None),
            (
                State::Secondary,
                false,
                Access::Write,
                Some((10107, "not primary")),
            ),
            (
                State::Secondary,
                false,
                read(false),
                Some((13435, secondary_only)),
            ),
            (State::Secondary, false, read(true), None),
            (State::Secondary, false, Access::Any, None),
            (
                State::Recovering,
                false,
                Access::Write,
                Some((10107, "not primary")),
            ),
            (
                State::Recovering,
                false,
                read(false),
                Some((13435, secondary_only)),
            ),
            (
                State::Recovering,
                false,
                read(true),
                Some((13436, "node is recovering")),
            ),
            (State::Startup, false, read(true), Some((13436, neither))),
            (State::Startup2, false, read(true), Some((13436, neither))),
            (State::Rollback, false, read(true), Some((13436, neither))),
            (State::Removed, false, read(true), Some((13436, neither))),
            (State::Removed, false, Access::Any, None),
        ] {
            let refused = check_access(state, takes_writes, access).err();
            let shown = refused.as_ref().map(|e| (e.code().code(), e.message()));
            assert_eq!(shown, expected, "{state:?} {access:?}");
        }
    }

    #[test]
    fn further_errors_have_their_codes() {
        for (error, code, name) in [
            (oplog_unreadable(), 13436, "NotPrimaryOrSecondary"),
            (stepped_down(), 189, "PrimarySteppedDown"),
            (interrupted(), 11602, "InterruptedDueToReplStateChange"),
            (not_yet_initialized(), 94, "NotYetInitialized"),
            (no_successor("now"), 262, "ExceededTimeLimit"),
        ] {
            assert_eq!((error.code().code(), &*error.code().name()), (code, name));
        }
    }
}
