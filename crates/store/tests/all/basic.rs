//! Collections, indexes, inserts and finds on the real engine.
#![allow(clippy::unwrap_used)]

use crate::common;

use common::{Fixture, INSERT, ns};
use frond_bson::{ArrayBuf, Doc, DocBuf, OwnedValue, Value, doc};
use frond_store::{CountRequest, FindRequest, IndexSelector, InsertOptions, OpContext};

#[test]
fn documents_are_found_again_and_survive_a_restart() {
    let fixture = Fixture::new();
    let people = ns("test.people");
    let docs: Vec<DocBuf> = (0..2500)
        .map(|i| doc! {"_id": i, "age": i % 50, "name": format!("n{i}")})
        .collect();
    let outcome = fixture.insert(&people, &docs);
    assert_eq!((outcome.inserted, outcome.errors.len()), (2500, 0));
    fixture
        .store
        .create_indexes(
            &people,
            &[
                &doc! {"key": {"age": 1}},
                &doc! {"key": {"name": -1}, "unique": true},
            ],
        )
        .unwrap();
    let check = |fixture: &Fixture| {
        assert_eq!(
            fixture.find_all(&people, doc! {"_id": 17}),
            [docs[17].clone()]
        );
        assert_eq!(fixture.find_all(&people, doc! {"age": 7}).len(), 50);
        assert_eq!(
            fixture.find_all(&people, doc! {"name": "n99"}),
            [docs[99].clone()]
        );
        let young = FindRequest {
            filter: Some(&doc! {"age": {"$lt": 2}}),
            sort: Some(&doc! {"age": -1, "_id": 1}),
            skip: 1,
            limit: Some(3),
            ..FindRequest::default()
        };
        let ids: Vec<i64> = fixture
            .find(&people, &young)
            .iter()
            .map(|doc| doc.get_i64("_id").unwrap())
            .collect();
        assert_eq!(ids, [51, 101, 151]);
        let (id_and_age, no_name) = (doc! {"_id": 1, "age": 1}, doc! {"name": 0});
        for covered in [true, false] {
            let request = FindRequest {
                filter: Some(&doc! {"age": {"$gte": 48}}),
                projection: Some(if covered { &id_and_age } else { &no_name }),
                limit: Some(1),
                ..FindRequest::default()
            };
            assert_eq!(
                fixture.find(&people, &request),
                [doc! {"_id": 48, "age": 48}]
            );
        }
        let count = |filter: DocBuf| {
            let request = CountRequest {
                filter: Some(&filter),
                ..CountRequest::default()
            };
            fixture
                .store
                .count(&people, &request, &OpContext::new())
                .unwrap()
        };
        assert_eq!(count(doc! {}), 2500);
        assert_eq!(count(doc! {"age": {"$gte": 49}}), 50);
        let names: Vec<DocBuf> = fixture.store.list_indexes(&people).unwrap();
        assert_eq!(
            names,
            [
                doc! {"v": 2, "key": {"_id": 1}, "name": "_id_"},
                doc! {"v": 2, "key": {"age": 1}, "name": "age_1"},
                doc! {"v": 2, "key": {"name": -1}, "name": "name_-1", "unique": true},
            ]
        );
        let stats = fixture.store.collection_stats(&people).unwrap();
        assert_eq!(stats.count, 2500);
        let bytes: usize = docs.iter().map(|doc| doc.len_bytes()).sum();
        assert_eq!(stats.size, bytes as u64);
    };
    check(&fixture);
    check(&fixture.reopen());
}

