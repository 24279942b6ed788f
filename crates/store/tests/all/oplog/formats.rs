//! The entries of documents.

use frond_bson::{ArrayBuf, array, doc};
use frond_store::{InsertRecording, Recording, UpdateOutcome};

use super::*;
use crate::common::ns;

const SESSION: SessionKey = [3; 16];

fn statement(statement: i32) -> StatementId {
    StatementId {
        session: SESSION,
        number: 7,
        statement,
        clears: false,
    }
}

#[test]
fn a_new_oplog_begins_with_an_entry() {
    let fixture = Fixture::with_oplog();
    let all = documents(&fixture.store);
    assert_eq!(all.len(), 1);
    let expected = doc! {"op": "n", "ns": "", "o": {"msg": "initiating set"}};
    assert_eq!(brief(&all[0]), expected);
    let oplog = fixture.store.oplog();
    assert_eq!(oplog.first(), oplog.last());
    assert_eq!(all[0].get("ts"), Some(Value::Timestamp(oplog.first())));
    let noop = oplog.append_noop(&doc! {"msg": "hello"}).unwrap();
    assert!(noop > oplog.first());
    assert_eq!(oplog.last(), noop);
    assert_eq!(oplog.entries_estimate(), 2);
}

#[test]
fn every_document_of_an_insert_has_an_entry_with_consecutive_times() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let c = ns("db.c");
    let docs: Vec<DocBuf> = (0..2500).map(|n| doc! {"_id": n, "a": "x"}).collect();
    let uuid_of = |entry: &DocBuf| entry.get_binary("ui").map(<[u8]>::to_vec);
    insert(store, &c, &docs);
    let uuid = store.uuid_of(&c).unwrap();
    let all = documents(store);
    let create = &all[1];
    assert_eq!(create.get_str("op"), Some("c"));
    assert_eq!(uuid_of(create), Some(uuid.to_vec()));
    let inserts = &all[2..];
    assert_eq!(inserts.len(), 2500);
    let mut commits = 0;
    let mut before: Option<u64> = None;
    for (entry, doc) in inserts.iter().zip(&docs) {
        let expected = doc! {
            "op": "i", "ns": "db.c", "o": doc, "o2": {"_id": doc.get("_id").unwrap()},
        };
        assert_eq!(brief(entry), expected);
        assert_eq!(uuid_of(entry), Some(uuid.to_vec()));
        let Some(Value::Timestamp(ts)) = entry.get("ts") else {
            panic!()
        };
        let ts = ts.to_u64();
        commits += usize::from(before.is_none_or(|before| before + 1 != ts));
        before = Some(ts);
    }
    assert!(commits <= 3, "one for each commit at most: {commits}");
    assert_eq!(store.oplog().last().to_u64(), before.unwrap());
    assert_eq!(store.oplog().entries_estimate(), 2502);
}

#[test]
fn updates_have_differences_and_replacements_documents() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let c = ns("db.c");
    let text = "x".repeat(100);
    insert(
        store,
        &c,
        &[doc! {"_id": 1, "a": 1, "s": {"b": 1}, "x": [1], "t": &text}],
    );
    let id = doc! {"_id": 1};
    let changed = |diff: DocBuf| {
        vec![doc! {"op": "u", "ns": "db.c", "o": {"$v": 2, "diff": &diff}, "o2": {"_id": 1}}]
    };
    for (operators, diff) in [
        (doc! {"$set": {"a": 2}}, doc! {"u": {"a": 2}}),
        (doc! {"$inc": {"n": 5}}, doc! {"i": {"n": 5}}),
        (doc! {"$unset": {"n": 1}}, doc! {"d": {"n": false}}),
        (doc! {"$set": {"s.b": 2}}, doc! {"ss": {"u": {"b": 2}}}),
        (doc! {"$set": {"s": {"b": 3}}}, doc! {"u": {"s": {"b": 3}}}),
        (doc! {"$push": {"x": 2}}, doc! {"sx": {"a": true, "u1": 2}}),
        (doc! {"$set": {"x.0": 7}}, doc! {"sx": {"a": true, "u0": 7}}),
        (doc! {"$pull": {"x": 7}}, doc! {"u": {"x": [2]}}),
        (
            doc! {"$rename": {"a": "r"}},
            doc! {"d": {"a": false}, "i": {"r": 2}},
        ),
    ] {
        let entries = added(store, || {
            update(store, &c, &id, &operators);
        });
        assert_eq!(entries, changed(diff), "{operators:?}");
    }
    // Nothing is changed.
    let nothing = added(store, || {
        update(store, &c, &id, &doc! {"$set": {"r": 2}});
    });
    assert!(nothing.is_empty());
    let replaced = added(store, || {
        update(store, &c, &id, &doc! {"b": 1, "t": &text});
    });
    let whole = doc! {"_id": 1, "b": 1, "t": &text};
    let entry = |o: &Doc| doc! {"op": "u", "ns": "db.c", "o": o, "o2": {"_id": 1}};
    assert_eq!(replaced, [entry(&whole)]);
    // A pipeline has a difference if that is smaller.
    let pipeline = |stages: &ArrayBuf| {
        let request = UpdateRequest::new(&id, stages.as_value());
        added(store, || {
            store
                .update(&c, &request, LOGGED, &OpContext::new())
                .unwrap();
        })
    };
    let set = pipeline(&array![{"$set": {"b": 2}}]);
    assert_eq!(set, changed(doc! {"u": {"b": 2}}));
    let replaced = pipeline(&array![{"$replaceWith": {"_id": 1}}]);
    assert_eq!(replaced, [entry(&doc! {"_id": 1})]);
}

