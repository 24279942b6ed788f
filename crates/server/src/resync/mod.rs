//! A member of a replica set replaces its store by a copy of another member's, when it is new or was away for too long.
//!
//! A thread copies while the server runs and answers. When the copy is complete the host restarts the server, and [`take_over`]
//! replaces the store before it is opened. [`directory`] has the steps and why the vote is never copied. [`copy`] reads the stream.
//!
//! The copy ends at the commit point of its source: entries that may still be replaced are not in it. It has the identifiers of the
//! entries, so consensus continues behind them.

mod copy;
mod directory;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use frond_bson::{DocBuf, doc};
use frond_client::Uri;
use frond_replica::EntryId;
use parking_lot::{Condvar, Mutex};

use crate::host::clock::now_ms;
use crate::observability::log::{Component, Log};
use crate::settings::EncryptionSettings;

use copy::{Copied, copy};
pub use directory::Taken;

/// The waits between two attempts: the first, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// The interval at which the log reports the progress of a copy.
const REPORT_MS: i64 = 10_000;

/// Names the member to copy in the next attempt; `None` while there is none.
pub type Sources = Box<dyn Fn() -> Option<Uri> + Send>;

/// The phase of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It waits for a member that can be copied, or for the next attempt.
    Waiting,
    Copying,
    /// The next start takes it over.
    Complete,
    /// [`Resync::stop`] was called.
    Stopped,
}

/// The progress of a copy, for `replSetGetStatus`.
#[derive(Clone, Debug)]
pub struct Progress {
    pub phase: Phase,
    /// The beginning of the copy, and of this attempt, in milliseconds since 1970.
    pub began_ms: i64,
    pub attempt_began_ms: i64,
    /// Attempts that failed before this one.
    pub failed_attempts: u32,
    /// Bytes of this attempt.
    pub copied: Copied,
    /// The address of the member that is being copied, or was.
    pub source: Option<String>,
    pub last_error: Option<String>,
}

/// A copy that is being made.
pub struct Resync {
    progress: Mutex<Progress>,
    /// Ends the connection and the waits.
    stop: Arc<AtomicBool>,
    wake: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Resync {
    /// Starts the thread that copies. `sources` is called for each attempt, and `complete` by the thread once the next start takes the
    /// copy over; it must not call [`Resync::stop`].
    ///
    /// A copy counts only if its log ends with the entry `acknowledged` or a later one, as an elected leader's does. Otherwise it could lack
    /// an entry that is committed because this member has acknowledged it, and the set could elect a leader that lacks it, too.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(
        sources: Sources,
        acknowledged: Option<EntryId>,
        db_path: &Path,
        encryption: EncryptionSettings,
        log: Arc<Log>,
        complete: Box<dyn FnOnce() + Send>,
    ) -> io::Result<Arc<Resync>> {
        let now = now_ms();
        let resync = Arc::new(Resync {
            progress: Mutex::new(Progress {
                phase: Phase::Waiting,
                began_ms: now,
                attempt_began_ms: now,
                failed_attempts: 0,
                copied: Copied::default(),
                source: None,
                last_error: None,
            }),
            stop: Arc::default(),
            wake: Condvar::new(),
            thread: Mutex::default(),
        });
        let copying = Copying {
            resync: resync.clone(),
            acknowledged,
            db_path: db_path.to_owned(),
            encryption,
            log,
        };
        let thread = std::thread::Builder::new()
            .name("frond-resync".to_owned())
            .spawn(move || {
                if copying.run(&sources) {
                    complete();
                }
            })?;
        *resync.thread.lock() = Some(thread);
        Ok(resync)
    }

    pub fn progress(&self) -> Progress {
        self.progress.lock().clone()
    }

    /// Ends the copy. On return its thread has ended. A copy that is complete stays.
    pub fn stop(&self) {
        {
            let _progress = self.progress.lock();
            self.stop.store(true, Ordering::SeqCst);
            self.wake.notify_all();
        }
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            // A panic is in the log.
            let _ = thread.join();
        }
    }

    /// Waits before the next attempt.
    fn pause(&self, pause: Duration) {
        let mut progress = self.progress.lock();
        if !self.stop.load(Ordering::SeqCst) {
            self.wake.wait_for(&mut progress, pause);
        }
    }
}

