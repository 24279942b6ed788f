//! An update writes only those entries of indexes that differ.
#![allow(clippy::unwrap_used)]

use frond_bson::{DocBuf, Value, doc};

use super::*;
use crate::store::{DocumentStore, StoreOptions};
use crate::write::insert::InsertOptions;
use frond_storage::keyspace::EngineOptions;
use frond_storage::namespace::Namespace;

/// Writes into indexes when the document `{_id: 1}` changes.
fn writes(index: &DocBuf, old: &Doc, new: &Doc, touched: &str) -> usize {
    let directory = tempfile::tempdir().unwrap();
    let mut options = EngineOptions::new(directory.path());
    options.cache_bytes = 32 << 20;
    let store = DocumentStore::open_engine(options, StoreOptions::default()).unwrap();
    let ns = Namespace::parse("db.c").unwrap();
    store.create_indexes(&ns, &[index]).unwrap();
    let options = InsertOptions {
        ordered: true,
        durability: Durability::Logged,
        bypass_validation: false,
        keep_empty_timestamps: false,
    };
    let outcome = store.insert(&ns, &[old], options).unwrap();
    assert_eq!(outcome.inserted, 1);
    let (collection, snapshot) = store.catalog().read(&ns).unwrap().unwrap();
    let mut buffers = Buffers::default();
    let mut staging = Staging::new(store.catalog(), &collection, snapshot, &mut buffers);
    let mut key = Vec::new();
    frond_bson::key::encode(&Value::Int32(1), &mut key);
    let below = |path: &str| {
        let relative = |a: &str, b: &str| a == b || a.starts_with(&format!("{b}."));
        relative(path, touched) || relative(touched, path)
    };
    let updated = Updated {
        touches: &below,
        how: How::Replaced,
    };
    let staged = staging.update(&key, old, None, new, updated).unwrap();
    assert_eq!(staged, Staged::Done);
    // The document itself is one of them.
    staging.batch.len() - 1
}

#[test]
fn an_update_writes_only_the_entries_that_differ() {
    let old = doc! {"_id": 1, "a": [1, 2, 3], "h": 5, "d": {"x": 1, "y": [1, 2]}, "z": 0};
    let (other, array, hashed, inner) = (
        doc! {"_id": 1, "a": [1, 2, 3], "h": 5, "d": {"x": 1, "y": [1, 2]}, "z": 1},
        doc! {"_id": 1, "a": [1, 3, 4], "h": 5, "d": {"x": 1, "y": [1, 2]}, "z": 0},
        doc! {"_id": 1, "a": [1, 2, 3], "h": 6, "d": {"x": 1, "y": [1, 2]}, "z": 0},
        doc! {"_id": 1, "a": [1, 2, 3], "h": 5, "d": {"x": 1, "y": [1, 3]}, "z": 0},
    );
    let ordered = doc! {"key": {"a": 1, "h": 1}};
    let hash = doc! {"key": {"a": 1, "h": "hashed"}};
    let wildcard = doc! {"key": {"$**": 1}};
    let below = doc! {"key": {"h": 1, "d.$**": 1}};
    let clustering = doc! {"key": {"a": 1}, "clustering": true};
    for (index, new, touched, expected) in [
        (&ordered, &other, "z", 0),
        (&ordered, &array, "a", 2),
        (&ordered, &hashed, "h", 6),
        (&hash, &other, "z", 0),
        (&hash, &array, "a", 2),
        (&hash, &hashed, "h", 6),
        // Another number with the same hash.
        (&hash, &doc! {"_id": 1, "a": [1, 2, 3], "h": 5.5}, "h", 0),
        (&wildcard, &other, "z", 2),
        (&wildcard, &array, "a", 2),
        (&wildcard, &inner, "d.y", 2),
        (&below, &other, "z", 0),
        (&below, &inner, "d.y", 2),
        (&below, &hashed, "h", 6),
        // Every entry holds the document.
        (&clustering, &other, "z", 3),
        (&clustering, &array, "a", 4),
    ] {
        assert_eq!(
            writes(index, &old, new, touched),
            expected,
            "{index:?} {touched}"
        );
    }
}
