//! Streams that wait: what wakes them, and what they hold meanwhile.

use std::time::{Duration, Instant};

use frond_bson::doc;

use super::*;

/// Waits until a stream is told of entries that it has not seen.
fn is_told(stream: &QueryCursor, for_at_most: Duration) -> bool {
    let (signal, seen) = stream.tail_signal().unwrap();
    let until = Instant::now() + for_at_most;
    while Instant::now() < until {
        if signal.insertions() > seen {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}

const LONG: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(150);

/// Reads until the stream has nothing to look at any more.
fn settle(store: &DocumentStore, stream: &mut QueryCursor) {
    store.flush_log().unwrap();
    loop {
        assert!(stream.next().unwrap().is_none());
        if !is_told(stream, Duration::from_millis(50)) {
            return;
        }
    }
}

#[test]
fn a_stream_is_woken_by_writes_of_its_place() {
    let fixture = with_oplog();
    let store = &fixture.store;
    insert(&fixture, "d.a", &[doc! {"_id": 0}]);
    insert(&fixture, "d.b", &[doc! {"_id": 0}]);
    insert(&fixture, "e.a", &[doc! {"_id": 0}]);
    let mut a = watch(store, On::Collection("d.a"), &doc! {});
    let mut d = watch(store, On::Database("d"), &doc! {});
    let mut all = watch(store, On::Cluster, &doc! {});
    for stream in [&mut a, &mut d, &mut all] {
        settle(store, stream);
    }
    // The entries become durable without anybody who asks for it.
    insert(&fixture, "e.a", &[doc! {"_id": 1}]);
    assert!(is_told(&all, LONG));
    assert!(!is_told(&a, SHORT) && !is_told(&d, SHORT));
    assert!(all.next().unwrap().is_some());
    insert(&fixture, "d.b", &[doc! {"_id": 1}]);
    assert!(is_told(&d, LONG) && !is_told(&a, SHORT));
    assert!(d.next().unwrap().is_some());
    let transaction = store.begin();
    let inside = store.in_transaction(&transaction);
    for name in ["d.b", "d.a"] {
        inside
            .insert(&ns(name), &[&doc! {"_id": 2}], common::INSERT)
            .unwrap();
    }
    transaction.commit(LOGGED).unwrap();
    assert!(is_told(&a, LONG));
    assert!(a.next().unwrap().is_some());
    settle(store, &mut a);
    store.drop_collection(&ns("d.a")).unwrap();
    assert!(is_told(&a, LONG));
    assert_eq!(
        a.next().unwrap().unwrap().get_str("operationType"),
        Some("drop")
    );
    // What an event is shown with is not written by its reader, so nothing wakes again.
    drop((a, d, all));
    assert!(!store.oplog().readers().any());
}

#[test]
fn a_stream_on_a_new_collection_is_woken() {
    let fixture = with_oplog();
    let store = &fixture.store;
    let mut stream = watch(store, On::Collection("d.new"), &doc! {});
    settle(store, &mut stream);
    insert(&fixture, "d.new", &[doc! {"_id": 1}]);
    assert!(is_told(&stream, LONG));
    assert_eq!(types(&[stream.next().unwrap().unwrap()]), ["insert 1"]);
}

#[test]
fn events_are_those_of_durable_writes() {
    let fixture = with_oplog();
    let store = &fixture.store;
    let mut stream = watch(store, On::Cluster, &doc! {});
    for id in 0..200 {
        insert(&fixture, "d.a", &[doc! {"_id": id}]);
        while let Some(event) = stream.next().unwrap() {
            let Some(Value::Timestamp(time)) = event.get("clusterTime") else {
                panic!("{event:?}");
            };
            assert!(time.to_u64() <= store.oplog().durable());
        }
    }
}

#[test]
fn a_thousand_waiting_streams_hold_little() {
    let fixture = with_oplog();
    let store = &fixture.store;
    insert(&fixture, "d.a", &[doc! {"_id": 0}]);
    let mut streams: Vec<QueryCursor> = (0..1000)
        .map(|_| watch(store, On::Collection("d.a"), &doc! {}))
        .collect();
    for stream in &mut streams {
        assert!(stream.next().unwrap().is_none());
        assert_eq!((stream.held_bytes(), stream.retained_bytes()), (0, 0));
    }
    // None keeps a snapshot: memtables are let go of when they are flushed.
    let docs: Vec<DocBuf> = (1..5000)
        .map(|id| doc! {"_id": id, "t": "x".repeat(200)})
        .collect();
    insert(&fixture, "d.b", &docs);
    store.checkpoint().unwrap();
    assert_eq!(store.retained_bytes(), 0);
    insert(&fixture, "d.a", &[doc! {"_id": 1}]);
    store.flush_log().unwrap();
    for stream in &mut streams {
        assert!(is_told(stream, LONG));
        assert_eq!(types(&[stream.next().unwrap().unwrap()]), ["insert 1"]);
    }
}
