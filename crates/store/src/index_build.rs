//! Fills new indexes over existing documents, while writes continue.
//!
//! The indexes of a small collection are filled in the commit that registers them. Otherwise:
//!
//! 1. The indexes are registered, each with a tree that is to be loaded. From then on every writer keeps them
//!    up to date, and no query uses them.
//! 2. A snapshot is taken; every writer that did not know of the indexes has committed before it. The documents
//!    are read once, and the entries of all indexes go through one bulk loader, which puts them
//!    below what the writers have written. So an entry that a writer touched is the writer's, any other the
//!    snapshot's.
//! 3. The indexes are made ready in one commit.
//!
//! In a unique index the fields alone are the key, so two documents could overwrite each other's entry unnoticed while
//! its set of keys is incomplete. So writers leave the tree of a unique index alone while it is built, and
//! record in a *side tree*, under fields and `_id`, which entries were added and removed. After the load, side
//! trees are merged into the index: writers switch to a new side tree, so that the old one is
//! final, until little is left. The last one is merged while the collection has no writers. If two
//! documents have the same fields then, the build fails.
//!
//! With several servers over one keyspace, [`backfill`] fills the indexes instead of the bulk loader.
//!
//! If a build fails, its indexes are dropped. If the process ends, it is resumed from the start.

mod backfill;

use std::collections::HashSet;
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

use frond_bson::Doc;
use frond_error::ErrorCode;
use frond_query::paths::MultikeyPaths;

use crate::catalog::{
    self, Catalog, Collection, CreateIndexesInfo, ToUnique, Uuid, WritersHeld, aborted,
};
use crate::coordination::Coordination;
use crate::own_files::OwnFiles;
use crate::write::duplicate;
use frond_storage::context::OpContext;
use frond_storage::error::{Error, Result, corrupt};
use frond_storage::index::keys::IndexKeys;
use frond_storage::index::spec::IndexSpec;
use frond_storage::index::{Index, entry, side};
use frond_storage::keyspace::{
    BulkLoader, COMMIT_BYTES_MAX, COMMIT_DOCUMENTS_MAX, Cursor, Direction, Duplicates, Engine,
    EngineError, Interrupt, Snapshot, TreeId, WriteSet,
};
use frond_storage::namespace::Namespace;
use frond_storage::points::point;

/// A side tree with at most this many entries is merged while writers wait.
const LAST_ENTRIES: u64 = 500;
/// Side trees that are merged without regard to writers. From then on they only get the pauses between slices of the work,
/// so that the side trees get shorter however fast the writers are.
const SIDES_FREE: usize = 3;
/// The most side trees before the last one.
const SIDES_MAX: usize = 64;
/// Work while writers wait, and the pause after it.
const SLICE: Duration = Duration::from_millis(20);
const PAUSE: Duration = Duration::from_millis(2);
/// Documents or entries between two checks for interruption.
const STEPS_BETWEEN_LOOKS: u64 = 1024;

/// The steps of a build, as `currentOp` shows them.
const SCANNING: &str = "Index Build: scanning collection";
const LOADING: &str = "Index Build: inserting keys from external sorter into index";
const DRAINING: &str = "Index Build: draining writes received during build";

/// Creates indexes.
///
/// # Errors
/// See [`crate::DocumentStore::create_indexes`].
pub fn create(
    catalog: &Catalog,
    ns: &Namespace,
    specs: Vec<IndexSpec>,
    context: &OpContext,
) -> Result<CreateIndexesInfo> {
    catalog.check_writable(ns)?;
    let created_collection = catalog.collection(ns).is_none();
    if created_collection {
        // No collection is created for indexes that are refused.
        IndexSpec::check_distinct(&specs)?;
    }
    let uuid = catalog.ensure_collection(ns)?.uuid;
    let registered = catalog.register_indexes(ns, specs, |collection, indexes, batch| {
        fill_at_once(catalog.engine(), collection, indexes, batch)
    })?;
    let mut info = CreateIndexesInfo {
        before: registered.before,
        after: registered.after,
        created_collection,
    };
    if !registered.building.is_empty() {
        info.after = run(catalog, ns, &uuid, &registered.building, context, false)?;
    }
    Ok(info)
}

