//! A transaction sees its own writes, and others see none of them.

use super::common::{Fixture, ns};
use super::*;
use frond_bson::{ArrayBuf, doc};
use frond_store::{CountRequest, FindAndModifyRequest};

/// The answers of all kinds of requests that read.
fn answers(store: &DocumentStore) -> Vec<String> {
    let (people, pets) = (ns("db.people"), ns("db.pets"));
    let context = OpContext::new();
    let mut out = Vec::new();
    let mut note = |name: &str, docs: Result<Vec<DocBuf>>| {
        let docs = docs.map_err(|error| error.code());
        out.push(format!("{name}: {docs:?}"));
    };
    for (name, filter) in [
        ("all", doc! {}),
        ("id", doc! {"_id": 3}),
        ("unique", doc! {"mail": "m3"}),
        ("multikey", doc! {"tags": "t1"}),
        ("text", doc! {"$text": {"$search": "maple"}}),
        (
            "near",
            doc! {"at": {"$near": {"$geometry": {"type": "Point", "coordinates": [1.0, 1.0]}}}},
        ),
        ("hashed", doc! {"h": 7}),
        ("wildcard", doc! {"w.x": 2}),
        ("or", doc! {"$or": [{"mail": "m1"}, {"tags": "t2"}]}),
    ] {
        note(name, find(store, &people, &filter));
    }
    for stages in [
        vec![doc! {"$lookup": {
            "from": "pets", "localField": "_id", "foreignField": "owner", "as": "pets",
        }}],
        vec![doc! {"$unionWith": "pets"}, doc! {"$sort": {"_id": 1}}],
        vec![doc! {"$graphLookup": {
            "from": "people", "startWith": "$boss", "connectFromField": "boss",
            "connectToField": "_id", "as": "chain",
        }}],
        vec![doc! {"$group": {"_id": doc! {}, "n": {"$sum": 1}, "sum": {"$sum": "$n"}}}],
        vec![doc! {"$count": "n"}],
    ] {
        note(&format!("{stages:?}"), aggregate(store, &people, &stages));
    }
    for ns in [&people, &pets] {
        let all = CountRequest::default();
        let filter = doc! {"n": {"$gt": 2}};
        let some = CountRequest {
            filter: Some(&filter),
            ..CountRequest::default()
        };
        let counts = [&all, &some].map(|request| store.count(ns, request, &context).unwrap());
        let distinct = store.distinct(ns, "tags", None, None, None, &context);
        out.push(format!("{ns}: {counts:?} {:?}", distinct.unwrap()));
    }
    out
}

fn person(id: i32) -> DocBuf {
    doc! {
        "_id": id, "n": id, "mail": format!("m{id}"), "tags": [format!("t{}", id % 3), "all"], "h": id % 8,
        "text": if id % 2 == 0 { "a maple tree" } else { "an oak" }, "boss": id / 2,
        "at": {"type": "Point", "coordinates": [f64::from(id), 1.0]}, "w": {"x": id % 4},
    }
}

fn indexed() -> Fixture {
    let f = Fixture::new();
    let people = ns("db.people");
    for index in [
        doc! {"key": {"mail": 1}, "unique": true},
        doc! {"key": {"tags": 1, "n": -1}},
        doc! {"key": {"text": "text"}},
        doc! {"key": {"at": "2dsphere"}},
        doc! {"key": {"h": "hashed"}},
        doc! {"key": {"w.$**": 1}},
    ] {
        f.store.create_indexes(&people, &[&index]).unwrap();
    }
    let docs: Vec<DocBuf> = (0..6).map(person).collect();
    f.insert(&people, &docs);
    f.insert(&ns("db.pets"), &[doc! {"_id": 100, "owner": 3, "n": 1}]);
    f
}

