//! The catalog of collections, with one entry replaced: the names and options of collections, indexes, views and counters.

use std::collections::BTreeMap;
use std::ops::Bound::Unbounded;
use std::sync::{Arc, LazyLock};

use frond_bson::{Doc, DocBuf, doc, extjson};
use frond_store::keyspace::{CATALOG_TREE, Direction, WriteSet};
use frond_store::{
    DocumentStore, Durability, Engine, EngineOptions, FindRequest, InsertOptions, Namespace,
    OpContext, StoreOptions, merge_operator,
};
use frond_tree::disk::Disk;

use crate::memory_disk::MemoryDisk;

const INSERT: InsertOptions = InsertOptions {
    ordered: false,
    durability: Durability::Logged,
    bypass_validation: false,
    keep_empty_timestamps: false,
};

/// Options of collections and their indexes.
const COLLECTIONS: [(&str, &str, &[&str]); 5] = [
    (
        "plain",
        r#"{"collation": {"locale": "en"}}"#,
        &[r#"{"key": {"a": 1}, "name": "a"}"#],
    ),
    (
        "indexed",
        "{}",
        &[
            r#"{"key": {"a": 1, "b": -1}, "name": "ab", "unique": true, "sparse": true}"#,
            r#"{"key": {"t": "text"}, "name": "t", "weights": {"t": 3}}"#,
            r#"{"key": {"w.$**": 1}, "name": "w"}"#,
            r#"{"key": {"d": 1}, "name": "ttl", "expireAfterSeconds": 10}"#,
            r#"{"key": {"g": "2dsphere"}, "name": "g"}"#,
        ],
    ),
    ("capped", r#"{"capped": true, "size": 4096, "max": 3}"#, &[]),
    ("valid", r#"{"validator": {"a": {"$type": "int"}}}"#, &[]),
    (
        "view",
        r#"{"viewOn": "plain", "pipeline": [{"$match": {"a": 1}}]}"#,
        &[],
    ),
];

struct Image {
    files: BTreeMap<String, Vec<u8>>,
    /// Keys and values of the catalog's tree.
    entries: Vec<(Vec<u8>, Vec<u8>)>,
}

static IMAGE: LazyLock<Image> = LazyLock::new(|| {
    let disk = MemoryDisk::default();
    let engine = Engine::open(options(disk.clone())).expect("a new engine");
    let store = DocumentStore::open(engine.clone(), StoreOptions::default()).expect("a store");
    for (name, options, indexes) in COLLECTIONS {
        let options = extjson::parse(options).expect("options");
        store
            .create_collection(&namespace(name), &options)
            .expect("a collection");
        let parsed = indexes
            .iter()
            .map(|index| extjson::parse(index).expect("an index"));
        let parsed: Vec<DocBuf> = parsed.collect();
        let indexes: Vec<&Doc> = parsed.iter().map(|index| &**index).collect();
        if !indexes.is_empty() {
            assert!(store.create_indexes(&namespace(name), &indexes).is_ok());
        }
        let document = doc! {"_id": 1, "a": 1, "t": "words"};
        let _ = store.insert(&namespace(name), &[&document], INSERT);
    }
    let mut entries = Vec::new();
    let snapshot = engine.snapshot();
    let mut cursor = snapshot
        .cursor(CATALOG_TREE, Unbounded, Unbounded, Direction::Forward)
        .expect("a cursor");
    while let Some((key, value)) = cursor.next().expect("an entry") {
        entries.push((key.to_vec(), value.to_vec()));
    }
    drop((cursor, snapshot, store));
    engine.close().expect("a clean end");
    let names = disk.list().expect("names");
    let files = names
        .into_iter()
        .map(|name| (name.clone(), disk.bytes(&name)));
    Image {
        files: files.collect(),
        entries,
    }
});

fn options(disk: MemoryDisk) -> EngineOptions {
    let mut options = EngineOptions::with_disk(Arc::new(disk));
    options.cache_bytes = 16 << 20;
    options.inline = true;
    options.merge = merge_operator();
    options
}

fn namespace(name: &str) -> Namespace {
    Namespace::parse(&format!("fuzz.{name}")).expect("a name")
}

/// The number of an entry, and its value.
pub fn seeds() -> Vec<Vec<u8>> {
    let entries = IMAGE.entries.iter().enumerate();
    entries
        .map(|(number, (_, value))| [&[number as u8], &value[..]].concat())
        .collect()
}

/// Replaces the value of an entry, and uses what opens.
pub fn run(input: &[u8]) {
    let Some((number, value)) = input.split_first() else {
        return;
    };
    let (key, _) = &IMAGE.entries[usize::from(*number) % IMAGE.entries.len()];
    let engine =
        Engine::open(options(MemoryDisk::with(&IMAGE.files))).expect("the engine is sound");
    let mut set = WriteSet::new();
    set.put(CATALOG_TREE, key, value);
    engine.commit(set, Durability::Logged).expect("a commit");
    if let Ok(store) = DocumentStore::open(engine.clone(), StoreOptions::default()) {
        for (name, ..) in COLLECTIONS {
            use_collection(&store, &namespace(name));
        }
        let dropped = store.drop_collection(&namespace("indexed"));
        drop(dropped);
    }
    let _ = engine.close();
}

fn use_collection(store: &DocumentStore, ns: &Namespace) {
    let new = doc! {"_id": 2, "a": 2, "b": [1, 2], "t": "word", "w": {"x": 1}};
    let _ = store.insert(ns, &[&new], INSERT);
    let filter = doc! {"a": {"$gte": 1}};
    let request = FindRequest {
        filter: Some(&filter),
        ..FindRequest::default()
    };
    if let Ok(mut cursor) = store.find(ns, &request, &OpContext::new()) {
        for _ in 0..10 {
            if !matches!(cursor.next(), Ok(Some(_))) {
                break;
            }
        }
    }
    let _ = store.verify(ns);
}
