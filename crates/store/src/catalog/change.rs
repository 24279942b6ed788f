//! Changes of the catalog: each is one commit and one published view.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use frond_bson::{Doc, DocBuf};
use frond_query::error::ErrorCode;
use parking_lot::RwLock;

use super::{Catalog, Collection, DROPPED, INDEXES_MAX, Shared, Uuid, View, persist};
use crate::error::{Result, command};
use crate::index::Index;
use crate::index::spec::{Comparison, ID_INDEX_NAME, IndexSpec};
use crate::keyspace::{Durability, WriteSet};
use crate::namespace::Namespace;
use crate::options::CollectionOptions;
use crate::plan::trial::PlanCache;
use crate::text;

/// The result of dropping a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropInfo {
    /// Indexes it had, the one on `_id` included.
    pub indexes_were: usize,
}

/// The result of creating indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateIndexesInfo {
    /// Indexes before, the one on `_id` included.
    pub before: usize,
    /// Indexes after.
    pub after: usize,
    /// Whether the collection was created for them.
    pub created_collection: bool,
}

/// Which indexes to drop.
#[derive(Clone, Debug)]
pub enum IndexSelector {
    /// All but the one on `_id`.
    All,
    /// By name.
    Name(String),
    /// By key pattern.
    Key(DocBuf),
    /// Several, by name.
    Names(Vec<String>),
}

/// Indexes that were registered and are now to be filled, see [`Catalog::register_indexes`].
pub(crate) struct Registered {
    /// The new indexes, not ready.
    pub indexes: Vec<Arc<Index>>,
    /// Indexes that the collection had before.
    pub before: usize,
}

