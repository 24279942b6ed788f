//! Fast updates: their effect is that of ordinary ones, whatever happens to the same documents meanwhile.

#![allow(clippy::unwrap_used)]

use crate::common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use common::disk::MemDisk;
use common::{INSERT, OPLOG, ns, open_with};
use frond_bson::{Doc, DocBuf, Value, doc};
use frond_query::update::{ApplyContext, Update};
use frond_store::{
    CountRequest, DeleteRequest, DocumentStore, Durability, EngineOptions, FindRequest,
    InsertRecording, LargeDocuments, Namespace, OpContext, QueryCursor, SENT, StatementId,
    StoreOptions, UpdateRequest,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// An update of the document with an `_id`, and whether it is an upsert.
type One = (i32, DocBuf, bool);

fn request<'a>(filter: &'a Doc, update: &'a Doc, upsert: bool) -> UpdateRequest<'a> {
    UpdateRequest {
        upsert,
        ..UpdateRequest::new(filter, Value::Document(update))
    }
}

/// Sends updates; returns how many were sent.
fn send(store: &DocumentStore, ns: &Namespace, updates: &[One]) -> usize {
    let filters: Vec<DocBuf> = updates.iter().map(|(id, ..)| doc! {"_id": *id}).collect();
    let requests: Vec<UpdateRequest<'_>> = (updates.iter().zip(&filters))
        .map(|((_, update, upsert), filter)| request(filter, update, *upsert))
        .collect();
    let (sent, failure) = store.update_fast(ns, &requests, None, &OpContext::new());
    assert!(failure.is_none(), "{failure:?}");
    sent
}

fn rows(mut cursor: QueryCursor) -> Vec<DocBuf> {
    let mut found = Vec::new();
    while let Some(doc) = cursor.next().unwrap() {
        found.push(doc);
    }
    found
}

fn open_all(store: &DocumentStore, ns: &Namespace) -> QueryCursor {
    let all = FindRequest::default();
    store.find(ns, &all, &OpContext::new()).unwrap()
}

fn count(store: &DocumentStore, ns: &Namespace) -> u64 {
    store
        .count(ns, &CountRequest::default(), &OpContext::new())
        .unwrap()
}

/// The documents as the ordinary updates leave them.
#[derive(Clone, Default)]
struct Model {
    docs: BTreeMap<i32, DocBuf>,
    failed: u64,
}

impl Model {
    fn update(&mut self, (id, update, upsert): &One) {
        let parsed = Update::parse(update, &[]).unwrap();
        let mut context = ApplyContext::at(0);
        let new = doc! {"_id": *id};
        let base = match self.docs.get(id) {
            Some(doc) => doc,
            None if *upsert => {
                context.is_upsert_insert = true;
                &new
            }
            None => return,
        };
        match parsed.apply(base, &context) {
            Ok(applied) => {
                self.docs.insert(*id, applied.doc);
            }
            Err(_) => self.failed += 1,
        }
    }

    fn all(&self) -> Vec<DocBuf> {
        self.docs.values().cloned().collect()
    }
}

fn random_update(random: &mut StdRng) -> DocBuf {
    let number = |random: &mut StdRng| match random.random_range(0..8) {
        0 => Value::Int64(i64::MAX - 2),
        1 => Value::Double(0.5),
        2 => Value::Int32(i32::MAX),
        _ => Value::Int32(random.random_range(-3..4)),
    };
    let text = "x".repeat(random.random_range(0..12));
    let mut update = DocBuf::new();
    match random.random_range(0..12) {
        0..4 => update.push("$inc", &doc! {"n": number(random)}),
        4 => update.push("$inc", &doc! {"n": number(random), "d.m": number(random)}),
        5 => update.push("$set", &doc! {"s": &text}),
        6 => {
            update.push("$set", &doc! {"s": &text, "a.1": 5});
            update.push("$setOnInsert", &doc! {"o": number(random)});
        }
        7 => update.push("$set", &doc! {"n": &text}),
        8 => {
            update.push("$max", &doc! {"x": number(random)});
            update.push("$unset", &doc! {"s": ""});
        }
        9 => update.push("$min", &doc! {"x": number(random)}),
        10 => update.push("$mul", &doc! {"n": number(random)}),
        _ => update.push("$bit", &doc! {"b": {"xor": random.random_range(0..9)}}),
    }
    update
}

/// A document with many fields, of which some are large.
fn large(id: i32, random: &mut StdRng) -> DocBuf {
    let mut doc = doc! {"_id": id, "n": 1};
    doc.push_doc("d", |part| {
        for field in 0..random.random_range(5..60) {
            part.push(&format!("f{field}"), field);
        }
        part.push("m", 1);
    });
    doc.push("s", &*"large".repeat(random.random_range(1..100)));
    doc
}

/// A new store with a collection that takes fast updates.
fn with_fast_updates() -> (tempfile::TempDir, DocumentStore, Namespace) {
    let directory = tempfile::tempdir().unwrap();
    let store = open_with(EngineOptions::new(directory.path()));
    let c = ns("db.c");
    store
        .create_collection(&c, &doc! {"fastUpdates": true})
        .unwrap();
    (directory, store, c)
}

#[test]
fn the_documents_are_those_of_ordinary_updates() {
    for (seed, threshold_bytes) in [(1, usize::MAX), (2, 300), (3, usize::MAX), (4, 300)] {
        let random = &mut StdRng::seed_from_u64(seed);
        let directory = tempfile::tempdir().unwrap();
        let open = || {
            let engine = EngineOptions {
                cache_bytes: 32 << 20,
                client_bytes: Some(1 << 30),
                memtable_bytes: Some(1 << 20),
                ..EngineOptions::new(directory.path())
            };
            let large = LargeDocuments {
                threshold_bytes,
                segment_bytes: 40,
            };
            DocumentStore::open_engine(engine, StoreOptions::default().with_large_documents(large))
                .unwrap()
        };
        let c = ns("db.c");
        let mut store = open();
        store
            .create_collection(&c, &doc! {"fastUpdates": true})
            .unwrap();
        let mut model = Model::default();
        let mut kept: Option<(QueryCursor, Vec<DocBuf>)> = None;
        let context = OpContext::new();
        for step in 0..1500 {
            let id = random.random_range(0..20);
            match random.random_range(0..40) {
                0 => {
                    store.checkpoint().unwrap();
                }
                1 if step % 10 == 0 => {
                    kept = None;
                    store.engine().close().unwrap();
                    drop(store);
                    store = open();
                }
                2..6 => {
                    let filter = doc! {"_id": id};
                    let delete = DeleteRequest {
                        collation: None,
                        filter: &filter,
                        limit_one: true,
                        hint: None,
                        variables: None,
                    };
                    let deleted = store.delete(&c, &delete, Durability::Logged, &context);
                    assert_eq!(deleted.unwrap() == 1, model.docs.remove(&id).is_some());
                }
                6..8 => {
                    let new = large(id, random);
                    let filter = doc! {"_id": id};
                    let replacement = request(&filter, &new, true);
                    (store.update(&c, &replacement, Durability::Logged, &context)).unwrap();
                    model.docs.insert(id, new);
                }
                8..14 => {
                    let one = (id, random_update(random), random.random_bool(0.5));
                    let filter = doc! {"_id": id};
                    let failed = model.failed;
                    model.update(&one);
                    let ordinary = request(&filter, &one.1, one.2);
                    let done = store.update(&c, &ordinary, Durability::Logged, &context);
                    assert_eq!(done.is_err(), model.failed > failed, "{one:?}");
                    // The reply has reported the failure.
                    model.failed = failed;
                }
                14..16 => {
                    if let Some((cursor, expected)) = kept.take() {
                        assert_eq!(rows(cursor), expected);
                    }
                    kept = Some((open_all(&store, &c), model.all()));
                }
                16 => assert_eq!(count(&store, &c), model.docs.len() as u64),
                17..20 => {
                    let filter = doc! {"_id": id};
                    let one = FindRequest {
                        filter: Some(&filter),
                        ..FindRequest::default()
                    };
                    let found = rows(store.find(&c, &one, &context).unwrap());
                    assert_eq!(found.first(), model.docs.get(&id), "step {step}");
                }
                20 => assert_eq!(rows(open_all(&store, &c)), model.all(), "step {step}"),
                _ => {
                    let updates: Vec<One> = (0..random.random_range(1..30))
                        .map(|_| {
                            let id = random.random_range(0..20);
                            (id, random_update(random), random.random_bool(0.7))
                        })
                        .collect();
                    assert_eq!(send(&store, &c, &updates), updates.len());
                    updates.iter().for_each(|one| model.update(one));
                }
            }
        }
        assert_eq!(rows(open_all(&store, &c)), model.all());
        let report = store.verify(&c).unwrap();
        assert_eq!(report.errors, Vec::<String>::new());
        assert_eq!(report.documents, model.docs.len() as u64);
        // Counting made the counter exact.
        assert_eq!(count(&store, &c), model.docs.len() as u64);
        assert_eq!(store.estimated_count(&c), model.docs.len() as u64);
        store.engine().close().unwrap();
    }
}

/// Documents lie in another order than that of their `_id`s, and messages find them by both fields.
#[test]
fn updates_by_a_primary_key_change_the_documents_with_that_key() {
    let random = &mut StdRng::seed_from_u64(5);
    let directory = tempfile::tempdir().unwrap();
    let store = open_with(EngineOptions::new(directory.path()));
    let c = ns("db.c");
    let options = doc! {"fastUpdates": true, "primaryKey": {"g": -1, "_id": 1}};
    store.create_collection(&c, &options).unwrap();
    store
        .create_indexes(&c, &[&doc! {"key": {"k": 1}, "name": "k"}])
        .unwrap();
    let mut model = Model::default();
    for id in 0..20 {
        let doc = doc! {"_id": id, "g": id % 3, "k": id};
        store.insert(&c, &[&doc], INSERT).unwrap();
        model.docs.insert(id, doc);
    }
    for step in 0..600 {
        // Some name no document: the other field differs.
        let id = random.random_range(0..22);
        let group = if random.random_bool(0.9) { id % 3 } else { 7 };
        let filter = doc! {"g": group, "_id": id};
        let update = random_update(random);
        let one = request(&filter, &update, false);
        let (sent, failure) = store.update_fast(&c, &[one], None, &OpContext::new());
        assert_eq!(
            (sent, failure.is_none()),
            (1, true),
            "{filter:?} {update:?}"
        );
        if group != 7 {
            model.update(&(id, update, false));
        }
        if step % 100 == 0 {
            store.checkpoint().unwrap();
            let mut found = rows(open_all(&store, &c));
            found.sort_by_key(|doc| doc.get_i32("_id"));
            assert_eq!(found, model.all(), "step {step}");
        }
    }
    let mut found = rows(open_all(&store, &c));
    found.sort_by_key(|doc| doc.get_i32("_id"));
    assert_eq!(found, model.all());
    assert_eq!(store.verify(&c).unwrap().errors, Vec::<String>::new());
}

#[test]
fn failed_updates_are_counted_when_they_are_applied() {
    let (_directory, store, c) = with_fast_updates();
    let set = (1, doc! {"$set": {"n": "text"}}, true);
    let inc = (1, doc! {"$inc": {"n": 1}}, true);
    let fine = (2, doc! {"$inc": {"n": 1}}, true);
    let updates = [set, inc.clone(), inc.clone(), fine, inc];
    assert_eq!(send(&store, &c, &updates), 5);
    let found = rows(open_all(&store, &c));
    assert_eq!(
        found,
        [doc! {"_id": 1, "n": "text"}, doc! {"_id": 2, "n": 1}]
    );
    let stats = store.fast_updates();
    // A read does not count them.
    assert_eq!(
        (stats.updates(), stats.upserts(), stats.errors()),
        (5, 5, 0)
    );
    store.checkpoint().unwrap();
    assert_eq!(stats.errors(), 3);
    let (errors, first) = stats.unreported().unwrap();
    assert_eq!((errors, first.code().code()), (3, 14));
    assert_eq!(rows(open_all(&store, &c)), found);
}

#[test]
fn only_updates_without_other_effects_are_sent() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_with(EngineOptions::new(directory.path()));
    let fast = doc! {"fastUpdates": true};
    let with = |more: DocBuf| {
        let mut options = fast.clone();
        options.push_all(&more);
        options
    };
    let validator = doc! {"validator": {"a": {"$exists": true}}};
    let off = doc! {"validator": {"a": 1}, "validationLevel": "off"};
    let index = |key: DocBuf| doc! {"key": &key};
    let inc = doc! {"$inc": {"n": 1}};
    let id = doc! {"_id": 1};
    let timed = doc! {"_id": 1, "ts": 5};
    let by_time = || with(doc! {"primaryKey": {"ts": -1, "_id": 1}});
    // Options, indexes, filter, update, and whether the update and the upsert are sent.
    type Case = (DocBuf, Vec<DocBuf>, DocBuf, DocBuf, bool, bool);
    let cases: Vec<Case> = vec![
        (fast.clone(), vec![], id.clone(), inc.clone(), true, true),
        (doc! {}, vec![], id.clone(), inc.clone(), false, false),
        (
            with(validator),
            vec![],
            id.clone(),
            inc.clone(),
            false,
            false,
        ),
        (with(off), vec![], id.clone(), inc.clone(), true, true),
        (
            fast.clone(),
            vec![],
            doc! {"_id": {"$eq": "x"}},
            inc.clone(),
            true,
            true,
        ),
        (
            fast.clone(),
            vec![],
            doc! {"_id": {"a": 1}},
            inc.clone(),
            true,
            true,
        ),
        (
            fast.clone(),
            vec![],
            doc! {"_id": 1, "a": 1},
            inc.clone(),
            false,
            false,
        ),
        (fast.clone(), vec![], doc! {}, inc.clone(), false, false),
        (
            fast.clone(),
            vec![],
            id.clone(),
            doc! {"$push": {"a": 1}},
            false,
            false,
        ),
        (
            fast.clone(),
            vec![],
            id.clone(),
            doc! {"$inc": {"a": "x"}},
            false,
            false,
        ),
        (
            fast.clone(),
            vec![],
            id.clone(),
            doc! {"$inc": {"a": 1}, "$set": {"a.b": 1}},
            false,
            false,
        ),
        (
            fast.clone(),
            vec![],
            id.clone(),
            doc! {"$set": {"_id": 1}},
            false,
            false,
        ),
        (
            fast.clone(),
            vec![],
            id.clone(),
            doc! {"n": 1},
            false,
            false,
        ),
        // An inserted document has an entry in the index.
        (
            fast.clone(),
            vec![index(doc! {"a": 1})],
            id.clone(),
            inc.clone(),
            true,
            false,
        ),
        (
            fast.clone(),
            vec![doc! {"key": {"a": 1}, "sparse": true}],
            id.clone(),
            inc.clone(),
            true,
            true,
        ),
        (
            fast.clone(),
            vec![doc! {"key": {"a": 1, "_id": 1}, "sparse": true}],
            id.clone(),
            inc.clone(),
            true,
            false,
        ),
        (
            fast.clone(),
            vec![index(doc! {"n": 1})],
            id.clone(),
            inc.clone(),
            false,
            false,
        ),
        (
            fast.clone(),
            vec![index(doc! {"n.m": 1})],
            id.clone(),
            inc.clone(),
            false,
            false,
        ),
        (
            fast.clone(),
            vec![doc! {"key": {"a": 1}, "partialFilterExpression": {"n": {"$gt": 1}}}],
            id.clone(),
            inc.clone(),
            false,
            false,
        ),
        (
            fast.clone(),
            vec![index(doc! {"$**": 1})],
            id.clone(),
            inc.clone(),
            false,
            false,
        ),
        (
            fast.clone(),
            vec![index(doc! {"t.$**": 1})],
            id.clone(),
            inc.clone(),
            true,
            true,
        ),
        (
            fast.clone(),
            vec![index(doc! {"t": "text"})],
            id.clone(),
            inc.clone(),
            true,
            true,
        ),
        (
            fast.clone(),
            vec![index(doc! {"t": "hashed"})],
            id.clone(),
            inc.clone(),
            true,
            false,
        ),
        (
            with(doc! {"clusteredIndex": {"key": {"_id": 1}, "unique": true}}),
            vec![],
            id.clone(),
            inc.clone(),
            true,
            true,
        ),
        (by_time(), vec![], id.clone(), inc.clone(), false, false),
        (by_time(), vec![], timed.clone(), inc.clone(), true, false),
        (
            by_time(),
            vec![],
            timed.clone(),
            doc! {"$set": {"ts": 2}},
            false,
            false,
        ),
        (
            by_time(),
            vec![index(doc! {"a": 1})],
            timed.clone(),
            doc! {"$set": {"b": 2}},
            true,
            false,
        ),
    ];
    for (at, (options, indexes, filter, update, updated, upserted)) in cases.into_iter().enumerate()
    {
        let c = ns(&format!("db.c{at}"));
        store.create_collection(&c, &options).unwrap();
        for index in &indexes {
            store.create_indexes(&c, &[index]).unwrap();
        }
        for (upsert, expected) in [(false, updated), (true, upserted)] {
            let one = request(&filter, &update, upsert);
            let shown = format!("{options:?} {indexes:?} {filter:?} {update:?} {upsert}");
            assert_eq!(store.is_fast_update(&c, &one), expected, "{shown}");
            let (sent, _) = store.update_fast(&c, &[one], None, &OpContext::new());
            assert_eq!(sent, usize::from(expected), "{shown}");
        }
        let report = store.verify(&c).unwrap();
        assert_eq!(report.errors, Vec::<String>::new());
    }
    for options in [
        doc! {"partitioned": true, "primaryKey": {"ts": 1, "_id": 1}},
        doc! {"capped": true, "size": 4096},
        doc! {"naturalOrder": "insertion"},
        doc! {"timeseries": {"timeField": "t"}},
        doc! {"collation": {"locale": "de"}},
        doc! {"viewOn": "c0", "pipeline": Value::Array(Doc::empty())},
    ] {
        let error = store
            .create_collection(&ns("db.no"), &with(options))
            .unwrap_err();
        assert_eq!(error.code().code(), 72, "{error}");
    }
    // Clients that read no result need no option.
    let c = ns("db.c1");
    let unacknowledged = |hint| UpdateRequest {
        unacknowledged: true,
        hint,
        ..request(&id, &inc, true)
    };
    assert!(store.is_fast_update(&c, &unacknowledged(None)));
    assert!(!store.is_fast_update(&c, &unacknowledged(Some(Value::String("_id_")))));
    assert!(!store.is_fast_update(&ns("db.none"), &unacknowledged(None)));
    // With the oplog on, no update can be one.
    store.turn_on_oplog(OPLOG).unwrap();
    assert!(!store.is_fast_update(&c, &unacknowledged(None)));
    let one = unacknowledged(None);
    let (sent, _) = store.update_fast(&c, &[one], None, &OpContext::new());
    assert_eq!(sent, 0);
}

