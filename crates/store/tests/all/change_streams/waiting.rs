//! Streams that wait: what wakes them, and what they hold meanwhile.

use std::time::Duration;

use frond_bson::doc;
use frond_store::oplog::readers::Place;

use super::*;
use crate::common::waiting::wait_until;

/// Waits until a stream is notified of entries that it has not seen.
fn wait_until_told(stream: &QueryCursor) {
    let (signal, seen) = stream.tail_signal().unwrap();
    wait_until("a stream that is told", || signal.insertions() > seen);
}

/// Whether a stream of a place was notified of all that is durable by now, and has nothing to read.
fn is_quiet(store: &DocumentStore, place: &Place, stream: &QueryCursor) -> bool {
    let oplog = store.oplog();
    let durable = oplog.durable();
    let reader = oplog
        .readers()
        .watch(place.clone(), || oplog.last().to_u64());
    let (_, seen) = stream.tail_signal().unwrap();
    reader.quiet_until(durable, seen) == Some(durable)
}

/// Reads until the stream has nothing to look at any more.
fn settle(store: &DocumentStore, place: &Place, stream: &mut QueryCursor) {
    store.flush_log().unwrap();
    wait_until("a quiet stream", || {
        assert!(stream.next().unwrap().is_none());
        is_quiet(store, place, stream)
    });
}

#[test]
fn a_stream_is_woken_by_writes_of_its_place() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    insert(&fixture, "d.a", &[doc! {"_id": 0}]);
    insert(&fixture, "d.b", &[doc! {"_id": 0}]);
    insert(&fixture, "e.a", &[doc! {"_id": 0}]);
    let mut a = watch(store, On::Collection("d.a"), &doc! {});
    let mut d = watch(store, On::Database("d"), &doc! {});
    let mut all = watch(store, On::Cluster, &doc! {});
    let in_a = Place::Collection("d.a".into());
    let in_d = Place::Database("d".into());
    settle(store, &in_a, &mut a);
    settle(store, &in_d, &mut d);
    settle(store, &Place::Everything, &mut all);
    // The entries become durable without a request for it.
    insert(&fixture, "e.a", &[doc! {"_id": 1}]);
    wait_until_told(&all);
    assert!(is_quiet(store, &in_a, &a) && is_quiet(store, &in_d, &d));
    assert!(all.next().unwrap().is_some());
    insert(&fixture, "d.b", &[doc! {"_id": 1}]);
    wait_until_told(&d);
    assert!(is_quiet(store, &in_a, &a));
    assert!(d.next().unwrap().is_some());
    let transaction = store.begin();
    let inside = store.in_transaction(&transaction);
    for name in ["d.b", "d.a"] {
        inside
            .insert(&ns(name), &[&doc! {"_id": 2}], common::INSERT)
            .unwrap();
    }
    transaction.commit(LOGGED).unwrap();
    wait_until_told(&a);
    assert!(a.next().unwrap().is_some());
    settle(store, &in_a, &mut a);
    store.drop_collection(&ns("d.a")).unwrap();
    wait_until_told(&a);
    assert_eq!(
        a.next().unwrap().unwrap().get_str("operationType"),
        Some("drop")
    );
    // Reading an event writes nothing, so no reader wakes again.
    drop((a, d, all));
    assert!(!store.oplog().readers().any());
}

#[test]
fn a_stream_on_a_new_collection_is_woken() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let mut stream = watch(store, On::Collection("d.new"), &doc! {});
    settle(store, &Place::Collection("d.new".into()), &mut stream);
    insert(&fixture, "d.new", &[doc! {"_id": 1}]);
    // The creation is an event, too.
    let event = loop {
        wait_until_told(&stream);
        if let Some(event) = stream.next().unwrap() {
            break event;
        }
    };
    assert_eq!(types(&[event]), ["insert 1"]);
}

#[test]
fn events_are_those_of_durable_writes() {
    let fixture = Fixture::with_oplog();
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
fn a_stream_reads_nothing_of_other_collections() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    insert(&fixture, "d.a", &[doc! {"_id": 0}]);
    insert(&fixture, "d.b", &[doc! {"_id": 0}]);
    let mut stream = watch(store, On::Collection("d.a"), &doc! {});
    settle(store, &Place::Collection("d.a".into()), &mut stream);
    let before = stream.stats().docs_examined;
    let token = stream.resume_token().unwrap();
    for round in 1..20 {
        let docs: Vec<DocBuf> = (0..100).map(|n| doc! {"_id": round * 100 + n}).collect();
        insert(&fixture, "d.b", &docs);
        store.flush_log().unwrap();
        // Its client polls once in a second.
        assert!(stream.next().unwrap().is_none());
    }
    assert_eq!(stream.stats().docs_examined, before);
    let later = stream.resume_token().unwrap();
    assert!(
        token.get_str("_data") < later.get_str("_data"),
        "the mark advances"
    );
    insert(&fixture, "d.a", &[doc! {"_id": 1}]);
    assert_eq!(types(&all(store, &mut stream)), ["insert 1"]);
    assert!(stream.stats().docs_examined <= before + 1);
    let mut resumed = watch(store, On::Collection("d.a"), &with("resumeAfter", &later));
    assert_eq!(types(&all(store, &mut resumed)), ["insert 1"]);
}

