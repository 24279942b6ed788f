//! Coordination of a server with the others that use the same data: ids that no two servers may give out, changes of the schema
//! that all have to know, the place of a commit among theirs, builds and tasks that one of them does, and notifications.
//!
//! A store chooses its [`Coordination`] once, when it is opened; the catalog, writers, builds and the oplog call it without
//! knowing which one it is. A call is a `match` that the compiler inlines, because [`Coordination::get_latest`] and
//! [`Coordination::at_gate`] are on the paths of a find by `_id` and of an insert.
//!
//! | implementation | the data |
//! | --- | --- |
//! | [`Local`] | belongs to one process, which may be a member of a replica set |
//! | [`Cluster`] | is a keyspace that several servers read and write, each with a lease |
//!
//! A further implementation adds a variant and a module. Methods that go through [`Coordination::others`] take it for a process that is
//! alone, so each of them has to be looked at then.

pub(crate) mod cluster;
mod local;

use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use frond_bson::DocBuf;

pub(crate) use cluster::{AtGate, Cluster, ServerId, TailWatch};
pub use cluster::{ServerInfo, SharedOptions};
use local::Local;

use crate::signal::TailSignal;
use cluster::{BuildState, Closing, NoReload};
use frond_storage::error::Result;
use frond_storage::keyspace::{
    ClusterStats, Engine, Snapshot, TreeId, TreeOptions, ValueRef, WriteSet,
};

/// The identity of a collection.
type Uuid = [u8; 16];

/// This server among those that use the same data.
#[derive(Clone, Debug)]
pub(crate) enum Coordination {
    Local(Local),
    Cluster(Arc<Cluster>),
}

impl Default for Coordination {
    fn default() -> Coordination {
        Coordination::Local(Local::default())
    }
}

impl Coordination {
    /// That of a store whose data is shared if there are options for it, or of a member of a replica set.
    pub fn new(engine: &Engine, shared: Option<SharedOptions>, is_member: bool) -> Coordination {
        match shared {
            None => Coordination::Local(Local::new(is_member)),
            Some(shared) => Coordination::Cluster(Cluster::new(engine.clone(), shared)),
        }
    }

    /// This server as one of several, if it is.
    #[inline]
    fn others(&self) -> Option<&Arc<Cluster>> {
        match self {
            Coordination::Local(_) => None,
            Coordination::Cluster(cluster) => Some(cluster),
        }
    }

    /// Whether this is a member of a replica set whose members share a log.
    pub fn is_member(&self) -> bool {
        matches!(self, Coordination::Local(local) if local.is_member())
    }

    /// Whether other servers may write to the same data, so that what this process has in memory may be behind.
    #[inline]
    pub fn has_others(&self) -> bool {
        self.others().is_some()
    }
}

/// Membership among the servers, and the lease.
impl Coordination {
    /// The registered servers; none if no others can share the data.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn servers(&self) -> Result<Vec<ServerInfo>> {
        self.others()
            .map_or(Ok(Vec::new()), |cluster| cluster.servers())
    }

    /// The number of this server, which no other live server has; 0 if it is alone.
    pub fn server_number(&self) -> u32 {
        self.others().map_or(0, |cluster| cluster.number())
    }

    /// Whether this server does a task that only one of all servers does.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn leads(&self, task: &str) -> Result<bool> {
        self.others()
            .map_or(Ok(true), |cluster| cluster.leads(task))
    }

    /// Waits until this server may read and write.
    ///
    /// # Errors
    /// `NotWritablePrimary` (10107) if that takes too long.
    #[inline]
    pub fn await_lease(&self) -> Result<()> {
        self.others()
            .map_or(Ok(()), |cluster| cluster.await_lease())
    }

    /// Fails a commit of a server that may not write at present.
    ///
    /// # Errors
    /// As [`Cluster::check_commit`].
    #[inline]
    pub fn check_commit(&self) -> Result<()> {
        self.others()
            .map_or(Ok(()), |cluster| cluster.check_commit())
    }

    /// Leaves the other servers, so that they do not wait for this one.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn leave(&self) -> Result<()> {
        self.others().map_or(Ok(()), |cluster| {
            cluster.stop();
            cluster.leave()
        })
    }

    /// For tests: whether the server does nothing in the background.
    pub fn stall(&self, stalled: bool) {
        if let Some(cluster) = self.others() {
            cluster.stall(stalled);
        }
    }

    /// The servers that others have to wait for; `None` if this one is alone.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn live(&self) -> Result<Option<Vec<ServerId>>> {
        self.others().map(|cluster| cluster.live()).transpose()
    }

    /// Requests to a shared keyspace, and the number of this run of this server there.
    pub fn keyspace_stats(&self) -> Option<(ClusterStats, Option<u32>)> {
        self.others().and_then(|cluster| cluster.keyspace_stats())
    }
}

