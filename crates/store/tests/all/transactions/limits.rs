//! Operations that transactions and fixed moments refuse, and those that they accept.

use super::common::{Fixture, ns, open_with};
use super::*;
use frond_bson::doc;
use frond_store::{EngineOptions, IndexChange, IndexSelector};

/// A store with a collection of each kind.
fn kinds() -> Fixture {
    let f = Fixture::new();
    f.insert(&ns("db.plain"), &[doc! {"_id": 1, "a": 1}]);
    f.store
        .create_collection(&ns("db.capped"), &doc! {"capped": true, "size": 4096})
        .unwrap();
    f.insert(&ns("db.capped"), &[doc! {"_id": 1, "a": 1}]);
    let series = doc! {"timeseries": {"timeField": "t"}};
    f.store
        .create_collection(&ns("db.series"), &series)
        .unwrap();
    let view = doc! {"viewOn": "plain", "pipeline": [{"$addFields": {"b": 2}}]};
    f.store.create_collection(&ns("db.view"), &view).unwrap();
    f
}

#[test]
fn a_transaction_refuses_what_mongodb_refuses() {
    let f = kinds();
    let transaction = f.store.begin();
    let inside = f.store.in_transaction(&transaction);
    let writes: [fn(&DocumentStore, &Namespace) -> i32; 3] = [
        |store, ns| insert_codes(store, ns, &[doc! {}])[0],
        |store, ns| code(update(store, ns, &doc! {}, &doc! {"$set": {"a": 2}})).code(),
        |store, ns| code(delete(store, ns, &doc! {})).code(),
    ];
    for (name, expected) in [
        ("db.capped", 263),
        ("db.series", 263),
        ("config.x", 263),
        ("admin.x", 263),
        ("local.x", 263),
        ("db.system.js", 50791),
        ("db.view", 166),
    ] {
        for write in writes {
            assert_eq!(write(&inside, &ns(name)), expected, "{name}");
        }
    }
    let plain = ns("db.plain");
    type Change = fn(&DocumentStore, &Namespace) -> Result<()>;
    let changes: [(&str, Change); 12] = [
        ("drop", |store, ns| store.drop_collection(ns).map(|_| ())),
        ("drop view", |store, _| {
            store.drop_collection(&ns("db.view")).map(|_| ())
        }),
        ("drop database", |store, _| {
            store.drop_database("db").map(|_| ())
        }),
        ("rename", |store, from| {
            store.rename_collection(from, &ns("db.to"), false)
        }),
        ("collMod", |store, ns| {
            store.modify_collection(ns, &doc! {"validator": {}})
        }),
        ("collMod of an index", |store, ns| {
            let change = IndexChange {
                which: IndexSelector::Name("_id_".to_owned()),
                expire_after: None,
                hidden: Some(true),
                prepare_unique: None,
                unique: false,
                dry_run: false,
            };
            store
                .modify_index(ns, &change, &OpContext::new())
                .map(|_| ())
        }),
        ("drop indexes", |store, ns| {
            store.drop_indexes(ns, &IndexSelector::All).map(|_| ())
        }),
        ("reIndex", |store, ns| {
            store.rebuild_indexes(ns, &OpContext::new())
        }),
        ("convert", |store, ns| {
            store.convert_to_capped(ns, 4096, &OpContext::new())
        }),
        ("clone", |store, from| {
            store.clone_as_capped(from, &ns("db.to"), 4096)
        }),
        ("view", |store, _| {
            let options = doc! {"viewOn": "plain", "pipeline": []};
            store.create_collection(&ns("db.another"), &options)
        }),
        ("time series", |store, _| {
            let options = doc! {"timeseries": {"timeField": "t"}};
            store.create_collection(&ns("db.another"), &options)
        }),
    ];
    let refused = ErrorCode::OperationNotSupportedInTransaction;
    for (name, change) in changes {
        assert_eq!(code(change(&inside, &plain)), refused, "{name}");
    }
    for stage in [
        doc! {"$out": "to"},
        doc! {"$merge": {"into": "to"}},
        doc! {"$collStats": {"count": {}}},
        doc! {"$indexStats": {}},
    ] {
        assert_eq!(
            code(aggregate(&inside, &plain, std::slice::from_ref(&stage))),
            refused,
            "{stage:?}"
        );
    }
    let tailable = FindRequest {
        tailable: true,
        ..FindRequest::default()
    };
    let opened = inside.find(&ns("db.capped"), &tailable, &OpContext::new());
    assert_eq!(code(opened), refused);
    // All of them can be read.
    for (name, documents) in [
        ("db.plain", 1),
        ("db.capped", 1),
        ("db.series", 0),
        ("db.view", 1),
    ] {
        assert_eq!(
            find(&inside, &ns(name), &doc! {}).unwrap().len(),
            documents,
            "{name}"
        );
    }
    assert!(!transaction.has_written());
    transaction.commit(LOGGED).unwrap();
    let left: Vec<_> = f.store.list_collections("db").unwrap();
    assert_eq!(left.len(), 5, "with system.views");
}

