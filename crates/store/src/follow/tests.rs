//! A primary and a standby in one process: what one writes, the other applies, and both are equal in the end.

use frond_bson::{Doc, DocBuf, Value, doc};

use super::*;
use crate::catalog::IndexSelector;
use crate::{
    DeleteRequest, Durability, EngineOptions, FindRequest, InsertOptions, Namespace, OpContext,
    OplogSettings, StoreOptions, UpdateRequest,
};

pub(crate) const SETTINGS: OplogSettings = OplogSettings {
    bytes_max: 64 << 20,
    min_retention_hours: 0.0,
};

/// A primary with an oplog, and a copy of its first state that follows it.
struct Pair {
    _folders: (tempfile::TempDir, tempfile::TempDir),
    primary: DocumentStore,
    standby: DocumentStore,
}

fn open(path: &std::path::Path, follows: bool) -> DocumentStore {
    let options = StoreOptions::default().following(follows);
    DocumentStore::open_engine(EngineOptions::new(path), options).unwrap()
}

pub(crate) fn copy_files(from: &std::path::Path, to: &std::path::Path) {
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        if file.file_type().unwrap().is_file() {
            std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
    }
}

impl Pair {
    fn new(prepare: impl FnOnce(&DocumentStore)) -> Pair {
        let folders = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let primary = open(folders.0.path(), false);
        primary.turn_on_oplog(SETTINGS).unwrap();
        prepare(&primary);
        primary.close().unwrap();
        drop(primary);
        copy_files(folders.0.path(), folders.1.path());
        Pair {
            primary: open(folders.0.path(), false),
            standby: open(folders.1.path(), true),
            _folders: folders,
        }
    }

    /// Applies what the primary has written, in batches of this size.
    fn follow(&self, batch: usize) -> Applied {
        let mut follower = self.standby.follower().unwrap();
        let entries = entries(&self.primary, follower.position());
        let mut all = Applied::default();
        for part in entries.chunks(batch) {
            let part: Vec<&Doc> = part.iter().map(|entry| &**entry).collect();
            let applied = follower.apply(&part).unwrap();
            all.entries += applied.entries;
            all.commits += applied.commits;
        }
        all
    }

    /// Both have the same collections, documents, indexes and entries.
    fn check(&self) {
        let (left, right) = (shown(&self.primary), shown(&self.standby));
        assert_eq!(left.len(), right.len(), "{left:#?}\n{right:#?}");
        for (left, right) in left.iter().zip(&right) {
            assert_eq!(left, right);
        }
        let start = Timestamp::default();
        assert_eq!(entries(&self.primary, start), entries(&self.standby, start));
        for info in self.standby.list_databases().unwrap() {
            for collection in self.standby.catalog().view().database(&info.name) {
                let report = self.standby.verify(&collection.ns).unwrap();
                assert!(
                    report.errors.is_empty(),
                    "{}: {:?}",
                    collection.ns,
                    report.errors
                );
            }
        }
    }
}

pub(crate) fn entries(store: &DocumentStore, after: Timestamp) -> Vec<DocBuf> {
    store.flush_log().unwrap();
    let filter = doc! {"ts": {"$gt": after}};
    let request = FindRequest {
        filter: Some(&filter),
        ..FindRequest::default()
    };
    all(store, "local.oplog.rs", &request)
}

pub(crate) fn all(store: &DocumentStore, ns: &str, request: &FindRequest<'_>) -> Vec<DocBuf> {
    let ns = Namespace::parse(ns).unwrap();
    let mut cursor = store.find(&ns, request, &OpContext::new()).unwrap();
    let mut found = Vec::new();
    while let Some(doc) = cursor.next().unwrap() {
        found.push(doc);
    }
    found
}

pub(crate) fn shown(store: &DocumentStore) -> Vec<DocBuf> {
    let mut out = Vec::new();
    for database in store.list_databases().unwrap() {
        if database.name == "local" {
            continue;
        }
        for collection in store.catalog().view().database(&database.name) {
            let ns = &collection.ns;
            let mut one = doc! {"ns": ns.as_str(), "options": &collection.options, "uuid": frond_bson::hex(&collection.uuid).as_str()};
            one.push("count", collection.counts().documents);
            one.push("bytes", collection.counts().bytes);
            one.push_array("indexes", |out| {
                for index in store.list_indexes(ns).unwrap() {
                    out.push(&*index);
                }
            });
            let sort = doc! {"_id": 1};
            let request = FindRequest {
                sort: (!collection.is_by_record()).then_some(&*sort),
                ..FindRequest::default()
            };
            one.push_array("documents", |out| {
                for document in all(store, ns.as_str(), &request) {
                    out.push(&*document);
                }
            });
            out.push(one);
        }
    }
    out
}

