//! The handle of an engine.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{
    ClusterOptions, ClusterStats, Committed, Damage, DiskSpace, Durability, Embedded, EngineError,
    EngineOptions, EngineReport, EngineStats, EngineTransaction, FlushPause, MemoryBudget,
    Progress, Snapshot, TreeId, TreeStats, ValueRef, WriteSet,
};

type Result<T, E = EngineError> = std::result::Result<T, E>;

/// The engine that holds the trees. A cheap handle; clone it freely.
#[derive(Clone)]
pub enum Engine {
    /// Files of this machine.
    Tree(Embedded),
    /// A TiKV cluster.
    Tikv(frond_tikv::Cluster),
}

impl Engine {
    /// Opens the embedded engine.
    ///
    /// # Errors
    /// As [`Embedded::open`].
    pub fn open(options: EngineOptions) -> Result<Engine> {
        Ok(Engine::Tree(Embedded::open(options)?))
    }

    /// Connects to a cluster.
    ///
    /// # Errors
    /// [`EngineError::InvalidOption`], [`EngineError::Unavailable`].
    pub fn connect(options: ClusterOptions) -> Result<Engine> {
        Ok(Engine::Tikv(frond_tikv::Cluster::open(options)?))
    }

    /// Verifies the files of an engine that is not open.
    ///
    /// # Errors
    /// As [`Embedded::verify`].
    pub fn verify(
        options: &EngineOptions,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<EngineReport> {
        Embedded::verify(options, progress)
    }

    /// The engine whose trees are files of this machine, with what only that has. `None` for a cluster.
    #[inline]
    pub fn embedded(&self) -> Option<&Embedded> {
        match self {
            Engine::Tree(store) => Some(store),
            Engine::Tikv(_) => None,
        }
    }

    /// The same for something that cannot be done without it.
    ///
    /// # Errors
    /// [`EngineError::Unsupported`] on a cluster.
    pub fn require_embedded(&self) -> Result<&Embedded> {
        self.embedded().ok_or(EngineError::Unsupported(
            "this server keeps its data in a TiKV cluster and has no data files of its own; use the tools of TiKV for this",
        ))
    }

    /// Whether other servers may write to the same trees.
    #[inline]
    pub fn is_remote(&self) -> bool {
        matches!(self, Engine::Tikv(_))
    }

    /// The milliseconds since 1970 by a clock that all servers of the same trees share.
    pub fn now_ms(&self) -> i64 {
        match self {
            Engine::Tree(_) => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH);
                since.map_or(0, |since| {
                    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
                })
            }
            Engine::Tikv(cluster) => i64::try_from(cluster.now_ms()).unwrap_or(i64::MAX),
        }
    }

    /// A number of this run of this server that no other run has; `None` on the embedded engine.
    pub fn instance(&self) -> Option<u32> {
        match self {
            Engine::Tree(_) => None,
            Engine::Tikv(cluster) => Some(cluster.instance()),
        }
    }

    /// Goes on as a new instance, which may not commit before [`Engine::set_lease`]. Does nothing on the embedded engine, as the
    /// other functions about leases.
    ///
    /// # Errors
    /// Errors of the cluster.
    pub fn begin_instance(&self) -> Result<()> {
        match self {
            Engine::Tree(_) => Ok(()),
            Engine::Tikv(cluster) => cluster.begin_instance(),
        }
    }

    /// Allows the commits of this instance whose snapshots are not older than this one, and that begin before the shared clock is
    /// beyond `until_ms`. Without it all are allowed.
    ///
    /// # Errors
    /// Errors of the cluster.
    pub fn set_lease(&self, since: &Snapshot, until_ms: i64) -> Result<()> {
        if let (Engine::Tikv(cluster), Snapshot::Tikv(since)) = (self, since) {
            cluster.set_lease(since.timestamp()?, u64::try_from(until_ms).unwrap_or(0));
        }
        Ok(())
    }

    /// Moves the end of the lease.
    pub fn extend_lease(&self, until_ms: i64) {
        if let Engine::Tikv(cluster) = self {
            cluster.extend_lease(u64::try_from(until_ms).unwrap_or(0));
        }
    }

    /// As [`Engine::commit`], also without a lease: for the commit that gets one.
    ///
    /// # Errors
    /// As [`Engine::commit`].
    pub fn commit_without_lease(&self, set: WriteSet) -> Result<Committed> {
        match self {
            Engine::Tree(_) => self.commit(set, Durability::Logged),
            Engine::Tikv(cluster) => cluster.commit_without_lease(set.list, set.base),
        }
    }

    /// Returns when no commit of an instance that has lost its lease can take place any more: waits for the end of the lease by
    /// the shared clock, and makes what the instance has begun conflict.
    ///
    /// # Errors
    /// Errors of the cluster.
    pub fn fence(&self, instance: u32, until_ms: i64) -> Result<()> {
        match self {
            Engine::Tree(_) => Ok(()),
            Engine::Tikv(cluster) => cluster.fence(instance, u64::try_from(until_ms).unwrap_or(0)),
        }
    }

    /// Of a cluster: a timestamp that no snapshot of this server has a lower one than.
    pub fn oldest_snapshot(&self) -> Option<u64> {
        match self {
            Engine::Tree(_) => None,
            Engine::Tikv(cluster) => Some(cluster.oldest_snapshot()),
        }
    }

    /// Removes what only snapshots before `needed` can see, the oldest timestamp that any server needs, but what has changed
    /// within `retention`, and what the instances in `live` have. Does nothing on the embedded engine.
    ///
    /// # Errors
    /// Errors of the cluster.
    pub fn collect_garbage(&self, needed: u64, retention: Duration, live: &[u32]) -> Result<()> {
        match self {
            Engine::Tree(_) => Ok(()),
            Engine::Tikv(cluster) => cluster.collect_garbage(needed, retention, live).map(drop),
        }
    }

    /// Requests to the cluster; `None` on the embedded engine.
    pub fn cluster_stats(&self) -> Option<ClusterStats> {
        match self {
            Engine::Tree(_) => None,
            Engine::Tikv(cluster) => Some(cluster.stats()),
        }
    }

    /// An id for a new tree. Ids are never used twice.
    ///
    /// # Errors
    /// Errors of the cluster.
    pub fn allocate_tree(&self) -> Result<TreeId> {
        match self {
            Engine::Tree(store) => Ok(store.allocate_tree()),
            Engine::Tikv(cluster) => cluster.allocate_tree(),
        }
    }

    /// A consistent view of everything that is committed now. On a cluster that does not answer its reads fail.
    #[inline]
    pub fn snapshot(&self) -> Snapshot {
        match self {
            Engine::Tree(store) => Snapshot::Tree(store.snapshot()),
            Engine::Tikv(cluster) => Snapshot::Tikv(cluster.snapshot()),
        }
    }

    /// Of a cluster: the snapshot that has this stamp ([`Snapshot::stamp`]), on any server. No commit can be based on it.
    pub fn snapshot_at(&self, stamp: u64) -> Option<Snapshot> {
        match self {
            Engine::Tree(_) => None,
            Engine::Tikv(cluster) => cluster.snapshot_at(stamp).map(Snapshot::Tikv),
        }
    }

    /// Of a cluster: the newest committed value of a key, with one request less than a snapshot takes. The outer `None` is
    /// for the embedded engine, a large value, and if something is in the way: a snapshot reads it then.
    ///
    /// # Errors
    /// Errors of the cluster.
    #[inline]
    pub fn get_latest(&self, tree: TreeId, key: &[u8]) -> Result<Option<Option<ValueRef>>> {
        match self {
            Engine::Tree(_) => Ok(None),
            Engine::Tikv(cluster) => {
                let found = cluster.get_latest(tree, key)?;
                Ok(found.map(|value| value.map(ValueRef::from)))
            }
        }
    }

    /// An empty write set whose guarded keys must not have changed since `snapshot`, with capacity for operations of about
    /// `bytes` bytes.
    pub fn write_set(&self, snapshot: &Snapshot, bytes: usize) -> WriteSet {
        match (self, snapshot) {
            (Engine::Tree(store), Snapshot::Tree(snapshot)) => {
                WriteSet::of_list(store.write_set(snapshot, bytes))
            }
            _ => WriteSet::with_snapshot(snapshot),
        }
    }

    /// Commits a write set: all of it or nothing.
    ///
    /// # Errors
    /// [`EngineError::Conflict`] if a guarded key was committed after the set's snapshot, or is held by an open transaction;
    /// [`EngineError::NoStamp`] if it needs more stamps than are reserved; [`EngineError::TooLarge`],
    /// [`EngineError::InvalidOption`], errors of the disk; on a cluster [`EngineError::Unavailable`] if nothing was committed, and
    /// [`EngineError::OutcomeUnknown`].
    #[inline]
    pub fn commit(&self, set: WriteSet, how: Durability) -> Result<Committed> {
        match self {
            Engine::Tree(store) => store.commit(set.list, how),
            Engine::Tikv(cluster) => cluster.commit(set.list, set.base),
        }
    }

    /// As [`Engine::commit`], for a write set with stamped keys. When no stamps are reserved, `reserve` is called without locks,
    /// and the commit is tried again if it returns true.
    ///
    /// # Errors
    /// As [`Engine::commit`].
    #[inline]
    pub fn commit_reserving(
        &self,
        set: WriteSet,
        how: Durability,
        reserve: impl FnMut() -> bool,
    ) -> Result<Committed> {
        match self {
            Engine::Tree(store) => store.commit_reserving(set.list, how, reserve),
            Engine::Tikv(cluster) => cluster.commit(set.list, set.base),
        }
    }

    /// Begins a transaction on a snapshot.
    pub fn begin(&self, snapshot: &Snapshot) -> EngineTransaction {
        match (self, snapshot) {
            (Engine::Tree(store), Snapshot::Tree(snapshot)) => {
                EngineTransaction::Tree(store.begin(snapshot))
            }
            (Engine::Tikv(cluster), Snapshot::Tikv(snapshot)) => {
                EngineTransaction::Tikv(cluster.begin(snapshot))
            }
            // A snapshot belongs to its engine, and a process has one.
            (Engine::Tree(store), Snapshot::Tikv(_)) => {
                EngineTransaction::Tree(store.begin(&store.snapshot()))
            }
            (Engine::Tikv(cluster), Snapshot::Tree(_)) => {
                EngineTransaction::Tikv(cluster.begin(&cluster.snapshot()))
            }
        }
    }

    /// Returns when the open transaction that holds a key, as an [`EngineError::Conflict`] said, has ended; at once if there is
    /// none.
    ///
    /// # Errors
    /// [`EngineError::Interrupted`].
    pub fn await_transaction(&self, tree: TreeId, key: &[u8]) -> Result<()> {
        match self {
            Engine::Tree(store) => store.await_transaction(tree, key),
            Engine::Tikv(cluster) => cluster.await_transaction(tree, key),
        }
    }

    /// Waits until there is room in memory for small commits.
    ///
    /// # Errors
    /// As [`Engine::commit`], if no room can be made for now.
    pub fn await_room(&self) -> Result<()> {
        match self {
            Engine::Tree(store) => store.await_room(),
            Engine::Tikv(_) => Ok(()),
        }
    }

    /// Whether a tree exists.
    ///
    /// # Errors
    /// Errors of the cluster.
    pub fn has_tree(&self, tree: TreeId) -> Result<bool> {
        match self {
            Engine::Tree(store) => Ok(store.has_tree(tree)),
            Engine::Tikv(cluster) => cluster.snapshot().has_tree(tree),
        }
    }

    /// All trees, in the order of their ids.
    ///
    /// # Errors
    /// Errors of the cluster.
    pub fn trees(&self) -> Result<Vec<TreeId>> {
        match self {
            Engine::Tree(store) => Ok(store.trees()),
            Engine::Tikv(cluster) => cluster.snapshot().trees(),
        }
    }

    /// Whether a tree waits for a bulk load to finish. In a cluster no tree does.
    pub fn is_loading(&self, tree: TreeId) -> bool {
        self.embedded().is_some_and(|store| store.is_loading(tree))
    }

    /// Statistics of one tree; all zero if it does not exist. Of a cluster's tree only the entries are counted, and not beyond
    /// some thousands.
    pub fn tree_stats(&self, tree: TreeId) -> TreeStats {
        match self {
            Engine::Tree(store) => store.tree_stats(tree),
            Engine::Tikv(cluster) => TreeStats {
                entries_estimate: cluster.count(tree).unwrap_or(0),
                ..TreeStats::default()
            },
        }
    }

    /// The memory budget of the process. Callers reserve in it what they hold for clients.
    #[inline]
    pub fn memory(&self) -> &MemoryBudget {
        match self {
            Engine::Tree(store) => store.memory(),
            Engine::Tikv(cluster) => cluster.memory(),
        }
    }

    /// Statistics of the files; all zero on a cluster, whose own tell more ([`Engine::cluster_stats`]).
    pub fn stats(&self) -> EngineStats {
        self.embedded().map(Embedded::stats).unwrap_or_default()
    }

    /// Bytes of memtables that only snapshots keep in memory.
    pub fn retained_bytes(&self) -> u64 {
        self.embedded().map_or(0, Embedded::retained_bytes)
    }

    /// Whether snapshots keep more memtables in memory than their share of the budget.
    #[inline]
    pub fn retains_too_much(&self) -> bool {
        self.embedded().is_some_and(Embedded::retains_too_much)
    }

    /// Bytes of memtables that this snapshot keeps in memory beyond the current state.
    pub fn retained_by(&self, snapshot: &Snapshot) -> u64 {
        match (self, snapshot) {
            (Engine::Tree(store), Snapshot::Tree(snapshot)) => store.retained_by(snapshot),
            _ => 0,
        }
    }

    /// A snapshot of the same moment that keeps no flushed memtable in memory, for readers of some trees.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn detach(&self, snapshot: &Snapshot, trees: &[TreeId]) -> Result<Snapshot> {
        match (self, snapshot) {
            (Engine::Tree(store), Snapshot::Tree(snapshot)) => {
                Ok(Snapshot::Tree(store.detach(snapshot, trees)?))
            }
            _ => Ok(snapshot.clone()),
        }
    }

    /// The last stamp that readers may rely on: all commits with stamps up to it are durable and in every snapshot that is
    /// taken from now on, and no commit will take a stamp up to it.
    pub fn durable_stamp(&self) -> u64 {
        match self {
            Engine::Tree(store) => store.durable_stamp(),
            Engine::Tikv(cluster) => cluster.durable_stamp(),
        }
    }

    /// Of a cluster: a stamp that no commit acknowledged before is above, and that later commits are not below.
    ///
    /// # Errors
    /// Errors of the cluster.
    pub fn stamp_now(&self) -> Option<Result<u64>> {
        match self {
            Engine::Tree(_) => None,
            Engine::Tikv(cluster) => Some(cluster.stamp_now()),
        }
    }

    /// Of a cluster: the first stamp that commits of this server may still take.
    ///
    /// # Errors
    /// Errors of the cluster.
    pub fn stamps_bound(&self) -> Option<Result<u64>> {
        match self {
            Engine::Tree(_) => None,
            Engine::Tikv(cluster) => Some(cluster.stamps_bound()),
        }
    }

    /// Of a cluster: sets how the first stamp that this server may take becomes the first one that any server may take.
    pub fn set_stamp_combination(&self, combine: Arc<dyn Fn(u64) -> Option<u64> + Send + Sync>) {
        if let Engine::Tikv(cluster) = self {
            cluster.set_stamp_combination(combine);
        }
    }

    /// Sets the function that is called whenever [`Engine::durable_stamp`] has grown, with the stamp.
    pub fn set_stamp_listener(&self, listener: Arc<dyn Fn(u64) + Send + Sync>) {
        match self {
            Engine::Tree(store) => store.set_stamp_listener(listener),
            Engine::Tikv(cluster) => cluster.set_stamp_listener(listener),
        }
    }

    /// Asks for a sync of the log soon; of a cluster, for a look at the stamps that are durable.
    pub fn request_sync(&self) {
        match self {
            Engine::Tree(store) => store.request_sync(),
            Engine::Tikv(cluster) => cluster.request_durable_stamp(),
        }
    }

    /// Returns when everything that was committed before the call is durable. In a cluster every commit is.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn flush_log(&self) -> Result<()> {
        match self {
            Engine::Tree(store) => store.flush_log(),
            Engine::Tikv(cluster) => cluster.settle_durable_stamp(),
        }
    }

    /// As [`Engine::flush_log`], without a thread that waits.
    ///
    /// # Errors
    /// As [`Engine::flush_log`].
    pub async fn log_flushed(&self) -> Result<()> {
        match self {
            Engine::Tree(store) => store.log_flushed().await,
            Engine::Tikv(_) => Ok(()),
        }
    }

    /// Flushes everything that is committed to the trees and makes them durable.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn checkpoint(&self) -> Result<()> {
        self.embedded().map_or(Ok(()), Embedded::checkpoint)
    }

    /// Flushes everything that is committed and moves all pending messages down to the leaves.
    ///
    /// # Errors
    /// Errors of the disk; [`EngineError::Unsupported`] on a cluster.
    pub fn compact(&self) -> Result<()> {
        self.require_embedded()?.compact()
    }

    /// As [`Engine::compact`], of some trees, with what waits in their buffers; `go_on` is told how many bytes wait.
    ///
    /// # Errors
    /// As [`Engine::compact`].
    pub fn compact_trees(&self, trees: &[TreeId], go_on: impl FnMut(u64) -> bool) -> Result<()> {
        self.require_embedded()?.compact_trees(trees, go_on)?;
        Ok(())
    }

    /// Writes a checkpoint, and keeps the files as they are until the result is dropped.
    ///
    /// # Errors
    /// As [`Engine::compact`].
    pub fn pause_flushing(&self) -> Result<FlushPause> {
        self.require_embedded()?.pause_flushing()
    }

    /// Position after the last frame of the log; 0 on a cluster.
    pub fn log_end(&self) -> u64 {
        self.embedded().map_or(0, Embedded::log_end)
    }

    /// Whether a damaged log was cut when the engine was opened, or earlier.
    pub fn was_log_cut(&self) -> bool {
        self.embedded().is_some_and(Embedded::was_log_cut)
    }

    /// Whether the disk is nearly full: only commits that free space are taken.
    pub fn is_disk_low(&self) -> bool {
        self.embedded().is_some_and(Embedded::is_disk_low)
    }

    /// The damaged blocks that this process has met.
    pub fn damage(&self) -> Vec<Damage> {
        self.embedded().map(Embedded::damage).unwrap_or_default()
    }

    /// The room of the file system; `None` on a cluster.
    pub fn disk_space(&self) -> Option<DiskSpace> {
        self.embedded().map(Embedded::disk_space)
    }

    /// Makes everything durable and stops. Later commits fail.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn close(&self) -> Result<()> {
        match self {
            Engine::Tree(store) => store.close(),
            Engine::Tikv(cluster) => cluster.close(),
        }
    }
}
