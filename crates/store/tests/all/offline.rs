//! Verifying and salvaging directories of collections.
#![allow(clippy::unwrap_used)]

use crate::common;

use std::path::Path;

use common::{INSERT, ns, open_with};
use frond_bson::{Doc, DocBuf, Timestamp, doc};
use frond_store::keyspace::{CATALOG_TREE, TreeId, WriteSet};
use frond_store::{
    DeleteRequest, DocumentStore, Durability, EngineOptions, FindRequest, InsertOptions, OpContext,
    OplogSettings, offline,
};

fn open(path: &Path) -> DocumentStore {
    open_with(EngineOptions::new(path))
}

/// A closed store of two collections with indexes.
fn fill(path: &Path) {
    let store = open(path);
    for (name, documents) in [("shop.orders", 3000), ("shop.people", 50)] {
        let indexes = [
            doc! {"key": doc!{"n": 1}, "name": "n_1"},
            doc! {"key": doc!{"tags": 1, "n": -1}, "name": "tags_1_n_-1"},
            doc! {"key": doc!{"u": 1}, "name": "u_1", "unique": true},
        ];
        let indexes: Vec<&Doc> = indexes.iter().map(|index| &**index).collect();
        store.create_indexes(&ns(name), &indexes).unwrap();
        let docs: Vec<DocBuf> = (0..documents)
            .map(|number| {
                let t = Timestamp::default();
                let mut doc = doc! {"_id": number, "n": number % 7, "u": number, "t": t};
                doc.push_array("tags", |tags| {
                    tags.push("a");
                    tags.push(number % 3);
                });
                doc
            })
            .collect();
        let docs: Vec<&Doc> = docs.iter().map(|doc| &**doc).collect();
        let options = InsertOptions {
            keep_empty_timestamps: true,
            ..INSERT
        };
        assert_eq!(
            store.insert(&ns(name), &docs, options).unwrap().inserted,
            documents as usize
        );
    }
    store.engine().close().unwrap();
}

fn find(store: &DocumentStore, name: &str, filter: &Doc) -> usize {
    let request = FindRequest {
        filter: Some(filter),
        ..FindRequest::default()
    };
    let mut cursor = store.find(&ns(name), &request, &OpContext::new()).unwrap();
    let mut found = 0;
    while cursor.next().unwrap().is_some() {
        found += 1;
    }
    found
}

/// Makes one change to a directory's trees without the document store.
fn change(path: &Path, change: impl FnOnce(&DocumentStore, &mut WriteSet)) {
    let store = open(path);
    let mut batch = WriteSet::new();
    change(&store, &mut batch);
    store.engine().commit(batch, Durability::Synced).unwrap();
    store.engine().close().unwrap();
}

fn tree_of(store: &DocumentStore, name: &str) -> TreeId {
    store.catalog().collection(&ns(name)).unwrap().primary
}

#[test]
fn an_undamaged_directory_is_sound_and_salvaged_completely() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    fill(&from);
    let report = offline::verify(&from, &mut |_| {}).unwrap();
    assert_eq!(report.problems(), 0, "{report:?}");
    assert_eq!(report.collections.len(), 2);
    assert_eq!(report.collections[0].1.documents, 3000);
    assert_eq!(report.collections[0].1.indexes.len(), 4);
    let salvaged = offline::salvage(&from, &to, &mut |_| {}).unwrap();
    assert!(salvaged.is_whole(), "{salvaged:?}");
    let report = offline::verify(&to, &mut |_| {}).unwrap();
    assert_eq!(report.problems(), 0, "{report:?}");
    assert_eq!(report.collections[0].1.indexes.len(), 4);
    assert_eq!(find(&open(&to), "shop.orders", &doc! {"tags": 2}), 1000);
    assert!(
        offline::salvage(&from, &to, &mut |_| {}).is_err(),
        "over a store"
    );
    assert!(
        offline::verify(directory.path(), &mut |_| {}).is_err(),
        "no store"
    );
}

#[test]
fn a_wrong_index_is_found_and_rebuilt() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    fill(&from);
    change(&from, |store, batch| {
        let collection = store.catalog().collection(&ns("shop.people")).unwrap();
        batch.put(collection.index("n_1").unwrap().tree, b"nonsense", b"");
        // A value that is not a document.
        batch.put(collection.primary, b"key", b"nonsense");
    });
    let report = offline::verify(&from, &mut |_| {}).unwrap();
    assert!(
        report.engine.is_sound() && report.problems() > 1,
        "{report:?}"
    );
    let salvaged = offline::salvage(&from, &to, &mut |_| {}).unwrap();
    assert_eq!(salvaged.collections[1].dropped, 1);
    assert_eq!(salvaged.collections[1].documents, 50);
    let report = offline::verify(&to, &mut |_| {}).unwrap();
    assert_eq!(report.problems(), 0, "{report:?}");
}

