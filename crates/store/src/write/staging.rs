//! One commit in the making: documents and index entries go into one write set.

mod capped;
mod entries;
mod fast;
mod look_up;
mod moving;
mod others;

use std::collections::{BTreeMap, HashSet};
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use frond_bson::{Doc, DocBuf, MAX_DOCUMENT_BYTES, Value};
use frond_error::{Error as CommandError, ErrorCode};
use frond_query::paths::MultikeyPaths;
use parking_lot::MutexGuard;

use super::written::{How, Written};
use super::{duplicate, id_document};
use crate::catalog::{
    self, Catalog, Collection, Effects, Insertion, SessionRecords, StatementId, record_key,
};
use crate::coordination::Coordination;
use crate::op_stats::KeysWritten;
use crate::oplog::Log;
use crate::server_configuration::{check_removed, check_stored};
use frond_storage::error::{Error, Result, command, not_durable};
use frond_storage::index::Index;
use frond_storage::index::keys::IndexKeys;
use frond_storage::keyspace::{
    COMMIT_BYTES_MAX, COMMIT_DOCUMENTS_MAX, COMMIT_OPERATIONS_MAX, Durability, IdentityHasher,
    KEY_BYTES_MAX, Snapshot, TreeId, WriteSet, key_hash,
};
use frond_storage::merge::Counts;
use frond_storage::options::Invalid;
use frond_storage::points::point;
use frond_storage::record::{self, load::Parts};
use frond_storage::record_layout::PartitionId;

/// Below this many documents, preparing the write set costs more than it saves.
const EXPECTED_MIN: usize = 8;
/// About how many bytes an index entry takes in a write set.
const ENTRY_BYTES: usize = 64;

/// Whether a document was staged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Staged {
    /// It is in the write set.
    Done,
    /// One of its keys may be in this write set already, so the snapshot does not show whether that
    /// key is taken. Stage it again in the next commit.
    NextCommit,
}

/// Buffers that live as long as an operation.
#[derive(Default)]
pub struct Buffers {
    new_keys: Vec<IndexKeys>,
    old_keys: IndexKeys,
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
}

/// Keys are already hashes, so hashing is the identity.
type HashSet64 = HashSet<u64, BuildHasherDefault<IdentityHasher>>;

/// The effect of an update on a document.
#[derive(Clone, Copy)]
pub(super) struct Updated<'a> {
    /// Whether a value at a path may differ.
    pub touches: &'a dyn Fn(&str) -> bool,
    /// The method by which it made the new one.
    pub how: How<'a>,
}

/// The change of a document.
#[derive(Clone, Copy)]
pub(super) struct Change<'a> {
    pub old: &'a Doc,
    /// Whether a value at a path may differ.
    pub touches: &'a dyn Fn(&str) -> bool,
}

/// Documents on their way into one collection, for one commit.
pub struct Staging<'a> {
    catalog: &'a Catalog,
    pub(super) collection: &'a Collection,
    pub(super) snapshot: Snapshot,
    pub(super) batch: WriteSet,
    pub(super) counts: Counts,
    /// The part of each partition in these counts.
    partitions: BTreeMap<PartitionId, Counts>,
    pub(super) documents: usize,
    pub(super) buffers: &'a mut Buffers,
    /// The greatest primary key of the snapshot.
    last_stored: Option<Vec<u8>>,
    /// The greatest primary key staged so far. A greater key need not be looked up among the hashes.
    greatest: Vec<u8>,
    /// Hashes of the staged primary keys, filled when the first key came out of order.
    primaries: Option<HashSet64>,
    /// The staged primary keys while they ascend: their bytes, and where each ends.
    ascending: (Vec<u8>, Vec<usize>),
    /// Hashes of the unique keys that this write set puts or deletes.
    uniques: HashSet64,
    /// Multikey paths that are new in the catalog with this commit.
    multikey: Vec<(Arc<Index>, MultikeyPaths)>,
    /// Whether documents are not checked by the validator.
    bypass_validation: bool,
    /// Warnings about documents that fail it.
    pub(super) warnings: Vec<DocBuf>,
    /// Of a capped collection: the lock that keeps out other inserts until the commit.
    insertion: Option<MutexGuard<'a, Insertion>>,
    /// Whether nothing is staged but removals, which free space.
    pub(super) removes_only: bool,
    /// The last of the oldest documents that this commit removes.
    removed_to: Vec<u8>,
    keys: KeysWritten,
    coordination: &'a Coordination,
    /// Whether other servers have to know multikey paths before the commit: unless the transaction at hand has created the
    /// collection.
    announces: bool,
    /// Of a capped collection of several servers: the last record id.
    last_record: Option<i64>,
    /// With several servers: the statements whose records are in this commit.
    recorded: Vec<(SessionRecords, StatementId)>,
    /// The oplog when the commit was begun, and the entries of the commit.
    oplog: Option<TreeId>,
    pub(super) log: Option<Log>,
}

