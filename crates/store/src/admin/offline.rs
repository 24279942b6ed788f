//! Verifies and salvages the directory of a store that is not open.
//!
//! The engine checks bytes: checksums, order, addresses. On top of that, indexes and counters are compared with
//! their documents, or rebuilt from them.

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use frond_encryption::KeyStore;

use frond_bson::{Collator, Doc, DocBuf, Value, key};

use super::VerifyReport;
use crate::catalog::{self, Collection, record_of_key};
use crate::encryption::{self, MasterKey};
use crate::store::{DocumentStore, StoreOptions};
use crate::{IndexSelector, InsertOptions};
use frond_storage::error::Result;
use frond_storage::index::keys::IndexKeys;
use frond_storage::index::{Index, entry};
use frond_storage::keyspace::disk::{Disk, FsDisk, OverlayDisk};
use frond_storage::keyspace::{
    CATALOG_TREE, COMMIT_BYTES_MAX, Direction, Durability, Engine, EngineOptions, Files,
    ProblemKind, TreeId, WriteSet,
};
pub use frond_storage::keyspace::{EngineReport, EngineSalvage, Lost, Problem, Progress};
pub use frond_storage::keyspace::{FormatVersion, format_version};
use frond_storage::merge::{Counts, merge_operator};
use frond_storage::namespace::Namespace;
use frond_storage::record;
use frond_storage::record_layout::PartitionId;

/// The database for documents whose collection is unknown.
const LOST_DATABASE: &str = "salvaged";

/// The result of verifying a directory.
#[derive(Debug, Default)]
pub struct DirectoryReport {
    /// The findings of the engine.
    pub engine: EngineReport,
    /// The findings in each collection, by name.
    pub collections: Vec<(Namespace, VerifyReport)>,
    /// Errors of collections that could not be read.
    pub errors: Vec<String>,
}

impl DirectoryReport {
    /// The number of problems.
    pub fn problems(&self) -> usize {
        let wrong = |report: &VerifyReport| report.errors.len();
        let in_collections = self.collections.iter().map(|(_, report)| wrong(report));
        self.engine.problems.len() + in_collections.sum::<usize>() + self.errors.len()
    }
}

/// Verifies the store in a directory that is not open, and is not encrypted. See [`verify_with`].
///
/// # Errors
/// As [`verify_with`].
pub fn verify(path: &Path, progress: &mut dyn FnMut(Progress)) -> Result<DirectoryReport> {
    verify_with(path, None, progress)
}

/// Verifies the store in a directory that is not open; `master` is the master key of an encrypted one. No file is changed: what recovery would write is kept in
/// memory.
///
/// # Errors
/// If there is no store, or its directory cannot be read. Problems of the store are in the report.
pub fn verify_with(
    path: &Path,
    master: Option<&MasterKey>,
    progress: &mut dyn FnMut(Progress),
) -> Result<DirectoryReport> {
    let disk: Arc<dyn Disk> = Arc::new(FsDisk::read_only(path.to_owned()));
    let keys = encryption::open_existing(path, master)?;
    let keys = keys.as_ref().map(KeyStore::keys);
    let disk = encryption::with_keys(path, disk, keys)?;
    let mut report = DirectoryReport {
        engine: Files::verify(&EngineOptions::with_disk(disk.clone()), progress)?,
        ..DirectoryReport::default()
    };
    let overlay = EngineOptions::with_disk(Arc::new(OverlayDisk::new(disk)));
    let store = match DocumentStore::open_engine(overlay, StoreOptions::default()) {
        Ok(store) => store,
        Err(error) => {
            report
                .errors
                .push(format!("the collections cannot be read: {error}"));
            return Ok(report);
        }
    };
    for collection in by_name(&store) {
        match store.verify(&collection.ns) {
            Ok(found) => report.collections.push((collection.ns.clone(), found)),
            Err(error) => report
                .errors
                .push(format!("{} cannot be read: {error}", collection.ns)),
        }
    }
    Ok(report)
}

/// The master keys of a salvage, which may differ: so it is also a way to encrypt a store, or to decrypt it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Masters<'a> {
    pub from: Option<&'a MasterKey>,
    pub to: Option<&'a MasterKey>,
}

