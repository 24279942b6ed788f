//! Capped collections: the order of insertion, removal of the oldest, tailable cursors, crashes.
#![allow(clippy::unwrap_used)]

use crate::common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use common::disk::MemDisk;
use common::{Fixture, INSERT, ns, open_with};
use frond_bson::{Doc, DocBuf, Value, doc};
use frond_error::ErrorCode;
use frond_store::{
    DeleteRequest, DocumentStore, Durability, EngineOptions, FindRequest, Namespace, OpContext,
    UpdateRequest,
};
use rand::SeedableRng;
use rand::rngs::StdRng;

fn ids(docs: &[DocBuf]) -> Vec<i64> {
    docs.iter().map(|doc| doc.get_i64("_id").unwrap()).collect()
}

fn all(fixture: &Fixture, ns: &Namespace, sort: DocBuf) -> Vec<i64> {
    let request = FindRequest {
        sort: Some(&sort),
        ..FindRequest::default()
    };
    ids(&fixture.find(ns, &request))
}

fn insert(fixture: &Fixture, ns: &Namespace, ids: impl IntoIterator<Item = i32>) {
    let docs: Vec<DocBuf> = ids
        .into_iter()
        .map(|id| doc! {"_id": id, "a": id % 3})
        .collect();
    let outcome = fixture.insert(ns, &docs);
    assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
}

#[test]
fn documents_stay_in_the_order_of_insertion_and_the_oldest_are_removed() {
    let fixture = Fixture::new();
    let c = ns("db.log");
    let options = doc! {"capped": true, "size": 100_000, "max": 5};
    fixture.store.create_collection(&c, &options).unwrap();
    fixture
        .store
        .create_indexes(&c, &[&doc! {"key": {"a": 1}}])
        .unwrap();
    insert(&fixture, &c, [9, 3, 7]);
    assert_eq!(all(&fixture, &c, doc! {}), [9, 3, 7]);
    assert_eq!(all(&fixture, &c, doc! {"$natural": -1}), [7, 3, 9]);
    assert_eq!(all(&fixture, &c, doc! {"_id": 1}), [3, 7, 9]);
    assert_eq!(ids(&fixture.find_all(&c, doc! {"_id": 3})), [3]);
    assert_eq!(ids(&fixture.find_all(&c, doc! {"_id": {"$gt": 3}})), [7, 9]);

    // Many more than fit, in one call.
    insert(&fixture, &c, 100..112);
    let last = [107, 108, 109, 110, 111];
    let check = |fixture: &Fixture| {
        assert_eq!(all(fixture, &c, doc! {}), last);
        assert_eq!(fixture.store.estimated_count(&c), 5);
        assert_eq!(ids(&fixture.find_all(&c, doc! {"_id": 9})), []);
        assert_eq!(ids(&fixture.find_all(&c, doc! {"a": 1})), [109]);
        let report = fixture.store.verify(&c).unwrap();
        assert_eq!((report.errors, report.indexes.len()), (Vec::new(), 2));
        let names: Vec<_> = fixture.store.list_indexes(&c).unwrap();
        assert_eq!(names[0].get_str("name"), Some("_id_"));
    };
    check(&fixture);
    let fixture = fixture.reopen();
    check(&fixture);
    insert(&fixture, &c, [1]);
    assert_eq!(all(&fixture, &c, doc! {}), [108, 109, 110, 111, 1]);
    // A removed `_id` can be inserted again; a stored one is a duplicate.
    insert(&fixture, &c, [100]);
    let outcome = fixture.insert(&c, &[doc! {"_id": 111}]);
    assert_eq!(outcome.errors[0].error.code(), ErrorCode::DuplicateKey);
    assert!(
        outcome.errors[0]
            .error
            .message()
            .contains("index: _id_ dup key: { _id: 111 }")
    );
    // Also if it is removed within the same call.
    insert(&fixture, &c, [2, 3, 4, 109, 110]);
    assert_eq!(all(&fixture, &c, doc! {}), [2, 3, 4, 109, 110]);
}

