//! The handle that callers hold: the catalog of an engine, and the settings of queries.
//!
//! Requests are methods of the same type, defined where they are carried out: `find`, `write`, `aggregate`, `admin`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use frond_encryption::KeyStore;
use parking_lot::Mutex;

use crate::catalog::{Catalog, LastWritten};
use crate::cluster_time::{ClusterTime, Times};
use crate::coordination::{Coordination, ServerInfo, SharedOptions};
use crate::encryption::{self, MasterKey, OpenKeys};
use crate::member_log::StoreLog;
use crate::oplog::{Oplog, OplogSettings};
use crate::own_files::OwnFiles;
use crate::queries::QuerySettings;
use frond_storage::error::Result;
use frond_storage::keyspace::disk::Disk;
use frond_storage::keyspace::{
    CATALOG_TREE, ClusterOptions, ClusterStats, DiskSpace, Engine, EngineOptions, EngineStats,
    EventListener, LogRecovery, MemberLog, MemoryBudget,
};
use frond_storage::merge::{kind, merge_operator, merge_operator_counting};
use frond_storage::options::NaturalOrder;
use frond_storage::record::LargeDocuments;
use frond_storage::record::fast_update::FastUpdateStats;

/// Settings of a store.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct StoreOptions {
    /// A folder for temporary files of queries, which is emptied. Without one, queries that exceed their
    /// memory limit fail.
    pub temporary_files: Option<PathBuf>,
    /// Which documents are stored in parts.
    pub large_documents: LargeDocuments,
    /// The order of documents in new collections that do not set one.
    pub natural_order: NaturalOrder,
    /// Whether the server is a member of a replica set whose members share a log ([`DocumentStore::member_log`]).
    pub member: bool,
    /// Whether temporary files are encrypted, with a key that is nowhere else than in memory.
    pub encrypts_files: bool,
    /// Set if other servers may use the same keyspace at the same time: what they can read about this server.
    pub shared: Option<SharedOptions>,
}

impl StoreOptions {
    /// With a folder for temporary files.
    pub fn with_temporary_files(folder: impl Into<PathBuf>) -> StoreOptions {
        StoreOptions {
            temporary_files: Some(folder.into()),
            ..StoreOptions::default()
        }
    }

    /// The same, storing these documents in parts.
    pub fn with_large_documents(self, large_documents: LargeDocuments) -> StoreOptions {
        StoreOptions {
            large_documents,
            ..self
        }
    }

    /// The same, with this order of documents in new collections.
    pub fn with_natural_order(self, natural_order: NaturalOrder) -> StoreOptions {
        StoreOptions {
            natural_order,
            ..self
        }
    }

    /// The same, sharing the keyspace with other servers.
    pub fn sharing(self, shared: SharedOptions) -> StoreOptions {
        StoreOptions {
            shared: Some(shared),
            ..self
        }
    }

    /// The same, of a member of a replica set.
    pub fn of_member(self) -> StoreOptions {
        StoreOptions {
            member: true,
            ..self
        }
    }
}

/// The storage of a store's files.
#[derive(Clone)]
pub struct StorageOptions {
    /// The memory budget of the engine, in bytes.
    pub cache_bytes: usize,
    /// The memory in bytes, beyond that of the engine, for what clients make grow; `None` takes as much as the engine has.
    pub client_bytes: Option<usize>,
    /// Whether a log is kept. Without one a crash loses what came after the last checkpoint.
    pub journal: bool,
    /// The longest time between the acknowledgement of a write and the sync of its log record.
    pub journal_commit_interval: Duration,
    /// Receives reports of damaged blocks.
    pub listener: Arc<dyn EventListener>,
    /// Bytes of the file system that are kept for deletes and drops; `None` takes a share of it.
    pub disk_reserve_bytes: Option<u64>,
    /// The treatment of a damaged log.
    pub log_recovery: LogRecovery,
    /// The master key, if the store is to be encrypted.
    pub master_key: Option<MasterKey>,
}

/// Collections of documents over an engine. A cheap handle: clones share everything.
#[derive(Clone)]
pub struct DocumentStore {
    catalog: Arc<Catalog>,
    queries: Arc<QuerySettings>,
    cluster_time: Arc<ClusterTime>,
    fast_updates: Arc<FastUpdateStats>,
    keys: Option<OpenKeys>,
}

