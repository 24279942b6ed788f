//! The stored form of the catalog, in the catalog tree.
//!
//! | key | value |
//! | --- | --- |
//! | `0x01` | `{format: 2}`; format 1 had no segments |
//! | `0x02` database `0x00` collection | `{uuid, tree, segments, options}`; some have no segments; with several servers also `changes` |
//! | `0x03` uuid, number of the index (4 bytes, big-endian) | `{spec, tree, ready}`, while it is built also `sides`; with several servers also `replaces` |
//! | `0x04` uuid | the counter: documents and bytes, see [`frond_storage::merge`] |
//! | `0x05` uuid, number of the index | its multikey paths, see [`frond_storage::merge::kind::MULTIKEY`] |
//! | `0x06` tree (4 bytes, big-endian) | `{}`: a command needs the tree while it runs; after a crash it is dropped |
//! | `0x07` | `{reserved}`: the bound of the cluster time, see [`crate::cluster_time`] |
//! | `0x08` | `{tree}`: the tree of [`super::session_records`] |
//! | `0x09` | `{tree, preImages, bytesMax, minRetentionHours}`: the oplog, see [`crate::oplog`] |
//! | `0x20` and above | several servers over one keyspace, see [`crate::coordination`] |
//! | `0x0a` timestamp (8 bytes, big-endian) | `{entries, bytes, endedMs}`: a section of the oplog, see [`crate::oplog::marks`] |
//!
//! Values are BSON documents, except those of `0x04` and `0x05`. The number of an index is that of its tree, so
//! indexes are listed in the order of their creation.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;

use frond_bson::{Doc, DocBuf, doc};

use super::records::{primary_index, unique_id};
use super::{Collection, Gate, Hooks, PlanCache, Shared, Uuid, View, uuid};
use crate::cluster_time::{ClusterTime, Times};
use crate::coordination::cluster::{owner_of, stage_end_of_build};
use crate::coordination::{Coordination, ServerId};
use crate::oplog;
use frond_error::ErrorCode;
use frond_query::paths::{MAX_KEY_FIELDS, MultikeyPaths};
use frond_storage::error::{Result, command, corrupt};
use frond_storage::index::Index;
use frond_storage::index::spec::IndexSpec;
use frond_storage::keyspace::{
    CATALOG_TREE, Direction, Durability, Engine, Snapshot, TreeId, TreeOptions, WriteSet,
};
use frond_storage::merge::{self, Counts};
use frond_storage::namespace::Namespace;
use frond_storage::options::CollectionOptions;
use frond_storage::record::LargeDocuments;

const FORMAT_KEY: &[u8] = &[1];
const FORMAT: i32 = 2;
/// The previous format, which is upgraded.
const FORMAT_BEFORE: i32 = 1;
pub(super) const COLLECTION: u8 = 2;
pub(super) const INDEX: u8 = 3;
pub(super) const COUNTER: u8 = merge::kind::COUNTER;
pub(super) const MULTIKEY: u8 = merge::kind::MULTIKEY;
const WORKING: u8 = 6;
const SESSIONS_KEY: &[u8] = &[8];

/// The key of a collection's entry.
fn collection_key(ns: &Namespace) -> Vec<u8> {
    let mut key = vec![COLLECTION];
    key.extend_from_slice(ns.db().as_bytes());
    key.push(0);
    key.extend_from_slice(ns.coll().as_bytes());
    key
}

/// The key of an entry about an index: [`INDEX`] or [`MULTIKEY`].
fn index_key(kind: u8, uuid: &Uuid, tree: TreeId) -> Vec<u8> {
    let mut key = vec![kind];
    key.extend_from_slice(uuid);
    key.extend_from_slice(&tree.0.to_be_bytes());
    key
}

/// The key of a collection's counter.
pub(crate) fn counter_key(uuid: &Uuid) -> [u8; 17] {
    let mut key = [COUNTER; 17];
    key[1..].copy_from_slice(uuid);
    key
}