pub(crate) fn ns(name: &str) -> Namespace {
    Namespace::parse(name).unwrap()
}

pub(crate) fn insert(store: &DocumentStore, name: &str, docs: &[DocBuf]) {
    let docs: Vec<&Doc> = docs.iter().map(|doc| &**doc).collect();
    let options = InsertOptions {
        ordered: true,
        durability: Durability::Logged,
        bypass_validation: false,
        keep_empty_timestamps: false,
    };
    let outcome = store.insert(&ns(name), &docs, options).unwrap();
    assert_eq!(outcome.inserted, docs.len(), "{:?}", outcome.errors);
}

pub(crate) fn update(store: &DocumentStore, name: &str, filter: &Doc, how: &Doc) -> u64 {
    let request = UpdateRequest {
        multi: how.first().is_some_and(|(name, _)| name.starts_with('$')),
        ..UpdateRequest::new(filter, Value::Document(how))
    };
    let (how, context) = (Durability::Logged, OpContext::new());
    store
        .update(&ns(name), &request, how, &context)
        .unwrap()
        .modified
}

fn delete(store: &DocumentStore, name: &str, filter: &Doc) -> u64 {
    let request = DeleteRequest {
        filter,
        limit_one: false,
        hint: None,
        variables: None,
        collation: None,
    };
    let (how, context) = (Durability::Logged, OpContext::new());
    store.delete(&ns(name), &request, how, &context).unwrap()
}

pub(crate) fn numbered(range: std::ops::Range<i32>) -> Vec<DocBuf> {
    range
        .map(|id| doc! {"_id": id, "a": id % 7, "u": id, "tags": [id, id + 1], "in": {"x": id, "y": [1, 2]}})
        .collect()
}

