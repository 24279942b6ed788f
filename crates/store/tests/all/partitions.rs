//! Partitioned collections: what is read, added and dropped.
#![allow(clippy::unwrap_used)]

use crate::common;

use std::sync::atomic::{AtomicBool, Ordering};

use common::{Fixture, ns};
use frond_bson::{Doc, DocBuf, OwnedValue, Value, doc};
use frond_store::{
    Durability, FindRequest, IndexSelector, Namespace, OpContext, PartitionSelector, UpdateRequest,
    Verbosity,
};

const HOUR: i64 = 3_600_000;

fn hourly() -> (Fixture, Namespace) {
    let (f, c) = (Fixture::new(), ns("db.c"));
    let options = doc! {"partitioned": {"by": "ts", "every": "1h"}};
    f.store.create_collection(&c, &options).unwrap();
    let indexes = [
        doc! {"key": {"a": 1}, "name": "a"},
        doc! {"key": {"ts": 1, "u": 1}, "name": "u", "unique": true},
    ];
    let indexes: Vec<&Doc> = indexes.iter().map(|index| &**index).collect();
    f.store.create_indexes(&c, &indexes).unwrap();
    (f, c)
}

/// Ten documents in each of some hours.
fn fill(f: &Fixture, c: &Namespace, hours: std::ops::Range<i64>) {
    let docs: Vec<DocBuf> = hours
        .flat_map(|hour| (0..10).map(move |n| (hour, n)))
        .map(|(hour, n)| doc! {"_id": hour * 10 + n, "ts": Value::DateTime(hour * HOUR + n), "a": n, "u": n})
        .collect();
    assert_eq!(f.insert(c, &docs).inserted, docs.len());
}

