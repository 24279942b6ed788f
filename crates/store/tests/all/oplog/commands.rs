//! The entries of changes of the catalog.

use frond_bson::doc;
use frond_store::{IndexChange, IndexSelector};

use super::*;
use crate::common::ns;

fn uuid(store: &DocumentStore, name: &str) -> Vec<u8> {
    store.uuid_of(&ns(name)).unwrap().to_vec()
}

fn binary(uuid: &[u8]) -> Value<'_> {
    Value::Binary {
        subtype: 4,
        bytes: uuid,
    }
}

fn command(o: &Doc) -> DocBuf {
    doc! {"op": "c", "ns": "db.$cmd", "o": o}
}

#[test]
fn collections_are_created_changed_renamed_and_dropped() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let c = ns("db.c");
    let id_index = doc! {"v": 2, "key": {"_id": 1}, "name": "_id_"};
    let entries = added(store, || {
        let options = doc! {"validator": {"a": {"$gte": 0}}};
        store.create_collection(&c, &options).unwrap();
        // It exists.
        store.create_collection(&c, &options).unwrap();
    });
    assert_eq!(entries.len(), 1);
    let o = entries[0].get_doc("o").unwrap();
    assert_eq!(o.first(), Some(("create", Value::String("c"))));
    let validator = doc! {"a": {"$gte": 0}};
    assert_eq!(o.get_doc("validator"), Some(&*validator));
    assert_eq!(o.get_doc("idIndex"), Some(&*id_index));
    let all = documents(store);
    assert_eq!(all[1].get_binary("ui"), Some(&*uuid(store, "db.c")));

    let entries = added(store, || {
        let changes = doc! {"validationLevel": "moderate"};
        store.modify_collection(&c, &changes).unwrap();
        // Also what changes nothing has an entry.
        store.modify_collection(&c, &changes).unwrap();
    });
    let modified = command(&doc! {"collMod": "c", "validationLevel": "moderate"});
    assert_eq!(entries.len(), 2);
    assert_eq!(entries[0].get_doc("o"), modified.get_doc("o"));
    assert_eq!(entries[1].get_doc("o"), modified.get_doc("o"));
    let old = entries[0]
        .get_doc("o2")
        .unwrap()
        .get_doc("collectionOptions_old");
    assert!(old.unwrap().contains_key("validator"));

    insert(store, &ns("db.target"), &[doc! {"_id": 1}, doc! {"_id": 2}]);
    let (target, moved) = (uuid(store, "db.target"), uuid(store, "db.c"));
    let entries = added(store, || {
        store.rename_collection(&c, &ns("db.e"), false).unwrap();
        store
            .rename_collection(&ns("db.e"), &ns("db.target"), true)
            .unwrap();
    });
    let first = command(&doc! {"renameCollection": "db.c", "to": "db.e", "stayTemp": false});
    let mut second = command(&doc! {
        "renameCollection": "db.e", "to": "db.target", "stayTemp": false,
        "dropTarget": binary(&target),
    });
    second.push("o2", &doc! {"numRecords": 2_i64});
    assert_eq!(entries, [first, second]);
    assert_eq!(uuid(store, "db.target"), moved);

    insert(store, &ns("db.target"), &[doc! {"_id": 1, "a": 1}]);
    let entries = added(store, || {
        store.drop_collection(&ns("db.target")).unwrap();
    });
    let mut dropped = command(&doc! {"drop": "target"});
    dropped.push("o2", &doc! {"numRecords": 1_i64});
    assert_eq!(entries, [dropped]);
    replay::check(store);
}

#[test]
fn a_dropped_database_has_an_entry_behind_those_of_its_collections() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    insert(store, &ns("db.a"), &[doc! {"_id": 1}]);
    insert(store, &ns("db.b"), &[doc! {"_id": 1}]);
    insert(store, &ns("other.b"), &[doc! {"_id": 1}]);
    let entries = added(store, || {
        assert!(store.drop_database("db").unwrap());
        assert!(!store.drop_database("db").unwrap());
    });
    assert_eq!(entries.len(), 3);
    assert_eq!(entries[2], command(&doc! {"dropDatabase": 1}));
    replay::check(store);
}