/// Writes of every kind.
fn write_everything(store: &DocumentStore) {
    let (people, pets) = (ns("db.people"), ns("db.pets"));
    let context = OpContext::new();
    let own: Vec<DocBuf> = (6..12).map(person).collect();
    assert_eq!(insert(store, &people, &own).unwrap().inserted, 6);
    // A document of the transaction, one from before it, and many.
    for id in [7, 3] {
        let change =
            doc! {"$set": {"mail": format!("new{id}"), "text": "a maple"}, "$push": {"tags": "t1"}};
        assert_eq!(
            update(store, &people, &doc! {"_id": id}, &change)
                .unwrap()
                .modified,
            1
        );
    }
    // The key is free again, within the transaction.
    let change = doc! {"$set": {"mail": "m3"}};
    assert_eq!(
        update(store, &people, &doc! {"_id": 4}, &change)
            .unwrap()
            .modified,
        1
    );
    let (filter, change) = (doc! {"n": {"$gte": 2}}, doc! {"$inc": {"n": 10, "w.x": 1}});
    let many = UpdateRequest {
        multi: true,
        ..update_request(&filter, &change)
    };
    let changed = store.update(&people, &many, LOGGED, &context).unwrap();
    assert_eq!(changed.modified, 10);
    assert_eq!(
        delete(store, &people, &doc! {"_id": {"$in": [1, 8]}}).unwrap(),
        2
    );
    let (filter, change) = (doc! {"owner": 9}, doc! {"$set": {"n": 5}});
    let upsert = UpdateRequest {
        upsert: true,
        ..update_request(&filter, &change)
    };
    // The second one finds what the first one has inserted.
    let first = store.update(&pets, &upsert, LOGGED, &context).unwrap();
    assert!(first.upserted_id.is_some());
    let second = store.update(&pets, &upsert, LOGGED, &context).unwrap();
    assert_eq!((second.matched, second.modified), (1, 0));
    let (filter, sort) = (doc! {"tags": "t2"}, doc! {"n": -1});
    let change = doc! {"$set": {"h": 7, "at": {"type": "Point", "coordinates": [1.0, 2.0]}}};
    let modified = store.find_and_modify(
        &people,
        &FindAndModifyRequest {
            filter: Some(&filter),
            sort: Some(&sort),
            update: Some(Value::Document(&change)),
            return_new: true,
            ..FindAndModifyRequest::default()
        },
        LOGGED,
        &context,
    );
    assert_eq!(modified.unwrap().value.unwrap().get_i32("_id"), Some(11));
    let removed = store.find_and_modify(
        &people,
        &FindAndModifyRequest {
            filter: Some(&doc! {"_id": 0}),
            remove: true,
            ..FindAndModifyRequest::default()
        },
        LOGGED,
        &context,
    );
    assert!(removed.unwrap().removed);
}

#[test]
fn every_request_sees_the_writes_of_its_transaction_and_nobody_else_does() {
    let f = indexed();
    let (people, pets) = (ns("db.people"), ns("db.pets"));
    let before = answers(&f.store);
    let transaction = f.store.begin();
    let inside = f.store.in_transaction(&transaction);
    assert_eq!(answers(&inside), before);
    assert!(!transaction.has_written());
    write_everything(&inside);
    assert!(transaction.has_written() && transaction.bytes() > 0);
    let after = answers(&inside);
    assert!(
        after
            .iter()
            .zip(&before)
            .all(|(after, before)| after != before)
    );
    assert_sound_inside(&inside, &[&people, &pets]);
    assert_eq!(answers(&f.store), before, "outside");
    transaction.commit(LOGGED).unwrap();
    assert_eq!(answers(&f.store), after, "after the commit");
    assert_sound(&f.store, &[&people, &pets]);
    assert!(!transaction.is_open() && !transaction.has_written());
    assert_eq!(
        code(find(&inside, &people, &doc! {})),
        ErrorCode::NoSuchTransaction
    );
    assert_eq!(
        code(insert(&inside, &people, &[doc! {}])),
        ErrorCode::NoSuchTransaction
    );
    assert_eq!(
        code(transaction.commit(LOGGED)),
        ErrorCode::NoSuchTransaction
    );
    let f = f.reopen();
    assert_eq!(answers(&f.store), after, "after a restart");
}

