//! The client: what talks to the cluster.

#[cfg(test)]
mod async_commit;
mod attempts;
mod backoff;
mod bound;
mod calls;
mod clients;
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
mod long_keys;
mod measure;
mod overlay;
mod pd;
mod pd_http;
mod peers;
mod reach;
mod regions;
mod registration;
mod safepoint;
mod shared;
mod sizes;
mod snapshot;
mod stamps;
mod transaction;
mod trees;
mod unchanged;
mod value;

pub use cluster::Cluster;
pub use cursor::Cursor;
pub use snapshot::Snapshot;
pub use transaction::Transaction;
