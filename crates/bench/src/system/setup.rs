//! Outside of the measured time: collections, their indexes and sizes, the description of a system.

use std::time::Duration;

use super::status::Status;
use frond_client::{Collection, Result};

/// Name and facts of a system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// Name and version, such as "PostgreSQL 15.8".
    pub name: String,
    /// Further facts for the report: (name, value).
    pub facts: Vec<(&'static str, String)>,
    /// It stores nothing, and is the limit of client and loopback.
    pub null: bool,
}

/// Compression of the pages of a collection and of its indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Compression {
    /// Not at all.
    None,
    /// Fast.
    Snappy,
    /// Slower, of 1995.
    Zlib,
    /// Fast and small, of 2016.
    Zstd,
}

impl Compression {
    /// The name that servers know it by.
    pub fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Snappy => "snappy",
            Compression::Zlib => "zlib",
            Compression::Zstd => "zstd",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Index {
    pub fields: &'static [&'static str],
    /// Each element of an array in its field makes an entry.
    pub multikey: bool,
}

/// Definition of a collection to create.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Definition {
    /// Secondary indexes. That on `_id` is always there.
    pub indexes: Vec<Index>,
    /// `None` leaves it to the system.
    pub compression: Option<Compression>,
}

/// The sizes of a collection. `None` where the system does not report them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sizes {
    pub documents: Option<u64>,
    /// Bytes of its documents, not compressed.
    pub logical_bytes: Option<u64>,
    /// Bytes of its documents on disk.
    pub storage_bytes: Option<u64>,
    /// Bytes of its indexes on disk, that on `_id` included.
    pub index_bytes: Option<u64>,
}

impl Sizes {
    /// Bytes of a document.
    pub fn each(&self, bytes: Option<u64>) -> Option<f64> {
        let documents = self.documents.filter(|n| *n > 0)?;
        Some(bytes? as f64 / documents as f64)
    }

    pub fn logical(&self) -> Option<f64> {
        self.each(self.logical_bytes)
    }

    pub fn storage(&self) -> Option<f64> {
        self.each(self.storage_bytes)
    }

    pub fn indexes(&self) -> Option<f64> {
        self.each(self.index_bytes)
    }

    pub fn on_disk(&self) -> Option<f64> {
        Some(self.storage()? + self.indexes()?)
    }
}

/// Operations outside of the measured time.
pub trait Setup {
    /// The system that answers.
    fn describe(&mut self) -> Description;

    /// Refuses batches that this system would refuse.
    fn check_batch(&self, acknowledged: bool, batch: u32, document_bytes: usize) -> Result<()>;

    /// Drops a collection, if it is there.
    fn drop_collection(&mut self, collection: &Collection) -> Result<()>;

    /// Makes a collection that is not there, or indexes of one that is.
    fn create(&mut self, collection: &Collection, definition: &Definition) -> Result<()>;

    /// Its documents; 0 if it is not there.
    fn count(&mut self, collection: &Collection) -> Result<u64>;

    fn sizes(&mut self, collection: &Collection) -> Result<Sizes>;

    /// The counters of the system so far. Those that it does not report are `None`.
    fn status(&mut self) -> Result<Status>;

    /// Asks the system to write everything.
    fn write_all(&mut self) -> Result<()>;

    /// Returns when the system has processed everything that this session sent.
    fn drain(&mut self) -> Result<()>;
}

/// Waits for idle compaction: asks the system to write everything, then returns when it has written
/// nothing for two seconds or `longest` has passed. Returns at once for a system that does not report
/// what it writes.
pub fn wait_until_idle(
    session: &mut dyn super::Session,
    longest: Duration,
    go_on: &dyn Fn() -> Result<()>,
) -> Result<Status> {
    const POLL: Duration = Duration::from_millis(250);
    const IDLE: Duration = Duration::from_secs(2);
    if !longest.is_zero() {
        session.write_all()?;
    }
    let start = std::time::Instant::now();
    let mut status = session.status()?;
    let mut since = start;
    while status.data_bytes.is_some() && start.elapsed() < longest && since.elapsed() < IDLE {
        std::thread::sleep(POLL.min(longest));
        go_on()?;
        let now = session.status()?;
        if (now.data_bytes, now.log_bytes) != (status.data_bytes, status.log_bytes) {
            since = std::time::Instant::now();
        }
        status = now;
    }
    Ok(status)
}
