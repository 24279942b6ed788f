//! `deleteMany` of all documents, or of whole partitions: the same result as that of one document after the other.

#![allow(clippy::unwrap_used)]

use crate::common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use common::{Fixture, INSERT, OPLOG, ns, open_with};
use frond_bson::{Doc, DocBuf, Value, doc};
use frond_store::{
    CountRequest, DeleteRequest, DocumentStore, Durability, EngineOptions, FindRequest, Namespace,
    OpContext,
};

const HOUR_MS: i64 = 3_600_000;
/// Documents of an hour: more than are deleted one by one.
const OF_AN_HOUR: i64 = 10_100;

fn delete(store: &DocumentStore, c: &Namespace, filter: &Doc) -> u64 {
    let request = DeleteRequest {
        filter,
        limit_one: false,
        hint: None,
        variables: None,
        collation: None,
    };
    (store.delete(c, &request, Durability::Logged, &OpContext::new())).unwrap()
}

fn count(store: &DocumentStore, c: &Namespace, filter: &Doc) -> u64 {
    let request = CountRequest {
        filter: Some(filter),
        ..CountRequest::default()
    };
    store.count(c, &request, &OpContext::new()).unwrap()
}

fn found(store: &DocumentStore, c: &Namespace, filter: &Doc) -> usize {
    let request = FindRequest {
        filter: Some(filter),
        ..FindRequest::default()
    };
    let mut cursor = store.find(c, &request, &OpContext::new()).unwrap();
    let mut rows = 0;
    while cursor.next().unwrap().is_some() {
        rows += 1;
    }
    rows
}

/// Inserts documents of some hours.
fn insert(store: &DocumentStore, c: &Namespace, hours: std::ops::Range<i64>) {
    for hour in hours {
        let docs: Vec<DocBuf> = (0..OF_AN_HOUR)
            .map(|number| {
                let at = Value::DateTime(hour * HOUR_MS + number * 300);
                doc! {"_id": hour * OF_AN_HOUR + number, "ts": at, "a": number % 100, "tags": [number % 7, "x"]}
            })
            .collect();
        for part in docs.chunks(1000) {
            let part: Vec<&Doc> = part.iter().map(|doc| &**doc).collect();
            store.insert(c, &part, INSERT).unwrap();
        }
    }
}

fn add_indexes(store: &DocumentStore, c: &Namespace) {
    let indexes = [
        doc! {"key": {"a": 1}, "name": "a"},
        doc! {"key": {"tags": 1, "ts": -1}, "name": "tags"},
    ];
    let indexes: Vec<&Doc> = indexes.iter().map(|index| &**index).collect();
    store.create_indexes(c, &indexes).unwrap();
}

fn by_hours() -> DocBuf {
    doc! {"partitioned": {"by": "ts", "every": "1h"}}
}

fn is_consistent(store: &DocumentStore, c: &Namespace) {
    let report = store.verify(c).unwrap();
    assert_eq!(report.errors, Vec::<String>::new());
    assert_eq!(report.documents, store.estimated_count(c));
}

#[test]
fn all_documents_are_deleted_with_their_entries() {
    for options in [
        doc! {},
        doc! {"naturalOrder": "insertion"},
        doc! {"primaryKey": {"ts": 1, "_id": 1}},
        by_hours(),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let open = || open_with(EngineOptions::new(directory.path()));
        let store = open();
        let c = ns("db.c");
        store.create_collection(&c, &options).unwrap();
        add_indexes(&store, &c);
        insert(&store, &c, 0..2);
        assert_eq!(
            delete(&store, &c, &doc! {}),
            2 * OF_AN_HOUR as u64,
            "{options:?}"
        );
        for filter in [
            doc! {},
            doc! {"a": 5},
            doc! {"tags": "x"},
            doc! {"_id": 7i64},
        ] {
            assert_eq!(found(&store, &c, &filter), 0, "{options:?} {filter:?}");
            assert_eq!(count(&store, &c, &filter), 0, "{options:?} {filter:?}");
        }
        is_consistent(&store, &c);
        // The same `_id`s are free again.
        insert(&store, &c, 0..1);
        assert_eq!(found(&store, &c, &doc! {"a": 5}), 101, "{options:?}");
        store.engine().close().unwrap();
        drop(store);
        let store = open();
        is_consistent(&store, &c);
        assert_eq!(store.estimated_count(&c), OF_AN_HOUR as u64);
        store.engine().close().unwrap();
    }
}

