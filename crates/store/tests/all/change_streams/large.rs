//! Events that do not fit into a reply, transactions of several entries, and many events in little memory.

use frond_bson::doc;

use super::*;

fn split() -> Vec<DocBuf> {
    vec![doc! {"$changeStreamSplitLargeEvent": {}}]
}

/// A collection with pre-images, and an update of a document of 9 MiB in it.
fn large_update(fixture: &Fixture) {
    let images = doc! {"changeStreamPreAndPostImages": {"enabled": true}};
    fixture
        .store
        .create_collection(&ns("d.c"), &images)
        .unwrap();
    let text = "x".repeat(9 << 20);
    insert(fixture, "d.c", &[doc! {"_id": 1, "t": text.as_str()}]);
}

#[test]
fn large_events_are_split() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    large_update(&fixture);
    let both = doc! {"fullDocument": "required", "fullDocumentBeforeChange": "required"};
    let mut whole = watch(store, On::Collection("d.c"), &both);
    let mut stream = open(store, On::Collection("d.c"), &both, &split()).unwrap();
    update(&fixture, "d.c", &doc! {"_id": 1}, &doc! {"$set": {"a": 1}});
    insert(&fixture, "d.c", &[doc! {"_id": 2}]);
    store.flush_log().unwrap();
    assert_eq!(code(whole.next()), 10334);
    let first = stream.next().unwrap().unwrap();
    assert_eq!(stream.resume_token().unwrap(), token_of(&first));
    let events = all(store, &mut stream);
    assert_eq!(events.len(), 2);
    assert_eq!(
        first.get_doc("splitEvent"),
        Some(&*doc! {"fragment": 1, "of": 2})
    );
    assert_eq!(
        events[0].get_doc("splitEvent"),
        Some(&*doc! {"fragment": 2, "of": 2})
    );
    assert_eq!(events[1].get_doc("documentKey"), Some(&*doc! {"_id": 2}));
    let joined = |name: &str| first.contains_key(name) != events[0].contains_key(name);
    for name in [
        "fullDocument",
        "fullDocumentBeforeChange",
        "updateDescription",
        "ns",
    ] {
        assert!(joined(name), "{name}");
    }
    // Each fragment is a place to go on from.
    for (token, rest) in [
        (token_of(&first), &events[..]),
        (token_of(&events[0]), &events[1..]),
    ] {
        let mut spec = both.clone();
        spec.push("resumeAfter", &*token);
        let mut again = open(store, On::Collection("d.c"), &spec, &split()).unwrap();
        assert_eq!(all(store, &mut again), rest);
        // The pipeline has to be the same.
        assert_eq!(code(open(store, On::Collection("d.c"), &spec, &[])), 280);
        let smaller = with("resumeAfter", &token);
        let mut other = open(store, On::Collection("d.c"), &smaller, &split()).unwrap();
        assert_eq!(code(other.next()), 280);
    }
}

#[test]
fn a_chain_of_entries_is_one_transaction() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let mut stream = watch(store, On::Collection("d.c"), &doc! {});
    let transaction = store.begin();
    let inside = store.in_transaction(&transaction);
    let text = "x".repeat(1 << 20);
    for id in 0..40 {
        let doc = doc! {"_id": id, "t": text.as_str()};
        inside.insert(&ns("d.c"), &[&doc], common::INSERT).unwrap();
    }
    transaction.commit(LOGGED).unwrap();
    insert(&fixture, "d.c", &[doc! {"_id": "after"}]);
    let show = |event: DocBuf| {
        (
            types(std::slice::from_ref(&event)).remove(0),
            token_of(&event),
        )
    };
    store.flush_log().unwrap();
    let mut events = Vec::new();
    while let Some(event) = stream.next().unwrap() {
        assert!(stream.held_bytes() <= 18 << 20, "{}", stream.held_bytes());
        events.push(show(event));
    }
    assert_eq!(events.len(), 41);
    let wanted: Vec<String> = (0..40).map(|id| format!("insert {id}")).collect();
    let shown: Vec<&String> = events.iter().map(|(kind, _)| kind).collect();
    assert!(shown.iter().zip(&wanted).all(|(a, b)| *a == b));
    let entries = store.count(
        &ns("local.oplog.rs"),
        &frond_store::CountRequest {
            filter: Some(&doc! {"o.applyOps": {"$exists": true}}),
            ..Default::default()
        },
        &OpContext::new(),
    );
    let entries = entries.unwrap();
    assert!(entries >= 3, "{entries}");
    for at in [0, 13, 14, 15, 16, 29, 30, 39] {
        let mut again = watch(
            store,
            On::Collection("d.c"),
            &with("resumeAfter", &events[at].1),
        );
        let mut rest = Vec::new();
        while let Some(event) = again.next().unwrap() {
            rest.push(show(event));
        }
        assert_eq!(rest, events[at + 1..], "{at}");
    }
}

#[test]
fn many_events_take_little_memory() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let mut stream = watch(store, On::Collection("d.c"), &doc! {});
    let mut count = 0;
    for round in 0..100 {
        let docs: Vec<DocBuf> = (0..1000).map(|n| doc! {"_id": round * 1000 + n}).collect();
        insert(&fixture, "d.c", &docs);
    }
    store.flush_log().unwrap();
    let mut last = None;
    loop {
        let flow = stream.for_each(&mut |event| {
            let id = event.get_doc("documentKey").unwrap().get_i64("_id");
            assert!(id > last);
            last = id;
            count += 1;
            frond_store::Flow::Continue
        });
        flow.unwrap();
        if stream.tail_signal().is_some() {
            break;
        }
    }
    assert_eq!(count, 100_000);
    assert_eq!((stream.held_bytes(), stream.retained_bytes()), (0, 0));
}