impl DocumentStore {
    /// Opens the store on an engine, which must have been opened with [`merge_operator`]. It cannot write to an oplog.
    ///
    /// # Errors
    /// `UnsupportedFormat` (12) for a catalog of another version, `DataCorruptionDetected` (301),
    /// errors of the engine.
    pub fn open(engine: Engine, options: StoreOptions) -> Result<DocumentStore> {
        DocumentStore::open_with(engine, Times::new(), options)
    }

    /// As [`DocumentStore::open`], with the engine's source of stamps.
    fn open_with(
        engine: Engine,
        times: Arc<Times>,
        options: StoreOptions,
    ) -> Result<DocumentStore> {
        let queries =
            QuerySettings::new(options.temporary_files.as_deref(), options.encrypts_files)?;
        let cluster_time = Arc::new(ClusterTime::open(&engine, times)?);
        let oplog = Arc::new(Oplog::open(&engine, cluster_time.clone())?);
        if options.member {
            cluster_time.follow(oplog.last());
        }
        let coordination = Coordination::new(&engine, options.shared, options.member);
        Ok(DocumentStore {
            queries: Arc::new(queries),
            cluster_time,
            fast_updates: Arc::default(),
            keys: None,
            catalog: Arc::new(Catalog::open(
                engine,
                oplog,
                options.large_documents,
                options.natural_order,
                coordination,
            )?),
        })
    }

    /// Opens an engine with the store's merge operator, and the store on it. Drops the trees that a crash left without a
    /// collection.
    ///
    /// # Errors
    /// As [`DocumentStore::open`].
    pub fn open_engine(engine: EngineOptions, options: StoreOptions) -> Result<DocumentStore> {
        let times = Times::new();
        let fast_updates = Arc::<FastUpdateStats>::default();
        let engine = Engine::open(EngineOptions {
            merge: merge_operator_counting(fast_updates.clone()),
            stamps: Some(times.clone()),
            member: options.member,
            ..engine
        })?;
        let is_member = options.member;
        let store = DocumentStore {
            fast_updates,
            ..DocumentStore::open_with(engine, times, options)?
        };
        // After a cut the trees may not be those that the catalog names: all are kept for a salvage.
        let was_log_cut = OwnFiles::new(store.engine()).was_log_cut();
        if !store.is_shared() && !was_log_cut && !is_member {
            // A server must start on a full disk. What stays is dropped by a later start.
            let _ = store.catalog.drop_orphaned_trees();
        }
        Ok(store)
    }

    /// Opens the store in a TiKV cluster, beside other servers, and creates it if there is none.
    ///
    /// # Errors
    /// As [`DocumentStore::open`]; `HostUnreachable` (6) if the cluster does not answer.
    pub fn open_cluster(cluster: ClusterOptions, options: StoreOptions) -> Result<DocumentStore> {
        let retention = options.shared.as_ref().map(|shared| shared.retention);
        let engine = Engine::connect(ClusterOptions {
            retention: retention.unwrap_or(cluster.retention),
            merge: merge_operator(),
            counters: Some((CATALOG_TREE, vec![kind::COUNTER])),
            ..cluster
        })?;
        // Others may be there, or come.
        let shared = Some(options.shared.clone().unwrap_or_default());
        DocumentStore::open_with(engine, Times::new(), StoreOptions { shared, ..options })
    }

    /// Opens the store in a directory, and creates it if there is none.
    ///
    /// # Errors
    /// As [`DocumentStore::open`], and `BadValue` (2) for a cache that is too small.
    pub fn open_directory(
        path: impl Into<PathBuf>,
        storage: &StorageOptions,
        options: StoreOptions,
    ) -> Result<DocumentStore> {
        let path = path.into();
        let keys = encryption::open_or_create(&path, storage.master_key.as_ref())?;
        let plain = EngineOptions::new(&path);
        let disk =
            encryption::with_keys(&path, plain.disk.clone(), keys.as_ref().map(KeyStore::keys))?;
        let engine = EngineOptions {
            cache_bytes: storage.cache_bytes,
            client_bytes: storage.client_bytes,
            journal: storage.journal,
            journal_commit_interval: storage.journal_commit_interval,
            listener: storage.listener.clone(),
            disk_reserve_bytes: storage.disk_reserve_bytes,
            log_recovery: storage.log_recovery,
            disk,
            ..plain
        };
        let options = StoreOptions {
            encrypts_files: keys.is_some(),
            ..options
        };
        let store = DocumentStore::open_engine(engine, options)?;
        Ok(DocumentStore {
            keys: keys.map(|keys| Arc::new(Mutex::new(keys))),
            ..store
        })
    }

