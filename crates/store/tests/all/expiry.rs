//! Documents expire: those whose date is over and no others, whatever the index, the size of the batches, and other writers.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::disk::MemDisk;
use crate::common::{Fixture, INSERT, ns, open_with};
use frond_bson::{ArrayBuf, Doc, DocBuf, Value, doc};
use frond_store::{
    DocumentStore, Durability, EngineOptions, InsertOptions, Namespace, OpContext, TtlBacklog,
    TtlLimits, UpdateRequest, at_points,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const SECOND: i64 = 1000;

fn date(seconds: i64) -> Value<'static> {
    Value::DateTime(seconds * SECOND)
}

fn limits(documents: u64) -> TtlLimits {
    TtlLimits {
        documents,
        ..TtlLimits::NONE
    }
}

/// Deletes in batches of `documents` until nothing more has expired. Returns the number of documents of each batch.
fn drain(store: &DocumentStore, now_ms: i64, documents: u64) -> Vec<u64> {
    let mut batches = Vec::new();
    for mut expiring in store.expiring() {
        loop {
            let batch = store.delete_expired_batch(
                &mut expiring,
                now_ms,
                &limits(documents),
                &OpContext::new(),
            );
            assert!(batch.error.is_none(), "{:?}", batch.error);
            batches.push(batch.deleted);
            if !batch.more {
                break;
            }
        }
    }
    batches
}

fn ids(f: &Fixture, c: &Namespace) -> Vec<i32> {
    let found = f.find_all(c, doc! {});
    let mut ids: Vec<i32> = found.iter().filter_map(|doc| doc.get_i32("n")).collect();
    ids.sort_unstable();
    ids
}

fn assert_sound(store: &DocumentStore, c: &Namespace) {
    let report = store.verify(c).unwrap();
    assert_eq!(report.errors, Vec::<String>::new());
    assert_eq!(store.estimated_count(c), report.documents);
}

fn move_date(store: &DocumentStore, c: &Namespace, filter: &Doc, to: Value<'_>) -> u64 {
    let change = doc! {"$set": {"at": to}};
    let request = UpdateRequest {
        multi: true,
        ..UpdateRequest::new(filter, Value::Document(&change))
    };
    let outcome = store.update(c, &request, Durability::Logged, &OpContext::new());
    outcome.unwrap().modified
}

/// Documents with every kind of value in the field `at`. Those whose date is at most 100 s have expired at 160 s after 60 s.
fn documents() -> Vec<DocBuf> {
    let array = |values: &[i64]| -> ArrayBuf { values.iter().map(|at| date(*at)).collect() };
    let mixed: ArrayBuf = [Value::Int32(1), date(5)].into_iter().collect();
    let large = "x".repeat(200_000);
    let filled: ArrayBuf = (0..6000).map(Value::Int32).collect();
    vec![
        doc! {"n": 1, "at": date(100)},
        doc! {"n": 2, "at": Value::DateTime(100 * SECOND + 1)},
        doc! {"n": 3, "at": date(-5)},
        doc! {"n": 4, "at": Value::DateTime(i64::MIN)},
        doc! {"n": 5, "at": Value::DateTime(i64::MAX)},
        doc! {"n": 6},
        doc! {"n": 7, "at": Value::Null},
        doc! {"n": 8, "at": 5},
        doc! {"n": 9, "at": "1970-01-01"},
        doc! {"n": 10, "at": Value::Timestamp(frond_bson::Timestamp { time: 1, increment: 1 })},
        doc! {"n": 11, "at": &array(&[500, 600])},
        doc! {"n": 12, "at": &array(&[500, 99, 1])},
        doc! {"n": 13, "at": &mixed},
        doc! {"n": 14, "at": &array(&[])},
        doc! {"n": 15, "at": {"at": date(1)}},
        doc! {"n": 16, "at": date(50), "text": large.as_str(), "list": &filled},
        doc! {"n": 17, "at": date(500), "text": large.as_str(), "list": &filled},
        doc! {"n": 18, "at": date(60), "keep": true},
        doc! {"n": 19, "at": false},
        doc! {"n": 20, "at": Value::MinKey},
    ]
}

/// The documents of [`documents`] that expire by a plain index.
const EXPIRED: [i32; 7] = [1, 3, 4, 12, 13, 16, 18];