/// Ids that no two servers may give out.
impl Coordination {
    /// A number for a new tree, of a transaction or of a change of the catalog.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn allocate_tree(&self, engine: &Engine, in_transaction: bool) -> Result<TreeId> {
        match self {
            Coordination::Local(local) => local.allocate_tree(engine),
            Coordination::Cluster(cluster) if in_transaction => cluster.tree_of_transaction(),
            Coordination::Cluster(cluster) => cluster.tree_of_change(),
        }
    }

    /// The next record id of a collection in the order of insertion; `last` is the last one that this server gave out.
    #[inline]
    pub fn next_record(&self, last: &AtomicI64) -> i64 {
        match self {
            Coordination::Local(local) => local.next_record(last),
            Coordination::Cluster(cluster) => cluster.next_record(),
        }
    }

    /// The last record id of a capped collection that any server gave out. `None` if that is in memory; `Some(None)` if it is to
    /// be read from the collection.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn stored_record(&self, snapshot: &Snapshot, uuid: &Uuid) -> Result<Option<Option<i64>>> {
        let stored = |cluster: &Arc<Cluster>| cluster.stored_record(snapshot, uuid);
        self.others().map(stored).transpose()
    }

    /// Adds the last record id of a capped collection to a commit.
    pub fn stage_last_record(&self, batch: &mut WriteSet, uuid: &Uuid, last: i64) {
        if let Some(cluster) = self.others() {
            cluster.stage_last_record(batch, uuid, last);
        }
    }

    /// Forgets it, in the commit that drops the collection.
    pub fn stage_forget_record(&self, batch: &mut WriteSet, uuid: &Uuid) {
        if self.has_others() {
            cluster::stage_forget_record(batch, uuid);
        }
    }
}

/// Changes of the schema.
impl Coordination {
    /// Takes the lock on changes that all servers share. Returns it with the version of the catalog.
    ///
    /// # Errors
    /// As [`Cluster::acquire`].
    pub fn acquire(&self) -> Result<Option<(&Cluster, i64)>> {
        let acquire = |cluster| Ok((cluster, Cluster::acquire(cluster)?.version));
        self.others().map(Arc::as_ref).map(acquire).transpose()
    }

    /// Keeps the writers of these collections on all other servers waiting, until the next commit of a change.
    ///
    /// # Errors
    /// As [`Cluster::close_gates`].
    pub fn close_gates(&self, uuids: &[Uuid]) -> Result<()> {
        self.others().map_or(Ok(()), |cluster| {
            cluster.close_gates(Closing::Some(uuids.to_vec()))
        })
    }

    /// The same for all collections.
    ///
    /// # Errors
    /// As [`Cluster::close_gates`].
    pub fn close_all_gates(&self) -> Result<()> {
        self.others()
            .map_or(Ok(()), |cluster| cluster.close_gates(Closing::All))
    }

    /// Lets the others know that collections are about to be created, before the commit that does it.
    ///
    /// # Errors
    /// As [`Cluster::announce`].
    pub fn announce(&self) -> Result<()> {
        self.others().map_or(Ok(()), |cluster| cluster.announce())
    }

    /// The write set of a change with the next version of the catalog, and that version. `None` if versions are not stored.
    ///
    /// # Errors
    /// As [`Cluster::next_version`].
    pub fn next_version(&self, set: &WriteSet) -> Result<Option<(WriteSet, i64)>> {
        let next = |cluster: &Arc<Cluster>| cluster.next_version(set);
        self.others().map(next).transpose()
    }

    /// Whether another server has changed the catalog since `version`. False while this thread must not wait for a reload.
    pub fn has_newer(&self, version: i64) -> bool {
        self.others()
            .filter(|_| !NoReload::is_set())
            .and_then(|cluster| cluster.state(&cluster.engine().snapshot()).ok())
            .is_some_and(|state| state.announced || state.version != version)
    }

    /// Notes in the commit that creates a collection that a command of this server removes it.
    pub fn stage_temporary(&self, batch: &mut WriteSet, uuid: &Uuid) {
        if let Some(cluster) = self.others() {
            cluster.stage_temporary(batch, uuid);
        }
    }

    /// Ends that, in the commit that drops the collection or gives it another name.
    pub fn stage_end_of_temporary(&self, batch: &mut WriteSet, uuid: &Uuid) {
        if self.has_others() {
            cluster::stage_end_of_temporary(batch, uuid);
        }
    }

    /// The collections of [`Coordination::stage_temporary`], and their servers.
    ///
    /// # Errors
    /// Errors of the engine, `DataCorruptionDetected` (301).
    pub fn temporary(&self, snapshot: &Snapshot) -> Result<Vec<(Uuid, ServerId)>> {
        let temporary = |cluster: &Arc<Cluster>| cluster.temporary(snapshot);
        self.others().map_or(Ok(Vec::new()), temporary)
    }

    /// The entry of something that belongs to this server.
    pub fn owned(&self) -> DocBuf {
        self.others()
            .map_or_else(DocBuf::new, |cluster| cluster.owned())
    }
}

