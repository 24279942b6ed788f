//! Capped collections made from others: `convertToCapped` and `cloneCollectionAsCapped`.
//!
//! A conversion copies a snapshot into a temporary collection while writes continue. Writers note what they change
//! meanwhile; that is copied again until little is left. The last notes are worked in while the collection has no writers,
//! and then the temporary collection takes its name. After a crash the temporary collection and the notes are dropped.

use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

use frond_bson::{Doc, DocBuf, ObjectId, Value, doc};
use frond_error::ErrorCode;

use crate::catalog::{self, Collection, Uuid, not_found};
use crate::store::DocumentStore;
use crate::write::delete::DeleteRequest;
use crate::write::insert::{InsertOptions, insert_into};
use crate::write::replace::replace_one;
use frond_storage::context::OpContext;
use frond_storage::error::{Result, command, corrupt};
use frond_storage::keyspace::{
    COMMIT_BYTES_MAX, COMMIT_DOCUMENTS_MAX, Cursor, Direction, Durability, EngineError, Interrupt,
    Snapshot, TreeId, WriteSet,
};
use frond_storage::namespace::Namespace;
use frond_storage::points::point;

/// Notes that are worked in while writers wait.
const LAST_NOTES: u64 = 64;
/// Trees of notes that are worked in without regard to writers. From then on they only get the pauses between slices of the
/// work, so that there are fewer notes each time however fast the writers are.
const ROUNDS_FREE: usize = 3;
/// The most trees of notes before the last one.
const ROUNDS_MAX: usize = 64;
/// The same with several servers over one keyspace, where writers of others are not slowed down.
const ROUNDS_OF_SEVERAL: usize = 1;
/// Work while writers wait, and the pause after it.
const SLICE: Duration = Duration::from_millis(20);
const PAUSE: Duration = Duration::from_millis(2);

/// The method of copying documents.
const AS_IT_IS: InsertOptions = InsertOptions {
    ordered: true,
    durability: Durability::Logged,
    bypass_validation: true,
    keep_empty_timestamps: true,
};

/// A collection on its way into a capped one.
struct Conversion<'a> {
    store: &'a DocumentStore,
    from: Arc<Collection>,
    /// The part that is copied first.
    snapshot: Snapshot,
    /// The keys of documents that were removed from the copy because clients deleted them.
    removed: TreeId,
    to: Filled<'a>,
    context: &'a OpContext,
}

/// The collection that is filled. If it is dropped, the command fails: nothing may be written into another
/// collection of that name.
#[derive(Clone, Copy)]
struct Filled<'a> {
    store: &'a DocumentStore,
    ns: &'a Namespace,
    uuid: Uuid,
}

impl Filled<'_> {
    fn create<'a>(store: &'a DocumentStore, ns: &'a Namespace, size: i64) -> Result<Filled<'a>> {
        store.create_collection(ns, &doc! {"capped": true, "size": size})?;
        let uuid = store.catalog().existing(ns)?.uuid;
        Ok(Filled { store, ns, uuid })
    }

    fn check_is_there(&self) -> Result<()> {
        match self.store.uuid_of(self.ns) {
            Some(now) if now == self.uuid => Ok(()),
            _ => Err(not_found(self.ns)),
        }
    }

    fn insert(&self, docs: &[&Doc]) -> Result<()> {
        let catalog = self.store.catalog();
        let outcome = insert_into(catalog, self.ns, Some(&self.uuid), None, docs, AS_IT_IS)?;
        let failed = outcome.errors.into_iter().next();
        failed.map_or(Ok(()), |failed| Err(failed.error))
    }

    /// Drops it after a failure.
    fn discard(&self) {
        if self.check_is_there().is_ok() {
            // The first error is the one to report.
            let _ = Interrupt::shielded(|| self.store.drop_collection(self.ns));
        }
    }
}

