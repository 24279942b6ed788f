//! The catalog: which collections and indexes there are, and which trees hold them.
//!
//! It is stored in the catalog tree ([`persist`]) and kept in memory as immutable views ([`view`]).
//! Readers load the current view and take no lock. Changes are made one at a time: each commits its entries together
//! with the trees that it creates or drops, and publishes a new view. The lock for that is held for the time of one small
//! commit, never for work that grows with a collection: what takes long is done before, beside the writers, and the change
//! publishes its result.
//!
//! A handle of the catalog follows the current state, or is that of a transaction or of a fixed snapshot ([`scope`],
//! [`transaction`]).
//!
//! Three things keep readers and writers of documents in step with such changes:
//! - A reader needs a snapshot of the engine and a view that agree. Each collection has an epoch
//!   that is odd while a change is under way; a reader looks at it before and after. During a change it goes on with the
//!   previous definition as long as that one's trees exist.
//! - A writer holds the collection's gate shared for the time of one commit, and a change holds it
//!   exclusively. So no document is written by a list of indexes that is out of date.
//! - Whether an index is multikey is set in memory before the commit of the document that made it
//!   so, and read after the snapshot was taken.

mod announce;
mod building;
mod catalog_snapshot;
mod ddl;
mod definitions;
mod dirty_set;
mod emptying;
mod gate;
mod hooks;
mod index_filters;
mod logged;
mod member;
mod modify;
mod noted;
mod oplog;
mod orphan_cleanup;
mod partitions;
mod persist;
mod plan_cache;
mod records;
mod reload;
mod scope;
mod session_records;
mod shared;
mod transaction;
mod uuid;
mod view;
mod view_definition;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use frond_bson::{Collator, DocBuf};
use frond_error::ErrorCode;
use parking_lot::Mutex;

use crate::coordination::Coordination;
use crate::oplog::Oplog;
use crate::own_files::OwnFiles;
use frond_storage::error::{Result, command, corrupt};
use frond_storage::index::spec::{ID_INDEX_NAME, IndexSpec};
use frond_storage::index::{Index, Usage};
use frond_storage::keyspace::{CATALOG_TREE, Engine, Snapshot, TreeId};
use frond_storage::merge::Counts;
use frond_storage::namespace::Namespace;
use frond_storage::options::{CollectionOptions, Division, NaturalOrder, Partitioned};
use frond_storage::record::LargeDocuments;
use frond_storage::record::load::DocumentReader;
use frond_storage::record::write::DocumentWriter;
use frond_storage::record_layout::Partitions;

pub(crate) use building::aborted;
pub(crate) use catalog_snapshot::CatalogSnapshot;
pub use ddl::{CreateIndexesInfo, DropInfo, IndexSelector};
pub use definitions::ResolvedView;
pub(crate) use dirty_set::{dirty_id, mark_dirty};
use gate::{Closed, Gate};
pub use hooks::Hooks;
pub use index_filters::IndexFilter;
use index_filters::IndexFilters;
pub use logged::LastWritten;
pub(crate) use logged::{check_same, name_in_oplog};
pub(crate) use modify::ToUnique;
pub use modify::{IndexChange, IndexChanged};
pub use noted::{CatalogChange, IndexNamed, IndexState, ViewChange, noting_changes};
pub use partitions::PartitionSelector;
pub(crate) use partitions::{change_partition_counter, partition_counts, put_partition_counter};
pub(crate) use persist::{
    add_multikey, change_counter, counter_key, put_counter, read_multikey, repair,
};
pub(crate) use plan_cache::{Cached, PlanCache, Winner};
use records::Records;
pub(crate) use records::{Insertion, record_key, record_of_key};
use scope::Scope;
pub(crate) use session_records::Records as SessionRecords;
use session_records::SessionTree;
pub use session_records::{ExecutedStatements, SessionHistory, SessionKey, StatementId};
use shared::Changing;
pub(crate) use transaction::{Effects, OpenTransaction};
pub use uuid::Uuid;
pub use view::View;
pub use view_definition::ViewDefinition;
pub(crate) use view_definition::{SYSTEM_PROFILE, SYSTEM_VIEWS, is_a_view};

/// The most indexes of one collection, the one on `_id` included.
pub const INDEXES_MAX: usize = 64;

/// The interval at which a reader checks whether a committed definition is published.
const PUBLICATION_WAIT: Duration = Duration::from_micros(50);

