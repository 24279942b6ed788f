//! The profiler: which operations it records, and the entries on their way into `system.profile`.
//!
//! An operation hands over its record, and does not wait. Records lie in a queue, one for each database, which is no longer
//! than the collection is large: of more, the collection would lose the oldest at once, so the queue does that by itself,
//! and no entry is made of them. A job writes them soon, in one commit. A read of the collection has it written before:
//! so a client always finds the entries of its operations that were answered before.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use frond_bson::{Doc, DocBuf};
use frond_error::{Error, Result};
use frond_query::matcher::Filter;
use frond_store::DocumentStore;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use crate::observability::metrics::Counter;
use crate::observability::op_record::OpRecord;

/// The longest time that a record lies in the queue.
pub const FLUSH_INTERVAL: Duration = Duration::from_millis(250);

/// A queue is at most this long in bytes, also for a larger collection.
const QUEUE_BYTES_MAX: usize = 8 << 20;

/// A queue whose collection does not exist yet.
const QUEUE_BYTES_DEFAULT: usize = 1 << 20;

/// Databases whose level is remembered.
const DATABASES_MAX: usize = 10_000;

/// The condition that selects the recorded operations, instead of their time.
#[derive(Debug)]
pub struct ProfileFilter {
    /// As the client gave it.
    pub spec: DocBuf,
    filter: Filter,
}

impl ProfileFilter {
    /// Parses it.
    ///
    /// # Errors
    /// Those of a filter.
    pub fn parse(spec: &Doc) -> Result<ProfileFilter> {
        Ok(ProfileFilter {
            spec: spec.to_owned(),
            filter: Filter::parse(spec)?,
        })
    }

    /// Whether an entry matches.
    pub fn matches(&self, entry: &Doc) -> bool {
        self.filter.matches(entry)
    }
}

/// The operations of a database that are recorded.
#[derive(Clone, Debug, Default)]
pub struct ProfileLevel {
    /// 0: nothing. 1: slow operations, or those that match the filter. 2: all.
    pub level: u8,
    /// Which operations are logged, and recorded at level 1. By default slow ones.
    pub filter: Option<Arc<ProfileFilter>>,
}

impl ProfileLevel {
    fn is_default(&self) -> bool {
        self.level == 0 && self.filter.is_none()
    }
}

#[derive(Default)]
struct Levels {
    /// Of databases without a level of their own.
    usual: ProfileLevel,
    own: HashMap<String, ProfileLevel>,
}

#[derive(Default)]
struct Queue {
    records: VecDeque<OpRecord>,
    bytes: usize,
    bytes_max: usize,
}

/// The profiler of a server.
pub struct Profiler {
    /// Whether any database has a level or a filter.
    is_on: AtomicBool,
    levels: RwLock<Levels>,
    /// The part of slow operations that is logged and recorded, as the bits of a number from 0 to 1.
    sample_rate: AtomicU64,
    queues: Mutex<HashMap<String, Queue>>,
    /// Records in all queues.
    pending: AtomicUsize,
    /// Held while records are written, so that who reads waits for those of another thread.
    writing: Mutex<()>,
    wake: Notify,
    /// Entries that were written.
    pub written: Counter,
    /// Records that were dropped because there were more than the collection holds, or than may wait.
    pub dropped: Counter,
    /// Records that could not be written.
    pub failed: Counter,
}

impl Profiler {
    /// A profiler with the level, the filter and the sample rate of the settings.
    pub fn new(usual: ProfileLevel, sample_rate: f64) -> Profiler {
        Profiler {
            is_on: AtomicBool::new(!usual.is_default()),
            levels: RwLock::new(Levels {
                usual,
                own: HashMap::new(),
            }),
            sample_rate: AtomicU64::new(sample_rate.to_bits()),
            queues: Mutex::default(),
            pending: AtomicUsize::new(0),
            writing: Mutex::default(),
            wake: Notify::new(),
            written: Counter::default(),
            dropped: Counter::default(),
            failed: Counter::default(),
        }
    }

    /// The operations of a database that are recorded; `None` if none are, and slow operations are logged.
    #[inline]
    pub fn recorded(&self, db: &str) -> Option<ProfileLevel> {
        if !self.is_on.load(Relaxed) {
            return None;
        }
        Some(self.level(db)).filter(|level| !level.is_default())
    }

    /// The level of a database.
    pub fn level(&self, db: &str) -> ProfileLevel {
        let levels = self.levels.read();
        levels.own.get(db).unwrap_or(&levels.usual).clone()
    }