fn random_uuid() -> Uuid {
    let mut uuid: Uuid = rand::random();
    // Version 4 (random), variant 1, by RFC 9562.
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

/// Indexes of a collection as MongoDB counts them.
pub(crate) fn index_count(collection: &Collection) -> usize {
    collection.ready_indexes().count() + 1
}

impl Catalog {
    /// Commits a change, then publishes it.
    fn commit(&self, batch: WriteSet, publish: impl FnOnce(&mut View)) -> Result<()> {
        self.engine.commit(batch, Durability::Logged)?;
        let mut view = View::clone(&self.current.load());
        publish(&mut view);
        self.current.store(Arc::new(view));
        Ok(())
    }

    /// Changes an existing collection: waits for its writers, commits, publishes. `after` is its
    /// next version; `None` drops it.
    fn replace(
        &self,
        before: &Arc<Collection>,
        after: Option<Collection>,
        batch: WriteSet,
    ) -> Result<()> {
        let shared = before.shared.clone();
        let mut gate = shared.gate.write();
        shared.epoch.fetch_add(1, Ordering::SeqCst);
        let version = after.as_ref().map_or(DROPPED, |after| after.version);
        let done = self.commit(batch, |view| {
            view.remove(&before.ns);
            if let Some(after) = after {
                view.insert(Arc::new(after));
            }
        });
        shared.epoch.fetch_add(1, Ordering::SeqCst);
        if done.is_ok() {
            *gate = version;
        }
        done
    }

    /// Creates a collection. Returns false if it is there already with the same options.
    ///
    /// # Errors
    /// `NamespaceExists` (48) if it is there with other options; errors of the name and the options.
    pub fn create_collection(&self, ns: &Namespace, options: &Doc) -> Result<bool> {
        let parsed = CollectionOptions::parse(options)?;
        let stored = CollectionOptions::stored_form(options);
        let _changing = self.changing.lock();
        if let Some(existing) = self.collection(ns) {
            if existing.options == stored {
                return Ok(false);
            }
            return Err(command(
                ErrorCode::NamespaceExists,
                format!(
                    "namespace {ns} already exists, but with different options: {}",
                    text::document(&existing.options)
                ),
            ));
        }
        ns.check_may_create()?;
        self.check_database_case(ns)?;
        let collection = Collection {
            ns: ns.clone(),
            uuid: random_uuid(),
            options: stored,
            primary: self.engine.allocate_tree(),
            tree_options: parsed.tree,
            indexes: Vec::new(),
            plans: PlanCache::default(),
            version: 0,
            shared: Arc::new(Shared {
                gate: RwLock::new(0),
                ..Shared::default()
            }),
        };
        let mut batch = WriteSet::new();
        batch.create_tree(collection.primary, &collection.tree_options);
        persist::put_collection(&mut batch, &collection);
        self.commit(batch, |view| view.insert(Arc::new(collection)))?;
        Ok(true)
    }

    /// Two databases may not differ only in the case of their letters.
    fn check_database_case(&self, ns: &Namespace) -> Result<()> {
        let view = self.view();
        let clash = view
            .iter()
            .find(|other| other.ns.db() != ns.db() && other.ns.db().eq_ignore_ascii_case(ns.db()));
        match clash {
            Some(other) => Err(command(
                ErrorCode::Location(13297),
                format!(
                    "db already exists with different case already have: [{}] trying to create [{}]",
                    other.ns.db(),
                    ns.db()
                ),
            )),
            None => Ok(()),
        }
    }

    /// The collection, created with no options if it is not there.
    pub fn ensure_collection(&self, ns: &Namespace) -> Result<Arc<Collection>> {
        loop {
            if let Some(collection) = self.collection(ns) {
                return Ok(collection);
            }
            self.create_collection(ns, Doc::empty())?;
        }
    }

    /// Drops a collection with its indexes.
    ///
    /// # Errors
    /// `NamespaceNotFound` (26).
    pub fn drop_collection(&self, ns: &Namespace) -> Result<DropInfo> {
        let _changing = self.changing.lock();
        let collection = self.existing(ns)?;
        let info = DropInfo {
            indexes_were: index_count(&collection),
        };
        let mut batch = WriteSet::new();
        stage_drop(&mut batch, &collection);
        self.replace(&collection, None, batch)?;
        Ok(info)
    }

    /// Drops all collections of a database. Returns whether there were any.
    pub fn drop_database(&self, db: &str) -> Result<bool> {
        let collections = self.view().database(db);
        for collection in &collections {
            match self.drop_collection(&collection.ns) {
                // Somebody else dropped it meanwhile.
                Err(error) if error.code() == ErrorCode::NamespaceNotFound => {}
                other => {
                    other?;
                }
            }
        }
        Ok(!collections.is_empty())
    }

    /// Renames a collection, also into another database.
    ///
    /// # Errors
    /// `NamespaceNotFound` (26), `NamespaceExists` (48) unless `drop_target`, `IllegalOperation` (20)
    /// for a collection onto itself.
    pub fn rename_collection(
        &self,
        from: &Namespace,
        to: &Namespace,
        drop_target: bool,
    ) -> Result<()> {
        let _changing = self.changing.lock();
        let source = self.collection(from).ok_or_else(|| {
            command(
                ErrorCode::NamespaceNotFound,
                format!("Source collection {from} does not exist"),
            )
        })?;
        if from == to {
            return Err(command(
                ErrorCode::IllegalOperation,
                "Can't rename a collection to itself",
            ));
        }
        to.check_may_create()?;
        self.check_database_case(to)?;
        let target = self.collection(to);
        if target.is_some() && !drop_target {
            return Err(command(
                ErrorCode::NamespaceExists,
                "target namespace exists",
            ));
        }
        let mut batch = WriteSet::new();
        if let Some(target) = &target {
            stage_drop(&mut batch, target);
        }
        let renamed = source.with_name(to.clone());
        persist::delete_collection(&mut batch, from);
        persist::put_collection(&mut batch, &renamed);
        match &target {
            None => self.replace(&source, Some(renamed), batch),
            Some(target) => {
                // Both collections change: hold the gate of the target around the other.
                let shared = target.shared.clone();
                let mut gate = shared.gate.write();
                shared.epoch.fetch_add(1, Ordering::SeqCst);
                let done = self.replace(&source, Some(renamed), batch);
                shared.epoch.fetch_add(1, Ordering::SeqCst);
                if done.is_ok() {
                    *gate = DROPPED;
                }
                done
            }
        }
    }

    /// Creates the trees of new indexes and registers them as not ready: from here on writers keep
    /// them up to date. Indexes that exist already are left out.
    ///
    /// # Errors
    /// See [`IndexSpec::compare`]; `CannotCreateIndex` (67) if there would be too many;
    /// `IndexBuildAlreadyInProgress` (285) if the same one is being built.
    pub(crate) fn register_indexes(
        &self,
        ns: &Namespace,
        specs: Vec<IndexSpec>,
    ) -> Result<Registered> {
        let _changing = self.changing.lock();
        let collection = self.existing(ns)?;
        let before = index_count(&collection);
        let mut new: Vec<Arc<Index>> = Vec::new();
        for spec in specs {
            if self.is_new(&collection, &new, &spec)? {
                let tree = self.engine.allocate_tree();
                new.push(Arc::new(Index::new(spec, tree, false, 0)));
            }
        }
        if new.is_empty() {
            return Ok(Registered {
                indexes: new,
                before,
            });
        }
        let mut batch = WriteSet::new();
        for index in &new {
            batch.create_tree(index.tree, &index.spec.tree);
            persist::put_index(&mut batch, &collection.uuid, index);
        }
        let all = collection.indexes.iter().chain(&new).cloned().collect();
        self.replace(&collection, Some(collection.with_indexes(all)), batch)?;
        Ok(Registered {
            indexes: new,
            before,
        })
    }

    /// Whether an index does not exist yet and may be created.
    fn is_new(
        &self,
        collection: &Collection,
        new: &[Arc<Index>],
        spec: &IndexSpec,
    ) -> Result<bool> {
        if spec.is_id_index() {
            return Ok(false);
        }
        for existing in collection.indexes.iter().chain(new) {
            if spec.compare(&existing.spec)? == Comparison::Identical {
                if !existing.ready && !new.iter().any(|index| Arc::ptr_eq(index, existing)) {
                    return Err(command(
                        ErrorCode::IndexBuildAlreadyInProgress,
                        format!("Index build already in progress: {}", spec.name),
                    ));
                }
                return Ok(false);
            }
        }
        if collection.indexes.len() + new.len() + 1 >= INDEXES_MAX {
            return Err(command(
                ErrorCode::CannotCreateIndex,
                format!(
                    "add index fails, too many indexes for {} key:{}",
                    collection.ns,
                    text::document(&spec.key)
                ),
            ));
        }
        Ok(true)
    }

    /// The collection with this identity, whatever its name is now.
    fn by_uuid(&self, uuid: &Uuid) -> Option<Arc<Collection>> {
        self.view().iter().find(|one| one.uuid == *uuid).cloned()
    }

    /// The current name of the collection with this identity.
    pub(crate) fn name_of(&self, uuid: &Uuid) -> Option<Namespace> {
        self.by_uuid(uuid).map(|collection| collection.ns.clone())
    }

    /// Makes filled indexes ready for queries. Returns the number of indexes afterwards.
    ///
    /// # Errors
    /// `IndexBuildAborted` (276) if the collection or one of the indexes was dropped meanwhile.
    pub(crate) fn finish_indexes(&self, uuid: &Uuid, built: &[Arc<Index>]) -> Result<usize> {
        let _changing = self.changing.lock();
        let collection = self.by_uuid(uuid).ok_or_else(aborted)?;
        let is_built = |index: &Arc<Index>| built.iter().any(|other| other.tree == index.tree);
        if collection
            .indexes
            .iter()
            .filter(|index| is_built(index))
            .count()
            < built.len()
        {
            return Err(aborted());
        }
        // Writers that add multikey bits to the old version are kept out while bits are copied.
        let shared = collection.shared.clone();
        let mut gate = shared.gate.write();
        let mut batch = WriteSet::new();
        let mut all = Vec::with_capacity(collection.indexes.len());
        for index in &collection.indexes {
            if is_built(index) {
                let ready = index.to_ready();
                persist::put_index(&mut batch, uuid, &ready);
                all.push(Arc::new(ready));
            } else {
                all.push(index.clone());
            }
        }
        let after = collection.with_indexes(all);
        let (count, version) = (index_count(&after), after.version);
        shared.epoch.fetch_add(1, Ordering::SeqCst);
        let done = self.commit(batch, |view| view.insert(Arc::new(after)));
        shared.epoch.fetch_add(1, Ordering::SeqCst);
        if done.is_ok() {
            *gate = version;
        }
        done.map(|()| count)
    }

    /// Removes indexes whose build failed. One that is gone already is no error.
    pub(crate) fn abandon_indexes(&self, uuid: &Uuid, failed: &[Arc<Index>]) -> Result<()> {
        let _changing = self.changing.lock();
        match self.by_uuid(uuid) {
            Some(collection) => self.remove_indexes(&collection, |index| {
                failed.iter().any(|other| other.tree == index.tree)
            }),
            None => Ok(()),
        }
    }

    fn remove_indexes(
        &self,
        collection: &Arc<Collection>,
        remove: impl Fn(&Arc<Index>) -> bool,
    ) -> Result<()> {
        let (gone, kept): (Vec<_>, Vec<_>) = collection
            .indexes
            .iter()
            .cloned()
            .partition(|index| remove(index));
        if gone.is_empty() {
            return Ok(());
        }
        let mut batch = WriteSet::new();
        for index in &gone {
            batch.drop_tree(index.tree);
            persist::delete_index(&mut batch, &collection.uuid, index);
        }
        self.replace(collection, Some(collection.with_indexes(kept)), batch)
    }

    /// Drops indexes. Returns how many there were before.
    ///
    /// # Errors
    /// `NamespaceNotFound` (26), `IndexNotFound` (27), `InvalidOptions` (72) for the index on `_id`,
    /// `AmbiguousIndexKeyPattern` (181) if a key pattern names several.
    pub fn drop_indexes(&self, ns: &Namespace, which: &IndexSelector) -> Result<usize> {
        let _changing = self.changing.lock();
        let collection = self.existing(ns)?;
        let before = index_count(&collection);
        let names = match which {
            IndexSelector::All => None,
            IndexSelector::Name(name) => Some(vec![name.clone()]),
            IndexSelector::Names(names) => Some(names.clone()),
            IndexSelector::Key(key) => Some(vec![name_of_key(&collection, key)?]),
        };
        if let Some(names) = &names {
            for name in names {
                check_may_drop(&collection, name)?;
            }
        }
        self.remove_indexes(&collection, |index| {
            names
                .as_ref()
                .is_none_or(|names| names.contains(&index.spec.name))
        })?;
        Ok(before)
    }

    /// Removes what index builds left behind that a crash cut short.
    pub(super) fn drop_unfinished_indexes(&self) -> Result<()> {
        let collections: Vec<_> = self.view().iter().cloned().collect();
        for collection in collections {
            self.remove_indexes(&collection, |index| !index.ready)?;
        }
        Ok(())
    }
}

/// Adds the removal of a collection to a write set.
fn stage_drop(batch: &mut WriteSet, collection: &Collection) {
    persist::delete_collection(batch, &collection.ns);
    persist::delete_counter(batch, &collection.uuid);
    batch.drop_tree(collection.primary);
    for index in &collection.indexes {
        batch.drop_tree(index.tree);
        persist::delete_index(batch, &collection.uuid, index);
    }
}

fn check_may_drop(collection: &Collection, name: &str) -> Result<()> {
    if name == ID_INDEX_NAME {
        return Err(command(ErrorCode::InvalidOptions, "cannot drop _id index"));
    }
    match collection.index(name) {
        Some(_) => Ok(()),
        None => Err(command(
            ErrorCode::IndexNotFound,
            format!("index not found with name [{name}]"),
        )),
    }
}

fn name_of_key(collection: &Collection, key: &Doc) -> Result<String> {
    if frond_bson::compare_docs(key, &frond_bson::doc! {"_id": 1}).is_eq() {
        return Ok(ID_INDEX_NAME.to_owned());
    }
    let matches = |index: &&Arc<Index>| frond_bson::compare_docs(&index.spec.key, key).is_eq();
    let found: Vec<_> = collection.indexes.iter().filter(matches).collect();
    match found.as_slice() {
        [] => Err(command(
            ErrorCode::IndexNotFound,
            format!("can't find index with key: {}", text::document(key)),
        )),
        [one] => Ok(one.spec.name.clone()),
        [first, second, ..] => Err(command(
            ErrorCode::AmbiguousIndexKeyPattern,
            format!(
                "{} indexes found for key: {}, identify by name instead. Conflicting indexes: {}, {}",
                found.len(),
                text::document(key),
                text::document(&first.spec.doc),
                text::document(&second.spec.doc)
            ),
        )),
    }
}

/// Error 276.
pub(crate) fn aborted() -> crate::error::Error {
    command(
        ErrorCode::IndexBuildAborted,
        "Index build aborted: the collection or the index was dropped",
    )
}
