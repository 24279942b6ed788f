//! `compact`: what is deleted leaves the data file, and nothing else changes.
#![allow(clippy::unwrap_used)]

use crate::common;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use common::{Fixture, ns};
use frond_bson::{DocBuf, doc};
use frond_error::ErrorCode;
use frond_store::{DeleteRequest, Durability, OpContext, Progress};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

fn documents(ids: impl Iterator<Item = i32>) -> Vec<DocBuf> {
    ids.map(|id| {
        // Text that hardly compresses, the same in each run.
        let mut random = SmallRng::seed_from_u64(id.unsigned_abs().into());
        let text: String = (0..40)
            .map(|_| format!("{:x}", random.random::<u32>()))
            .collect();
        doc! {"_id": id, "a": id % 1000, "t": text}
    })
    .collect()
}

#[test]
fn deleted_documents_leave_the_data_file() {
    let fixture = Fixture::new();
    let c = ns("db.c");
    let store = &fixture.store;
    store
        .create_indexes(&c, &[&doc! {"key": {"a": 1}}])
        .unwrap();
    for chunk in documents(0..20_000).chunks(1000) {
        assert!(fixture.insert(&c, chunk).errors.is_empty());
    }
    store.compact(&c, &OpContext::new()).unwrap();
    let size = |what: &str| {
        let stats = store.collection_stats(&c).unwrap();
        match what {
            "data" => stats.storage_size,
            _ => stats.total_index_size,
        }
    };
    let (data, indexes) = (size("data"), size("indexes"));
    let estimate = store.estimate_compaction(&c).unwrap();
    assert_eq!(estimate.freed_bytes, 0, "there is nothing to free");

    let filter = doc! {"_id": {"$lt": 15_000}};
    let request = DeleteRequest {
        filter: &filter,
        limit_one: false,
        hint: None,
        variables: None,
        collation: None,
    };
    let deleted = store.delete(&c, &request, Durability::Logged, &OpContext::new());
    assert_eq!(deleted.unwrap(), 15_000);
    store.checkpoint().unwrap();
    let estimate = store.estimate_compaction(&c).unwrap();
    let mut context = OpContext::new();
    context.progress = Some(Arc::new(Progress::default()));
    store.compact(&c, &context).unwrap();
    let (step, done, total) = context.progress.unwrap().get().unwrap();
    assert!(step.starts_with("Compact"));
    assert!(done <= total, "{done} of {total}");
    assert!(size("data") < data / 2, "{} of {data}", size("data"));
    assert!(
        size("indexes") < indexes,
        "{} of {indexes}",
        size("indexes")
    );
    let _ = estimate;
    let left: Vec<i32> = fixture
        .find_all(&c, doc! {})
        .iter()
        .map(|doc| doc.get_i32("_id").unwrap())
        .collect();
    assert_eq!(left, (15_000..20_000).collect::<Vec<_>>());
    assert!(store.verify(&c).unwrap().errors.is_empty());
}

#[test]
fn a_killed_compaction_ends_and_others_are_refused() {
    let fixture = Fixture::new();
    let c = ns("db.c");
    let store = &fixture.store;
    fixture.insert(&c, &documents(0..100));
    let context = OpContext::new();
    context.killed.store(true, Ordering::Relaxed);
    let code = |outcome: frond_store::Result<u64>| outcome.unwrap_err().code();
    assert_eq!(code(store.compact(&c, &context)), ErrorCode::Interrupted);
    assert_eq!(
        code(store.compact(&ns("db.none"), &OpContext::new())),
        ErrorCode::NamespaceNotFound
    );
    store
        .create_collection(&ns("db.v"), &doc! {"viewOn": "c", "pipeline": []})
        .unwrap();
    assert_eq!(
        code(store.compact(&ns("db.v"), &OpContext::new())),
        ErrorCode::CommandNotSupportedOnView
    );
}

/// As `fsync` with `lock` needs it.
#[test]
fn the_data_file_does_not_change_during_a_pause() {
    let fixture = Fixture::new();
    let c = ns("db.c");
    let store = &fixture.store;
    fixture.insert(&c, &documents(0..100));
    let pause = store.pause_flushing().unwrap();
    let before = store.engine_stats();
    fixture.insert(&c, &documents(100..200));
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(store.engine_stats().written_bytes, before.written_bytes);
    drop(pause);
    store.checkpoint().unwrap();
    assert!(store.engine_stats().written_bytes > before.written_bytes);
    assert_eq!(fixture.find_all(&c, doc! {}).len(), 200);
}