impl<'a> Staging<'a> {
    /// Begins a commit on top of `snapshot`.
    pub fn new(
        catalog: &'a Catalog,
        collection: &'a Collection,
        snapshot: Snapshot,
        buffers: &'a mut Buffers,
    ) -> Staging<'a> {
        let batch = WriteSet::with_snapshot(&snapshot);
        buffers
            .new_keys
            .resize_with(collection.indexes.len(), IndexKeys::default);
        let oplog = catalog.oplog().tree();
        let coordination = catalog.coordination();
        Staging {
            oplog,
            log: oplog.and_then(|_| catalog.log(&collection.ns)),
            catalog,
            collection,
            snapshot,
            batch,
            counts: Counts::default(),
            partitions: BTreeMap::new(),
            documents: 0,
            buffers,
            last_stored: None,
            greatest: Vec::new(),
            primaries: None,
            ascending: Default::default(),
            uniques: HashSet64::default(),
            multikey: Vec::new(),
            bypass_validation: false,
            warnings: Vec::new(),
            insertion: None,
            removes_only: true,
            removed_to: Vec::new(),
            keys: KeysWritten::default(),
            coordination,
            announces: coordination.has_others() && !catalog.has_created(collection),
            last_record: None,
            recorded: Vec::new(),
        }
    }

    /// Begins a commit that may insert. The caller holds the collection's gate.
    ///
    /// # Errors
    /// As [`Catalog::snapshot`].
    pub fn for_insertion(
        catalog: &'a Catalog,
        collection: &'a Collection,
        buffers: &'a mut Buffers,
    ) -> Result<Staging<'a>> {
        // The lock comes before the snapshot, so that the snapshot shows what the last holder did.
        let capped = collection.settings.capped;
        let insertion = capped.map(|_| collection.lock_insertion()).transpose()?;
        let snapshot = catalog.snapshot()?;
        let mut staging = Staging::new(catalog, collection, snapshot, buffers);
        if capped.is_some() {
            staging.last_record = collection.last_record(&staging.snapshot)?;
        }
        staging.insertion = insertion;
        Ok(staging)
    }

    /// The same commit, prepared for this many documents of `bytes` bytes in total.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn expecting(mut self, documents: usize, bytes: usize) -> Result<Staging<'a>> {
        if documents < EXPECTED_MIN {
            return Ok(self);
        }
        let entries = documents * (self.collection.indexes.len() + 1);
        // The oplog has each document once more.
        let bytes = if self.log.is_some() { 2 * bytes } else { bytes };
        let room = (bytes + entries * ENTRY_BYTES).min(COMMIT_BYTES_MAX + bytes / documents);
        self.batch = self.catalog.engine().write_set(&self.snapshot, room);
        // In a cluster the keys themselves are read ahead.
        if !self.collection.is_by_record() && !self.snapshot.gathers_reads() {
            self.last_stored = self.snapshot.key_upper_bound(self.collection.primary)?;
        }
        Ok(self)
    }

    /// The same commit, whose documents the validator does not check.
    pub fn bypassing_validation(self, bypass_validation: bool) -> Staging<'a> {
        Staging {
            bypass_validation,
            ..self
        }
    }

    /// Adds the record of statements to the commit. The result is that of each.
    pub(super) fn record(
        &mut self,
        to: SessionRecords,
        first: &StatementId,
        count: u32,
        result: &Doc,
    ) {
        if self.coordination.has_others() {
            self.recorded.push((to, *first));
        }
        to.put(&mut self.batch, first, count, result);
    }

    /// The snapshot that the commit is based on.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The collection that is written.
    pub fn collection(&self) -> &Collection {
        self.collection
    }

    /// Documents staged so far.
    pub fn documents(&self) -> usize {
        self.documents
    }

    /// Whether it is time to commit.
    pub fn is_full(&self) -> bool {
        self.documents >= COMMIT_DOCUMENTS_MAX || !self.has_room()
    }

    /// Whether the commit is small enough to take another document, whatever their number.
    pub(super) fn has_room(&self) -> bool {
        self.batch.bytes() < COMMIT_BYTES_MAX && self.batch.len() < COMMIT_OPERATIONS_MAX
    }

    /// Whether this primary key may be in the write set already, judged by its hash.
    fn saw_primary(&mut self, key: &[u8]) -> bool {
        if let Some(primaries) = &mut self.primaries {
            return !primaries.insert(key_hash(self.collection.primary, key));
        }
        if self.documents == 0 || key > self.greatest.as_slice() {
            self.greatest.clear();
            self.greatest.extend_from_slice(key);
            self.ascending.0.extend_from_slice(key);
            self.ascending.1.push(self.ascending.0.len());
            return false;
        }
        // This is the first key out of order: from here on, every key is looked up.
        let mut hashes = HashSet64::default();
        let mut start = 0;
        for &end in &self.ascending.1 {
            let staged = self.ascending.0.get(start..end).unwrap_or_default();
            hashes.insert(key_hash(self.collection.primary, staged));
            start = end;
        }
        let saw = !hashes.insert(key_hash(self.collection.primary, key));
        self.primaries = Some(hashes);
        saw
    }

    /// Stages a new document, whose `_id` is encoded in `key`.
    ///
    /// # Errors
    /// `DuplicateKey` (11000), errors of the index keys, errors of the engine.
    pub fn insert(&mut self, key: &[u8], doc: &Doc) -> Result<Staged> {
        let collated;
        let key = if self.collection.collator().is_binary() {
            key
        } else {
            // The caller encoded it without the collection's collation.
            let mut encoded = Vec::new();
            let id = doc.get("_id").unwrap_or(Value::Null);
            self.collection.collator().encode(&id, &mut encoded);
            collated = encoded;
            &collated
        };
        check_key(key)?;
        let record;
        let is_by_record = self.collection.is_by_record();
        let key = if is_by_record {
            if self.leaves_no_room(doc)? {
                return Ok(Staged::NextCommit);
            }
            record = match (&self.collection.settings.primary_key, &mut self.last_record) {
                (Some(primary_key), _) => primary_key.new_key(doc, &mut self.buffers.old_keys)?,
                (None, None) => self.collection.next_record(),
                (None, Some(last)) => {
                    *last += 1;
                    record_key(*last)
                }
            };
            check_key(&record)?;
            record.as_slice()
        } else {
            key
        };
        if let Some(time_series) = &self.collection.settings.time_series {
            time_series.check(doc)?;
        }
        self.collection.check_partition(key)?;
        let warning = self.validate(doc, None)?;
        if !is_by_record && self.is_stored(key)? {
            return Err(duplicate::of_id(self.collection, doc));
        }
        match self.generate(doc, key, None) {
            // The other document may be one that the capped collection removes first.
            Err(error)
                if self.collection.settings.capped.is_some()
                    && self.documents > 0
                    && error.is_duplicate_key() =>
            {
                return Ok(Staged::NextCommit);
            }
            Err(error) => return Err(error),
            Ok(Staged::NextCommit) => return Ok(Staged::NextCommit),
            Ok(Staged::Done) => {}
        }
        if self.saw_primary(key) {
            return Ok(Staged::NextCommit);
        }
        self.put_document(key, doc, None, &Written::Inserted(doc))?;
        for position in 0..self.collection.indexes.len() {
            self.put_entries(position, key, doc, None);
        }
        self.count(key, |counts| counts.add_document(doc.len_bytes()));
        self.documents += 1;
        self.warnings.extend(warning);
        Ok(Staged::Done)
    }

    /// Changes the counters for the document under a key.
    pub(super) fn count(&mut self, key: &[u8], change: impl Fn(&mut Counts)) {
        change(&mut self.counts);
        if let Some(partitions) = self.collection.settings.records().partitions() {
            change(
                self.partitions
                    .entry(partitions.containing(key))
                    .or_default(),
            );
        }
    }

    /// Whether the snapshot has this primary key. Keys beyond the greatest need no look-up.
    fn is_stored(&self, key: &[u8]) -> Result<bool> {
        match &self.last_stored {
            Some(last) if key > last.as_slice() => Ok(false),
            _ => Ok(self.snapshot.contains(self.collection.primary, key)?),
        }
    }

    /// Checks a document by the validator. Returns a warning if the action is `warn`.
    pub(super) fn validate(&self, doc: &Doc, old: Option<&Doc>) -> Result<Option<DocBuf>> {
        check_stored(&self.collection.ns, doc)?;
        if self.bypass_validation {
            return Ok(None);
        }
        match self.collection.settings.validation.check(doc, old)? {
            None => Ok(None),
            Some(Invalid::Warned(info)) => Ok(Some(info)),
            Some(Invalid::Refused(error)) => Err(error),
        }
    }

    /// Stages the change of a document from `old` to `new`, which have the same `_id`. Indexes none of
    /// whose paths `updated` touches are left alone. `parts` describes how it is stored, if it is divided.
    ///
    /// # Errors
    /// As [`Staging::insert`].
    pub(super) fn update(
        &mut self,
        key: &[u8],
        old: &Doc,
        parts: Option<&Parts>,
        new: &Doc,
        updated: Updated<'_>,
    ) -> Result<Staged> {
        let warning = self.validate(new, Some(old))?;
        let touches = updated.touches;
        if let Some(primary_key) = &self.collection.settings.primary_key
            && primary_key.spec.is_affected(touches)
        {
            let moved = primary_key.updated_key(key, old, new, &mut self.buffers.old_keys)?;
            if moved != key {
                let staged = self.move_document(key, &moved, old, new, updated)?;
                self.warnings
                    .extend(warning.filter(|_| staged == Staged::Done));
                return Ok(staged);
            }
        }
        let change = Change { old, touches };
        if self.generate(new, key, Some(change))? == Staged::NextCommit {
            return Ok(Staged::NextCommit);
        }
        let written = self
            .updated(old, new, updated.how, None)
            .unwrap_or(Written::Replaced { old, new });
        self.put_document(key, new, parts, &written)?;
        for position in 0..self.collection.indexes.len() {
            self.put_entries(position, key, new, Some(change));
        }
        let before = counted_bytes(old, parts);
        self.count(key, |counts| {
            counts.remove_document(before);
            counts.add_document(new.len_bytes());
        });
        self.documents += 1;
        self.warnings.extend(warning);
        Ok(Staged::Done)
    }

    /// Stages the removal of a document. Of a large one `parts` describe how it is stored, and `old` is at least what its
    /// indexes look at.
    ///
    /// # Errors
    /// Errors of the index keys: none that the insert did not have.
    pub fn delete(&mut self, key: &[u8], old: &Doc, parts: Option<&Parts>) -> Result<()> {
        self.remove(key, old, parts, &Written::Deleted(old))
    }

    fn remove(
        &mut self,
        key: &[u8],
        old: &Doc,
        parts: Option<&Parts>,
        written: &Written<'_>,
    ) -> Result<()> {
        let collection = self.collection;
        check_removed(&collection.ns, old)?;
        self.remove_entries(key, old)?;
        let writer = collection.document_writer();
        writer.delete(&mut self.batch, key, parts, &mut self.buffers.key)?;
        self.note_change(key, old, written);
        let before = counted_bytes(old, parts);
        self.count(key, |counts| counts.remove_document(before));
        self.documents += 1;
        Ok(())
    }

    fn put_document(
        &mut self,
        key: &[u8],
        doc: &Doc,
        old: Option<&Parts>,
        written: &Written<'_>,
    ) -> Result<()> {
        self.removes_only = false;
        self.note_change(key, doc, written);
        let writer = self.collection.document_writer();
        writer.put(&mut self.batch, key, doc, old, &mut self.buffers.key)
    }

    /// Notes that a document changes, for the oplog, and for a copy of the collection that is under way. `doc` has its `_id`.
    pub(super) fn note_change(&mut self, key: &[u8], doc: &Doc, written: &Written<'_>) {
        self.log(written);
        if let Some(changes) = self.collection.changes {
            catalog::mark_dirty(&mut self.batch, changes, key, &id_document(doc));
        }
    }

    /// Commits what was staged; in a transaction it waits for the transaction's commit. Returns the number of documents.
    ///
    /// # Errors
    /// A conflict if another writer was faster; nothing of this commit is stored then. `WriteConcernTimeout` (64) if the
    /// commit is applied, but could not be made durable yet.
    pub fn commit(mut self, durability: Durability) -> Result<usize> {
        if self.documents == 0 {
            return Ok(0);
        }
        self.remove_oldest()?;
        if self.announces {
            self.check_announced()?;
        }
        let is_watched = self.collection.hooks().watches(&self.collection.ns);
        let watched = self.stage_for_others(is_watched)?;
        self.keys.add_to_op_stats(self.collection, self.counts);
        if self.collection.settings.capped.is_some() && self.insertion.is_none() {
            self.insertion = Some(self.collection.lock_insertion()?);
        }
        // A handle of a fixed moment takes none.
        if !self.catalog.is_live() {
            let effects = Effects {
                counts: self.counts,
                partitions: self.partitions,
                multikey: self.multikey,
                warnings: self.warnings,
                log: self.log,
            };
            self.catalog.stage(self.collection, self.batch, effects)?;
            return Ok(self.documents);
        }
        if self.counts != Counts::default() {
            catalog::change_counter(&mut self.batch, &self.collection.uuid, self.counts);
        }
        for (id, change) in &self.partitions {
            let uuid = &self.collection.uuid;
            catalog::change_partition_counter(&mut self.batch, uuid, *id, *change);
        }
        // Pre-images take more room than the documents until they expire.
        if self.removes_only && !self.keeps_pre_images() {
            self.batch.set_frees_space();
        }
        catalog::check_same(self.oplog, self.catalog)?;
        point("the oplog of a commit of documents is known");
        let committed = self.catalog.commit_logged(self.batch, self.log.as_ref());
        // Also after an error, which does not always mean that nothing was committed.
        if is_watched {
            self.collection.hooks().changed();
        }
        committed?;
        self.coordination.committed_watched(watched);
        self.collection.count(self.counts);
        if let Some(insertion) = &mut self.insertion
            && !self.removed_to.is_empty()
        {
            insertion.first = self.removed_to;
        }
        if self.collection.settings.capped.is_some() {
            self.collection.tail().notify();
        }
        drop(self.insertion.take());
        for (index, paths) in &self.multikey {
            index.stored_multikey(paths);
        }
        for info in &self.warnings {
            let hooks = self.collection.hooks();
            hooks.invalid_document(&self.collection.ns, info);
        }
        if durability == Durability::Synced {
            // Last, because the commit is applied whether or not the sync succeeds, and without the lock, so that other
            // inserts need not wait for it.
            self.catalog.engine().flush_log().map_err(not_durable)?;
        }
        Ok(self.documents)
    }
}

