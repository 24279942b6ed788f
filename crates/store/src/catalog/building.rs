//! Indexes that are being built: registered, caught up, made ready, abandoned.
//!
//! The layers above fill them, in closures that run while the collection has no writers.

use std::ops::Bound;
use std::sync::Arc;

use frond_bson::doc;
use frond_error::ErrorCode;
use frond_query::paths::MultikeyPaths;

use super::ddl::index_count;
use super::scope::unsupported;
use super::{Catalog, Collection, INDEXES_MAX, OpenTransaction, Uuid, logged, persist};
use crate::oplog::Batch;
use crate::own_files::OwnFiles;
use frond_storage::error::{Result, command};
use frond_storage::index::Index;
use frond_storage::index::field::Holds;
use frond_storage::index::spec::IndexSpec;
use frond_storage::keyspace::{Direction, TreeId, WriteSet};
use frond_storage::namespace::Namespace;
use frond_storage::text;

/// The result of registering new indexes.
pub(crate) struct Registered {
    /// Indexes that are to be built.
    pub building: Vec<Arc<Index>>,
    /// Indexes that the collection had before.
    pub before: usize,
    /// Indexes that it has now, ready for queries.
    pub after: usize,
}

/// In a partitioned collection each partition has entries of its own. So a unique index has to begin with the field that decides in
/// which one a document lies.
fn check_unique_in_partitions(collection: &Collection, spec: &IndexSpec) -> Result<()> {
    let Some((partitioned, _)) = collection.partitions() else {
        return Ok(());
    };
    let begins = || {
        let first = spec
            .fields
            .first()
            .filter(|field| field.holds == Holds::Value);
        first.is_some_and(|field| field.path == partitioned.by)
    };
    if (spec.unique || spec.prepare_unique) && !spec.is_id_index() && !begins() {
        return Err(command(
            ErrorCode::CannotCreateIndex,
            format!(
                "a unique index of the partitioned collection {} must begin with '{}'",
                collection.ns, partitioned.by
            ),
        ));
    }
    Ok(())
}

impl Catalog {
    /// Creates the trees of new indexes and registers them as not ready: from here on writers keep
    /// them up to date. Indexes that exist already are left out. `fill` puts the entries of the new ones into the
    /// same write set and returns true if the collection is small enough; if not, the write set is cleared.
    ///
    /// # Errors
    /// See [`IndexSpec::find_same`]; `CannotCreateIndex` (67) if there would be too many;
    /// `IndexBuildAlreadyInProgress` (285) if the same one is being built; what is wrong with the
    /// documents of a small collection.
    pub(crate) fn register_indexes(
        &self,
        ns: &Namespace,
        specs: Vec<IndexSpec>,
        fill: impl FnOnce(&Collection, &[Arc<Index>], &mut WriteSet) -> Result<bool>,
    ) -> Result<Registered> {
        let _changing = match self.transaction() {
            None => Some(self.begin_change()?),
            Some(_) => None,
        };
        let collection = self.existing(ns)?;
        let before = index_count(&collection);
        let mut new: Vec<Arc<Index>> = Vec::new();
        for spec in specs {
            check_unique_in_partitions(&collection, &spec)?;
            if self.is_new(&collection, &new, &spec)? {
                let tree = self.allocate_tree()?;
                let spec = spec.over(collection.settings.records());
                new.push(Arc::new(Index::new(spec, tree, false)));
            }
        }
        let mut registered = Registered {
            building: Vec::new(),
            before,
            after: before + new.len(),
        };
        if new.is_empty() {
            return Ok(registered);
        }
        if let Some(transaction) = self.transaction() {
            self.define_indexes(transaction, &collection, &new)?;
            return Ok(registered);
        }
        self.replace_with(&collection, || {
            let mut batch = self.batch(ns);
            for index in &new {
                batch.create_tree(index.tree, &index.spec.tree);
            }
            let filled = fill(&collection, &new, &mut batch)?;
            if filled {
                new.iter_mut()
                    .for_each(|index| *index = Arc::new(index.to_ready()));
            } else {
                batch.clear();
                for index in &mut new {
                    *index = Arc::new(self.begin_building(&mut batch, &collection.uuid, index)?);
                }
                registered.building.clone_from(&new);
            }
            if filled && collection.counts().are_zero() {
                logged::log_create_indexes(&mut batch, &collection, &new);
            } else if filled {
                logged::log_built_indexes(&mut batch, &collection, &new);
            }
            for index in &new {
                persist::put_index(&mut batch, &collection.uuid, index);
            }
            let all = collection.indexes.iter().chain(&new).cloned().collect();
            Ok((Some(collection.with_indexes(all)), batch))
        })?;
        Ok(registered)
    }