/// Commits and reads beside those of other servers.
impl Coordination {
    /// Begins a commit under the gate of a collection. The result is dropped behind the gate.
    #[inline]
    pub fn at_gate(&self) -> Option<AtGate<'_>> {
        self.others().map(|cluster| cluster.at_gate())
    }

    /// Adds the number of a change of a watched collection to its commit.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn stage_watched(&self, batch: &mut WriteSet, snapshot: &Snapshot) -> Result<Option<i64>> {
        let stage = |cluster: &Arc<Cluster>| cluster.stage_watched(batch, snapshot);
        self.others().map(stage).transpose()
    }

    /// Notes that the commit of such a change is done: others have to hear of it.
    #[inline]
    pub fn committed_watched(&self, change: Option<i64>) {
        if let Some((cluster, change)) = self.others().zip(change) {
            cluster.committed_watched(change);
        }
    }

    /// A snapshot with the counts of all servers' commits, where those in memory are of this server's only.
    #[inline]
    pub fn snapshot_of_counts(&self) -> Option<Snapshot> {
        self.others().map(|cluster| cluster.engine().snapshot())
    }

    /// The value of a key as it is now, where that costs less than a snapshot and a look-up. `None` if it does not, or if the
    /// value is not certain.
    ///
    /// # Errors
    /// Errors of the engine.
    #[inline]
    pub fn get_latest(&self, tree: TreeId, key: &[u8]) -> Result<Option<Option<ValueRef>>> {
        let get = |cluster: &Arc<Cluster>| cluster.get_latest(tree, key);
        self.others().map_or(Ok(None), get)
    }

    /// The pairs whose keys begin with a prefix as they are now, fewer than `limit`, where that costs less than a snapshot and a
    /// scan. `None` if it does not, or if they are not certain.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn scan_latest(
        &self,
        tree: TreeId,
        prefix: &[u8],
        limit: u32,
    ) -> Result<Option<cluster::Pairs>> {
        let scan = |cluster: &Arc<Cluster>| cluster.scan_latest(tree, prefix, limit);
        self.others().map_or(Ok(None), scan)
    }

    /// Whether [`Coordination::get_latest`] may know a value.
    #[inline]
    pub fn has_latest(&self) -> bool {
        self.has_others()
    }

    /// Extends the signal of a capped collection to what other servers insert, while the result lives.
    pub fn watch_tail(&self, uuid: Uuid, signal: &Arc<TailSignal>) -> Option<TailWatch> {
        self.others()
            .map(|cluster| cluster.watch_tail(uuid, signal))
    }
}

/// Builds of indexes, each by one server.
impl Coordination {
    /// Creates the tree of an index that this server builds.
    pub fn stage_build(
        &self,
        batch: &mut WriteSet,
        uuid: &Uuid,
        tree: TreeId,
        options: &TreeOptions,
    ) {
        match self {
            Coordination::Local(local) => local.stage_build(batch, tree, options),
            Coordination::Cluster(cluster) => {
                batch.create_tree(tree, options);
                cluster.stage_build(batch, uuid, tree);
            }
        }
    }

    /// Ends the build, in the commit that makes the index ready.
    pub fn stage_end_of_build(&self, batch: &mut WriteSet, uuid: &Uuid, tree: TreeId) {
        if self.has_others() {
            cluster::stage_end_of_build(batch, uuid, tree);
        }
    }

    /// A write set whose commit fails if another server has taken over the build of these indexes.
    ///
    /// # Errors
    /// As [`Cluster::as_builder`].
    pub fn as_builder(
        &self,
        engine: &Engine,
        set: WriteSet,
        uuid: &Uuid,
        trees: impl Iterator<Item = TreeId>,
    ) -> Result<WriteSet> {
        match self {
            Coordination::Local(_) => Ok(set),
            Coordination::Cluster(cluster) => {
                let none = None::<&BuildState>;
                cluster.as_builder(&engine.snapshot(), &set, uuid, trees, none)
            }
        }
    }

    /// Whether this server builds an index now.
    ///
    /// # Errors
    /// As [`Cluster::take_build`].
    pub fn take_build(&self, uuid: &Uuid, tree: TreeId) -> Result<bool> {
        self.others()
            .map_or(Ok(true), |cluster| cluster.take_build(uuid, tree))
    }

    /// Leaves the build of an index to others, or to a later try.
    ///
    /// # Errors
    /// As [`Cluster::give_up_build`].
    pub fn give_up_build(&self, uuid: &Uuid, tree: TreeId) -> Result<()> {
        self.others()
            .map_or(Ok(()), |cluster| cluster.give_up_build(uuid, tree))
    }

    /// About how many entries a tree has, if that is known without counting.
    pub fn entries_estimate(&self, engine: &Engine, tree: TreeId) -> Option<u64> {
        (!self.has_others()).then(|| engine.tree_stats(tree).entries_estimate)
    }
}