/// Stores a collection's entry.
pub(super) fn put_collection(batch: &mut WriteSet, collection: &Collection) {
    let mut value = doc! {
        "uuid": uuid::value(&collection.uuid),
        "tree": i64::from(collection.primary.0),
    };
    if let Some(segments) = collection.segments {
        value.push("segments", i64::from(segments.0));
    }
    if let Some(changes) = collection.changes.filter(|_| shows_unfinished(collection)) {
        value.push("changes", i64::from(changes.0));
    }
    value.push("options", &collection.options);
    batch.put(
        CATALOG_TREE,
        &collection_key(&collection.ns),
        value.as_bytes(),
    );
}

/// Whether other servers follow work that is under way, and so read of it in the catalog. In one process the catalog on disk does not
/// know it.
pub(super) fn shows_unfinished(collection: &Collection) -> bool {
    collection.shared.coordination.has_others()
}

/// Stores that a collection notes its changes in another tree, or in none any more.
pub(super) fn put_changes(batch: &mut WriteSet, collection: &Collection) {
    if shows_unfinished(collection) {
        put_collection(batch, collection);
    }
}

/// Stores an index that is to take the place of another one. In one process the catalog on disk has only the other one, and
/// the trees of this one are dropped after a crash.
pub(super) fn put_replacement(batch: &mut WriteSet, collection: &Collection, index: &Index) {
    if shows_unfinished(collection) {
        put_index(batch, &collection.uuid, index);
        return;
    }
    for tree in index.trees() {
        put_working(batch, tree, &collection.shared.coordination);
    }
}

/// Removes a collection's entry.
pub(super) fn delete_collection(batch: &mut WriteSet, ns: &Namespace) {
    batch.delete(CATALOG_TREE, &collection_key(ns));
}

/// Adds a change to a collection's counter.
pub(crate) fn change_counter(batch: &mut WriteSet, uuid: &Uuid, change: Counts) {
    batch.merge(CATALOG_TREE, &counter_key(uuid), &change.to_bytes());
}

/// Replaces a collection's counter.
pub(crate) fn put_counter(batch: &mut WriteSet, uuid: &Uuid, counts: Counts) {
    batch.put(CATALOG_TREE, &counter_key(uuid), &counts.to_bytes());
}

/// Restores the format entry of a damaged catalog, and removes entries that cannot be read, so that it can be loaded.
pub(crate) fn repair(engine: &Engine) -> Result<()> {
    if !engine.has_tree(CATALOG_TREE)? {
        // An empty one is made when it is loaded.
        return Ok(());
    }
    let mut batch = WriteSet::new();
    batch.put(CATALOG_TREE, FORMAT_KEY, doc! {"format": FORMAT}.as_bytes());
    if session_tree(&engine.snapshot()).is_err() {
        batch.delete(CATALOG_TREE, SESSIONS_KEY);
    }
    if ClusterTime::open(engine, Times::new()).is_err() {
        batch.delete(CATALOG_TREE, ClusterTime::KEY);
    }
    // The documents that are left do not match the entries of the oplog.
    oplog::stage_removal(&mut batch, engine)?;
    engine.commit(batch, Durability::Logged)?;
    Ok(())
}

/// Removes a collection's counter.
pub(super) fn delete_counter(batch: &mut WriteSet, uuid: &Uuid) {
    batch.delete(CATALOG_TREE, &counter_key(uuid));
}

/// Stores an index's entry.
pub(super) fn put_index(batch: &mut WriteSet, uuid: &Uuid, index: &Index) {
    let mut value = doc! {
        "spec": &index.spec.doc,
        "tree": i64::from(index.tree.0),
        "ready": index.ready,
    };
    if !index.sides.is_empty() {
        value.push_array("sides", |sides| {
            for tree in &index.sides {
                sides.push(i64::from(tree.0));
            }
        });
    }
    if let Some(replaces) = index.replaces {
        value.push("replaces", i64::from(replaces.0));
    }
    let key = index_key(INDEX, uuid, index.tree);
    batch.put(CATALOG_TREE, &key, value.as_bytes());
}