    /// Creates indexes in a transaction, on a collection that it has created and that is empty.
    fn define_indexes(
        &self,
        transaction: &OpenTransaction,
        collection: &Collection,
        new: &[Arc<Index>],
    ) -> Result<()> {
        let refused = |which| {
            Err(unsupported(format!(
                "Cannot create new indexes on {which} collection {} in a multi-document transaction.",
                collection.ns
            )))
        };
        if !transaction.has_created(collection) {
            return refused("existing");
        }
        let snapshot = transaction.snapshot()?;
        let (low, high) = (Bound::Unbounded, Bound::Unbounded);
        let mut documents = snapshot.cursor(collection.primary, low, high, Direction::Forward)?;
        if documents.next()?.is_some() {
            return refused("non-empty");
        }
        let mut batch = self.batch(&collection.ns);
        let mut all = collection.indexes.clone();
        for index in new {
            let ready = Arc::new(index.to_ready());
            batch.create_tree(ready.tree, &ready.spec.tree);
            persist::put_index(&mut batch, &collection.uuid, &ready);
            logged::log_create_indexes(&mut batch, collection, [&ready]);
            all.push(ready);
        }
        transaction.define(&self.state, collection.with_indexes(all), batch)
    }

    /// Registers an index that is to come in the place of another one when it is built. From here on writers keep it up to
    /// date. The catalog on disk does not hear of it.
    ///
    /// # Errors
    /// `IndexBuildAborted` (276) if the collection or the index was dropped or changed meanwhile;
    /// `IndexBuildAlreadyInProgress` (285) if another one is being built in its place.
    pub(crate) fn register_replacement(
        &self,
        uuid: &Uuid,
        replaced: &Arc<Index>,
        spec: IndexSpec,
    ) -> Result<Arc<Index>> {
        let _changing = self.begin_change()?;
        let collection = self.by_uuid(uuid).ok_or_else(aborted)?;
        let same = |index: &Arc<Index>| Arc::ptr_eq(index, replaced);
        if !collection.indexes.iter().any(same) {
            return Err(aborted());
        }
        check_not_replaced(&collection, replaced)?;
        let spec = spec.over(collection.settings.records());
        let mut new = Index::new(spec, self.allocate_tree()?, false);
        new.replaces = Some(replaced.tree);
        let mut batch = Batch::new(None);
        let new = Arc::new(self.begin_building(&mut batch, uuid, &new)?);
        persist::put_replacement(&mut batch, &collection, &new);
        let all = collection.indexes.iter().chain([&new]).cloned().collect();
        self.replace(&collection, Some(collection.with_indexes(all)), batch)?;
        Ok(new)
    }