/// Resumes an interrupted build. If it fails, the indexes are dropped, unless it was only interrupted again.
pub(crate) fn resume(
    catalog: &Catalog,
    collection: &Collection,
    indexes: &[Arc<Index>],
    context: &OpContext,
) -> Result<()> {
    run(
        catalog,
        &collection.ns,
        &collection.uuid,
        indexes,
        context,
        true,
    )?;
    Ok(())
}

/// Rebuilds all indexes of a collection while writes continue. If the operation is killed, the build is resumed when
/// the store is next opened.
///
/// # Errors
/// `NamespaceNotFound` (26), `IndexBuildAlreadyInProgress` (285), the limits of the context.
pub(crate) fn rebuild(catalog: &Catalog, ns: &Namespace, context: &OpContext) -> Result<()> {
    let (collection, building) = catalog.renew_indexes(ns, |collection, indexes, batch| {
        fill_at_once(catalog.engine(), collection, indexes, batch)
    })?;
    if building.is_empty() {
        return Ok(());
    }
    resume(catalog, &collection, &building, context)
}

/// Makes an index unique: it is built again as a unique one while writes continue, and then takes the place of the first.
/// As long as the first one prepares to be unique, there are no new duplicates.
///
/// # Errors
/// `IndexBuildAborted` (276) if the collection or the index was dropped or changed meanwhile, the limits of the context.
pub(crate) fn make_unique(
    catalog: &Catalog,
    to_unique: &ToUnique,
    context: &OpContext,
) -> Result<()> {
    let (ns, uuid) = (&to_unique.collection.ns, &to_unique.collection.uuid);
    let spec = to_unique.spec.clone();
    let index = catalog.register_replacement(uuid, &to_unique.index, spec)?;
    run(catalog, ns, uuid, &[index], context, false)?;
    Ok(())
}

/// Builds indexes that are registered. Returns the number of the collection's indexes afterwards.
fn run(
    catalog: &Catalog,
    ns: &Namespace,
    uuid: &Uuid,
    indexes: &[Arc<Index>],
    context: &OpContext,
    keep_interrupted: bool,
) -> Result<usize> {
    let build = Build {
        catalog,
        coordination: catalog.coordination(),
        uuid,
        indexes,
        context,
    };
    build.run().or_else(|error| {
        if keep_interrupted && error.code() == ErrorCode::Interrupted {
            give_up(catalog, uuid, indexes);
            return Err(error);
        }
        if is_for_others(catalog, &error) {
            give_up(catalog, uuid, indexes);
            return Err(error);
        }
        Interrupt::shielded(|| catalog.abandon_indexes(uuid, indexes))?;
        Err(in_build(ns, error))
    })
}

/// Whether another server can go on with a build that has failed with this error: it is not about the documents.
fn is_for_others(catalog: &Catalog, error: &Error) -> bool {
    let is_of_server = || {
        matches!(error, Error::Engine(_) | Error::Unannounced(_))
            || matches!(
                error.code(),
                ErrorCode::NotWritablePrimary | ErrorCode::WriteConflict
            )
    };
    catalog.coordination().has_others() && is_of_server()
}

/// Leaves a build to other servers, or to a later try.
fn give_up(catalog: &Catalog, uuid: &Uuid, indexes: &[Arc<Index>]) {
    for index in indexes {
        // If it fails, others go on when the lease of this server is over.
        let _ = catalog.coordination().give_up_build(uuid, index.tree);
    }
}

/// Goes on with builds whose server is gone: of the indexes that this one may take. Returns them. One that is to come in the
/// place of another one is dropped: its command is gone.
///
/// # Errors
/// Errors of the engine.
pub(crate) fn take_over(
    catalog: &Catalog,
    collection: &Collection,
    indexes: &[Arc<Index>],
) -> Result<Vec<Arc<Index>>> {
    let mut taken = Vec::new();
    for index in indexes {
        if (catalog.coordination()).take_build(&collection.uuid, index.tree)? {
            taken.push(index.clone());
        }
    }
    let (dropped, taken): (Vec<_>, Vec<_>) =
        (taken.into_iter()).partition(|index| index.replaces.is_some());
    if !dropped.is_empty() {
        catalog.abandon_indexes(&collection.uuid, &dropped)?;
    }
    Ok(taken)
}

