//! Commits with entries in the oplog: those of documents, and those of the catalog's own changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use frond_bson::{Doc, DocBuf, Timestamp, Value, doc};

use super::{Catalog, CatalogState, Closed, Collection, SYSTEM_VIEWS, Uuid, uuid};
use crate::oplog::{self, Batch, Change, Log, Oplog, OplogSettings};
use frond_oplog::entry::Kind;
use frond_storage::error::{Result, write_conflict};
use frond_storage::index::Index;
use frond_storage::keyspace::WriteSet;
use frond_storage::namespace::Namespace;

/// Attempts to commit a change of the catalog, with other servers, and the pause after the first conflict.
const ATTEMPTS_MAX: u32 = 100;
const CONFLICT_PAUSE: Duration = Duration::from_millis(1);

/// The timestamp of the last entry that a handle of the store has written into the oplog.
#[derive(Clone, Debug, Default)]
pub struct LastWritten(Arc<AtomicU64>);

impl LastWritten {
    /// The timestamp; `None` if there was no entry.
    pub fn get(&self) -> Option<Timestamp> {
        match self.0.load(Ordering::Acquire) {
            0 => None,
            at => Some(Timestamp::from_u64(at)),
        }
    }

    pub(super) fn record(&self, at: Timestamp) {
        self.0.fetch_max(at.to_u64(), Ordering::AcqRel);
    }
}

/// The namespace of commands on a database.
fn commands_of(db: &str) -> String {
    format!("{db}.$cmd")
}

/// The name under which documents of a collection have their entries. Measurements of a time series have that of the buckets
/// in MongoDB: it is an alias here, and hides them from change streams.
pub(crate) fn name_in_oplog(collection: &Collection) -> std::borrow::Cow<'_, str> {
    let ns = &collection.ns;
    match collection.settings.time_series {
        None => ns.as_str().into(),
        Some(_) => format!("{}.system.buckets.{}", ns.db(), ns.coll()).into(),
    }
}

/// A command's changes of the catalog, for its entry.
pub(super) struct Command<'a> {
    pub db: &'a str,
    pub uuid: Option<&'a Uuid>,
    pub o: &'a Doc,
    pub o2: Option<&'a Doc>,
}

/// Adds the entry of a command.
pub(super) fn log_command(batch: &mut Batch, command: &Command<'_>) {
    if batch.is_logged() {
        batch.log(&Change {
            kind: Kind::Command,
            ns: &commands_of(command.db),
            uuid: command.uuid,
            o: command.o,
            o2: command.o2,
            before: None,
        });
    }
}

fn of_collection(batch: &mut Batch, collection: &Collection, o: &Doc, o2: Option<&Doc>) {
    let command = Command {
        db: collection.ns.db(),
        uuid: Some(&collection.uuid),
        o,
        o2,
    };
    log_command(batch, &command);
}

fn number_of_records(collection: &Collection) -> DocBuf {
    doc! {"numRecords": collection.counts().documents}
}

/// A collection is created.
pub(super) fn log_create(batch: &mut Batch, collection: &Collection) {
    if !batch.is_logged() {
        return;
    }
    let mut o = doc! {"create": collection.ns.coll()};
    o.push_all(&collection.settings.shown(&collection.options));
    if collection.settings.clustered.is_none() && collection.settings.time_series.is_none() {
        o.push("idIndex", &*collection.id_index());
    }
    of_collection(batch, collection, &o, None);
}

/// A collection is dropped.
pub(super) fn log_drop(batch: &mut Batch, collection: &Collection) {
    if batch.is_logged() {
        let o = doc! {"drop": collection.ns.coll()};
        of_collection(batch, collection, &o, Some(&number_of_records(collection)));
    }
}

/// A partition is added or dropped: `what` is the command, `details` what it did.
pub(super) fn log_partition(batch: &mut Batch, collection: &Collection, what: &str, details: &Doc) {
    if batch.is_logged() {
        let mut o = DocBuf::new();
        o.push(what, collection.ns.coll());
        o.push_all(details);
        of_collection(batch, collection, &o, None);
    }
}

/// A collection gets another name, and takes the place of another one.
pub(super) fn log_rename(
    batch: &mut Batch,
    from: &Collection,
    to: &Namespace,
    target: Option<&Collection>,
) {
    if !batch.is_logged() {
        return;
    }
    let mut o = doc! {
        "renameCollection": from.ns.as_str(),
        "to": to.as_str(),
        "stayTemp": false,
    };
    if let Some(target) = target {
        o.push("dropTarget", uuid::value(&target.uuid));
    }
    let o2 = target.map(number_of_records);
    of_collection(batch, from, &o, o2.as_deref());
}

/// Options of a collection or a view are changed.
pub(super) fn log_modify(batch: &mut Batch, collection: &Collection, changes: &Doc) {
    if batch.is_logged() {
        let mut o = doc! {"collMod": collection.ns.coll()};
        o.push_all(changes);
        let o2 = doc! {"collectionOptions_old": &collection.settings.shown(&collection.options)};
        of_collection(batch, collection, &o, Some(&o2));
    }
}

