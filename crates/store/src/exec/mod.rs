//! Running plans: [`key_scan`] reads keys within bounds, [`access`] turns them into documents that
//! pass a filter, [`sort`] orders them, [`cursor`] is what a client pulls from.

pub mod access;
pub mod cursor;
pub mod key_scan;
pub mod sort;

/// What a plan has looked at, for `explain` and the profiler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExecStats {
    /// Index keys, and documents of a bounded scan over `_id`.
    pub keys_examined: u64,
    /// Documents.
    pub docs_examined: u64,
    /// Jumps over keys that cannot match.
    pub seeks: u64,
    /// Documents that passed the filter, before sort, skip and limit.
    pub passed: u64,
    /// Documents dropped because they were seen before.
    pub dups_dropped: u64,
}