impl DocumentStore {
    /// Converts a collection to a capped one, while writes continue. The oldest documents beyond the size are removed, and so
    /// are its indexes, as in MongoDB.
    ///
    /// # Errors
    /// `NamespaceNotFound` (26), `CommandNotSupportedOnView` (166), `IllegalOperation` (20) for the oplog, errors of the size;
    /// `ConflictingOperationInProgress` (117) if it is being converted; the limits of the context.
    pub fn convert_to_capped(&self, ns: &Namespace, size: i64, context: &OpContext) -> Result<()> {
        self.catalog().check_live()?;
        let collection = self.collection_to_copy(ns)?;
        let temporary = format!("tmp{}.convertToCapped.{}", ObjectId::new(), ns.coll());
        let temporary = Namespace::new(ns.db(), &temporary)?;
        let filled = Filled::create(self, &temporary, size)?;
        let noted = self.catalog().begin_dirty_set(&collection.uuid);
        let is_noted = noted.is_ok();
        let converted = noted.and_then(|()| {
            let conversion = Conversion {
                store: self,
                snapshot: self.engine().snapshot(),
                removed: self.catalog().create_working_tree()?,
                from: collection.clone(),
                to: filled,
                context,
            };
            let ran = conversion.run(ns);
            // The conversion is done or has failed already. A tree that stays is dropped by the next start.
            let removed = conversion.removed;
            let _ = Interrupt::shielded(|| self.catalog().drop_working_tree(removed));
            ran
        });
        let converted = converted.or_else(|error| {
            if is_noted {
                Interrupt::shielded(|| self.catalog().drop_dirty_set(&collection.uuid))?;
            }
            Err(error)
        });
        if converted.is_err() {
            filled.discard();
        }
        converted
    }

    /// Copies the documents of a collection into a new capped one of the same database.
    ///
    /// # Errors
    /// `NamespaceNotFound` (26), `NamespaceExists` (48), `CommandNotSupportedOnView` (166), `IllegalOperation` (20) for the
    /// oplog, errors of the size.
    pub fn clone_as_capped(&self, from: &Namespace, to: &Namespace, size: i64) -> Result<()> {
        self.catalog().check_live()?;
        let collection = self.collection_to_copy(from)?;
        if self.collection_exists(to) || self.catalog().is_view(to) {
            return Err(command(
                ErrorCode::NamespaceExists,
                format!(
                    "cloneCollectionAsCapped failed - destination collection {to} already exists"
                ),
            ));
        }
        let filled = Filled::create(self, to, size)?;
        let snapshot = self.engine().snapshot();
        self.copy_documents(&collection, &snapshot, &filled, &OpContext::new())
    }

    /// A collection whose tree has documents, which the entries of the oplog are not.
    fn collection_to_copy(&self, ns: &Namespace) -> Result<Arc<Collection>> {
        let collection = self.catalog().existing(ns)?;
        match collection.oplog() {
            None => Ok(collection),
            Some(_) => Err(command(
                ErrorCode::IllegalOperation,
                format!("{ns} cannot be converted or cloned; copy its entries with $out or $merge"),
            )),
        }
    }

    /// Copies all documents of a snapshot in their natural order.
    fn copy_documents(
        &self,
        from: &Collection,
        snapshot: &Snapshot,
        to: &Filled<'_>,
        context: &OpContext,
    ) -> Result<()> {
        let mut cursor = all(snapshot, from.primary)?;
        let reader = from.document_reader(snapshot);
        loop {
            context.check()?;
            let (mut docs, mut bytes): (Vec<DocBuf>, usize) = (Vec::new(), 0);
            while docs.len() < COMMIT_DOCUMENTS_MAX
                && bytes < COMMIT_BYTES_MAX
                && let Some((key, stored)) = cursor.next()?
            {
                let doc = reader.whole(key, stored)?.into_owned();
                bytes += doc.len_bytes();
                docs.push(doc);
            }
            if docs.is_empty() {
                return Ok(());
            }
            let docs: Vec<&Doc> = docs.iter().map(|doc| &**doc).collect();
            to.insert(&docs)?;
            point("a part of a collection is copied");
        }
    }
}

fn all(snapshot: &Snapshot, tree: TreeId) -> Result<Cursor, EngineError> {
    let (low, high) = (Bound::Unbounded, Bound::Unbounded);
    snapshot.cursor(tree, low, high, Direction::Forward)
}

