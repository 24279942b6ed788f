//! Reads the catalog that other servers have changed, or the leader of this one's replica set. What is the same stays as it is in memory, with its gate, its statistics
//! and its plans.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use frond_bson::{Doc, DocBuf};
use frond_query::paths::{MAX_KEY_FIELDS, MultikeyPaths};

use super::persist::{COLLECTION, INDEX, MULTIKEY, over_records, scan, tree_id};
use super::records::{primary_index, unique_id};
use super::{Collection, Gate, Hooks, PlanCache, Shared, Uuid, View, definitions};
use crate::coordination::Coordination;
use frond_storage::error::{Result, corrupt};
use frond_storage::index::Index;
use frond_storage::index::spec::IndexSpec;
use frond_storage::keyspace::{CATALOG_TREE, Direction, Snapshot, TreeId};
use frond_storage::merge;
use frond_storage::namespace::Namespace;
use frond_storage::options::CollectionOptions;
use frond_storage::record::LargeDocuments;

/// The stored multikey paths of all indexes, by their trees.
fn multikey(snapshot: &Snapshot) -> Result<HashMap<TreeId, MultikeyPaths>> {
    let mut cursor = snapshot.cursor(
        CATALOG_TREE,
        Bound::Included(&[MULTIKEY]),
        Bound::Excluded(&[MULTIKEY + 1]),
        Direction::Forward,
    )?;
    let mut found = HashMap::new();
    while let Some((key, value)) = cursor.next()? {
        let tree = key.get(17..).and_then(|tree| tree.try_into().ok());
        let tree = tree.ok_or_else(|| corrupt("the catalog entry of multikey paths"))?;
        // Plans that expect an array in every field are correct for all documents. `validate` reports the damage.
        let paths = merge::read_multikey(value)
            .unwrap_or_else(|_| MultikeyPaths::from_sets(vec![u32::MAX; MAX_KEY_FIELDS]));
        found.insert(TreeId(u32::from_be_bytes(tree)), paths);
    }
    Ok(found)
}

/// The trees in an entry.
fn trees(entry: &Doc, name: &str) -> Option<Vec<TreeId>> {
    let trees = entry.get_array(name).unwrap_or(Doc::empty()).values();
    let tree = |value: frond_bson::Value<'_>| u32::try_from(value.as_i64_lossless()?).ok();
    trees.map(|value| tree(value).map(TreeId)).collect()
}

/// An index as it is stored: the one that is in memory, if nothing has changed but its multikey paths.
fn index(
    entry: &Doc,
    before: Option<&Arc<Index>>,
    multikey: &HashMap<TreeId, MultikeyPaths>,
) -> Result<Arc<Index>> {
    let wrong = || corrupt("the catalog entry of an index");
    let tree = tree_id(entry, "tree").ok_or_else(wrong)?;
    let spec = entry.get_doc("spec").ok_or_else(wrong)?;
    let ready = entry.get_bool("ready").ok_or_else(wrong)?;
    let sides = trees(entry, "sides").ok_or_else(wrong)?;
    let replaces = tree_id(entry, "replaces");
    let is_same = |index: &&Arc<Index>| {
        index.ready == ready
            && index.sides == sides
            && index.replaces == replaces
            && *index.spec.doc == *spec
    };
    let index = match before.filter(is_same) {
        Some(same) => same.clone(),
        None => {
            let mut index = Index::new(unique_id(IndexSpec::parse(spec)?), tree, ready);
            index.sides = sides;
            index.replaces = replaces;
            if let Some(before) = before {
                index.add_multikey(&before.multikey());
            }
            Arc::new(index)
        }
    };
    if let Some(paths) = multikey.get(&tree)
        && !index.is_multikey_stored(paths)
    {
        index.add_multikey(paths);
        index.stored_multikey(paths);
    }
    Ok(index)
}

/// Whether two definitions are the same. Their indexes are, if they are the same objects.
fn is_same(before: &Collection, after: &Collection) -> bool {
    let same_indexes = || {
        let mut both = before.indexes.iter().zip(&after.indexes);
        before.indexes.len() == after.indexes.len() && both.all(|(a, b)| Arc::ptr_eq(a, b))
    };
    before.ns == after.ns
        && *before.options == *after.options
        && before.primary == after.primary
        && before.segments == after.segments
        && before.changes == after.changes
        && same_indexes()
}