#[test]
fn documents_without_a_catalog_are_kept() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    fill(&from);
    let mut orders = TreeId(0);
    change(&from, |store, batch| {
        orders = tree_of(store, "shop.orders");
        batch.drop_tree(CATALOG_TREE);
    });
    let salvaged = offline::salvage(&from, &to, &mut |_| {}).unwrap();
    assert!(!salvaged.is_whole() && salvaged.collections.len() == 2);
    assert_eq!(offline::verify(&to, &mut |_| {}).unwrap().problems(), 0);
    let name = format!("salvaged.tree_{}", orders.0);
    let store = open(&to);
    assert_eq!(find(&store, &name, &doc! {"n": 1}), 429);
    // Documents are unchanged: empty timestamps were not replaced.
    let empty = doc! {"t": Timestamp::default()};
    assert_eq!(find(&store, &name, &empty), 3000);
}

#[test]
fn damage_is_found_and_the_rest_is_salvaged() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    fill(&from);
    let path = from.join("data.frond");
    let mut bytes = std::fs::read(&path).unwrap();
    for at in (8192..bytes.len()).step_by(bytes.len() / 6) {
        bytes[at] ^= 1;
    }
    std::fs::write(&path, bytes).unwrap();
    let report = offline::verify(&from, &mut |_| {}).unwrap();
    assert!(!report.engine.is_sound(), "{report:?}");
    let salvaged = offline::salvage(&from, &to, &mut |_| {}).unwrap();
    assert!(!salvaged.is_whole(), "{salvaged:?}");
    let report = offline::verify(&to, &mut |_| {}).unwrap();
    assert_eq!(report.problems(), 0, "{report:?}");
}

#[test]
fn capped_collections_and_views_are_salvaged() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    let log = ns("shop.log");
    let store = open(&from);
    let options = doc! {"capped": true, "size": 1 << 20, "max": 40};
    store.create_collection(&log, &options).unwrap();
    let docs: Vec<DocBuf> = (0..50).rev().map(|number| doc! {"_id": number}).collect();
    let docs: Vec<&Doc> = docs.iter().map(|doc| &**doc).collect();
    store.insert(&log, &docs, INSERT).unwrap();
    let view = doc! {"viewOn": "log", "pipeline": [{"$match": {"_id": {"$lt": 5}}}]};
    store.create_collection(&ns("shop.late"), &view).unwrap();
    store.engine().close().unwrap();
    drop(store);
    let mut primary = TreeId(0);
    change(&from, |store, batch| {
        let collection = store.catalog().collection(&log).unwrap();
        primary = collection.primary;
        batch.put(collection.index("_id_").unwrap().tree, b"nonsense", b"");
        batch.put(primary, b"key", b"nonsense");
    });
    assert!(offline::verify(&from, &mut |_| {}).unwrap().problems() > 0);
    let salvaged = offline::salvage(&from, &to, &mut |_| {}).unwrap();
    let of_log = &salvaged.collections[0];
    assert_eq!((of_log.documents, of_log.dropped), (40, 1));
    let report = offline::verify(&to, &mut |_| {}).unwrap();
    assert_eq!(report.problems(), 0, "{report:?}");
    let store = open(&to);
    assert_eq!(find(&store, "shop.late", &doc! {}), 5);
    let mut cursor = store
        .find(&log, &FindRequest::default(), &OpContext::new())
        .unwrap();
    assert_eq!(cursor.next().unwrap(), Some(doc! {"_id": 39}));
    let again = store.insert(&log, &[&doc! {"_id": 7}], INSERT).unwrap();
    assert_eq!(again.inserted, 0);
    store.engine().close().unwrap();
    drop((cursor, store));

    // Without the catalog, documents under record ids are documents too.
    let bare = directory.path().join("bare");
    change(&to, |_, batch| batch.drop_tree(CATALOG_TREE));
    offline::salvage(&to, &bare, &mut |_| {}).unwrap();
    let name = format!("salvaged.tree_{}", primary.0);
    assert_eq!(find(&open(&bare), &name, &doc! {}), 40);
}

#[test]
fn a_salvaged_store_has_no_oplog() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    let store = open(&from);
    store
        .turn_on_oplog(OplogSettings {
            bytes_max: 1 << 20,
            min_retention_hours: 0.0,
        })
        .unwrap();
    let images = doc! {"changeStreamPreAndPostImages": {"enabled": true}};
    store.create_collection(&ns("shop.c"), &images).unwrap();
    let document = doc! {"_id": 1};
    store.insert(&ns("shop.c"), &[&document], INSERT).unwrap();
    let delete = DeleteRequest {
        filter: &document,
        limit_one: true,
        hint: None,
        variables: None,
        collation: None,
    };
    let context = OpContext::new();
    store
        .delete(&ns("shop.c"), &delete, Durability::Logged, &context)
        .unwrap();
    store.engine().close().unwrap();
    drop(store);
    let report = offline::verify(&from, &mut |_| {}).unwrap();
    assert_eq!(report.errors, Vec::<String>::new());
    let salvaged = offline::salvage(&from, &to, &mut |_| {}).unwrap();
    assert!(salvaged.is_whole(), "{salvaged:?}");
    let names: Vec<&str> = (salvaged.collections.iter())
        .map(|one| one.ns.as_str())
        .collect();
    assert_eq!(names, ["shop.c"]);
    let store = open(&to);
    assert!(!store.oplog().is_on());
    let trees = store.engine().trees().unwrap().len();
    // Those of the catalog and of the collection.
    assert_eq!(trees, 3);
}
