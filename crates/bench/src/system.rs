//! The operations that workloads need from a database system.
//!
//! A workload knows a [`System`] and the [`Session`]s that it opens, and nothing of how they are
//! reached. So every system is measured by the same code: servers that speak MongoDB's protocol
//! (`crate::mongodb`), and others by adapters outside of this crate.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use frond_bson::{Doc, DocBuf, Value};
pub use frond_client::WriteConcern;
use frond_client::{Collection, Result};

pub use crate::documents::groups::Groups;
use crate::documents::manykeys::Documents;
use crate::documents::updates::Update;

/// A kind of connection string.
pub trait Scheme: Sync {
    /// Prefix of the URI, such as `mongodb://`.
    fn prefix(&self) -> &'static str;

    /// Reads a connection string. Nothing is connected yet.
    fn open(&self, uri: &str) -> Result<Box<dyn System>>;
}

/// A database system that takes part in a run.
pub trait System: Send + Sync {
    /// Opens a connection. Setting `stop` ends its waits with [`crate::Error::Stopped`].
    fn connect(&self, stop: &Arc<AtomicBool>) -> Result<Box<dyn Session>>;

    /// Returns the defaults for databases and writes that the connection string sets.
    fn defaults(&self) -> Defaults {
        Defaults::default()
    }
}

/// Settings of a connection string, which options of the command line override.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Defaults {
    pub database: Option<String>,
    /// `w`: 0 or 1.
    pub write_concern: Option<u8>,
    pub journal: Option<bool>,
}

/// One connection, for one thread: one request at a time.
pub trait Session:
    Setup
    + Inserts
    + KeyUpdates
    + Transactions
    + Finds
    + Grouping
    + Retention
    + Counters
    + Everyday
    + Send
{
}

impl<T> Session for T where
    T: Setup
        + Inserts
        + KeyUpdates
        + Transactions
        + Finds
        + Grouping
        + Retention
        + Counters
        + Everyday
        + Send
{
}

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

impl Index {
    pub const fn on(fields: &'static [&'static str]) -> Index {
        Index {
            fields,
            multikey: false,
        }
    }
}

/// Definition of a collection to create.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Definition {
    /// Secondary indexes. That on `_id` is always there.
    pub indexes: Vec<Index>,
    /// `None` leaves it to the system.
    pub compression: Option<Compression>,
    /// The lifetime of the documents; `None` for ever.
    pub retention: Option<Retain>,
    /// Whether `_id` is a 32-bit integer, for systems that declare it. So it is wherever `k` is indexed.
    pub integer_ids: bool,
}

impl Definition {
    /// With the compression of the system's choice.
    pub fn with_indexes(indexes: &[Index]) -> Definition {
        Definition {
            indexes: indexes.to_vec(),
            compression: None,
            retention: None,
            integer_ids: false,
        }
    }
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

/// The way in which documents of a limited lifetime are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Expire {
    /// The server deletes them by a TTL index
    Ttl,
    /// They are in partitions by time, which are dropped as a whole
    Partitions,
    /// The client deletes them in batches
    Delete,
}

/// The lifetime of documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retain {
    /// The field with the date.
    pub field: &'static str,
    pub seconds: u32,
    pub by: Expire,
    /// Seconds of a partition.
    pub every: u32,
    /// Seconds between two passes of the server's TTL monitor; 0 leaves it as it is.
    pub ttl_sleep: u32,
}

/// Operations of the workload `rolling`.
pub trait Retention {
    /// Does the client's part of the removal of documents whose date is before `now_ms` less the lifetime: one batch of deletes,
    /// or partitions created and dropped. Returns whether there may be more to do at once.
    fn expire(&mut self, collection: &Collection, retain: &Retain, now_ms: u64) -> Result<bool>;

    /// Documents whose date is before `before_ms`.
    fn count_before(
        &mut self,
        collection: &Collection,
        field: &'static str,
        before_ms: u64,
    ) -> Result<u64>;
}

/// Operations of the workload `counters`: documents `{_id, n}` with integers.
pub trait Counters {
    /// Makes the collection. `fast` asks for updates that read nothing, if the system has them.
    fn create_counters(&mut self, collection: &Collection, fast: bool) -> Result<()>;

    /// Inserts counters that are 0.
    fn insert_counters(&mut self, collection: &Collection, keys: &[i64]) -> Result<()>;

    /// Adds 1 to each counter, which is made if it is not there, by one request. A key may be there twice.
    fn increment(&mut self, collection: &Collection, keys: &[i64]) -> Result<()>;

    /// The value of a counter; `None` if it is not there.
    fn counter(&mut self, collection: &Collection, key: i64) -> Result<Option<i64>>;