    /// Gives all indexes of a collection new trees. Those that `fill` does not fill, see
    /// [`Catalog::register_indexes`], are returned, to be built.
    ///
    /// # Errors
    /// `NamespaceNotFound` (26); `IndexBuildAlreadyInProgress` (285) if indexes are being built.
    pub(crate) fn renew_indexes(
        &self,
        ns: &Namespace,
        fill: impl FnOnce(&Collection, &[Arc<Index>], &mut WriteSet) -> Result<bool>,
    ) -> Result<(Arc<Collection>, Vec<Arc<Index>>)> {
        let _changing = self.begin_change()?;
        self.check_no_oplog(ns)?;
        let collection = self.existing(ns)?;
        if collection.indexes.iter().any(|index| !index.ready) {
            return Err(command(
                ErrorCode::IndexBuildAlreadyInProgress,
                format!("Index build already in progress in {ns}"),
            ));
        }
        let mut building = Vec::new();
        if collection.indexes.is_empty() {
            return Ok((collection, building));
        }
        let fresh = |index: &Arc<Index>| {
            let tree = self.allocate_tree()?;
            Ok(Arc::new(Index::new(index.spec.clone(), tree, false)))
        };
        self.replace_with(&collection, || {
            let mut new: Vec<Arc<Index>> = collection
                .indexes
                .iter()
                .map(fresh)
                .collect::<Result<_>>()?;
            let mut batch = Batch::new(None);
            for index in &new {
                batch.create_tree(index.tree, &index.spec.tree);
            }
            if fill(&collection, &new, &mut batch)? {
                new.iter_mut()
                    .for_each(|index| *index = Arc::new(index.to_ready()));
            } else {
                batch.clear();
                for index in &mut new {
                    *index = Arc::new(self.begin_building(&mut batch, &collection.uuid, index)?);
                }
                building.clone_from(&new);
            }
            for (old, new) in collection.indexes.iter().zip(&new) {
                old.trees().for_each(|tree| batch.drop_tree(tree));
                persist::delete_index(&mut batch, &collection.uuid, old);
                persist::put_index(&mut batch, &collection.uuid, new);
            }
            Ok((Some(collection.with_indexes(new)), batch))
        })?;
        Ok((collection, building))
    }