/// The version at [`Shared::gate`] after the collection was dropped.
const DROPPED: u64 = u64::MAX;

/// One version of a collection's definition. Never changes; a change makes a new one.
#[derive(Debug)]
pub struct Collection {
    /// Its name at this version.
    pub ns: Namespace,
    pub uuid: Uuid,
    /// The options it was created with.
    pub options: DocBuf,
    /// The same options, parsed.
    pub settings: Arc<CollectionOptions>,
    /// The tree of the documents, keyed by the encoded `_id`, by record ids, or by a primary key.
    pub primary: TreeId,
    /// Presents the tree of the documents to the planner as an index, if the collection has a primary key.
    pub primary_key: Option<Arc<Index>>,
    /// The tree of the segments of large documents. Without one all documents are stored whole.
    pub segments: Option<TreeId>,
    /// Its secondary indexes, oldest first, those under construction included.
    pub indexes: Vec<Arc<Index>>,
    /// Where writers note which documents they change, while the collection is copied, see [`Catalog::begin_dirty_set`].
    /// The catalog on disk does not know it: after a crash it is dropped.
    pub(crate) changes: Option<TreeId>,
    /// The oplog, of the collection that shows it.
    oplog: Option<Arc<Oplog>>,
    /// Plans that were chosen for this version.
    plans: PlanCache,
    /// Number of this version.
    version: u64,
    /// The state that all versions share.
    shared: Arc<Shared>,
}

/// The mutable part of a collection, shared by all versions.
#[derive(Debug, Default)]
struct Shared {
    documents: AtomicI64,
    bytes: AtomicI64,
    upserts: AtomicI64,
    updates: AtomicI64,
    /// The current version, or [`DROPPED`]. Writers of documents hold it shared.
    gate: Gate,
    /// Odd while the definition changes.
    epoch: AtomicU64,
    /// The number of queries that looked for an `_id`.
    id_uses: Usage,
    hooks: Arc<Hooks>,
    /// Which documents are stored in parts.
    large: LargeDocuments,
    /// Of a collection in the order of insertion: its record ids.
    records: Records,
    coordination: Coordination,
    /// Which indexes queries of a shape may use.
    index_filters: IndexFilters,
}

impl Shared {
    fn count(&self, change: Counts) {
        self.documents
            .fetch_add(change.documents, Ordering::Relaxed);
        self.bytes.fetch_add(change.bytes, Ordering::Relaxed);
        if (change.upserts, change.updates) != (0, 0) {
            self.upserts.fetch_add(change.upserts, Ordering::Relaxed);
            self.updates.fetch_add(change.updates, Ordering::Relaxed);
        }
    }

    fn set(&self, counts: Counts) {
        self.documents.store(counts.documents, Ordering::Relaxed);
        self.bytes.store(counts.bytes, Ordering::Relaxed);
        self.upserts.store(counts.upserts, Ordering::Relaxed);
        self.updates.store(counts.updates, Ordering::Relaxed);
    }
}

impl Collection {
    /// Documents and bytes, as of the last commit.
    pub fn counts(&self) -> Counts {
        if let Some(oplog) = &self.oplog {
            return oplog.counts();
        }
        if let Some(snapshot) = self.shared.coordination.snapshot_of_counts() {
            // The counts that were read last are near them, should the keyspace not be readable.
            if let Ok(counts) = self.counts_in(&snapshot) {
                self.set_counts(counts);
                return counts;
            }
        }
        Counts {
            documents: self.shared.documents.load(Ordering::Relaxed),
            bytes: self.shared.bytes.load(Ordering::Relaxed),
            upserts: self.shared.upserts.load(Ordering::Relaxed),
            updates: self.shared.updates.load(Ordering::Relaxed),
        }
    }

    /// Documents and bytes for a commit that is based on a snapshot. With other servers, as of the snapshot.
    ///
    /// # Errors
    /// With other servers: errors of the engine, `DataCorruptionDetected` (301).
    pub(crate) fn counts_in(&self, snapshot: &Snapshot) -> Result<Counts> {
        if !self.shared.coordination.has_others() {
            return Ok(self.counts());
        }
        self.stored_counts(snapshot)
    }

