//! The document store: everything a server asks for, in one handle.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use frond_bson::{Collator, Doc, DocBuf, Value, doc};
use frond_query::error::ErrorCode;

use crate::catalog::{
    Catalog, Collection, CreateIndexesInfo, DropInfo, IndexChange, IndexChanged, IndexSelector,
    Uuid, View,
};
use crate::context::OpContext;
use crate::error::{Result, command};
use crate::index::spec::IndexSpec;
use crate::index::{Index, Usage};
use crate::keyspace::{Durability, Engine, EngineOptions, EngineStats};
use crate::large::LargeDocuments;
use crate::merge::merge_operator;
use crate::namespace::{Namespace, check_database_name};
use crate::options::NaturalOrder;
use crate::queries::QuerySettings;
use crate::write::delete::{self, DeleteRequest};
use crate::write::find_and_modify::{self, FindAndModifyOutcome, FindAndModifyRequest};
use crate::write::insert::{self, InsertOptions, InsertOutcome};
use crate::write::update::{self, UpdateOutcome, UpdateRequest};

/// Settings of a store.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct StoreOptions {
    /// A folder for temporary files of queries, which is emptied. Without one, queries that need more
    /// memory than they may have fail.
    pub temporary_files: Option<PathBuf>,
    /// Which documents are stored in parts.
    pub large_documents: LargeDocuments,
    /// The order of documents in new collections that do not say their own.
    pub natural_order: NaturalOrder,
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
}

/// How the files of a store are kept.
#[derive(Clone, Debug)]
pub struct StorageOptions {
    /// The memory budget of the engine, in bytes.
    pub cache_bytes: usize,
    /// Whether a log is kept. Without one a crash loses what came after the last checkpoint.
    pub journal: bool,
    /// The longest time between the acknowledgement of a write and the sync of its log record.
    pub journal_commit_interval: Duration,
}

/// A collation in messages.
fn collation_text(collator: &Collator) -> String {
    let simple = doc! {"locale": "simple"};
    crate::text::document(collator.spec().unwrap_or(&simple))
}

/// A database, as `listDatabases` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseInfo {
    /// Its name.
    pub name: String,
    /// Space of its collections, as [`crate::CollectionStats::storage_size`], with their indexes.
    pub size_on_disk: u64,
    /// Whether no collection holds a document.
    pub empty: bool,
}

/// A collection, as `listCollections` shows it.
#[derive(Clone, Debug)]
pub struct CollectionInfo {
    /// Its name without the database.
    pub name: String,
    /// What it is.
    pub kind: CollectionKind,
    /// The options it was created with.
    pub options: DocBuf,
    /// Its identity; a view has none.
    pub uuid: Option<Uuid>,
    /// The index on `_id` that a collection has by itself.
    pub id_index: Option<DocBuf>,
}

/// What `listCollections` calls a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectionKind {
    /// A collection.
    Collection,
    /// A view.
    View,
    /// A collection of measurements.
    TimeSeries,
}

impl CollectionKind {
    /// The word that clients see.
    pub fn name(self) -> &'static str {
        match self {
            CollectionKind::Collection => "collection",
            CollectionKind::View => "view",
            CollectionKind::TimeSeries => "timeseries",
        }
    }
}

/// What became of index builds that were cut short.
#[derive(Debug)]
pub struct ResumedBuild {
    /// The collection.
    pub ns: Namespace,
    /// The names of the indexes.
    pub indexes: Vec<String>,
    /// Whether they are built now.
    pub outcome: Result<()>,
}

/// Collections of documents over an engine. A cheap handle: clones share everything.
#[derive(Clone)]
pub struct DocumentStore {
    catalog: Arc<Catalog>,
    queries: Arc<QuerySettings>,
}

impl DocumentStore {
    /// Opens the store on an engine, which must have been opened with [`merge_operator`].
    ///
    /// # Errors
    /// `UnsupportedFormat` (12) for a catalog of another version, `DataCorruptionDetected` (301),
    /// errors of the engine.
    pub fn open(engine: Engine, options: StoreOptions) -> Result<DocumentStore> {
        let queries = QuerySettings::new(options.temporary_files.as_deref())?;
        Ok(DocumentStore {
            queries: Arc::new(queries),
            catalog: Arc::new(Catalog::open(
                engine,
                options.large_documents,
                options.natural_order,
            )?),
        })
    }

