//! Documents as they were before a change.

use frond_bson::doc;

use super::*;
use crate::common::ns;

fn collection(store: &DocumentStore, name: &str) -> Namespace {
    let c = ns(name);
    let options = doc! {"changeStreamPreAndPostImages": {"enabled": true}};
    store.create_collection(&c, &options).unwrap();
    c
}

/// The pre-image of the last entry.
fn last(store: &DocumentStore, c: &Namespace) -> Option<DocBuf> {
    let (ts, value) = values(store).pop().unwrap();
    let raw = RawEntry::read(&value).unwrap();
    let uuid = store.uuid_of(c).unwrap();
    let found = store.oplog().pre_image(ts, 0, &uuid).unwrap();
    assert_eq!(raw.has_pre_image(), found.is_some());
    found
}

#[test]
fn the_document_before_each_change_is_kept() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let c = collection(store, "db.c");
    insert(store, &c, &[doc! {"_id": 1, "a": 1}]);
    assert_eq!(last(store, &c), None);
    update(store, &c, &doc! {"_id": 1}, &doc! {"$set": {"a": 2}});
    assert_eq!(last(store, &c), Some(doc! {"_id": 1, "a": 1}));
    update(store, &c, &doc! {"_id": 1}, &doc! {"b": 1});
    assert_eq!(last(store, &c), Some(doc! {"_id": 1, "a": 2}));
    delete(store, &c, &doc! {"_id": 1});
    assert_eq!(last(store, &c), Some(doc! {"_id": 1, "b": 1}));
    // Without the option nothing is kept.
    store
        .modify_collection(
            &c,
            &doc! {"changeStreamPreAndPostImages": {"enabled": false}},
        )
        .unwrap();
    insert(store, &c, &[doc! {"_id": 2}]);
    update(store, &c, &doc! {"_id": 2}, &doc! {"$set": {"a": 2}});
    assert_eq!(last(store, &c), None);
    let fixture = fixture.reopen();
    let store = &fixture.store;
    let images: usize = (values(store).iter())
        .map(|(ts, _)| {
            let uuid = store.uuid_of(&c).unwrap();
            usize::from(store.oplog().pre_image(*ts, 0, &uuid).unwrap().is_some())
        })
        .sum();
    assert_eq!(images, 3);
}

#[test]
fn internal_databases_have_none() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let options = doc! {"changeStreamPreAndPostImages": {"enabled": true}};
    for db in ["admin", "config", "local"] {
        let c = ns(&format!("{db}.c"));
        let refused = |error: frond_store::Error| {
            assert_eq!(error.code(), frond_error::ErrorCode::InvalidOptions);
            let message = format!("is not supported on the {db} database");
            assert!(error.message().ends_with(&message), "{error}");
        };
        refused(store.create_collection(&c, &options).unwrap_err());
        store.create_collection(&c, &doc! {}).unwrap();
        refused(store.modify_collection(&c, &options).unwrap_err());
    }
}

#[test]
fn large_documents_are_kept_whole() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let c = collection(store, "db.c");
    let mut large = doc! {"_id": 1};
    large.push_doc("counts", |counts| {
        for n in 0..20_000 {
            counts.push(&format!("field{n}"), n);
        }
    });
    insert(store, &c, &[large.clone()]);
    update(
        store,
        &c,
        &doc! {"_id": 1},
        &doc! {"$inc": {"counts.field7": 1}},
    );
    assert_eq!(last(store, &c), Some(large));
    let changed = fixture.find_all(&c, doc! {}).pop();
    delete(store, &c, &doc! {"_id": 1});
    assert_eq!(last(store, &c), changed);
    replay::check(store);
}

