//! Running plans: [`key_scan`] reads keys within bounds, [`access`] turns them into documents that
//! pass a filter, [`sort`] orders them, [`cursor`] is what a client pulls from,
//! [`tail`] waits for more.

pub mod access;
pub mod cursor;
pub mod key_scan;
mod near;
pub mod sort;
pub mod tail;

use crate::record;

/// What a plan has looked at, for `explain` and the profiler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExecStats {
    /// Index keys, and documents of a bounded scan over `_id`.
    pub keys_examined: u64,
    /// Documents.
    pub docs_examined: u64,
    /// Those of them that are stored in parts.
    pub large_examined: u64,
    /// Searches for a key in an index: one for the first key, and one for each jump over keys that cannot match.
    pub seeks: u64,
    /// Documents that passed the filter, before sort, skip and limit.
    pub passed: u64,
    /// Documents dropped because they were seen before.
    pub dups_dropped: u64,
    /// After this much work the scan pauses. For trial runs.
    pub(crate) work_max: Option<u64>,
}

impl ExecStats {
    /// Counts a document, by its record.
    pub(crate) fn examine(&mut self, stored: &[u8]) {
        self.docs_examined += 1;
        self.large_examined += u64::from(record::is_in_parts(stored));
    }

    /// Units of work: keys and documents looked at.
    pub fn work(&self) -> u64 {
        self.keys_examined + self.docs_examined
    }

    /// Whether the work of a trial run is done.
    pub(crate) fn is_out_of_work(&self) -> bool {
        self.work_max.is_some_and(|max| self.work() >= max)
    }
}