#[test]
fn documents_expire_by_every_kind_of_index_and_in_batches_of_every_size() {
    for (index, kept) in [
        (doc! {"key": {"at": 1}}, &[][..]),
        (doc! {"key": {"at": -1}}, &[]),
        (doc! {"key": {"at": 1}, "sparse": true}, &[]),
        (doc! {"key": {"at": 1}, "hidden": true}, &[]),
        (doc! {"key": {"at": 1}, "clustering": true}, &[]),
        (
            doc! {"key": {"at": 1}, "partialFilterExpression": {"n": {"$lt": 18}}},
            &[18],
        ),
        (
            doc! {"key": {"at": -1}, "partialFilterExpression": {"keep": {"$exists": true}}},
            &[1, 3, 4, 12, 13, 16],
        ),
    ] {
        for batch in [0, 1, 3] {
            for oplog in [false, true] {
                let f = if oplog {
                    Fixture::with_oplog()
                } else {
                    Fixture::new()
                };
                let c = ns("db.c");
                let mut spec = index.clone();
                spec.push("expireAfterSeconds", 60);
                f.store
                    .create_indexes(&c, &[&doc! {"key": {"n": 1}}, &spec])
                    .unwrap();
                f.insert(&c, &documents());
                let batches = drain(&f.store, 160 * SECOND, batch);
                let gone = |n: &i32| EXPIRED.contains(n) && !kept.contains(n);
                let left: Vec<i32> = (1..=20).filter(|n| !gone(n)).collect();
                assert_eq!(ids(&f, &c), left, "{spec:?}, batches of {batch}");
                let deleted: u64 = batches.iter().sum();
                assert_eq!(deleted, (EXPIRED.len() - kept.len()) as u64);
                assert!(batch == 0 || batches.iter().all(|deleted| *deleted <= batch));
                assert_sound(&f.store, &c);
            }
        }
    }
}

#[test]
fn the_oldest_documents_expire_first() {
    for direction in [1, -1] {
        let f = Fixture::new();
        let c = ns("db.c");
        let index = doc! {"key": {"at": direction}, "expireAfterSeconds": 0};
        f.store.create_indexes(&c, &[&index]).unwrap();
        // The dates are in another order than the keys.
        let docs: Vec<DocBuf> = (0..2500)
            .map(|n| doc! {"_id": (n * 7) % 2500, "n": n, "at": date(n.into())})
            .collect();
        f.insert(&c, &docs);
        let mut expiring = f.store.expiring().pop().unwrap();
        for end in [1100, 2000] {
            let context = OpContext::new();
            let batch =
                f.store
                    .delete_expired_batch(&mut expiring, 1999 * SECOND, &limits(1100), &context);
            assert_eq!(batch.more, end == 1100);
            assert_eq!(ids(&f, &c), (end..2500).collect::<Vec<_>>());
        }
        assert_sound(&f.store, &c);
    }
}

#[test]
fn collections_expire_by_their_keys_and_divided_ones_by_an_index() {
    let clustered = doc! {"clusteredIndex": {"key": {"_id": 1}, "unique": true}};
    let divided = doc! {"partitioned": true};
    for (options, index) in [
        (&clustered, None),
        (
            &divided,
            Some(doc! {"key": {"at": 1}, "expireAfterSeconds": 60}),
        ),
        (
            &divided,
            Some(doc! {"key": {"at": -1}, "expireAfterSeconds": 60}),
        ),
    ] {
        for batch in [0, 7] {
            let f = Fixture::new();
            let c = ns("db.c");
            let mut options = options.clone();
            if index.is_none() {
                options.push("expireAfterSeconds", 60i64);
            }
            f.store.create_collection(&c, &options).unwrap();
            if let Some(index) = &index {
                f.store.create_indexes(&c, &[index]).unwrap();
            }
            let docs: Vec<DocBuf> = (0..50)
                .map(|n| doc! {"_id": date((n * 11) % 50), "at": date((n * 11) % 50), "n": (n * 11) % 50})
                .map(|doc| {
                    let mut out = DocBuf::new();
                    out.push_value("_id", &doc.get("_id").unwrap());
                    out.push_value("at", &doc.get("at").unwrap());
                    out.push("n", doc.get_i64("n").unwrap() as i32);
                    out
                })
                .collect();
            f.insert(&c, &docs);
            if options.get("clusteredIndex").is_some() {
                // These have no date.
                f.insert(
                    &c,
                    &[doc! {"_id": 1, "n": 100}, doc! {"_id": "a", "n": 101}],
                );
            }
            let deleted: u64 = drain(&f.store, 80 * SECOND, batch).iter().sum();
            assert_eq!(deleted, 21, "{options:?}");
            let left = ids(&f, &c);
            assert!(left.iter().all(|n| *n > 20) && left.len() >= 29, "{left:?}");
            assert_sound(&f.store, &c);
        }
    }
}

