//! The events of each kind of write.

use frond_bson::{Timestamp, Value, doc};

use super::*;

#[test]
fn documents() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let mut stream = watch(store, On::Collection("d.c"), &doc! {});
    insert(
        &fixture,
        "d.c",
        &[doc! {"_id": 1, "a": {"b": 1, "c": [1, 2, 3]}}],
    );
    update(
        &fixture,
        "d.c",
        &doc! {"_id": 1},
        &doc! {"$set": {"a.b": 2}, "$unset": {"x": 1}},
    );
    update(
        &fixture,
        "d.c",
        &doc! {"_id": 1},
        &doc! {"$unset": {"a.b": 1}},
    );
    let shorter = ArrayBuf::from_iter([&*doc! {"$set": {"a": {"c": [1, 2]}}}]);
    let one = doc! {"_id": 1};
    update_in(store, "d.c", &one, Value::Array(&shorter));
    update(&fixture, "d.c", &doc! {"_id": 1}, &doc! {"z": 1});
    // Nothing changes.
    update(&fixture, "d.c", &doc! {"_id": 1}, &doc! {"$set": {"z": 1}});
    insert(&fixture, "d.other", &[doc! {"_id": 1}]);
    delete(&fixture, "d.c", &doc! {});
    let events = all(store, &mut stream);
    let fields = [
        "operationType",
        "fullDocument",
        "ns",
        "documentKey",
        "updateDescription",
    ];
    let ns = || doc! {"db": "d", "coll": "c"};
    let key = || doc! {"_id": 1};
    let none = ArrayBuf::new;
    let update = |updated: DocBuf, removed: Vec<&str>, truncated: ArrayBuf| {
        let removed: ArrayBuf = removed.into_iter().collect();
        let mut description = doc! {"updatedFields": updated, "removedFields": removed};
        description.push("truncatedArrays", &truncated);
        doc! {
            "operationType": "update",
            "ns": ns(),
            "documentKey": key(),
            "updateDescription": description,
        }
    };
    let truncated: ArrayBuf = [&*doc! {"field": "a.c", "newSize": 2}]
        .into_iter()
        .collect();
    assert_eq!(
        brief(&events, &fields),
        [
            doc! {
                "operationType": "insert",
                "fullDocument": {"_id": 1, "a": {"b": 1, "c": [1, 2, 3]}},
                "ns": ns(),
                "documentKey": key(),
            },
            update(doc! {"a.b": 2}, vec![], none()),
            update(doc! {}, vec!["a.b"], none()),
            update(doc! {}, vec![], truncated),
            doc! {
                "operationType": "replace",
                "fullDocument": {"_id": 1, "z": 1},
                "ns": ns(),
                "documentKey": key(),
            },
            doc! {"operationType": "delete", "ns": ns(), "documentKey": key()},
        ]
    );
    let time = |event: &DocBuf| match event.get("clusterTime") {
        Some(Value::Timestamp(time)) => time,
        other => panic!("{other:?}"),
    };
    for pair in events.windows(2) {
        assert!(time(&pair[0]) < time(&pair[1]));
        let data = |event: &DocBuf| token_of(event).get_str("_data").unwrap().to_owned();
        assert!(data(&pair[0]) < data(&pair[1]));
    }
    for event in &events {
        assert!(matches!(event.get("wallTime"), Some(Value::DateTime(_))));
        let first = event.first().map(|(name, _)| name);
        assert_eq!(first, Some("_id"));
        assert!(!event.contains_key("lsid") && !event.contains_key("collectionUUID"));
    }
    let last = time(events.last().unwrap());
    assert!(last <= store.oplog().last() && last > Timestamp::default());
}

#[test]
fn raw_descriptions_and_ambiguous_paths() {
    let fixture = Fixture::with_oplog();
    let spec = doc! {"showExpandedEvents": true};
    let mut expanded = watch(&fixture.store, On::Collection("d.c"), &spec);
    let spec = doc! {"showRawUpdateDescription": true};
    let mut raw = watch(&fixture.store, On::Collection("d.c"), &spec);
    insert(
        &fixture,
        "d.c",
        &[doc! {"_id": 1, "a": {"1": 1, "b": [{"c": 1}]}}],
    );
    let change = doc! {"$set": {"a.1": 2, "a.b.0.c": 3}};
    update(&fixture, "d.c", &doc! {"_id": 1}, &change);
    let events = all(&fixture.store, &mut expanded);
    assert_eq!(types(&events), ["create", "insert 1", "update 1"]);
    let description = events[2].get_doc("updateDescription").unwrap();
    let ambiguous = description.get_doc("disambiguatedPaths").unwrap();
    assert_eq!(ambiguous, &*doc! {"a.1": ["a", "1"]});
    let uuid = fixture.store.uuid_of(&ns("d.c")).unwrap();
    for event in &events {
        assert_eq!(
            event.get_binary("collectionUUID"),
            Some(&uuid[..]),
            "{event:?}"
        );
    }
    let events = all(&fixture.store, &mut raw);
    assert!(!events[1].contains_key("updateDescription"));
    let raw = events[1].get_doc("rawUpdateDescription").unwrap();
    assert_eq!(raw.get_i64("$v"), Some(2));
    assert!(raw.get_doc("diff").unwrap().contains_key("sa"), "{raw:?}");
}

