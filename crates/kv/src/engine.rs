//! The contract of an engine.
//!
//! These traits are the contract; the conformance suite (`frond-kv-testing`) checks it. They have associated types and no
//! objects, so a look-up, a step of a scan and a commit are called directly, and values are borrowed where the engine has them.

use std::future::Future;
use std::ops::{Bound, Deref};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::{
    Committed, Direction, Durability, MemoryBudget, Operations, Result, TreeId, TreeStats, WriteSet,
};

/// A store of ordered trees of bytes. A cheap handle; clones share everything.
pub trait Engine: Clone + Send + Sync + 'static {
    type Snapshot: Snapshot;
    type Transaction: Transaction<Snapshot = Self::Snapshot>;

    /// An id for a new tree. Ids are never used twice.
    ///
    /// # Errors
    /// [`crate::Error::Unavailable`].
    fn allocate_tree(&self) -> Result<TreeId>;

    /// A consistent view of everything that is committed now. If it cannot be had, its reads fail.
    fn snapshot(&self) -> Self::Snapshot;

    /// An empty write set whose guarded keys must not have changed since `snapshot`, with capacity for operations of about
    /// `bytes` bytes.
    fn write_set(&self, snapshot: &Self::Snapshot, bytes: usize) -> WriteSet<Self::Snapshot> {
        WriteSet::default().with_capacity(snapshot, bytes)
    }

    /// Commits a write set: all of it or nothing.
    ///
    /// # Errors
    /// [`crate::Error::Conflict`] if a guarded key was committed after the set's snapshot, or is held by an open transaction;
    /// [`crate::Error::NoStamp`] if it needs more stamps than are reserved; [`crate::Error::TooLarge`],
    /// [`crate::Error::InvalidOption`], errors of the disk; [`crate::Error::Unavailable`] if nothing was committed, and
    /// [`crate::Error::OutcomeUnknown`].
    fn commit(&self, set: WriteSet<Self::Snapshot>, how: Durability) -> Result<Committed> {
        self.commit_reserving(set, how, || false)
    }

    /// As [`Engine::commit`], for a write set with stamped keys. When no stamps are reserved, `reserve` is called without locks,
    /// and the commit is tried again if it returns true.
    ///
    /// # Errors
    /// As [`Engine::commit`].
    fn commit_reserving(
        &self,
        set: WriteSet<Self::Snapshot>,
        how: Durability,
        reserve: impl FnMut() -> bool,
    ) -> Result<Committed>;

    /// Begins a transaction on a snapshot.
    fn begin(&self, snapshot: &Self::Snapshot) -> Self::Transaction;

    /// Returns when the open transaction that holds a key, as a [`crate::Error::Conflict`] said, has ended; at once if there is
    /// none.
    ///
    /// # Errors
    /// [`crate::Error::Interrupted`].
    fn await_transaction(&self, tree: TreeId, key: &[u8]) -> Result<()>;

    /// Waits until there is room in memory for small commits, for callers that commit under a lock of their own.
    ///
    /// # Errors
    /// The errors of [`Engine::commit`], if the engine cannot free memory or disk space at present.
    fn await_room(&self) -> Result<()> {
        Ok(())
    }

    /// All trees, in the order of their ids.
    ///
    /// # Errors
    /// [`crate::Error::Unavailable`].
    fn trees(&self) -> Result<Vec<TreeId>>;

    /// Statistics of one tree; all zero if it does not exist.
    fn tree_stats(&self, tree: TreeId) -> TreeStats;

    /// The memory budget of the process. Callers reserve in it what they hold for clients.
    fn memory(&self) -> &MemoryBudget;

    /// The milliseconds since 1970 by a clock that all servers of the same trees share.
    fn now_ms(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(0, |since| {
            i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
        })
    }

    /// The last stamp that readers may rely on: all commits with stamps up to it are durable and in every snapshot that is
    /// taken from now on, and no commit will take a stamp up to it.
    fn durable_stamp(&self) -> u64;

    /// Sets the function that is called whenever [`Engine::durable_stamp`] has grown, with the stamp.
    fn set_stamp_listener(&self, listener: Arc<dyn Fn(u64) + Send + Sync>);

    /// Requests that [`Engine::durable_stamp`] grows soon. Never waits.
    fn request_sync(&self);

    /// Returns when everything that was committed before the call is durable.
    ///
    /// # Errors
    /// Errors of the disk.
    fn flush_log(&self) -> Result<()>;

    /// As [`Engine::flush_log`], without a thread that waits.
    ///
    /// # Errors
    /// As [`Engine::flush_log`].
    fn log_flushed(&self) -> impl Future<Output = Result<()>> + Send;

    /// Makes everything durable and stops. Later commits fail; snapshots may still work.
    ///
    /// # Errors
    /// Errors of the disk.
    fn close(&self) -> Result<()>;
}

