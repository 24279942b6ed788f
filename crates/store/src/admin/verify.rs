//! Compares indexes with their collection: the `validate` command.
//!
//! Everything is read on one snapshot. Each document must have exactly the entries of its
//! keys, each entry must belong to a document, and the counter must agree with the documents.
//!
//! First documents and entries are read in key order, and the sums of the hashes of expected and
//! stored entries are compared: that takes no look-ups, so it works for collections far
//! larger than memory. Only where sums differ, entries are looked up one by one to find the differences.
//!
//! If a part of the collection is damaged, the comparison that needs it is skipped. Every block is read instead, so that
//! the report names the damaged ones.

use std::collections::BTreeMap;
use std::ops::Bound;

use frond_bson::Doc;
use xxhash_rust::xxh3::xxh3_128;

use crate::catalog::{Collection, counter_key, partition_counts, read_multikey};
use crate::store::DocumentStore;
use frond_oplog::entry::RawEntry;
use frond_storage::error::{Error, Result};
use frond_storage::index::keys::IndexKeys;
use frond_storage::index::{Index, entry};
use frond_storage::keyspace::{CATALOG_TREE, Cursor, Direction, Snapshot, TreeId};
use frond_storage::merge::Counts;
use frond_storage::namespace::Namespace;
use frond_storage::options::ValidationAction;
use frond_storage::record;

/// Errors listed in full; further ones are only counted.
const ERRORS_LISTED_MAX: usize = 100;

/// The result of a verification.
#[derive(Clone, Debug, Default)]
pub struct VerifyReport {
    pub documents: u64,
    /// Documents that are not valid BSON, or lie under a wrong key.
    pub invalid_documents: u64,
    /// Documents that the collection's validator refuses: they are older than it, or bypassed it.
    pub non_compliant_documents: u64,
    /// Whether the validator refuses such documents today, or only warns of them.
    pub refuses_non_compliant: bool,
    /// The indexes, the one on `_id` first.
    pub indexes: Vec<IndexReport>,
    /// The errors; empty for a valid collection.
    pub errors: Vec<String>,
    /// Whether a part cannot be read. `documents` and `keys` then count what comes before it.
    pub is_damaged: bool,
}

/// The result for one index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexReport {
    pub name: String,
    pub keys: u64,
    /// Whether they agree with the documents.
    pub valid: bool,
}