#[test]
fn duplicate_keys_name_document_index_and_value() {
    let fixture = Fixture::new();
    let c = ns("db.c");
    fixture
        .store
        .create_indexes(&c, &[&doc! {"key": {"a": 1}, "unique": true}])
        .unwrap();
    let docs = [
        doc! {"_id": 1, "a": 1},
        doc! {"_id": 2, "a": 1.0},
        doc! {"_id": 3, "a": 3},
        doc! {"_id": 3, "a": 4},
        doc! {"_id": 5, "a": 5},
        doc! {"_id": 6, "a": 1.5},
        doc! {"_id": 7, "a": 1.5},
        doc! {"_id": 8, "a": 1i64},
    ];
    let docs: Vec<&Doc> = docs.iter().map(|doc| &**doc).collect();
    let unordered = InsertOptions {
        ordered: false,
        ..INSERT
    };
    let outcome = fixture.store.insert(&c, &docs, unordered).unwrap();
    assert_eq!(outcome.inserted, 4);
    let errors: Vec<_> = outcome
        .errors
        .iter()
        .map(|error| {
            (
                error.index,
                error.error.code().code(),
                error.error.message(),
            )
        })
        .collect();
    let message = |index, key| {
        format!("E11000 duplicate key error collection: db.c index: {index} dup key: {key}")
    };
    assert_eq!(
        errors,
        [
            (1, 11000, message("a_1", "{ a: 1.0 }")),
            (3, 11000, message("_id_", "{ _id: 3 }")),
            (6, 11000, message("a_1", "{ a: 1.5 }")),
            (7, 11000, message("a_1", "{ a: 1 }")),
        ]
    );
    assert_eq!(
        outcome.errors[0].error.details().unwrap(),
        &doc! {"keyPattern": {"a": 1}, "keyValue": {"a": 1.0}}
    );

    let more = [
        doc! {"_id": 9, "a": 6},
        doc! {"_id": 1, "a": 7},
        doc! {"_id": 10, "a": 8},
    ];
    let more: Vec<&Doc> = more.iter().map(|doc| &**doc).collect();
    let outcome = fixture.store.insert(&c, &more, INSERT).unwrap();
    assert_eq!((outcome.inserted, outcome.errors[0].index), (1, 1));
    assert_eq!(fixture.find_all(&c, doc! {}).len(), 5);

    let error = fixture
        .store
        .create_indexes(&ns("db.c"), &[&doc! {"key": {"b": 1}, "unique": true}])
        .unwrap_err();
    assert_eq!(error.code().code(), 11000);
    assert!(
        error.message().contains("index: b_1 dup key: { b: null }"),
        "{error}"
    );
    // A number restored from a key has a type that can hold it.
    let d = ns("db.d");
    fixture.insert(&d, &[doc! {"b": 2.5, "c": "x"}, doc! {"b": 2.5, "c": "x"}]);
    let error = fixture
        .store
        .create_indexes(&d, &[&doc! {"key": {"b": 1, "c": -1}, "unique": true}])
        .unwrap_err();
    assert!(
        (error.message()).contains("index: b_1_c_-1 dup key: { b: 2.5, c: \"x\" }"),
        "{error}"
    );
    // Sort keys of a collation, and text that is not UTF-8, are shown in hexadecimal digits.
    let e = ns("db.e");
    let collated = doc! {"key": {"a": 1, "n": 1}, "name": "x", "unique": true, "collation": {"locale": "en", "strength": 1}};
    let plain = doc! {"key": {"b": 1, "n": 1}, "name": "y", "unique": true};
    fixture
        .store
        .create_indexes(&e, &[&collated, &plain])
        .unwrap();
    let dirty = OwnedValue::string(b"\xE9".to_vec());
    fixture.insert(
        &e,
        &[
            doc! {"a": "x", "b": 1, "n": 1},
            doc! {"a": "y", "b": dirty, "n": 1},
        ],
    );
    for (duplicate, start, end, encoded) in [
        (
            doc! {"a": "X", "b": 2, "n": 1},
            "index: x collation: { locale: \"en\"",
            "\", n: 1 }",
            true,
        ),
        (
            doc! {"a": "z", "b": dirty, "n": 1},
            "index: y dup key: { b: \"0xe9\", n: 1 }",
            "",
            false,
        ),
    ] {
        let outcome = fixture.insert(&e, &[duplicate]);
        let error = &outcome.errors[0].error;
        let (message, details) = (error.message(), error.details().unwrap());
        assert!(
            message.contains(start) && message.ends_with(end),
            "{message}"
        );
        assert!(
            message.contains("dup key: { ") && message.contains(": \"0x"),
            "{message}"
        );
        assert_eq!(
            details.get_array("hexEncoded"),
            Some(&*doc_of(&[true, false]))
        );
        assert_eq!(details.contains_key("collation"), encoded);
        let value = details
            .get_doc("keyValue")
            .unwrap()
            .iter()
            .next()
            .unwrap()
            .1;
        assert!(
            value
                .as_str()
                .is_some_and(|hex| hex.bytes().all(|c| c.is_ascii_hexdigit()))
        );
    }
    assert_eq!(fixture.store.list_indexes(&c).unwrap().len(), 2);
}

