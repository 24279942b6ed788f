//! The statistics of an operator, which `explain` shows.

use std::time::Duration;

use frond_storage::record;

/// The statistics of one operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperatorStats {
    /// Units of work of an operator without inputs: keys and documents that it examined.
    pub works: u64,
    /// Rows that it returned.
    pub advanced: u64,
    /// Index keys, and documents of a bounded scan over `_id`.
    pub keys_examined: u64,
    pub docs_examined: u64,
    /// Those of them that are stored in parts.
    pub large_examined: u64,
    /// Documents that the input had read already.
    pub already_read: u64,
    /// Searches for a key in an index: one for the first key, and one for each jump over keys that cannot match.
    pub seeks: u64,
    /// Rows that were compared with those seen before.
    pub dups_tested: u64,
    /// Rows dropped because they were seen before.
    pub dups_dropped: u64,
    /// Whether it reached its end.
    pub ended: bool,
    /// The time that it and its inputs took, if times are measured.
    pub time: Duration,
}

impl OperatorStats {
    /// Counts a document, by its record.
    pub fn examine(&mut self, record: &[u8]) {
        self.docs_examined += 1;
        self.large_examined += u64::from(record::is_in_parts(record));
    }
}