impl VerifyReport {
    /// Turns damage into `None`, after it was noted.
    fn unless_damaged<T>(&mut self, read: Result<T>) -> Result<Option<T>> {
        match read {
            Ok(read) => Ok(Some(read)),
            Err(error) if error.is_damage() => {
                self.damaged(error.to_string());
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Notes a damaged block, once.
    fn damaged(&mut self, message: String) {
        self.is_damaged = true;
        if !self.errors.contains(&message) {
            self.wrong(message);
        }
    }

    fn wrong(&mut self, message: String) {
        match self.errors.len() {
            listed if listed < ERRORS_LISTED_MAX => self.errors.push(message),
            ERRORS_LISTED_MAX => self.errors.push("and more".to_owned()),
            _ => {}
        }
    }
}

impl DocumentStore {
    /// Compares a collection's indexes and counter with its documents.
    ///
    /// # Errors
    /// `NamespaceNotFound` (26); errors of the engine. Errors in the data are in the report.
    pub fn verify(&self, ns: &Namespace) -> Result<VerifyReport> {
        if self.catalog().is_view(ns) {
            return Err(frond_storage::error::command(
                frond_error::ErrorCode::CommandNotSupportedOnView,
                "Cannot validate a view",
            ));
        }
        let (collection, snapshot) = self.catalog().read(ns)?.ok_or_else(|| {
            frond_storage::error::command(
                frond_error::ErrorCode::NamespaceNotFound,
                format!("Collection '{ns}' does not exist to validate."),
            )
        })?;
        let action = collection.settings.validation.action.unwrap_or_default();
        let mut report = VerifyReport {
            refuses_non_compliant: action == ValidationAction::Error,
            ..VerifyReport::default()
        };
        if collection.oplog().is_some() {
            let read = read_oplog(&collection, &snapshot, &mut report);
            report.unless_damaged(read)?;
            return Ok(report);
        }
        let indexes: Vec<&Index> = collection.ready_indexes().map(|index| &**index).collect();
        // A transaction changes the counter when it is committed.
        let pending = self.catalog().pending_counts(&collection);
        let wanted = read_documents(&collection, &snapshot, &indexes, pending, &mut report);
        let wanted = report.unless_damaged(wanted)?;
        let mut differing = Vec::new();
        for (at, index) in indexes.into_iter().enumerate() {
            let stored = report.unless_damaged(read_entries(&snapshot, index))?;
            let wanted = wanted.as_ref().map(|wanted| wanted[at]);
            let agrees = match (stored, wanted) {
                (Some(stored), Some(wanted)) => stored == wanted,
                (stored, _) => stored.is_some(),
            };
            report.indexes.push(IndexReport {
                name: index.spec.name.clone(),
                keys: stored.map_or(0, |stored| stored.entries),
                valid: agrees,
            });
            if let (Some(stored), Some(wanted), false) = (stored, wanted, agrees) {
                report.wrong(format!(
                    "index '{}' has {} entries, the documents have {} keys in it, and they differ",
                    index.spec.name, stored.entries, wanted.entries
                ));
                differing.push(index);
            }
        }
        if report.is_damaged {
            find_damage(&collection, &snapshot, &mut report)?;
        } else if !differing.is_empty() {
            find_missing(&collection, &snapshot, &differing, &mut report)?;
            for index in differing {
                find_superfluous(&collection, &snapshot, index, &mut report)?;
            }
        }
        Ok(report)
    }
}

/// Reads every block of a damaged collection, and notes those that cannot be read.
fn find_damage(
    collection: &Collection,
    snapshot: &Snapshot,
    report: &mut VerifyReport,
) -> Result<()> {
    // A cluster has no blocks of its own.
    let Some(snapshot) = snapshot.files() else {
        return Ok(());
    };
    for tree in collection.trees() {
        for damage in snapshot.check_blocks(tree)? {
            report.damaged(damage.what);
        }
    }
    for index in &collection.indexes {
        for damage in snapshot.check_blocks(index.tree)? {
            report.damaged(format!("index '{}': {}", index.spec.name, damage.what));
        }
    }
    Ok(())
}

/// A checksum of the entries of an index that does not depend on their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    entries: u64,
    hashes: u128,
}

impl Sum {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        self.entries += 1;
        // Key and value are hashed separately, so that the boundary between them counts.
        let both = xxh3_128(key).rotate_left(1) ^ xxh3_128(value);
        self.hashes = self.hashes.wrapping_add(both);
    }
}

/// Reads the entries of an index.
fn read_entries(snapshot: &Snapshot, index: &Index) -> Result<Sum> {
    let mut cursor = all(snapshot, index.tree)?;
    let mut sum = Sum::default();
    while let Some((key, value)) = cursor.next()? {
        sum.add(key, value);
    }
    Ok(sum)
}

fn all(snapshot: &Snapshot, tree: TreeId) -> Result<Cursor> {
    let (low, high) = (Bound::Unbounded, Bound::Unbounded);
    Ok(snapshot.cursor(tree, low, high, Direction::Forward)?)
}

/// Reads all entries of the oplog.
fn read_oplog(
    collection: &Collection,
    snapshot: &Snapshot,
    report: &mut VerifyReport,
) -> Result<()> {
    let mut cursor = all(snapshot, collection.primary)?;
    while let Some((_, value)) = cursor.next()? {
        report.documents += 1;
        if let Err(error) = RawEntry::read(value) {
            report.invalid_documents += 1;
            report.wrong(error.to_string());
        }
    }
    Ok(())
}

/// Reads all documents. Returns the checksum of the expected entries of each index.
fn read_documents(
    collection: &Collection,
    snapshot: &Snapshot,
    indexes: &[&Index],
    pending: Counts,
    report: &mut VerifyReport,
) -> Result<Vec<Sum>> {
    let mut of_partitions = BTreeMap::new();
    let mut cursor = all(snapshot, collection.primary)?;
    let mut wanted = vec![Sum::default(); indexes.len()];
    let mut counts = Counts::default();
    let mut keys = IndexKeys::default();
    let (mut entry_key, mut entry_value, mut id_key) = (Vec::new(), Vec::new(), Vec::new());
    let reader = collection.document_reader(snapshot);
    while let Some((key, stored)) = cursor.next()? {
        counts.add_document(record::counted_bytes(stored));
        if let Some(partitions) = collection.settings.records().partitions() {
            let counts = of_partitions
                .entry(partitions.containing(key))
                .or_insert(Counts::default());
            counts.add_document(record::counted_bytes(stored));
        }
        let whole = match reader.whole(key, stored) {
            Ok(whole) => whole,
            Err(Error::Command(error)) => {
                report.invalid_documents += 1;
                report.wrong(error.to_string());
                continue;
            }
            Err(error) => return Err(error),
        };
        if !record::may_have_bytes(stored, whole.len_bytes()) {
            report.invalid_documents += 1;
            report.wrong(format!(
                "a large document lacks some of its fields, that with _id {:?}",
                whole.get("_id")
            ));
        }
        let doc = match Doc::validate(whole.as_bytes()) {
            Ok(doc) => doc,
            Err(error) => {
                report.invalid_documents += 1;
                report.wrong(format!("a document is not valid BSON: {error}"));
                continue;
            }
        };
        if !collection.settings.validation.conforms(doc)? {
            report.non_compliant_documents += 1;
        }
        let is_own_key = if let Some(primary_key) = &collection.settings.primary_key {
            primary_key.is_key_of(key, doc, &mut keys)
        } else if collection.is_by_record() {
            true
        } else {
            id_key.clear();
            if let Some(id) = doc.get("_id") {
                collection.collator().encode(&id, &mut id_key);
            }
            id_key == key
        };
        if !is_own_key {
            report.invalid_documents += 1;
            report.wrong(format!(
                "a document lies under another key than its own: {doc:?}"
            ));
        }
        for (index, wanted) in indexes.iter().zip(&mut wanted) {
            keys.generate(&index.spec, doc, key.len())?;
            for (fields, lost) in keys.iter() {
                let (spec, out) = (&index.spec, &mut entry_key);
                entry::write(spec, fields, key, lost, doc, out, &mut entry_value);
                wanted.add(&entry_key, &entry_value);
            }
            if !index.has_multikey(keys.multikey()) {
                report.wrong(format!(
                    "index '{}' is not marked as multikey where a document has an array",
                    index.spec.name
                ));
            }
        }
    }
    if let Some(segments) = collection.segments {
        for _ in 0..record::orphan_segments(snapshot, collection.primary, segments)? {
            report.wrong("a part of a large document belongs to no document".to_owned());
        }
    }
    for index in indexes {
        if let Err(error) = read_multikey(snapshot, &collection.uuid, index.tree) {
            report.wrong(format!(
                "the multikey paths of index '{}' cannot be read, so that queries take all of its fields for arrays; drop the \
                 index and create it again: {error}",
                index.spec.name
            ));
        }
    }
    let counter = match snapshot.get(CATALOG_TREE, &counter_key(&collection.uuid)) {
        Err(error) if error.is_damage() => {
            report.wrong(format!("the counter cannot be read: {error}"));
            None
        }
        counter => Some(counter?),
    };
    let stored = counter.map(|counter| {
        counter.map_or(Some(Counts::default()), |stored| {
            Counts::from_bytes(&stored)
        })
    });
    let stored = stored.map(|stored| stored.map(|stored| stored + pending));
    // The counter does not have the documents and bytes that fast updates have added.
    let is_wrong = |stored: Counts| {
        (stored.has_all_documents() && stored.documents != counts.documents)
            || (stored.updates == 0 && stored.bytes != counts.bytes)
    };
    if let Some(stored) = stored
        && stored.is_none_or(is_wrong)
    {
        report.wrong(format!(
            "the counter says {stored:?}, the collection has {counts:?}"
        ));
    }
    // A transaction changes these, too, when it is committed.
    if pending == Counts::default() {
        for (id, counts) in of_partitions {
            let stored = partition_counts(snapshot, &collection.uuid, id)?;
            if stored != counts {
                report.wrong(format!(
                    "the counter of partition {} says {stored:?}, it has {counts:?}",
                    id.0
                ));
            }
        }
    }
    report.documents = u64::try_from(counts.documents).unwrap_or(0);
    if let Some(name) = collection.own_index_name() {
        report.indexes.push(IndexReport {
            name: name.to_owned(),
            keys: report.documents,
            valid: report.invalid_documents == 0,
        });
    }
    Ok(wanted)
}

/// Looks up the entries of every document.
fn find_missing(
    collection: &Collection,
    snapshot: &Snapshot,
    indexes: &[&Index],
    report: &mut VerifyReport,
) -> Result<()> {
    let mut cursor = all(snapshot, collection.primary)?;
    let reader = collection.document_reader(snapshot);
    let mut keys = IndexKeys::default();
    let (mut entry_key, mut entry_value) = (Vec::new(), Vec::new());
    while let Some((key, stored)) = cursor.next()? {
        let doc = &*reader.whole(key, stored)?;
        for index in indexes {
            keys.generate(&index.spec, doc, key.len())?;
            for (fields, lost) in keys.iter() {
                let (spec, out) = (&index.spec, &mut entry_key);
                entry::write(spec, fields, key, lost, doc, out, &mut entry_value);
                let stored = snapshot.get(index.tree, &entry_key)?;
                if stored.as_deref() != Some(entry_value.as_slice()) {
                    report.wrong(format!(
                        "index '{}' lacks an entry of the document with _id {:?}",
                        spec.name,
                        doc.get("_id")
                    ));
                }
            }
        }
    }
    Ok(())
}

/// Looks for every entry among the keys of its document.
fn find_superfluous(
    collection: &Collection,
    snapshot: &Snapshot,
    index: &Index,
    report: &mut VerifyReport,
) -> Result<()> {
    let mut cursor = all(snapshot, index.tree)?;
    let name = &index.spec.name;
    let mut keys = IndexKeys::default();
    while let Some((key, value)) = cursor.next()? {
        let parts = entry::split(&index.spec, key, value)?;
        let Some(stored) = snapshot.get(collection.primary, parts.id)? else {
            report.wrong(format!("index '{name}' has an entry without a document"));
            continue;
        };
        let doc = collection
            .document_reader(snapshot)
            .whole(parts.id, &stored)?;
        keys.generate(&index.spec, &doc, parts.id.len())?;
        if !keys.iter().any(|own| own == (parts.fields, parts.lost)) {
            report.wrong(format!(
                "index '{name}' has an entry that its document does not have"
            ));
        }
    }
    Ok(())
}