/// A client that gets no token until the end of a long oplog is reached starts over when its time is over.
#[test]
fn a_long_look_ends_with_a_token() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let on = On::Collection("d.a");
    let mut token = watch(store, on, &doc! {}).resume_token().unwrap();
    let docs: Vec<DocBuf> = (0..300).map(|id| doc! {"_id": id}).collect();
    insert(&fixture, "d.other", &docs);
    insert(&fixture, "d.a", &[doc! {"_id": 1}]);
    store.flush_log().unwrap();
    let _slow = frond_store::at_points(|point| {
        if point == "a change stream looks at an operation" {
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    let mut looks = 0;
    // The client continues at the token of the look before.
    let event = loop {
        let mut stream = watch(store, on, &with("resumeAfter", &token));
        if let Some(event) = stream.next().unwrap() {
            break event;
        }
        assert!(stream.tail_signal().is_none(), "there is more");
        let next = stream.resume_token().unwrap();
        assert!(token.get_str("_data") < next.get_str("_data"));
        token = next;
        looks += 1;
    };
    assert!(looks >= 2, "{looks}");
    assert_eq!(types(&[event]), ["insert 1"]);
}

/// Streams look at any time, between the commits of several writers and while their entries become durable.
#[test]
fn no_event_is_missed_between_writers() {
    const EACH: i64 = 600;
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    for name in ["d.a", "d.b"] {
        insert(&fixture, name, &[doc! {"_id": -1_i64}]);
    }
    let mut polled = watch(store, On::Collection("d.a"), &doc! {});
    let mut woken = watch(store, On::Collection("d.a"), &doc! {});
    let id = |event: &DocBuf| {
        event
            .get_doc("documentKey")
            .unwrap()
            .get_i64("_id")
            .unwrap()
    };
    let is_complete = |seen: &[i64]| seen.len() as i64 == 3 * EACH;
    std::thread::scope(|scope| {
        for writer in 0..3_i64 {
            scope.spawn(move || {
                for n in 0..EACH {
                    let doc = doc! {"_id": writer * EACH + n};
                    for name in ["d.b", "d.a"] {
                        store.insert(&ns(name), &[&doc], common::INSERT).unwrap();
                    }
                }
            });
        }
        let reader = scope.spawn(move || {
            let mut seen = Vec::new();
            while !is_complete(&seen) {
                wait_until_told(&woken);
                while let Some(event) = woken.next().unwrap() {
                    seen.push(id(&event));
                }
            }
            seen
        });
        let mut seen = Vec::new();
        wait_until("all events", || {
            while let Some(event) = polled.next().unwrap() {
                seen.push(id(&event));
            }
            is_complete(&seen)
        });
        assert_eq!(reader.join().unwrap(), seen);
        seen.sort_unstable();
        assert_eq!(seen, (0..3 * EACH).collect::<Vec<_>>());
    });
}

#[test]
fn a_thousand_waiting_streams_hold_little() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    insert(&fixture, "d.a", &[doc! {"_id": 0}]);
    let mut streams: Vec<QueryCursor> = (0..1000)
        .map(|_| watch(store, On::Collection("d.a"), &doc! {}))
        .collect();
    for stream in &mut streams {
        assert!(stream.next().unwrap().is_none());
        assert_eq!((stream.held_bytes(), stream.retained_bytes()), (0, 0));
    }
    // None keeps a snapshot: memtables are freed when they are flushed.
    let docs: Vec<DocBuf> = (1..5000)
        .map(|id| doc! {"_id": id, "t": "x".repeat(200)})
        .collect();
    insert(&fixture, "d.b", &docs);
    store.checkpoint().unwrap();
    assert_eq!(store.retained_bytes(), 0);
    insert(&fixture, "d.a", &[doc! {"_id": 1}]);
    store.flush_log().unwrap();
    for stream in &mut streams {
        wait_until_told(stream);
        assert_eq!(types(&[stream.next().unwrap().unwrap()]), ["insert 1"]);
    }
}