/// Keeps the writers of a collection waiting, except for short pauses.
struct Waiting<'a> {
    collection: &'a Collection,
    held: Option<(WritersHeld<'a>, Instant)>,
}

impl Waiting<'_> {
    fn new(collection: &Collection) -> Waiting<'_> {
        let held = None;
        Waiting { collection, held }
    }

    /// Pauses if they have waited for long enough.
    ///
    /// # Errors
    /// The operation was interrupted while it waited for them.
    fn let_pass(&mut self) -> Result<()> {
        if let Some((_, since)) = &self.held {
            if since.elapsed() < SLICE {
                return Ok(());
            }
            self.held = None;
            std::thread::sleep(PAUSE);
        }
        self.held = Some((self.collection.hold_writers()?, Instant::now()));
        Ok(())
    }
}

/// Turns an error of a document into the error of a build.
fn in_build(ns: &Namespace, error: Error) -> Error {
    match error {
        Error::Command(error) if error.code() != ErrorCode::IndexBuildAborted => {
            let context = format!("Index build failed: {ns}");
            let details = error.details().map(ToOwned::to_owned);
            let error = error.context(context);
            match details {
                Some(details) => error.with_details(details),
                None => error,
            }
            .into()
        }
        other => other,
    }
}

/// Fills new, empty indexes of a collection without writers, if it is small enough for one commit. Returns whether it
/// is; if not, the caller discards the write set.
fn fill_at_once(
    engine: &Engine,
    collection: &Collection,
    indexes: &[Arc<Index>],
    batch: &mut WriteSet,
) -> Result<bool> {
    let counts = collection.counts();
    if counts.documents > COMMIT_DOCUMENTS_MAX as i64 || counts.bytes > COMMIT_BYTES_MAX as i64 {
        return Ok(false);
    }
    let snapshot = engine.snapshot();
    let mut cursor = all(&snapshot, collection.primary)?;
    let reader = collection.document_reader(&snapshot);
    let mut entries = Entries::for_indexes(indexes);
    let mut uniques = HashSet::new();
    let (mut documents, mut bytes) = (0, 0);
    while let Some((id, stored)) = cursor.next()? {
        documents += 1;
        bytes += stored.len();
        let most = bytes.max(batch.bytes());
        if documents > COMMIT_DOCUMENTS_MAX || most > COMMIT_BYTES_MAX {
            return Ok(false);
        }
        let put = |place: usize, key: &[u8], value: &[u8]| {
            let index: &Index = &indexes[place];
            if index.spec.unique && !uniques.insert((place, key.to_vec())) {
                return Err(duplicate::of_index(collection, index, key, None));
            }
            batch.put(index.tree, key, value);
            Ok(())
        };
        entries
            .visit(&reader.whole(id, stored)?, id, put)
            .map_err(|error| in_build(&collection.ns, error))?;
    }
    for (index, paths) in indexes.iter().zip(&entries.multikey) {
        if !paths.is_empty() {
            index.add_multikey(paths);
            catalog::add_multikey(batch, &collection.uuid, index, paths);
            index.stored_multikey(paths);
        }
    }
    Ok(true)
}

fn all(snapshot: &Snapshot, tree: TreeId) -> Result<Cursor, EngineError> {
    let (low, high) = (Bound::Unbounded, Bound::Unbounded);
    snapshot.cursor(tree, low, high, Direction::Forward)
}

/// Makes the entries of documents in several indexes.
struct Entries<'a> {
    indexes: &'a [Arc<Index>],
    /// The multikey paths of each index.
    multikey: Vec<MultikeyPaths>,
    keys: IndexKeys,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Entries<'_> {
    fn for_indexes(indexes: &[Arc<Index>]) -> Entries<'_> {
        Entries {
            indexes,
            multikey: vec![MultikeyPaths::default(); indexes.len()],
            keys: IndexKeys::default(),
            key: Vec::new(),
            value: Vec::new(),
        }
    }

    /// Calls `put` for each entry of a document, with the position of the index, the key and the value.
    fn visit(
        &mut self,
        doc: &Doc,
        id: &[u8],
        mut put: impl FnMut(usize, &[u8], &[u8]) -> Result<()>,
    ) -> Result<()> {
        for (place, index) in self.indexes.iter().enumerate() {
            self.keys.generate(&index.spec, doc, id.len())?;
            self.multikey[place].extend(self.keys.multikey());
            for (fields, lost) in self.keys.iter() {
                entry::write(
                    &index.spec,
                    fields,
                    id,
                    lost,
                    doc,
                    &mut self.key,
                    &mut self.value,
                );
                put(place, &self.key, &self.value)?;
            }
        }
        Ok(())
    }
}

