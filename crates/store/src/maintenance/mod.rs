//! Work in the background that no client waits for. The server calls each job from time to time, and says when one is due.
//!
//! | job | where |
//! | --- | --- |
//! | expired documents | [`ttl`] |
//! | leftovers of servers that are gone | [`leftovers`] |
//! | the oldest entries of the oplog, and pre-images | [`crate::oplog::Oplog::trim`], beside the marks of its sections |
//! | records of old sessions | `catalog/session_records.rs`, beside their format |
//! | old versions in a shared keyspace | `coordination/cluster/garbage.rs`, which needs the versions of all servers |

mod leftovers;
mod ttl;

pub use ttl::{Expiring, TtlBacklog, TtlBatch, TtlLimits, TtlPass};
