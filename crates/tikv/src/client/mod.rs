//! The client: what talks to the cluster.

#[cfg(test)]
mod async_commit;
mod bound;
mod cluster;
mod commit;
mod connection;
mod counters;
mod cursor;
mod debounce;
mod direct;
mod failure;
mod fence;
mod garbage;
mod held_keys;
mod instances;
mod keys;
mod overlay;
mod pd;
mod regions;
mod registration;
mod safepoint;
mod shared;
mod snapshot;
mod stamps;
mod transaction;
mod trees;
mod value;

pub use cluster::Cluster;
pub use cursor::Cursor;
pub use snapshot::Snapshot;
pub use transaction::Transaction;
