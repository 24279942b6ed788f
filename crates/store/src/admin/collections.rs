//! Databases and collections: listed, created, changed, renamed, dropped.

use std::collections::BTreeMap;
use std::sync::Arc;

use frond_bson::{Doc, DocBuf};
use frond_error::ErrorCode;

use crate::catalog::{DropInfo, Uuid, View};
use crate::store::DocumentStore;
use frond_storage::error::{Result, command};
use frond_storage::namespace::{Namespace, check_database_name};

/// A database, as `listDatabases` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseInfo {
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
    pub kind: CollectionKind,
    /// The options it was created with.
    pub options: DocBuf,
    /// Its UUID; a view has none.
    pub uuid: Option<Uuid>,
    /// The implicit index on `_id`, if it has one.
    pub id_index: Option<DocBuf>,
}

/// The type of a collection, as `listCollections` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectionKind {
    Collection,
    View,
    TimeSeries,
}

impl CollectionKind {
    /// The name that clients see.
    pub fn name(self) -> &'static str {
        match self {
            CollectionKind::Collection => "collection",
            CollectionKind::View => "view",
            CollectionKind::TimeSeries => "timeseries",
        }
    }
}

impl DocumentStore {
    fn view(&self) -> Arc<View> {
        Arc::clone(&self.catalog().view())
    }

    /// All databases, by name. A database exists as long as it has a collection.
    ///
    /// # Errors
    /// None at present.
    pub fn list_databases(&self) -> Result<Vec<DatabaseInfo>> {
        let mut found: BTreeMap<String, DatabaseInfo> = BTreeMap::new();
        let oplog = self.catalog().oplog_collection();
        for collection in self.view().iter().chain(&oplog) {
            let name = collection.ns.db();
            let info = found
                .entry(name.to_owned())
                .or_insert_with(|| DatabaseInfo {
                    name: name.to_owned(),
                    size_on_disk: 0,
                    empty: true,
                });
            info.empty &= collection.counts().are_zero();
            info.size_on_disk += super::stats::size(self.engine(), collection);
        }
        Ok(found.into_values().collect())
    }

    /// The collections of a database, by name, followed by its views.
    ///
    /// # Errors
    /// `InvalidNamespace` (73).
    pub fn list_collections(&self, db: &str) -> Result<Vec<CollectionInfo>> {
        check_database_name(db)?;
        let view = self.view();
        let mut collections = view.database(db);
        let oplog = self.catalog().oplog_collection();
        if let Some(oplog) = oplog.filter(|oplog| oplog.ns.db() == db) {
            collections.retain(|other| other.ns != oplog.ns);
            let place = collections.partition_point(|other| other.ns < oplog.ns);
            collections.insert(place, oplog);
        }
        let collections = collections.iter().map(|collection| CollectionInfo {
            name: collection.ns.coll().to_owned(),
            kind: match collection.settings.time_series {
                None => CollectionKind::Collection,
                Some(_) => CollectionKind::TimeSeries,
            },
            options: collection.settings.shown(&collection.options),
            // A time series is shown as the view that it is in MongoDB.
            uuid: (collection.settings.time_series.is_none()).then_some(collection.uuid),
            id_index: (collection.settings.clustered.is_none()
                && collection.settings.time_series.is_none()
                && collection.oplog().is_none())
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

    /// Whether a collection exists.
    pub fn collection_exists(&self, ns: &Namespace) -> bool {
        self.catalog().collection(ns).is_some()
    }

    /// Creates a collection. One that exists already with the same options is no error.
    ///
    /// # Errors
    /// `NamespaceExists` (48), `InvalidNamespace` (73), `InvalidOptions` (72), `IDLUnknownField` (40415).
    pub fn create_collection(&self, ns: &Namespace, options: &Doc) -> Result<()> {
        self.catalog().create_collection(ns, options)?;
        Ok(())
    }

    /// Changes the options of a collection: the fields of `collMod` that are not about its indexes.
    ///
    /// # Errors
    /// `NamespaceNotFound` (26), `InvalidOptions` (72), and errors of single options.
    pub fn modify_collection(&self, ns: &Namespace, changes: &Doc) -> Result<()> {
        self.catalog().modify_collection(ns, changes)
    }

    /// Drops a collection and its indexes.
    ///
    /// # Errors
    /// `NamespaceNotFound` (26).
    pub fn drop_collection(&self, ns: &Namespace) -> Result<DropInfo> {
        self.catalog().drop_collection(ns)
    }

    /// Drops a database. Returns whether it existed.
    ///
    /// # Errors
    /// `InvalidNamespace` (73), `IllegalOperation` (20) for the database of users and roles.
    pub fn drop_database(&self, db: &str) -> Result<bool> {
        check_database_name(db)?;
        if db == "admin" {
            return Err(command(
                ErrorCode::IllegalOperation,
                "Dropping the 'admin' database is prohibited.",
            ));
        }
        self.catalog().drop_database(db)
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
        self.catalog().rename_collection(from, to, drop_target)
    }

    /// The name of the collection with this UUID in a database.
    pub fn collection_by_uuid(&self, db: &str, uuid: &[u8]) -> Option<Namespace> {
        let view = self.view();
        let mut all = view.iter().filter(|one| one.ns.db() == db);
        all.find(|one| one.uuid == uuid).map(|one| one.ns.clone())
    }

    /// The collections of a database with their UUIDs; not its views.
    pub fn collections_of(&self, db: &str) -> Vec<(Namespace, Uuid)> {
        let collections = self.view().database(db);
        let named = collections.iter().map(|one| (one.ns.clone(), one.uuid));
        named.collect()
    }

    /// The UUID of a collection.
    pub fn uuid_of(&self, ns: &Namespace) -> Option<Uuid> {
        self.catalog().collection(ns).map(|one| one.uuid)
    }
}
