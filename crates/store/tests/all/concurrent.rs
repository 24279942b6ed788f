//! Several writers and catalog changes at the same time.
#![allow(clippy::unwrap_used)]

use crate::common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use common::{Fixture, INSERT, ns};
use frond_bson::{Doc, DocBuf, Value, doc};
use frond_store::{
    ActsAtPoints, DeleteRequest, DocumentStore, Durability, FindAndModifyRequest, InsertOptions,
    OpContext, UpdateOutcome, UpdateRequest, at_points,
};

const THREADS: usize = 4;

fn update(f: &Fixture, filter: &Doc, change: &Doc, upsert: bool) -> UpdateOutcome {
    update_in(&f.store, filter, change, upsert)
}

fn update_in(store: &DocumentStore, filter: &Doc, change: &Doc, upsert: bool) -> UpdateOutcome {
    let request = UpdateRequest {
        upsert,
        ..UpdateRequest::new(filter, Value::Document(change))
    };
    store
        .update(&ns("db.c"), &request, Durability::Logged, &OpContext::new())
        .unwrap()
}

fn update_all_in(store: &DocumentStore, filter: &Doc, change: &Doc) -> UpdateOutcome {
    let request = UpdateRequest {
        multi: true,
        ..UpdateRequest::new(filter, Value::Document(change))
    };
    store
        .update(&ns("db.c"), &request, Durability::Logged, &OpContext::new())
        .unwrap()
}

fn delete_all_in(store: &DocumentStore, filter: &Doc) -> u64 {
    let request = DeleteRequest {
        collation: None,
        filter,
        limit_one: false,
        hint: None,
        variables: None,
    };
    store
        .delete(&ns("db.c"), &request, Durability::Logged, &OpContext::new())
        .unwrap()
}

fn sound(f: &Fixture) -> u64 {
    let report = f.store.verify(&ns("db.c")).unwrap();
    assert_eq!(report.errors, Vec::<String>::new());
    report.documents
}