#[test]
fn a_batch_ends_before_an_update_that_cannot_be_sent() {
    let (_directory, store, c) = with_fast_updates();
    let inc = doc! {"$inc": {"n": 1}};
    let mut updates: Vec<One> = (0..10).map(|id| (id, inc.clone(), true)).collect();
    updates[7].1 = doc! {"$push": {"n": 1}};
    assert_eq!(send(&store, &c, &updates), 7);
    assert_eq!(send(&store, &c, &updates[7..]), 0);
    assert_eq!(send(&store, &c, &updates[8..]), 2);
    assert_eq!(count(&store, &c), 9);
    assert_eq!((SENT.matched, SENT.modified), (1, 1));
}

#[test]
fn records_of_retryable_writes_are_in_the_commits() {
    let (_directory, store, c) = with_fast_updates();
    let inc = doc! {"$inc": {"n": 1}};
    let ids: Vec<DocBuf> = (0..5).map(|id| doc! {"_id": id}).collect();
    let requests: Vec<_> = ids.iter().map(|id| request(id, &inc, true)).collect();
    let session = [7; 16];
    let recording = InsertRecording {
        of: StatementId {
            session,
            number: 3,
            statement: 0,
            clears: true,
        },
        numbers: &[0, 1, 2, 4, 5],
        result: &doc! {"n": 1},
    };
    let sent = store.update_fast(&c, &requests, Some(recording), &OpContext::new());
    assert_eq!(sent.0, 5);
    let history = store.session_history(&session).unwrap();
    let executed = history.executed.iter().map(|one| (one.first, one.count));
    assert_eq!(executed.collect::<Vec<_>>(), [(0, 3), (4, 2)]);
    assert_eq!(history.number, Some(3));
}