fn assert_sound_inside(store: &DocumentStore, names: &[&Namespace]) {
    for ns in names {
        assert_eq!(
            store.verify(ns).unwrap().errors,
            Vec::<String>::new(),
            "{ns}"
        );
    }
}

#[test]
fn nothing_is_left_of_an_aborted_transaction() {
    for drops in [false, true] {
        let f = indexed();
        let (people, pets) = (ns("db.people"), ns("db.pets"));
        let before = answers(&f.store);
        let transaction = f.store.begin();
        write_everything(&f.store.in_transaction(&transaction));
        if drops {
            drop(transaction)
        } else {
            transaction.abort()
        }
        assert_eq!(answers(&f.store), before);
        assert_sound(&f.store, &[&people, &pets]);
        // The keys are free.
        write_everything(&f.store);
        assert_sound(&f.store, &[&people, &pets]);
        let written = answers(&f.store);
        assert_eq!(answers(&f.reopen().store), written);
    }
}

#[test]
fn a_cursor_reads_the_moment_at_which_it_was_opened() {
    let f = Fixture::new();
    let (c, d) = (ns("db.c"), ns("db.d"));
    let docs: Vec<DocBuf> = (0..10).map(|id| doc! {"_id": id, "a": 0}).collect();
    f.insert(&c, &docs);
    f.insert(&d, &docs);
    let transaction = f.store.begin();
    let inside = f.store.in_transaction(&transaction);
    insert(&inside, &c, &[doc! {"_id": 10, "a": 0}]).unwrap();
    let context = OpContext::new();
    let mut cursor = inside.find(&c, &FindRequest::default(), &context).unwrap();
    let stages = doc! {"from": "d", "localField": "_id", "foreignField": "_id", "as": "d"};
    let stages = [doc! {"$lookup": stages}];
    let pipeline: ArrayBuf = stages.iter().collect();
    let request = AggregateRequest {
        pipeline: &pipeline,
        hint: None,
        variables: None,
        durability: LOGGED,
        allow_disk_use: None,
        bypass_validation: false,
        collation: None,
    };
    let mut joined = inside
        .aggregate("db", Some(&c), &request, &context)
        .unwrap();
    assert!(cursor.next().unwrap().is_some() && joined.next().unwrap().is_some());
    for ns in [&c, &d] {
        delete(&inside, ns, &doc! {"_id": {"$gt": 4}}).unwrap();
        let many = (doc! {}, doc! {"$set": {"a": 1}});
        let many = UpdateRequest {
            multi: true,
            ..update_request(&many.0, &many.1)
        };
        inside.update(ns, &many, LOGGED, &context).unwrap();
        insert(&inside, ns, &[doc! {"_id": 99, "a": 1}]).unwrap();
    }
    let mut left = 0;
    while let Some(doc) = cursor.next().unwrap() {
        assert_eq!(doc.get_i32("a"), Some(0));
        left += 1;
    }
    assert_eq!(left, 10);
    let mut left = 0;
    while let Some(doc) = joined.next().unwrap() {
        let found = doc.get_array("d").unwrap();
        let expected = usize::from(doc.get_i32("_id") != Some(10));
        assert_eq!(found.values().count(), expected);
        assert!(
            found
                .values()
                .all(|one| one.as_doc().unwrap().get_i32("a") == Some(0))
        );
        left += 1;
    }
    assert_eq!(left, 10);
    assert_eq!(find(&inside, &c, &doc! {}).unwrap().len(), 6);
}

