//! A transaction above the engine: its view of the catalog, the collections that it creates, and what follows its
//! commit in memory.
//!
//! Each commit of a request stages its write set into the engine's transaction; counters, multikey paths and warnings wait
//! for the commit. The commit holds the gates of the collections that were written, in the order of their UUIDs, so that
//! their definitions are still those that the writes were made with. New collections are in the view of the transaction
//! only. The commit publishes them under the lock on changes of the catalog, if their names are still free.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use frond_bson::{DocBuf, Timestamp, doc};
use frond_error::ErrorCode;
use frond_query::paths::MultikeyPaths;
use parking_lot::{Mutex, RwLock};

use super::{
    CatalogSnapshot, CatalogState, Collection, Shared, Uuid, View, change_partition_counter,
    persist,
};
use crate::oplog::{Added, Batch, Log, TransactionLog, Trees};
use frond_oplog::entry::Session;
use frond_storage::error::{Error, Result, command, write_conflict};
use frond_storage::index::Index;
use frond_storage::keyspace::{
    Durability, EngineError, EngineTransaction, MemoryUse, Reservation, Snapshot, TreeId, WriteSet,
};
use frond_storage::merge::Counts;
use frond_storage::namespace::Namespace;
use frond_storage::points::point;
use frond_storage::record_layout::PartitionId;

/// The most bytes of warnings that a transaction keeps for its commit. Further ones are left out: they are not in the memory
/// budget.
const WARNING_BYTES_MAX: usize = 1 << 20;

/// The changes in memory of one commit of documents.
#[derive(Default)]
pub(crate) struct Effects {
    /// The change of the collection's counter.
    pub counts: Counts,
    /// The part of each partition in it.
    pub partitions: BTreeMap<PartitionId, Counts>,
    /// Multikey paths that are stored with it.
    pub multikey: Vec<(Arc<Index>, MultikeyPaths)>,
    /// Warnings about documents that fail the validator.
    pub warnings: Vec<DocBuf>,
    /// The entries of the oplog.
    pub log: Option<Log>,
}

/// A transaction. Its requests come one after the other; its end may come at any time, from any thread.
pub(crate) struct OpenTransaction {
    /// The collections at its begin, and those that it has created.
    view: ArcSwap<View>,
    /// `None` after its end.
    engine: RwLock<Option<EngineTransaction>>,
    /// The oplog at its begin. If it is another one at the commit, operations are missing.
    oplog: Option<Trees>,
    /// The timestamp of its entry, 0 before the commit.
    committed_at: AtomicU64,
    /// Whether it is one of the server, which may write to its own collections.
    of_server: bool,
    changes: Mutex<Changes>,
}

/// The work at the commit.
#[derive(Default)]
struct Changes {
    written: BTreeMap<Uuid, Written>,
    /// The collections that it has created.
    created: BTreeMap<Uuid, Arc<Collection>>,
    multikey: HashMap<TreeId, (Arc<Index>, MultikeyPaths)>,
    /// Its operations, for the oplog, and the memory that they take.
    log: TransactionLog,
    log_memory: Option<Reservation>,
    warnings: Vec<(Arc<Shared>, Namespace, DocBuf)>,
    /// Size of the warnings.
    warning_bytes: usize,
    /// Warnings that are not kept.
    warnings_left_out: u64,
}

/// A collection that documents were written to.
struct Written {
    shared: Arc<Shared>,
    version: u64,
    /// Whether the server wants to know of changes.
    is_watched: bool,
    counts: Counts,
    partitions: BTreeMap<PartitionId, Counts>,
}

impl OpenTransaction {
    /// A transaction on a moment, of a client or of the server.
    pub(super) fn begin(
        state: &CatalogState,
        catalog_snapshot: &CatalogSnapshot,
        of_server: bool,
    ) -> OpenTransaction {
        OpenTransaction {
            view: ArcSwap::from(catalog_snapshot.view()),
            engine: RwLock::new(Some(state.engine.begin(catalog_snapshot.snapshot()))),
            oplog: state.oplog.trees(),
            committed_at: AtomicU64::new(0),
            of_server,
            changes: Mutex::default(),
        }
    }