/// Options of an index are changed. `changes` are fields of `index` of `collMod`.
pub(super) fn log_modify_index(
    batch: &mut Batch,
    collection: &Collection,
    before: &Index,
    changes: &Doc,
) {
    if !batch.is_logged() {
        return;
    }
    let mut o = doc! {"collMod": collection.ns.coll()};
    o.push_doc("index", |index| {
        index.push("name", &*before.spec.name);
        index.push_all(changes);
    });
    let mut o2 = doc! {"collectionOptions_old": &collection.settings.shown(&collection.options)};
    o2.push_doc("indexOptions_old", |old| {
        for (name, value) in before.spec.doc.iter() {
            if changes.contains_key(name) {
                old.push(name, value);
            }
        }
    });
    of_collection(batch, collection, &o, Some(&o2));
}

/// The specification of an index in an entry: with its version.
fn spec_of(index: &Index) -> DocBuf {
    let mut spec = DocBuf::new();
    if !index.spec.doc.contains_key("v") {
        spec.push("v", 2);
    }
    spec.push_all(&index.spec.doc);
    spec
}

/// Indexes of an empty collection are created.
pub(super) fn log_create_indexes<'a>(
    batch: &mut Batch,
    collection: &Collection,
    indexes: impl IntoIterator<Item = &'a Arc<Index>>,
) {
    if batch.is_logged() {
        for index in indexes {
            let mut o = doc! {"createIndexes": collection.ns.coll()};
            o.push_all(&spec_of(index));
            of_collection(batch, collection, &o, None);
        }
    }
}

/// Indexes of a collection with documents are ready for use.
pub(super) fn log_built_indexes<'a>(
    batch: &mut Batch,
    collection: &Collection,
    indexes: impl IntoIterator<Item = &'a Arc<Index>>,
) {
    let mut indexes = indexes.into_iter().peekable();
    if !batch.is_logged() || indexes.peek().is_none() {
        return;
    }
    let build: Uuid = uuid::random();
    let mut o = doc! {"commitIndexBuild": collection.ns.coll()};
    o.push("indexBuildUUID", uuid::value(&build));
    o.push_array("indexes", |out| {
        indexes.for_each(|index| out.push(&*spec_of(index)));
    });
    of_collection(batch, collection, &o, None);
}

/// An index is dropped.
pub(super) fn log_drop_index(batch: &mut Batch, collection: &Collection, index: &Index) {
    if batch.is_logged() {
        let o = doc! {"dropIndexes": collection.ns.coll(), "index": &*index.spec.name};
        of_collection(batch, collection, &o, Some(&spec_of(index)));
    }
}

/// A view is created, changed or dropped: its document in `system.views`.
pub(super) fn log_view(
    batch: &mut Batch,
    system_views: &Collection,
    before: Option<&Doc>,
    after: Option<&Doc>,
) {
    let id;
    let (kind, o) = match (before, after) {
        (None, Some(after)) => (Kind::Insert, after),
        (Some(_), Some(after)) => (Kind::Replace, after),
        (Some(before), None) => {
            id = doc! {"_id": before.get("_id").unwrap_or(Value::Null)};
            (Kind::Delete, &*id)
        }
        (None, None) => return,
    };
    debug_assert_eq!(system_views.ns.coll(), SYSTEM_VIEWS);
    batch.log(&Change {
        kind,
        ns: system_views.ns.as_str(),
        uuid: Some(&system_views.uuid),
        o,
        o2: None,
        before: None,
    });
}

impl CatalogState {
    /// Commits a write set with the entries of a log. Returns the timestamp of the last one.
    ///
    /// # Errors
    /// As [`Oplog::commit`].
    fn commit(&self, set: WriteSet, log: Option<&Log>) -> Result<Option<Timestamp>> {
        let added = log.map(Log::added).unwrap_or_default();
        let _in_flight = (added.entries > 0).then(|| self.oplog.begin_commit());
        let last = self.oplog.commit(set, added)?;
        if let Some(last) = last {
            self.oplog
                .notify_readers(last, added, log.and_then(Log::places));
        }
        Ok(last)
    }
}

impl Catalog {
    pub fn oplog(&self) -> &Arc<Oplog> {
        &self.state.oplog
    }

    /// The log of a commit that changes this collection or its documents; `None` if its changes have no entries.
    pub(crate) fn log(&self, ns: &Namespace) -> Option<Log> {
        let trees = match self.transaction() {
            None => self.state.oplog.trees(),
            Some(transaction) => transaction.logged_to(),
        };
        let trees = trees.filter(|_| oplog::has_entries(ns))?;
        // A member that does not lead adds no entries: those of its leader arrive with the log.
        if self.state.oplog.is_following() {
            return None;
        }
        let log = Log::new(trees, self.is_in_transaction());
        Some(if self.state.oplog.readers().any() {
            log.noting_places()
        } else {
            log
        })
    }