#[test]
fn changes_of_the_catalog() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let mut plain = watch(store, On::Database("d"), &doc! {});
    let spec = doc! {"showExpandedEvents": true};
    let mut expanded = watch(store, On::Database("d"), &spec);
    store.create_collection(&ns("d.c"), &doc! {}).unwrap();
    let index = doc! {"key": {"a": 1}, "name": "a_1"};
    store.create_indexes(&ns("d.c"), &[&index]).unwrap();
    insert(&fixture, "d.c", &[doc! {"_id": 1}]);
    let index = doc! {"key": {"b": 1}, "name": "b_1"};
    store.create_indexes(&ns("d.c"), &[&index]).unwrap();
    drop_index(store, "d.c", "a_1");
    let validator = doc! {"validator": {"a": {"$ne": 5}}};
    store.modify_collection(&ns("d.c"), &validator).unwrap();
    let view = doc! {"viewOn": "c", "pipeline": []};
    store.create_collection(&ns("d.v"), &view).unwrap();
    store.drop_collection(&ns("d.v")).unwrap();
    store
        .rename_collection(&ns("d.c"), &ns("d.e"), false)
        .unwrap();
    store.drop_collection(&ns("d.e")).unwrap();
    store.create_collection(&ns("d.f"), &doc! {}).unwrap();
    store.drop_database("d").unwrap();
    assert_eq!(
        types(&all(store, &mut plain)),
        [
            "insert 1",
            "rename",
            "drop",
            "drop",
            "dropDatabase",
            "invalidate"
        ]
    );
    let events = all(store, &mut expanded);
    let shown: Vec<String> = events
        .iter()
        .map(|event| {
            let coll = event.get_doc("ns").and_then(|ns| ns.get_str("coll"));
            let kind = event.get_str("operationType").unwrap();
            format!("{kind} {}", coll.unwrap_or("-"))
        })
        .filter(|shown| !shown.contains("system.views"))
        .collect();
    assert_eq!(
        shown,
        [
            "create c",
            "createIndexes c",
            "insert c",
            "createIndexes c",
            "dropIndexes c",
            "modify c",
            "create v",
            "drop v",
            "rename c",
            "drop e",
            "create f",
            "drop f",
            "dropDatabase -",
            "invalidate -",
        ]
    );
    let find = |kind: &str, number: usize| {
        let mut found = events
            .iter()
            .filter(|event| event.get_str("operationType") == Some(kind));
        found.nth(number).unwrap()
    };
    assert_eq!(find("create", 0).get_str("nsType"), Some("collection"));
    for number in 0..2 {
        let description = find("createIndexes", number).get_doc("operationDescription");
        let indexes = description.unwrap().get_array("indexes").unwrap();
        let index = indexes.values().next().unwrap();
        let name = ["a_1", "b_1"][number];
        assert_eq!(
            index.as_doc().unwrap().get_str("name"),
            Some(name),
            "{index:?}"
        );
    }
    let description = find("dropIndexes", 0)
        .get_doc("operationDescription")
        .unwrap();
    let index = description
        .get_array("indexes")
        .unwrap()
        .values()
        .next()
        .unwrap();
    assert_eq!(index.as_doc().unwrap().get_str("name"), Some("a_1"));
    let modify = find("modify", 0);
    assert!(
        modify
            .get_doc("operationDescription")
            .unwrap()
            .contains_key("validator")
    );
    assert!(
        modify
            .get_doc("stateBeforeChange")
            .unwrap()
            .contains_key("collectionOptions")
    );
    let rename = find("rename", 0);
    assert_eq!(rename.get_doc("to"), Some(&*doc! {"db": "d", "coll": "e"}));
    let description = rename.get_doc("operationDescription").unwrap();
    assert_eq!(description, &*doc! {"to": {"db": "d", "coll": "e"}});
    assert!(!find("dropDatabase", 0).contains_key("collectionUUID"));
    let views: Vec<_> = events
        .iter()
        .filter(|event| event.get_str("nsType") == Some("view"))
        .collect();
    assert_eq!(views.len(), 1);
    let description = views[0].get_doc("operationDescription").unwrap();
    assert_eq!(description.get_str("viewOn"), Some("c"));
}