#[test]
fn a_replacement_without_the_id_has_an_entry_if_nothing_else_differs() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let c = ns("db.c");
    let stored = doc! {"_id": 1, "a": 1};
    insert(store, &c, std::slice::from_ref(&stored));
    let id = doc! {"_id": 1};
    for (given, is_change) in [
        (doc! {"_id": 1, "a": 1}, false),
        (doc! {"a": 1}, true),
        (doc! {"a": 1, "_id": 1}, true),
    ] {
        let expected: Vec<DocBuf> = is_change
            .then(|| doc! {"op": "u", "ns": "db.c", "o": &stored, "o2": {"_id": 1}})
            .into_iter()
            .collect();
        let entries = added(store, || {
            let outcome = update(store, &c, &id, &given);
            let modified = u64::from(is_change);
            assert_eq!((outcome.matched, outcome.modified), (1, modified));
        });
        assert_eq!(entries, expected, "{given:?}");
        let entries = added(store, || {
            let modify = FindAndModifyRequest {
                filter: Some(&id),
                update: Some(Value::Document(&given)),
                ..FindAndModifyRequest::default()
            };
            let done = store
                .find_and_modify(&c, &modify, LOGGED, &OpContext::new())
                .unwrap();
            assert!(done.updated_existing);
        });
        assert_eq!(entries, expected, "{given:?}");
    }
}

#[test]
fn the_largest_changes_have_entries() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let c = ns("db.c");
    let mut long = doc! {"_id": 1};
    long.push_array("x", |x| {
        while x.len_bytes() < (16 << 20) - 2100 {
            x.push(&*"x".repeat(2000));
        }
    });
    insert(store, &c, &[long.clone()]);
    // The names of the elements are longer in a difference.
    let other = "y".repeat(2000);
    update(store, &c, &doc! {}, &doc! {"$set": {"x.$[]": &other}});
    let (_, value) = values(store).pop().unwrap();
    let raw = RawEntry::read(&value).unwrap();
    assert_eq!(raw.kind(), frond_oplog::entry::Kind::Replace);
    let transaction = store.begin();
    let inside = store.in_transaction(&transaction);
    delete(&inside, &c, &doc! {});
    insert(&inside, &c, &[long]);
    transaction.commit(LOGGED).unwrap();
    replay::check(store);
}

#[test]
fn an_increment_of_a_large_document_has_the_value_after_it() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let c = ns("db.c");
    let mut large = doc! {"_id": 1, "total": 0};
    large.push_doc("counts", |counts| {
        for n in 0..20_000 {
            counts.push(&format!("field{n}"), n);
        }
    });
    insert(store, &c, &[large]);
    let change = doc! {"$inc": {"counts.field7": 5, "counts.new": 3, "total": 1}};
    let mut values = Vec::new();
    let entries = added(store, || {
        update(store, &c, &doc! {"_id": 1}, &change);
        values = super::values(store);
    });
    let diff = doc! {
        "u": {"total": 1}, "scounts": {"u": {"field7": 12}, "i": {"new": 3}},
    };
    assert_eq!(
        entries,
        [doc! {"op": "u", "ns": "db.c", "o": {"$v": 2, "diff": &diff}, "o2": {"_id": 1}}]
    );
    assert!(values.last().unwrap().1.len() < 300, "of the parts only");
    // The entry has whole values of all that an operator sets, also of a part that was read for it.
    let change = doc! {"$set": {"counts.field9": {"a": 1}}, "$unset": {"counts.field10": 1}};
    let entries = added(store, || {
        update(store, &c, &doc! {"_id": 1}, &change);
    });
    let o = entries[0].get_doc("o").unwrap();
    let diff = doc! {"scounts": {"d": {"field10": false}, "u": {"field9": {"a": 1}}}};
    assert_eq!(o.get_doc("diff"), Some(&*diff));
    replay::check(store);
}