impl Conversion<'_> {
    fn run(&self, ns: &Namespace) -> Result<()> {
        let dropped = || not_found(ns);
        let catalog = self.store.catalog();
        let engine = self.store.engine();
        let uuid = &self.from.uuid;
        self.store
            .copy_documents(&self.from, &self.snapshot, &self.to, self.context)?;
        let rounds = if self.store.is_shared() {
            ROUNDS_OF_SEVERAL
        } else {
            ROUNDS_MAX
        };
        for round in 0..rounds {
            let now = catalog.by_uuid(uuid).ok_or_else(dropped)?;
            let notes = now.changes.ok_or_else(dropped)?;
            if engine.tree_stats(notes).entries_estimate <= LAST_NOTES {
                break;
            }
            let notes = catalog.next_dirty_set(uuid)?;
            let worked_in = self.work_in(notes, &now, round >= ROUNDS_FREE);
            catalog.drop_working_tree(notes)?;
            worked_in?;
            point("a round of changes is copied");
        }
        catalog.replace_by(ns, self.to.ns, |now| {
            if now.uuid != *uuid {
                return Err(not_found(ns));
            }
            // From here on no other operation can change that.
            self.to.check_is_there()?;
            self.work_in(now.changes.ok_or_else(dropped)?, now, false)
        })
    }

    /// Copies what was noted in a tree that is final. `slows` the writers of the collection meanwhile.
    fn work_in(&self, notes: TreeId, now: &Collection, slows: bool) -> Result<()> {
        let snapshot = self.store.engine().snapshot();
        let mut cursor = all(&snapshot, notes)?;
        let mut held = None;
        while let Some((key, note)) = cursor.next()? {
            if slows {
                let (_, since) = match &held {
                    Some(held) => held,
                    None => held.insert((now.hold_writers()?, Instant::now())),
                };
                if since.elapsed() > SLICE {
                    held = None;
                    std::thread::sleep(PAUSE);
                    self.context.check()?;
                }
            }
            let id = catalog::dirty_id(note).and_then(|id| id.get("_id"));
            let id = id.ok_or_else(|| corrupt("a note of a document that changed"))?;
            point("a document is about to be copied again");
            self.to.check_is_there()?;
            self.copy_again(&snapshot, key, id)?;
        }
        Ok(())
    }

    /// Makes a document of the copy what it is in a snapshot.
    fn copy_again(&self, snapshot: &Snapshot, key: &[u8], id: Value<'_>) -> Result<()> {
        let filter = doc! {"_id": &doc! {"$eq": id}};
        let (catalog, context) = (self.store.catalog(), OpContext::new());
        let Some(stored) = snapshot.get(self.from.primary, key)? else {
            let request = DeleteRequest {
                filter: &filter,
                limit_one: true,
                hint: None,
                variables: None,
                collation: None,
            };
            let how = Durability::Logged;
            if self.store.delete(self.to.ns, &request, how, &context)? > 0 {
                // If a client inserts it again, it is not one that was too old.
                self.note_removed(|batch| batch.put(self.removed, key, &[]))?;
            }
            return Ok(());
        };
        let reader = self.from.document_reader(snapshot);
        let doc = reader.whole(key, &stored)?;
        let replaced = replace_one(catalog, self.to.ns, &filter, &doc, &context)?;
        if replaced {
            return Ok(());
        }
        if self.snapshot.contains(self.from.primary, key)? {
            // It was copied. If no client deleted it since, it was too old for the size of the capped collection.
            let now = self.store.engine().snapshot();
            if !now.contains(self.removed, key)? {
                return Ok(());
            }
            self.note_removed(|batch| batch.delete(self.removed, key))?;
        }
        self.to.insert(&[&doc])
    }

    fn note_removed(&self, change: impl FnOnce(&mut WriteSet)) -> Result<()> {
        let mut batch = WriteSet::new();
        change(&mut batch);
        self.store.engine().commit(batch, Durability::Logged)?;
        Ok(())
    }
}
