//! A cluster as an engine behind the seam, [`frond_kv::Engine`]. Each method is that of the type, with its documentation.

use std::future::{Future, ready};
use std::ops::Bound;
use std::sync::Arc;

use frond_kv::{
    Committed, Direction, Durability, MemoryBudget, Operations, Result, TreeId, TreeStats, WriteSet,
};

use crate::{Cluster, Cursor, Snapshot, Transaction};

/// Stamps are made of timestamps of the cluster and every commit is durable, so neither a reservation nor a choice of durability
/// matters.
impl frond_kv::Engine for Cluster {
    type Snapshot = Snapshot;
    type Transaction = Transaction;

    fn allocate_tree(&self) -> Result<TreeId> {
        Cluster::allocate_tree(self)
    }

    fn snapshot(&self) -> Snapshot {
        Cluster::snapshot(self)
    }

    fn commit_reserving(
        &self,
        set: WriteSet<Snapshot>,
        _: Durability,
        _: impl FnMut() -> bool,
    ) -> Result<Committed> {
        Cluster::commit(self, set)
    }

    fn begin(&self, snapshot: &Snapshot) -> Transaction {
        Cluster::begin(self, snapshot)
    }

    fn await_transaction(&self, tree: TreeId, key: &[u8]) -> Result<()> {
        Cluster::await_transaction(self, tree, key)
    }

    fn trees(&self) -> Result<Vec<TreeId>> {
        Cluster::snapshot(self).trees()
    }

    /// Only the entries are counted, and not beyond some thousands.
    fn tree_stats(&self, tree: TreeId) -> TreeStats {
        TreeStats {
            entries_estimate: self.count(tree).unwrap_or(0),
            ..TreeStats::default()
        }
    }

    fn memory(&self) -> &MemoryBudget {
        Cluster::memory(self)
    }

    fn now_ms(&self) -> i64 {
        i64::try_from(Cluster::now_ms(self)).unwrap_or(i64::MAX)
    }

    fn durable_stamp(&self) -> u64 {
        Cluster::durable_stamp(self)
    }

    fn set_stamp_listener(&self, listener: Arc<dyn Fn(u64) + Send + Sync>) {
        Cluster::set_stamp_listener(self, listener);
    }

    fn request_sync(&self) {
        self.request_durable_stamp();
    }

    fn flush_log(&self) -> Result<()> {
        self.settle_durable_stamp()
    }

    fn log_flushed(&self) -> impl Future<Output = Result<()>> + Send {
        ready(Ok(()))
    }

    fn close(&self) -> Result<()> {
        Cluster::close(self)
    }
}

impl frond_kv::Snapshot for Snapshot {
    type Value = Vec<u8>;
    type Cursor = Cursor;

    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Snapshot::get(self, tree, key)
    }

    fn prefetch(&self, keys: &[(TreeId, &[u8])]) -> Result<()> {
        Snapshot::prefetch(self, keys)
    }

    fn gathers_reads(&self) -> bool {
        true
    }

    fn cursor(
        &self,
        tree: TreeId,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        direction: Direction,
    ) -> Result<Cursor> {
        Snapshot::cursor(self, tree, lower, upper, direction)
    }

    fn has_tree(&self, tree: TreeId) -> Result<bool> {
        Snapshot::has_tree(self, tree)
    }

    fn key_upper_bound(&self, tree: TreeId) -> Result<Option<Vec<u8>>> {
        self.last_key(tree).map(Some)
    }
}

impl frond_kv::Cursor for Cursor {
    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        Cursor::next(self)
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        Cursor::seek(self, key)
    }
}

impl frond_kv::Transaction for Transaction {
    type Snapshot = Snapshot;

    fn snapshot(&self) -> Snapshot {
        Transaction::snapshot(self)
    }

    fn stage_leaving_room(&self, set: Operations, extra_bytes: usize) -> Result<()> {
        Transaction::stage_leaving_room(self, set, extra_bytes)
    }

    fn bytes(&self) -> usize {
        Transaction::bytes(self)
    }

    fn is_empty(&self) -> bool {
        Transaction::is_empty(self)
    }

    fn commit_reserving(
        self,
        extra: Operations,
        _: Durability,
        _: impl FnMut() -> bool,
    ) -> Result<Committed> {
        self.commit(extra)
    }
}
