//! The option `naturalOrder` of collections: the order in which a scan returns documents.
#![allow(clippy::unwrap_used)]

use crate::common;

use common::{Fixture, INSERT, ns};
use frond_bson::{Doc, DocBuf, Value, array, doc};
use frond_store::{
    AggregateRequest, DeleteRequest, DocumentStore, Durability, EngineOptions, FindRequest,
    InsertOptions, Namespace, NaturalOrder, OpContext, StoreOptions, UpdateRequest,
};

fn names(found: &[DocBuf]) -> Vec<&str> {
    found
        .iter()
        .map(|doc| doc.get_str("_id").unwrap())
        .collect()
}

fn in_natural_order(f: &Fixture, c: &Namespace) -> Vec<String> {
    let found = f.find_all(c, doc! {});
    names(&found).into_iter().map(str::to_owned).collect()
}

fn fixture(order: &str) -> (Fixture, Namespace) {
    let (f, c) = (Fixture::new(), ns("db.c"));
    let options = doc! {"naturalOrder": order};
    f.store.create_collection(&c, &options).unwrap();
    let docs = ["m", "z", "a", "k"].map(|id| doc! {"_id": id, "n": 1});
    assert_eq!(f.insert(&c, &docs).inserted, 4);
    (f, c)
}

#[test]
fn documents_are_returned_in_the_order_of_the_collection() {
    for (order, expected) in [
        ("_id", ["a", "k", "m", "z"]),
        ("insertion", ["m", "z", "a", "k"]),
    ] {
        let (f, c) = fixture(order);
        assert_eq!(in_natural_order(&f, &c), expected, "{order}");
        let backwards = doc! {"$natural": -1};
        let request = FindRequest {
            sort: Some(&backwards),
            ..FindRequest::default()
        };
        let mut reversed = expected;
        reversed.reverse();
        assert_eq!(names(&f.find(&c, &request)), reversed, "{order}");
        // A look-up by `_id` reads one document.
        assert_eq!(names(&f.find_all(&c, doc! {"_id": "k"})), ["k"]);
        let by_id = doc! {"_id": 1};
        let request = FindRequest {
            sort: Some(&by_id),
            ..FindRequest::default()
        };
        assert_eq!(
            names(&f.find(&c, &request)),
            ["a", "k", "m", "z"],
            "{order}"
        );
        let indexes = f.store.list_indexes(&c).unwrap();
        assert_eq!(indexes.len(), 1, "{order}");
        assert_eq!(indexes[0].get_str("name"), Some("_id_"));
        assert_eq!(f.store.verify(&c).unwrap().errors, Vec::<String>::new());
    }
}

#[test]
fn the_order_of_insertion_survives_changes_and_reopening() {
    let (f, c) = fixture("insertion");
    let context = OpContext::new();
    let delete = DeleteRequest {
        collation: None,
        filter: &doc! {"_id": "z"},
        limit_one: true,
        hint: None,
        variables: None,
    };
    assert_eq!(
        f.store
            .delete(&c, &delete, Durability::Logged, &context)
            .unwrap(),
        1
    );
    let long = "x".repeat(5000);
    let (filter, change) = (doc! {"_id": "m"}, doc! {"$set": {"long": long.as_str()}});
    let update = UpdateRequest::new(&filter, Value::Document(&change));
    let updated = f.store.update(&c, &update, Durability::Logged, &context);
    assert_eq!(updated.unwrap().modified, 1);
    let f = f.reopen();
    f.insert(&c, &[doc! {"_id": "b"}, doc! {"_id": "z"}]);
    assert_eq!(in_natural_order(&f, &c), ["m", "a", "k", "b", "z"]);
    assert_eq!(f.store.verify(&c).unwrap().errors, Vec::<String>::new());
}

#[test]
fn an_id_is_unique_in_any_order() {
    for order in ["_id", "insertion"] {
        let (f, c) = fixture(order);
        let docs = [doc! {"_id": "b"}, doc! {"_id": "z"}, doc! {"_id": "c"}];
        let outcome = f.insert(&c, &docs);
        assert_eq!(outcome.inserted, 1, "{order}");
        assert_eq!(outcome.errors[0].error.code().code(), 11000, "{order}");
        let twice: Vec<&Doc> = vec![&docs[2], &docs[2]];
        let outcome = f.store.insert(&c, &twice, INSERT).unwrap();
        assert_eq!(outcome.inserted, 1, "{order}");
    }
}

