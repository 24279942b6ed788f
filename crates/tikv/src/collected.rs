//! Figures of the garbage collector.

/// The work of one run of the collector, or of all runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Collected {
    /// The safepoint of the last run.
    pub safepoint: u64,
    /// Whether TiKV uses it, too; otherwise another service still needs older versions, or PD has not taken it.
    pub was_moved: bool,
    /// Dropped trees whose keys were deleted.
    pub trees: u64,
    /// Large values that were deleted.
    pub values: u64,
    /// Counters' keys of gone instances that were folded.
    pub counters: u64,
    /// Gone instances whose records were deleted.
    pub instances: u64,
}