fn now_ms() -> i64 {
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

fn ids(found: &[DocBuf]) -> Vec<i64> {
    let id = |doc: &DocBuf| doc.get("_id").unwrap().as_i64_lossless().unwrap();
    found.iter().map(id).collect()
}

fn check(f: &Fixture, c: &Namespace) {
    assert_eq!(f.store.verify(c).unwrap().errors, Vec::<String>::new());
}

fn date(hour: i64) -> PartitionSelector {
    PartitionSelector::Id(OwnedValue::from(Value::DateTime(hour * HOUR)))
}

/// The partitions that the scan of a query reads.
fn partitions_read(f: &Fixture, c: &Namespace, filter: &Doc) -> Vec<i64> {
    let request = FindRequest {
        filter: Some(filter),
        ..FindRequest::default()
    };
    let explained = (f.store)
        .explain_find(c, &request, Verbosity::QueryPlanner, &OpContext::new())
        .unwrap();
    fn find(doc: &Doc, out: &mut Vec<i64>) {
        for (name, value) in doc.iter() {
            match value {
                Value::Array(list) if name == "partitions" => {
                    out.extend(list.values().map(|value| match value {
                        Value::DateTime(date) => date / HOUR,
                        other => other.as_i64_lossless().unwrap(),
                    }));
                }
                Value::Document(inner) | Value::Array(inner) => find(inner, out),
                _ => {}
            }
        }
    }
    let mut out = Vec::new();
    let planner = explained.get_doc("queryPlanner").unwrap();
    find(planner.get_doc("winningPlan").unwrap(), &mut out);
    out
}

#[test]
fn queries_read_the_partitions_of_their_conditions() {
    let (f, c) = hourly();
    fill(&f, &c, 0..5);
    for (filter, found, read) in [
        (doc! {"a": 3}, vec![3, 13, 23, 33, 43], vec![0, 1, 2, 3, 4]),
        (
            doc! {"a": 3, "ts": {"$gte": Value::DateTime(HOUR), "$lt": Value::DateTime(3 * HOUR)}},
            vec![13, 23],
            vec![1, 2],
        ),
        (
            doc! {"a": 3, "ts": Value::DateTime(4 * HOUR + 3)},
            vec![43],
            vec![4],
        ),
        (doc! {"_id": 21}, vec![21], vec![0, 1, 2, 3, 4]),
        (
            doc! {"_id": 21, "ts": {"$lt": Value::DateTime(0)}},
            vec![],
            vec![],
        ),
        (
            doc! {"a": 3, "ts": {"$gt": Value::DateTime(90 * HOUR)}},
            vec![],
            vec![],
        ),
    ] {
        let request = FindRequest {
            filter: Some(&filter),
            hint: filter.contains_key("a").then_some(Value::String("a")),
            ..FindRequest::default()
        };
        let mut all = ids(&f.find(&c, &request));
        all.sort_unstable();
        assert_eq!(all, found, "{filter:?}");
        if filter.count() == 1 || found.is_empty() {
            assert_eq!(partitions_read(&f, &c, &filter), read, "{filter:?}");
        }
    }
    // The partitions are merged in the order of the sort.
    for (sort, first) in [(doc! {"a": 1}, 0), (doc! {"a": -1}, 9)] {
        let request = FindRequest {
            sort: Some(&sort),
            hint: Some(Value::String("a")),
            limit: Some(5),
            ..FindRequest::default()
        };
        let mut found = ids(&f.find(&c, &request));
        found.sort_unstable();
        assert_eq!(
            found,
            [first, first + 10, first + 20, first + 30, first + 40],
            "{sort:?}"
        );
    }
    check(&f, &c);
}

#[test]
fn a_dropped_partition_is_gone_with_its_entries() {
    let (f, c) = hourly();
    fill(&f, &c, -1..4);
    assert_eq!(f.store.drop_partitions(&c, &date(1)).unwrap(), (1, 10));
    assert_eq!(
        f.store
            .drop_partitions(&c, &date(1))
            .unwrap_err()
            .code()
            .code(),
        2
    );
    assert_eq!(f.find_all(&c, doc! {}).len(), 40);
    assert_eq!(f.find_all(&c, doc! {"a": 2}).len(), 4);
    check(&f, &c);
    let through = PartitionSelector::Through(doc! {"ts": Value::DateTime(HOUR - 1)});
    assert_eq!(f.store.drop_partitions(&c, &through).unwrap(), (2, 20));
    let shown: Vec<_> = f
        .store
        .partitions(&c)
        .unwrap()
        .iter()
        .map(|one| one.get_i64("count"))
        .collect();
    assert_eq!(shown, [Some(10), Some(10)]);
    let f = f.reopen();
    check(&f, &c);
    assert_eq!(f.find_all(&c, doc! {}).len(), 20);
    // Late documents begin it again.
    fill(&f, &c, 1..2);
    assert_eq!(f.find_all(&c, doc! {"a": 2}).len(), 3);
    check(&f, &c);
}

#[test]
fn expired_partitions_are_dropped_and_their_documents_refused() {
    let (f, c) = hourly();
    let hour = now_ms() / HOUR;
    let now = hour * HOUR;
    fill(&f, &c, hour - 5..hour + 1);
    f.store
        .modify_collection(&c, &doc! {"expireAfterSeconds": 2 * 3600})
        .unwrap();
    let pass = f.store.delete_expired(now + 1, &OpContext::new());
    assert!(pass.failed.is_empty(), "{:?}", pass.failed);
    assert_eq!(pass.deleted, 30);
    assert_eq!(f.find_all(&c, doc! {}).len(), 30);
    let late = doc! {"_id": -1, "ts": Value::DateTime(now - 6 * HOUR)};
    assert_eq!(f.insert(&c, &[late]).errors[0].error.code().code(), 2);
    let (filter, change) = (doc! {"a": 1}, doc! {"$set": {"ts": Value::DateTime(0)}});
    let update = UpdateRequest::new(&filter, Value::Document(&change));
    let refused = f
        .store
        .update(&c, &update, Durability::Logged, &OpContext::new());
    assert_eq!(refused.unwrap_err().code().code(), 2);
    for wrong in [doc! {"_id": -1, "ts": 5}, doc! {"_id": -1}] {
        assert_eq!(f.insert(&c, &[wrong]).errors[0].error.code().code(), 2);
    }
    check(&f, &c);
}

#[test]
fn partitions_are_added_at_the_end() {
    let (f, c) = (Fixture::new(), ns("db.c"));
    let options = doc! {"primaryKey": {"n": 1, "_id": 1}, "partitioned": true};
    f.store.create_collection(&c, &options).unwrap();
    f.store
        .create_indexes(&c, &[&doc! {"key": {"a": 1}, "name": "a"}])
        .unwrap();
    assert_eq!(
        f.store.add_partition(&c, None).unwrap_err().code().code(),
        20
    );
    let insert = |from: i32, to: i32| {
        let docs: Vec<DocBuf> = (from..to)
            .map(|n| doc! {"_id": n, "n": n / 2, "a": n % 5})
            .collect();
        f.insert(&c, &docs).inserted
    };
    assert_eq!(insert(0, 20), 20);
    // The greatest value so far, with all documents that have it.
    assert_eq!(f.store.add_partition(&c, None).unwrap(), 1);
    assert_eq!(insert(20, 40), 20);
    assert_eq!(
        f.store
            .add_partition(&c, Some(&doc! {"n": 5}))
            .unwrap_err()
            .code()
            .code(),
        2
    );
    assert_eq!(
        f.store
            .add_partition(&c, Some(&doc! {"x": 5}))
            .unwrap_err()
            .code()
            .code(),
        72
    );
    assert_eq!(
        f.store
            .add_partition(&c, Some(&doc! {"n": 30, "_id": Value::MaxKey}))
            .unwrap(),
        2
    );
    assert_eq!(insert(60, 70), 10);
    check(&f, &c);
    let f = f.reopen();
    let counts = |f: &Fixture| -> Vec<_> {
        let all = f.store.partitions(&c).unwrap();
        all.iter()
            .map(|one| {
                (
                    one.get("_id").unwrap().as_i64_lossless().unwrap(),
                    one.get_i64("count").unwrap(),
                )
            })
            .collect()
    };
    assert_eq!(counts(&f), [(0, 20), (1, 22), (2, 8)]);
    assert_eq!(partitions_read(&f, &c, &doc! {"a": 1}), [0, 1, 2]);
    let first = PartitionSelector::Id(OwnedValue::from(Value::Int32(0)));
    assert_eq!(f.store.drop_partitions(&c, &first).unwrap(), (1, 20));
    let old = f.insert(&c, &[doc! {"_id": 3, "n": 3}]);
    assert_eq!(old.errors[0].error.code().code(), 2);
    assert_eq!(f.insert(&c, &[doc! {"_id": 3, "n": 10}]).inserted, 1);
    // The last one is replaced by an empty one.
    let last = PartitionSelector::Id(OwnedValue::from(Value::Int32(2)));
    assert_eq!(f.store.drop_partitions(&c, &last).unwrap(), (1, 8));
    assert_eq!(counts(&f), [(1, 23), (3, 0)]);
    assert_eq!(f.find_all(&c, doc! {"a": {"$gte": 0}}).len(), 22);
    check(&f, &c);
    let f = f.reopen();
    assert_eq!(counts(&f), [(1, 23), (3, 0)]);
    check(&f, &c);
    let wrong = doc! {"key": {"a": 1}, "name": "u", "unique": true};
    let refused = f.store.create_indexes(&c, &[&wrong]).unwrap_err();
    assert_eq!(refused.code().code(), 67);
    let plain = ns("db.plain");
    f.insert(&plain, &[doc! {"_id": 1}]);
    assert_eq!(f.store.partitions(&plain).unwrap_err().code().code(), 20);
    assert_eq!(
        f.store
            .drop_partitions(&plain, &first)
            .unwrap_err()
            .code()
            .code(),
        20
    );
}

#[test]
fn a_collection_by_id_can_be_partitioned() {
    let (f, c) = (Fixture::new(), ns("db.c"));
    f.store
        .create_collection(&c, &doc! {"partitioned": true})
        .unwrap();
    f.store
        .create_indexes(&c, &[&doc! {"key": {"a": 1}, "name": "a"}])
        .unwrap();
    let docs: Vec<DocBuf> = (0..50).map(|n| doc! {"_id": n, "a": n % 3}).collect();
    f.insert(&c, &docs[..30]);
    f.store.add_partition(&c, None).unwrap();
    f.insert(&c, &docs[30..]);
    assert_eq!(ids(&f.find_all(&c, doc! {"_id": 31})), [31]);
    assert_eq!(partitions_read(&f, &c, &doc! {"a": 1}), [0, 1]);
    f.store
        .drop_partitions(&c, &PartitionSelector::Through(doc! {"_id": 29}))
        .unwrap();
    assert_eq!(f.find_all(&c, doc! {}).len(), 20);
    assert_eq!(f.find_all(&c, doc! {"a": 1}).len(), 7);
    check(&f, &c);
    // Moving documents is impossible, so is a change of the division.
    assert!(
        f.store
            .modify_collection(&c, &doc! {"partitioned": false})
            .is_err()
    );
}

#[test]
fn partitions_are_dropped_beside_writers() {
    let (f, c) = hourly();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..2i64 {
            let (f, c, stop) = (&f, &c, &stop);
            scope.spawn(move || {
                let mut n = 0;
                while !stop.load(Ordering::Relaxed) {
                    n += 1;
                    let ts = Value::DateTime(n % 4 * HOUR + n);
                    let id = writer * 1_000_000 + n;
                    f.insert(c, &[doc! {"_id": id, "ts": ts, "a": n % 7, "u": id}]);
                    let (filter, change) = (doc! {"_id": id}, doc! {"$inc": {"a": 1}});
                    let update = UpdateRequest::new(&filter, Value::Document(&change));
                    f.store
                        .update(c, &update, Durability::Logged, &OpContext::new())
                        .unwrap();
                }
            });
        }
        for round in 0..40 {
            let hour = round % 4;
            while !f
                .store
                .partitions(&c)
                .unwrap()
                .iter()
                .any(|one| one.get("_id") == Some(Value::DateTime(hour * HOUR)))
            {
                std::thread::yield_now();
            }
            f.store.drop_partitions(&c, &date(hour)).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    check(&f, &c);
    let total = f.store.collection_stats(&c).unwrap().count;
    let counted: i64 = f
        .store
        .partitions(&c)
        .unwrap()
        .iter()
        .map(|one| one.get_i64("count").unwrap())
        .sum();
    assert_eq!(
        (total as i64, f.find_all(&c, doc! {}).len() as i64),
        (counted, counted)
    );
}

/// More documents than an index is filled with at once, so that writers use a side tree meanwhile.
#[test]
fn a_unique_index_is_built_beside_writers() {
    for options in [
        doc! {"primaryKey": {"ts": 1, "_id": 1}},
        doc! {"partitioned": {"by": "ts", "every": "1h"}},
        doc! {"primaryKey": {"ts": 1, "x": -1, "_id": 1}, "partitioned": true},
    ] {
        let (f, c) = (Fixture::new(), ns("db.c"));
        f.store.create_collection(&c, &options).unwrap();
        fill(&f, &c, 0..400);
        let index = doc! {"key": {"ts": 1, "u": 1}, "name": "u", "unique": true};
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut n = 0;
                while !stop.load(Ordering::Relaxed) {
                    n += 1;
                    let (filter, ts) = (
                        doc! {"_id": n * 7 % 4000},
                        Value::DateTime(n % 400 * HOUR + 20 + n),
                    );
                    let change = doc! {"$set": {"ts": ts, "u": n}};
                    let update = UpdateRequest::new(&filter, Value::Document(&change));
                    f.store
                        .update(&c, &update, Durability::Logged, &OpContext::new())
                        .unwrap();
                    f.insert(&c, &[doc! {"_id": 10_000 + n, "ts": ts, "u": -n}]);
                }
            });
            f.store.create_indexes(&c, &[&index]).unwrap();
            stop.store(true, Ordering::Relaxed);
            writer.join().unwrap();
        });
        check(&f, &c);
        let found = f.find_all(&c, doc! {"ts": Value::DateTime(5), "u": 5});
        assert!(found.len() <= 1);
        f.store
            .drop_indexes(&c, &IndexSelector::Name("u".into()))
            .unwrap();
        let twice = Value::DateTime(HOUR * 1000);
        f.insert(
            &c,
            &[
                doc! {"_id": -1, "ts": twice, "u": 1},
                doc! {"_id": -2, "ts": twice, "u": 1},
            ],
        );
        let refused = f.store.create_indexes(&c, &[&index]).unwrap_err();
        assert_eq!(refused.code().code(), 11000);
        assert!(refused.message().contains("u: 1"), "{}", refused.message());
        check(&f, &c);
    }
}

#[test]
fn a_transaction_finds_its_documents_in_new_partitions() {
    let (f, c) = hourly();
    fill(&f, &c, 0..2);
    let transaction = f.store.begin();
    let store = f.store.in_transaction(&transaction);
    let docs = [doc! {"_id": 500, "ts": Value::DateTime(9 * HOUR), "a": 3, "u": 1}];
    let docs: Vec<&Doc> = docs.iter().map(|doc| &**doc).collect();
    assert_eq!(store.insert(&c, &docs, common::INSERT).unwrap().inserted, 1);
    let filter = doc! {"a": 3};
    let request = FindRequest {
        filter: Some(&filter),
        hint: Some(Value::String("a")),
        ..FindRequest::default()
    };
    let mut cursor = store.find(&c, &request, &OpContext::new()).unwrap();
    let mut found = 0;
    while cursor.next().unwrap().is_some() {
        found += 1;
    }
    assert_eq!(found, 3);
    drop(cursor);
    transaction.commit(Durability::Logged).unwrap();
    check(&f, &c);
    assert_eq!(f.store.partitions(&c).unwrap().len(), 3);
}