    /// Whether it may write to the server's own collections.
    pub(super) fn is_of_server(&self) -> bool {
        self.of_server
    }

    pub(super) fn view(&self) -> &ArcSwap<View> {
        &self.view
    }

    /// The oplog that has its entry.
    pub(super) fn logged_to(&self) -> Option<Trees> {
        self.oplog
    }

    /// The timestamp of its last entry in the oplog; `None` if it has none, and before the commit.
    pub fn committed_at(&self) -> Option<Timestamp> {
        match self.committed_at.load(Ordering::Acquire) {
            0 => None,
            at => Some(Timestamp::from_u64(at)),
        }
    }

    /// A snapshot with the writes so far.
    ///
    /// # Errors
    /// `NoSuchTransaction` (251) after its end.
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.with_engine(|engine| Ok(engine.snapshot()))
    }

    /// Its collections with its writes so far, which later writes do not change.
    ///
    /// # Errors
    /// As [`OpenTransaction::snapshot`].
    pub(super) fn catalog_snapshot(&self) -> Result<CatalogSnapshot> {
        let snapshot = self.snapshot()?;
        Ok(CatalogSnapshot::new(self.view.load_full(), snapshot))
    }

    fn with_engine<T>(&self, run: impl FnOnce(&EngineTransaction) -> Result<T>) -> Result<T> {
        run(self.engine.read().as_ref().ok_or_else(ended)?)
    }

    /// Whether it has created the collection.
    pub(super) fn has_created(&self, collection: &Collection) -> bool {
        self.changes.lock().created.contains_key(&collection.uuid)
    }

    /// Stages a commit of documents.
    ///
    /// # Errors
    /// `WriteConflict` (112) if another one was faster, or the collection's definition has changed since the begin;
    /// `TransactionTooLarge` (257), `TransactionTooLargeForCache` (388), `NoSuchTransaction` (251).
    pub(super) fn stage(
        &self,
        state: &CatalogState,
        collection: &Collection,
        batch: WriteSet,
        effects: Effects,
    ) -> Result<()> {
        // The commit checks this again; a transaction that cannot be committed should end early.
        if !self.has_created(collection) && !state.is_current(collection) {
            return Err(write_conflict());
        }
        // Held to the end: a commit has the writes with what is noted about them, or neither.
        let engine = self.engine.read();
        let engine = engine.as_ref().ok_or_else(ended)?;
        let log = effects.log.map(Log::into_operations);
        let entry = self.changes.lock().reserve_log(state, log.as_ref())?;
        (engine.stage_leaving_room(batch, entry)).map_err(not_staged)?;
        point("a commit is staged in a transaction");
        let mut changes = self.changes.lock();
        changes.log(log);
        let written = changes
            .written
            .entry(collection.uuid)
            .or_insert_with(|| Written {
                shared: collection.shared.clone(),
                version: collection.version,
                is_watched: collection.hooks().watches(&collection.ns),
                counts: Counts::default(),
                partitions: BTreeMap::new(),
            });
        written.counts = written.counts + effects.counts;
        for (id, change) in effects.partitions {
            let counts = written.partitions.entry(id).or_default();
            *counts = *counts + change;
        }
        for (index, paths) in effects.multikey {
            let (_, known) = (changes.multikey.entry(index.tree))
                .or_insert_with(|| (index, MultikeyPaths::default()));
            known.extend(&paths);
        }
        for info in effects.warnings {
            let bytes = changes.warning_bytes + info.len_bytes();
            if bytes > WARNING_BYTES_MAX {
                changes.warnings_left_out += 1;
                continue;
            }
            changes.warning_bytes = bytes;
            let warning = (collection.shared.clone(), collection.ns.clone(), info);
            changes.warnings.push(warning);
        }
        Ok(())
    }

    /// The change of a collection's counter that waits for the commit.
    pub(super) fn pending_counts(&self, collection: &Collection) -> Counts {
        let changes = self.changes.lock();
        let written = changes.written.get(&collection.uuid);
        written.map_or(Counts::default(), |written| written.counts)
    }

    /// Stages a new collection, or another definition of one that the transaction has created.
    ///
    /// # Errors
    /// As [`OpenTransaction::stage`].
    pub(super) fn define(
        &self,
        state: &CatalogState,
        collection: Collection,
        batch: Batch,
    ) -> Result<()> {
        // Held to the end, as in `stage`.
        let engine = self.engine.read();
        let engine = engine.as_ref().ok_or_else(ended)?;
        let (set, log) = batch.into_parts();
        let log = log.map(Log::into_operations);
        let entry = self.changes.lock().reserve_log(state, log.as_ref())?;
        (engine.stage_leaving_room(set, entry)).map_err(not_staged)?;
        self.changes.lock().log(log);
        let collection = Arc::new(collection);
        let mut view = View::clone(&self.view.load());
        view.insert(collection.clone());
        self.view.store(Arc::new(view));
        let mut changes = self.changes.lock();
        changes.created.insert(collection.uuid, collection);
        Ok(())
    }

    /// Whether anything was written in it. False after its end.
    pub fn has_written(&self) -> bool {
        let engine = self.engine.read();
        engine.as_ref().is_some_and(|engine| !engine.is_empty())
    }

    /// Whether it is open.
    pub fn is_open(&self) -> bool {
        self.engine.read().is_some()
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        let engine = self.engine.read();
        let staged = engine.as_ref().map_or(0, EngineTransaction::bytes);
        let changes = self.changes.lock();
        staged + changes.warning_bytes + changes.log.bytes()
    }

    /// Lets go of the memtables of its begin that are flushed meanwhile.
    ///
    /// # Errors
    /// Errors of the engine: without room on the disk that is not possible.
    pub fn detach(&self) -> Result<()> {
        match self.engine.read().as_ref() {
            Some(engine) => Ok(engine.detach()?),
            None => Ok(()),
        }
    }

    /// Ends it without a trace. Waits for a request that is staging. After its end nothing happens.
    pub fn abort(&self) {
        let open = self.engine.write().take();
        *self.changes.lock() = Changes::default();
        drop(open);
    }

    /// Commits it together with what `extra` puts into the write set. Returns whether anything was written. After an error it
    /// is aborted. `session` is that of its entry in the oplog.
    pub(super) fn commit(
        &self,
        state: &CatalogState,
        session: Option<Session>,
        extra: impl FnOnce(&mut WriteSet),
    ) -> Result<bool> {
        let engine = self.engine.write().take().ok_or_else(ended)?;
        let changes = std::mem::take(&mut *self.changes.lock());
        state.check_lease()?;
        let changing = if changes.created.is_empty() {
            None
        } else {
            Some(state.lock_changes()?)
        };
        changes.check_names(state)?;
        let mut set = WriteSet::new();
        extra(&mut set);
        // Dropped behind the gates.
        let at_gate = state.coordination.at_gate();
        let mut gates = Vec::new();
        for (uuid, written) in &changes.written {
            if !changes.created.contains_key(uuid) {
                let gate = written.shared.gate.pass()?;
                if *gate != written.version {
                    return Err(write_conflict());
                }
                gates.push(gate);
            }
            if written.counts != Counts::default() {
                persist::change_counter(&mut set, uuid, written.counts);
            }
            for (id, change) in &written.partitions {
                change_partition_counter(&mut set, uuid, *id, *change);
            }
        }
        let writes = !engine.is_empty() || !set.is_empty();
        let mut watched = None;
        if changes.written.values().any(|written| written.is_watched) {
            let coordination = &state.coordination;
            watched = coordination.stage_watched(&mut set, &engine.snapshot())?;
        }
        // It cannot be turned on or off while the gates, or the lock on changes, are held.
        if writes && state.oplog.trees() != self.oplog {
            return Err(write_conflict());
        }
        // The copy of the operations in the write set.
        let budget = state.engine.memory();
        let _copy = budget.reserve(MemoryUse::Transactions, changes.log.bytes());
        let added = match self.oplog {
            Some(trees) => changes.log.put(&mut set, trees, session),
            None => Added::default(),
        };
        if added.entries > 0 {
            state.oplog.prepare()?;
        }
        point("a transaction is about to be committed");
        let created: Vec<_> = changes.created.values().cloned().collect();
        let announced = state.announce(created)?;
        state.check_lease()?;
        let _in_flight = (added.entries > 0).then(|| state.oplog.begin_commit());
        let again = state.oplog.prepare_again();
        let committed = engine.commit_reserving(set, Durability::Logged, again);
        // Also after an error, which does not always mean that nothing was committed.
        if changes.written.values().any(|written| written.is_watched) {
            state.hooks.changed();
        }
        let committed = committed.map_err(not_staged)?;
        state.coordination.committed_watched(watched);
        if let Some(at) = state.oplog.record_commit(committed.first_stamp, added) {
            self.committed_at.store(at.to_u64(), Ordering::Release);
            state
                .oplog
                .notify_readers(at, added, Some(changes.log.places()));
        }
        for written in changes.written.values() {
            written.shared.count(written.counts);
        }
        for (index, paths) in changes.multikey.values() {
            index.stored_multikey(paths);
        }
        point("a transaction is visible, and its collections are not published");
        announced.publish();
        drop(gates);
        drop(at_gate);
        drop(changing);
        for (shared, ns, info) in &changes.warnings {
            shared.hooks.invalid_document(ns, info);
        }
        if let Some((shared, ns, _)) = changes.warnings.last()
            && changes.warnings_left_out > 0
        {
            let left_out = i64::try_from(changes.warnings_left_out).unwrap_or(i64::MAX);
            let info = doc! {"furtherDocumentsOfTheTransaction": left_out};
            shared.hooks.invalid_document(ns, &info);
        }
        Ok(writes)
    }
}