    /// Opens an engine with the store's merge operator, and the store on it.
    ///
    /// # Errors
    /// As [`DocumentStore::open`].
    pub fn open_engine(engine: EngineOptions, options: StoreOptions) -> Result<DocumentStore> {
        let engine = Engine::open(EngineOptions {
            merge: merge_operator(),
            ..engine
        })?;
        DocumentStore::open(engine, options)
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
        let engine = EngineOptions {
            cache_bytes: storage.cache_bytes,
            journal: storage.journal,
            journal_commit_interval: storage.journal_commit_interval,
            ..EngineOptions::new(path)
        };
        DocumentStore::open_engine(engine, options)
    }

    /// The engine below.
    pub fn engine(&self) -> &Engine {
        self.catalog.engine()
    }

    /// The engine's counters.
    pub fn engine_stats(&self) -> EngineStats {
        self.engine().stats()
    }

    /// Syncs the log, so that all acknowledged writes survive a crash.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn flush_log(&self) -> Result<()> {
        Ok(self.engine().flush_log()?)
    }

    /// Writes all memtables to the data file, then a checkpoint.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn checkpoint(&self) -> Result<()> {
        Ok(self.engine().checkpoint()?)
    }

    /// Writes a checkpoint and closes the files. Later operations fail with `InterruptedAtShutdown` (11600).
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn close(&self) -> Result<()> {
        Ok(self.engine().close()?)
    }

    /// What queries may use.
    pub fn queries(&self) -> &QuerySettings {
        &self.queries
    }

    /// The catalog.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Forgets the plans that were chosen for a collection; one that is not there has none.
    ///
    /// # Errors
    /// `CommandNotSupportedOnView` (166).
    pub fn forget_plans(&self, ns: &Namespace) -> Result<()> {
        match self.catalog.existing(ns) {
            Ok(collection) => collection.plans().clear(),
            Err(error) if error.code() == ErrorCode::NamespaceNotFound => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The name of the collection of a database that has this identity.
    pub fn collection_by_uuid(&self, db: &str, uuid: &[u8]) -> Option<Namespace> {
        let view = self.view();
        let mut all = view.iter().filter(|one| one.ns.db() == db);
        all.find(|one| one.uuid == uuid).map(|one| one.ns.clone())
    }

    /// The identity of a collection.
    pub fn uuid_of(&self, ns: &Namespace) -> Option<Uuid> {
        self.catalog.collection(ns).map(|one| one.uuid)
    }

    /// The catalog, for what outlives a call.
    pub(crate) fn shared_catalog(&self) -> Arc<Catalog> {
        self.catalog.clone()
    }

    fn view(&self) -> Arc<View> {
        Arc::clone(&self.catalog.view())
    }

    /// All databases, by name. A database is there as long as it has a collection.
    ///
    /// # Errors
    /// None at present.
    pub fn list_databases(&self) -> Result<Vec<DatabaseInfo>> {
        let mut found: BTreeMap<String, DatabaseInfo> = BTreeMap::new();
        for collection in self.view().iter() {
            let name = collection.ns.db();
            let info = found
                .entry(name.to_owned())
                .or_insert_with(|| DatabaseInfo {
                    name: name.to_owned(),
                    size_on_disk: 0,
                    empty: true,
                });
            info.empty &= collection.counts().documents == 0;
            info.size_on_disk += crate::stats::size(self.engine(), collection);
        }
        Ok(found.into_values().collect())
    }

    /// The collections of a database, by name, and behind them its views.
    ///
    /// # Errors
    /// `InvalidNamespace` (73).
    pub fn list_collections(&self, db: &str) -> Result<Vec<CollectionInfo>> {
        check_database_name(db)?;
        let view = self.view();
        let collections = view.database(db);
        let collections = collections.iter().map(|collection| CollectionInfo {
            name: collection.ns.coll().to_owned(),
            kind: match collection.settings.time_series {
                None => CollectionKind::Collection,
                Some(_) => CollectionKind::TimeSeries,
            },
            options: collection.options.clone(),
            uuid: Some(collection.uuid),
            id_index: (collection.settings.clustered.is_none()
                && collection.settings.time_series.is_none())
            .then(|| collection.id_index()),
        });
        let views = view.definitions(db);
        let views = views.iter().map(|view| CollectionInfo {
            name: view.ns.coll().to_owned(),
            kind: CollectionKind::View,
            options: view.options(),
            uuid: None,
            id_index: None,
        });
        Ok(collections.chain(views).collect())
    }

    /// Whether a collection is there.
    pub fn collection_exists(&self, ns: &Namespace) -> bool {
        self.catalog.collection(ns).is_some()
    }

    /// Creates a collection. One that is there already with the same options is no error.
    ///
    /// # Errors
    /// `NamespaceExists` (48), `InvalidNamespace` (73), `InvalidOptions` (72), `IDLUnknownField` (40415).
    pub fn create_collection(&self, ns: &Namespace, options: &Doc) -> Result<()> {
        self.catalog.create_collection(ns, options)?;
        Ok(())
    }

    /// Changes the options of a collection: the fields of `collMod` that are not about its indexes.
    ///
    /// # Errors
    /// `NamespaceNotFound` (26), `InvalidOptions` (72), and what is wrong with an option.
    pub fn modify_collection(&self, ns: &Namespace, changes: &Doc) -> Result<()> {
        self.catalog.modify_collection(ns, changes)
    }

    /// Drops a collection and its indexes.
    ///
    /// # Errors
    /// `NamespaceNotFound` (26).
    pub fn drop_collection(&self, ns: &Namespace) -> Result<DropInfo> {
        self.catalog.drop_collection(ns)
    }

    /// Drops a database. Returns whether it was there.
    ///
    /// # Errors
    /// `InvalidNamespace` (73).
    pub fn drop_database(&self, db: &str) -> Result<bool> {
        check_database_name(db)?;
        self.catalog.drop_database(db)
    }

    /// Renames a collection; with `drop_target` it replaces another one.
    ///
    /// # Errors
    /// `NamespaceNotFound` (26), `NamespaceExists` (48), `IllegalOperation` (20).
    pub fn rename_collection(
        &self,
        from: &Namespace,
        to: &Namespace,
        drop_target: bool,
    ) -> Result<()> {
        self.catalog.rename_collection(from, to, drop_target)
    }

    /// Creates indexes over the documents that are there and those to come. The collection is
    /// created if need be. Writes go on meanwhile. Indexes that are there already are no error.
    ///
    /// # Errors
    /// `CannotCreateIndex` (67), `IndexOptionsConflict` (85), `IndexKeySpecsConflict` (86),
    /// `DuplicateKey` (11000) and others, see [`IndexSpec::parse`]. Then no index is created.
    pub fn create_indexes(&self, ns: &Namespace, specs: &[&Doc]) -> Result<CreateIndexesInfo> {
        self.build_indexes(ns, specs, &OpContext::new())
    }

    /// As [`DocumentStore::create_indexes`], within limits. Shows its progress in the context.
    ///
    /// # Errors
    /// As there, and the limits of the context.
    pub fn build_indexes(
        &self,
        ns: &Namespace,
        specs: &[&Doc],
        context: &OpContext,
    ) -> Result<CreateIndexesInfo> {
        if specs.is_empty() {
            return Err(command(
                ErrorCode::BadValue,
                "Must specify at least one index to create",
            ));
        }
        let default = self.catalog.collator(ns, None);
        let collection = self.catalog.collection(ns);
        let compression = collection.and_then(|there| there.settings.index_compression);
        let specs: Vec<IndexSpec> = specs
            .iter()
            .map(|spec| IndexSpec::parse(&IndexSpec::inheriting(spec, &default, compression)))
            .collect::<Result<_>>()?;
        if let Some(spec) = specs
            .iter()
            .find(|spec| spec.is_id_index() && spec.collator != default)
        {
            return Err(command(
                ErrorCode::BadValue,
                format!(
                    "The _id index must have the same collation as the collection. Index collation: \
                     {}, collection collation: {}",
                    collation_text(&spec.collator),
                    collation_text(&default)
                ),
            ));
        }
        crate::index::build::create(&self.catalog, ns, specs, context)
    }

    /// Builds the indexes whose build was cut short when the store was last open, by a crash or by its end. To be
    /// called once after each opening; until it is done, nothing uses these indexes. Returns what became of
    /// each collection's; an index that could not be built is gone, unless the build was interrupted again.
    pub fn resume_index_builds(&self, context: &OpContext) -> Vec<ResumedBuild> {
        let unfinished = self.catalog.unfinished_indexes();
        let resume = |(collection, indexes): (Arc<Collection>, Vec<Arc<Index>>)| {
            let outcome =
                crate::index::build::resume(&self.catalog, &collection, &indexes, context);
            ResumedBuild {
                ns: collection.ns.clone(),
                indexes: indexes
                    .iter()
                    .map(|index| index.spec.name.clone())
                    .collect(),
                outcome,
            }
        };
        unfinished.into_iter().map(resume).collect()
    }

    /// Drops indexes. Returns how many there were before.
    ///
    /// # Errors
    /// `NamespaceNotFound` (26), `IndexNotFound` (27), `InvalidOptions` (72),
    /// `AmbiguousIndexKeyPattern` (181).
    pub fn drop_indexes(&self, ns: &Namespace, which: &IndexSelector) -> Result<usize> {
        self.catalog.drop_indexes(ns, which)
    }

    /// Changes options of an index.
    ///
    /// # Errors
    /// `NamespaceNotFound` (26), `IndexNotFound` (27), `InvalidOptions` (72),
    /// `CannotConvertIndexToUnique` (359).
    pub fn modify_index(&self, ns: &Namespace, change: &IndexChange) -> Result<IndexChanged> {
        self.catalog.modify_index(ns, change)
    }

    /// Builds all indexes of a collection anew, while writes go on. If the operation is killed, the build goes on
    /// when the store is next opened.
    ///
    /// # Errors
    /// `NamespaceNotFound` (26), `IndexBuildAlreadyInProgress` (285), the limits of the context.
    pub fn rebuild_indexes(&self, ns: &Namespace, context: &OpContext) -> Result<()> {
        let (collection, building) = self.catalog.renew_indexes(ns)?;
        if building.is_empty() {
            return Ok(());
        }
        crate::index::build::resume(&self.catalog, &collection, &building, context)
    }

    /// The specifications of a collection's indexes, the one on `_id` first.
    ///
    /// # Errors
    /// `NamespaceNotFound` (26).
    pub fn list_indexes(&self, ns: &Namespace) -> Result<Vec<DocBuf>> {
        let collection = self
            .catalog
            .existing(ns)
            .map_err(|error| match error.code() {
                ErrorCode::NamespaceNotFound => command(
                    ErrorCode::NamespaceNotFound,
                    format!("ns does not exist: {ns}"),
                ),
                _ => error,
            })?;
        let ready = collection
            .ready_indexes()
            .map(|index| index.spec.doc.clone());
        // Documents in the order of insertion have it among the others, or none.
        let own = (!collection.is_by_record()).then(|| collection.id_index());
        Ok(own.into_iter().chain(ready).collect())
    }

    /// Inserts documents, each with an `_id` of its own or a new ObjectId in front. The collection is
    /// created if need be.
    ///
    /// # Errors
    /// What is wrong with single documents is in the outcome. `InvalidNamespace` (73), errors of
    /// the engine.
    pub fn insert(
        &self,
        ns: &Namespace,
        docs: &[&Doc],
        options: InsertOptions,
    ) -> Result<InsertOutcome> {
        insert::insert(&self.catalog, ns, docs, options)
    }

    /// Updates documents, or inserts one if none matches and `upsert` is set.
    ///
    /// # Errors
    /// Errors of the filter, the update and the hint; `DuplicateKey` (11000); the limits of the
    /// context. What a multi update committed before an error stays.
    pub fn update(
        &self,
        ns: &Namespace,
        request: &UpdateRequest<'_>,
        durability: Durability,
        context: &OpContext,
    ) -> Result<UpdateOutcome> {
        update::update(&self.catalog, ns, request, durability, context)
    }

    /// Deletes documents. Returns how many.
    ///
    /// # Errors
    /// Errors of the filter and the hint; the limits of the context.
    pub fn delete(
        &self,
        ns: &Namespace,
        request: &DeleteRequest<'_>,
        durability: Durability,
        context: &OpContext,
    ) -> Result<u64> {
        delete::delete(&self.catalog, ns, request, durability, context)
    }

    /// Updates or removes one document and returns it.
    ///
    /// # Errors
    /// As [`DocumentStore::update`].
    pub fn find_and_modify(
        &self,
        ns: &Namespace,
        request: &FindAndModifyRequest<'_>,
        durability: Durability,
        context: &OpContext,
    ) -> Result<FindAndModifyOutcome> {
        find_and_modify::find_and_modify(&self.catalog, ns, request, durability, context)
    }

    /// How an index was used since the start: for `$indexStats`.
    ///
    /// # Errors
    /// `NamespaceNotFound` (26).
    pub fn index_usage(&self, ns: &Namespace) -> Result<Vec<DocBuf>> {
        let collection = self.catalog.existing(ns)?;
        let host = self.catalog.hooks().host();
        let describe = |spec: &Doc, uses: &Usage| {
            let mut out = doc! {"name": spec.get("name"), "key": spec.get("key")};
            if let Some(host) = host {
                out.push("host", host);
            }
            let since = Value::DateTime(uses.since_ms);
            out.push(
                "accesses",
                &doc! {"ops": uses.queries() as i64, "since": since},
            );
            out.push("spec", spec);
            out
        };
        let id_index = describe(&collection.id_index(), collection.id_uses());
        let others = collection.indexes.iter().map(|index| {
            let mut described = describe(&index.spec.doc, index.uses());
            if !index.ready {
                described.push("building", true);
            }
            described
        });
        let own = (!collection.is_by_record()).then_some(id_index);
        Ok(own.into_iter().chain(others).collect())
    }
}