#[test]
fn the_size_in_bytes_limits_too() {
    let fixture = Fixture::new();
    let c = ns("db.log");
    let one = doc! {"_id": 1, "a": 1};
    let size = 10 * one.len_bytes() as i64;
    let options = doc! {"capped": true, "size": size};
    fixture.store.create_collection(&c, &options).unwrap();
    insert(&fixture, &c, 0..25);
    assert_eq!(all(&fixture, &c, doc! {}), (15..25).collect::<Vec<i64>>());
    let large = doc! {"x": "y".repeat(1000)};
    let outcome = fixture.insert(&c, &[large]);
    assert_eq!(outcome.errors[0].error.code(), ErrorCode::BadValue);
    fixture
        .store
        .modify_collection(&c, &doc! {"cappedSize": size / 2, "cappedMax": 3})
        .unwrap();
    insert(&fixture, &c, [30]);
    assert_eq!(all(&fixture, &c, doc! {}), [23, 24, 30]);
    // Updates may enlarge documents, and documents may be deleted.
    let (filter, change) = (doc! {"_id": 24}, doc! {"$set": {"b": "grown"}});
    let update = UpdateRequest::new(&filter, Value::Document(&change));
    let context = OpContext::new();
    let logged = Durability::Logged;
    fixture.store.update(&c, &update, logged, &context).unwrap();
    let delete = DeleteRequest {
        collation: None,
        filter: &doc! {"_id": 23},
        limit_one: true,
        hint: None,
        variables: None,
    };
    assert_eq!(
        fixture.store.delete(&c, &delete, logged, &context).unwrap(),
        1
    );
    assert_eq!(all(&fixture, &c, doc! {}), [24, 30]);
    assert!(fixture.store.verify(&c).unwrap().errors.is_empty());
}

#[test]
fn tailable_cursors_continue() {
    let fixture = Fixture::new();
    let c = ns("db.log");
    let options = doc! {"capped": true, "size": 10_000, "max": 4};
    fixture.store.create_collection(&c, &options).unwrap();
    let tail = |filter: &Doc| {
        let request = FindRequest {
            filter: Some(filter),
            tailable: true,
            show_record_id: true,
            ..FindRequest::default()
        };
        fixture.store.find(&c, &request, &OpContext::new()).unwrap()
    };
    // The collection is empty: the cursor is at its end.
    assert!(!tail(&doc! {}).is_tailable());
    insert(&fixture, &c, [1, 2]);
    let (mut every, mut some) = (tail(&doc! {}), tail(&doc! {"a": 0}));
    assert!(every.is_tailable());
    assert_eq!(
        every.next().unwrap().unwrap(),
        doc! {"_id": 1, "a": 1, "$recordId": 1i64}
    );
    assert_eq!(every.next().unwrap().unwrap().get_i32("_id"), Some(2));
    assert!(every.next().unwrap().is_none() && some.next().unwrap().is_none());
    let (signal, seen) = every.tail_signal().unwrap();
    assert_eq!(signal.insertions(), seen);
    insert(&fixture, &c, [3, 4]);
    assert_ne!(signal.insertions(), seen);
    assert_eq!(every.next().unwrap().unwrap().get_i32("_id"), Some(3));
    assert_eq!(some.next().unwrap().unwrap().get_i32("_id"), Some(3));
    assert!(some.next().unwrap().is_none());
    // The first one reads its snapshot to the end; then both are positioned at removed documents.
    insert(&fixture, &c, [5, 6, 7, 8]);
    assert_eq!(every.next().unwrap().unwrap().get_i32("_id"), Some(4));
    assert!(every.next().unwrap().is_none());
    for mut cursor in [every, some] {
        let error = cursor.next().unwrap_err();
        assert_eq!(error.code(), ErrorCode::CappedPositionLost);
        assert!(!cursor.is_tailable());
    }
    let mut last = tail(&doc! {});
    while last.next().unwrap().is_some() {}
    fixture.store.drop_collection(&c).unwrap();
    assert_eq!(last.next().unwrap_err().code(), ErrorCode::QueryPlanKilled);
    fixture.store.create_collection(&c, &doc! {}).unwrap();
    let request = FindRequest {
        tailable: true,
        ..FindRequest::default()
    };
    let refused = fixture.store.find(&c, &request, &OpContext::new());
    assert_eq!(refused.err().unwrap().code(), ErrorCode::BadValue);
}

