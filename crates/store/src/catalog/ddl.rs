//! Changes of the catalog: each is one commit and one published view.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use frond_bson::{Doc, DocBuf, doc};
use frond_error::ErrorCode;

use super::{
    Catalog, CatalogState, Collection, DROPPED, PlanCache, SYSTEM_PROFILE, SYSTEM_VIEWS, Shared,
    View, logged, persist, records, scope::unsupported, uuid,
};
use crate::oplog::Batch;
use crate::server_configuration::check_dropped;
use frond_storage::error::{Result, command, write_conflict};
use frond_storage::index::Index;
use frond_storage::index::spec::{ID_INDEX_NAME, IndexSpec};
use frond_storage::keyspace::WriteSet;
use frond_storage::namespace::Namespace;
use frond_storage::options::{self, CollectionOptions, NaturalOrder};
use frond_storage::points::point;
use frond_storage::text;

/// The result of dropping a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropInfo {
    /// Indexes it had, the one on `_id` included; `None` for a view.
    pub indexes_were: Option<usize>,
}

/// The result of creating indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateIndexesInfo {
    /// Indexes before, the one on `_id` included.
    pub before: usize,
    pub after: usize,
    /// Whether the collection was created for them.
    pub created_collection: bool,
}

/// Which indexes to drop or to change.
#[derive(Clone, Debug)]
pub enum IndexSelector {
    /// All but the one on `_id`.
    All,
    Name(String),
    Key(DocBuf),
    Names(Vec<String>),
}

/// Indexes of a collection as MongoDB counts them.
pub(crate) fn index_count(collection: &Collection) -> usize {
    collection.ready_indexes().count() + usize::from(collection.lists_id_index())
}

/// The index that a collection is created with: of system collections MongoDB's, by which users and roles are found; of a
/// time series the one by its metadata and its time.
fn first_index(ns: &Namespace, settings: &CollectionOptions) -> Option<DocBuf> {
    if let Some(series) = &settings.time_series {
        let (meta, time) = (series.meta_field.as_deref()?, &*series.time_field);
        return Some(doc! {
            "v": 2, "key": {meta: 1, time: 1}, "name": format!("{meta}_1_{time}_1"),
        });
    }
    match ns.as_str() {
        "admin.system.users" => Some(doc! {
            "v": 2, "key": {"user": 1, "db": 1}, "name": "user_1_db_1", "unique": true,
        }),
        "admin.system.roles" => Some(doc! {
            "v": 2, "key": {"role": 1, "db": 1}, "name": "role_1_db_1", "unique": true,
        }),
        _ => None,
    }
}

/// Whether the store's setting decides the natural order of a new collection: it is not a system collection, and none
/// of its options sets an order.
fn takes_order_of_setting(ns: &Namespace, options: &CollectionOptions) -> bool {
    options.natural_order.is_none()
        && !options.is_by_record()
        && options.clustered.is_none()
        && options.view.is_none()
        && !ns.coll().starts_with("system.")
}

/// The options of a collection without its natural order.
fn without_order(options: &Doc) -> DocBuf {
    let mut out = DocBuf::new();
    for (name, value) in options.iter().filter(|(name, _)| *name != "naturalOrder") {
        out.push(name, value);
    }
    out
}