/// The thread of a copy.
struct Copying {
    resync: Arc<Resync>,
    acknowledged: Option<EntryId>,
    db_path: PathBuf,
    encryption: EncryptionSettings,
    log: Arc<Log>,
}

impl Copying {
    fn change(&self, change: impl FnOnce(&mut Progress)) {
        change(&mut self.resync.progress.lock());
    }

    /// Tries until a copy is complete. False if the copy was stopped before.
    fn run(&self, sources: &Sources) -> bool {
        let mut pause = PAUSE_MIN;
        while !self.resync.stop.load(Ordering::SeqCst) {
            let Some(uri) = sources() else {
                self.resync.pause(PAUSE_MIN);
                continue;
            };
            let source = uri.address.host_and_port();
            self.change(|progress| {
                progress.phase = Phase::Copying;
                progress.attempt_began_ms = now_ms();
                progress.copied = Copied::default();
                progress.source = Some(source.clone());
            });
            match self.attempt(&uri, &source) {
                Ok(()) => {
                    self.change(|progress| progress.phase = Phase::Complete);
                    self.info("The copy of another member is complete", &source);
                    return true;
                }
                Err(_) if self.resync.stop.load(Ordering::SeqCst) => break,
                Err(error) => {
                    let attributes = doc! {"error": error.as_str(), "source": source.as_str()};
                    self.change(|progress| {
                        progress.phase = Phase::Waiting;
                        progress.failed_attempts = progress.failed_attempts.saturating_add(1);
                        progress.last_error = Some(error);
                    });
                    self.log.warning(
                        Component::Control,
                        9_924_001,
                        "resync",
                        "The copy of another member failed, and is tried again",
                        &attributes,
                    );
                }
            }
            self.resync.pause(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
        // The next start would remove it, too.
        let _ = directory::discard(&self.db_path);
        self.change(|progress| progress.phase = Phase::Stopped);
        false
    }

    fn attempt(&self, uri: &Uri, source: &str) -> Result<(), String> {
        let of_files = |error: io::Error| format!("the folder of the copy: {error}");
        directory::discard(&self.db_path).map_err(of_files)?;
        self.info("The copy of another member begins", source);
        let mut logged = now_ms();
        let mut report = |copied| {
            self.change(|progress| progress.copied = copied);
            if now_ms().saturating_sub(logged) >= REPORT_MS {
                logged = now_ms();
                self.info("Another member is being copied", source);
            }
        };
        let folder = directory::folder(&self.db_path);
        let stop = &self.resync.stop;
        let master = self.encryption.master_key();
        let master = master.map_err(|error| error.to_string())?;
        let last =
            copy(&folder, uri, master, stop, &mut report).map_err(|error| error.to_string())?;
        if last < self.acknowledged {
            return Err(
                "the copy ends before what this member has acknowledged; its source is behind"
                    .to_owned(),
            );
        }
        directory::accept(&self.db_path).map_err(of_files)
    }

    fn info(&self, text: &str, source: &str) {
        let progress = self.resync.progress();
        let long = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        let seconds = now_ms().saturating_sub(progress.attempt_began_ms) as f64 / 1000.0;
        let mut attributes = doc! {"source": source, "bytes": long(progress.copied.bytes)};
        if let Some(total) = progress.copied.total {
            attributes.push("totalBytes", long(total));
        }
        attributes.push("seconds", seconds);
        (self.log).info(Component::Control, 9_924_002, "resync", text, &attributes);
    }
}

/// Replaces the store in a data directory by a complete copy, if there is one. To be called at the start, after the lock of the
/// directory is taken and before the store is opened.
///
/// # Errors
/// Errors of the file system. The server must not open the store then; the next call goes on.
pub fn take_over(db_path: &Path, log: &Log) -> io::Result<Taken> {
    let taken = directory::replace(db_path)?;
    let text = match taken {
        Taken::Nothing => return Ok(taken),
        Taken::Discarded => "A copy of another member was not complete, and was removed",
        Taken::Replaced => "The store was replaced by a copy of another member's",
    };
    let nothing = DocBuf::new();
    log.info(
        Component::Control,
        9_924_003,
        "initandlisten",
        text,
        &nothing,
    );
    Ok(taken)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