#[test]
fn each_unique_value_is_inserted_by_one_thread() {
    let f = Fixture::new();
    let c = ns("db.c");
    let unique = doc! {"key": {"u": 1}, "unique": true};
    f.store
        .create_indexes(&c, &[&unique, &doc! {"key": {"t": 1}}])
        .unwrap();
    let inserted = AtomicUsize::new(0);
    let refused = AtomicUsize::new(0);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (f, c, inserted, refused) = (&f, &c, &inserted, &refused);
            scope.spawn(move || {
                for batch in 0..20 {
                    let docs: Vec<DocBuf> = (0..50)
                        .map(|i| doc! {"u": batch * 50 + i, "t": thread as i32})
                        .collect();
                    let docs: Vec<&Doc> = docs.iter().map(|doc| &**doc).collect();
                    let options = InsertOptions {
                        ordered: false,
                        ..INSERT
                    };
                    let outcome = f.store.insert(c, &docs, options).unwrap();
                    assert_eq!(outcome.inserted + outcome.errors.len(), 50);
                    for error in &outcome.errors {
                        assert_eq!(error.error.code().code(), 11000);
                    }
                    inserted.fetch_add(outcome.inserted, Ordering::Relaxed);
                    refused.fetch_add(outcome.errors.len(), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(inserted.into_inner(), 1000);
    assert_eq!(refused.into_inner(), 1000 * (THREADS - 1));
    assert_eq!(sound(&f), 1000);
    assert_eq!(f.store.estimated_count(&c), 1000);
}

#[test]
fn increments_and_upserts_are_not_lost() {
    let f = Fixture::new();
    f.store
        .create_indexes(&ns("db.c"), &[&doc! {"key": {"n": 1}}])
        .unwrap();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let f = &f;
            scope.spawn(move || {
                for i in 0..150 {
                    update(f, &doc! {"_id": i % 3}, &doc! {"$inc": {"n": 1}}, true);
                }
            });
        }
    });
    assert_eq!(sound(&f), 3);
    for id in 0..3 {
        let found = f.find_all(&ns("db.c"), doc! {"_id": id});
        assert_eq!(found, [doc! {"_id": id, "n": 50 * THREADS as i32}]);
    }
}

#[test]
fn an_index_is_built_while_documents_are_inserted_updated_and_deleted() {
    let f = Fixture::new();
    let c = ns("db.c");
    let docs: Vec<DocBuf> = (0..4000)
        .map(|i| doc! {"_id": i, "a": i % 7, "tags": [i % 3, i % 5]})
        .collect();
    f.insert(&c, &docs);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for thread in 0..3_i32 {
            let (f, c, done) = (&f, &c, &done);
            scope.spawn(move || {
                let mut i = thread;
                while !done.load(Ordering::Relaxed) {
                    i += 3;
                    let id = (i * 37) % 4000;
                    update(
                        f,
                        &doc! {"_id": id},
                        &doc! {"$inc": {"a": 1}, "$push": {"tags": i}},
                        false,
                    );
                    let gone = doc! {"_id": (i * 91) % 4000};
                    let request = DeleteRequest {
                        collation: None,
                        filter: &gone,
                        limit_one: true,
                        hint: None,
                        variables: None,
                    };
                    f.store
                        .delete(c, &request, Durability::Logged, &OpContext::new())
                        .unwrap();
                    f.insert(c, &[doc! {"_id": 10_000 + i, "a": i, "tags": [i]}]);
                }
            });
        }
        let keys = [
            doc! {"a": 1},
            doc! {"tags": 1, "a": -1},
            doc! {"a": 1, "_id": 1},
        ];
        for round in 0..6 {
            for key in &keys {
                let unique = key.contains_key("_id");
                let spec = doc! {"key": key, "unique": unique, "name": format!("i{round}{key:?}")};
                f.store.create_indexes(&c, &[&spec]).unwrap();
            }
            if round < 5 {
                f.store
                    .drop_indexes(&c, &frond_store::IndexSelector::All)
                    .unwrap();
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    let documents = sound(&f);
    assert_eq!(f.store.estimated_count(&c), documents);
    assert_eq!(f.store.list_indexes(&c).unwrap().len(), 4);
    let f = f.reopen();
    assert_eq!(sound(&f), documents);
}

#[test]
fn readers_and_writers_cope_with_drops_and_renames() {
    let f = Fixture::new();
    let (a, b) = (ns("db.c"), ns("db.other"));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            let (f, a, done) = (&f, &a, &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    f.insert(a, &[doc! {"x": 1, "y": 2}, doc! {"x": 2, "y": 2}]);
                    for doc in f.find_all(a, doc! {"x": 2}) {
                        assert_eq!(doc.get_i64("y"), Some(2));
                    }
                }
            });
        }
        for round in 0..60 {
            let dropped = f.store.drop_collection(&b);
            assert!(dropped.is_ok() || round == 0);
            f.insert(&a, &[doc! {"x": 3}]);
            f.store
                .create_indexes(&a, &[&doc! {"key": {"x": 1}}])
                .unwrap();
            f.store.rename_collection(&a, &b, false).unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(f.store.verify(&b).unwrap().errors, Vec::<String>::new());
}

/// Calls `act` with the number of the search after each search of this thread for documents to change. Returns the number
/// of searches.
fn after_each_search(
    store: &DocumentStore,
    act: fn(&DocumentStore, usize),
) -> (Arc<AtomicUsize>, ActsAtPoints) {
    let searches = Arc::new(AtomicUsize::new(0));
    let (store, counted) = (store.clone(), searches.clone());
    let act = at_points(move |point| {
        if [
            "a document to change is found",
            "documents to change are found",
        ]
        .contains(&point)
        {
            act(&store, counted.fetch_add(1, Ordering::SeqCst) + 1);
        }
    });
    (searches, act)
}

/// After a conflict the whole search was repeated: an update that searched for longer than its document stayed
/// unchanged was never applied.
#[test]
fn a_slow_update_of_a_document_that_changes_is_applied_at_its_second_try() {
    let f = Fixture::new();
    f.insert(&ns("db.c"), &[doc! {"_id": 1, "a": 1, "others": 0}]);
    let (searches, _act) = after_each_search(&f.store, |store, _| {
        update_in(
            store,
            &doc! {"_id": 1},
            &doc! {"$inc": {"others": 1}},
            false,
        );
    });
    let updated = update(&f, &doc! {"a": 1}, &doc! {"$inc": {"own": 1}}, false);
    assert_eq!((updated.matched, updated.modified), (1, 1));
    assert_eq!(searches.load(Ordering::SeqCst), 1);
    let filter = doc! {"a": 1};
    let update = doc! {"$inc": {"own": 1}};
    let request = FindAndModifyRequest {
        filter: Some(&filter),
        update: Some(Value::Document(&update)),
        ..FindAndModifyRequest::default()
    };
    let context = OpContext::new();
    let outcome = (f.store).find_and_modify(&ns("db.c"), &request, Durability::Logged, &context);
    let before = doc! {"_id": 1, "a": 1, "others": 2, "own": 1};
    assert_eq!(outcome.unwrap().value, Some(before), "as it was changed");
    assert_eq!(searches.load(Ordering::SeqCst), 2);
    let after = doc! {"_id": 1, "a": 1, "others": 2, "own": 2};
    assert_eq!(f.find_all(&ns("db.c"), DocBuf::new()), [after]);
}

#[test]
fn of_many_documents_those_that_change_after_the_search_are_tested_again() {
    let f = Fixture::new();
    let docs = (0..2500).map(|n| doc! {"_id": n, "a": 1});
    f.insert(&ns("db.c"), &docs.collect::<Vec<_>>());
    // The search pauses for each commit of 1,000 documents.
    let (searches, act) = after_each_search(&f.store, |store, search| {
        let change = match search {
            1 => doc! {"$set": {"a": 2}},
            2 => doc! {"$set": {"b": 1}},
            _ => return,
        };
        update_all_in(store, &doc! {"_id": {"$mod": [1000, 7]}}, &change);
    });
    let updated = update_all_in(&f.store, &doc! {"a": 1}, &doc! {"$inc": {"c": 1}});
    drop(act);
    assert_eq!(searches.load(Ordering::SeqCst), 3);
    assert_eq!((updated.matched, updated.modified), (2497, 2497));
    let changed: Vec<_> = f.find_all(&ns("db.c"), doc! {"a": 2});
    let expected = [7, 1007, 2007].map(|n| doc! {"_id": n, "a": 2, "b": 1});
    assert_eq!(changed, expected);
    assert_eq!(f.find_all(&ns("db.c"), doc! {"c": 1}).len(), 2497);
}

/// Such a delete is a range delete, which guards no keys.
#[test]
fn documents_that_are_all_deleted_after_the_search_are_not_deleted_again() {
    let f = Fixture::new();
    let docs = (0..20_000).map(|n| doc! {"_id": n, "a": n % 10});
    f.insert(&ns("db.c"), &docs.collect::<Vec<_>>());
    let (_, act) = after_each_search(&f.store, |store, search| {
        if search == 2 {
            assert_eq!(delete_all_in(store, &DocBuf::new()), 19_000);
        }
    });
    assert_eq!(delete_all_in(&f.store, &doc! {"a": {"$lt": 5}}), 1000);
    drop(act);
    assert_eq!(sound(&f), 0);
}

#[test]
fn a_search_is_repeated_if_its_document_does_not_match_any_more() {
    let f = Fixture::new();
    let docs = [doc! {"_id": 1, "a": 1}, doc! {"_id": 2, "a": 1}];
    f.insert(&ns("db.c"), &docs);
    let (searches, _act) = after_each_search(&f.store, |store, search| {
        if search == 1 {
            update_in(store, &doc! {"_id": 1}, &doc! {"$set": {"a": 2}}, false);
        }
    });
    update(&f, &doc! {"a": 1}, &doc! {"$set": {"b": 1}}, false);
    assert_eq!(searches.load(Ordering::SeqCst), 2);
    let expected = [doc! {"_id": 1, "a": 2}, doc! {"_id": 2, "a": 1, "b": 1}];
    assert_eq!(f.find_all(&ns("db.c"), DocBuf::new()), expected);
}

/// A change of the definition between the search and the commit made the search start over, too.
#[test]
fn a_slow_update_beside_new_indexes_keeps_what_it_has_found() {
    let f = Fixture::new();
    f.insert(&ns("db.c"), &[doc! {"_id": 1, "a": 1}]);
    let (searches, _act) = after_each_search(&f.store, |store, _| {
        let index = doc! {"key": {"b": 1}};
        store.create_indexes(&ns("db.c"), &[&index]).unwrap();
    });
    update(&f, &doc! {"a": 1}, &doc! {"$set": {"b": 1}}, false);
    assert_eq!(searches.load(Ordering::SeqCst), 1);
    assert_eq!(f.find_all(&ns("db.c"), doc! {"b": 1}).len(), 1);
    sound(&f);
}
