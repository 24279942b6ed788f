//! Logical sessions and transactions.

use crate::commands::spec::Command;

pub mod abort_transaction;
pub mod commit_transaction;
pub mod end_sessions;
pub mod kill_all_sessions;
pub mod kill_all_sessions_by_pattern;
pub mod kill_sessions;
pub mod refresh_sessions;
pub mod start_session;

pub static COMMANDS: &[&dyn Command] = &[
    &abort_transaction::AbortTransaction,
    &commit_transaction::CommitTransaction,
    &end_sessions::EndSessions,
    &kill_all_sessions::KillAllSessions,
    &kill_all_sessions_by_pattern::KillAllSessionsByPattern,
    &kill_sessions::KillSessions,
    &refresh_sessions::RefreshSessions,
    &start_session::StartSession,
];
