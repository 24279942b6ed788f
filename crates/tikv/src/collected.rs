//! Figures of the garbage collector.

/// The work of one run of the collector, or of all runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Collected {
    /// The safepoint of the last run: what no server of the deployment needs any more.
    pub safepoint: u64,
    /// The safepoint of TiKV after the last run. It is an earlier one if another user of the cluster needs older versions.
    pub moved_to: u64,
    /// Whether TiKV uses the safepoint of the run, but for the seconds between two registrations of a server; otherwise another
    /// user still needs older versions, or PD has not taken it.
    pub was_moved: bool,
    /// Runs that ended with an error.
    pub failed_runs: u64,
    /// Dropped trees whose keys were deleted.
    pub trees: u64,
    /// Large values that were deleted.
    pub values: u64,
    /// Counters' keys of gone instances that were folded.
    pub counters: u64,
    /// Gone instances whose records were deleted.
    pub instances: u64,
}
