//! Power failures at any moment of inserts, updates, deletes and checkpoints: what is recovered is consistent.
#![allow(clippy::unwrap_used)]

use crate::common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use common::disk::MemDisk;
use common::{INSERT, ns, open_with};
use frond_bson::{Doc, DocBuf, Value, doc};
use frond_store::{
    CountRequest, DeleteRequest, DocumentStore, Durability, EngineOptions, InsertOptions,
    OpContext, UpdateRequest,
};
use rand::SeedableRng;
use rand::rngs::StdRng;

fn open(disk: &MemDisk) -> DocumentStore {
    open_with(EngineOptions::with_disk(Arc::new(disk.clone())))
}

#[test]
fn counters_indexes_and_acknowledged_documents_agree_after_a_crash() {
    let disk = MemDisk::default();
    let running = open(&disk);
    let c = ns("db.c");
    for index in [
        doc! {"key": {"a": 1}},
        doc! {"key": {"tags": 1, "a": -1}},
        doc! {"key": {"u": 1}, "unique": true},
    ] {
        running.create_indexes(&c, &[&index]).unwrap();
    }
    let synced = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for batch in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let docs: Vec<DocBuf> = (0..50)
                    .map(|i| {
                        let n = batch * 50 + i;
                        doc! {"_id": n, "a": n % 13, "u": n, "tags": [n % 3, n % 5]}
                    })
                    .collect();
                let docs: Vec<&Doc> = docs.iter().map(|doc| &**doc).collect();
                let options = InsertOptions {
                    durability: Durability::Synced,
                    ..INSERT
                };
                running.insert(&c, &docs, options).unwrap();
                synced.store(batch as u64 + 1, Ordering::SeqCst);
            }
        });
        scope.spawn(|| {
            let context = OpContext::new();
            for i in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let filter = doc! {"_id": {"$lt": 1000}, "a": i % 13};
                let change = doc! {"$push": {"tags": i}, "$inc": {"a": 1}};
                let update = UpdateRequest {
                    multi: i % 5 == 0,
                    ..UpdateRequest::new(&filter, Value::Document(&change))
                };
                running
                    .update(&c, &update, Durability::Logged, &context)
                    .unwrap();
                let gone = doc! {"_id": {"$mod": [10, 3], "$lt": 500}};
                let delete = DeleteRequest {
                    collation: None,
                    filter: &gone,
                    limit_one: true,
                    hint: None,
                    variables: None,
                };
                running
                    .delete(&c, &delete, Durability::Logged, &context)
                    .unwrap();
            }
        });
        for round in 0..4 {
            let before = synced.load(Ordering::SeqCst);
            while synced.load(Ordering::SeqCst) < before + 10 {
                thread::yield_now();
            }
            if round == 2 {
                running.checkpoint().unwrap();
            }
            let acknowledged = synced.load(Ordering::SeqCst);
            let image = disk.image(&mut StdRng::seed_from_u64(round));
            let store = open(&image);
            let report = store.verify(&c).unwrap();
            assert_eq!(report.errors, Vec::<String>::new());
            assert_eq!(store.estimated_count(&c), report.documents);
            let last = acknowledged as i32 * 50 - 1;
            let filter = doc! {"_id": {"$gte": 500, "$lte": last}};
            let count = CountRequest {
                filter: Some(&filter),
                ..Default::default()
            };
            let counted = store.count(&c, &count, &OpContext::new()).unwrap();
            assert_eq!(counted, (last - 499).max(0) as u64);
            store.engine().close().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
}
