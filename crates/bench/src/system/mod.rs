//! The operations that workloads need from a database system.
//!
//! A workload knows a [`System`] and the [`Session`]s that it opens, and nothing of how they are
//! reached. So every system is measured by the same code: servers that speak MongoDB's protocol
//! (`crate::mongodb`), and others by adapters outside of this crate.

mod finds;
mod inserts;
mod setup;
mod status;
mod transactions;
mod updates;

pub use finds::{Find, Finds, From, Group, Grouping, Groups};
pub use inserts::{Batch, Inserts};
pub use setup::{Compression, Definition, Description, Index, Setup, Sizes, wait_until_idle};
pub use status::{MemoryUsage, OPERATIONS, Status};
pub use transactions::Transactions;
pub use updates::KeyUpdates;

pub use frond_client::WriteConcern;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use frond_client::Result;

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
pub trait Session: Setup + Inserts + KeyUpdates + Transactions + Finds + Grouping + Send {}

impl<T: Setup + Inserts + KeyUpdates + Transactions + Finds + Grouping + Send> Session for T {}