    /// The number of counters, and the sum of their values.
    fn total(&mut self, collection: &Collection) -> Result<(u64, i64)>;
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

    /// Its process, if it runs on this machine and says so.
    fn process(&mut self) -> Result<Option<u32>>;

    /// Asks the system to write everything.
    fn write_all(&mut self) -> Result<()>;

    /// Returns when the system has processed everything that this session sent.
    fn drain(&mut self) -> Result<()>;
}

/// Waits for idle compaction: makes the system write everything, then returns when it has written
/// nothing for two seconds or `longest` has passed. Returns at once for a system that does not report
/// what it writes.
pub fn wait_until_idle(
    session: &mut dyn Session,
    longest: Duration,
    go_on: &dyn Fn() -> Result<()>,
) -> Result<Status> {
    const POLL: Duration = Duration::from_millis(250);
    const IDLE: Duration = Duration::from_secs(2);
    if !longest.is_zero() {
        session.write_all()?;
    }
    let start = Instant::now();
    let mut status = session.status()?;
    let mut since = start;
    while status.data_bytes.is_some() && start.elapsed() < longest && since.elapsed() < IDLE {
        std::thread::sleep(POLL.min(longest));
        go_on()?;
        let now = session.status()?;
        if (now.data_bytes, now.log_bytes) != (status.data_bytes, status.log_bytes) {
            since = Instant::now();
        }
        status = now;
    }
    Ok(status)
}

/// The memory that a system uses at one moment. `None` where it does not report it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MemoryUsage {
    /// Resident memory of the server's process, in MiB.
    pub resident_mib: Option<f64>,
    /// Contents of its cache, in MiB.
    pub cache_mib: Option<f64>,
}

/// The operations that servers count (`opcounters`), in the order of mongostat.
pub const OPERATIONS: [&str; 6] = ["insert", "query", "update", "delete", "getmore", "command"];

/// Counters since the start of the server, and what it uses now. `None` where it does not report it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Status {
    /// Operations, in the order of [`OPERATIONS`].
    pub operations: [Option<f64>; 6],
    /// Bytes written to the log.
    pub log_bytes: Option<f64>,
    /// Bytes written to data files.
    pub data_bytes: Option<f64>,
    /// Bytes received over the network.
    pub network_in: Option<f64>,
    /// Bytes sent over the network.
    pub network_out: Option<f64>,
    pub connections: Option<f64>,
    /// Virtual memory of the process, in MiB.
    pub virtual_mib: Option<f64>,
    /// Resident memory and cache.
    pub memory: MemoryUsage,
}

/// Documents of one insert: BSON of equal lengths, one after another.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    pub bytes: &'a [u8],
    pub each: usize,
}

impl<'a> Batch<'a> {
    pub fn len(&self) -> usize {
        self.bytes.len() / self.each.max(1)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn documents(&self) -> impl Iterator<Item = &'a Doc> {
        self.bytes
            .chunks_exact(self.each.max(1))
            .map(Doc::from_trusted)
    }
}

/// Inserts. The order of calls is `insert_into`, and then for each batch `prepare`, `send`, `finish`;
/// the next `prepare` may come before the `finish` of the batch that was sent.
pub trait Inserts {
    /// Sets the collection of the inserts that follow.
    fn insert_into(&mut self, collection: &Collection, concern: WriteConcern) -> Result<()>;