struct Build<'a> {
    catalog: &'a Catalog,
    coordination: &'a Coordination,
    uuid: &'a Uuid,
    indexes: &'a [Arc<Index>],
    context: &'a OpContext,
}

impl Build<'_> {
    fn run(&self) -> Result<usize> {
        let multikey = match self.coordination {
            Coordination::Local(local) if !local.is_member() => self.load()?,
            coordination => {
                let cluster = match coordination {
                    Coordination::Local(_) => None,
                    Coordination::Cluster(cluster) => Some(cluster),
                };
                self.backfill(cluster)?;
                // They are announced.
                Vec::new()
            }
        };
        point("the entries of an index are loaded");
        self.work_in_sides()?;
        let last = |collection: &Collection, built: &[Arc<Index>]| {
            self.check_builder()?;
            built.iter().try_for_each(|index| match index.side() {
                Some(side) => self.work_in(collection, index, side, false),
                None => Ok(()),
            })
        };
        self.catalog
            .finish_indexes(self.uuid, self.indexes, &multikey, last)
    }

    /// Fails if the operation is interrupted, or the collection or an index was dropped.
    fn look(&self) -> Result<()> {
        self.context.check()?;
        if self.catalog.has_indexes(self.uuid, self.indexes) {
            Ok(())
        } else {
            Err(aborted())
        }
    }

    fn show(&self, step: &'static str, done: u64, total: u64) {
        if let Some(progress) = &self.context.progress {
            progress.set(step, done, total);
        }
    }

    /// Loads the entries of a snapshot into the trees. Returns the multikey paths of each index.
    fn load(&self) -> Result<Vec<MultikeyPaths>> {
        let collection = self.catalog.by_uuid(self.uuid).ok_or_else(aborted)?;
        let loads: Vec<(TreeId, Duplicates)> = self
            .indexes
            .iter()
            .map(|index| {
                if index.spec.unique {
                    (index.tree, Duplicates::Fail)
                } else {
                    (index.tree, Duplicates::LastWins)
                }
            })
            .collect();
        let loaded = || {
            // Servers over a cluster fill indexes otherwise.
            let files = OwnFiles::new(self.catalog.engine()).require()?;
            let mut loader = files.bulk_loader(&loads, None)?;
            let multikey = self.scan(&collection, &mut loader)?;
            let go_on = |done, total| {
                self.show(LOADING, done, total);
                self.look().is_ok()
            };
            if !loader.merge(&go_on)? {
                self.look()?;
            }
            loader.finish()?;
            Ok(multikey)
        };
        loaded().map_err(|error| match error {
            Error::Engine(EngineError::Duplicate { tree, key, .. }) => {
                match self.indexes.iter().find(|index| index.tree == tree) {
                    Some(index) => duplicate::of_index(&collection, index, &key, None),
                    None => aborted(),
                }
            }
            Error::Engine(EngineError::UnknownTree(_) | EngineError::NotLoading(_)) => aborted(),
            other => other,
        })
    }

    /// Reads all documents and hands their entries to the loader.
    fn scan(&self, collection: &Collection, loader: &mut BulkLoader) -> Result<Vec<MultikeyPaths>> {
        // The indexes are registered: every writer that did not know of them has committed.
        let snapshot = self.catalog.engine().snapshot();
        let mut cursor = all(&snapshot, collection.primary)?;
        let reader = collection.document_reader(&snapshot);
        let mut entries = Entries::for_indexes(self.indexes);
        let total = u64::try_from(collection.counts().documents).unwrap_or(0);
        let mut documents: u64 = 0;
        while let Some((id, stored)) = cursor.next()? {
            if documents.is_multiple_of(STEPS_BETWEEN_LOOKS) {
                self.look()?;
                self.show(SCANNING, documents, total.max(documents));
            }
            documents += 1;
            entries.visit(&reader.whole(id, stored)?, id, |index, key, value| {
                Ok(loader.add(index, key, value)?)
            })?;
        }
        Ok(entries.multikey)
    }

    /// Merges side trees into the unique indexes until the last ones are small.
    fn work_in_sides(&self) -> Result<()> {
        // Writers of other servers are not slowed down.
        let rounds = if self.coordination.has_others() {
            SIDES_FREE
        } else {
            SIDES_MAX
        };
        for round in 0..rounds {
            let (collection, built) = self.catalog.built(self.uuid, self.indexes)?;
            let mut most = 0;
            for side in built.iter().filter_map(|index| index.side()) {
                most = self.side_entries(side)?.max(most);
            }
            if most <= LAST_ENTRIES {
                return Ok(());
            }
            for (index, side) in self.catalog.change_sides(self.uuid, self.indexes)? {
                self.work_in(&collection, &index, side, round >= SIDES_FREE)?;
            }
        }
        Ok(())
    }

    /// Merges a final side tree into its index. `slows` the writers of the collection meanwhile.
    fn work_in(
        &self,
        collection: &Collection,
        index: &Index,
        side: TreeId,
        slows: bool,
    ) -> Result<()> {
        let engine = self.catalog.engine();
        let total = self
            .coordination
            .entries_estimate(engine, side)
            .unwrap_or(0);
        let snapshot = engine.snapshot();
        let mut cursor = all(&snapshot, side)?;
        let mut change = KeyChange::default();
        let mut batch = WriteSet::new();
        let mut steps: u64 = 0;
        let damaged = || corrupt(format!("a side tree of index '{}'", index.spec.name));
        let mut writers = slows.then(|| Waiting::new(collection));
        while let Some((key, value)) = cursor.next()? {
            if let Some(writers) = &mut writers {
                writers.let_pass()?;
            }
            if steps.is_multiple_of(STEPS_BETWEEN_LOOKS) {
                self.context.check()?;
                self.show(DRAINING, steps, total.max(steps));
            }
            steps += 1;
            let end = entry::fields_end(&index.spec, key).ok_or_else(damaged)?;
            let (fields, id) = key.split_at(end);
            if change.fields != fields || change.is_empty() {
                change.stage(collection, index, &snapshot, &mut batch)?;
                change.fields.extend_from_slice(fields);
                if batch.bytes() > COMMIT_BYTES_MAX {
                    self.commit_part(std::mem::take(&mut batch))?;
                }
            }
            match side::payload(value).ok_or_else(damaged)? {
                Some(payload) => change.present.push((id.to_vec(), payload.to_vec())),
                None => change.absent.push(id.to_vec()),
            }
        }
        change.stage(collection, index, &snapshot, &mut batch)?;
        self.commit_part(batch)
    }
}

