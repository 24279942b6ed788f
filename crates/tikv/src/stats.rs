//! Statistics of a server's requests to the cluster.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::collected::Collected;
use crate::connection::{Calls, Kind};
use crate::shared::Shared;

/// Requests of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requests {
    /// How many. A request to several regions at once counts as one.
    pub count: u64,
    /// How long they took together, with what was tried again.
    pub micros: u64,
}

/// Requests since the cluster was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClusterStats {
    /// Timestamps asked for.
    pub timestamps: Requests,
    /// Look-ups of one key or many.
    pub gets: Requests,
    /// Pages of ranges.
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
    /// Steps that came one after the other, each waiting for an answer.
    pub round_trips: u64,
    /// What the garbage collector has done on this server.
    pub collected: Collected,
}

impl ClusterStats {
    pub(crate) fn of(shared: &Shared) -> ClusterStats {
        let calls: &Calls = &shared.connection.calls;
        let figure = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let requests = |kind| {
            let timed = calls.of(kind);
            Requests {
                count: figure(&timed.count),
                micros: figure(&timed.micros),
            }
        };
        ClusterStats {
            timestamps: requests(Kind::Timestamp),
            gets: requests(Kind::Get),
            scans: requests(Kind::Scan),
            commits: requests(Kind::Commit),
            regions: requests(Kind::Region),
            collector: requests(Kind::Collector),
            conflicts: figure(&calls.conflicts),
            unknown_outcomes: figure(&calls.unknown),
            retries: figure(&calls.retries),
            round_trips: figure(&calls.round_trips),
            collected: *shared.collected.lock(),
        }
    }
}