/// Increments by fast and ordinary updates at the same time: an ordinary one that has read the document before a fast one was
/// committed is tried again.
#[test]
fn no_increment_is_lost() {
    const KEYS: i32 = 5;
    const ROUNDS: i32 = 150;
    let (_directory, store, c) = with_fast_updates();
    let inc = doc! {"$inc": {"n": 1}};
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let (store, c, inc) = (&store, &c, &inc);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        if writer % 2 == 0 {
                            let all: Vec<One> =
                                (0..KEYS).map(|key| (key, inc.clone(), true)).collect();
                            assert_eq!(send(store, c, &all), all.len());
                            continue;
                        }
                        for key in 0..KEYS {
                            let filter = doc! {"_id": key};
                            let one = request(&filter, inc, true);
                            let context = OpContext::new();
                            store.update(c, &one, Durability::Logged, &context).unwrap();
                        }
                        if round % 50 == 0 {
                            store.checkpoint().unwrap();
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            let mut seen = vec![0; KEYS as usize];
            while !stop.load(Ordering::Relaxed) {
                for doc in rows(open_all(&store, &c)) {
                    let key = doc.get_i32("_id").unwrap() as usize;
                    let now = doc.get_i32("n").unwrap();
                    assert!(now >= seen[key], "a counter went back");
                    seen[key] = now;
                }
            }
        });
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        stop.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok));
    });
    let expected: Vec<DocBuf> = (0..KEYS)
        .map(|key| doc! {"_id": key, "n": 4 * ROUNDS})
        .collect();
    assert_eq!(rows(open_all(&store, &c)), expected);
    assert_eq!(count(&store, &c), KEYS as u64);
    assert_eq!(store.verify(&c).unwrap().errors, Vec::<String>::new());
}