/// The result of salvaging a directory.
#[derive(Debug, Default)]
pub struct SalvageReport {
    /// The data that the engine salvaged, and the data that it lost.
    pub engine: EngineSalvage,
    /// The collections of the new store, by name.
    pub collections: Vec<SalvagedCollection>,
    pub errors: Vec<String>,
}

/// A collection of the new store.
#[derive(Debug)]
pub struct SalvagedCollection {
    pub ns: Namespace,
    pub documents: u64,
    /// Documents that were left out: not valid, or not under the key of their `_id`.
    pub dropped: u64,
    /// Its indexes, without the one on `_id`.
    pub indexes: u64,
    /// The lost documents of the collection.
    pub lost: Vec<Lost>,
}

impl SalvageReport {
    /// Whether the new store has everything, as far as can be known.
    pub fn is_whole(&self) -> bool {
        let engine = &self.engine;
        let of_log = |problem: &Problem| problem.kind == ProblemKind::Log;
        engine.lost.is_empty()
            && engine.lost_tree_pages == 0
            && engine.dropped_updates == 0
            && !engine.is_older_checkpoint
            && (engine.checkpoint > 0 || engine.problems.is_empty())
            && !engine.problems.iter().any(of_log)
            && self.errors.is_empty()
            && self.collections.iter().all(|one| one.dropped == 0)
    }
}

/// As [`salvage_with`], without encryption.
///
/// # Errors
/// As [`salvage_with`].
pub fn salvage(
    from: &Path,
    to: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<SalvageReport> {
    salvage_with(from, to, Masters::default(), progress)
}

/// Builds a new store in the directory `to` from what can be read of the one in `from`, which is not open and
/// is not changed. Indexes and counters are rebuilt from the documents. Documents whose collection
/// is unknown go into the database `salvaged`.
///
/// # Errors
/// If there is no store in `from` or one in `to`, and errors of writing to `to`. What could not be salvaged is
/// in the report.
pub fn salvage_with(
    from: &Path,
    to: &Path,
    masters: Masters<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<SalvageReport> {
    let keys = encryption::open_existing(from, masters.from)?;
    let disk: Arc<dyn Disk> = Arc::new(FsDisk::read_only(from.to_owned()));
    let source = EngineOptions::with_disk(encryption::with_keys(
        from,
        disk,
        keys.as_ref().map(KeyStore::keys),
    )?);
    let keys = encryption::open_or_create(to, masters.to)?;
    // Each open has ciphers of its own.
    let target = || -> Result<EngineOptions> {
        let plain = EngineOptions::new(to);
        Ok(EngineOptions {
            merge: merge_operator(),
            disk: encryption::with_keys(to, plain.disk.clone(), keys.as_ref().map(KeyStore::keys))?,
            ..plain
        })
    };
    let mut report = SalvageReport {
        engine: Files::salvage(&source, target()?, progress)?,
        ..SalvageReport::default()
    };
    let engine = Engine::open(target()?)?;
    catalog::repair(&engine)?;
    let store = DocumentStore::open(engine, StoreOptions::default())?;
    adopt(&store, &mut report)?;
    for collection in by_name(&store) {
        let salvaged = repair(&store, &collection, &mut report)?;
        report.collections.push(salvaged);
    }
    store.engine().close()?;
    Ok(report)
}

fn by_name(store: &DocumentStore) -> Vec<Arc<Collection>> {
    let mut found: Vec<_> = store.catalog().view().iter().cloned().collect();
    found.sort_by(|a, b| a.ns.cmp(&b.ns));
    found
}

/// Whether an entry of a tree is a document under the key of its `_id`. Without a collator, the collation of the
/// tree is unknown: then any key of the same type is accepted for strings and documents.
fn document<'a>(
    key: &[u8],
    value: &'a [u8],
    collator: Option<&Collator>,
    buffer: &mut Vec<u8>,
) -> Option<&'a Doc> {
    let doc = Doc::validate(value).ok()?;
    let id = doc.get("_id")?;
    buffer.clear();
    collator.unwrap_or(Collator::BINARY).encode(&id, buffer);
    let may_be_collated = collator.is_none()
        && (id.is_string() || matches!(id, Value::Document(_)))
        && buffer.first() == key.first()
        && key::skip(key, key::Direction::Ascending) == Some(key.len());
    (buffer == key || may_be_collated).then_some(doc)
}

