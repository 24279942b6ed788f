//! Ordered trees of bytes in a TiKV cluster, with the snapshots, write sets and transactions of the embedded engine.
//!
//! Nothing distributed is done here: TiKV divides the keys into regions, replicates them and carries out transactions. This
//! crate lays out trees as prefixes of keys, turns a write set into one transaction, and blocks its callers until the
//! cluster has answered.
//!
//! The client and its dependencies are a large part of a build, so they are a feature, `client`. Without it the handles have no
//! values, and `Cluster::open` returns an error that names the feature.

#[cfg(not(feature = "client"))]
mod absent;
#[cfg(feature = "client")]
mod client;
mod collected;
mod options;
mod seam;
mod stats;
mod tree_size;

#[cfg(not(feature = "client"))]
pub use absent::{Cluster, Cursor, Snapshot, Transaction};
#[cfg(feature = "client")]
pub use client::{Cluster, Cursor, Snapshot, Transaction};
pub use collected::Collected;
pub use options::{ClusterOptions, Report};
pub use stats::{ClusterStats, KeptVersions, Requests};
pub use tree_size::TreeSize;

/// The operations of one commit, and the snapshot that guarded keys must not have changed since.
pub type WriteSet = frond_kv::WriteSet<Snapshot>;