    /// Opens the store on a disk of the caller, for tests of faults.
    ///
    /// # Errors
    /// As [`DocumentStore::open`].
    pub fn open_on_disk(disk: Arc<dyn Disk>, options: StoreOptions) -> Result<DocumentStore> {
        DocumentStore::open_engine(EngineOptions::with_disk(disk), options)
    }

    pub(crate) fn open_keys(&self) -> Option<&OpenKeys> {
        self.keys.as_ref()
    }

    pub fn engine(&self) -> &Engine {
        self.catalog.engine()
    }

    /// The numbers of updates that were sent as messages, and of those that have failed since.
    pub fn fast_updates(&self) -> &FastUpdateStats {
        &self.fast_updates
    }

    /// The last time before a change stream that begins now.
    pub(crate) fn change_stream_start(&self) -> u64 {
        // Of a cluster: others may have committed since this server did. If PD does not answer, reading fails as well.
        let now = self.cluster_time.shared_now().ok().flatten();
        now.unwrap_or_else(|| self.oplog().last().to_u64())
    }

    /// The memory budget of the process. What is held for clients is reserved in it.
    pub fn memory(&self) -> &MemoryBudget {
        self.engine().memory()
    }

    /// Bytes of memtables that only snapshots, such as those of open cursors, keep in memory.
    pub fn retained_bytes(&self) -> u64 {
        OwnFiles::new(self.engine()).retained_bytes()
    }

    /// Whether that is too much: cursors that are idle should release their memory
    /// ([`QueryCursor::release_memory`](crate::QueryCursor::release_memory)).
    pub fn retains_too_much(&self) -> bool {
        OwnFiles::new(self.engine()).retains_too_much()
    }

    /// Whether it is twice what they may keep.
    pub fn retains_far_too_much(&self) -> bool {
        OwnFiles::new(self.engine()).retains_far_too_much()
    }

    /// The counters of an engine with data files; all zero in a cluster.
    pub fn engine_stats(&self) -> EngineStats {
        OwnFiles::new(self.engine()).stats()
    }

    /// Requests to the TiKV cluster, and the number of this run of this server there; `None` with data files.
    pub fn tikv_stats(&self) -> Option<(ClusterStats, Option<u32>)> {
        self.catalog.coordination().keyspace_stats()
    }

    /// The room of the file system that holds the files; `None` if the data is in a cluster.
    pub fn disk_space(&self) -> Option<DiskSpace> {
        OwnFiles::new(self.engine()).disk_space()
    }

