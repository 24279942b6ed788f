//! The kinds of requests, and figures about them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The kinds of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Timestamp,
    Get,
    Scan,
    Commit,
    Region,
    Collector,
}

const KINDS: usize = 6;

impl Kind {
    /// The request in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Timestamp => "a timestamp of PD",
            Kind::Get => "a look-up of keys in TiKV",
            Kind::Scan => "a page of a range in TiKV",
            Kind::Commit => "a small transaction in TiKV",
            Kind::Region => "a question to PD",
            Kind::Collector => "a request of the garbage collector to TiKV",
        }
    }
}

/// A number of operations, and their total duration.
#[derive(Debug, Default)]
pub(crate) struct Timed {
    pub(crate) count: AtomicU64,
    pub(crate) micros: AtomicU64,
}

/// Requests since the cluster was opened.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    timed: [Timed; KINDS],
    pub(crate) conflicts: AtomicU64,
    pub(crate) unknown: AtomicU64,
    pub(crate) retries: AtomicU64,
    /// Steps that follow each other: a step may be several requests at once.
    pub(crate) round_trips: AtomicU64,
}

impl Calls {
    pub(crate) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn timed(&self, kind: Kind) -> &Timed {
        &self.timed[kind as usize]
    }

    pub(crate) fn note(&self, kind: Kind, began: Instant) {
        let timed = self.timed(kind);
        Calls::count(&timed.count);
        let micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        timed.micros.fetch_add(micros, Ordering::Relaxed);
    }
}