/// The changes by writers of the entries with the same fields in a unique index.
#[derive(Default)]
struct KeyChange {
    fields: Vec<u8>,
    /// Documents that have such an entry, and its payload.
    present: Vec<(Vec<u8>, Vec<u8>)>,
    /// Documents whose entry was removed.
    absent: Vec<Vec<u8>>,
}

impl KeyChange {
    fn is_empty(&self) -> bool {
        self.present.is_empty() && self.absent.is_empty()
    }

    /// Stages the change of the index entry, and resets this change.
    ///
    /// # Errors
    /// `DuplicateKey` (11000) if more than one document is left with these fields.
    fn stage(
        &mut self,
        collection: &Collection,
        index: &Index,
        snapshot: &Snapshot,
        batch: &mut WriteSet,
    ) -> Result<()> {
        let KeyChange {
            fields,
            present,
            absent,
        } = std::mem::take(self);
        if present.is_empty() && absent.is_empty() {
            return Ok(());
        }
        let held = snapshot.get(index.tree, &fields)?;
        let holder = match &held {
            Some(value) => Some(entry::split(&index.spec, &fields, value)?.id),
            None => None,
        };
        let stays = holder.filter(|holder| !absent.iter().any(|id| id == holder));
        match present.as_slice() {
            [] if holder.is_some() && stays.is_none() => batch.delete(index.tree, &fields),
            [] => {}
            [(id, payload)] if stays.is_none_or(|holder| holder == id) => {
                batch.put(index.tree, &fields, &[id.as_slice(), payload].concat());
            }
            _ => return Err(duplicate::of_index(collection, index, &fields, None)),
        }
        Ok(())
    }
}
