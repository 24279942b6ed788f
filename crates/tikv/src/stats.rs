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
    /// Commits whose outcome was not told and could not be found out.
    pub unknown_outcomes: u64,
    /// Requests that were repeated.
    pub retries: u64,
    /// How often all connections were made again, because they were stuck or needed another time limit.
    pub reconnections: u64,
    /// The time limit of one request, in milliseconds. It grows while nodes are slow.
    pub limit_ms: u64,
    /// Steps that came one after the other, each waiting for an answer.
    pub round_trips: u64,
    /// The work of the garbage collector on this server.
    pub collected: Collected,
}
