//! The settings of the TTL monitor, the counts of its deletions, and the backlog.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use frond_bson::{DocBuf, doc};
use frond_store::{Expiring, TtlBacklog, TtlLimits};
use parking_lot::{Condvar, Mutex};

use crate::observability::metrics::Counter;
use crate::settings::TtlBatches;

/// Namespace and name of an index.
type IndexName = (String, String);

/// The settings and the counters of the TTL monitor.
#[derive(Debug)]
pub struct Ttl {
    enabled: AtomicBool,
    sleep_secs: AtomicU64,
    batches: Mutex<TtlBatches>,
    pub deleted: Counter,
    /// Passes over all indexes, each until nothing more has expired.
    pub passes: Counter,
    /// The parts of passes after which the indexes are listed again.
    pub sub_passes: Counter,
    /// The backlog of each index, as it was measured last.
    backlog: Mutex<BTreeMap<IndexName, TtlBacklog>>,
    /// Wakes the monitor when a setting changes.
    changed: (Mutex<()>, Condvar),
}

impl Ttl {
    pub fn new(enabled: bool, sleep: Duration, batches: TtlBatches) -> Ttl {
        Ttl {
            enabled: AtomicBool::new(enabled),
            sleep_secs: AtomicU64::new(sleep.as_secs().max(1)),
            batches: Mutex::new(batches),
            deleted: Counter::default(),
            passes: Counter::default(),
            sub_passes: Counter::default(),
            backlog: Mutex::default(),
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

    /// The settings of batches.
    pub fn batches(&self) -> TtlBatches {
        *self.batches.lock()
    }

    /// Changes the settings of batches, from the next one on.
    pub fn change_batches(&self, change: impl FnOnce(&mut TtlBatches)) {
        change(&mut self.batches.lock());
    }

    /// Forgets the backlog of indexes that are not among these.
    pub fn keep_backlog_of(&self, all: &[Expiring]) {
        let is_one = |(ns, name): &IndexName| {
            all.iter()
                .any(|one| one.ns().as_str() == ns && one.name() == name)
        };
        self.backlog.lock().retain(|index, _| is_one(index));
    }

    /// Notes the backlog of an index.
    pub fn note_backlog(&self, of: &Expiring, backlog: TtlBacklog) {
        let index = (of.ns().as_str().to_owned(), of.name().to_owned());
        self.backlog.lock().insert(index, backlog);
    }

    /// The limits of the next batch of an index, at a time in milliseconds since 1970.
    pub fn limits(&self, of: &Expiring, now_ms: i64) -> TtlLimits {
        let index = (of.ns().as_str().to_owned(), of.name().to_owned());
        let oldest = self
            .backlog
            .lock()
            .get(&index)
            .and_then(|one| one.oldest_expires_ms);
        let age_ms = oldest.map_or(0, |expired| now_ms.saturating_sub(expired));
        let batches = self.batches();
        TtlLimits {
            threads: batches.threads(u64::try_from(age_ms).unwrap_or(0) / 1000, self.sleep_secs()),
            ..batches.limits()
        }
    }

    /// The section of `serverStatus`, at a time in milliseconds since 1970.
    pub fn to_doc(&self, now_ms: i64) -> DocBuf {
        doc! {
            "deletedDocuments": self.deleted.get(),
            "passes": self.passes.get(),
            "subPasses": self.sub_passes.get(),
            "backlog": &self.backlog(now_ms),
        }
    }

    /// The documents that have expired, and the index with the oldest of them.
    fn backlog(&self, now_ms: i64) -> DocBuf {
        let backlog = self.backlog.lock();
        let documents = backlog.values().map(|one| one.documents);
        let documents = documents.fold(0, u64::saturating_add);
        let mut out = doc! {"documents": i64::try_from(documents).unwrap_or(i64::MAX)};
        let due = backlog.iter().filter_map(|(index, one)| {
            let expired = one.oldest_expires_ms.filter(|at| *at <= now_ms)?;
            Some((expired, index))
        });
        match due.min_by_key(|(expired, _)| *expired) {
            None => out.push("oldestExpiredSecs", 0i64),
            Some((expired, (ns, name))) => {
                out.push("oldestExpiredSecs", now_ms.saturating_sub(expired) / 1000);
                out.push("namespace", ns.as_str());
                out.push("index", name.as_str());
            }
        }
        out
    }
}
