//! A copy of a store that is open as a data directory, which another server can open.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use frond_bson::Doc;

use super::rate::Rate;
use super::request::BackupRequest;
use super::stream::{BackupProgress, BackupStream, Step};
use super::target::RestoreTarget;
use crate::store::DocumentStore;
use frond_storage::context::OpContext;
use frond_storage::error::{Result, corrupt};
use frond_storage::keyspace::{RestorePoint, Restored};

/// The longest wait without a look at the limits of the operation.
const WAIT: Duration = Duration::from_millis(50);

/// A copy that is being made.
pub struct DirectoryBackup {
    stream: BackupStream,
    target: RestoreTarget,
}

impl DocumentStore {
    /// Begins to copy the store into a directory that is empty or does not exist. `bytes_per_second` can be changed
    /// meanwhile; 0 is no limit.
    ///
    /// # Errors
    /// If the directory is not empty; errors of the engine and of the disk.
    pub fn backup_to(
        &self,
        path: &Path,
        bytes_per_second: Arc<AtomicU64>,
    ) -> Result<DirectoryBackup> {
        let keys = self.open_keys().map(|keys| keys.lock().keys().clone());
        let target = RestoreTarget::create(path)?.with_store_keys(keys);
        let mut stream = match self.backup_stream(BackupRequest::default()) {
            Ok(stream) => stream,
            Err(error) => {
                target.discard();
                return Err(error);
            }
        };
        stream.set_rate(Rate::shared(bytes_per_second));
        Ok(DirectoryBackup { stream, target })
    }
}

impl DirectoryBackup {
    /// The progress of the backup.
    pub fn progress(&self) -> &Arc<BackupProgress> {
        self.stream.progress()
    }

    /// Copies everything. The state is that of the moment when the copy was begun.
    ///
    /// # Errors
    /// Damage, errors of the disk, the limits of the context. Nothing is left in the directory then.
    pub fn run(mut self, context: &OpContext) -> Result<Restored> {
        match self.copy(context) {
            Ok((head, position)) => self.target.finish(&head, RestorePoint::Position(position)),
            Err(error) => {
                self.target.discard();
                Err(error)
            }
        }
    }

    /// Returns the head and the position at which the log is to be cut.
    fn copy(&mut self, context: &OpContext) -> Result<(Vec<u8>, u64)> {
        let (mut head, mut position) = (None, None);
        loop {
            match self.stream.next(context)? {
                Step::Document(document) => match document.get_str("t") {
                    Some("head") => head = document.get_binary("bytes").map(<[u8]>::to_vec),
                    Some("mark") => position = number(&document, "position"),
                    Some("data") => {
                        let parts = (number(&document, "offset"), document.get_binary("bytes"));
                        if let (Some(offset), Some(bytes)) = parts {
                            self.target.extent(offset, bytes)?;
                        }
                    }
                    Some("log") => {
                        let parts = (
                            number(&document, "from"),
                            number(&document, "to"),
                            document.get_binary("bytes"),
                        );
                        if let (Some(from), Some(to), Some(bytes)) = parts {
                            self.target.log(from, to, bytes)?;
                        }
                    }
                    _ => {}
                },
                Step::Pause(time) => {
                    let until = Instant::now() + time.min(Duration::from_secs(3600));
                    while let left = until.saturating_duration_since(Instant::now())
                        && !left.is_zero()
                        && (self.stream.must_wait() || time < WAIT)
                    {
                        context.check()?;
                        std::thread::sleep(left.min(WAIT));
                    }
                }
                Step::End => break,
            }
        }
        head.zip(position)
            .ok_or_else(|| corrupt("the stream of a backup"))
    }
}

fn number(document: &Doc, name: &str) -> Option<u64> {
    u64::try_from(document.get_i64(name)?).ok()
}