#[test]
fn collections_become_capped() {
    let fixture = Fixture::new();
    let (c, d) = (ns("db.c"), ns("db.d"));
    insert(&fixture, &c, (0..50).rev());
    fixture
        .store
        .create_indexes(&c, &[&doc! {"key": {"a": 1}}])
        .unwrap();
    fixture.store.clone_as_capped(&c, &d, 1 << 20).unwrap();
    assert_eq!(all(&fixture, &d, doc! {}), (0..50).collect::<Vec<i64>>());
    let size = 20 * doc! {"_id": 1, "a": 1}.len_bytes() as i64;
    fixture
        .store
        .convert_to_capped(&c, size, &OpContext::new())
        .unwrap();
    assert_eq!(all(&fixture, &c, doc! {}), (30..50).collect::<Vec<i64>>());
    assert_eq!(fixture.store.list_indexes(&c).unwrap().len(), 1);
    assert_eq!(fixture.store.list_collections("db").unwrap().len(), 2);
    insert(&fixture, &c, [0]);
    assert_eq!(all(&fixture, &c, doc! {})[19], 0);
    let none = fixture
        .store
        .convert_to_capped(&ns("db.none"), 10, &OpContext::new());
    assert_eq!(none.unwrap_err().code(), ErrorCode::NamespaceNotFound);
}

#[test]
fn many_writers_agree_on_one_order() {
    let fixture = Fixture::new();
    let c = ns("db.log");
    let options = doc! {"capped": true, "size": 1 << 20, "max": 50};
    fixture.store.create_collection(&c, &options).unwrap();
    insert(&fixture, &c, [-1]);
    let request = FindRequest {
        tailable: true,
        ..FindRequest::default()
    };
    let mut tail = fixture.store.find(&c, &request, &OpContext::new()).unwrap();
    let store = &fixture.store;
    thread::scope(|scope| {
        for writer in 0..4 {
            let c = &c;
            scope.spawn(move || {
                for n in 0..10 {
                    let doc = doc! {"_id": writer * 100 + n, "a": n};
                    store.insert(c, &[&doc], INSERT).unwrap();
                }
            });
        }
    });
    let mut seen = Vec::new();
    while let Some(doc) = tail.next().unwrap() {
        seen.push(doc);
    }
    assert_eq!(seen.len(), 41);
    assert_eq!(ids(&seen), all(&fixture, &c, doc! {}));
    assert!(fixture.store.verify(&c).unwrap().errors.is_empty());
}

fn open(disk: &MemDisk) -> DocumentStore {
    open_with(EngineOptions::with_disk(Arc::new(disk.clone())))
}

#[test]
fn a_crash_leaves_whole_documents_in_order() {
    let disk = MemDisk::default();
    let running = open(&disk);
    let c = ns("db.log");
    let options = doc! {"capped": true, "size": 1 << 20, "max": 100};
    running.create_collection(&c, &options).unwrap();
    running
        .create_indexes(&c, &[&doc! {"key": {"a": 1}}])
        .unwrap();
    running.engine().flush_log().unwrap();
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for batch in 0..2000 {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let docs: Vec<DocBuf> = (0..30)
                    .map(|i| doc! {"_id": batch * 30 + i, "a": i % 7})
                    .collect();
                let docs: Vec<&Doc> = docs.iter().map(|doc| &**doc).collect();
                running.insert(&c, &docs, INSERT).unwrap();
                written.fetch_add(1, Ordering::Relaxed);
            }
        });
        for round in 0..3 {
            while written.load(Ordering::Relaxed) < 10 * (round + 1) && !writer.is_finished() {
                thread::yield_now();
            }
            if round == 1 {
                running.checkpoint().unwrap();
            }
            let image = disk.image(&mut StdRng::seed_from_u64(round));
            let store = open(&image);
            let report = store.verify(&c).unwrap();
            assert_eq!(report.errors, Vec::<String>::new());
            assert!(report.documents <= 100);
            let request = FindRequest::default();
            let mut cursor = store.find(&c, &request, &OpContext::new()).unwrap();
            let mut last = None;
            while let Some(doc) = cursor.next().unwrap() {
                let id = doc.get_i64("_id").unwrap();
                assert!(
                    last.is_none_or(|last| id == last + 1),
                    "{id} after {last:?}"
                );
                last = Some(id);
            }
            // New record ids follow the stored ones.
            let next = doc! {"_id": "next"};
            store.insert(&c, &[&next], INSERT).unwrap();
            let natural = doc! {"$natural": -1};
            let request = FindRequest {
                sort: Some(&natural),
                ..FindRequest::default()
            };
            let mut cursor = store.find(&c, &request, &OpContext::new()).unwrap();
            assert_eq!(cursor.next().unwrap().unwrap(), next);
            store.engine().close().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
}
