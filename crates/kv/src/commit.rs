//! The durability and the result of a commit.

/// When a commit returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// After the append to the log, which is synced at intervals. A crash of the process does not lose the commit; a crash
    /// of the machine may, until the next sync.
    Logged,
    /// After the sync of the log.
    Synced,
}

/// The result of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Committed {
    /// The first of the stamps that it has taken, if it had stamped keys.
    pub first_stamp: Option<u64>,
}