fn doc_of(flags: &[bool]) -> DocBuf {
    flags.iter().copied().collect::<ArrayBuf>().into_docbuf()
}

#[test]
fn ids_are_generated_checked_and_moved_to_the_front() {
    let fixture = Fixture::new();
    let c = ns("db.c");
    let outcome = fixture.insert(&c, &[doc! {"a": 1}, doc! {"b": 2, "_id": "x"}]);
    assert_eq!(outcome.inserted, 2);
    let found = fixture.find_all(&c, doc! {"a": 1});
    assert!(matches!(
        found[0].first(),
        Some(("_id", Value::ObjectId(_)))
    ));
    assert_eq!(
        fixture.find_all(&c, doc! {"_id": "x"}),
        [doc! {"_id": "x", "b": 2}]
    );
    for (doc, code) in [
        (doc! {"_id": [1]}, 53),
        (doc! {"_id": Value::Undefined}, 53),
        (doc! {"_id": Value::Regex { pattern: "x", options: "" }}, 53),
        (doc! {"_id": {"$a": 1}}, 52),
        (doc! {"_id": 1, "b": 2, "_id": 3}, 2),
    ] {
        let outcome = fixture.insert(&c, &[doc]);
        assert_eq!(outcome.errors[0].error.code().code(), code);
    }
}

#[test]
fn collections_are_created_dropped_and_renamed() {
    let fixture = Fixture::new();
    let store = &fixture.store;
    let (a, b) = (ns("one.a"), ns("two.b"));
    store.create_collection(&a, &doc! {}).unwrap();
    store.create_collection(&a, &doc! {}).unwrap();
    let other = store
        .create_collection(&a, &doc! {"compression": "lz4"})
        .unwrap_err();
    assert_eq!(other.code().code(), 48);
    fixture.insert(&a, &[doc! {"_id": 1, "x": 1}]);
    store
        .create_indexes(&a, &[&doc! {"key": {"x": 1}}])
        .unwrap();
    assert_eq!(
        store
            .rename_collection(&b, &a, false)
            .unwrap_err()
            .code()
            .code(),
        26
    );
    store.rename_collection(&a, &b, false).unwrap();
    assert!(!store.collection_exists(&a));
    assert_eq!(fixture.find_all(&b, doc! {"x": 1}).len(), 1);
    let names = |store: &frond_store::DocumentStore| -> Vec<String> {
        let databases = store.list_databases().unwrap();
        databases.into_iter().map(|info| info.name).collect()
    };
    assert_eq!(names(store), ["two"]);
    fixture.insert(&a, &[doc! {"_id": 2}]);
    assert_eq!(
        store
            .rename_collection(&a, &b, false)
            .unwrap_err()
            .code()
            .code(),
        48
    );
    store.rename_collection(&a, &b, true).unwrap();
    assert_eq!(fixture.find_all(&b, doc! {}), [doc! {"_id": 2}]);
    assert_eq!(store.list_indexes(&b).unwrap().len(), 1);

    let fixture = fixture.reopen();
    let store = &fixture.store;
    assert_eq!(fixture.find_all(&b, doc! {}), [doc! {"_id": 2}]);
    assert_eq!(store.drop_collection(&b).unwrap().indexes_were, Some(1));
    assert_eq!(store.drop_collection(&b).unwrap_err().code().code(), 26);
    assert!(!store.drop_database("two").unwrap());
    assert_eq!(fixture.find_all(&b, doc! {}).len(), 0);
    assert!(names(store).is_empty());
}

