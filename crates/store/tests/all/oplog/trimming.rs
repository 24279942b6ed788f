//! Removing the oldest entries.

use std::sync::Arc;

use frond_bson::{ArrayBuf, doc};
use frond_error::ErrorCode;
use frond_store::{AggregateRequest, at_points};
use parking_lot::Mutex;

use super::*;
use crate::common::ns;

const SMALL: OplogSettings = OplogSettings {
    bytes_max: 1 << 20,
    min_retention_hours: 0.0,
};

fn fill(store: &DocumentStore, from: i32, count: i32) {
    let c = ns("db.c");
    let text = "x".repeat(1000);
    for n in (from..from + count).step_by(100) {
        let docs: Vec<DocBuf> = (n..n + 100).map(|n| doc! {"_id": n, "t": &text}).collect();
        insert(store, &c, &docs);
    }
}

/// The bytes of all values.
fn size(store: &DocumentStore) -> u64 {
    values(store)
        .iter()
        .map(|(_, value)| value.len() as u64)
        .sum()
}

fn check_sizes(store: &DocumentStore) {
    let oplog = store.oplog();
    let all = values(store);
    assert_eq!(oplog.size_bytes(), size(store));
    assert_eq!(oplog.entries_estimate(), all.len() as u64);
    assert_eq!(oplog.first().to_u64(), all[0].0);
    assert_eq!(oplog.last().to_u64(), all.last().unwrap().0);
}

#[test]
fn the_oldest_entries_beyond_the_size_are_removed() {
    let fixture = Fixture::new();
    let store = &fixture.store;
    store.turn_on_oplog(SMALL).unwrap();
    fill(store, 0, 3000);
    check_sizes(store);
    let before = values(store);
    assert!(size(store) > 3 << 20);
    let trimmed = store.oplog().trim(i64::MAX).unwrap();
    let after = values(store);
    assert_eq!(trimmed.entries as usize, before.len() - after.len());
    assert_eq!(
        trimmed.to.map(Timestamp::to_u64),
        Some(before[before.len() - after.len() - 1].0)
    );
    assert_eq!(after, before[before.len() - after.len()..]);
    let left = size(store);
    assert!(
        left <= SMALL.bytes_max && left > SMALL.bytes_max - (256 << 10),
        "{left}"
    );
    check_sizes(store);
    assert_eq!(store.oplog().trim(i64::MAX).unwrap().entries, 0);

    // The sizes are known after a restart, also those of entries since the last step.
    fill(store, 3000, 500);
    let fixture = fixture.reopen();
    let store = &fixture.store;
    check_sizes(store);
    fill(store, 3500, 2000);
    assert!(store.oplog().trim(i64::MAX).unwrap().entries > 1500);
    assert!(size(store) <= SMALL.bytes_max);
    check_sizes(store);
    let fixture = fixture.reopen();
    check_sizes(&fixture.store);
}

#[test]
fn young_entries_are_kept() {
    let fixture = Fixture::new();
    let store = &fixture.store;
    let hours = OplogSettings {
        min_retention_hours: 2.0,
        ..SMALL
    };
    store.turn_on_oplog(hours).unwrap();
    fill(store, 0, 3000);
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_millis() as i64;
    let hour = 3_600_000;
    assert_eq!(store.oplog().trim(now + hour).unwrap().entries, 0);
    assert!(store.oplog().trim(now + 3 * hour).unwrap().entries > 1000);
    assert!(size(store) <= SMALL.bytes_max);
}

#[test]
fn a_smaller_size_takes_effect_at_the_next_step() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    fill(store, 0, 3000);
    assert_eq!(store.oplog().trim(i64::MAX).unwrap().entries, 0);
    store.oplog().resize(SMALL).unwrap();
    fill(store, 3000, 1500);
    assert!(store.oplog().trim(i64::MAX).unwrap().entries > 2000);
    check_sizes(store);
    // The section that was open is larger than sections are now. It ends all the same, and so do later ones.
    fill(store, 4500, 3000);
    assert!(store.oplog().trim(i64::MAX).unwrap().entries > 2000);
    check_sizes(store);
    assert!(size(store) <= SMALL.bytes_max);
}

