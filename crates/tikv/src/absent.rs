//! The handles in a build without the client. They have no values, so their methods are never called.

#![allow(
    missing_docs,
    clippy::missing_errors_doc,
    reason = "`client` documents the same methods"
)]

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use frond_kv::{Committed, Direction, Error, MemoryBudget, Operations, Result, TreeId, WriteSet};

use crate::{ClusterOptions, ClusterStats, Collected, TreeSize};

/// Gives a type without values its methods: names, types of the arguments, types of the results.
macro_rules! methods {
    ($type:ident { $(fn $name:ident($($argument:ty),*) -> $result:ty;)* }) => {
        impl $type {
            $(pub fn $name(&self $(, _: $argument)*) -> $result { match self.0 {} })*
        }
    };
}

/// A private field of this type hides from the compiler that callers' code is unreachable, so that it does not warn of it.
#[derive(Clone, Copy, Debug)]
enum Never {}

/// Keys with their values.
type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

#[derive(Clone, Debug)]
pub struct Cluster(Never);

impl Cluster {
    /// Fails, because this build has no client.
    pub fn open(_: ClusterOptions) -> Result<Cluster> {
        Err(Error::Unsupported(
            "this build of frond has no TiKV client; build it with `--features cluster`",
        ))
    }
}

methods! { Cluster {
    fn instance() -> u32;
    fn allocate_tree() -> Result<TreeId>;
    fn snapshot() -> Snapshot;
    fn snapshot_at(u64) -> Option<Snapshot>;
    fn get_latest(TreeId, &[u8]) -> Result<Option<Option<Vec<u8>>>>;
    fn scan_latest(TreeId, &[u8], u32) -> Result<Option<Pairs>>;
    fn commit(WriteSet<Snapshot>) -> Result<Committed>;
    fn commit_without_lease(WriteSet<Snapshot>) -> Result<Committed>;
    fn begin_instance() -> Result<()>;
    fn set_lease(u64, u64) -> ();
    fn extend_lease(u64) -> ();
    fn fence(u32, u64) -> Result<()>;
    fn begin(&Snapshot) -> Transaction;
    fn await_transaction(TreeId, &[u8]) -> Result<()>;
    fn oldest_snapshot() -> u64;
    fn collect_garbage(u64, Duration, &[u32]) -> Result<Collected>;
    fn now_ms() -> u64;
    fn memory() -> &MemoryBudget;
    fn count(TreeId) -> Result<u64>;
    fn tree_size(TreeId, u64) -> Result<TreeSize>;
    fn durable_stamp() -> u64;
    fn set_stamp_listener(Arc<dyn Fn(u64) + Send + Sync>) -> ();
    fn set_stamp_combination(Arc<dyn Fn(u64) -> Option<u64> + Send + Sync>) -> ();
    fn stamps_bound() -> Result<u64>;
    fn stamp_now() -> Result<u64>;
    fn settle_durable_stamp() -> Result<()>;
    fn request_durable_stamp() -> ();
    fn close() -> Result<()>;
    fn stats() -> ClusterStats;
} }

#[derive(Clone, Debug)]
pub struct Snapshot(Never);

methods! { Snapshot {
    fn stamp() -> Result<Option<u64>>;
    fn timestamp() -> Result<u64>;
    fn get(TreeId, &[u8]) -> Result<Option<Vec<u8>>>;
    fn prefetch(&[(TreeId, &[u8])]) -> Result<()>;
    fn presume_absent(&[(TreeId, &[u8])]) -> ();
    fn contains(TreeId, &[u8]) -> Result<bool>;
    fn has_tree(TreeId) -> Result<bool>;
    fn trees() -> Result<Vec<TreeId>>;
    fn last_key(TreeId) -> Result<Vec<u8>>;
    fn cursor(TreeId, Bound<&[u8]>, Bound<&[u8]>, Direction) -> Result<Cursor>;
} }

#[derive(Debug)]
pub struct Cursor(Never);

methods! { Cursor {
    fn next() -> Result<Option<(&[u8], &[u8])>>;
    fn seek(&[u8]) -> Result<()>;
} }

#[derive(Debug)]
pub struct Transaction(Never);

methods! { Transaction {
    fn snapshot() -> Snapshot;
    fn stage_leaving_room(Operations, usize) -> Result<()>;
    fn bytes() -> usize;
    fn is_empty() -> bool;
    fn commit(Operations) -> Result<Committed>;
} }