/// Adds to the stored multikey paths of an index.
pub(crate) fn add_multikey(
    batch: &mut WriteSet,
    uuid: &Uuid,
    index: &Index,
    paths: &MultikeyPaths,
) {
    let key = index_key(MULTIKEY, uuid, index.tree);
    batch.merge(CATALOG_TREE, &key, &merge::multikey_bytes(paths));
}

/// The stored multikey paths of an index.
///
/// # Errors
/// If they are damaged or cannot be read.
pub(crate) fn read_multikey(
    snapshot: &Snapshot,
    uuid: &Uuid,
    tree: TreeId,
) -> Result<Option<MultikeyPaths>> {
    let stored = snapshot.get(CATALOG_TREE, &index_key(MULTIKEY, uuid, tree))?;
    let paths = stored.map(|stored| merge::read_multikey(&stored));
    paths.transpose().map_err(corrupt)
}

/// Removes an index's entries.
pub(super) fn delete_index(batch: &mut WriteSet, uuid: &Uuid, index: &Index) {
    for kind in [INDEX, MULTIKEY] {
        batch.delete(CATALOG_TREE, &index_key(kind, uuid, index.tree));
    }
    if !index.ready {
        stage_end_of_build(batch, uuid, index.tree);
    }
}

/// The key of the entry of a tree that a command needs while it runs.
fn working_key(tree: TreeId) -> Vec<u8> {
    let mut key = vec![WORKING];
    key.extend_from_slice(&tree.0.to_be_bytes());
    key
}

/// Notes that a tree is dropped after a crash, in the write set that creates it: with several servers, after the end of this one. It
/// never holds documents.
pub(super) fn put_working(batch: &mut WriteSet, tree: TreeId, coordination: &Coordination) {
    let entry = coordination.owned();
    batch.put(CATALOG_TREE, &working_key(tree), entry.as_bytes());
}

/// Ends that, in the write set that drops the tree or gives it to an index.
pub(super) fn delete_working(batch: &mut WriteSet, tree: TreeId) {
    batch.delete(CATALOG_TREE, &working_key(tree));
}

/// The trees of [`put_working`], and whose they are.
pub(super) fn working_trees(snapshot: &Snapshot) -> Result<Vec<(TreeId, Option<ServerId>)>> {
    let mut trees = Vec::new();
    for (key, entry) in scan(snapshot, WORKING)? {
        let tree: [u8; 4] = (key.try_into()).map_err(|_| corrupt("a catalog entry of a tree"))?;
        trees.push((TreeId(u32::from_be_bytes(tree)), owner_of(&entry)));
    }
    Ok(trees)
}

/// The tree of the records of sessions.
///
/// # Errors
/// If the entry is damaged.
pub(super) fn session_tree(snapshot: &Snapshot) -> Result<Option<TreeId>> {
    let Some(entry) = snapshot.get(CATALOG_TREE, SESSIONS_KEY)? else {
        return Ok(None);
    };
    let tree = Doc::validate(&entry)
        .ok()
        .and_then(|entry| tree_id(entry, "tree"));
    let tree = tree.ok_or_else(|| corrupt("the catalog entry of the records of sessions"))?;
    Ok(Some(tree))
}

/// Stores the entry of that tree.
pub(super) fn put_session_tree(batch: &mut WriteSet, tree: TreeId) {
    let entry = doc! {"tree": i64::from(tree.0)};
    batch.put(CATALOG_TREE, SESSIONS_KEY, entry.as_bytes());
}

/// Drops the trees of an index.
pub(super) fn drop_index_trees(batch: &mut WriteSet, index: &Index) {
    for tree in index.trees() {
        batch.drop_tree(tree);
        if index.replaces.is_some() {
            delete_working(batch, tree);
        }
    }
}