/// The sections of entries that were counted at the start ended inside of transactions.
#[test]
fn a_transaction_of_several_entries_is_kept_or_removed_whole() {
    let fixture = Fixture::new();
    let store = &fixture.store;
    let settings = OplogSettings {
        bytes_max: 24 << 20,
        min_retention_hours: 0.0,
    };
    store.turn_on_oplog(settings).unwrap();
    let c = ns("db.c");
    store.create_collection(&c, &doc! {}).unwrap();
    let text = "x".repeat(7 << 20);
    let transaction = store.begin();
    let inside = store.in_transaction(&transaction);
    for n in 0..5 {
        insert(&inside, &c, &[doc! {"_id": n, "t": &text}]);
    }
    transaction.commit(LOGGED).unwrap();
    let last = transaction.committed_at().unwrap();
    fill(store, 100, 1000);
    let fixture = fixture.reopen();
    let store = &fixture.store;
    assert!(store.oplog().trim(i64::MAX).unwrap().entries > 0);
    let values = values(store);
    let first = RawEntry::read(&values[0].1).unwrap();
    assert_eq!(first.chain_position(), 0, "a part of a transaction is gone");
    assert!(values[0].0 > last.to_u64());
    check_sizes(store);
}

/// A stream that was opened when the entries were gone, and the first one was not known yet, went on without a word.
#[test]
fn a_stream_that_begins_while_entries_are_removed_does_not_miss_any() {
    let fixture = Fixture::new();
    let store = &fixture.store;
    store.turn_on_oplog(SMALL).unwrap();
    fill(store, 0, 3000);
    store.flush_log().unwrap();
    let second = Timestamp::from_u64(values(store)[1].0);
    let (seen, reader) = (Arc::new(Mutex::new(Vec::new())), store.clone());
    let seen_by = seen.clone();
    let acts = at_points(move |point| {
        if point != "the oldest entries of the oplog are removed" {
            return;
        }
        let mut pipeline = ArrayBuf::new();
        pipeline.push(&doc! {"$changeStream": {"startAtOperationTime": second}});
        let request = AggregateRequest {
            pipeline: &pipeline,
            hint: None,
            variables: None,
            durability: LOGGED,
            bypass_validation: false,
            allow_disk_use: None,
            collation: None,
        };
        let opened = reader.watch("db", Some(&ns("db.c")), &request, &OpContext::new());
        let found = opened.and_then(|mut stream| stream.next());
        seen_by.lock().push(found.map_err(|error| error.code()));
    });
    assert!(store.oplog().trim(i64::MAX).unwrap().entries > 1000);
    drop(acts);
    let lost = Err(ErrorCode::ChangeStreamHistoryLost);
    assert_eq!(*seen.lock(), [lost]);
    check_sizes(store);
}

#[test]
fn the_oplog_is_not_turned_off_while_entries_are_removed() {
    let fixture = Fixture::new();
    let store = &fixture.store;
    store.turn_on_oplog(SMALL).unwrap();
    fill(store, 0, 3000);
    let switching = Arc::new(Mutex::new(None));
    let (started, other) = (switching.clone(), store.clone());
    let acts = at_points(move |point| {
        if point == "the oldest entries of the oplog are removed" {
            let switched = other.clone();
            let thread = std::thread::spawn(move || switched.turn_off_oplog().unwrap());
            std::thread::sleep(std::time::Duration::from_millis(50));
            assert!(other.oplog().is_on());
            *started.lock() = Some(thread);
        }
    });
    assert!(store.oplog().trim(i64::MAX).unwrap().entries > 1000);
    drop(acts);
    switching.lock().take().unwrap().join().unwrap();
    assert!(!store.oplog().is_on());
    assert_eq!(store.oplog().first(), Timestamp::default());
}