#[test]
fn indexes_are_checked_for_conflicts_and_dropped() {
    let fixture = Fixture::new();
    let store = &fixture.store;
    let c = ns("db.c");
    let create = |spec: DocBuf| store.create_indexes(&c, &[&spec]);
    let info = create(doc! {"key": {"a": 1, "b": -1}}).unwrap();
    assert_eq!(
        (info.before, info.after, info.created_collection),
        (1, 2, true)
    );
    let info = create(doc! {"key": {"a": 1, "b": -1}, "name": "a_1_b_-1"}).unwrap();
    assert_eq!((info.before, info.after), (2, 2));
    for (spec, code) in [
        (doc! {"key": {"a": 1, "b": -1}, "name": "other"}, 85),
        (doc! {"key": {"a": 1, "b": -1}, "unique": true}, 86),
        (doc! {"key": {"c": 1}, "name": "a_1_b_-1"}, 86),
        (doc! {"key": {"a": 0}}, 67),
        (doc! {"key": {"a": "nonsense"}}, 67),
        (doc! {"key": {"a": 1}, "expireAfterSeconds": -1}, 67),
        (doc! {"key": {"a": 1}, "nonsense": 10}, 197),
        (doc! {"key": {}}, 67),
        (doc! {"name": "x"}, 9),
    ] {
        let error = create(spec.clone()).unwrap_err();
        assert_eq!(error.code().code(), code, "{spec:?}: {error}");
    }
    for i in 0..62 {
        let name = format!("f{i}");
        create(doc! {"key": {name: 1}}).unwrap();
    }
    assert_eq!(
        create(doc! {"key": {"z": 1}}).unwrap_err().code().code(),
        67
    );
    let drop = |which| store.drop_indexes(&c, &which);
    assert_eq!(
        drop(IndexSelector::Name("f1".into()))
            .unwrap_err()
            .code()
            .code(),
        27
    );
    assert_eq!(
        drop(IndexSelector::Name("_id_".into()))
            .unwrap_err()
            .code()
            .code(),
        72
    );
    assert_eq!(drop(IndexSelector::Key(doc! {"f1": 1})).unwrap(), 64);
    assert_eq!(drop(IndexSelector::All).unwrap(), 63);
    assert_eq!(store.list_indexes(&c).unwrap().len(), 1);
}

#[test]
fn a_cursor_sees_the_collection_as_it_was() {
    let fixture = Fixture::new();
    let c = ns("db.c");
    let docs: Vec<DocBuf> = (0..5000)
        .map(|i| doc! {"_id": i, "a": i % 100, "pad": "x".repeat(100).as_str()})
        .collect();
    fixture.insert(&c, &docs);
    fixture
        .store
        .create_indexes(&c, &[&doc! {"key": {"a": 1}}])
        .unwrap();
    fixture.store.checkpoint().unwrap();
    let by_index = doc! {"a": {"$gte": 0}};
    let context = OpContext::new();
    let open = |filter: Option<&DocBuf>| {
        let request = FindRequest {
            filter: filter.map(|filter| &**filter),
            ..FindRequest::default()
        };
        let mut cursor = fixture.store.find(&c, &request, &context).unwrap();
        assert!(cursor.next().unwrap().is_some());
        cursor
    };
    let mut cursors = [open(None), open(Some(&by_index))];
    fixture.insert(&c, &[doc! {"_id": 6000, "a": 200}]);
    fixture.store.drop_collection(&c).unwrap();
    let again: Vec<DocBuf> = (0..3000).map(|i| doc! {"_id": i}).collect();
    fixture.insert(&c, &again);
    fixture.store.checkpoint().unwrap();
    for cursor in &mut cursors {
        let mut found = 1;
        while let Some(doc) = cursor.next().unwrap() {
            assert!(doc.contains_key("pad"));
            found += 1;
        }
        assert_eq!(found, 5000);
    }
    assert_eq!(fixture.store.estimated_count(&c), 3000);
}

#[test]
fn limits_of_time_and_memory_interrupt_a_query() {
    let fixture = Fixture::new();
    let c = ns("db.c");
    let docs: Vec<DocBuf> = (0..2000).map(|i| doc! {"_id": i}).collect();
    fixture.insert(&c, &docs);
    let all = FindRequest::default();
    let late = OpContext::with_deadline(Some(std::time::Instant::now()));
    let mut cursor = fixture.store.find(&c, &all, &late).unwrap();
    let error = loop {
        match cursor.next() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("it came to its end"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.code().code(), 50);
    assert!(cursor.next().unwrap().is_none());

    let large = "x".repeat(1 << 20);
    let big = ns("db.big");
    for i in 0..120 {
        fixture.insert(&big, &[doc! {"_id": i, "n": -i, "pad": large.as_str()}]);
    }
    let sort = doc! {"n": 1};
    let sorted = |limit| FindRequest {
        sort: Some(&sort),
        limit,
        ..FindRequest::default()
    };
    let open = |request: &FindRequest<'_>| {
        let mut cursor = fixture
            .store
            .find(&big, request, &OpContext::new())
            .unwrap();
        cursor.next()
    };
    let error = open(&sorted(None)).unwrap_err();
    assert_eq!(error.code().code(), 292);
    let first = open(&sorted(Some(3))).unwrap().unwrap();
    assert_eq!(first.get_i64("_id"), Some(119));
}