#[test]
fn new_collections_have_the_order_of_the_setting() {
    let directory = tempfile::tempdir().unwrap();
    let options = StoreOptions::default().with_natural_order(NaturalOrder::Insertion);
    let engine = EngineOptions::new(directory.path());
    let store = DocumentStore::open_engine(engine, options).unwrap();
    let insert = |name: &str| {
        let docs = [doc! {"_id": "b"}, doc! {"_id": "a"}];
        let docs: Vec<&Doc> = docs.iter().map(|doc| &**doc).collect();
        store.insert(&ns(name), &docs, INSERT).unwrap();
        let request = FindRequest::default();
        let mut cursor = store.find(&ns(name), &request, &OpContext::new()).unwrap();
        cursor
            .next()
            .unwrap()
            .unwrap()
            .get_str("_id")
            .unwrap()
            .to_owned()
    };
    assert_eq!(insert("db.implicit"), "b");
    // Creating it again with the same options changes nothing.
    store
        .create_collection(&ns("db.implicit"), &doc! {})
        .unwrap();
    store
        .create_collection(&ns("db.chosen"), &doc! {"naturalOrder": "_id"})
        .unwrap();
    assert_eq!(insert("db.chosen"), "a");
    let clustered = doc! {"clusteredIndex": {"key": {"_id": 1}, "unique": true}};
    store
        .create_collection(&ns("db.clustered"), &clustered)
        .unwrap();
    assert_eq!(insert("db.clustered"), "a");
    let view = doc! {"viewOn": "implicit", "pipeline": []};
    store.create_collection(&ns("db.view"), &view).unwrap();
    let capped = doc! {"capped": true, "size": 10_000};
    store.create_collection(&ns("db.capped"), &capped).unwrap();
    let options = |name: &str| {
        let all = store.list_collections("db").unwrap();
        all.into_iter()
            .find(|one| one.name == name)
            .unwrap()
            .options
    };
    assert_eq!(options("implicit"), doc! {"naturalOrder": "insertion"});
    assert_eq!(options("chosen"), doc! {"naturalOrder": "_id"});
    assert!(!options("capped").contains_key("naturalOrder"));
}

#[test]
fn options_that_set_an_order_of_their_own_are_refused_beside_it() {
    let f = Fixture::new();
    for options in [
        doc! {"naturalOrder": "insertion", "capped": true, "size": 1000},
        doc! {"naturalOrder": "insertion", "timeseries": {"timeField": "t"}},
        doc! {"naturalOrder": "_id", "clusteredIndex": {"key": {"_id": 1}, "unique": true}},
        doc! {"naturalOrder": "_id", "viewOn": "x", "pipeline": []},
    ] {
        let error = f
            .store
            .create_collection(&ns("db.c"), &options)
            .unwrap_err();
        assert_eq!(error.code().code(), 72, "{options:?}");
    }
    let error = f
        .store
        .create_collection(&ns("db.c"), &doc! {"naturalOrder": "x"});
    assert_eq!(error.unwrap_err().code().code(), 2);
}

/// Every second `_id` is a duplicate: the others are still inserted in one commit.
#[test]
fn an_unordered_insert_skips_duplicates() {
    for order in ["_id", "insertion"] {
        let f = Fixture::new();
        let c = ns("db.c");
        let options = doc! {"naturalOrder": order};
        f.store.create_collection(&c, &options).unwrap();
        let taken: Vec<DocBuf> = (0..500).map(|n| doc! {"_id": 2 * n}).collect();
        f.insert(&c, &taken);
        let docs: Vec<DocBuf> = (0..1000).map(|n| doc! {"_id": n}).collect();
        let docs: Vec<&Doc> = docs.iter().map(|doc| &**doc).collect();
        let unordered = InsertOptions {
            ordered: false,
            ..INSERT
        };
        let outcome = f.store.insert(&c, &docs, unordered).unwrap();
        assert_eq!(
            (outcome.inserted, outcome.errors.len()),
            (500, 500),
            "{order}"
        );
        assert!(
            outcome.errors.iter().all(|one| one.index % 2 == 0),
            "{order}"
        );
        assert_eq!(f.store.verify(&c).unwrap().errors, Vec::<String>::new());
    }
}