/// Reads the whole catalog.
pub(super) fn load(
    engine: &Engine,
    hooks: &Arc<Hooks>,
    large: LargeDocuments,
    is_member: bool,
) -> Result<View> {
    if !engine.has_tree(CATALOG_TREE)? {
        // A member of a replica set receives the catalog, or begins it when it leads.
        return if is_member {
            Ok(View::empty())
        } else {
            create(engine)
        };
    }
    let snapshot = engine.snapshot();
    let format = check_format(&snapshot)?;
    let mut upgrade = WriteSet::new();
    // A server must start on a full disk.
    upgrade.set_frees_space();
    let mut indexes = load_indexes(&snapshot)?;
    let mut view = View::empty();
    for (ns, entry) in scan(&snapshot, COLLECTION)? {
        let (db, coll) = ns
            .iter()
            .position(|&byte| byte == 0)
            .map(|at| (&ns[..at], &ns[at + 1..]))
            .ok_or_else(|| corrupt("the name of a collection in the catalog"))?;
        let name = |bytes| std::str::from_utf8(bytes).map_err(|_| corrupt("a name in the catalog"));
        let ns = Namespace::new(name(db)?, name(coll)?)?;
        let wrong = || corrupt(format!("the catalog entry of collection {ns}"));
        let uuid: Uuid = entry
            .get_binary("uuid")
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or_else(wrong)?;
        let options = entry.get_doc("options").ok_or_else(wrong)?.to_owned();
        let counter = snapshot.get(CATALOG_TREE, &counter_key(&uuid))?;
        let counts = match counter {
            Some(stored) => Counts::from_bytes(&stored).ok_or_else(wrong)?,
            None => Counts::default(),
        };
        let shared = Shared {
            gate: Gate::default(),
            hooks: hooks.clone(),
            large,
            ..Shared::default()
        };
        shared.set(counts);
        let settings = CollectionOptions::parse(&options)?;
        let primary = tree_id(&entry, "tree").ok_or_else(wrong)?;
        let mut segments = tree_id(&entry, "segments");
        let upgrades = format == FORMAT_BEFORE
            && !settings.is_by_record()
            && !ns.coll().starts_with("system.");
        if upgrades {
            segments = Some(engine.allocate_tree()?);
        }
        if settings.numbers_records() && engine.has_tree(primary)? {
            shared.records.load(&snapshot, primary)?;
        }
        let indexes = indexes.remove(&uuid).unwrap_or_default();
        let indexes = over_records(indexes, &settings);
        let collection = Collection {
            primary_key: primary_index(&settings, primary),
            settings: Arc::new(settings),
            primary,
            segments,
            indexes,
            changes: None,
            oplog: None,
            plans: PlanCache::default(),
            version: 0,
            shared: Arc::new(shared),
            ns,
            uuid,
            options,
        };
        if upgrades && let Some(segments) = segments {
            upgrade.create_tree(segments, &collection.settings.segments_tree());
            put_collection(&mut upgrade, &collection);
        }
        view.insert(Arc::new(collection));
    }
    if format == FORMAT_BEFORE {
        upgrade.put(CATALOG_TREE, FORMAT_KEY, doc! {"format": FORMAT}.as_bytes());
        engine.commit(upgrade, Durability::Logged)?;
    }
    Ok(view)
}

pub(super) fn tree_id(entry: &Doc, name: &str) -> Option<TreeId> {
    u32::try_from(entry.get_i64(name)?).ok().map(TreeId)
}

/// The view of a server that is not registered yet among the others: of no version. The first server begins the catalog.
pub(super) fn begin_shared(engine: &Engine) -> Result<View> {
    while !engine.has_tree(CATALOG_TREE)? {
        match create(engine) {
            // Another server was faster.
            Err(error) if error.is_conflict() => {}
            created => {
                created?;
            }
        }
    }
    check_format(&engine.snapshot())?;
    let mut view = View::empty();
    view.version = -1;
    Ok(view)
}

/// Begins the catalog, unless there is one.
pub(super) fn create_missing(engine: &Engine) -> Result<()> {
    if !engine.has_tree(CATALOG_TREE)? {
        create(engine)?;
    }
    Ok(())
}