#[test]
fn a_transaction_conflicts_with_a_fast_update_of_its_document() {
    let (_directory, store, c) = with_fast_updates();
    store
        .insert(&c, &[&doc! {"_id": 1, "n": 0}], INSERT)
        .unwrap();
    let transaction = store.begin();
    let inside = &store.in_transaction(&transaction);
    let context = OpContext::new();
    let (filter, inc) = (doc! {"_id": 1}, doc! {"$inc": {"n": 1}});
    // The transaction executes it as an ordinary update.
    let one = request(&filter, &inc, false);
    assert_eq!(
        inside.update_fast(&c, &[one], None, &context).0,
        0,
        "sent in a transaction"
    );
    // The snapshot of the transaction is taken before the fast update, which it has to notice.
    assert_eq!(rows(open_all(inside, &c)), [doc! {"_id": 1, "n": 0}]);
    assert_eq!(send(&store, &c, &[(1, inc.clone(), false)]), 1);
    let one = request(&filter, &inc, false);
    let error = inside.update(&c, &one, Durability::Logged, &context);
    assert_eq!(error.unwrap_err().code().code(), 112);
    drop(transaction);
    assert_eq!(rows(open_all(&store, &c)), [doc! {"_id": 1, "n": 1}]);
}

/// A commit of fast updates is there with all its documents after a crash, or not at all, and nothing that was synced is lost.
#[test]
fn commits_survive_crashes_as_a_whole() {
    const KEYS: i32 = 20;
    let disk = MemDisk::default();
    let open = |disk: &MemDisk| open_with(EngineOptions::with_disk(Arc::new(disk.clone())));
    let running = open(&disk);
    let c = ns("db.c");
    running
        .create_collection(&c, &doc! {"fastUpdates": true})
        .unwrap();
    let synced = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let all: Vec<One> = (0..KEYS)
                .map(|key| (key, doc! {"$inc": {"n": 1}}, true))
                .collect();
            for round in 1.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                assert_eq!(send(&running, &c, &all), all.len());
                if round % 5 == 0 {
                    running.engine().flush_log().unwrap();
                    synced.store(round, Ordering::SeqCst);
                }
                if round % 64 == 0 {
                    running.checkpoint().unwrap();
                }
            }
        });
        for round in 0..6 {
            let before = synced.load(Ordering::SeqCst);
            while synced.load(Ordering::SeqCst) < before + 40 {
                thread::yield_now();
            }
            let acknowledged = synced.load(Ordering::SeqCst);
            let image = disk.image(&mut StdRng::seed_from_u64(round));
            let store = open(&image);
            let docs = rows(open_all(&store, &c));
            assert_eq!(docs.len(), KEYS as usize);
            let n = docs[0].get_i32("n").unwrap();
            assert!(n as u64 >= acknowledged, "{n} < {acknowledged}");
            assert!(docs.iter().all(|doc| doc.get_i32("n") == Some(n)));
            assert_eq!(store.verify(&c).unwrap().errors, Vec::<String>::new());
            assert_eq!(count(&store, &c), KEYS as u64);
            store.engine().close().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// Deleting documents that only fast upserts have inserted takes them from a counter that never had them.
#[test]
fn counts_are_right_after_deletions_of_upserted_documents() {
    let (_directory, store, c) = with_fast_updates();
    let all: Vec<One> = (0..50)
        .map(|id| (id, doc! {"$inc": {"n": 1}}, true))
        .collect();
    send(&store, &c, &all);
    let filter = doc! {"_id": {"$lt": 30}};
    let delete = DeleteRequest {
        collation: None,
        filter: &filter,
        limit_one: false,
        hint: None,
        variables: None,
    };
    let context = OpContext::new();
    store
        .delete(&c, &delete, Durability::Logged, &context)
        .unwrap();
    assert_eq!(store.estimated_count(&c), 0);
    let stats = store.collection_stats(&c).unwrap();
    assert_eq!(stats.uncounted_updates, 50);
    let listed = store.list_databases().unwrap();
    assert!(!listed.iter().any(|database| database.empty));
    assert_eq!(count(&store, &c), 20);
    assert_eq!(store.estimated_count(&c), 20);
    let stats = store.collection_stats(&c).unwrap();
    assert_eq!(stats.uncounted_updates, 0);
    assert_eq!(stats.size, 20 * doc! {"_id": 1, "n": 1}.len_bytes() as u64);
    assert_eq!(store.verify(&c).unwrap().errors, Vec::<String>::new());
}