    /// Creates the trees of an index that is to be built.
    fn begin_building(&self, batch: &mut WriteSet, uuid: &Uuid, index: &Index) -> Result<Index> {
        let coordination = &self.state.coordination;
        coordination.stage_build(batch, uuid, index.tree, &index.spec.tree);
        let mut sides = Vec::new();
        if index.spec.unique {
            sides.push(self.allocate_tree()?);
        }
        for side in &sides {
            batch.create_tree(*side, &index.spec.tree);
        }
        Ok(index.with_sides(sides))
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
        if spec.expire_after.is_some() && collection.settings.capped.is_some() {
            return Err(command(
                ErrorCode::CannotCreateIndex,
                "Cannot create TTL index on a capped collection",
            ));
        }
        let existing = collection.indexes.iter().chain(new);
        let specs: Vec<&IndexSpec> = existing.map(|index| &index.spec).collect();
        if let Some(place) = spec.find_same(&specs)? {
            return match collection.indexes.get(place) {
                Some(existing) if !existing.ready => Err(command(
                    ErrorCode::IndexBuildAlreadyInProgress,
                    format!("Index build already in progress: {}", spec.name),
                )),
                Some(_) => Ok(false),
                // Later positions are indexes of the same command.
                None => Err(spec.already_exists()),
            };
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

    /// The collection with this UUID, whatever its name is now.
    pub(crate) fn by_uuid(&self, uuid: &Uuid) -> Option<Arc<Collection>> {
        self.view().iter().find(|one| one.uuid == *uuid).cloned()
    }

    /// The collection and those of its indexes that are `built`.
    pub(crate) fn built(
        &self,
        uuid: &Uuid,
        built: &[Arc<Index>],
    ) -> Result<(Arc<Collection>, Vec<Arc<Index>>)> {
        let collection = self.by_uuid(uuid).ok_or_else(aborted)?;
        let mut found = Vec::with_capacity(built.len());
        for index in built {
            let same = |other: &&Arc<Index>| other.tree == index.tree;
            let index = collection.indexes.iter().find(same);
            found.push(index.cloned().ok_or_else(aborted)?);
        }
        Ok((collection, found))
    }

    /// Whether the collection and all of these indexes are still there.
    pub(crate) fn has_indexes(&self, uuid: &Uuid, built: &[Arc<Index>]) -> bool {
        self.built(uuid, built).is_ok()
    }

    /// Gives each unique index a new side tree. The previous side tree is final then and is returned with its index;
    /// older ones are dropped.
    ///
    /// # Errors
    /// `IndexBuildAborted` (276) if the collection or one of the indexes was dropped meanwhile.
    pub(crate) fn change_sides(
        &self,
        uuid: &Uuid,
        built: &[Arc<Index>],
    ) -> Result<Vec<(Arc<Index>, TreeId)>> {
        let _changing = self.begin_change()?;
        let (collection, built) = self.built(uuid, built)?;
        let mut closed = Vec::new();
        self.replace_with(&collection, || {
            let mut batch = Batch::new(None);
            let mut all = collection.indexes.clone();
            for index in &mut all {
                let is_built = built.iter().any(|other| other.tree == index.tree);
                let Some((last, older)) = index.sides.split_last() else {
                    continue;
                };
                if !is_built {
                    continue;
                }
                older.iter().for_each(|side| batch.drop_tree(*side));
                let side = self.allocate_tree()?;
                batch.create_tree(side, &index.spec.tree);
                let after = Arc::new(index.with_sides(vec![*last, side]));
                if after.replaces.is_none() {
                    persist::put_index(&mut batch, uuid, &after);
                } else {
                    (older.iter()).for_each(|side| persist::delete_working(&mut batch, *side));
                    persist::put_replacement(&mut batch, &collection, &after);
                }
                closed.push((after.clone(), *last));
                *index = after;
            }
            Ok((Some(collection.with_indexes(all)), batch))
        })?;
        Ok(closed)
    }

    /// Makes built indexes ready for queries, with their multikey paths. `last` does the remaining work while the
    /// collection has no writers. Returns the number of indexes afterwards.
    ///
    /// # Errors
    /// `IndexBuildAborted` (276) if the collection or one of the indexes was dropped meanwhile; errors of `last`.
    pub(crate) fn finish_indexes(
        &self,
        uuid: &Uuid,
        built: &[Arc<Index>],
        multikey: &[MultikeyPaths],
        last: impl FnOnce(&Collection, &[Arc<Index>]) -> Result<()>,
    ) -> Result<usize> {
        let _changing = self.begin_change()?;
        let (collection, built) = self.built(uuid, built)?;
        let is_there = |tree: &TreeId| collection.indexes.iter().any(|index| index.tree == *tree);
        if !built
            .iter()
            .filter_map(|index| index.replaces)
            .all(|tree| is_there(&tree))
        {
            return Err(aborted());
        }
        let mut count = 0;
        self.replace_with(&collection, || {
            last(&collection, &built)?;
            let mut batch = self.batch(&collection.ns);
            let mut all = collection.indexes.clone();
            let mut gone = Vec::new();
            for index in &mut all {
                let Some(at) = built.iter().position(|other| other.tree == index.tree) else {
                    continue;
                };
                let ready = index.to_ready();
                if let Some(paths) = multikey.get(at)
                    && !ready.is_multikey_stored(paths)
                {
                    ready.add_multikey(paths);
                    persist::add_multikey(&mut batch, uuid, &ready, paths);
                    ready.stored_multikey(paths);
                }
                index.sides.iter().for_each(|side| batch.drop_tree(*side));
                if index.replaces.is_some() {
                    (index.trees()).for_each(|tree| persist::delete_working(&mut batch, tree));
                }
                let coordination = &self.state.coordination;
                coordination.stage_end_of_build(&mut batch, uuid, index.tree);
                persist::put_index(&mut batch, uuid, &ready);
                gone.extend(index.replaces);
                *index = Arc::new(ready);
            }
            let new = built.iter().filter(|index| index.replaces.is_none());
            logged::log_built_indexes(&mut batch, &collection, new);
            for index in all.iter().filter(|index| gone.contains(&index.tree)) {
                let unique = doc! {"unique": true};
                logged::log_modify_index(&mut batch, &collection, index, &unique);
                persist::drop_index_trees(&mut batch, index);
                persist::delete_index(&mut batch, uuid, index);
            }
            all.retain(|index| !gone.contains(&index.tree));
            let after = collection.with_indexes(all);
            count = index_count(&after);
            Ok((Some(after), batch))
        })?;
        Ok(count)
    }

    /// Removes indexes whose build failed. One that is gone already is no error.
    pub(crate) fn abandon_indexes(&self, uuid: &Uuid, failed: &[Arc<Index>]) -> Result<()> {
        let _changing = self.begin_change()?;
        match self.by_uuid(uuid) {
            Some(collection) => self.remove_indexes(&collection, |index| {
                failed.iter().any(|other| other.tree == index.tree)
            }),
            None => Ok(()),
        }
    }

    /// Gives indexes whose build was interrupted, by a crash or by a shutdown, new trees, so that they are built from
    /// the start. So are ready ones whose entries a restore did not have: the log has no bulk loads.
    pub(super) fn restart_unfinished_indexes(&self) -> Result<()> {
        let files = OwnFiles::new(&self.state.engine);
        let is_loading = |tree| files.is_loading(tree);
        let is_whole = |index: &Arc<Index>| index.ready && !is_loading(index.tree);
        let collections: Vec<_> = self.view().iter().cloned().collect();
        for collection in collections {
            if collection.indexes.iter().all(is_whole) {
                continue;
            }
            let mut batch = Batch::new(None);
            // A server must start on a full disk. The new trees are empty.
            batch.set_frees_space();
            let mut all = collection.indexes.clone();
            for index in all.iter_mut().filter(|index| !is_whole(index)) {
                index.trees().for_each(|tree| batch.drop_tree(tree));
                persist::delete_index(&mut batch, &collection.uuid, index);
                let tree = self.allocate_tree()?;
                let fresh = Index::new(index.spec.clone(), tree, false);
                *index = Arc::new(self.begin_building(&mut batch, &collection.uuid, &fresh)?);
                persist::put_index(&mut batch, &collection.uuid, index);
            }
            self.replace(&collection, Some(collection.with_indexes(all)), batch)?;
        }
        Ok(())
    }

    /// The indexes that wait to be built since the catalog was opened.
    pub(crate) fn unfinished_indexes(&self) -> Vec<(Arc<Collection>, Vec<Arc<Index>>)> {
        let view = self.view();
        let unfinished = |collection: &Arc<Collection>| -> Vec<Arc<Index>> {
            let indexes = collection.indexes.iter();
            // In one process the command of a replacement is still there.
            let is_shared = persist::shows_unfinished(collection);
            let waits =
                |index: &&Arc<Index>| !index.ready && (is_shared || index.replaces.is_none());
            indexes.filter(waits).cloned().collect()
        };
        let mut found: Vec<_> = view
            .iter()
            .map(|collection| (collection.clone(), unfinished(collection)))
            .filter(|(_, indexes)| !indexes.is_empty())
            .collect();
        found.sort_by(|(a, _), (b, _)| a.ns.cmp(&b.ns));
        found
    }
}

/// Error 285 if an index is being built in the place of this one.
pub(super) fn check_not_replaced(collection: &Collection, index: &Index) -> Result<()> {
    let mut others = collection.indexes.iter();
    if others.any(|other| other.replaces == Some(index.tree)) {
        Err(command(
            ErrorCode::IndexBuildAlreadyInProgress,
            format!(
                "Index {} of {} is being made unique; wait for that, or drop it",
                index.spec.name, collection.ns
            ),
        ))
    } else {
        Ok(())
    }
}

/// Error 276.
pub(crate) fn aborted() -> frond_storage::error::Error {
    command(
        ErrorCode::IndexBuildAborted,
        "Index build aborted: the collection or the index was dropped",
    )
}