/// The work of a primary in the tests: every kind of entry.
pub(crate) fn write_everything(store: &DocumentStore) {
    let options = doc! {"changeStreamPreAndPostImages": {"enabled": true}};
    store
        .create_collection(&ns("test.images"), &options)
        .unwrap();
    let unique = doc! {"key": {"u": 1}, "name": "u_1", "unique": true};
    let multikey = doc! {"key": {"tags": 1, "a": -1}, "name": "tags"};
    store.create_indexes(&ns("test.c"), &[&unique]).unwrap();
    insert(store, "test.c", &numbered(0..2500));
    store.create_indexes(&ns("test.c"), &[&multikey]).unwrap();
    insert(store, "test.images", &numbered(0..10));
    for name in ["test.c", "test.images"] {
        update(
            store,
            name,
            &doc! {"a": 3},
            &doc! {"$set": {"in.x": -1}, "$push": {"tags": 5}, "$unset": {"in.y": 1}},
        );
        update(
            store,
            name,
            &doc! {"_id": 4},
            &doc! {"_id": 4, "whole": true, "u": -4},
        );
        delete(store, name, &doc! {"a": 5});
    }
    // A key that moves from one document to another.
    update(
        store,
        "test.c",
        &doc! {"_id": 8},
        &doc! {"$set": {"u": -100}},
    );
    update(store, "test.c", &doc! {"_id": 9}, &doc! {"$set": {"u": 8}});
    for _ in 0..30 {
        update(store, "test.c", &doc! {"_id": 1}, &doc! {"$inc": {"n": 1}});
    }
    // A large document, stored in parts.
    let mut large = doc! {"_id": "large"};
    for field in 0..3000 {
        large.push(&format!("field{field}"), "x".repeat(30).as_str());
    }
    insert(store, "test.large", &[large]);
    update(
        store,
        "test.large",
        &doc! {"_id": "large"},
        &doc! {"$set": {"field77": "other", "new": 1}},
    );
    // Other orders, other comparisons.
    let capped = doc! {"capped": true, "size": 4096, "max": 20};
    store
        .create_collection(&ns("test.capped"), &capped)
        .unwrap();
    for at in 0..10 {
        insert(store, "test.capped", &numbered(at * 5..at * 5 + 5));
    }
    update(
        store,
        "test.capped",
        &doc! {"_id": 45},
        &doc! {"$set": {"a": 99}},
    );
    let series = doc! {"timeseries": {"timeField": "t"}};
    store
        .create_collection(&ns("test.series"), &series)
        .unwrap();
    let measured = |id: i32| doc! {"_id": id, "t": Value::DateTime(i64::from(id)), "v": id};
    insert(
        store,
        "test.series",
        &(0..20).map(measured).collect::<Vec<_>>(),
    );
    let collated = doc! {"collation": {"locale": "en", "strength": 2}};
    store
        .create_collection(&ns("test.collated"), &collated)
        .unwrap();
    insert(
        store,
        "test.collated",
        &[doc! {"_id": "A", "s": "x"}, doc! {"_id": "b", "s": "Y"}],
    );
    update(
        store,
        "test.collated",
        &doc! {"_id": "a"},
        &doc! {"$set": {"s": "Z"}},
    );
    let ordered = doc! {"naturalOrder": "insertion"};
    store
        .create_collection(&ns("test.ordered"), &ordered)
        .unwrap();
    insert(
        store,
        "test.ordered",
        &[doc! {"_id": 3}, doc! {"_id": 1}, doc! {"_id": 2}],
    );
    update(
        store,
        "test.ordered",
        &doc! {"_id": 1},
        &doc! {"$set": {"s": "Z"}},
    );
    delete(store, "test.ordered", &doc! {"_id": 3});
    // Changes of the catalog.
    store
        .drop_indexes(&ns("test.c"), &IndexSelector::Name("tags".into()))
        .unwrap();
    store
        .modify_collection(
            &ns("test.c"),
            &doc! {"validator": {"_id": {"$exists": true}}},
        )
        .unwrap();
    let change = crate::IndexChange {
        which: IndexSelector::Name("u_1".into()),
        expire_after: None,
        hidden: Some(true),
        prepare_unique: None,
        unique: false,
        dry_run: false,
    };
    store
        .modify_index(&ns("test.c"), &change, &OpContext::new())
        .unwrap();
    insert(store, "test.old", &numbered(0..5));
    insert(store, "test.target", &numbered(5..8));
    store
        .rename_collection(&ns("test.old"), &ns("test.target"), true)
        .unwrap();
    update(
        store,
        "test.target",
        &doc! {"_id": 2},
        &doc! {"$set": {"after": "rename"}},
    );
    insert(store, "test.gone", &numbered(0..5));
    store.drop_collection(&ns("test.gone")).unwrap();
    insert(store, "other.c", &numbered(0..5));
    store.drop_database("other").unwrap();
    let view = doc! {"viewOn": "c", "pipeline": [{"$match": {"a": 1}}]};
    store.create_collection(&ns("test.view"), &view).unwrap();
    store
        .modify_collection(&ns("test.view"), &doc! {"viewOn": "target", "pipeline": []})
        .unwrap();
    store.create_collection(&ns("test.view2"), &view).unwrap();
    store.drop_collection(&ns("test.view2")).unwrap();
    store
        .convert_to_capped(&ns("test.target"), 8192, &OpContext::new())
        .unwrap();
    store.oplog().append_noop(&doc! {"msg": "a note"}).unwrap();
    insert(
        store,
        "admin.system.users",
        &[doc! {"_id": "test.u", "user": "u", "db": "test"}],
    );
    // Transactions, with new collections, and documents that are changed twice.
    let transaction = store.begin();
    let inside = store.in_transaction(&transaction);
    insert(
        &inside,
        "test.c",
        &[doc! {"_id": "t1", "u": "t1"}, doc! {"_id": "t2", "u": "t2"}],
    );
    update(
        &inside,
        "test.c",
        &doc! {"_id": "t1"},
        &doc! {"$set": {"a": 1}},
    );
    update(
        &inside,
        "test.c",
        &doc! {"_id": "t1"},
        &doc! {"$set": {"a": 2}},
    );
    delete(&inside, "test.c", &doc! {"_id": "t2"});
    update(
        &inside,
        "test.images",
        &doc! {"_id": 1},
        &doc! {"$set": {"in_transaction": true}},
    );
    insert(&inside, "test.fresh", &numbered(0..3));
    transaction.commit(Durability::Logged).unwrap();
}

#[test]
fn every_kind_of_entry_is_applied() {
    for batch in [1, 7, 100_000] {
        let pair = Pair::new(|primary| insert(primary, "test.before", &numbered(0..50)));
        write_everything(&pair.primary);
        let applied = pair.follow(batch);
        pair.check();
        if batch > 1 {
            assert!(applied.commits < applied.entries / 2, "{applied:?}");
        }
        // Documents before their changes are there, too.
        let (primary, standby) = (pair.primary.oplog(), pair.standby.oplog());
        let images = pair
            .standby
            .catalog()
            .collection(&ns("test.images"))
            .unwrap();
        let mut compared = 0;
        for entry in entries(&pair.primary, Timestamp::default()) {
            let Some(Value::Timestamp(ts)) = entry.get("ts") else {
                continue;
            };
            for position in 0..8 {
                let of = |oplog: &crate::Oplog| {
                    oplog
                        .pre_image(ts.to_u64(), position, &images.uuid)
                        .unwrap()
                };
                compared += i32::from(of(primary).is_some());
                assert_eq!(of(primary), of(standby), "{entry:?} {position}");
            }
        }
        assert!(compared >= 4, "{compared}");
    }
}