    /// An empty write set for a change of this collection's definition.
    pub(super) fn batch(&self, ns: &Namespace) -> Batch {
        Batch::new(self.log(ns))
    }

    /// Commits documents. Outside of transactions.
    ///
    /// # Errors
    /// As [`Oplog::commit`].
    pub(crate) fn commit_logged(&self, set: WriteSet, log: Option<&Log>) -> Result<()> {
        self.state.check_lease()?;
        self.record_written(self.state.commit(set, log)?);
        Ok(())
    }

    fn record_written(&self, last: Option<Timestamp>) {
        if let (Some(last), Some(written)) = (last, &self.written) {
            written.record(last);
        }
    }

    /// Commits a change of the catalog. Returns the version of the catalog then, if it is stored for others.
    ///
    /// # Errors
    /// As [`Oplog::commit`].
    pub(super) fn commit_change(&self, set: WriteSet, log: Option<&Log>) -> Result<Option<i64>> {
        let mut attempts = 0;
        loop {
            // Fails if this server does not hold the lock any more.
            let Some((all, version)) = self.state.coordination.next_version(&set)? else {
                if set.is_empty() && set.guards().is_empty() && log.is_none() {
                    // Only a new version would have to be stored.
                    return Ok(None);
                }
                self.record_written(self.state.commit(set, log)?);
                return Ok(None);
            };
            match self.state.commit(all, log) {
                // No other server changes the catalog, so the change is still right.
                Err(error) if error.is_conflict() && attempts < ATTEMPTS_MAX => {
                    attempts += 1;
                    std::thread::sleep(CONFLICT_PAUSE * attempts.min(10));
                }
                committed => {
                    self.record_written(committed?);
                    return Ok(Some(version));
                }
            }
        }
    }

    /// As [`Catalog::commit_change`], of what is not in a view.
    pub(super) fn commit_beside_view(&self, set: WriteSet, log: Option<&Log>) -> Result<()> {
        if let Some(version) = self.commit_change(set, log)? {
            self.publish(|view| view.version = version);
        }
        Ok(())
    }

    /// Lets other servers hear that the oplog was turned on or off.
    fn note_change_of_oplog(&self) -> Result<()> {
        self.commit_beside_view(WriteSet::new(), None)
    }

    /// A handle of the same scope that notes what it writes.
    pub(crate) fn noting(&self, written: LastWritten) -> Catalog {
        Catalog {
            written: Some(written),
            ..self.clone()
        }
    }

    /// Turns the oplog on, if it is off. From here on all changes have entries; transactions that are open fail with a
    /// write conflict.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn turn_on_oplog(&self, settings: OplogSettings) -> Result<()> {
        self.while_nothing_is_written(|oplog| {
            if oplog.is_on() {
                Ok(())
            } else {
                let trees = [self.allocate_tree()?, self.allocate_tree()?];
                oplog.turn_on(settings, trees)
            }
        })
    }

    /// Turns the oplog off, if it is on. Its entries and pre-images are dropped.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn turn_off_oplog(&self) -> Result<()> {
        self.while_nothing_is_written(|oplog| {
            if oplog.is_on() {
                oplog.turn_off()
            } else {
                Ok(())
            }
        })
    }

    /// Runs a change of the oplog while there are no writers of documents, and no other changes of the catalog. Writers look
    /// at the oplog again under their collection's gate, and start over if it is another one.
    fn while_nothing_is_written(&self, change: impl FnOnce(&Oplog) -> Result<()>) -> Result<()> {
        let _changing = self.begin_change()?;
        self.state.close_all_gates()?;
        let view = self.view();
        let mut collections: Vec<_> = view.iter().collect();
        // Transactions hold gates in the same order.
        collections.sort_unstable_by_key(|collection| collection.uuid);
        let _gates = (collections.iter())
            .map(|collection| collection.shared.gate.close())
            .collect::<Result<Vec<Closed<'_>>>>()?;
        change(&self.state.oplog)?;
        self.note_change_of_oplog()
    }

    /// Appends the entry of a dropped database, whose collections are gone already: unless it exists again.
    pub(super) fn log_drop_database(&self, db: &str) -> Result<()> {
        let _changing = self.begin_change()?;
        let ns = Namespace::new(db, "c")?;
        if !self.view().database(db).is_empty() {
            return Ok(());
        }
        let mut batch = self.batch(&ns);
        let command = Command {
            db,
            uuid: None,
            o: &doc! {"dropDatabase": 1},
            o2: None,
        };
        log_command(&mut batch, &command);
        let (set, log) = batch.into_parts();
        self.commit_logged(set, log.as_ref())
    }
}

/// Fails if the oplog was turned on or off since a commit was begun.
pub(crate) fn check_same(
    before: Option<frond_storage::keyspace::TreeId>,
    catalog: &Catalog,
) -> Result<()> {
    if catalog.oplog().tree() == before {
        Ok(())
    } else {
        Err(write_conflict())
    }
}