#[test]
fn each_stream_sees_its_scope() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let mut cluster = watch(store, On::Cluster, &doc! {});
    let mut database = watch(store, On::Database("d"), &doc! {});
    let mut collection = watch(store, On::Collection("d.a"), &doc! {});
    for name in [
        "d.a",
        "d.b",
        "da.a",
        "d.system.js",
        "config.x",
        "admin.x",
        "local.x",
    ] {
        insert(&fixture, name, &[doc! {"_id": name}]);
    }
    let ids = |stream: &mut QueryCursor| {
        let events = all(store, stream);
        let id = |event: &DocBuf| {
            event
                .get_doc("documentKey")
                .unwrap()
                .get_str("_id")
                .unwrap()
                .to_owned()
        };
        events.iter().map(id).collect::<Vec<_>>()
    };
    assert_eq!(ids(&mut cluster), ["d.a", "d.b", "da.a"]);
    assert_eq!(ids(&mut database), ["d.a", "d.b"]);
    assert_eq!(ids(&mut collection), ["d.a"]);
    let spec = doc! {"showSystemEvents": true};
    let mut system = watch(store, On::Database("d"), &spec);
    insert(&fixture, "d.system.js", &[doc! {"_id": "f"}]);
    assert_eq!(ids(&mut system), ["f"]);
    assert_eq!(all(store, &mut database).len(), 0);
}

#[test]
fn transactions_are_whole_and_in_order() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    insert(&fixture, "d.c", &[doc! {"_id": 0}]);
    let mut stream = watch(store, On::Collection("d.c"), &doc! {});
    let transaction = store.begin();
    let inside = store.in_transaction(&transaction);
    for id in 1..=3 {
        let doc = doc! {"_id": id};
        inside.insert(&ns("d.c"), &[&doc], common::INSERT).unwrap();
        inside
            .insert(&ns("d.other"), &[&doc], common::INSERT)
            .unwrap();
    }
    update_in(
        &inside,
        "d.c",
        &doc! {"_id": 0},
        Value::Document(&doc! {"$set": {"a": 1}}),
    );
    insert(&fixture, "d.c", &[doc! {"_id": "between"}]);
    assert_eq!(types(&all(store, &mut stream)), [r#"insert "between""#]);
    transaction.commit(LOGGED).unwrap();
    insert(&fixture, "d.c", &[doc! {"_id": "after"}]);
    let events = all(store, &mut stream);
    assert_eq!(
        types(&events),
        [
            "insert 1",
            "insert 2",
            "insert 3",
            "update 0",
            r#"insert "after""#
        ]
    );
    let time = |at: usize| {
        events[at]
            .get("clusterTime")
            .map(|time| format!("{time:?}"))
    };
    assert!(time(0) == time(3) && time(3) != time(4));
}

#[test]
fn stages_change_and_drop_events() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let inserts = doc! {"$match": {"operationType": "insert", "ns.coll": {"$ne": "b"}}};
    let large = doc! {"$match": {"fullDocument.n": {"$gte": 5}}};
    let stages = [
        inserts,
        large,
        doc! {"$project": {"n": "$fullDocument.n"}},
        doc! {"$addFields": {"m": {"$add": ["$n", 1]}}},
    ];
    let mut stream = open(store, On::Database("d"), &doc! {}, &stages).unwrap();
    for n in 0..8 {
        insert(&fixture, "d.a", &[doc! {"_id": n, "n": n}]);
        insert(&fixture, "d.b", &[doc! {"_id": n, "n": n}]);
    }
    delete(&fixture, "d.a", &doc! {});
    let events = all(store, &mut stream);
    let wanted = [
        doc! {"n": 5, "m": 6},
        doc! {"n": 6, "m": 7},
        doc! {"n": 7, "m": 8},
    ];
    assert_eq!(brief(&events, &["n", "m"]), wanted);
    assert_eq!(events[0].count(), 3);
    for stages in [
        vec![doc! {"$replaceRoot": {"newRoot": {"_id": "$_id", "k": "$documentKey"}}}],
        vec![doc! {"$replaceWith": {"_id": "$_id", "k": "$documentKey"}}],
        vec![doc! {"$redact": "$$KEEP"}, doc! {"$unset": "ns"}],
        vec![doc! {"$set": {"k": 1}}],
    ] {
        let mut stream = open(store, On::Database("d"), &doc! {}, &stages).unwrap();
        insert(&fixture, "d.a", &[doc! {"_id": 100}]);
        assert_eq!(all(store, &mut stream).len(), 1, "{stages:?}");
        delete(&fixture, "d.a", &doc! {});
    }
}