impl Changes {
    /// Reserves the memory for operations that are about to be added. Returns how many bytes the commit has for all of them.
    fn reserve_log(
        &mut self,
        state: &CatalogState,
        later: Option<&TransactionLog>,
    ) -> Result<usize> {
        let Some(log) = later else {
            return Ok(self.log.commit_bytes());
        };
        let memory = (self.log_memory).get_or_insert_with(|| {
            let budget = state.engine.memory();
            budget.reserve(MemoryUse::Transactions, 0)
        });
        if !memory.try_grow(log.bytes()) {
            return Err(command(
                ErrorCode::TransactionTooLargeForCache,
                "there is not enough memory left for the transaction's entry in the oplog; divide it into smaller transactions",
            ));
        }
        Ok(self.log.commit_bytes() + log.commit_bytes())
    }

    /// Adds operations for the oplog.
    fn log(&mut self, log: Option<TransactionLog>) {
        if let Some(log) = log {
            self.log.append(log);
        }
    }

    /// Fails if the name of a new collection was taken since, or a database whose name differs only in the case of its
    /// letters was made. The lock on changes is held, if there are any.
    fn check_names(&self, state: &CatalogState) -> Result<()> {
        let view = state.current.load();
        let is_taken = |collection: &Arc<Collection>| view.has_name(&collection.ns);
        if self.created.values().any(is_taken) {
            return Err(write_conflict());
        }
        let mut created = self.created.values();
        created.try_for_each(|collection| state.check_database_case(&collection.ns))
    }
}

/// The error of the engine for writes of a transaction.
fn not_staged(error: EngineError) -> Error {
    match error {
        EngineError::TooLarge {
            what: what @ "write set",
            bytes,
            limit,
        } => command(
            ErrorCode::TransactionTooLarge,
            format!(
                "the writes of the transaction, with its entry in the oplog if there is one, take {bytes} bytes, more than a \
                 {what} of {limit} bytes can hold; divide it into smaller transactions"
            ),
        ),
        EngineError::OutOfMemory { .. } => {
            command(ErrorCode::TransactionTooLargeForCache, error.to_string())
        }
        // A change that drops the tree is about to be published.
        EngineError::UnknownTree(_) => write_conflict(),
        other => other.into(),
    }
}

/// Error 251.
fn ended() -> Error {
    command(
        ErrorCode::NoSuchTransaction,
        "the transaction has been committed or aborted; begin another one",
    )
}
