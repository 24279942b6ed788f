//! A standby: its state, its directory, and its connection to the primary. The threads that follow the primary are in
//! `background/follow.rs`.

mod copy;
mod directory;
mod source;
mod start;
mod start_error;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use frond_bson::{DocBuf, Timestamp, Value, doc};
use frond_client::{Uri, uri::without_passwords};
use frond_error::Result;
use frond_store::DocumentStore;
use parking_lot::{Condvar, Mutex};

use crate::host::clock::now_ms;
use crate::observability::metrics::Counter;

pub use directory::{Directory, State as DirectoryState};
pub use source::{FollowError, Source, entries};
pub use start::{discard, prepare};
pub use start_error::StartError;

/// The phase of a standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It connects to its primary. Its data can be read.
    Connecting,
    /// It applies the entries of its primary.
    Following,
    /// The primary's oplog does not have its position any more.
    Stale,
    /// The primary's oplog lacks the entry that was applied last.
    Diverged,
    /// An entry could not be applied.
    Failed,
    /// It becomes a primary.
    SteppingUp,
}

impl Phase {
    /// As it is shown.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Connecting => "connecting",
            Phase::Following => "following",
            Phase::Stale => "stale",
            Phase::Diverged => "diverged",
            Phase::Failed => "failed",
            Phase::SteppingUp => "steppingUp",
        }
    }

    /// Whether it stays so until an operator intervenes.
    pub fn is_final(self) -> bool {
        matches!(self, Phase::Stale | Phase::Diverged | Phase::Failed)
    }
}

/// The state that changes seldom.
#[derive(Clone, Debug)]
struct Status {
    phase: Phase,
    since_ms: i64,
    error: Option<String>,
    error_ms: i64,
    /// The last entry that the primary is known to have, and when it said so.
    primary_last: Timestamp,
    contact_ms: Option<i64>,
}

/// A server that follows a primary.
pub struct Standby {
    pub uri: Uri,
    /// The connection string without passwords.
    pub source: String,
    /// Ends waits for the primary.
    pub stop: Arc<AtomicBool>,
    status: Mutex<Status>,
    /// Told when the phase changes, and when entries were applied.
    changed: Condvar,
    /// Entries that were read from the primary.
    pub fetched: Counter,
    pub fetched_bytes: Counter,
    /// Entries that were applied.
    pub applied: Counter,
    /// Commits that they took.
    pub commits: Counter,
    /// Connections to the primary.
    pub connections: Counter,
    /// Entries and bytes that were read and are not applied.
    waiting: AtomicU64,
    waiting_bytes: AtomicU64,
    /// The time of the last entry that was applied, by the wall clock of the primary.
    applied_wall_ms: AtomicU64,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Whether it is to be replaced by a new copy.
    wants_copy: AtomicBool,
    has_stepped_up: Mutex<bool>,
}

impl Standby {
    /// One that looks for its primary.
    ///
    /// # Errors
    /// Errors of the connection string.
    pub fn new(uri: &str) -> std::result::Result<Standby, frond_client::Error> {
        Ok(Standby {
            uri: source::uri(uri)?,
            source: without_passwords(uri),
            stop: Arc::default(),
            status: Mutex::new(Status {
                phase: Phase::Connecting,
                since_ms: now_ms(),
                error: None,
                error_ms: 0,
                primary_last: Timestamp::default(),
                contact_ms: None,
            }),
            changed: Condvar::new(),
            fetched: Counter::default(),
            fetched_bytes: Counter::default(),
            applied: Counter::default(),
            commits: Counter::default(),
            connections: Counter::default(),
            waiting: AtomicU64::new(0),
            waiting_bytes: AtomicU64::new(0),
            applied_wall_ms: AtomicU64::new(0),
            threads: Mutex::default(),
            wants_copy: AtomicBool::new(false),
            has_stepped_up: Mutex::new(false),
        })
    }

    pub fn phase(&self) -> Phase {
        self.status.lock().phase
    }

    /// Changes the phase, and returns the one before. A final phase changes only by a step up.
    pub fn set_phase(&self, phase: Phase) -> Phase {
        let mut status = self.status.lock();
        let before = status.phase;
        let stays =
            before == Phase::SteppingUp || (before.is_final() && phase != Phase::SteppingUp);
        if before != phase && !stays {
            status.phase = phase;
            status.since_ms = now_ms();
            if phase == Phase::Following {
                status.error = None;
            }
            self.changed.notify_all();
        }
        before
    }

    /// Notes an error. Returns false if it is the last one again.
    pub fn note_error(&self, error: &str) -> bool {
        let mut status = self.status.lock();
        let is_new = status.error.as_deref() != Some(error);
        status.error = Some(error.to_owned());
        status.error_ms = now_ms();
        is_new
    }

    /// Notes the last entry that the primary has.
    pub fn heard(&self, last: Timestamp) {
        let mut status = self.status.lock();
        status.primary_last = status.primary_last.max(last);
        status.contact_ms = Some(now_ms());
    }

    /// The last entry that the primary is known to have.
    pub fn primary_last(&self) -> Timestamp {
        self.status.lock().primary_last
    }