    fn prepare(&mut self, batch: Batch<'_>) -> Result<()>;

    fn send(&mut self) -> Result<()>;

    /// Reads the reply to the batch that was sent. Anything but all documents inserted is an error.
    /// Returns at once if nothing is acknowledged.
    fn finish(&mut self) -> Result<()>;
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Find<'a> {
    pub field: &'a str,
    pub from: From<'a>,
    /// Documents at most; 0 is all.
    pub limit: u32,
}

/// Values wanted. In a field with an array, any of its elements may be one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum From<'a> {
    Equal(Value<'a>),
    /// This one and greater ones of its type, in ascending order.
    AtLeast(Value<'a>),
}

/// Finds, all of whose documents are fetched.
pub trait Finds {
    fn find(&mut self, collection: &Collection, find: &Find<'_>) -> Result<u64>;
}

/// A sum for each value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group<'a> {
    /// The field with a group for each of its values.
    pub by: &'a str,
    /// The field whose integers are added.
    pub sum: &'a str,
    /// Only documents whose `sum` field is below this.
    pub below: Option<i32>,
}

pub trait Grouping {
    /// Counts the documents of each group, and adds up a field of theirs. All groups are fetched.
    fn group(&mut self, collection: &Collection, group: &Group<'_>) -> Result<Groups>;
}

/// The ids of a range.
pub type Ids = RangeInclusive<i32>;

/// An operation of the workload `sysbench`. Documents are `{_id, k, c, pad}` with 32-bit integers as `_id`.
#[derive(Clone, Debug)]
pub enum Operation<'a> {
    /// Finds `c` of a document by `_id`.
    Point(i32),
    /// Finds `c` of documents.
    Range(Ids),
    /// The sum of `k`, made by the system.
    Sum(Ids),
    /// Finds `c`, ordered by `c`.
    Ordered(Ids),
    /// The different values of `c`.
    Distinct(Ids),
    /// Adds 1 to `k`, which is indexed.
    UpdateK(i32),
    /// Sets `c`, which is not indexed.
    UpdateC(i32, &'a str),
    Delete(i32),
    /// Inserts a document, unless there is one with its `_id`.
    Insert(&'a Doc),
}

pub trait Transactions {
    /// Does an operation by a request of its own, acknowledged and not journaled. Returns how many documents or values were
    /// found, changed, deleted or inserted; of a sum the sum.
    fn operate(&mut self, collection: &Collection, operation: &Operation<'_>) -> Result<u64>;
}

/// A range of the integers of a field, from one on and below another. One of a single integer is asked for by equality.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    pub field: &'static str,
    pub from: i32,
    pub below: i32,
}

/// An operation of the workload `everyday`, by one request. Documents are those of `documents/everyday.rs`.
#[derive(Clone, Copy, Debug)]
pub enum Task<'a> {
    /// The number of documents that meet all conditions.
    Count(&'a [Condition]),
    /// Fetches them by an aggregation. Returns how many they are.
    Match(&'a [Condition]),
    /// Fetches the documents with the greatest values of a field, the greatest first. Returns the sum of these values.
    Top {
        by: &'static str,
        limit: u32,
    },
    /// Fetches documents by `_id`, each with those of another collection whose `_id` is in a field. Returns how many of these there are.
    Lookup {
        ids: &'a Ids,
        other: &'a Collection,
        by: &'static str,
    },
    /// The number of different values of a field, all of which are fetched.
    Distinct(&'static str),
    /// Fetches a document by `_id`.
    Point(i32),
    /// Fetches documents by a range of `_id`.
    Range(&'a Ids),
    /// Fetches documents by a list of `_id`s.
    In(&'a [i32]),
    /// Fetches documents in the order of `_id` behind some others. Returns the sum of their `_id`s.
    Skip {
        skip: u32,
        limit: u32,
    },
    /// Adds 1 to `w` of a document.
    UpdateOne(i32),
    /// Adds 1 to `w` of a document, and fetches it as it is then.
    FindAndUpdate(i32),
    /// Adds 1 to `w` of the documents that meet a condition.
    UpdateMany(Condition),
    DeleteOne(i32),
    DeleteMany(Condition),
    InsertOne(&'a Doc),
}

/// Operations of the workload `everyday`.
pub trait Everyday {
    /// Called when a collection was loaded: what the system would do by itself some time later, such as statistics.
    fn loaded(&mut self, collection: &Collection) -> Result<()>;

    /// Does an operation, acknowledged and not journaled. Returns how many documents or values were found, changed, deleted or
    /// inserted, or what the operation says.
    fn perform(&mut self, collection: &Collection, task: &Task<'_>) -> Result<u64>;
}

/// Operations of the workload `manykeys`.
pub trait KeyUpdates {
    /// Encodes the updates of a round, so that [`KeyUpdates::execute`] only sends.
    fn encode(
        &mut self,
        collection: &Collection,
        concern: WriteConcern,
        documents: &Documents,
        updates: &mut dyn Iterator<Item = &Update>,
    ) -> Result<()>;

    /// Sends the encoded updates one after the other, and passes the time of each to `done`, which
    /// returns whether to go on. Ends when the system has applied the last one. An update that does
    /// not find its document is an error if it is acknowledged.
    fn execute(&mut self, done: &mut dyn FnMut(Duration) -> bool) -> Result<()>;

    /// Finds the document with this ObjectId: the whole of it, or `_id` and one field, given by its
    /// path. The time is that from the first byte sent to the last one received.
    fn find_by_id(
        &mut self,
        collection: &Collection,
        id: [u8; 12],
        field: Option<&str>,
    ) -> Result<(Option<DocBuf>, Duration)>;

    /// Whether documents come back with their fields in the order in which they were written, and with
    /// the types of their numbers. Where they do not, both are left out of the comparison.
    fn keeps_order_and_types(&self) -> bool {
        true
    }
}