/// The keys come from an older snapshot than the documents, and the commit is later still.
#[test]
fn a_document_whose_date_is_moved_meanwhile_stays() {
    let f = Fixture::new();
    let c = ns("db.c");
    let index = doc! {"key": {"at": 1}, "expireAfterSeconds": 0};
    f.store.create_indexes(&c, &[&index]).unwrap();
    let docs: Vec<DocBuf> = (0..2500)
        .map(|n| doc! {"_id": n, "n": n, "at": date(1)})
        .collect();
    f.insert(&c, &docs);
    let rounds = Rc::new(Cell::new(0));
    let seen = rounds.clone();
    let (store, ns) = (f.store.clone(), c.clone());
    let _acts = at_points(move |point| {
        if point == "expired documents are about to be deleted" && seen.get() < 3 {
            seen.set(seen.get() + 1);
            // One of this commit and one of a later commit.
            let round = seen.get();
            let moved = doc! {"_id": {"$in": [round * 10, 2000 + round]}};
            assert_eq!(move_date(&store, &ns, &moved, date(9)), 2);
            let gone = doc! {"_id": {"$in": [round * 10 + 1, 2100 + round]}};
            let request = frond_store::DeleteRequest {
                filter: &gone,
                limit_one: false,
                hint: None,
                variables: None,
                collation: None,
            };
            store
                .delete(&ns, &request, Durability::Logged, &OpContext::new())
                .unwrap();
        }
    });
    let deleted: u64 = drain(&f.store, 5 * SECOND, 0).iter().sum();
    assert_eq!(rounds.get(), 3);
    assert_eq!(ids(&f, &c), [10, 20, 30, 2001, 2002, 2003]);
    assert_eq!(deleted, 2500 - 6 - 6);
    assert_sound(&f.store, &c);
    assert_eq!(drain(&f.store, 9 * SECOND, 0), [6]);
}

/// Writers insert, move dates forward and back, and delete, while documents expire.
#[test]
fn only_expired_documents_go_beside_writers() {
    let f = Fixture::new();
    let c = ns("db.c");
    for index in [
        doc! {"key": {"at": 1}, "expireAfterSeconds": 0},
        doc! {"key": {"n": 1}, "unique": true},
        doc! {"key": {"tags": 1}},
    ] {
        f.store.create_indexes(&c, &[&index]).unwrap();
    }
    let now = AtomicU64::new(1);
    let stop = AtomicBool::new(false);
    const WRITERS: i32 = 3;
    let (store, c_ref, now_ref, stop_ref) = (&f.store, &c, &now, &stop);
    let mut kept: Vec<i32> = Vec::new();
    thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn(move || {
                    let mut random = StdRng::seed_from_u64(writer as u64);
                    let mut kept = Vec::new();
                    for round in 0..60 {
                        let docs: Vec<DocBuf> = (0..20)
                            .map(|i| {
                                let n = writer + WRITERS * (round * 20 + i);
                                // Most expire soon or have expired already.
                                let at = now_ref.load(Ordering::Relaxed) as i64;
                                let at = date(at + random.random_range(-2..3));
                                doc! {"_id": (n * 7919) % 100_003, "n": n, "at": at, "tags": [n % 3, n % 7]}
                            })
                            .collect();
                        let docs: Vec<&Doc> = docs.iter().map(|doc| &**doc).collect();
                        let outcome = store.insert(c_ref, &docs, INSERT).unwrap();
                        assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
                        let n = writer + WRITERS * (round * 20 + random.random_range(0..20));
                        // A document that is still there when its date is moved away never expires.
                        if move_date(store, c_ref, &doc! {"n": n}, date(1_000_000)) == 1 {
                            kept.push(n);
                        }
                        now_ref.fetch_add(1, Ordering::Relaxed);
                    }
                    kept
                })
            })
            .collect();
        let expirer = scope.spawn(move || {
            let mut deleted = 0;
            loop {
                let last = stop_ref.load(Ordering::SeqCst);
                let at = now_ref.load(Ordering::Relaxed) as i64;
                deleted += drain(store, at * SECOND, 17).iter().sum::<u64>();
                if last {
                    return deleted;
                }
            }
        });
        for writer in writers {
            kept.extend(writer.join().unwrap());
        }
        // The last insertions are due now.
        now.fetch_add(10, Ordering::Relaxed);
        stop.store(true, Ordering::SeqCst);
        let deleted = expirer.join().unwrap();
        assert_eq!(deleted as usize + kept.len(), 60 * 20 * WRITERS as usize);
    });
    kept.sort_unstable();
    assert!(!kept.is_empty());
    assert_eq!(ids(&f, &c), kept);
    assert_sound(&f.store, &c);
}

