//! The handle of an engine: what both engines do, and the way to what only one of them can.

use std::sync::Arc;

use frond_kv::Engine as Kv;

use super::{
    ClusterOptions, Committed, Durability, EngineError, EngineOptions, EngineTransaction, Files,
    MemoryBudget, Snapshot, Tikv, TreeId, TreeStats, WriteSet, write,
};

type Result<T, E = EngineError> = std::result::Result<T, E>;

/// The engine that holds the trees. A cheap handle; clone it freely.
#[derive(Clone)]
pub enum Engine {
    /// Files of this machine.
    Files(Files),
    Tikv(Tikv),
}

/// Calls the same for either engine.
macro_rules! either {
    ($engine:expr, $name:ident => $call:expr) => {
        match $engine {
            Engine::Files($name) => $call,
            Engine::Tikv($name) => $call,
        }
    };
}

impl Engine {
    /// Opens the engine whose trees are files of this machine.
    ///
    /// # Errors
    /// As [`Files::open`].
    pub fn open(options: EngineOptions) -> Result<Engine> {
        Ok(Engine::Files(Files::open(options)?))
    }

    /// Connects to a cluster.
    ///
    /// # Errors
    /// [`EngineError::InvalidOption`], [`EngineError::Unavailable`]; [`EngineError::Unsupported`] in a build without the client.
    pub fn connect(options: ClusterOptions) -> Result<Engine> {
        Ok(Engine::Tikv(Tikv::open(options)?))
    }

    /// Capabilities of an engine with files of its own: checkpoints, the log, copies, damage, memtables, bulk loads.
    #[inline]
    pub fn files(&self) -> Option<&Files> {
        match self {
            Engine::Files(files) => Some(files),
            Engine::Tikv(_) => None,
        }
    }

    /// The files of the engine, for a request that cannot be served without them.
    ///
    /// # Errors
    /// [`EngineError::Unsupported`] in a cluster.
    pub fn require_files(&self) -> Result<&Files> {
        self.files().ok_or(EngineError::Unsupported(
            "this server keeps its data in a TiKV cluster and has no data files of its own; use the tools of TiKV for this",
        ))
    }

    /// Capabilities of an engine whose trees are shared with other servers: leases, fences, garbage, one clock for all.
    #[inline]
    pub fn cluster(&self) -> Option<&Tikv> {
        match self {
            Engine::Files(_) => None,
            Engine::Tikv(cluster) => Some(cluster),
        }
    }

    /// An id for a new tree. Ids are never used twice.
    ///
    /// # Errors
    /// Errors of the cluster.
    pub fn allocate_tree(&self) -> Result<TreeId> {
        either!(self, engine => Kv::allocate_tree(engine))
    }

    /// A consistent view of everything that is committed now. On a cluster that does not answer its reads fail.
    #[inline]
    pub fn snapshot(&self) -> Snapshot {
        either!(self, engine => engine.snapshot().into())
    }

    /// Whether a tree exists.
    ///
    /// # Errors
    /// Errors of the cluster.
    pub fn has_tree(&self, tree: TreeId) -> Result<bool> {
        self.snapshot().has_tree(tree)
    }

    /// An empty write set whose guarded keys must not have changed since `snapshot`, with capacity for operations of about
    /// `bytes` bytes.
    pub fn write_set(&self, snapshot: &Snapshot, bytes: usize) -> WriteSet {
        match (self, snapshot) {
            (Engine::Files(files), Snapshot::Files(base)) => {
                let (operations, _) = files.write_set(base, bytes).into_parts();
                WriteSet::from_parts(operations, Some(snapshot.clone()))
            }
            _ => WriteSet::with_snapshot(snapshot),
        }
    }

    /// Commits a write set: all of it or nothing.
    ///
    /// # Errors
    /// As [`frond_kv::Engine::commit`].
    #[inline]
    pub fn commit(&self, set: WriteSet, how: Durability) -> Result<Committed> {
        match self {
            Engine::Files(files) => files.commit(write::for_files(set)?, how),
            Engine::Tikv(cluster) => cluster.commit(write::for_cluster(set)?),
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
            Engine::Files(files) => files.commit_reserving(write::for_files(set)?, how, reserve),
            Engine::Tikv(cluster) => cluster.commit(write::for_cluster(set)?),
        }
    }

    /// As [`Engine::commit`], also without a lease: for the commit that gets one.
    ///
    /// # Errors
    /// As [`Engine::commit`].
    pub fn commit_without_lease(&self, set: WriteSet) -> Result<Committed> {
        match self {
            Engine::Files(_) => self.commit(set, Durability::Logged),
            Engine::Tikv(cluster) => cluster.commit_without_lease(write::for_cluster(set)?),
        }
    }

