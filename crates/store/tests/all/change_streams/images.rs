//! Documents before and after a change.

use frond_bson::doc;

use super::*;

const FIELDS: [&str; 3] = ["operationType", "fullDocument", "fullDocumentBeforeChange"];

fn write(fixture: &Fixture, name: &str) {
    insert(fixture, name, &[doc! {"_id": 1, "a": 1}]);
    update(fixture, name, &doc! {"_id": 1}, &doc! {"$set": {"a": 2}});
    update(fixture, name, &doc! {"_id": 1}, &doc! {"a": 3});
    update(fixture, name, &doc! {"_id": 1}, &doc! {"$inc": {"a": 1}});
    delete(fixture, name, &doc! {});
}

#[test]
fn the_current_document() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let spec = doc! {"fullDocument": "updateLookup"};
    let mut stream = watch(store, On::Database("d"), &spec);
    insert(
        &fixture,
        "d.c",
        &[doc! {"_id": 1, "a": 1}, doc! {"_id": 2, "a": 1}],
    );
    update(&fixture, "d.c", &doc! {"_id": 1}, &doc! {"$set": {"a": 2}});
    update(&fixture, "d.c", &doc! {"_id": 2}, &doc! {"$set": {"a": 2}});
    update(&fixture, "d.c", &doc! {"_id": 1}, &doc! {"$set": {"a": 3}});
    delete(&fixture, "d.c", &doc! {"_id": 2});
    let events = all(store, &mut stream);
    let update = |full: Value<'_>| {
        let mut out = doc! {"operationType": "update"};
        out.push_value("fullDocument", &full);
        out
    };
    let now = doc! {"_id": 1, "a": 3};
    assert_eq!(
        brief(&events[2..], &FIELDS),
        [
            update(Value::Document(&now)),
            update(Value::Null),
            update(Value::Document(&now)),
            doc! {"operationType": "delete"},
        ]
    );
}

/// A crash takes back nothing that a client has seen.
#[test]
fn a_document_that_is_looked_up_is_durable() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    insert(&fixture, "d.c", &[doc! {"_id": 1, "a": 1}]);
    let spec = doc! {"fullDocument": "updateLookup"};
    for round in 0..20 {
        let mut stream = watch(store, On::Collection("d.c"), &spec);
        update(&fixture, "d.c", &doc! {"_id": 1}, &doc! {"$inc": {"a": 1}});
        store.flush_log().unwrap();
        update(&fixture, "d.c", &doc! {"_id": 1}, &doc! {"$inc": {"a": 1}});
        let later = store.oplog().last().to_u64();
        let event = stream.next().unwrap().unwrap();
        let full = event.get_doc("fullDocument").unwrap();
        assert_eq!(full.get_i32("a"), Some(3 + 2 * round), "the later one");
        assert!(store.oplog().durable() >= later);
    }
}

#[test]
fn the_collection_of_the_look_up() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let spec = doc! {"fullDocument": "updateLookup"};
    let mut by_name = watch(store, On::Database("d"), &spec);
    let spec = doc! {"fullDocument": "updateLookup", "matchCollectionUUIDForUpdateLookup": true};
    let mut by_uuid = watch(store, On::Database("d"), &spec);
    insert(&fixture, "d.c", &[doc! {"_id": 1}]);
    update(&fixture, "d.c", &doc! {"_id": 1}, &doc! {"$set": {"a": 1}});
    store.drop_collection(&ns("d.c")).unwrap();
    insert(&fixture, "d.c", &[doc! {"_id": 1, "new": true}]);
    let full = |stream: &mut QueryCursor| {
        let events = all(store, stream);
        events[1].get_doc("fullDocument").map(ToOwned::to_owned)
    };
    assert_eq!(full(&mut by_name), Some(doc! {"_id": 1, "new": true}));
    assert_eq!(full(&mut by_uuid), None);
}

#[test]
fn stored_pre_images() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let images = doc! {"changeStreamPreAndPostImages": {"enabled": true}};
    store.create_collection(&ns("d.c"), &images).unwrap();
    let both = doc! {"fullDocument": "required", "fullDocumentBeforeChange": "required"};
    let mut stream = watch(store, On::Collection("d.c"), &both);
    let after = doc! {"fullDocument": "whenAvailable"};
    let mut after = watch(store, On::Collection("d.c"), &after);
    write(&fixture, "d.c");
    let document = |a: i32| doc! {"_id": 1, "a": a};
    let before = |kind: &str, full: Option<i32>, before: i32| {
        let mut out = doc! {"operationType": kind};
        if let Some(full) = full {
            out.push("fullDocument", &*document(full));
        }
        out.push("fullDocumentBeforeChange", &*document(before));
        out
    };
    let wanted = [
        doc! {"operationType": "insert", "fullDocument": document(1)},
        before("update", Some(2), 1),
        before("replace", Some(3), 2),
        before("update", Some(4), 3),
        before("delete", None, 4),
    ];
    assert_eq!(brief(&all(store, &mut stream), &FIELDS), wanted);
    let events = all(store, &mut after);
    assert_eq!(events[1].get_doc("fullDocument"), Some(&*document(2)));
    assert!(!events[1].contains_key("fullDocumentBeforeChange"));

    // In a transaction.
    let transaction = store.begin();
    let inside = store.in_transaction(&transaction);
    inside
        .insert(&ns("d.c"), &[&document(1)], common::INSERT)
        .unwrap();
    for _ in 0..2 {
        let change = doc! {"$inc": {"a": 1}};
        update_in(&inside, "d.c", &doc! {"_id": 1}, Value::Document(&change));
    }
    delete_in(&inside, "d.c", &doc! {});
    transaction.commit(LOGGED).unwrap();
    let wanted = [
        doc! {"operationType": "insert", "fullDocument": document(1)},
        before("update", Some(2), 1),
        before("update", Some(3), 2),
        before("delete", None, 3),
    ];
    assert_eq!(brief(&all(store, &mut stream), &FIELDS), wanted);
}

#[test]
fn pre_images_that_are_not_there() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let available =
        doc! {"fullDocument": "whenAvailable", "fullDocumentBeforeChange": "whenAvailable"};
    let mut stream = watch(store, On::Collection("d.c"), &available);
    let mut required: Vec<QueryCursor> = [
        doc! {"fullDocument": "required"},
        doc! {"fullDocumentBeforeChange": "required"},
    ]
    .iter()
    .map(|spec| watch(store, On::Collection("d.c"), spec))
    .collect();
    write(&fixture, "d.c");
    let events = brief(&all(store, &mut stream), &FIELDS);
    let nulls = |kind: &str| {
        let mut out = doc! {"operationType": kind};
        if kind == "update" {
            out.push("fullDocument", Value::Null);
        }
        if kind == "replace" {
            out.push("fullDocument", &*doc! {"_id": 1, "a": 3});
        }
        out.push("fullDocumentBeforeChange", Value::Null);
        out
    };
    assert_eq!(
        events[1..],
        [
            nulls("update"),
            nulls("replace"),
            nulls("update"),
            nulls("delete")
        ]
    );
    for stream in &mut required {
        assert!(stream.next().unwrap().is_some());
        let error = stream.next().unwrap_err();
        assert_eq!(error.code().code(), 47);
        assert!(error.message().contains("was not found"), "{error}");
    }
}