/// Frameworks create their collections at each start, also after the setting has changed.
#[test]
fn creating_a_collection_again_is_no_error_after_the_setting_changed() {
    let (id, insertion) = (NaturalOrder::Id, NaturalOrder::Insertion);
    for (before, after) in [(id, insertion), (insertion, id)] {
        let directory = tempfile::tempdir().unwrap();
        let open = |order: NaturalOrder| {
            let options = StoreOptions::default().with_natural_order(order);
            DocumentStore::open_engine(EngineOptions::new(directory.path()), options).unwrap()
        };
        let create = |store: &DocumentStore, options: &Doc| {
            let created = store.create_collection(&ns("db.c"), options);
            created.map_err(|error| error.code().code())
        };
        let store = open(before);
        let plain = doc! {"compression": "lz4"};
        assert_eq!(create(&store, &plain), Ok(()));
        store.engine().close().unwrap();
        drop(store);
        let store = open(after);
        assert_eq!(create(&store, &plain), Ok(()), "{before:?} {after:?}");
        assert_eq!(create(&store, &doc! {}), Err(48));
        let other = doc! {"compression": "lz4", "naturalOrder": after.name()};
        assert_eq!(create(&store, &other), Err(48));
    }
}

/// `$out` into a collection keeps its order, whatever the setting is.
#[test]
fn out_keeps_the_order_of_its_target() {
    for setting in [NaturalOrder::Id, NaturalOrder::Insertion] {
        let directory = tempfile::tempdir().unwrap();
        let open = |order: NaturalOrder| {
            let options = StoreOptions::default().with_natural_order(order);
            DocumentStore::open_engine(EngineOptions::new(directory.path()), options).unwrap()
        };
        let insert = |store: &DocumentStore, name: &str| {
            let docs = [doc! {"_id": "b"}, doc! {"_id": "a"}];
            let docs: Vec<&Doc> = docs.iter().map(|doc| &**doc).collect();
            store.insert(&ns(name), &docs, INSERT).unwrap();
        };
        let store = open(NaturalOrder::Id);
        insert(&store, "db.by_id");
        let insertion = doc! {"naturalOrder": "insertion"};
        store
            .create_collection(&ns("db.by_insertion"), &insertion)
            .unwrap();
        store
            .create_collection(&ns("db.source"), &insertion)
            .unwrap();
        insert(&store, "db.source");
        store.engine().close().unwrap();
        drop(store);
        let store = open(setting);
        for (target, first) in [("by_id", "a"), ("by_insertion", "b")] {
            let request = AggregateRequest {
                collation: None,
                pipeline: &array![{"$out": target}],
                hint: None,
                variables: None,
                durability: Durability::Logged,
                bypass_validation: false,
                allow_disk_use: None,
            };
            let source = ns("db.source");
            let mut written = store
                .aggregate("db", Some(&source), &request, &OpContext::new())
                .unwrap();
            assert!(written.next().unwrap().is_none());
            let target = Namespace::new("db", target).unwrap();
            let mut found = store
                .find(&target, &FindRequest::default(), &OpContext::new())
                .unwrap();
            let found = found.next().unwrap().unwrap();
            assert_eq!(found.get_str("_id"), Some(first), "{setting:?} {target}");
            assert_eq!(store.verify(&target).unwrap().errors, Vec::<String>::new());
        }
    }
}

#[test]
fn servers_with_the_same_documents_have_the_same_hash() {
    let (f, _) = fixture("insertion");
    let other = fixture("_id").0;
    let hash = |f: &Fixture| {
        f.store
            .hash_database("db", None, &OpContext::new())
            .unwrap()
    };
    assert_eq!(hash(&f).collections[0].md5, hash(&other).collections[0].md5);
}
