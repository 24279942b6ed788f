//! The settings of the TTL monitor, and the counts of its deletions.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use frond_bson::{DocBuf, doc};
use parking_lot::{Condvar, Mutex};

use crate::observability::metrics::Counter;

/// The settings and the counters of the TTL monitor.
#[derive(Debug)]
pub struct Ttl {
    enabled: AtomicBool,
    sleep_secs: AtomicU64,
    pub deleted: Counter,
    /// Passes over all indexes.
    pub passes: Counter,
    /// Wakes the monitor when a setting changes.
    changed: (Mutex<()>, Condvar),
}

impl Ttl {
    pub fn new(enabled: bool, sleep: Duration) -> Ttl {
        Ttl {
            enabled: AtomicBool::new(enabled),
            sleep_secs: AtomicU64::new(sleep.as_secs().max(1)),
            deleted: Counter::default(),
            passes: Counter::default(),
            changed: Default::default(),
        }
    }

    /// Whether it deletes anything.
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Relaxed)
    }

    /// Switches it on or off.
    pub fn enable(&self, on: bool) {
        self.enabled.store(on, Relaxed);
        self.wake();
    }

    /// Seconds between two passes.
    pub fn sleep_secs(&self) -> u64 {
        self.sleep_secs.load(Relaxed)
    }

    /// Changes [`Ttl::sleep_secs`].
    pub fn set_sleep_secs(&self, seconds: u64) {
        self.sleep_secs.store(seconds.max(1), Relaxed);
        self.wake();
    }

    /// Wakes the monitor, so that it looks at its settings.
    pub fn wake(&self) {
        // A monitor that is about to sleep holds the lock, so it does not miss this.
        let _asleep = self.changed.0.lock();
        self.changed.1.notify_all();
    }

    /// Sleeps until the next pass is due. Returns false if a setting changed first.
    pub fn sleep(&self, stopping: &AtomicBool) -> bool {
        let mut lock = self.changed.0.lock();
        if stopping.load(Relaxed) {
            return false;
        }
        let time = Duration::from_secs(self.sleep_secs());
        self.changed.1.wait_for(&mut lock, time).timed_out()
    }

    /// The section of `serverStatus`.
    pub fn to_doc(&self) -> DocBuf {
        doc! {
            "deletedDocuments": self.deleted.get(),
            "passes": self.passes.get(),
            "subPasses": self.passes.get(),
        }
    }
}
