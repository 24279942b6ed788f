//! The work of a leader in the tests, and all that a member shows of it.

use frond_bson::{Doc, DocBuf, Timestamp, Value, doc};

use crate::catalog::IndexSelector;
use crate::{
    DeleteRequest, DocumentStore, Durability, FindRequest, InsertOptions, Namespace, OpContext,
    OplogSettings, UpdateRequest,
};

pub(super) const SETTINGS: OplogSettings = OplogSettings {
    bytes_max: 64 << 20,
    min_retention_hours: 0.0,
};

pub(super) fn copy_files(from: &std::path::Path, to: &std::path::Path) {
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        if file.file_type().unwrap().is_file() {
            std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
    }
}

pub(super) fn entries(store: &DocumentStore, after: Timestamp) -> Vec<DocBuf> {
    store.flush_log().unwrap();
    let filter = doc! {"ts": {"$gt": after}};
    let request = FindRequest {
        filter: Some(&filter),
        ..FindRequest::default()
    };
    all(store, "local.oplog.rs", &request)
}

pub(super) fn all(store: &DocumentStore, ns: &str, request: &FindRequest<'_>) -> Vec<DocBuf> {
    let ns = Namespace::parse(ns).unwrap();
    let mut cursor = store.find(&ns, request, &OpContext::new()).unwrap();
    let mut found = Vec::new();
    while let Some(doc) = cursor.next().unwrap() {
        found.push(doc);
    }
    found
}

pub(super) fn shown(store: &DocumentStore) -> Vec<DocBuf> {
    let mut out = Vec::new();
    for database in store.list_databases().unwrap() {
        if database.name == "local" {
            continue;
        }
        for collection in store.catalog().view().database(&database.name) {
            let ns = &collection.ns;
            let mut one = doc! {"ns": ns.as_str(), "options": &collection.options, "uuid": frond_bson::hex(&collection.uuid).as_str()};
            one.push("count", collection.counts().documents);
            one.push("bytes", collection.counts().bytes);
            one.push_array("indexes", |out| {
                for index in store.list_indexes(ns).unwrap() {
                    out.push(&*index);
                }
            });
            let sort = doc! {"_id": 1};
            let request = FindRequest {
                sort: (!collection.is_by_record()).then_some(&*sort),
                ..FindRequest::default()
            };
            one.push_array("documents", |out| {
                for document in all(store, ns.as_str(), &request) {
                    out.push(&*document);
                }
            });
            out.push(one);
        }
    }
    out
}

pub(super) fn ns(name: &str) -> Namespace {
    Namespace::parse(name).unwrap()
}

pub(super) fn insert(store: &DocumentStore, name: &str, docs: &[DocBuf]) {
    let docs: Vec<&Doc> = docs.iter().map(|doc| &**doc).collect();
    let options = InsertOptions {
        ordered: true,
        durability: Durability::Logged,
        bypass_validation: false,
        keep_empty_timestamps: false,
    };
    let outcome = store.insert(&ns(name), &docs, options).unwrap();
    assert_eq!(outcome.inserted, docs.len(), "{:?}", outcome.errors);
}

pub(super) fn update(store: &DocumentStore, name: &str, filter: &Doc, how: &Doc) -> u64 {
    let request = UpdateRequest {
        multi: how.first().is_some_and(|(name, _)| name.starts_with('$')),
        ..UpdateRequest::new(filter, Value::Document(how))
    };
    let (how, context) = (Durability::Logged, OpContext::new());
    store
        .update(&ns(name), &request, how, &context)
        .unwrap()
        .modified
}

fn delete(store: &DocumentStore, name: &str, filter: &Doc) -> u64 {
    let request = DeleteRequest {
        filter,
        limit_one: false,
        hint: None,
        variables: None,
        collation: None,
    };
    let (how, context) = (Durability::Logged, OpContext::new());
    store.delete(&ns(name), &request, how, &context).unwrap()
}

pub(super) fn numbered(range: std::ops::Range<i32>) -> Vec<DocBuf> {
    range
        .map(|id| doc! {"_id": id, "a": id % 7, "u": id, "tags": [id, id + 1], "in": {"x": id, "y": [1, 2]}})
        .collect()
}

