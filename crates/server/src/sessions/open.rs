//! An open transaction.

use std::sync::Weak;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use frond_bson::DocBuf;
use frond_store::{DocumentStore, Transaction};
use parking_lot::Mutex;

use super::{Session, SessionId};

/// Why the server aborts a transaction that its client did not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbortReason {
    /// `killSessions` and its like, or the session expired.
    Killed = 1,
    /// It was open for longer than `transactionLifetimeLimitSeconds`.
    Expired = 2,
    Memory = 3,
    /// This server does not lead its replica set any more.
    SteppedDown = 4,
}

/// An open transaction: its identity and its state.
pub struct Open {
    pub session: SessionId,
    pub number: i64,
    /// Its part of the store.
    pub transaction: Transaction,
    /// A handle of the store whose requests run inside.
    pub store: DocumentStore,
    pub started: Instant,
    /// The same, in milliseconds since 1970.
    pub started_ms: i64,
    /// The end of its lifetime.
    pub lifetime: Duration,
    /// The level of its read concern; none if the client named none.
    pub read_level: Option<String>,
    /// The client that began it, as fields for `currentOp`.
    pub client: DocBuf,
    /// Whether cursors may have been opened inside.
    pub has_cursors: AtomicBool,
    pub(super) owner: Weak<Mutex<Session>>,
    pub(super) abort_reason: AtomicU8,
    pub(super) activity: Mutex<Activity>,
}

/// The running time of a transaction's statements.
#[derive(Clone, Copy, Debug, Default)]
pub struct Activity {
    since: Option<Instant>,
    total: Duration,
}

impl Activity {
    pub(super) fn begin(&mut self, now: Instant) {
        self.since = Some(now);
    }

    /// The statement has ended.
    pub(super) fn end(&mut self, now: Instant) {
        if let Some(since) = self.since.take() {
            self.total += now.saturating_duration_since(since);
        }
    }

    /// Whether a statement runs.
    pub fn is_active(&self) -> bool {
        self.since.is_some()
    }

    /// The running time of ended statements.
    pub fn active_for(&self, now: Instant) -> Duration {
        let current = self.since.map(|since| now.saturating_duration_since(since));
        self.total + current.unwrap_or_default()
    }
}

impl Open {
    /// Whether it was open for too long.
    pub fn is_expired(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.started) >= self.lifetime
    }

    /// Why the server ends it; none if it does not.
    pub fn abort_reason(&self) -> Option<AbortReason> {
        match self.abort_reason.load(Ordering::SeqCst) {
            1 => Some(AbortReason::Killed),
            2 => Some(AbortReason::Expired),
            3 => Some(AbortReason::Memory),
            4 => Some(AbortReason::SteppedDown),
            _ => None,
        }
    }

    /// The running time of its statements.
    pub fn activity(&self) -> Activity {
        *self.activity.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_statements_is_added_up() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut activity = Activity::default();
        activity.begin(at(0));
        assert!(activity.is_active());
        assert_eq!(activity.active_for(at(5)), Duration::from_millis(5));
        activity.end(at(10));
        activity.begin(at(100));
        activity.end(at(103));
        assert!(!activity.is_active());
        assert_eq!(activity.active_for(at(500)), Duration::from_millis(13));
    }
}