    /// Documents and bytes as a snapshot has them.
    pub(crate) fn stored_counts(&self, snapshot: &Snapshot) -> Result<Counts> {
        match snapshot.get(CATALOG_TREE, &counter_key(&self.uuid))? {
            None => Ok(Counts::default()),
            Some(stored) => Counts::from_bytes(&stored)
                .ok_or_else(|| corrupt(format!("the counter of collection {}", self.ns))),
        }
    }

    /// Replaces the counter in memory.
    fn set_counts(&self, counts: Counts) {
        self.shared.set(counts);
    }

    /// Updates the counter in memory. Call it after the commit of a write set with the same change.
    pub(crate) fn count(&self, change: Counts) {
        self.shared.count(change);
    }

    /// The number of queries that looked for an `_id`.
    pub fn id_uses(&self) -> &Usage {
        &self.shared.id_uses
    }

    /// The plans that were chosen for queries.
    pub(crate) fn plans(&self) -> &PlanCache {
        &self.plans
    }

    /// The index filters, which all versions share.
    pub(crate) fn index_filters(&self) -> &IndexFilters {
        &self.shared.index_filters
    }

    /// The specification of the index on `_id`, as it is shown.
    pub fn id_index(&self) -> DocBuf {
        match &self.settings.clustered {
            None => IndexSpec::inheriting(&IndexSpec::id_index_doc(), self.collator(), None),
            Some(clustered) => {
                let mut spec = clustered.clone();
                spec.push("clustered", true);
                spec
            }
        }
    }

    /// The default collation, which is that of the index on `_id`.
    pub fn collator(&self) -> &Collator {
        &self.settings.collator
    }

    /// The name of the index on `_id`.
    pub fn id_index_name(&self) -> &str {
        let clustered = self.settings.clustered.as_ref();
        let name = clustered.and_then(|spec| spec.get_str("name"));
        name.unwrap_or(ID_INDEX_NAME)
    }

    /// The index with this name.
    pub fn index(&self, name: &str) -> Option<&Arc<Index>> {
        self.indexes.iter().find(|index| index.spec.name == name)
    }

    /// The rule by which it is divided, if it has partitions.
    pub(crate) fn partitions(&self) -> Option<(&Partitioned, &Partitions)> {
        let settings = &self.settings;
        settings
            .partitioned
            .as_ref()
            .zip(settings.records().partitions())
    }

    /// The indexes in which a query may look for documents: the primary key, and those that are ready.
    pub fn searchable_indexes(&self) -> impl Iterator<Item = &Arc<Index>> {
        self.primary_key.iter().chain(self.ready_indexes())
    }

    /// The secondary indexes that queries may use.
    pub fn ready_indexes(&self) -> impl Iterator<Item = &Arc<Index>> {
        self.indexes.iter().filter(|index| index.ready)
    }

    /// The next version, with other indexes.
    fn with_indexes(&self, indexes: Vec<Arc<Index>>) -> Collection {
        Collection {
            ns: self.ns.clone(),
            uuid: self.uuid,
            options: self.options.clone(),
            settings: self.settings.clone(),
            primary: self.primary,
            primary_key: self.primary_key.clone(),
            segments: self.segments,
            indexes,
            changes: self.changes,
            oplog: self.oplog.clone(),
            plans: PlanCache::default(),
            version: self.version + 1,
            shared: self.shared.clone(),
        }
    }

    /// The next version, with other options.
    fn with_options(&self, options: DocBuf, settings: CollectionOptions) -> Collection {
        let indexes = persist::over_records(self.indexes.clone(), &settings);
        Collection {
            options,
            settings: Arc::new(settings),
            ..self.with_indexes(indexes)
        }
    }

    /// The next version, with other partitions.
    fn divided(&self, division: Division) -> Result<Collection> {
        let settings = self.settings.with_partitions(division)?;
        let options = settings.stored(&self.options);
        Ok(self.with_options(options, settings))
    }

    /// The next version of the same definition.
    fn next_version(&self) -> Collection {
        self.with_indexes(self.indexes.clone())
    }

    /// The next version, whose writers note what they change in another tree, or in none.
    fn with_dirty_set(&self, changes: Option<TreeId>) -> Collection {
        Collection {
            changes,
            ..self.with_indexes(self.indexes.clone())
        }
    }