    /// Notes entries that were read.
    pub fn note_fetched(&self, entries: u64, bytes: u64) {
        self.fetched.add(entries);
        self.fetched_bytes.add(bytes);
        self.waiting.fetch_add(entries, Ordering::Relaxed);
        self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Notes that entries which were read wait no longer.
    pub fn note_done(&self, entries: u64, bytes: u64) {
        self.waiting.fetch_sub(entries, Ordering::Relaxed);
        self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
        let _status = self.status.lock();
        self.changed.notify_all();
    }

    /// Notes when the last entry that was applied was written.
    pub fn note_applied_wall(&self, wall_ms: i64) {
        let wall_ms = u64::try_from(wall_ms).unwrap_or(0);
        self.applied_wall_ms.store(wall_ms, Ordering::Relaxed);
    }

    /// Waits until all that was read is applied, or `until` is true, looking at least this often.
    pub fn wait_applied(&self, look: Duration, until: impl Fn() -> bool) {
        let mut status = self.status.lock();
        while self.waiting.load(Ordering::Relaxed) > 0 && !until() {
            self.changed.wait_for(&mut status, look);
        }
    }

    /// Sleeps, unless it is to stop.
    pub fn pause(&self, time: Duration) {
        let mut status = self.status.lock();
        if !self.is_stopping() {
            self.changed.wait_for(&mut status, time);
        }
    }

    /// Asks the threads to end.
    pub fn end(&self) {
        self.stop.store(true, Ordering::SeqCst);
        let _status = self.status.lock();
        self.changed.notify_all();
    }

    /// Keeps the threads that follow the primary.
    pub fn keep_threads(&self, threads: impl IntoIterator<Item = JoinHandle<()>>) {
        self.threads.lock().extend(threads);
    }

    /// Ends the threads, and waits for them. What was read is applied.
    pub fn join(&self) {
        self.end();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // A panic of the thread is logged already.
            let _ = thread.join();
        }
    }

    /// Runs a step up, which ends it as a standby. Later ones do nothing, unless it has failed.
    ///
    /// # Errors
    /// Those of `run`.
    pub fn step_up(&self, run: impl FnOnce() -> Result<DocBuf>) -> Result<DocBuf> {
        let mut is_done = self.has_stepped_up.lock();
        if *is_done {
            return Ok(DocBuf::new());
        }
        let reply = run()?;
        *is_done = true;
        Ok(reply)
    }

    /// Asks for a start from a copy, when the server has stopped.
    pub fn ask_for_copy(&self) {
        self.wants_copy.store(true, Ordering::SeqCst);
    }

    /// Whether the server is to start from a copy.
    pub fn wants_copy(&self) -> bool {
        self.wants_copy.load(Ordering::SeqCst)
    }

    /// Whether the threads are to end.
    pub fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// The lag of reads behind the primary, in milliseconds; `None` before the first contact with the primary.
    pub fn lag_ms(&self, store: &DocumentStore) -> Option<i64> {
        let status = self.status.lock();
        let contact = status.contact_ms?;
        let applied = store.oplog().last();
        if applied >= status.primary_last {
            // Since then nothing is known, if the primary cannot be reached.
            return Some(match status.phase {
                Phase::Following => 0,
                _ => now_ms().saturating_sub(contact),
            });
        }
        let wall = match self.applied_wall_ms.load(Ordering::Relaxed) {
            0 => i64::from(applied.time) * 1000,
            wall => i64::try_from(wall).unwrap_or(i64::MAX),
        };
        Some(now_ms().saturating_sub(wall).max(0))
    }

    /// The section of `serverStatus`.
    pub fn to_doc(&self, store: &DocumentStore) -> DocBuf {
        let status = self.status.lock().clone();
        let mut out = doc! {
            "state": status.phase.name(),
            "isFollowing": status.phase == Phase::Following,
            "since": Value::DateTime(status.since_ms),
            "source": &*self.source,
        };
        if let Some(error) = &status.error {
            out.push("lastError", error.as_str());
            out.push("lastErrorDate", Value::DateTime(status.error_ms));
        }
        if let Some(contact) = status.contact_ms {
            out.push("lastContact", Value::DateTime(contact));
            out.push("primaryOptime", status.primary_last);
        }
        out.push("appliedOptime", store.oplog().last());
        if let Some(lag) = self.lag_ms(store) {
            out.push("lagSeconds", lag as f64 / 1000.0);
        }
        let count = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        out.push(
            "waitingEntries",
            count(self.waiting.load(Ordering::Relaxed)),
        );
        let bytes = self.waiting_bytes.load(Ordering::Relaxed);
        out.push("waitingBytes", count(bytes));
        out.push("fetchedEntries", self.fetched.get());
        out.push("fetchedBytes", self.fetched_bytes.get());
        out.push("appliedEntries", self.applied.get());
        out.push("commits", self.commits.get());
        out.push("connections", self.connections.get());
        out
    }

    /// The last error, if it is not over.
    pub fn error(&self) -> Option<String> {
        self.status.lock().error.clone()
    }
}

#[cfg(test)]
mod tests;
