//! The store as an engine behind the seam, [`frond_kv::Engine`]. Each method is that of the type, with its documentation.

use std::future::Future;
use std::ops::Bound;
use std::sync::Arc;

use frond_kv::{
    Committed, Direction, Durability, MemoryBudget, Operations, Result, TreeId, TreeStats,
};

use crate::data_file::reads_of_thread;
use crate::{Cursor, Snapshot, Store, Transaction, ValueRef, WriteSet};

impl frond_kv::Engine for Store {
    type Snapshot = Snapshot;
    type Transaction = Transaction;

    fn allocate_tree(&self) -> Result<TreeId> {
        Ok(Store::allocate_tree(self))
    }

    #[inline]
    fn snapshot(&self) -> Snapshot {
        Store::snapshot(self)
    }

    fn write_set(&self, snapshot: &Snapshot, bytes: usize) -> WriteSet {
        Store::write_set(self, snapshot, bytes)
    }

    #[inline]
    fn commit(&self, set: WriteSet, how: Durability) -> Result<Committed> {
        Store::commit(self, set, how)
    }

    fn commit_reserving(
        &self,
        set: WriteSet,
        how: Durability,
        reserve: impl FnMut() -> bool,
    ) -> Result<Committed> {
        Store::commit_reserving(self, set, how, reserve)
    }

    fn begin(&self, snapshot: &Snapshot) -> Transaction {
        Store::begin(self, snapshot)
    }

    fn await_transaction(&self, tree: TreeId, key: &[u8]) -> Result<()> {
        Store::await_transaction(self, tree, key)
    }

    fn await_room(&self) -> Result<()> {
        Store::await_room(self)
    }

    fn trees(&self) -> Result<Vec<TreeId>> {
        Ok(Store::trees(self))
    }

    fn tree_stats(&self, tree: TreeId) -> TreeStats {
        Store::tree_stats(self, tree)
    }

    #[inline]
    fn memory(&self) -> &MemoryBudget {
        Store::memory(self)
    }

    fn durable_stamp(&self) -> u64 {
        Store::durable_stamp(self)
    }

    fn set_stamp_listener(&self, listener: Arc<dyn Fn(u64) + Send + Sync>) {
        Store::set_stamp_listener(self, listener);
    }

    fn request_sync(&self) {
        Store::request_sync(self);
    }

    fn flush_log(&self) -> Result<()> {
        Store::flush_log(self)
    }

    fn log_flushed(&self) -> impl Future<Output = Result<()>> + Send {
        Store::log_flushed(self)
    }

    fn close(&self) -> Result<()> {
        Store::close(self)
    }
}

impl frond_kv::Snapshot for Snapshot {
    type Value = ValueRef;
    type Cursor = Cursor;

    #[inline]
    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<ValueRef>> {
        Snapshot::get(self, tree, key)
    }

    fn prefetch(&self, keys: &[(TreeId, &[u8])]) -> Result<()> {
        self.read_pages(keys);
        Ok(())
    }

    fn waits_of_thread(&self) -> u64 {
        reads_of_thread()
    }

    #[inline]
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
        Ok(Snapshot::has_tree(self, tree))
    }

    fn key_upper_bound(&self, tree: TreeId) -> Result<Option<Vec<u8>>> {
        Snapshot::key_upper_bound(self, tree)
    }

    fn leaf_bounds(
        &self,
        tree: TreeId,
        lower: &[u8],
        upper: Option<&[u8]>,
        most: usize,
    ) -> Result<Vec<Vec<u8>>> {
        Snapshot::leaf_bounds(self, tree, lower, upper, most)
    }
}

impl frond_kv::Cursor for Cursor {
    #[inline]
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
        Transaction::stage_leaving_room(self, WriteSet::from_parts(set, None), extra_bytes)
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
        how: Durability,
        reserve: impl FnMut() -> bool,
    ) -> Result<Committed> {
        let extra = WriteSet::from_parts(extra, None);
        Transaction::commit_reserving(self, extra, how, reserve)
    }
}