/// The indexes of a collection in the order in which they were created: those that are known first.
fn in_order(mut indexes: Vec<Arc<Index>>, before: Option<&Arc<Collection>>) -> Vec<Arc<Index>> {
    if let Some(before) = before {
        let place = |index: &Arc<Index>| {
            let mut known = before.indexes.iter();
            known
                .position(|other| other.tree == index.tree)
                .unwrap_or(usize::MAX)
        };
        indexes.sort_by_key(place);
    }
    indexes
}

/// Reads all collections and views in a snapshot. `before` is the view in memory.
pub(super) fn load(
    snapshot: &Snapshot,
    before: &View,
    hooks: &Arc<Hooks>,
    large: LargeDocuments,
    coordination: &Coordination,
) -> Result<View> {
    let known: HashMap<Uuid, &Arc<Collection>> = (before.iter())
        .map(|collection| (collection.uuid, collection))
        .collect();
    let known_indexes: HashMap<TreeId, &Arc<Index>> = (before.iter())
        .flat_map(|collection| &collection.indexes)
        .map(|index| (index.tree, index))
        .collect();
    let multikey = multikey(snapshot)?;
    let mut indexes: HashMap<Uuid, Vec<Arc<Index>>> = HashMap::new();
    for (key, entry) in scan(snapshot, INDEX)? {
        let uuid = key.get(..16).and_then(|uuid| uuid.try_into().ok());
        let uuid: Uuid = uuid.ok_or_else(|| corrupt("the catalog entry of an index"))?;
        let tree = tree_id(&entry, "tree");
        let before = tree.and_then(|tree| known_indexes.get(&tree).copied());
        let index = index(&entry, before, &multikey)?;
        indexes.entry(uuid).or_default().push(index);
    }
    let mut view = View::empty();
    for (name, entry) in scan(snapshot, COLLECTION)? {
        let collection = collection(&name, &entry, &known, &mut indexes, || Shared {
            gate: Gate::default(),
            epoch: AtomicU64::new(0),
            hooks: hooks.clone(),
            large,
            coordination: coordination.clone(),
            ..Shared::default()
        })?;
        if !coordination.has_others() && !known.contains_key(&collection.uuid) {
            collection.set_counts(collection.stored_counts(snapshot)?);
        }
        view.insert(collection);
    }
    definitions::load(snapshot, &mut view)?;
    Ok(view)
}

fn collection(
    name: &[u8],
    entry: &DocBuf,
    known: &HashMap<Uuid, &Arc<Collection>>,
    indexes: &mut HashMap<Uuid, Vec<Arc<Index>>>,
    new: impl FnOnce() -> Shared,
) -> Result<Arc<Collection>> {
    let mut parts = name.splitn(2, |&byte| byte == 0);
    let mut part = || {
        let part = std::str::from_utf8(parts.next()?).ok()?;
        Some(part)
    };
    let wrong_name = || corrupt("the name of a collection in the catalog");
    let (db, coll) = part().zip(part()).ok_or_else(wrong_name)?;
    let ns = Namespace::new(db, coll)?;
    let wrong = || corrupt(format!("the catalog entry of collection {ns}"));
    let uuid = entry.get_binary("uuid");
    let uuid: Uuid = uuid
        .and_then(|uuid| uuid.try_into().ok())
        .ok_or_else(wrong)?;
    let options = entry.get_doc("options").ok_or_else(wrong)?.to_owned();
    let primary = tree_id(entry, "tree").ok_or_else(wrong)?;
    let (segments, changes) = (tree_id(entry, "segments"), tree_id(entry, "changes"));
    let before = known.get(&uuid).copied();
    let settings = match before.filter(|before| *before.options == *options) {
        Some(before) => before.settings.clone(),
        None => Arc::new(CollectionOptions::parse(&options)?),
    };
    let (version, shared) = match before {
        Some(before) => (before.version + 1, before.shared.clone()),
        None => (0, Arc::new(new())),
    };
    let found = over_records(indexes.remove(&uuid).unwrap_or_default(), &settings);
    let primary_key = match before {
        Some(before) if before.primary == primary => before.primary_key.clone(),
        _ => primary_index(&settings, primary),
    };
    let after = Collection {
        primary_key,
        indexes: in_order(found, before),
        ns,
        uuid,
        options,
        settings,
        primary,
        segments,
        changes,
        oplog: None,
        plans: PlanCache::default(),
        version,
        shared,
    };
    Ok(match before {
        Some(before) if is_same(before, &after) => before.clone(),
        _ => Arc::new(after),
    })
}