/// Two databases may not differ only in the case of their letters.
fn check_database_case(view: &View, ns: &Namespace) -> Result<()> {
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

impl CatalogState {
    /// Fails if a database of the current view differs from that of the name only in the case of its letters.
    pub(super) fn check_database_case(&self, ns: &Namespace) -> Result<()> {
        check_database_case(&self.current.load(), ns)
    }
}

impl Catalog {
    /// Commits a change, then publishes it.
    fn commit(&self, batch: Batch, publish: impl FnOnce(&mut View)) -> Result<()> {
        let (set, log) = batch.into_parts();
        let version = self.commit_change(set, log.as_ref())?.unwrap_or(0);
        self.publish(|view| {
            view.version = version;
            publish(view);
        });
        Ok(())
    }

    /// Publishes a change of the view in memory.
    pub(super) fn publish(&self, change: impl FnOnce(&mut View)) {
        self.state.publish(change);
    }

    /// Changes an existing collection: waits for its writers, commits, publishes. `after` is its
    /// next version; `None` drops it.
    pub(super) fn replace(
        &self,
        before: &Arc<Collection>,
        after: Option<Collection>,
        batch: Batch,
    ) -> Result<()> {
        self.replace_with(before, || Ok((after, batch)))
    }

    /// As [`Catalog::replace`], with what `change` makes when there are no writers.
    pub(super) fn replace_with(
        &self,
        before: &Arc<Collection>,
        change: impl FnOnce() -> Result<(Option<Collection>, Batch)>,
    ) -> Result<()> {
        let shared = before.shared.clone();
        self.state.close_gates(&[before.uuid])?;
        let mut gate = shared.gate.close()?;
        self.replace_held(before, &mut gate, change)
    }

    /// As [`Catalog::replace_with`], with the gate of the collection held.
    fn replace_held(
        &self,
        before: &Arc<Collection>,
        gate: &mut u64,
        change: impl FnOnce() -> Result<(Option<Collection>, Batch)>,
    ) -> Result<()> {
        let shared = &before.shared;
        let (after, batch) = change()?;
        self.state.epoch.fetch_add(1, Ordering::SeqCst);
        shared.epoch.fetch_add(1, Ordering::SeqCst);
        point("a change of a collection is about to be committed");
        let version = after.as_ref().map_or(DROPPED, |after| after.version);
        let done = self.commit(batch, |view| {
            view.remove(&before.ns);
            if let Some(after) = after {
                view.insert(Arc::new(after));
            }
        });
        shared.epoch.fetch_add(1, Ordering::SeqCst);
        self.state.epoch.fetch_add(1, Ordering::SeqCst);
        if done.is_ok() {
            *gate = version;
            // Tailable cursors check whether the collection still exists.
            shared.records.tail.notify();
        }
        done
    }

    /// Creates a collection or a view. Returns false if it exists already with the same options.
    ///
    /// # Errors
    /// `NamespaceExists` (48) if it exists with other options, and in a transaction with any; errors of the name and
    /// the options.
    pub fn create_collection(&self, ns: &Namespace, options: &Doc) -> Result<bool> {
        self.create_ordered(ns, options, self.state.natural_order)
    }

    /// As [`Catalog::create_collection`], in the order `otherwise` if the options set none.
    ///
    /// # Errors
    /// As [`Catalog::create_collection`].
    pub(crate) fn create_ordered(
        &self,
        ns: &Namespace,
        options: &Doc,
        otherwise: NaturalOrder,
    ) -> Result<bool> {
        options::check_each_once("create", options)?;
        let mut parsed = CollectionOptions::parse(options)?;
        if !self.state.coordination.has_others() {
            parsed = parsed.for_new_collection()?;
        }
        let mut stored = parsed.stored(options);
        // A request without an order accepts an existing collection of any order.
        let given = parsed.natural_order.is_none().then(|| stored.clone());
        // Fast updates are for documents that are stored by their primary key.
        let takes_order = takes_order_of_setting(ns, &parsed) && !parsed.fast_updates;
        if otherwise == NaturalOrder::Insertion && takes_order {
            parsed.natural_order = Some(NaturalOrder::Insertion);
            stored.push("naturalOrder", NaturalOrder::Insertion.name());
        }
        let _changing = match self.transaction() {
            None => Some(self.begin_change()?),
            Some(_) => {
                self.check_creation_in_transaction(ns, &parsed)?;
                None
            }
        };
        if let Some(view) = self.definition(ns) {
            if parsed.view.is_some() && view.options() == stored {
                return Ok(false);
            }
            return Err(exists(ns, &view.options()));
        }
        if let Some(existing) = self.collection(ns) {
            let same = parsed.shown(&stored) == existing.settings.shown(&existing.options);
            if same || given == Some(without_order(&existing.options)) {
                return Ok(false);
            }
            return Err(exists(ns, &existing.settings.shown(&existing.options)));
        }
        if ns.coll() != SYSTEM_PROFILE {
            ns.check_may_create()?;
        }
        check_place(ns, &parsed)?;
        self.state.check_database_case(ns)?;
        if self.transaction().is_some() {
            check_database_case(&self.view(), ns)?;
        }
        match &parsed.view {
            Some(view) => self.create_view(ns, view, &stored)?,
            None => self.create_unchecked(ns, &stored, parsed)?,
        }
        Ok(true)
    }

    /// Refuses to create in a transaction what has no place there, and a name that exists or was taken since its begin.
    fn check_creation_in_transaction(
        &self,
        ns: &Namespace,
        options: &CollectionOptions,
    ) -> Result<()> {
        self.check_scope_writable(ns)?;
        let what = match (&options.view, &options.time_series) {
            (Some(_), _) => "view",
            (_, Some(_)) => "time-series collection",
            // As in MongoDB, which compares the options outside of transactions only.
            _ if self.view().has_name(ns) => {
                return Err(command(
                    ErrorCode::NamespaceExists,
                    format!("Collection {ns} already exists."),
                ));
            }
            _ if self.state.current.load().has_name(ns) => return Err(write_conflict()),
            _ => return Ok(()),
        };
        Err(unsupported(format!(
            "Cannot create a {what} in a multi-document transaction."
        )))
    }

    /// Creates a collection without further checks. The lock on changes is held, except in a transaction.
    pub(super) fn create_unchecked(
        &self,
        ns: &Namespace,
        stored: &Doc,
        settings: CollectionOptions,
    ) -> Result<()> {
        if settings.partitioned.is_some() && self.state.coordination.has_others() {
            return Err(command(
                ErrorCode::CommandNotSupported,
                "partitioned collections are not supported by servers that share a keyspace",
            ));
        }
        let mut batch = self.batch(ns);
        let uuid = uuid::random();
        let primary = self.allocate_tree()?;
        let has_segments = !settings.is_by_record() && !ns.coll().starts_with("system.");
        let segments = if has_segments {
            Some(self.allocate_tree()?)
        } else {
            None
        };
        let mut indexes = Vec::new();
        if settings.has_id_index() {
            let tree = self.allocate_tree()?;
            let spec = records::id_index(&settings.collator)?.over(settings.records());
            let index = Index::new(spec, tree, true);
            batch.create_tree(tree, &settings.tree);
            persist::put_index(&mut batch, &uuid, &index);
            indexes.push(Arc::new(index));
        }
        if let Some(spec) = first_index(ns, &settings) {
            let tree = self.allocate_tree()?;
            let spec = IndexSpec::parse(&spec)?.over(settings.records());
            let index = Index::new(spec, tree, true);
            batch.create_tree(tree, &index.spec.tree);
            persist::put_index(&mut batch, &uuid, &index);
            indexes.push(Arc::new(index));
        }
        let collection = Collection {
            ns: ns.clone(),
            uuid,
            options: stored.to_owned(),
            primary,
            primary_key: records::primary_index(&settings, primary),
            segments,
            settings: Arc::new(settings),
            indexes,
            changes: None,
            oplog: None,
            plans: PlanCache::default(),
            version: 0,
            shared: Arc::new(Shared {
                hooks: self.state.hooks.clone(),
                large: self.state.large,
                coordination: self.state.coordination.clone(),
                ..Shared::default()
            }),
        };
        batch.create_tree(primary, &collection.settings.tree);
        if let Some(segments) = segments {
            batch.create_tree(segments, &collection.settings.segments_tree());
        }
        persist::put_collection(&mut batch, &collection);
        if is_temporary(ns.coll()) {
            self.state.coordination.stage_temporary(&mut batch, &uuid);
        }
        logged::log_create(&mut batch, &collection);
        let first = collection
            .indexes
            .iter()
            .skip(usize::from(collection.settings.has_id_index()));
        logged::log_create_indexes(&mut batch, &collection, first);
        match self.transaction() {
            None => self.commit(batch, |view| view.insert(Arc::new(collection))),
            Some(transaction) => transaction.define(&self.state, collection, batch),
        }
    }

    /// Changes the options of a collection: the fields of `collMod` that are about them.
    ///
    /// # Errors
    /// `NamespaceNotFound` (26), `InvalidOptions` (72) and others, see [`options::modify`].
    pub fn modify_collection(&self, ns: &Namespace, changes: &Doc) -> Result<()> {
        let _changing = self.begin_change()?;
        if let Some(view) = self.definition(ns) {
            return self.modify_view(&view, changes);
        }
        self.check_no_oplog(ns)?;
        let collection = self.existing(ns)?;
        let (settings, stored) = options::modify(&collection.options, changes)?;
        check_place(ns, &settings)?;
        let mut batch = self.batch(ns);
        // A change without an effect is an entry of the oplog all the same, as in MongoDB.
        if stored == collection.options && !batch.is_logged() {
            return Ok(());
        }
        let after = collection.with_options(stored, settings);
        persist::put_collection(&mut batch, &after);
        logged::log_modify(&mut batch, &collection, changes);
        self.replace(&collection, Some(after), batch)
    }

    /// Replaces a collection by another one. `finish` copies the last changes while the first has no writers, which must not
    /// take long.
    ///
    /// # Errors
    /// `NamespaceNotFound` (26), errors of `finish`.
    pub fn replace_by(
        &self,
        ns: &Namespace,
        other: &Namespace,
        finish: impl FnOnce(&Collection) -> Result<()>,
    ) -> Result<()> {
        let _changing = self.begin_change()?;
        self.check_no_oplog(ns)?;
        let collection = self.existing(ns)?;
        let shared = collection.shared.clone();
        {
            let other = self.existing(other)?;
            self.state.close_gates(&[collection.uuid, other.uuid])?;
            // Later writers find that the collection is another one, and retry.
            let mut gate = shared.gate.close()?;
            let version = *gate;
            finish(&collection)?;
            *gate = DROPPED;
            drop(gate);
            let renamed = self.rename_locked(&other.ns, ns, true);
            if renamed.is_err() {
                *shared.gate.close_for_sure() = version;
            }
            renamed
        }
    }

    /// The collection, created with no options if it does not exist.
    pub fn ensure_collection(&self, ns: &Namespace) -> Result<Arc<Collection>> {
        loop {
            if let Some(collection) = self.collection(ns) {
                return Ok(collection);
            }
            self.check_writable(ns)?;
            self.create_collection(ns, Doc::empty())?;
        }
    }

    /// Drops a collection with its indexes, or a view. Dropping `system.views` drops all views.
    ///
    /// # Errors
    /// `NamespaceNotFound` (26).
    pub fn drop_collection(&self, ns: &Namespace) -> Result<DropInfo> {
        let _changing = self.begin_change()?;
        if let Some(view) = self.definition(ns) {
            self.drop_view(&view)?;
            return Ok(DropInfo { indexes_were: None });
        }
        self.check_oplog_stays(ns)?;
        check_dropped(ns)?;
        let collection = self.existing(ns)?;
        let info = DropInfo {
            indexes_were: Some(index_count(&collection)),
        };
        if ns.coll() == SYSTEM_VIEWS {
            self.publish(|view| view.undefine(|gone| gone.db() == ns.db()));
        }
        self.replace_with(&collection, || {
            let mut batch = self.batch(ns);
            stage_drop(&mut batch, &collection);
            logged::log_drop(&mut batch, &collection);
            Ok((None, batch))
        })?;
        Ok(info)
    }

    /// Drops the temporary collections of commands that a crash interrupted.
    pub(crate) fn drop_temporary(&self) -> Result<()> {
        let view = self.view();
        for collection in view.iter().filter(|one| is_temporary(one.ns.coll())) {
            self.drop_collection(&collection.ns)?;
        }
        Ok(())
    }

    /// Drops all collections of a database. Returns whether there were any.
    ///
    /// # Errors
    /// `IllegalOperation` (20) for the database of the oplog; those of dropping a collection.
    pub fn drop_database(&self, db: &str) -> Result<bool> {
        if db == "local" && self.state.oplog.is_on() {
            return Err(command(
                ErrorCode::IllegalOperation,
                "Cannot drop 'local' database while replication is active",
            ));
        }
        let collections = self.view().database(db);
        for collection in &collections {
            match self.drop_collection(&collection.ns) {
                // Another operation dropped it meanwhile.
                Err(error) if error.code() == ErrorCode::NamespaceNotFound => {}
                other => {
                    other?;
                }
            }
        }
        if collections.is_empty() {
            return Ok(false);
        }
        self.log_drop_database(db)?;
        Ok(true)
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
        let _changing = self.begin_change()?;
        self.rename_locked(from, to, drop_target)
    }

    /// As [`Catalog::rename_collection`], with the lock on changes held.
    fn rename_locked(&self, from: &Namespace, to: &Namespace, drop_target: bool) -> Result<()> {
        for ns in [from, to] {
            check_dropped(ns)?;
            if self.state.oplog_collection(ns).is_some() {
                return Err(command(
                    ErrorCode::IllegalOperation,
                    "can't rename live oplog while replicating",
                ));
            }
        }
        self.check_writable(from)?;
        self.check_writable(to)
            .map_err(|error| match error.code() {
                ErrorCode::CommandNotSupportedOnView => command(
                    ErrorCode::NamespaceExists,
                    format!("a view already exists with that name: {to}"),
                ),
                _ => error,
            })?;
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
        self.state.check_database_case(to)?;
        let target = self.collection(to);
        if target.is_some() && !drop_target {
            return Err(command(
                ErrorCode::NamespaceExists,
                "target namespace exists",
            ));
        }
        // Without writers, so that the entry of the oplog has the numbers of the last moment.
        let change = || {
            let mut batch = self.batch(from);
            if let Some(target) = &target {
                stage_drop(&mut batch, target);
            }
            logged::log_rename(&mut batch, &source, to, target.as_deref());
            let renamed = source.with_name(to.clone());
            persist::delete_collection(&mut batch, from);
            persist::put_collection(&mut batch, &renamed);
            end_temporary(&mut batch, &source);
            Ok((Some(renamed), batch))
        };
        match &target {
            None => self.replace_with(&source, change),
            Some(target) => {
                self.state.close_gates(&[source.uuid, target.uuid])?;
                // Both collections change. Transactions hold gates in the same order.
                let (first, second) = if source.uuid < target.uuid {
                    (&source, target)
                } else {
                    (target, &source)
                };
                let mut first = first.shared.gate.close()?;
                let mut second = second.shared.gate.close()?;
                let (of_source, of_target) = if source.uuid < target.uuid {
                    (&mut *first, &mut *second)
                } else {
                    (&mut *second, &mut *first)
                };
                let epoch = &target.shared.epoch;
                epoch.fetch_add(1, Ordering::SeqCst);
                let done = self.replace_held(&source, of_source, change);
                epoch.fetch_add(1, Ordering::SeqCst);
                if done.is_ok() {
                    *of_target = DROPPED;
                }
                done
            }
        }
    }

    pub(super) fn remove_indexes(
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
        let mut batch = self.batch(&collection.ns);
        batch.set_frees_space();
        for index in &gone {
            persist::drop_index_trees(&mut batch, index);
            persist::delete_index(&mut batch, &collection.uuid, index);
            // An index that was not built was never announced.
            if index.ready {
                logged::log_drop_index(&mut batch, collection, index);
            }
        }
        self.replace(collection, Some(collection.with_indexes(kept)), batch)
    }

    /// Drops indexes. Returns how many there were before.
    ///
    /// # Errors
    /// `NamespaceNotFound` (26), `IndexNotFound` (27), `InvalidOptions` (72) for the index on `_id`,
    /// `AmbiguousIndexKeyPattern` (181) if a key pattern names several.
    pub fn drop_indexes(&self, ns: &Namespace, which: &IndexSelector) -> Result<usize> {
        let _changing = self.begin_change()?;
        self.check_no_oplog(ns)?;
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
        self.remove_indexes(&collection, |index| match &names {
            None => !index.spec.is_id_index(),
            Some(names) => names.contains(&index.spec.name),
        })?;
        Ok(before)
    }
}

/// Error 48.
fn exists(ns: &Namespace, options: &Doc) -> frond_storage::error::Error {
    command(
        ErrorCode::NamespaceExists,
        format!(
            "namespace {ns} already exists, but with different options: {}",
            text::document(options)
        ),
    )
}

/// Refuses validators on system collections and in internal databases, and pre-images in internal databases.
fn check_place(ns: &Namespace, settings: &CollectionOptions) -> Result<()> {
    let validates = settings.validation.validator.is_some();
    if validates && ns.coll().starts_with("system.") {
        return Err(command(
            ErrorCode::InvalidOptions,
            format!("Document validators are not allowed on system collection {ns}"),
        ));
    }
    if validates && matches!(ns.db(), "admin" | "local" | "config") {
        return Err(command(
            ErrorCode::InvalidOptions,
            format!(
                "Document validators are not allowed on collection {ns} in the {} internal database",
                ns.db()
            ),
        ));
    }
    if settings.keeps_pre_images() && matches!(ns.db(), "admin" | "local" | "config") {
        return Err(command(
            ErrorCode::InvalidOptions,
            format!(
                "changeStreamPreAndPostImages collection option is not supported on the {} database",
                ns.db()
            ),
        ));
    }
    Ok(())
}

/// Whether a collection of this name is one that a command needs while it runs.
fn is_temporary(name: &str) -> bool {
    name.starts_with("tmp.agg_out.")
        || (name.starts_with("tmp") && name.contains(".convertToCapped."))
}

/// Adds the removal of a collection to a write set.
fn stage_drop(batch: &mut WriteSet, collection: &Collection) {
    batch.set_frees_space();
    persist::delete_collection(batch, &collection.ns);
    persist::delete_counter(batch, &collection.uuid);
    if collection.settings.partitioned.is_some() {
        super::partitions::delete_partition_counters(batch, &collection.uuid);
    }
    if collection.settings.capped.is_some() {
        let coordination = &collection.shared.coordination;
        coordination.stage_forget_record(batch, &collection.uuid);
    }
    end_temporary(batch, collection);
    collection.trees().for_each(|tree| batch.drop_tree(tree));
    if let Some(changes) = collection.changes {
        batch.drop_tree(changes);
        persist::delete_working(batch, changes);
    }
    for index in &collection.indexes {
        persist::drop_index_trees(batch, index);
        persist::delete_index(batch, &collection.uuid, index);
    }
}

/// Ends that a collection belongs to a command, if it did.
fn end_temporary(batch: &mut WriteSet, collection: &Collection) {
    if is_temporary(collection.ns.coll()) {
        let coordination = &collection.shared.coordination;
        coordination.stage_end_of_temporary(batch, &collection.uuid);
    }
}

fn check_may_drop(collection: &Collection, name: &str) -> Result<()> {
    if name == ID_INDEX_NAME {
        return Err(command(ErrorCode::InvalidOptions, "cannot drop _id index"));
    }
    if collection
        .primary_key
        .as_ref()
        .is_some_and(|index| index.spec.name == name)
    {
        return Err(command(
            ErrorCode::InvalidOptions,
            "cannot drop the primary key",
        ));
    }
    if collection.settings.clustered.is_some() && name == collection.id_index_name() {
        return Err(command(
            ErrorCode::Location(5979800),
            "cannot drop the clustered index",
        ));
    }
    match collection.index(name) {
        Some(_) => Ok(()),
        None => Err(command(
            ErrorCode::IndexNotFound,
            format!("index not found with name [{name}]"),
        )),
    }
}

pub(super) fn name_of_key(collection: &Collection, key: &Doc) -> Result<String> {
    if frond_bson::compare_docs(key, &frond_bson::doc! {"_id": 1}).is_eq() {
        return Ok(ID_INDEX_NAME.to_owned());
    }
    let matches = |index: &&Arc<Index>| {
        index.replaces.is_none() && frond_bson::compare_docs(&index.spec.key, key).is_eq()
    };
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