/// A document with an `_id`.
fn sound(value: &[u8]) -> Option<&Doc> {
    Doc::validate(value)
        .ok()
        .filter(|doc| doc.contains_key("_id"))
}

/// Moves the documents of trees without a collection into new collections.
fn adopt(store: &DocumentStore, report: &mut SalvageReport) -> Result<()> {
    let mut known: HashSet<TreeId> = HashSet::from([CATALOG_TREE]);
    known.extend(store.catalog().session_tree());
    for collection in store.catalog().view().iter() {
        known.extend(collection.trees());
        known.extend(collection.indexes.iter().map(|index| index.tree));
    }
    for tree in store.engine().trees()? {
        if known.contains(&tree) {
            continue;
        }
        let (snapshot, mut buffer) = (store.engine().snapshot(), Vec::new());
        let (low, high) = (Bound::Unbounded, Bound::Unbounded);
        let mut cursor = snapshot.cursor(tree, low, high, Direction::Forward)?;
        let ns = Namespace::new(LOST_DATABASE, &format!("tree_{}", tree.0))?;
        let mut adopted = 0;
        loop {
            let (mut docs, mut bytes): (Vec<DocBuf>, _) = (Vec::new(), 0);
            while bytes < COMMIT_BYTES_MAX
                && let Some((key, value)) = cursor.next()?
            {
                let by_record = || record_of_key(key).and_then(|_| sound(value));
                if let Some(doc) = document(key, value, None, &mut buffer).or_else(by_record) {
                    bytes += value.len();
                    docs.push(doc.to_owned());
                }
            }
            if docs.is_empty() {
                break;
            }
            let options = InsertOptions {
                ordered: false,
                durability: Durability::Logged,
                bypass_validation: true,
                keep_empty_timestamps: true,
            };
            let docs: Vec<&Doc> = docs.iter().map(|doc| &**doc).collect();
            adopted += store.insert(&ns, &docs, options)?.inserted;
        }
        if adopted > 0 {
            let text = format!(
                "tree {} belongs to no collection: its documents are in {ns}",
                tree.0
            );
            report.errors.push(text);
            let mut batch = WriteSet::new();
            batch.drop_tree(tree);
            store.engine().commit(batch, Durability::Logged)?;
        }
    }
    Ok(())
}

