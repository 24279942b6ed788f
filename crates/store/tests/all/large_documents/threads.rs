//! Several threads change the same large documents: no change is lost, and no reader sees half of an update.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;

use frond_bson::{Doc, DocBuf, Value, doc};
use frond_store::{
    DocumentStore, Durability, EngineOptions, FindRequest, InsertOptions, Namespace, OpContext,
    UpdateOutcome, UpdateRequest,
};

use crate::common::disk::MemDisk;
use crate::common::ns;
use crate::large_documents::queries::{all, check_sound, find, in_parts};
use crate::large_documents::setting::{SETTINGS, Setting};
use crate::large_documents::values::Random;

const THREADS: u64 = 4;
const DOCUMENTS: usize = 2;

fn request<'a>(filter: &'a Doc, change: &'a Doc) -> UpdateRequest<'a> {
    UpdateRequest::new(filter, Value::Document(change))
}

fn update(store: &DocumentStore, c: &Namespace, id: i32, change: &Doc) -> UpdateOutcome {
    let filter = doc! {"_id": id};
    let request = request(&filter, change);
    store
        .update(c, &request, Durability::Logged, &OpContext::new())
        .unwrap()
}

/// The sum of a counter's keys, which must equal its total.
fn sum(doc: &Doc) -> i64 {
    let n = doc.get_doc("n").unwrap();
    let sum = n.iter().map(|(_, value)| match value {
        Value::Int32(n) => i64::from(n),
        Value::Int64(n) => n,
        other => panic!("{other:?}"),
    });
    let sum: i64 = sum.sum();
    assert_eq!(Some(sum), doc.get_i64("total"), "{doc:?}");
    sum
}