/// The empty catalog of a new engine.
fn create(engine: &Engine) -> Result<View> {
    let mut batch = WriteSet::new();
    batch.create_tree(CATALOG_TREE, &TreeOptions::default());
    batch.put(CATALOG_TREE, FORMAT_KEY, doc! {"format": FORMAT}.as_bytes());
    engine.commit(batch, Durability::Logged)?;
    Ok(View::empty())
}

/// The format of the catalog, if this version can read it.
fn check_format(snapshot: &Snapshot) -> Result<i32> {
    let stored = snapshot.get(CATALOG_TREE, FORMAT_KEY)?;
    let format = stored.and_then(|entry| Doc::from_trusted(&entry).get_i32("format"));
    match format {
        Some(format @ (FORMAT | FORMAT_BEFORE)) => Ok(format),
        other => Err(command(
            ErrorCode::UnsupportedFormat,
            format!(
                "the catalog has format {}, this server reads format {FORMAT}",
                other.map_or("unknown".to_owned(), |format| format.to_string())
            ),
        )),
    }
}

fn load_indexes(snapshot: &Snapshot) -> Result<HashMap<Uuid, Vec<Arc<Index>>>> {
    let mut found: HashMap<Uuid, Vec<Arc<Index>>> = HashMap::new();
    for (key, entry) in scan(snapshot, INDEX)? {
        let wrong = || corrupt("the catalog entry of an index");
        let uuid: Uuid = key
            .get(..16)
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or_else(wrong)?;
        let tree = tree_id(&entry, "tree").ok_or_else(wrong)?;
        let multikey = match read_multikey(snapshot, &uuid, tree) {
            // Plans that expect an array in every field are correct for all documents. `validate` reports the damage.
            Err(error) if error.code() == ErrorCode::DataCorruptionDetected => {
                Some(MultikeyPaths::from_sets(vec![u32::MAX; MAX_KEY_FIELDS]))
            }
            multikey => multikey?,
        };
        let mut sides = Vec::new();
        for (_, side) in entry.get_array("sides").unwrap_or(Doc::empty()).iter() {
            let side = side
                .as_i64_lossless()
                .and_then(|side| u32::try_from(side).ok());
            sides.push(side.map(TreeId).ok_or_else(wrong)?);
        }
        let mut index = Index::new(
            unique_id(IndexSpec::parse(entry.get_doc("spec").ok_or_else(wrong)?)?),
            tree,
            entry.get_bool("ready").ok_or_else(wrong)?,
        );
        if let Some(paths) = multikey {
            index.add_multikey(&paths);
            index.stored_multikey(&paths);
        }
        index.sides = sides;
        found.entry(uuid).or_default().push(Arc::new(index));
    }
    Ok(found)
}

/// Indexes as they are in a collection with these options, on which the keys of their entries depend.
pub(super) fn over_records(
    indexes: Vec<Arc<Index>>,
    settings: &CollectionOptions,
) -> Vec<Arc<Index>> {
    let records = settings.records();
    let all = indexes.into_iter().map(|index| {
        if index.spec.records == *records {
            return index;
        }
        Arc::new(index.with_spec(index.spec.clone().over(records)))
    });
    all.collect()
}

/// All entries of one kind: the key without its kind, and the document.
pub(super) fn scan(snapshot: &Snapshot, kind: u8) -> Result<Vec<(Vec<u8>, DocBuf)>> {
    let mut cursor = snapshot.cursor(
        CATALOG_TREE,
        Bound::Included(&[kind]),
        Bound::Excluded(&[kind + 1]),
        Direction::Forward,
    )?;
    let mut found = Vec::new();
    while let Some((key, value)) = cursor.next()? {
        let entry = DocBuf::from_vec(value.to_vec())
            .map_err(|error| corrupt(format!("a catalog entry: {error}")))?;
        found.push((key.get(1..).unwrap_or_default().to_vec(), entry));
    }
    Ok(found)
}