#[test]
fn large_documents_are_changed_in_parts_in_a_transaction() {
    let f = Fixture::new();
    let c = ns("db.c");
    f.store
        .create_indexes(&c, &[&doc! {"key": {"n": 1}}])
        .unwrap();
    let fields = |from: i32| {
        let mut big = DocBuf::new();
        for i in 0..400 {
            big.push(
                &format!("f{i:03}"),
                format!("{}{}", from + i, "x".repeat(200)).as_str(),
            );
        }
        big
    };
    let large = |id: i32| doc! {"_id": id, "n": id, "big": fields(id), "more": {"list": [1, 2, 3]}};
    f.insert(&c, &[large(0), large(1)]);
    let transaction = f.store.begin();
    let inside = f.store.in_transaction(&transaction);
    insert(&inside, &c, &[large(2)]).unwrap();
    let change = doc! {"$set": {"big.f007": "seven", "big.new": 1}, "$inc": {"n": 10}, "$unset": {"big.f100": ""}};
    for id in 0..3 {
        assert_eq!(
            update(&inside, &c, &doc! {"_id": id}, &change)
                .unwrap()
                .modified,
            1
        );
        let again = doc! {"$push": {"more.list": 4}, "$inc": {"n": 100}};
        assert_eq!(
            update(&inside, &c, &doc! {"n": id + 10}, &again)
                .unwrap()
                .modified,
            1
        );
    }
    assert_eq!(delete(&inside, &c, &doc! {"n": 112}).unwrap(), 1);
    assert_sound_inside(&inside, &[&c]);
    let seen = find(&inside, &c, &doc! {}).unwrap();
    assert_eq!(seen.len(), 2);
    for doc in &seen {
        let big = doc.get_doc("big").unwrap();
        assert_eq!(big.get_str("f007"), Some("seven"));
        assert!(!big.contains_key("f100") && big.contains_key("new"));
        assert_eq!(
            doc.get_doc("more")
                .unwrap()
                .get_array("list")
                .unwrap()
                .count(),
            4
        );
    }
    let untouched = find(&f.store, &c, &doc! {}).unwrap();
    assert_eq!(untouched, vec![large(0), large(1)]);
    transaction.commit(LOGGED).unwrap();
    assert_eq!(find(&f.store, &c, &doc! {}).unwrap(), seen);
    assert_sound(&f.store, &[&c]);
    assert_eq!(find(&f.reopen().store, &c, &doc! {}).unwrap(), seen);
}

#[test]
fn multikey_paths_of_an_aborted_transaction_do_no_harm() {
    let f = Fixture::new();
    let c = ns("db.c");
    f.store
        .create_indexes(&c, &[&doc! {"key": {"a": 1}}])
        .unwrap();
    f.insert(&c, &[doc! {"_id": 0, "a": 1}]);
    let transaction = f.store.begin();
    let inside = f.store.in_transaction(&transaction);
    insert(&inside, &c, &[doc! {"_id": 1, "a": [1, 2]}]).unwrap();
    let filter = doc! {"a": {"$gt": 1, "$lt": 2}};
    assert_eq!(find(&inside, &c, &filter).unwrap().len(), 1);
    transaction.abort();
    // The path must be stored by this one, for the next start.
    f.insert(&c, &[doc! {"_id": 2, "a": [0, 3]}]);
    let f = f.reopen();
    assert_eq!(find(&f.store, &c, &filter).unwrap().len(), 1);
    assert_sound(&f.store, &[&c]);
}

#[test]
fn warnings_of_a_validator_wait_for_the_commit() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    let f = Fixture::new();
    let c = ns("db.c");
    let options = doc! {"validator": {"a": {"$type": "int"}}, "validationAction": "warn"};
    f.store.create_collection(&c, &options).unwrap();
    let warnings = Arc::new(AtomicUsize::new(0));
    let counted = warnings.clone();
    f.store.catalog().hooks().on_invalid_document(move |_, _| {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    for commits in [false, true] {
        let transaction = f.store.begin();
        let inside = f.store.in_transaction(&transaction);
        insert(&inside, &c, &[doc! {"a": "x"}, doc! {"a": 1}]).unwrap();
        assert_eq!(warnings.load(Ordering::SeqCst), 0);
        if commits {
            transaction.commit(LOGGED).unwrap()
        } else {
            transaction.abort()
        }
    }
    assert_eq!(warnings.load(Ordering::SeqCst), 1);
}