#[test]
fn indexes_have_entries_when_they_are_ready() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let c = ns("db.c");
    let spec = doc! {"key": {"a": 1}};
    let entries = added(store, || {
        store.create_indexes(&c, &[&spec]).unwrap();
        store.create_indexes(&c, &[&spec]).unwrap();
    });
    assert_eq!(entries.len(), 2, "the collection and the index");
    let o = entries[1].get_doc("o").unwrap();
    let expected = doc! {"createIndexes": "c", "v": 2, "key": {"a": 1}, "name": "a_1"};
    assert_eq!(o, &expected);

    insert(store, &c, &[doc! {"_id": 1, "a": 1, "b": 1}]);
    let small = added(store, || {
        store
            .create_indexes(&c, &[&doc! {"key": {"b": 1}}])
            .unwrap();
    });
    let built = |entries: &[DocBuf], expected: &[&str]| {
        let [entry] = entries else {
            panic!("{entries:?}")
        };
        let o = entry.get_doc("o").unwrap();
        assert_eq!(o.first(), Some(("commitIndexBuild", Value::String("c"))));
        assert_eq!(o.get_binary("indexBuildUUID").map(<[u8]>::len), Some(16));
        let names: Vec<_> = (o.get_array("indexes").unwrap().values())
            .map(|spec| spec.as_doc().unwrap().get_str("name").unwrap().to_owned())
            .collect();
        assert_eq!(names, expected);
    };
    built(&small, &["b_1"]);
    let docs: Vec<DocBuf> = (10..4000).map(|n| doc! {"_id": n, "c": n}).collect();
    insert(store, &c, &docs);
    let specs = [doc! {"key": {"c": 1}}, doc! {"key": {"d": 1}}];
    let large = added(store, || {
        store.create_indexes(&c, &[&specs[0], &specs[1]]).unwrap();
    });
    built(&large, &["c_1", "d_1"]);

    let change = |name: &str| IndexChange {
        which: IndexSelector::Name(name.to_owned()),
        expire_after: None,
        hidden: None,
        prepare_unique: None,
        unique: false,
        dry_run: false,
    };
    let entries = added(store, || {
        let hidden = IndexChange {
            hidden: Some(true),
            ..change("c_1")
        };
        store.modify_index(&c, &hidden, &OpContext::new()).unwrap();
    });
    let o = doc! {"collMod": "c", "index": {"name": "c_1", "hidden": true}};
    assert_eq!(entries[0].get_doc("o"), Some(&*o));
    let entries = added(store, || {
        let prepare = IndexChange {
            prepare_unique: Some(true),
            ..change("a_1")
        };
        store.modify_index(&c, &prepare, &OpContext::new()).unwrap();
    });
    assert_eq!(entries.len(), 1);
    let gone = added(store, || {
        store
            .drop_indexes(&c, &IndexSelector::Name("b_1".to_owned()))
            .unwrap();
    });
    let o = doc! {"dropIndexes": "c", "index": "b_1"};
    assert_eq!(gone[0].get_doc("o"), Some(&*o));
    let o2 = gone[0].get_doc("o2").unwrap();
    assert_eq!(o2.get_str("name"), Some("b_1"));
    // A build that fails leaves no entry.
    let failed = added(store, || {
        let unique = doc! {"key": {"e": 1}, "unique": true};
        store.create_indexes(&c, &[&unique]).unwrap_err();
    });
    assert!(failed.is_empty(), "{failed:?}");
    replay::check(store);
}

#[test]
fn an_index_that_becomes_unique_has_one_entry() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let c = ns("db.c");
    let docs: Vec<DocBuf> = (0..10).map(|n| doc! {"_id": n, "a": n}).collect();
    insert(store, &c, &docs);
    let spec = doc! {"key": {"a": 1}, "prepareUnique": true};
    store.create_indexes(&c, &[&spec]).unwrap();
    let entries = added(store, || {
        let change = IndexChange {
            which: IndexSelector::Name("a_1".to_owned()),
            expire_after: None,
            hidden: None,
            prepare_unique: None,
            unique: true,
            dry_run: false,
        };
        store.modify_index(&c, &change, &OpContext::new()).unwrap();
    });
    assert_eq!(entries.len(), 1, "{entries:?}");
    let o = doc! {"collMod": "c", "index": {"name": "a_1", "unique": true}};
    assert_eq!(entries[0].get_doc("o"), Some(&*o));
    replay::check(store);
}

#[test]
fn views_are_documents_of_system_views() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let view = ns("db.v");
    let stored = doc! {"_id": "db.v", "viewOn": "c", "pipeline": []};
    let entries = added(store, || {
        let options = doc! {"viewOn": "c", "pipeline": []};
        store.create_collection(&view, &options).unwrap();
        store
            .modify_collection(&view, &doc! {"viewOn": "d"})
            .unwrap();
        store.drop_collection(&view).unwrap();
    });
    let changed = doc! {"_id": "db.v", "viewOn": "d", "pipeline": []};
    let id = doc! {"_id": "db.v"};
    assert_eq!(
        entries[0].get_doc("o").unwrap().get_str("create"),
        Some("system.views")
    );
    let expected = [
        doc! {"op": "i", "ns": "db.system.views", "o": &stored, "o2": &id},
        doc! {"op": "u", "ns": "db.system.views", "o": &changed, "o2": &id},
        doc! {"op": "d", "ns": "db.system.views", "o": &id},
    ];
    assert_eq!(entries[1..], expected);
    replay::check(store);
}

#[test]
fn a_conversion_to_a_capped_collection_is_a_copy_and_a_rename() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let c = ns("db.c");
    let docs: Vec<DocBuf> = (0..10).map(|n| doc! {"_id": n}).collect();
    insert(store, &c, &docs);
    store
        .convert_to_capped(&c, 1 << 20, &OpContext::new())
        .unwrap();
    replay::check(store);
    let last = documents(store).pop().unwrap();
    let o = last.get_doc("o").unwrap();
    assert_eq!(o.get_str("to"), Some("db.c"));
    assert!(o.contains_key("dropTarget"));
}