#[test]
fn whole_partitions_are_deleted_and_others_in_part() {
    let date = |ms: i64| Value::DateTime(ms);
    let until = 2 * HOUR_MS + 300 * 100;
    let hours = |count: i64| count * OF_AN_HOUR;
    for (filter, expected) in [
        (doc! {"ts": {"$lt": date(until)}}, hours(2) + 100),
        (
            doc! {"ts": {"$gte": date(HOUR_MS), "$lt": date(until)}},
            hours(1) + 100,
        ),
        (
            doc! {"ts": {"$gt": date(HOUR_MS), "$lt": date(until)}},
            hours(1) + 99,
        ),
        (
            doc! {"ts": {"$lt": date(HOUR_MS)}, "_id": {"$gte": 0}},
            hours(1),
        ),
        (doc! {"ts": {"$not": {"$lt": date(HOUR_MS)}}}, hours(2)),
        (
            doc! {"$or": [{"ts": {"$lt": date(HOUR_MS)}}, {"a": 5}]},
            hours(1) + 202,
        ),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let store = open_with(EngineOptions::new(directory.path()));
        let c = ns("db.c");
        store.create_collection(&c, &by_hours()).unwrap();
        add_indexes(&store, &c);
        insert(&store, &c, 0..3);
        assert_eq!(found(&store, &c, &filter), expected as usize, "{filter:?}");
        assert_eq!(delete(&store, &c, &filter), expected as u64, "{filter:?}");
        assert_eq!(found(&store, &c, &filter), 0, "{filter:?}");
        let left = 3 * OF_AN_HOUR - expected;
        assert_eq!(
            found(&store, &c, &doc! {"tags": "x"}),
            left as usize,
            "{filter:?}"
        );
        assert_eq!(store.estimated_count(&c), left as u64);
        is_consistent(&store, &c);
        store.engine().close().unwrap();
    }
}

/// A document is either deleted, or there with its entries.
#[test]
fn writers_beside_it_lose_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_with(EngineOptions::new(directory.path()));
    let c = ns("db.c");
    store.create_collection(&c, &by_hours()).unwrap();
    add_indexes(&store, &c);
    let ends = AtomicBool::new(false);
    let mut deleted = 0;
    let mut inserted = 0;
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut number = 0;
            while !ends.load(Ordering::Relaxed) {
                let doc = doc! {"_id": -1 - number, "ts": Value::DateTime(number % HOUR_MS), "a": 1, "tags": ["x"]};
                store.insert(&c, &[&doc], INSERT).unwrap();
                number += 1;
            }
            number
        });
        for _ in 0..4 {
            insert(&store, &c, 0..1);
            inserted += OF_AN_HOUR;
            deleted += delete(&store, &c, &doc! {"ts": {"$lt": Value::DateTime(HOUR_MS)}}) as i64;
        }
        ends.store(true, Ordering::Relaxed);
        inserted += writer.join().unwrap();
    });
    is_consistent(&store, &c);
    assert_eq!(store.estimated_count(&c) as i64, inserted - deleted);
    assert_eq!(
        found(&store, &c, &doc! {"tags": "x"}) as i64,
        inserted - deleted
    );
}

#[test]
fn a_transaction_that_wrote_before_does_not_commit_into_it() {
    let f = Fixture::new();
    let c = ns("db.c");
    insert(&f.store, &c, 0..2);
    let transaction = f.store.begin();
    let inside = f.store.in_transaction(&transaction);
    let doc = doc! {"_id": "late"};
    inside.insert(&c, &[&doc], INSERT).unwrap();
    assert_eq!(delete(&f.store, &c, &doc! {}), 2 * OF_AN_HOUR as u64);
    let error = transaction.commit(Durability::Logged).unwrap_err();
    assert_eq!(error.code().code(), 112);
    assert_eq!(found(&f.store, &c, &doc! {}), 0);
    is_consistent(&f.store, &c);
}

/// The oplog has an entry for each document.
#[test]
fn with_an_oplog_each_document_is_deleted_by_itself() {
    let f = Fixture::new();
    f.store.turn_on_oplog(OPLOG).unwrap();
    let c = ns("db.c");
    insert(&f.store, &c, 0..1);
    assert_eq!(delete(&f.store, &c, &doc! {}), OF_AN_HOUR as u64);
    let entries = found(
        &f.store,
        &ns("local.oplog.rs"),
        &doc! {"op": "d", "ns": "db.c"},
    );
    assert_eq!(entries as i64, OF_AN_HOUR);
}