fn counters(setting: &Setting, index: Option<DocBuf>) {
    let disk = MemDisk::default();
    let open = || {
        let mut options = EngineOptions::with_disk(Arc::new(disk.clone()));
        options.memtable_bytes = Some(64 << 10);
        setting.open(options).unwrap()
    };
    let store = open();
    let c = ns("db.c");
    let keys = (setting.threshold / 20).max(30);
    for id in 0..DOCUMENTS {
        let mut n = DocBuf::new();
        for key in 0..keys {
            n.push(&format!("k{key}"), 0_i64);
        }
        let document = doc! {"_id": id as i32, "total": 0_i64, "n": &n, "notes": {}};
        let options = InsertOptions {
            ordered: true,
            durability: Durability::Logged,
            bypass_validation: false,
            keep_empty_timestamps: false,
        };
        assert_eq!(store.insert(&c, &[&document], options).unwrap().inserted, 1);
    }
    if let Some(index) = &index {
        store.create_indexes(&c, &[index]).unwrap();
    }
    let (expected, done) = (AtomicI64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (store, c, expected) = (&store, &c, &expected);
                scope.spawn(move || {
                    let mut random = Random::new(thread);
                    for step in 0..60 {
                        let id = random.below(DOCUMENTS) as i32;
                        let mut inc = DocBuf::new();
                        let mut added = 0;
                        for _ in 0..5 {
                            // Some keys are shared by all threads, some are new.
                            let range = [3, keys, keys + 20][random.below(3)];
                            let path = format!("n.k{}", random.below(range));
                            if !inc.contains_key(&path) {
                                let by = random.below(9) as i64 - 2;
                                inc.push(&path, by);
                                added += by;
                            }
                        }
                        inc.push("total", added);
                        let mut change = doc! {"$inc": &inc};
                        if step % 7 == 0 {
                            let mut set = DocBuf::new();
                            set.push(&format!("notes.t{thread}"), step);
                            change.push("$set", &set);
                        }
                        let outcome = update(store, c, id, &change);
                        assert_eq!(outcome.matched, 1);
                        expected.fetch_add(added, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for doc in all(&store, &c) {
                    sum(&doc);
                }
                let filter = doc! {"_id": 1, "n.k0": {"$gte": -1_000_000}};
                let shown = doc! {"n": 1, "total": 1};
                let request = FindRequest {
                    filter: Some(&filter),
                    projection: Some(&shown),
                    ..FindRequest::default()
                };
                for doc in find(&store, &c, &request).unwrap() {
                    sum(&doc);
                }
                store.checkpoint().unwrap();
            }
        });
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    let total = |store: &DocumentStore| all(store, &c).iter().map(|doc| sum(doc)).sum::<i64>();
    assert_eq!(total(&store), expected.load(Ordering::Relaxed));
    check_sound(&store, &c, setting.name);
    store.engine().close().unwrap();
    drop(store);
    let store = open();
    assert_eq!(total(&store), expected.load(Ordering::Relaxed));
    check_sound(&store, &c, setting.name);
}

#[test]
fn increments_of_all_threads_are_counted_and_seen_whole() {
    for setting in SETTINGS {
        counters(setting, None);
    }
}

#[test]
fn increments_of_indexed_keys_are_counted() {
    for index in [
        doc! {"key": {"n.k1": 1, "total": 1}},
        doc! {"key": {"n.$**": 1}},
    ] {
        counters(&SETTINGS[0], Some(index));
    }
}

/// Writes during an index build are in the index, whether their segment had been read or not.
#[test]
fn an_index_is_built_while_documents_change() {
    for setting in SETTINGS {
        let options = EngineOptions::with_disk(Arc::new(MemDisk::default()));
        let store = setting.open(options).unwrap();
        let c = ns("db.c");
        let keys = setting.threshold / 6;
        for id in 0..8 {
            let mut n = DocBuf::new();
            (0..keys).for_each(|key| n.push(&format!("k{key}"), key as i32));
            let document = doc! {"_id": id, "n": n};
            store
                .insert(&c, &[&document], crate::common::INSERT)
                .unwrap();
        }
        assert_eq!(in_parts(&store, &c), 8);
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            for thread in 0..2 {
                let (store, c, done) = (&store, &c, &done);
                scope.spawn(move || {
                    let mut random = Random::new(thread);
                    while !done.load(Ordering::Relaxed) {
                        let change = match random.below(6) {
                            0 => doc! {"$set": {"n.k1": "text"}},
                            1 => doc! {"$unset": {"n.k1": ""}},
                            2 => doc! {"$set": {"n.k1": [1, 2]}},
                            3 => doc! {"$set": {"n.k1": 7}},
                            _ => doc! {"$inc": {"n.k2": 1, "n.new": 1}},
                        };
                        update(store, c, random.below(8) as i32, &change);
                    }
                });
            }
            for index in [
                doc! {"key": {"n.k1": 1}},
                doc! {"key": {"n.k2": 1, "n.new": -1}},
                doc! {"key": {"n.$**": 1}},
                doc! {"key": {"n.k2": 1}, "partialFilterExpression": {"n.new": {"$gt": 2}}},
            ] {
                store.create_indexes(&c, &[&index]).unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        check_sound(&store, &c, setting.name);
    }
}

/// A document that is replaced after an update of many found it is tested again, although both are stored
/// alike.
#[test]
fn a_filter_is_tested_again_after_a_replacement() {
    for setting in &SETTINGS[..2] {
        let options = EngineOptions::with_disk(Arc::new(MemDisk::default()));
        let store = setting.open(options).unwrap();
        let c = ns("db.c");
        let document = |id: i32, kind: i32| {
            let mut n = doc! {"kind": kind, "mark": 0, "most": 1000};
            for key in 0..setting.threshold / 6 {
                // All fields differ, so that the document is rewritten.
                n.push(&format!("k{key}"), key as i32 % 100 + kind);
            }
            doc! {"_id": id, "n": n}
        };
        const COUNT: i32 = 40;
        for id in 0..COUNT {
            store
                .insert(&c, &[&document(id, 1)], crate::common::INSERT)
                .unwrap();
        }
        assert_eq!(in_parts(&store, &c), COUNT as usize);
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut random = Random::new(1);
                while !done.load(Ordering::Relaxed) {
                    let (id, kind) = (random.below(COUNT as usize) as i32, 1 + random.below(2));
                    update(&store, &c, id, &document(id, kind as i32));
                }
            });
            let filter = doc! {"n.kind": 1};
            let change = doc! {"$set": {"n.mark": 7}};
            let request = UpdateRequest {
                multi: true,
                ..request(&filter, &change)
            };
            for _ in 0..40 {
                store
                    .update(&c, &request, Durability::Logged, &OpContext::new())
                    .unwrap();
                for found in all(&store, &c) {
                    let n = found.get_doc("n").unwrap();
                    let both = (n.get_i32("kind"), n.get_i32("mark"));
                    if both == (Some(2), Some(7)) {
                        done.store(true, Ordering::Relaxed);
                        panic!(
                            "{}: marked, though it did not match: {found:?}",
                            setting.name
                        );
                    }
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        check_sound(&store, &c, setting.name);
    }
}