#[test]
fn a_transaction_in_several_entries_is_one_commit() {
    let pair = Pair::new(|primary| insert(primary, "test.c", &numbered(0..5)));
    let transaction = pair.primary.begin();
    let inside = pair.primary.in_transaction(&transaction);
    let text = "x".repeat(1 << 20);
    for id in 100..140 {
        insert(
            &inside,
            "test.c",
            &[doc! {"_id": id, "text": text.as_str()}],
        );
    }
    transaction.commit(Durability::Logged).unwrap();
    insert(&pair.primary, "test.c", &numbered(200..205));
    let mut follower = pair.standby.follower().unwrap();
    let before = follower.position();
    let all = entries(&pair.primary, before);
    assert!(all.len() > 7, "several entries: {}", all.len());
    follower.apply(&[&all[0]]).unwrap();
    assert_eq!(follower.position(), before, "it waits for the rest");
    assert!(follower.waiting_bytes() > 1 << 20);
    // The connection is lost, and the entries are read again.
    follower.restart();
    for entry in &all {
        follower.apply(&[entry]).unwrap();
    }
    pair.check();
}

#[test]
fn entries_that_are_read_again_are_left_out() {
    let pair = Pair::new(|_| {});
    insert(&pair.primary, "test.c", &numbered(0..20));
    pair.follow(7);
    let mut follower = pair.standby.follower().unwrap();
    let again = entries(&pair.primary, Timestamp::default());
    let again: Vec<&Doc> = again.iter().map(|entry| &**entry).collect();
    assert_eq!(follower.apply(&again).unwrap(), Applied::default());
    pair.check();
}

#[test]
fn a_standby_that_differs_stops() {
    let pair = Pair::new(|_| {});
    insert(&pair.primary, "test.c", &numbered(0..5));
    let all = entries(&pair.primary, Timestamp::default());
    let of = |entry: &Doc, op: &str, o: DocBuf| {
        let mut other = DocBuf::new();
        for (name, value) in entry.iter() {
            match name {
                "op" => other.push(name, op),
                "o" => other.push(name, &*o),
                _ => other.push(name, value),
            }
        }
        other
    };
    let last = all.last().unwrap();
    pair.follow(100);
    // As if more had happened on the primary.
    let ts = Value::Timestamp(Timestamp::from_u64(
        pair.primary.oplog().last().to_u64() + 1,
    ));
    let later = |entry: DocBuf| {
        let mut other = DocBuf::new();
        for (name, value) in entry.iter() {
            other.push(name, if name == "ts" { ts } else { value });
        }
        other
    };
    let cases = [
        (of(last, "i", doc! {"_id": 1}), 301),
        (of(last, "d", doc! {"_id": 77}), 301),
        (of(last, "c", doc! {"cloneCollection": "c"}), 238),
        (of(last, "c", doc! {"collMod": "c", "unknown": 1}), 40415),
        (of(last, "x", doc! {"_id": 1}), 301),
    ];
    for (entry, code) in cases {
        let entry = later(entry);
        let mut follower = pair.standby.follower().unwrap();
        let before = follower.position();
        let error = follower.apply(&[&entry]).unwrap_err();
        assert_eq!(error.code().code(), code, "{entry:?}: {error}");
        assert_eq!(follower.position(), before);
    }
    pair.check();
}

#[test]
fn a_standby_continues_where_it_stopped_and_leads_at_last() {
    let pair = Pair::new(|_| {});
    insert(&pair.primary, "test.c", &numbered(0..500));
    pair.follow(100);
    let Pair {
        _folders: folders,
        primary,
        standby,
    } = pair;
    drop(standby);
    let standby = open(folders.1.path(), true);
    let pair = Pair {
        _folders: folders,
        primary,
        standby,
    };
    insert(&pair.primary, "test.c", &numbered(500..900));
    pair.follow(1000);
    pair.check();
    let last = pair.standby.oplog().last();
    pair.standby.lead().unwrap();
    assert!(!pair.standby.is_following());
    insert(&pair.standby, "test.c", &numbered(1000..1010));
    let own = entries(&pair.standby, last);
    assert_eq!(own.len(), 10);
    assert!(pair.standby.follower().is_err());
}