    /// Reads its documents in a snapshot.
    pub(crate) fn document_reader<'a>(&self, snapshot: &'a Snapshot) -> DocumentReader<'a> {
        DocumentReader {
            snapshot,
            segments: self.segments,
        }
    }

    pub(crate) fn document_writer(&self) -> DocumentWriter {
        DocumentWriter {
            primary: self.primary,
            segments: self.segments,
            limits: match self.segments {
                Some(_) => self.shared.large,
                None => LargeDocuments::NEVER,
            },
        }
    }

    /// Keeps the writers of its documents waiting until the result is dropped.
    ///
    /// # Errors
    /// The operation was interrupted while it waited for them.
    pub(crate) fn hold_writers(&self) -> Result<WritersHeld<'_>> {
        let _gate = self.shared.gate.close()?;
        Ok(WritersHeld { _gate })
    }

    /// Whether all trees that queries of this version read are in a snapshot.
    fn is_in(&self, snapshot: &Snapshot) -> bool {
        let of_indexes = self.ready_indexes().map(|index| index.tree);
        let mut trees = self.trees().chain(of_indexes);
        // If a cluster does not answer, the reads that follow fail.
        trees.all(|tree| snapshot.has_tree(tree).unwrap_or(true))
    }

    /// Number of this version of the definition.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Its trees, without those of the indexes.
    pub fn trees(&self) -> impl Iterator<Item = TreeId> {
        std::iter::once(self.primary).chain(self.segments)
    }

    /// The callbacks to the server.
    pub(crate) fn hooks(&self) -> &Hooks {
        &self.shared.hooks
    }

    /// The next version, under another name.
    fn with_name(&self, ns: Namespace) -> Collection {
        Collection {
            ns,
            ..self.with_indexes(self.indexes.clone())
        }
    }
}

/// Keeps the writers of a collection waiting.
pub(crate) struct WritersHeld<'a> {
    _gate: Closed<'a>,
}

/// A handle of the catalog of one engine: of its current state, of a transaction, or of a fixed moment ([`scope`]). Cheap to
/// clone.
#[derive(Clone)]
pub struct Catalog {
    state: Arc<CatalogState>,
    scope: Scope,
    /// Receives the timestamps of the entries that this handle writes into the oplog.
    written: Option<LastWritten>,
}

/// The state that all handles of a catalog share.
struct CatalogState {
    engine: Engine,
    current: ArcSwap<View>,
    /// Held during a change of the catalog.
    changing: Mutex<()>,
    coordination: Coordination,
    /// With other servers: held during a change of the view.
    reloading: Mutex<()>,
    /// New collections whose commit is under way ([`announce`]).
    announced: ArcSwapOption<Vec<Arc<Collection>>>,
    /// Odd while the definition of some collection changes.
    epoch: AtomicU64,
    hooks: Arc<Hooks>,
    large: LargeDocuments,
    /// The order of documents in new collections that do not set one.
    natural_order: NaturalOrder,
    /// Where records of sessions are.
    session_tree: SessionTree,
    oplog: Arc<Oplog>,
    /// The last definition of the oplog's collection.
    oplog_collection: ArcSwapOption<Collection>,
}

impl CatalogState {
    /// Publishes a change of the view in memory.
    fn publish(&self, change: impl FnOnce(&mut View)) {
        let before = self.current.load_full();
        let mut view = View::clone(&before);
        change(&mut view);
        noted::note(&before, &view);
        self.show(view);
    }

    /// Makes this the current view.
    fn show(&self, view: View) {
        let after = Arc::new(view);
        let before = self.current.swap(after.clone());
        let mut watched = self.hooks.watched().iter();
        if watched.any(|name| !before.has_same(&after, name)) {
            self.hooks.changed();
        }
    }

    /// Whether this is the current definition of the collection.
    fn is_current(&self, collection: &Collection) -> bool {
        let same = |now: &Arc<Collection>| {
            now.uuid == collection.uuid && now.version == collection.version
        };
        match self.current.load().get(&collection.ns) {
            Some(now) => same(now),
            None => {
                let now = self.announced_or_published(&collection.ns);
                now.as_ref().is_some_and(same)
            }
        }
    }
}