#[test]
fn several_threads_delete_each_expired_document_once() {
    // The documents of the second one are searched in the order of their keys.
    for options in [doc! {}, doc! {"partitioned": true}] {
        let f = Fixture::new();
        let c = ns("db.c");
        f.store.create_collection(&c, &options).unwrap();
        for index in [
            doc! {"key": {"at": 1}, "expireAfterSeconds": 0},
            doc! {"key": {"n": 1}},
        ] {
            f.store.create_indexes(&c, &[&index]).unwrap();
        }
        let docs: Vec<DocBuf> = (0..24_000)
            .map(|n| doc! {"_id": (n * 7919) % 24_007, "n": n, "at": date(if n % 3 == 0 { 100 } else { n as i64 % 40 })})
            .collect();
        f.insert(&c, &docs);
        let limits = TtlLimits {
            time: Duration::from_millis(5),
            threads: 4,
            ..TtlLimits::NONE
        };
        let (store, c) = (&f.store, &c);
        let (mut deleted, mut moved) = (0, 0);
        thread::scope(|scope| {
            let writer = scope.spawn(move || {
                let numbers = (0..24_000).step_by(97).filter(|n| n % 3 != 0);
                let away = |n: i32| move_date(store, c, &doc! {"n": n}, date(1000));
                numbers.map(away).sum::<u64>()
            });
            let mut expiring = store.expiring().pop().unwrap();
            loop {
                let context = OpContext::new();
                let batch =
                    store.delete_expired_batch(&mut expiring, 50 * SECOND, &limits, &context);
                assert!(batch.error.is_none(), "{:?}", batch.error);
                deleted += batch.deleted;
                if !batch.more {
                    break;
                }
            }
            moved += writer.join().unwrap();
        });
        // The next pass finds documents that the writer moved while they were read, if they have expired.
        deleted += drain(store, 50 * SECOND, 0).iter().sum::<u64>();
        assert_eq!(deleted + moved, 16_000);
        assert_eq!(ids(&f, c).len() as u64, 8000 + moved);
        assert_sound(store, c);
    }
}

#[test]
fn a_batch_with_a_limit_of_time_gets_on() {
    for options in [
        doc! {},
        // Its documents are searched.
        doc! {"partitioned": true},
    ] {
        let f = Fixture::new();
        let c = ns("db.c");
        f.store.create_collection(&c, &options).unwrap();
        let index = doc! {"key": {"at": 1}, "expireAfterSeconds": 0};
        f.store.create_indexes(&c, &[&index]).unwrap();
        let docs: Vec<DocBuf> = (0..6000)
            .map(|n| doc! {"n": n, "at": date(if n % 2 == 0 { 1 } else { 100 })})
            .collect();
        f.insert(&c, &docs);
        let mut expiring = f.store.expiring().pop().unwrap();
        let limits = TtlLimits {
            time: Duration::from_nanos(1),
            ..TtlLimits::NONE
        };
        let (mut batches, mut deleted) = (0, 0);
        loop {
            let context = OpContext::new();
            let batch = f
                .store
                .delete_expired_batch(&mut expiring, 50 * SECOND, &limits, &context);
            assert!(batch.error.is_none());
            (batches, deleted) = (batches + 1, deleted + batch.deleted);
            if !batch.more {
                break;
            }
        }
        assert_eq!(deleted, 3000);
        assert!(batches >= 3, "{batches} batches");
        assert_sound(&f.store, &c);
    }
}

