//! Statistics of a server's requests to the cluster.

use crate::collected::Collected;

/// Requests of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requests {
    /// A request to several regions at once counts as one.
    pub count: u64,
    /// Their time in all, with repeated attempts.
    pub micros: u64,
}

/// The old versions that PD keeps for this server. All timestamps are those of PD.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeptVersions {
    /// Those that snapshots from this timestamp on see.
    pub from: u64,
    /// Those that only snapshots before this timestamp see may be gone; 0 if none are.
    pub lost_before: u64,
    /// Registrations that PD has refused.
    pub refusals: u64,
    /// Registrations without an answer.
    pub failures: u64,
}

/// Requests since the cluster was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClusterStats {
    pub timestamps: Requests,
    /// Look-ups of one key or many.
    pub gets: Requests,
    pub scans: Requests,
    /// Transactions that were sent.
    pub commits: Requests,
    /// Questions to PD about regions and safepoints.
    pub regions: Requests,
    /// Requests of the garbage collector for many keys at once.
    pub collector: Requests,
    /// Commits that met another one, or a fence.
    pub conflicts: u64,
    /// Commits whose outcome was not reported and could not be found out.
    pub unknown_outcomes: u64,
    /// Requests that were repeated.
    pub retries: u64,
    /// The number of times that all connections were made again, because they were stuck or needed another time limit.
    pub reconnections: u64,
    /// The time limit of one request, in milliseconds. It grows while nodes are slow.
    pub limit_ms: u64,
    /// Steps that came one after the other, each waiting for an answer.
    pub round_trips: u64,
    pub kept: KeptVersions,
    /// The work of the garbage collector on this server.
    pub collected: Collected,
}