/// A consistent view of all trees: exactly the commits that were acknowledged before it was taken. It blocks no other operation.
pub trait Snapshot: Clone + Send + Sync {
    /// A value that was read.
    type Value: Deref<Target = [u8]>;
    type Cursor: Cursor;

    /// The value of a key.
    ///
    /// # Errors
    /// [`crate::Error::UnknownTree`] if the engine notices; errors of the disk or the cluster.
    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Self::Value>>;

    /// Whether a key is there.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    fn contains(&self, tree: TreeId, key: &[u8]) -> Result<bool> {
        Ok(self.get(tree, key)?.is_some())
    }

    /// Announces that some keys are about to be read, so that one request can read all of them, or several reads of a device at a time.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    fn prefetch(&self, _keys: &[(TreeId, &[u8])]) -> Result<()> {
        Ok(())
    }

    /// Whether a read takes a request over the network, so that it pays to gather keys for [`Snapshot::prefetch`].
    fn gathers_reads(&self) -> bool {
        false
    }

    /// The number of reads for which this thread has waited for the device. While that grows with each key, it pays to gather keys for
    /// [`Snapshot::prefetch`], too.
    fn waits_of_thread(&self) -> u64 {
        0
    }

    /// A cursor over the keys between two bounds. It keeps the snapshot.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    fn cursor(
        &self,
        tree: TreeId,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        direction: Direction,
    ) -> Result<Self::Cursor>;

    /// Whether the tree exists in this snapshot.
    ///
    /// # Errors
    /// Errors of the cluster.
    fn has_tree(&self, tree: TreeId) -> Result<bool>;

    /// An upper bound of the tree's keys: no key is greater. `None` if it is not cheap to find.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    fn key_upper_bound(&self, _tree: TreeId) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }

    /// Keys that divide a range of a tree into parts of about the same size, at most `most`; none if the engine does not know any.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    fn leaf_bounds(
        &self,
        _tree: TreeId,
        _lower: &[u8],
        _upper: Option<&[u8]>,
        _most: usize,
    ) -> Result<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }
}

/// A cursor over a range of keys of one tree.
pub trait Cursor: Send {
    /// The next key and its value, or `None` at the end of the range.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    #[allow(
        clippy::should_implement_trait,
        reason = "the result borrows from the cursor"
    )]
    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>>;

    /// Moves to `key`: forward, the next key is the first one at or after it; backward, the last one at or before it. The bounds
    /// of the cursor still hold.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    fn seek(&mut self, key: &[u8]) -> Result<()>;
}

/// A snapshot, and writes on it that only its own reads see until it is committed. Dropping it aborts it.
pub trait Transaction: Send + Sync {
    type Snapshot: Snapshot;

    /// A view with the writes that are staged so far. It does not see later ones.
    fn snapshot(&self) -> Self::Snapshot;

    /// Adds some operations to the transaction: all of them, or nothing after an error. Its guarded keys must not have changed
    /// since the base of the transaction. Also fails if the transaction could not be committed with an extra write set of
    /// `extra_bytes` bytes.
    ///
    /// # Errors
    /// [`crate::Error::Conflict`] if a guarded key was committed by others since, or is held by another open transaction;
    /// [`crate::Error::TooLarge`], [`crate::Error::OutOfMemory`], [`crate::Error::InvalidOption`] if it has stamped keys.
    fn stage_leaving_room(&self, set: Operations, extra_bytes: usize) -> Result<()>;

    /// Memory that the transaction takes, in bytes.
    fn bytes(&self) -> usize;

    /// Whether nothing is staged, not even a guard.
    fn is_empty(&self) -> bool;

    /// Commits the transaction together with the operations of `extra`, which may have stamped keys: all of it or nothing.
    /// `reserve` is that of [`Engine::commit_reserving`].
    ///
    /// # Errors
    /// As [`Engine::commit`].
    fn commit_reserving(
        self,
        extra: Operations,
        how: Durability,
        reserve: impl FnMut() -> bool,
    ) -> Result<Committed>;
}