/// Counts the documents of a collection and rebuilds its indexes.
fn repair(
    store: &DocumentStore,
    collection: &Collection,
    report: &mut SalvageReport,
) -> Result<SalvagedCollection> {
    let (engine, tree) = (store.engine(), collection.primary);
    if !engine.has_tree(tree)? {
        let text = format!("the documents of {} are lost, all of them", collection.ns);
        report.errors.push(text);
        let mut batch = WriteSet::new();
        batch.create_tree(tree, &collection.settings.tree);
        engine.commit(batch, Durability::Logged)?;
    }
    if let Some(segments) = collection.segments
        && !engine.has_tree(segments)?
    {
        let text = format!("the large documents of {} are lost", collection.ns);
        report.errors.push(text);
        let mut batch = WriteSet::new();
        batch.create_tree(segments, &collection.settings.segments_tree());
        engine.commit(batch, Durability::Logged)?;
    }
    let (mut counts, mut dropped) = (Counts::default(), 0);
    let mut of_partitions: BTreeMap<PartitionId, Counts> = BTreeMap::new();
    let collator = Some(collection.collator());
    let (snapshot, mut buffer) = (engine.snapshot(), Vec::new());
    let mut batch = WriteSet::new();
    let mut cursor =
        snapshot.cursor(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward)?;
    while let Some((key, stored)) = cursor.next()? {
        let whole = collection.document_reader(&snapshot).whole(key, stored);
        let is_sound = match &whole {
            Err(_) => false,
            Ok(doc) if collection.is_by_record() => {
                sound(doc.as_bytes()).is_some() && is_key_of(collection, key, doc)
            }
            Ok(doc) => document(key, doc.as_bytes(), collator, &mut buffer).is_some(),
        };
        if is_sound {
            counts.add_document(record::counted_bytes(stored));
            if let Some(partitions) = collection.settings.records().partitions() {
                let counts = of_partitions.entry(partitions.containing(key)).or_default();
                counts.add_document(record::counted_bytes(stored));
            }
            if let Ok(doc) = whole
                && !record::may_have_bytes(stored, doc.len_bytes())
            {
                report.errors.push(format!(
                    "a large document of {} lost some of its fields, that with _id {:?}",
                    collection.ns,
                    doc.get("_id")
                ));
            }
            continue;
        }
        dropped += 1;
        batch.delete(tree, key);
        if batch.bytes() > COMMIT_BYTES_MAX {
            engine.commit(std::mem::take(&mut batch), Durability::Logged)?;
        }
    }
    catalog::put_counter(&mut batch, &collection.uuid, counts);
    for (id, counts) in of_partitions {
        catalog::put_partition_counter(&mut batch, &collection.uuid, id, counts);
    }
    engine.commit(batch, Durability::Logged)?;

    for index in collection
        .indexes
        .iter()
        .filter(|index| index.spec.is_id_index())
    {
        repair_id_index(store, collection, index)?;
    }
    let specs: Vec<DocBuf> = collection
        .indexes
        .iter()
        .filter(|index| !index.spec.is_id_index())
        .map(|index| index.spec.doc.clone())
        .collect();
    store.drop_indexes(&collection.ns, &IndexSelector::All)?;
    let mut indexes = 0;
    for spec in &specs {
        match store.create_indexes(&collection.ns, &[spec]) {
            Ok(_) => indexes += 1,
            Err(error) => report.errors.push(format!(
                "index {:?} of {} was not built: {error}",
                spec.get_str("name").unwrap_or_default(),
                collection.ns
            )),
        }
    }
    let lost = report.engine.lost.iter().filter(|lost| lost.tree == tree);
    Ok(SalvagedCollection {
        ns: collection.ns.clone(),
        documents: u64::try_from(counts.documents).unwrap_or(0),
        dropped,
        indexes,
        lost: lost.cloned().collect(),
    })
}

/// Whether a sound document can lie under a key, in a collection that is not stored by `_id`.
fn is_key_of(collection: &Collection, key: &[u8], doc: &Doc) -> bool {
    match &collection.settings.primary_key {
        Some(primary_key) => primary_key.is_key_of(key, doc, &mut IndexKeys::default()),
        None => record_of_key(key).is_some(),
    }
}

/// Rebuilds the index on `_id` of a capped collection, which cannot be dropped and created again.
fn repair_id_index(store: &DocumentStore, collection: &Collection, index: &Index) -> Result<()> {
    let engine = store.engine();
    let mut batch = WriteSet::new();
    if engine.has_tree(index.tree)? {
        batch.delete_range(index.tree, &[], None);
    } else {
        batch.create_tree(index.tree, &index.spec.tree);
    }
    engine.commit(std::mem::take(&mut batch), Durability::Logged)?;
    let (snapshot, forward) = (engine.snapshot(), Direction::Forward);
    let (low, high) = (Bound::Unbounded, Bound::Unbounded);
    let mut cursor = snapshot.cursor(collection.primary, low, high, forward)?;
    let (mut keys, mut entry_key, mut entry_value) = (IndexKeys::default(), Vec::new(), Vec::new());
    while let Some((key, value)) = cursor.next()? {
        let doc = Doc::from_trusted(value);
        keys.generate(&index.spec, doc, key.len())?;
        for (fields, lost) in keys.iter() {
            entry::write(
                &index.spec,
                fields,
                key,
                lost,
                doc,
                &mut entry_key,
                &mut entry_value,
            );
            batch.put(index.tree, &entry_key, &entry_value);
        }
        if batch.bytes() > COMMIT_BYTES_MAX {
            engine.commit(std::mem::take(&mut batch), Durability::Logged)?;
        }
    }
    engine.commit(batch, Durability::Logged)?;
    Ok(())
}