    /// Changes the level of a database. Returns the one before.
    ///
    /// # Errors
    /// If there are too many levels.
    pub fn set_level(
        &self,
        db: &str,
        change: impl FnOnce(&mut ProfileLevel),
    ) -> Result<ProfileLevel> {
        let mut levels = self.levels.write();
        let before = levels.own.get(db).unwrap_or(&levels.usual).clone();
        if levels.own.len() >= DATABASES_MAX && !levels.own.contains_key(db) {
            return Err(Error::bad_value(format!(
                "no more than {DATABASES_MAX} databases can have a profiling level of their own"
            )));
        }
        let mut level = before.clone();
        change(&mut level);
        if level.is_default() && levels.usual.is_default() {
            levels.own.remove(db)
        } else {
            levels.own.insert(db.to_owned(), level)
        };
        self.update(&levels);
        Ok(before)
    }

    /// Forgets the level of a database that is dropped, and what was to be written.
    pub fn forget(&self, db: &str) {
        let mut levels = self.levels.write();
        levels.own.remove(db);
        self.update(&levels);
        drop(levels);
        self.discard(db);
    }

    fn update(&self, levels: &Levels) {
        let mut all = levels.own.values().chain([&levels.usual]);
        self.is_on
            .store(all.any(|level| !level.is_default()), Relaxed);
    }

    /// The part of slow operations that is logged and recorded.
    pub fn sample_rate(&self) -> f64 {
        f64::from_bits(self.sample_rate.load(Relaxed))
    }

    /// Changes [`Profiler::sample_rate`].
    pub fn set_sample_rate(&self, rate: f64) {
        self.sample_rate.store(rate.to_bits(), Relaxed);
    }

    /// Whether a slow operation is one of the sample.
    pub fn samples(&self) -> bool {
        let rate = self.sample_rate();
        // 53 random bits as a number below 1.
        rate >= 1.0 || rand::random::<f64>() < rate
    }

    /// Takes the record of an operation on a database. Waits for nothing but other operations that do the same.
    pub fn record(&self, store: &DocumentStore, db: &str, record: OpRecord) {
        let bytes = record.len_bytes();
        let mut queues = self.queues.lock();
        let queue = match queues.get_mut(db) {
            Some(queue) => queue,
            None => {
                let of_collection = store.profile_bytes(db);
                let of_collection =
                    of_collection.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
                let bytes_max = of_collection.unwrap_or(QUEUE_BYTES_DEFAULT);
                queues.entry(db.to_owned()).or_insert(Queue {
                    bytes_max: bytes_max.min(QUEUE_BYTES_MAX),
                    ..Queue::default()
                })
            }
        };
        let (mut dropped, was_empty) = (0, queue.records.is_empty());
        queue.bytes += bytes;
        queue.records.push_back(record);
        // The last one stays, also in a collection that is smaller than it.
        while queue.bytes > queue.bytes_max && queue.records.len() > 1 {
            if let Some(oldest) = queue.records.pop_front() {
                queue.bytes -= oldest.len_bytes();
                dropped += 1;
            }
        }
        drop(queues);
        self.dropped.add(dropped as u64);
        let before = self.pending.fetch_add(1, Relaxed);
        self.pending.fetch_sub(dropped, Relaxed);
        if was_empty || before == 0 {
            self.wake.notify_one();
        }
    }

    /// Drops what was to be written for a database.
    pub fn discard(&self, db: &str) {
        let _writing = self.writing.lock();
        if let Some(queue) = self.queues.lock().remove(db) {
            self.pending.fetch_sub(queue.records.len(), Relaxed);
        }
    }

    /// Whether records wait to be written.
    #[inline]
    pub fn is_pending(&self) -> bool {
        self.pending.load(Relaxed) > 0
    }

    /// Waits until there is something to write, and then for more of it.
    pub async fn wait(&self) {
        while !self.is_pending() {
            self.wake.notified().await;
        }
        tokio::time::sleep(FLUSH_INTERVAL).await;
    }

    /// Writes what there is when this is called, also what another thread is about to write. A record that cannot be
    /// written is dropped: the operation is over, so its client cannot get an error.
    pub fn flush(&self, store: &DocumentStore) {
        let _writing = self.writing.lock();
        let queues = std::mem::take(&mut *self.queues.lock());
        for (db, queue) in queues {
            let entries: Vec<DocBuf> = queue.records.iter().map(OpRecord::entry).collect();
            let documents: Vec<&Doc> = entries.iter().map(|entry| &**entry).collect();
            let written = store.insert_profile(&db, &documents).unwrap_or(0);
            self.pending.fetch_sub(documents.len(), Relaxed);
            self.written.add(written as u64);
            self.failed
                .add(documents.len().saturating_sub(written) as u64);
        }
    }

    /// When an operation that began then counts as slow by now, for `execStats`: at level 2 all do.
    pub fn stats_from(level: &ProfileLevel, began: Instant, slow: Duration) -> Option<Instant> {
        match (level.level, &level.filter) {
            (0, _) => None,
            (1, None) => began.checked_add(slow),
            _ => Some(began),
        }
    }
}