#[test]
fn the_backlog_is_what_has_expired() {
    for direction in [1, -1] {
        let f = Fixture::new();
        let c = ns("db.c");
        let index = doc! {"key": {"at": direction}, "expireAfterSeconds": 10};
        f.store.create_indexes(&c, &[&index]).unwrap();
        let mut expiring = f.store.expiring().pop().unwrap();
        let context = OpContext::new();
        let backlog = |expiring: &frond_store::Expiring, now| {
            let measured = f.store.ttl_backlog(expiring, now * SECOND, &context);
            measured.unwrap().unwrap()
        };
        assert_eq!(backlog(&expiring, 50), TtlBacklog::default());
        let docs: Vec<DocBuf> = (20..50)
            .map(|n| doc! {"n": n, "at": date(n.into())})
            .collect();
        f.insert(&c, &docs);
        f.insert(&c, &[doc! {"at": 5}, doc! {}]);
        for (now, documents) in [(29, 0), (30, 1), (39, 10), (1000, 30)] {
            let expected = TtlBacklog {
                documents,
                oldest_expires_ms: Some(30 * SECOND),
            };
            assert_eq!(backlog(&expiring, now), expected);
        }
        let batch = f
            .store
            .delete_expired_batch(&mut expiring, 39 * SECOND, &limits(4), &context);
        assert!(batch.more);
        let expected = TtlBacklog {
            documents: 6,
            oldest_expires_ms: Some(34 * SECOND),
        };
        assert_eq!(backlog(&expiring, 39), expected);
        f.store.drop_collection(&c).unwrap();
        let gone = f.store.ttl_backlog(&expiring, 39 * SECOND, &context);
        assert_eq!(gone.unwrap(), None);
        let batch = f
            .store
            .delete_expired_batch(&mut expiring, 39 * SECOND, &limits(4), &context);
        assert!(batch.error.is_none() && !batch.more);
    }
}

struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Power failures while documents are inserted and expire.
#[test]
fn documents_expire_whole_after_a_crash() {
    let disk = MemDisk::default();
    let open = |disk: &MemDisk| open_with(EngineOptions::with_disk(Arc::new(disk.clone())));
    let running = open(&disk);
    let c = ns("db.c");
    for index in [
        doc! {"key": {"at": 1}, "expireAfterSeconds": 0},
        doc! {"key": {"u": 1}, "unique": true},
        doc! {"key": {"tags": 1, "at": -1}},
    ] {
        running.create_indexes(&c, &[&index]).unwrap();
    }
    running.engine().flush_log().unwrap();
    let (deleted, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            for batch in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let docs: Vec<DocBuf> = (0..50)
                    .map(|i| {
                        let n = batch * 50 + i;
                        // Every tenth stays.
                        let at = if n % 10 == 0 { 1000 } else { n % 5 };
                        doc! {"_id": n, "u": n, "at": date(at.into()), "tags": [n % 3, n % 5]}
                    })
                    .collect();
                let docs: Vec<&Doc> = docs.iter().map(|doc| &**doc).collect();
                // Others may be lost in part.
                let durability = match batch % 5 {
                    0 => Durability::Synced,
                    _ => Durability::Logged,
                };
                let options = InsertOptions {
                    durability,
                    ..INSERT
                };
                running.insert(&c, &docs, options).unwrap();
                deleted.fetch_add(
                    drain(&running, 10 * SECOND, 30).iter().sum(),
                    Ordering::SeqCst,
                );
            }
        });
        // A failed assertion ends the writer, too.
        let _ends = Ends(&stop);
        for round in 0..4 {
            let before = deleted.load(Ordering::SeqCst);
            while deleted.load(Ordering::SeqCst) < before + 400 {
                thread::yield_now();
            }
            if round == 2 {
                running.checkpoint().unwrap();
            }
            let image = disk.image(&mut StdRng::seed_from_u64(round));
            let store = open(&image);
            assert_sound(&store, &c);
            drain(&store, 10 * SECOND, 0);
            let filter = doc! {"u": {"$mod": [10, 0]}};
            let count = frond_store::CountRequest {
                filter: Some(&filter),
                ..Default::default()
            };
            let staying = store.count(&c, &count, &OpContext::new()).unwrap();
            assert_eq!(store.estimated_count(&c), staying);
            assert_sound(&store, &c);
            store.engine().close().unwrap();
        }
    });
}