#[test]
fn deletes_upserts_and_find_and_modify_have_entries() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let c = ns("db.c");
    insert(
        store,
        &c,
        &[doc! {"_id": 1}, doc! {"_id": 2}, doc! {"_id": 3}],
    );
    let gone = |id: i32| doc! {"op": "d", "ns": "db.c", "o": {"_id": id}};
    let entries = added(store, || {
        delete(store, &c, &doc! {"_id": {"$lt": 3}});
    });
    assert_eq!(entries, [gone(1), gone(2)]);
    let entries = added(store, || {
        let filter = doc! {"_id": 9};
        let change = doc! {"$set": {"a": 1}};
        let request = UpdateRequest {
            upsert: true,
            ..UpdateRequest::new(&filter, Value::Document(&change))
        };
        store
            .update(&c, &request, LOGGED, &OpContext::new())
            .unwrap();
    });
    let upserted = doc! {"op": "i", "ns": "db.c", "o": {"_id": 9, "a": 1}, "o2": {"_id": 9}};
    assert_eq!(entries, [upserted]);
    let (filter, change) = (doc! {"_id": 9}, doc! {"$inc": {"a": 1}});
    let entries = added(store, || {
        let request = FindAndModifyRequest {
            filter: Some(&filter),
            update: Some(Value::Document(&change)),
            ..FindAndModifyRequest::default()
        };
        let context = OpContext::new();
        store
            .find_and_modify(&c, &request, LOGGED, &context)
            .unwrap();
        let request = FindAndModifyRequest {
            filter: Some(&filter),
            remove: true,
            ..FindAndModifyRequest::default()
        };
        store
            .find_and_modify(&c, &request, LOGGED, &context)
            .unwrap();
    });
    let changed = doc! {
        "op": "u", "ns": "db.c", "o": {"$v": 2, "diff": {"u": {"a": 2}}}, "o2": {"_id": 9},
    };
    assert_eq!(entries, [changed, gone(9)]);
}

#[test]
fn expired_documents_have_entries() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let c = ns("db.c");
    insert(store, &c, &[doc! {"_id": 1, "at": Value::DateTime(0)}]);
    let index = doc! {"key": {"at": 1}, "expireAfterSeconds": 10};
    store.create_indexes(&c, &[&index]).unwrap();
    let entries = added(store, || {
        let pass = store.delete_expired(20_000, &OpContext::new());
        assert_eq!(pass.deleted, 1);
    });
    assert_eq!(entries, [doc! {"op": "d", "ns": "db.c", "o": {"_id": 1}}]);
}

#[test]
fn capped_collections_have_no_entries_for_what_they_remove() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let c = ns("db.c");
    let options = doc! {"capped": true, "size": 4096, "max": 2};
    store.create_collection(&c, &options).unwrap();
    let docs: Vec<DocBuf> = (0..5).map(|n| doc! {"_id": n}).collect();
    let entries = added(store, || insert(store, &c, &docs));
    let ops: Vec<_> = entries.iter().map(|one| one.get_str("op")).collect();
    assert_eq!(ops, [Some("i"); 5]);
    assert_eq!(fixture.find_all(&c, doc! {}).len(), 2);
}

#[test]
fn measurements_have_the_name_of_the_buckets() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let c = ns("db.series");
    let options = doc! {"timeseries": {"timeField": "at"}};
    store.create_collection(&c, &options).unwrap();
    let measurement = doc! {"_id": 1, "at": Value::DateTime(5)};
    let entries = added(store, || {
        insert(store, &c, std::slice::from_ref(&measurement))
    });
    let expected = doc! {
        "op": "i", "ns": "db.system.buckets.series", "o": &measurement, "o2": {"_id": 1},
    };
    assert_eq!(entries, [expected]);
}

#[test]
fn what_belongs_to_the_server_alone_has_no_entries() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let entries = added(store, || {
        for name in ["local.c", "local.startup_log", "config.system.sessions"] {
            let c = ns(name);
            // The server makes such collections itself.
            if store.create_collection(&c, &doc! {}).is_ok() {
                insert(store, &c, &[doc! {"_id": 1}]);
                update(store, &c, &doc! {}, &doc! {"$set": {"a": 1}});
                delete(store, &c, &doc! {});
                store.drop_collection(&c).unwrap();
            }
        }
    });
    assert!(entries.is_empty(), "{entries:?}");
}