/// Every kind of entry.
pub(super) fn write_everything(store: &DocumentStore) {
    let options = doc! {"changeStreamPreAndPostImages": {"enabled": true}};
    store
        .create_collection(&ns("test.images"), &options)
        .unwrap();
    let unique = doc! {"key": {"u": 1}, "name": "u_1", "unique": true};
    let multikey = doc! {"key": {"tags": 1, "a": -1}, "name": "tags"};
    store.create_indexes(&ns("test.c"), &[&unique]).unwrap();
    insert(store, "test.c", &numbered(0..2500));
    store.create_indexes(&ns("test.c"), &[&multikey]).unwrap();
    insert(store, "test.images", &numbered(0..10));
    for name in ["test.c", "test.images"] {
        update(
            store,
            name,
            &doc! {"a": 3},
            &doc! {"$set": {"in.x": -1}, "$push": {"tags": 5}, "$unset": {"in.y": 1}},
        );
        update(
            store,
            name,
            &doc! {"_id": 4},
            &doc! {"_id": 4, "whole": true, "u": -4},
        );
        delete(store, name, &doc! {"a": 5});
    }
    // A key that moves from one document to another.
    update(
        store,
        "test.c",
        &doc! {"_id": 8},
        &doc! {"$set": {"u": -100}},
    );
    update(store, "test.c", &doc! {"_id": 9}, &doc! {"$set": {"u": 8}});
    for _ in 0..30 {
        update(store, "test.c", &doc! {"_id": 1}, &doc! {"$inc": {"n": 1}});
    }
    // A large document, stored in parts.
    let mut large = doc! {"_id": "large"};
    for field in 0..3000 {
        large.push(&format!("field{field}"), "x".repeat(30).as_str());
    }
    insert(store, "test.large", &[large]);
    update(
        store,
        "test.large",
        &doc! {"_id": "large"},
        &doc! {"$set": {"field77": "other", "new": 1}},
    );
    // Other orders, other comparisons.
    let capped = doc! {"capped": true, "size": 4096, "max": 20};
    store
        .create_collection(&ns("test.capped"), &capped)
        .unwrap();
    for at in 0..10 {
        insert(store, "test.capped", &numbered(at * 5..at * 5 + 5));
    }
    update(
        store,
        "test.capped",
        &doc! {"_id": 45},
        &doc! {"$set": {"a": 99}},
    );
    let series = doc! {"timeseries": {"timeField": "t"}};
    store
        .create_collection(&ns("test.series"), &series)
        .unwrap();
    let measured = |id: i32| doc! {"_id": id, "t": Value::DateTime(i64::from(id)), "v": id};
    insert(
        store,
        "test.series",
        &(0..20).map(measured).collect::<Vec<_>>(),
    );
    let collated = doc! {"collation": {"locale": "en", "strength": 2}};
    store
        .create_collection(&ns("test.collated"), &collated)
        .unwrap();
    insert(
        store,
        "test.collated",
        &[doc! {"_id": "A", "s": "x"}, doc! {"_id": "b", "s": "Y"}],
    );
    update(
        store,
        "test.collated",
        &doc! {"_id": "a"},
        &doc! {"$set": {"s": "Z"}},
    );
    let ordered = doc! {"naturalOrder": "insertion"};
    store
        .create_collection(&ns("test.ordered"), &ordered)
        .unwrap();
    insert(
        store,
        "test.ordered",
        &[doc! {"_id": 3}, doc! {"_id": 1}, doc! {"_id": 2}],
    );
    update(
        store,
        "test.ordered",
        &doc! {"_id": 1},
        &doc! {"$set": {"s": "Z"}},
    );
    delete(store, "test.ordered", &doc! {"_id": 3});
    // Changes of the catalog.
    store
        .drop_indexes(&ns("test.c"), &IndexSelector::Name("tags".into()))
        .unwrap();
    store
        .modify_collection(
            &ns("test.c"),
            &doc! {"validator": {"_id": {"$exists": true}}},
        )
        .unwrap();
    let change = crate::IndexChange {
        which: IndexSelector::Name("u_1".into()),
        expire_after: None,
        hidden: Some(true),
        prepare_unique: None,
        unique: false,
        dry_run: false,
    };
    store
        .modify_index(&ns("test.c"), &change, &OpContext::new())
        .unwrap();
    insert(store, "test.old", &numbered(0..5));
    insert(store, "test.target", &numbered(5..8));
    store
        .rename_collection(&ns("test.old"), &ns("test.target"), true)
        .unwrap();
    update(
        store,
        "test.target",
        &doc! {"_id": 2},
        &doc! {"$set": {"after": "rename"}},
    );
    insert(store, "test.gone", &numbered(0..5));
    store.drop_collection(&ns("test.gone")).unwrap();
    insert(store, "other.c", &numbered(0..5));
    store.drop_database("other").unwrap();
    let view = doc! {"viewOn": "c", "pipeline": [{"$match": {"a": 1}}]};
    store.create_collection(&ns("test.view"), &view).unwrap();
    store
        .modify_collection(&ns("test.view"), &doc! {"viewOn": "target", "pipeline": []})
        .unwrap();
    store.create_collection(&ns("test.view2"), &view).unwrap();
    store.drop_collection(&ns("test.view2")).unwrap();
    store
        .convert_to_capped(&ns("test.target"), 8192, &OpContext::new())
        .unwrap();
    store.oplog().append_noop(&doc! {"msg": "a note"}).unwrap();
    insert(
        store,
        "admin.system.users",
        &[doc! {"_id": "test.u", "user": "u", "db": "test"}],
    );
    // Transactions, with new collections, and documents that are changed twice.
    let transaction = store.begin();
    let inside = store.in_transaction(&transaction);
    insert(
        &inside,
        "test.c",
        &[doc! {"_id": "t1", "u": "t1"}, doc! {"_id": "t2", "u": "t2"}],
    );
    update(
        &inside,
        "test.c",
        &doc! {"_id": "t1"},
        &doc! {"$set": {"a": 1}},
    );
    update(
        &inside,
        "test.c",
        &doc! {"_id": "t1"},
        &doc! {"$set": {"a": 2}},
    );
    delete(&inside, "test.c", &doc! {"_id": "t2"});
    update(
        &inside,
        "test.images",
        &doc! {"_id": 1},
        &doc! {"$set": {"in_transaction": true}},
    );
    insert(&inside, "test.fresh", &numbered(0..3));
    transaction.commit(Durability::Logged).unwrap();
}