#[test]
fn a_fixed_moment_takes_no_writes() {
    let f = kinds();
    let moment = f.store.snapshot_reads();
    let past = f.store.at(&moment);
    let plain = ns("db.plain");
    let refused = ErrorCode::IllegalOperation;
    assert_eq!(insert_codes(&past, &plain, &[doc! {}]), [refused.code()]);
    assert_eq!(
        insert_codes(&past, &ns("db.new"), &[doc! {}]),
        [refused.code()]
    );
    assert_eq!(
        code(update(&past, &plain, &doc! {}, &doc! {"$set": {"a": 2}})),
        refused
    );
    assert_eq!(code(delete(&past, &plain, &doc! {})), refused);
    assert_eq!(
        code(past.create_collection(&ns("db.new"), Doc::empty())),
        refused
    );
    assert_eq!(
        code(past.create_indexes(&plain, &[&doc! {"key": {"a": 1}}])),
        refused
    );
    assert_eq!(code(past.drop_collection(&plain)), refused);
    assert_eq!(
        code(aggregate(&past, &plain, &[doc! {"$out": "to"}])),
        ErrorCode::InvalidOptions
    );
    assert_eq!(find(&past, &plain, &doc! {}).unwrap().len(), 1);
}

#[test]
fn a_transaction_that_is_too_large_for_memory_fails_and_others_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_with(EngineOptions::new(directory.path()));
    let c = ns("db.c");
    insert(&store, &c, &[doc! {"_id": -1}]).unwrap();
    let transaction = store.begin();
    let inside = store.in_transaction(&transaction);
    let text = "x".repeat(1 << 20);
    let failed = (0..1000)
        .find_map(|id| insert(&inside, &c, &[doc! {"_id": id, "text": text.as_str()}]).err());
    assert_eq!(
        failed.unwrap().code(),
        ErrorCode::TransactionTooLargeForCache
    );
    assert!(transaction.bytes() > 1 << 20);
    // Another one that is small.
    let small = store.begin();
    insert(&store.in_transaction(&small), &c, &[doc! {"_id": 5000}]).unwrap();
    small.commit(LOGGED).unwrap();
    transaction.abort();
    assert_eq!(transaction.bytes(), 0);
    assert_eq!(find(&store, &c, &doc! {}).unwrap().len(), 2);
    assert_sound(&store, &[&c]);
}

#[test]
fn an_idle_transaction_lets_go_of_flushed_memtables() {
    let f = Fixture::new();
    if f.store.engine().cluster().is_some() {
        // There are no memtables.
        return;
    }
    let c = ns("db.c");
    let docs: Vec<DocBuf> = (0..500)
        .map(|id| doc! {"_id": id, "text": "x".repeat(2000)})
        .collect();
    f.insert(&c, &docs);
    let transaction = f.store.begin();
    let inside = f.store.in_transaction(&transaction);
    update(
        &inside,
        &c,
        &doc! {"_id": 7},
        &doc! {"$set": {"text": "own"}},
    )
    .unwrap();
    let many = (doc! {}, doc! {"$set": {"later": true}});
    let many = UpdateRequest {
        multi: true,
        ..update_request(&many.0, &many.1)
    };
    // Document 7 is not among these.
    let filter = doc! {"_id": {"$ne": 7}};
    let many = UpdateRequest {
        filter: &filter,
        ..many
    };
    f.store
        .update(&c, &many, LOGGED, &OpContext::new())
        .unwrap();
    f.store.checkpoint().unwrap();
    let seen = find(&inside, &c, &doc! {}).unwrap();
    let context = OpContext::new();
    let mut cursor = inside.find(&c, &FindRequest::default(), &context).unwrap();
    let mut through_cursor = vec![cursor.next().unwrap().unwrap()];
    assert!(transaction.retained_bytes() > 500_000);
    transaction.detach().unwrap();
    assert!(
        transaction.retained_bytes() < 100_000,
        "{}",
        transaction.retained_bytes()
    );
    assert_eq!(find(&inside, &c, &doc! {}).unwrap(), seen);
    insert(&inside, &c, &[doc! {"_id": 900}]).unwrap();
    // An open cursor releases them, too, and goes on with the writes before its opening.
    assert!(cursor.retained_bytes() > 500_000);
    cursor.release_memory().unwrap();
    assert!(cursor.retained_bytes() < 100_000);
    while let Some(doc) = cursor.next().unwrap() {
        through_cursor.push(doc);
    }
    assert_eq!(through_cursor, seen);
    transaction.commit(LOGGED).unwrap();
    let expected = [("own", 1), ("x", 0)];
    for (text, count) in expected {
        assert_eq!(
            find(&f.store, &c, &doc! {"text": text}).unwrap().len(),
            count
        );
    }
    assert_sound(&f.store, &[&c]);
}