#[test]
fn operations_of_a_transaction_have_their_positions() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let c = collection(store, "db.c");
    let text = "x".repeat(6 << 20);
    insert(store, &c, &[doc! {"_id": 1, "t": &text}, doc! {"_id": 2}]);
    insert(store, &ns("db.d"), &[doc! {"_id": 1}]);
    let transaction = store.begin();
    let inside = store.in_transaction(&transaction);
    update(
        &inside,
        &ns("db.d"),
        &doc! {"_id": 1},
        &doc! {"$set": {"a": 1}},
    );
    update(&inside, &c, &doc! {"_id": 2}, &doc! {"$set": {"a": 1}});
    for n in 0..3 {
        let whole = doc! {"t": format!("{n}{text}").as_str()};
        update(&inside, &c, &doc! {"_id": 1}, &whole);
    }
    delete(&inside, &c, &doc! {"_id": 2});
    transaction.commit(LOGGED).unwrap();
    let uuid = store.uuid_of(&c).unwrap();
    let all = values(store);
    let chain: Vec<_> = (all.iter())
        .map(|(ts, value)| (*ts, RawEntry::read(value).unwrap()))
        .filter(|(_, raw)| raw.is_transaction())
        .collect();
    assert_eq!(chain.len(), 2);
    let mut found = Vec::new();
    for (ts, raw) in &chain {
        for (position, operation) in raw.operations().enumerate() {
            let operation = operation.unwrap();
            let image = store
                .oplog()
                .pre_image(*ts, position as u32, &uuid)
                .unwrap();
            assert_eq!(operation.has_pre_image(), image.is_some());
            let text = |doc: &DocBuf| doc.get_str("t").map(|text| text[..2].to_owned());
            found.push(image.map(|doc| (doc.get_i32("_id"), text(&doc), doc.get_i32("a"))));
        }
    }
    let t = |text: &str| Some(text.to_owned());
    let expected = [
        None,
        Some((Some(2), None, None)),
        Some((Some(1), t("xx"), None)),
        Some((Some(1), t("0x"), None)),
        Some((Some(1), t("1x"), None)),
        Some((Some(2), None, Some(1))),
    ];
    assert_eq!(found, expected);
}

#[test]
fn they_expire_by_age_or_with_their_entries() {
    let fixture = Fixture::new();
    let store = &fixture.store;
    let settings = OplogSettings {
        bytes_max: 256 << 10,
        ..OPLOG
    };
    store.turn_on_oplog(settings).unwrap();
    let c = collection(store, "db.c");
    insert(store, &c, &[doc! {"_id": 1, "n": 0, "t": "x".repeat(1000)}]);
    let change = |count: i32| {
        for _ in 0..count {
            let whole = doc! {"n": rand::random::<i32>(), "t": "x".repeat(1000)};
            update(store, &c, &doc! {"_id": 1}, &whole);
        }
    };
    change(1500);
    let kept = || {
        let tree = {
            let trees = store.engine().trees().unwrap();
            // The tree of the pre-images is the one behind that of the entries.
            let entries = store.oplog().tree().unwrap();
            trees
                .into_iter()
                .find(|tree| tree.0 == entries.0 + 1)
                .unwrap()
        };
        let snapshot = store.engine().snapshot();
        let (low, high) = (Bound::Unbounded, Bound::Unbounded);
        let mut cursor = snapshot
            .cursor(tree, low, high, Direction::Forward)
            .unwrap();
        let mut count = 0;
        while cursor.next().unwrap().is_some() {
            count += 1;
        }
        count
    };
    assert_eq!(kept(), 1500);
    let oplog = store.oplog();
    // Without a limit they go with their entries.
    assert_eq!(oplog.expire_pre_images(None, 0).unwrap(), (0, false));
    let trimmed = oplog.trim(i64::MAX).unwrap();
    assert!(trimmed.entries > 1100, "{trimmed:?}");
    assert_eq!(oplog.expire_pre_images(None, 0).unwrap(), (1000, true));
    let (removed, more) = oplog.expire_pre_images(None, 0).unwrap();
    assert!(removed > 100 && !more);
    let left = kept();
    let (first, _) = values(store)[0];
    let uuid = store.uuid_of(&c).unwrap();
    assert!(oplog.pre_image(first, 0, &uuid).unwrap().is_some());
    assert_eq!(left, values(store).len());
    // By age.
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_millis() as i64;
    assert_eq!(oplog.expire_pre_images(Some(60), now).unwrap(), (0, false));
    let (removed, _) = oplog.expire_pre_images(Some(60), now + 61_000).unwrap();
    assert_eq!(removed as usize, left);
    assert_eq!(kept(), 0);
    change(1);
    assert_eq!(kept(), 1);
}