impl Catalog {
    /// Reads the catalog of an engine; writes the first entry if it is new. Interrupted index builds
    /// restart, see [`crate::DocumentStore::resume_index_builds`].
    pub(crate) fn open(
        engine: Engine,
        oplog: Arc<Oplog>,
        large: LargeDocuments,
        natural_order: NaturalOrder,
        coordination: Coordination,
    ) -> Result<Catalog> {
        let hooks = Arc::new(Hooks::default());
        let view = match &coordination {
            Coordination::Local(_) => {
                let mut view = persist::load(&engine, &hooks, large, coordination.is_member())?;
                definitions::load(&engine.snapshot(), &mut view)?;
                view
            }
            // It is loaded when this server is registered.
            Coordination::Cluster(_) => persist::begin_shared(&engine)?,
        };
        let session_tree = SessionTree::load(&engine)?;
        let catalog = Catalog {
            state: Arc::new(CatalogState {
                engine,
                hooks,
                large,
                natural_order,
                current: ArcSwap::from_pointee(view),
                changing: Mutex::new(()),
                coordination,
                reloading: Mutex::new(()),
                announced: ArcSwapOption::empty(),
                epoch: AtomicU64::new(0),
                session_tree,
                oplog,
                oplog_collection: ArcSwapOption::empty(),
            }),
            scope: Scope::Live,
            written: None,
        };
        if catalog.is_member() {
            member::start(&catalog.state)?;
            return Ok(catalog);
        }
        if let Coordination::Cluster(cluster) = &catalog.state.coordination {
            // Unfinished work may belong to a server that is still alive.
            shared::start(&catalog.state, cluster)?;
            return Ok(catalog);
        }
        // After a cut of the log a temporary collection may be what is left of another one.
        if !OwnFiles::new(&catalog.state.engine).was_log_cut() {
            catalog.drop_temporary()?;
        }
        catalog.restart_unfinished_indexes()?;
        Ok(catalog)
    }

    /// The callbacks to the server.
    pub fn hooks(&self) -> &Hooks {
        &self.state.hooks
    }

    /// Whether this server is a member of a replica set whose members share a log.
    pub(crate) fn is_member(&self) -> bool {
        self.state.coordination.is_member()
    }

    pub fn engine(&self) -> &Engine {
        &self.state.engine
    }

    /// Begins a change of the catalog. Waits for room in memory first, because the others would wait for this change meanwhile.
    ///
    /// # Errors
    /// As [`Catalog::check_live`].
    fn begin_change(&self) -> Result<Changing<'_>> {
        self.check_live()?;
        self.state.lock_changes()
    }

    /// The view of this handle: the current one, or that of its transaction or moment.
    pub fn view(&self) -> arc_swap::Guard<Arc<View>> {
        self.views().load()
    }

    /// As [`Catalog::collection_here`]; if there is none, other servers may have created it meanwhile.
    pub fn collection(&self, ns: &Namespace) -> Option<Arc<Collection>> {
        if let Some(found) = self.collection_here(ns) {
            return Some(found);
        }
        if self.is_live() && self.state.refresh() {
            self.collection_here(ns)
        } else {
            None
        }
    }

    /// The current definition of a collection. Tools address a time series by the name that its buckets
    /// have in MongoDB: here it is an alias of the collection.
    fn collection_here(&self, ns: &Namespace) -> Option<Arc<Collection>> {
        if let Some(oplog) = self.state.oplog_collection(ns) {
            return Some(oplog);
        }
        let view = self.view();
        if let Some(found) = view.get(ns) {
            return Some(found.clone());
        }
        if self.is_live()
            && let Some(found) = self.state.announced_or_published(ns)
        {
            return Some(found);
        }
        let series = ns.coll().strip_prefix("system.buckets.")?;
        let series = view.get(&Namespace::new(ns.db(), series).ok()?)?;
        series.settings.time_series.as_ref()?;
        Some(series.clone())
    }

    /// The collation of an operation on a collection: its own, or the collection's.
    pub fn collator(&self, ns: &Namespace, asked: Option<&Collator>) -> Collator {
        match asked {
            Some(asked) => asked.clone(),
            None => match self.collection(ns) {
                Some(collection) => collection.collator().clone(),
                None => Collator::default(),
            },
        }
    }

    /// The current definition of a collection, or `NamespaceNotFound` (26), or
    /// `CommandNotSupportedOnView` (166) for a view.
    pub fn existing(&self, ns: &Namespace) -> Result<Arc<Collection>> {
        self.collection(ns)
            .ok_or_else(|| match self.definition(ns) {
                Some(_) => is_a_view(ns),
                None => not_found(ns),
            })
    }
}

/// Error 26.
pub(crate) fn not_found(ns: &Namespace) -> frond_storage::error::Error {
    command(ErrorCode::NamespaceNotFound, format!("ns not found {ns}"))
}