    /// Syncs the log, so that all acknowledged writes survive a crash.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn flush_log(&self) -> Result<()> {
        Ok(self.engine().flush_log()?)
    }

    /// As [`DocumentStore::flush_log`], without a thread that waits.
    ///
    /// # Errors
    /// Errors of the engine.
    pub async fn log_flushed(&self) -> Result<()> {
        Ok(self.engine().log_flushed().await?)
    }

    /// Writes all memtables to the data file, then a checkpoint. Has no effect in a cluster.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn checkpoint(&self) -> Result<()> {
        OwnFiles::new(self.engine()).checkpoint()
    }

    /// Writes a checkpoint and closes the files. Later operations fail with `InterruptedAtShutdown` (11600).
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn close(&self) -> Result<()> {
        let left = self.leave();
        let lowered = if self.catalog.is_member() {
            // Its member has ended, see `lower_clock_bound`.
            Ok(())
        } else {
            self.cluster_time.lower_bound()
        };
        self.engine().close()?;
        lowered.and(left)
    }

    /// Whether other servers may use the same keyspace.
    pub fn is_shared(&self) -> bool {
        self.catalog.coordination().has_others()
    }

    /// The servers that share the keyspace, this one included; none if no others can.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn servers(&self) -> Result<Vec<ServerInfo>> {
        self.catalog.servers()
    }

    /// The number of this server, which no other live server has; 0 if no others can share the keyspace. A server that has
    /// lost its lease may get another one.
    pub fn server_number(&self) -> u32 {
        self.catalog.coordination().server_number()
    }

    /// Whether this server does a task that only one of all servers does, until it ends: always, if no others can share the
    /// keyspace.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn leads(&self, task: &str) -> Result<bool> {
        self.catalog.coordination().leads(task)
    }

    /// Leaves the other servers, so that they do not wait for this one. Later requests fail with `NotWritablePrimary` (10107).
    ///
    /// # Errors
    /// Errors of the engine. The others go on without this server when its lease is over.
    pub fn leave(&self) -> Result<()> {
        self.catalog.leave()
    }

    /// For tests: while it is stalled, the server neither renews its lease nor follows other servers.
    #[doc(hidden)]
    pub fn stall(&self, stalled: bool) {
        self.catalog.coordination().stall(stalled);
    }

    /// The settings of queries.
    pub fn queries(&self) -> &QuerySettings {
        &self.queries
    }

    /// The logical clock of the deployment.
    pub fn cluster_time(&self) -> &ClusterTime {
        &self.cluster_time
    }

    /// The oplog, on or off.
    pub fn oplog(&self) -> &Arc<Oplog> {
        self.catalog.oplog()
    }

    /// Turns the oplog on, if it is off. From here on every change has an entry. Transactions that are open fail with a write
    /// conflict. One that is on keeps its settings ([`Oplog::resize`]), and is on again when the store is opened.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn turn_on_oplog(&self, settings: OplogSettings) -> Result<()> {
        self.catalog.turn_on_oplog(settings)
    }

    /// Turns the oplog off, if it is on, and drops its entries and pre-images: later changes would be missing in it.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn turn_off_oplog(&self) -> Result<()> {
        self.catalog.turn_off_oplog()
    }

    /// Whether this is a member of a replica set that does not lead: what it has comes from the leader.
    pub fn is_following(&self) -> bool {
        self.oplog().is_following()
    }

    /// The log that this server shares with the other members of its replica set; `None` if it is not a member of one. What is applied
    /// from there is in the catalog of this store at once, and the store begins and ends to lead with the log.
    pub fn member_log(&self) -> Option<Arc<dyn MemberLog>> {
        let files = self.engine().files()?;
        (self.catalog.is_member()).then(|| {
            Arc::new(StoreLog {
                log: files.clone(),
                catalog: self.catalog.clone(),
                cluster_time: self.cluster_time.clone(),
            }) as Arc<dyn MemberLog>
        })
    }

    /// Prepares the clock of a leader that is about to end, so that its next start does not move the clock ahead.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn lower_clock_bound(&self) -> Result<()> {
        self.cluster_time.lower_bound()
    }

    /// Ends what the leader before has left unfinished. The log of this member accepts commits.
    ///
    /// # Errors
    /// Errors of the engine; `NotWritablePrimary` (10107).
    pub fn clean_up_as_leader(&self) -> Result<()> {
        self.catalog.clean_up_as_leader()
    }

    /// A handle of the same scope, and the timestamp of the last entry that requests of this handle write into the oplog. That
    /// of a transaction is known at its commit only ([`crate::Transaction::committed_at`]).
    #[must_use]
    pub fn noting_writes(&self) -> (DocumentStore, LastWritten) {
        let written = LastWritten::default();
        let catalog = self.catalog.noting(written.clone());
        (self.with_catalog(catalog), written)
    }

    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// A handle of the same store with another handle of its catalog.
    pub(crate) fn with_catalog(&self, catalog: Catalog) -> DocumentStore {
        DocumentStore {
            catalog: Arc::new(catalog),
            queries: self.queries.clone(),
            cluster_time: self.cluster_time.clone(),
            fast_updates: self.fast_updates.clone(),
            keys: self.keys.clone(),
        }
    }

    /// The catalog, for objects that outlive a call.
    pub(crate) fn shared_catalog(&self) -> Arc<Catalog> {
        self.catalog.clone()
    }
}