#[test]
fn retryable_writes_name_their_statements() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let c = ns("db.c");
    let docs = [doc! {"_id": 1}, doc! {"_id": 2}];
    let docs: Vec<&Doc> = docs.iter().map(|doc| &**doc).collect();
    let result = doc! {"ok": 1};
    let recording = InsertRecording {
        of: statement(0),
        numbers: &[0, 1],
        result: &result,
    };
    store.insert_recorded(&c, &docs, INSERT, recording).unwrap();
    let (filter, change) = (doc! {"_id": 1}, doc! {"$set": {"a": 1}});
    let outcome = |_: &UpdateOutcome| doc! {};
    let recorded = |number| Recording {
        of: statement(number),
        result: &outcome,
    };
    let context = OpContext::new();
    let updating = UpdateRequest::new(&filter, Value::Document(&change));
    store
        .update_recorded(&c, &updating, recorded(2), &context)
        .unwrap();
    let new = doc! {"_id": 8};
    let upserting = UpdateRequest {
        upsert: true,
        ..UpdateRequest::new(&new, Value::Document(&change))
    };
    store
        .update_recorded(&c, &upserting, recorded(3), &context)
        .unwrap();
    let removal = DeleteRequest {
        filter: &filter,
        limit_one: true,
        hint: None,
        variables: None,
        collation: None,
    };
    let deleted = |_: &u64| doc! {};
    let recording = Recording {
        of: statement(4),
        result: &deleted,
    };
    store
        .delete_recorded(&c, &removal, recording, &context)
        .unwrap();
    insert(store, &c, &[doc! {"_id": 5}]);
    let entries = documents(store);
    let entries = &entries[2..];
    let statements: Vec<_> = entries
        .iter()
        .map(|entry| entry.get_i32("stmtId"))
        .collect();
    assert_eq!(
        statements,
        [Some(0), Some(1), Some(2), Some(3), Some(4), None]
    );
    for entry in &entries[..5] {
        let lsid = entry.get_doc("lsid").unwrap();
        assert_eq!(lsid.get_binary("id"), Some(&SESSION[..]));
        assert_eq!(entry.get_i64("txnNumber"), Some(7));
    }
    assert!(!entries[5].contains_key("lsid"));
}

#[test]
fn a_handle_tells_the_last_entry_that_it_has_written() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let c = ns("db.c");
    let (noting, written) = store.noting_writes();
    assert_eq!(written.get(), None);
    insert(&noting, &c, &[doc! {"_id": 1}, doc! {"_id": 2}]);
    let first = written.get().unwrap();
    assert_eq!(first, store.oplog().last());
    insert(store, &c, &[doc! {"_id": 3}]);
    assert_eq!(written.get(), Some(first), "of another handle");
    assert!(store.oplog().last() > first);
    update(&noting, &c, &doc! {"_id": 1}, &doc! {"$set": {"a": 1}});
    assert_eq!(written.get(), Some(store.oplog().last()));
    noting.drop_collection(&c).unwrap();
    assert_eq!(written.get(), Some(store.oplog().last()));
    assert_eq!(
        written.get(),
        Some(Timestamp::from_u64(values(store).last().unwrap().0))
    );
}

#[test]
fn merge_and_out_have_entries() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let (c, out) = (ns("db.c"), ns("db.out"));
    insert(
        store,
        &c,
        &[doc! {"_id": 1, "a": 1}, doc! {"_id": 2, "a": 2}],
    );
    let run = |stages: &ArrayBuf| {
        let request = frond_store::AggregateRequest {
            pipeline: stages,
            hint: None,
            variables: None,
            durability: LOGGED,
            allow_disk_use: None,
            bypass_validation: false,
            collation: None,
        };
        let context = OpContext::new();
        let mut cursor = store.aggregate("db", Some(&c), &request, &context).unwrap();
        while cursor.next().unwrap().is_some() {}
    };
    run(&array![{"$out": "out"}]);
    super::replay::check(store);
    run(&array![{"$set": {"a": 5}}, {"$merge": "out"}]);
    run(&array![{"$match": {"_id": 1}}, {"$out": "out"}]);
    super::replay::check(store);
    let stored = super::replay::stored(store);
    assert_eq!(
        stored
            .values()
            .find(|one| one.ns == out.as_str())
            .unwrap()
            .documents
            .len(),
        1
    );
}
