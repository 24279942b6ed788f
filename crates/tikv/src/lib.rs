//! Ordered trees of bytes in a TiKV cluster, with the snapshots, write sets and transactions of the embedded engine.
//!
//! Nothing distributed is done here: TiKV divides the keys into regions, replicates them and carries out transactions. This
//! crate lays out trees as prefixes of keys, turns a write set into one transaction, and blocks its callers until the
//! cluster has answered.

mod bound;
mod cluster;
mod collected;
mod commit;
mod connection;
mod counters;
mod cursor;
mod direct;
mod failure;
mod fence;
mod garbage;
mod held;
mod instances;
mod keys;
mod options;
mod overlay;
mod pd;
mod raiser;
mod regions;
mod shared;
mod snapshot;
mod stamps;
mod stats;
mod transaction;
mod trees;
mod value;

pub use cluster::Cluster;
pub use collected::Collected;
pub use cursor::Cursor;
pub use options::ClusterOptions;
pub use snapshot::Snapshot;
pub use stats::{ClusterStats, Requests};
pub use transaction::Transaction;
