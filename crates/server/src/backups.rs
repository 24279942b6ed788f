//! The backups that are being made: streams of clients, and one copy into a directory of the server.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use frond_bson::{DocBuf, doc};
use frond_error::{Error, ErrorCode, Result};
use frond_store::backup::BackupProgress;
use parking_lot::Mutex;

#[derive(Default)]
pub struct Backups {
    streams: Mutex<Vec<Weak<BackupProgress>>>,
    opened: AtomicU64,
    /// The limit of copies into a directory, in bytes per second; 0 is none.
    throttle: Arc<AtomicU64>,
    directory: Mutex<Option<Copying>>,
}

/// A copy into a directory.
struct Copying {
    source: String,
    target: String,
    progress: Option<Arc<BackupProgress>>,
}

/// Ends the entry of a copy when it is dropped.
pub struct CopyEntry<'b>(&'b Backups);

impl Drop for CopyEntry<'_> {
    fn drop(&mut self) {
        *self.0.directory.lock() = None;
    }
}

impl CopyEntry<'_> {
    /// Shows the figures of the copy.
    pub fn show(&self, progress: Arc<BackupProgress>) {
        if let Some(copying) = &mut *self.0.directory.lock() {
            copying.progress = Some(progress);
        }
    }
}

fn done_and_total(progress: &BackupProgress) -> (u64, u64) {
    let done = progress.done_bytes.load(Ordering::Relaxed);
    (done, progress.total_bytes.load(Ordering::Relaxed))
}

impl Backups {
    pub fn add(&self, progress: &Arc<BackupProgress>) {
        self.opened.fetch_add(1, Ordering::Relaxed);
        let mut streams = self.streams.lock();
        streams.retain(|stream| stream.strong_count() > 0);
        streams.push(Arc::downgrade(progress));
    }

    /// Whether a stream is open.
    pub fn is_open(&self) -> bool {
        let streams = self.streams.lock();
        streams.iter().any(|stream| stream.strong_count() > 0)
    }

    /// Begins a copy into a directory.
    ///
    /// # Errors
    /// `ConflictingOperationInProgress` (117) if there is one.
    pub fn begin_copy(&self, source: String, target: String) -> Result<CopyEntry<'_>> {
        let mut directory = self.directory.lock();
        if let Some(copying) = &*directory {
            return Err(Error::new(
                ErrorCode::ConflictingOperationInProgress,
                format!("a backup into {} is in progress", copying.target),
            ));
        }
        *directory = Some(Copying {
            source,
            target,
            progress: None,
        });
        Ok(CopyEntry(self))
    }

    /// The limit of copies into a directory, in bytes per second.
    pub fn throttle(&self) -> &Arc<AtomicU64> {
        &self.throttle
    }

    /// The progress of the copy into a directory, as TokuMX shows it.
    pub fn copy_status(&self) -> Option<DocBuf> {
        let directory = self.directory.lock();
        let copying = directory.as_ref()?;
        let progress = copying.progress.as_deref();
        let (done, total) = progress.map_or((0, 0), done_and_total);
        let percent = match total {
            0 => 0.0,
            total => done as f64 * 100.0 / total as f64,
        };
        Some(doc! {
            "percent": percent,
            "bytesDone": long(done),
            "files": {"done": 0, "total": 1},
            "current": {
                "source": copying.source.as_str(),
                "dest": copying.target.as_str(),
                "bytes": {"done": long(done), "total": long(total)},
            },
        })
    }

    /// For `serverStatus`.
    pub fn to_doc(&self) -> DocBuf {
        let streams: Vec<_> = self
            .streams
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        let mut section = doc! {
            "opened": long(self.opened.load(Ordering::Relaxed)),
            "open": streams.len() as i64,
            "throttleBytesPerSecond": long(self.throttle.load(Ordering::Relaxed)),
        };
        section.push_array("streams", |list| {
            for progress in &streams {
                let (done, total) = done_and_total(progress);
                list.push_doc(|stream| {
                    stream.push("bytesDone", long(done));
                    stream.push("bytesTotal", long(total));
                    let log = progress.log_bytes.load(Ordering::Relaxed);
                    stream.push("logBytes", long(log));
                });
            }
        });
        if let Some(status) = self.copy_status() {
            section.push("directory", &status);
        }
        section
    }
}

fn long(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