    /// Begins a transaction on a snapshot.
    pub fn begin(&self, snapshot: &Snapshot) -> EngineTransaction {
        match (self, snapshot) {
            (Engine::Files(files), Snapshot::Files(snapshot)) => {
                EngineTransaction::Files(files.begin(snapshot))
            }
            (Engine::Tikv(cluster), Snapshot::Tikv(snapshot)) => {
                EngineTransaction::Tikv(cluster.begin(snapshot))
            }
            // A snapshot belongs to its engine, and a process has one.
            (Engine::Files(files), Snapshot::Tikv(_)) => {
                EngineTransaction::Files(files.begin(&files.snapshot()))
            }
            (Engine::Tikv(cluster), Snapshot::Files(_)) => {
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
        either!(self, engine => engine.await_transaction(tree, key))
    }

    /// Waits until there is room in memory for small commits.
    ///
    /// # Errors
    /// The errors of [`Engine::commit`], if the engine cannot free memory or disk space at present.
    pub fn await_room(&self) -> Result<()> {
        either!(self, engine => engine.await_room())
    }

    /// All trees, in the order of their ids.
    ///
    /// # Errors
    /// Errors of the cluster.
    pub fn trees(&self) -> Result<Vec<TreeId>> {
        either!(self, engine => Kv::trees(engine))
    }

    /// Statistics of one tree; all zero if it does not exist. Of a cluster's tree only the entries are counted, and not beyond
    /// some thousands; [`Tikv::tree_size`] has its size.
    pub fn tree_stats(&self, tree: TreeId) -> TreeStats {
        either!(self, engine => engine.tree_stats(tree))
    }

    /// The memory budget of the process. Callers reserve in it what they hold for clients.
    #[inline]
    pub fn memory(&self) -> &MemoryBudget {
        either!(self, engine => engine.memory())
    }

    /// The milliseconds since 1970 by a clock that all servers of the same trees share.
    pub fn now_ms(&self) -> i64 {
        either!(self, engine => Kv::now_ms(engine))
    }

    /// The last stamp that readers may rely on: all commits with stamps up to it are durable and in every snapshot that is
    /// taken from now on, and no commit will take a stamp up to it.
    pub fn durable_stamp(&self) -> u64 {
        either!(self, engine => engine.durable_stamp())
    }

    /// Sets the function that is called whenever [`Engine::durable_stamp`] has grown, with the stamp.
    pub fn set_stamp_listener(&self, listener: Arc<dyn Fn(u64) + Send + Sync>) {
        either!(self, engine => engine.set_stamp_listener(listener));
    }

    /// Requests a sync of the log soon; of a cluster, that the durable stamp is looked up.
    pub fn request_sync(&self) {
        either!(self, engine => engine.request_sync());
    }

    /// Returns when everything that was committed before the call is durable. In a cluster every commit is.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn flush_log(&self) -> Result<()> {
        either!(self, engine => engine.flush_log())
    }

    /// As [`Engine::flush_log`], without a thread that waits.
    ///
    /// # Errors
    /// As [`Engine::flush_log`].
    pub async fn log_flushed(&self) -> Result<()> {
        either!(self, engine => engine.log_flushed().await)
    }

    /// Bytes of memtables that a snapshot keeps in memory beyond the current state. Only an engine with files has memtables.
    pub fn retained_by(&self, snapshot: &Snapshot) -> u64 {
        match (self, snapshot) {
            (Engine::Files(files), Snapshot::Files(snapshot)) => files.retained_by(snapshot),
            _ => 0,
        }
    }

    /// A snapshot of the same moment that keeps no flushed memtable in memory, for readers of some trees.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn detach(&self, snapshot: &Snapshot, trees: &[TreeId]) -> Result<Snapshot> {
        match (self, snapshot) {
            (Engine::Files(files), Snapshot::Files(snapshot)) => {
                Ok(files.detach(snapshot, trees)?.into())
            }
            _ => Ok(snapshot.clone()),
        }
    }

    /// As [`Engine::detach`]; `None` while some others do the same.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn try_detach(&self, snapshot: &Snapshot, trees: &[TreeId]) -> Result<Option<Snapshot>> {
        match (self, snapshot) {
            (Engine::Files(files), Snapshot::Files(snapshot)) => {
                Ok(files.try_detach(snapshot, trees)?.map(Snapshot::from))
            }
            _ => Ok(Some(snapshot.clone())),
        }
    }

    /// Makes everything durable and stops. Later commits fail.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn close(&self) -> Result<()> {
        either!(self, engine => engine.close())
    }
}