#[test]
fn collections_of_users_and_roles_are_created_with_their_unique_index() {
    let f = Fixture::new();
    for (name, field) in [("users", "user"), ("roles", "role")] {
        let own = ns(&format!("admin.system.{name}"));
        let doc = |id: i32, name: &str, db: &str| doc! {"_id": id, field: name, "db": db};
        f.insert(
            &own,
            &[doc(1, "a", "x"), doc(2, "a", "y"), doc(3, "b", "x")],
        );
        let outcome = f.insert(&own, &[doc(4, "a", "x")]);
        assert_eq!(outcome.errors[0].error.code().code(), 11000);
        let indexes = f.store.list_indexes(&own).unwrap();
        assert_eq!(indexes.len(), 2);
        let index = indexes.last().unwrap();
        let key = doc! {field: 1, "db": 1};
        assert_eq!(index.get_doc("key"), Some(&*key));
        assert_eq!(index.get_str("name"), Some(&*format!("{field}_1_db_1")));
        assert_eq!(index.get_bool("unique"), Some(true));
    }
    let f = f.reopen();
    let own = ns("admin.system.users");
    assert_eq!(f.store.list_indexes(&own).unwrap().len(), 2);
    assert_eq!(f.find_all(&own, doc! {"user": "a", "db": "y"}).len(), 1);
    f.insert(&ns("test.system.users"), &[doc! {"_id": 1}]);
    assert_eq!(
        f.store
            .list_indexes(&ns("test.system.users"))
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn only_transactions_of_the_server_write_to_its_collections() {
    let f = Fixture::new();
    let own = ns("admin.system.users");
    f.insert(&own, &[doc! {"_id": 1, "user": "a", "db": "x"}]);
    let write = |transaction: &frond_store::Transaction| {
        let inside = f.store.in_transaction(transaction);
        inside.insert(
            &own,
            &[&doc! {"_id": 2, "user": "b", "db": "x"}],
            common::INSERT,
        )
    };
    let client = f.store.begin();
    let refused = &write(&client).unwrap().errors[0];
    assert_eq!(refused.error.code().code(), 263);
    let server = f.store.begin_for_server();
    assert!(write(&server).unwrap().errors.is_empty());
    assert_eq!(f.find_all(&own, doc! {}).len(), 1);
    server.commit(frond_store::Durability::Logged).unwrap();
    assert_eq!(f.find_all(&own, doc! {}).len(), 2);
}

/// Few rows are sorted in one buffer; when they become many, they go to another sorter. Equal keys keep their order.
#[test]
fn sorts_of_few_and_of_many_rows_are_alike() {
    let fixture = Fixture::new();
    for (name, count, length) in [
        ("db.few", 90, 100),
        ("db.many", 900, 200),
        ("db.large", 20, 9000),
    ] {
        let c = ns(name);
        let docs: Vec<DocBuf> = (0..count)
            .map(|n: i32| {
                let text = format!("{:05}{}", (n * 37) % 50, "x".repeat(length));
                match n % 11 {
                    0 => doc! {"_id": n},
                    1 => doc! {"_id": n, "t": [text.as_str(), "zz"]},
                    _ => doc! {"_id": n, "t": text.as_str(), "n": n % 7},
                }
            })
            .collect();
        fixture.insert(&c, &docs);
        for (sort, projection) in [
            (doc! {"t": 1}, doc! {}),
            (doc! {"t": -1, "n": 1}, doc! {"t": 1, "_id": 0}),
            (doc! {"n": 1}, doc! {"n": 1}),
        ] {
            let all = |limit| {
                let request = FindRequest {
                    sort: Some(&sort),
                    projection: Some(&projection),
                    limit,
                    ..FindRequest::default()
                };
                fixture.find(&c, &request)
            };
            // A limit takes the sorter for many rows.
            assert_eq!(all(None), all(Some(u64::from(u32::MAX))), "{name} {sort:?}");
            assert_eq!(all(None).len(), count as usize);
        }
    }
}