/// The bytes that a document adds to the collection's counter.
fn counted_bytes(doc: &Doc, parts: Option<&Parts>) -> usize {
    parts.map_or(doc.len_bytes(), |parts| {
        record::counted_bytes(&parts.stored)
    })
}

/// Refuses an `_id` whose key leaves no room for the fields of an index. That takes a document of nearly 16 MiB whose `_id`
/// grows when it is encoded: by a collation, or by zero bytes.
fn check_key(key: &[u8]) -> Result<()> {
    const ID_KEY_BYTES_MAX: usize = KEY_BYTES_MAX / 2;
    if key.len() > ID_KEY_BYTES_MAX {
        return Err(Error::Command(CommandError::location(
            17280,
            format!(
                "the '_id' has a key of {} bytes, the limit is {ID_KEY_BYTES_MAX}",
                key.len()
            ),
        )));
    }
    Ok(())
}

/// Checks the size of a document that is to be stored.
///
/// # Errors
/// `BSONObjectTooLarge` (10334).
pub fn check_size(doc: &Doc) -> Result<()> {
    if doc.len_bytes() > MAX_DOCUMENT_BYTES {
        return Err(command(
            ErrorCode::BSONObjectTooLarge,
            format!(
                "object to insert too large. size in bytes: {}, max size: {MAX_DOCUMENT_BYTES}",
                doc.len_bytes()
            ),
        ));
    }
    Ok(())
}

/// Encodes the `_id` of a document, as it is in a collection without a collation.
pub fn primary_key(id: &Value<'_>, out: &mut Vec<u8>) {
    out.clear();
    frond_bson::key::encode(id, out);
}

#[cfg(test)]
mod tests;
