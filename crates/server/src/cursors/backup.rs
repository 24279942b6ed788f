//! The stream of a backup as the source of a cursor.

use std::time::{Duration, Instant};

use frond_bson::DocBuf;
use frond_error::Result;
use frond_store::OpContext;
use frond_store::backup::{BackupStream, Step};

/// The idle timeout: a stream keeps space and the log from being reused.
pub const IDLE_MAX: Duration = Duration::from_secs(120);

/// The stream of a backup, and until when it waits.
pub struct BackupSource {
    stream: BackupStream,
    /// The limits of the operation that reads from it.
    pub context: OpContext,
    /// When there may be more documents.
    pub paused_until: Option<Instant>,
    /// Whether there are no more.
    pub ended: bool,
}

impl BackupSource {
    /// A stream of which nothing was read.
    pub fn new(stream: BackupStream) -> BackupSource {
        BackupSource {
            stream,
            context: OpContext::new(),
            paused_until: None,
            ended: false,
        }
    }

    /// The bytes that it holds in memory.
    pub fn held_bytes(&self) -> usize {
        self.stream.held_bytes()
    }

    /// The next document. `None` if it waits or has ended.
    pub fn next(&mut self) -> Result<Option<DocBuf>> {
        match self.stream.next(&self.context)? {
            Step::Document(document) => return Ok(Some(document)),
            Step::Pause(time) => self.paused_until = Instant::now().checked_add(time),
            Step::End => self.ended = true,
        }
        Ok(None)
    }
}
