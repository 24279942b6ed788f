//! The changes of the catalog that operations make, as an audit sees them.
#![allow(clippy::unwrap_used)]

use crate::common;

use common::{Fixture, INSERT, ns};
use frond_bson::{Doc, DocBuf, doc};
use frond_store::{CatalogChange, DocumentStore, IndexSelector, IndexState, noting_changes};

/// Too many documents for indexes to be filled in the commit that registers them.
const DOCUMENTS: i32 = 20_000;

/// The changes of an operation, in short words.
fn changes<T>(operation: impl FnOnce() -> T) -> Vec<String> {
    let (_, noted) = noting_changes(operation);
    noted.iter().map(shown).collect()
}

fn shown(change: &CatalogChange) -> String {
    match change {
        CatalogChange::DatabaseCreated(db) => format!("database {db}"),
        CatalogChange::CollectionCreated(ns) => format!("created {ns}"),
        CatalogChange::CollectionDropped(ns) => format!("dropped {ns}"),
        CatalogChange::CollectionRenamed { from, to } => format!("renamed {from} {to}"),
        CatalogChange::ViewCreated(view) => format!("view {} on {}", view.ns, view.on),
        CatalogChange::ViewDropped(view) => format!("no view {}", view.ns),
        CatalogChange::Index(state, index) => {
            let state = match state {
                IndexState::Started => "started",
                IndexState::Succeeded => "succeeded",
                IndexState::Aborted => "aborted",
            };
            format!("index {} {} {state}", index.ns, index.name)
        }
        CatalogChange::IndexDropped(index) => format!("no index {} {}", index.ns, index.name),
    }
}

fn insert(store: &DocumentStore, name: &str, documents: &[DocBuf]) {
    let documents: Vec<&Doc> = documents.iter().map(|one| &**one).collect();
    store.insert(&ns(name), &documents, INSERT).unwrap();
}

#[test]
fn each_change_is_noted_with_its_operation_only() {
    let f = Fixture::new();
    let store = &f.store;
    let created = changes(|| insert(store, "a.c", &[doc! {"_id": 1, "x": 1}]));
    assert_eq!(
        created,
        ["database a", "created a.c", "index a.c _id_ succeeded"]
    );
    assert_eq!(
        changes(|| insert(store, "a.c", &[doc! {"_id": 2, "x": 1}])),
        [""; 0]
    );
    let index = doc! {"key": {"x": 1}, "name": "x"};
    let built = changes(|| store.create_indexes(&ns("a.c"), &[&index]).unwrap());
    assert_eq!(built, ["index a.c x started", "index a.c x succeeded"]);
    assert_eq!(
        changes(|| store.create_indexes(&ns("a.c"), &[&index]).unwrap()),
        [""; 0]
    );
    let dropped = changes(|| {
        store
            .drop_indexes(&ns("a.c"), &IndexSelector::Name("x".into()))
            .unwrap()
    });
    assert_eq!(dropped, ["no index a.c x"]);
    let view = doc! {"viewOn": "c", "pipeline": []};
    let made = changes(|| store.create_collection(&ns("a.v"), &view).unwrap());
    assert_eq!(made.last().map(String::as_str), Some("view a.v on a.c"));
    assert_eq!(
        changes(|| store.drop_collection(&ns("a.v")).unwrap()),
        ["no view a.v"]
    );
    // Into another database, which begins with it; over a collection that is there.
    let renamed = changes(|| {
        store
            .rename_collection(&ns("a.c"), &ns("b.c"), false)
            .unwrap()
    });
    assert_eq!(renamed, ["database b", "renamed a.c b.c"]);
    insert(store, "b.d", &[doc! {"_id": 1}]);
    let renamed = changes(|| {
        store
            .rename_collection(&ns("b.c"), &ns("b.d"), true)
            .unwrap()
    });
    assert_eq!(renamed, ["dropped b.d", "renamed b.c b.d"]);
    // Another thread's changes are its own.
    let other = changes(|| {
        std::thread::scope(|scope| {
            scope.spawn(|| insert(store, "a.other", &[doc! {"_id": 1}]));
        });
    });
    assert_eq!(other, [""; 0]);
    // An operation inside of another one has its own notes.
    let outer = changes(|| {
        let inner = changes(|| store.create_collection(&ns("a.e"), Doc::empty()).unwrap());
        assert_eq!(inner.len(), 2);
        store.drop_collection(&ns("a.e")).unwrap();
    });
    assert_eq!(outer, ["dropped a.e"]);
}

#[test]
fn a_build_over_many_documents_starts_and_ends() {
    let f = Fixture::new();
    let store = &f.store;
    let documents: Vec<DocBuf> = (0..DOCUMENTS)
        .map(|n| doc! {"_id": n, "u": n / 2})
        .collect();
    for part in documents.chunks(1000) {
        insert(store, "a.c", part);
    }
    let plain = doc! {"key": {"u": 1}, "name": "u"};
    let built = changes(|| store.create_indexes(&ns("a.c"), &[&plain]).unwrap());
    assert_eq!(built, ["index a.c u started", "index a.c u succeeded"]);
    let unique = doc! {"key": {"u": -1}, "name": "unique", "unique": true};
    let failed = changes(|| store.create_indexes(&ns("a.c"), &[&unique]).unwrap_err());
    assert_eq!(
        failed,
        ["index a.c unique started", "index a.c unique aborted"]
    );
}
