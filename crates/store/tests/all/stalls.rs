//! No change of the catalog holds up others, however long it takes: it is stopped in the middle, and the others go on.
#![allow(clippy::unwrap_used)]

use crate::common;

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use common::disk::MemDisk;
use common::waiting::PATIENCE;
use common::{Fixture, INSERT, ns, open_with};
use frond_bson::{Doc, DocBuf, Value, array, doc};
use frond_error::ErrorCode;
use frond_store::keyspace::{CATALOG_TREE, Direction, WriteSet};
use frond_store::{
    ActsAtPoints, AggregateRequest, DeleteRequest, DocumentStore, Durability, EngineOptions,
    FindRequest, IndexChange, IndexSelector, OpContext, UpdateRequest, at_points,
};
use rand::SeedableRng;
use rand::rngs::StdRng;

/// More than fit into one commit.
const DOCUMENTS: i32 = 3000;

fn find(store: &DocumentStore, filter: &Doc) -> Vec<DocBuf> {
    let request = FindRequest {
        filter: Some(filter),
        ..FindRequest::default()
    };
    let mut cursor = store
        .find(&ns("db.c"), &request, &OpContext::new())
        .unwrap();
    let mut found = Vec::new();
    while let Some(doc) = cursor.next().unwrap() {
        found.push(doc);
    }
    found
}

fn insert(store: &DocumentStore, name: &str, doc: &Doc) {
    let outcome = store.insert(&ns(name), &[doc], INSERT).unwrap();
    assert_eq!(outcome.inserted, 1, "{:?}", outcome.errors);
}

fn update(store: &DocumentStore, filter: &Doc, change: &Doc) {
    let request = UpdateRequest::new(filter, Value::Document(change));
    let context = OpContext::new();
    let updated = store.update(&ns("db.c"), &request, Durability::Logged, &context);
    assert_eq!(updated.unwrap().matched, 1);
}

fn delete(store: &DocumentStore, filter: &Doc) {
    let request = DeleteRequest {
        filter,
        limit_one: true,
        hint: None,
        variables: None,
        collation: None,
    };
    let context = OpContext::new();
    let deleted = store.delete(&ns("db.c"), &request, Durability::Logged, &context);
    assert_eq!(deleted.unwrap(), 1);
}

/// A collection `db.c` with `_id` and `a` from 0 on, and an index on `a` that prepares to be unique.
fn filled(store: &DocumentStore) {
    let docs: Vec<DocBuf> = (0..DOCUMENTS).map(|n| doc! {"_id": n, "a": n}).collect();
    let docs: Vec<&Doc> = docs.iter().map(|doc| &**doc).collect();
    store.insert(&ns("db.c"), &docs, INSERT).unwrap();
    let index = doc! {"key": {"a": 1}, "name": "a_1", "prepareUnique": true};
    store.create_indexes(&ns("db.c"), &[&index]).unwrap();
}

/// Counts how often a point was reached.
struct Reached {
    times: Arc<AtomicUsize>,
    _act: ActsAtPoints,
}

impl Reached {
    fn times(&self) -> usize {
        self.times.load(Ordering::SeqCst)
    }
}

/// Lets another thread act whenever this one reaches a point. It fails if that takes long: then it waits for this
/// thread.
fn others_go_on_at(
    point: &'static str,
    store: &DocumentStore,
    act: fn(&DocumentStore, usize),
) -> Reached {
    let times = Arc::new(AtomicUsize::new(0));
    let (store, counter) = (store.clone(), times.clone());
    let act = at_points(move |name| {
        if name != point {
            return;
        }
        let number = counter.fetch_add(1, Ordering::SeqCst);
        let (store, (done, waits)) = (store.clone(), mpsc::channel());
        thread::spawn(move || {
            act(&store, number);
            done.send(()).unwrap();
        });
        let outcome = waits.recv_timeout(PATIENCE);
        assert!(outcome.is_ok(), "at {name:?} others are held up, or fail");
    });
    Reached { times, _act: act }
}

/// Finds, writes, and other changes of the catalog. `number` is the first free `_id`.
fn everything(store: &DocumentStore, number: usize) {
    let n = DOCUMENTS + number as i32;
    assert_eq!(find(store, &doc! {"a": 5}).len(), 1);
    insert(store, "db.c", &doc! {"_id": n, "a": n});
    update(store, &doc! {"_id": n}, &doc! {"$set": {"b": 1}});
    update(
        store,
        &doc! {"_id": 10 + number as i32},
        &doc! {"$set": {"b": 2}},
    );
    delete(store, &doc! {"_id": 100 + number as i32});
    let new = format!("db.new{number}");
    insert(store, &new, &doc! {"_id": 1});
    store
        .create_indexes(&ns(&new), &[&doc! {"key": {"x": 1}}])
        .unwrap();
    store
        .create_collection(&ns("other.view"), &doc! {"viewOn": "c"})
        .unwrap();
    store
        .rename_collection(&ns(&new), &ns("db.renamed"), true)
        .unwrap();
    store.drop_collection(&ns("db.renamed")).unwrap();
    store.drop_collection(&ns("other.view")).unwrap();
}

fn to_unique() -> IndexChange {
    IndexChange {
        which: IndexSelector::Name("a_1".to_owned()),
        expire_after: None,
        hidden: None,
        prepare_unique: None,
        unique: true,
        dry_run: false,
    }
}

/// The collection after `everything`, and its indexes agree with it.
fn check(store: &DocumentStore, times: usize) {
    let report = store.verify(&ns("db.c")).unwrap();
    assert_eq!(report.errors, Vec::<String>::new());
    assert_eq!(report.documents, DOCUMENTS as u64);
    for number in 0..times as i32 {
        let n = DOCUMENTS + number;
        let new = doc! {"_id": n, "a": n, "b": 1};
        assert_eq!(find(store, &doc! {"a": n}), [new]);
        assert_eq!(find(store, &doc! {"_id": 10 + number, "b": 2}).len(), 1);
        assert_eq!(find(store, &doc! {"a": 100 + number}), Vec::<DocBuf>::new());
    }
}

/// `collMod` read and wrote the whole index under the locks of the catalog and of the collection.
#[test]
fn coll_mod_to_unique_holds_nobody_up() {
    let f = Fixture::new();
    filled(&f.store);
    let reached = others_go_on_at("the entries of an index are loaded", &f.store, everything);
    let changed = f
        .store
        .modify_index(&ns("db.c"), &to_unique(), &OpContext::new());
    assert!(changed.unwrap().became_unique);
    assert_eq!(reached.times(), 1);
    check(&f.store, 1);
    let specs = f.store.list_indexes(&ns("db.c")).unwrap();
    assert_eq!(specs.len(), 2);
    assert_eq!(specs[1].get_bool("unique"), Some(true));
    assert!(!specs[1].contains_key("prepareUnique"));
    let taken = f.insert(&ns("db.c"), &[doc! {"_id": -1, "a": 7}]);
    assert_eq!(taken.errors[0].error.code(), ErrorCode::DuplicateKey);
    let f = f.reopen();
    check(&f.store, 1);
    assert_eq!(f.store.list_indexes(&ns("db.c")).unwrap(), specs);
}

#[test]
fn an_index_that_is_dropped_or_changed_is_not_made_unique() {
    let f = Fixture::new();
    filled(&f.store);
    let reached = others_go_on_at(
        "the entries of an index are loaded",
        &f.store,
        |store, number| {
            assert_eq!(number, 0);
            let mut change = to_unique();
            for unique in [true, false] {
                change.unique = unique;
                change.hidden = Some(true);
                let changed = store.modify_index(&ns("db.c"), &change, &OpContext::new());
                let refused = changed.unwrap_err();
                assert_eq!(refused.code(), ErrorCode::IndexBuildAlreadyInProgress);
            }
            let key = IndexSelector::Key(doc! {"a": 1});
            store.drop_indexes(&ns("db.c"), &key).unwrap();
        },
    );
    let changed = f
        .store
        .modify_index(&ns("db.c"), &to_unique(), &OpContext::new());
    assert_eq!(changed.unwrap_err().code(), ErrorCode::IndexBuildAborted);
    drop(reached);
    assert_eq!(f.store.list_indexes(&ns("db.c")).unwrap().len(), 1);
    insert(&f.store, "db.c", &doc! {"_id": -1, "a": 7});
    assert_eq!(
        f.store.verify(&ns("db.c")).unwrap().errors,
        Vec::<String>::new()
    );
}

/// `convertToCapped` copied the collection under these locks.
#[test]
fn convert_to_capped_holds_nobody_up() {
    let f = Fixture::new();
    filled(&f.store);
    let reached = others_go_on_at("a part of a collection is copied", &f.store, everything);
    let context = OpContext::new();
    let converted = f.store.convert_to_capped(&ns("db.c"), 1 << 20, &context);
    converted.unwrap();
    let times = reached.times();
    assert!(times >= 3, "{times}");
    check(&f.store, times);
    let all = find(&f.store, Doc::empty());
    let ids: Vec<i32> = all.iter().filter_map(|doc| doc.get_i32("_id")).collect();
    assert!(ids.is_sorted(), "the order of insertion stays");
    let f = f.reopen();
    check(&f.store, times);
}

#[test]
fn documents_that_are_too_old_do_not_come_back_into_a_capped_collection() {
    let f = Fixture::new();
    filled(&f.store);
    let reached = others_go_on_at(
        "a part of a collection is copied",
        &f.store,
        |store, number| {
            if number == 2 {
                update(store, &doc! {"_id": 10}, &doc! {"$set": {"b": 2}});
                update(
                    store,
                    &doc! {"_id": DOCUMENTS - 1},
                    &doc! {"$set": {"b": 2}},
                );
                let refused = store.convert_to_capped(&ns("db.c"), 4096, &OpContext::new());
                assert_eq!(refused.unwrap_err().code(), ErrorCode::Location(117));
            }
        },
    );
    let context = OpContext::new();
    f.store
        .convert_to_capped(&ns("db.c"), 4096, &context)
        .unwrap();
    assert_eq!(find(&f.store, &doc! {"_id": 10}), Vec::<DocBuf>::new());
    assert_eq!(find(&f.store, &doc! {"b": 2}).len(), 1);
    assert!(reached.times() >= 3);
}

/// Changes more documents than the notes that are left for the end, so that there is another round.
fn another_round(store: &DocumentStore) {
    for id in 200..300 {
        update(store, &doc! {"_id": id}, &doc! {"$inc": {"n": 1}});
    }
}

/// The copy took a document for one that was too old, because the first part of the copy had it, although it had removed
/// it itself: a client had deleted it and inserted it again. The acknowledged insertion was lost.
#[test]
fn a_document_that_is_deleted_and_inserted_again_in_different_rounds_is_kept() {
    let f = Fixture::new();
    filled(&f.store);
    let store = f.store.clone();
    let rounds = Arc::new(AtomicUsize::new(0));
    let reached = rounds.clone();
    let act = at_points(move |name| {
        let number = match name {
            "a part of a collection is copied"
                if find(&store, &doc! {"_id": 10, "a": 10}).is_empty() =>
            {
                return;
            }
            "a part of a collection is copied" => 0,
            "a round of changes is copied" => reached.fetch_add(1, Ordering::SeqCst) + 1,
            _ => return,
        };
        match number {
            0 | 2 => delete(&store, &doc! {"_id": 10}),
            1 | 3 => insert(&store, "db.c", &doc! {"_id": 10, "again": number as i32}),
            _ => return,
        }
        another_round(&store);
    });
    let context = OpContext::new();
    let converted = f.store.convert_to_capped(&ns("db.c"), 1 << 20, &context);
    converted.unwrap();
    drop(act);
    assert_eq!(rounds.load(Ordering::SeqCst), 4);
    let again = doc! {"_id": 10, "again": 3};
    assert_eq!(find(&f.store, &doc! {"_id": 10}), [again]);
    assert_eq!(find(&f.store, Doc::empty()).len(), DOCUMENTS as usize);
    let report = f.store.verify(&ns("db.c")).unwrap();
    assert_eq!(report.errors, Vec::<String>::new());
}

fn temporary(store: &DocumentStore) -> Option<frond_store::Namespace> {
    let all = store.list_collections("db").unwrap();
    let mut names = all.into_iter().map(|one| one.name);
    let name = names.find(|name| name.starts_with("tmp"))?;
    Some(ns(&format!("db.{name}")))
}

/// The next part went into a new collection of the same name, which was not capped, and that one replaced the
/// collection: the first part was lost. So it was with the result of `$out`.
#[test]
fn a_command_that_copies_fails_when_its_temporary_collection_is_dropped() {
    for point in [
        "a part of a collection is copied",
        "a part of a result is written",
    ] {
        let f = Fixture::new();
        filled(&f.store);
        let store = f.store.clone();
        let mut is_first = true;
        let act = at_points(move |name| {
            if name == point && std::mem::take(&mut is_first) {
                store.drop_collection(&temporary(&store).unwrap()).unwrap();
            }
        });
        let context = OpContext::new();
        let done = match point {
            "a part of a collection is copied" => {
                f.store.convert_to_capped(&ns("db.c"), 1 << 20, &context)
            }
            _ => {
                let request = AggregateRequest {
                    collation: None,
                    pipeline: &array![{"$set": {"b": 1}}, {"$out": "c"}],
                    hint: None,
                    variables: None,
                    durability: Durability::Logged,
                    bypass_validation: false,
                    allow_disk_use: None,
                };
                let cursor = f
                    .store
                    .aggregate("db", Some(&ns("db.c")), &request, &context);
                cursor.and_then(|mut cursor| cursor.next().map(drop))
            }
        };
        assert_eq!(
            done.unwrap_err().code(),
            ErrorCode::NamespaceNotFound,
            "{point}"
        );
        drop(act);
        assert_eq!(temporary(&f.store), None);
        assert_eq!(find(&f.store, Doc::empty()).len(), DOCUMENTS as usize);
        assert_eq!(find(&f.store, &doc! {"b": 1}).len(), 0);
        let report = f.store.verify(&ns("db.c")).unwrap();
        assert_eq!(report.errors, Vec::<String>::new());
    }
}

/// The copy kept the writers of the collection waiting while it created the temporary collection again, for which it
/// waited for `dropDatabase`, which waited for these writers.
#[test]
fn drop_database_and_convert_to_capped_do_not_wait_for_each_other() {
    // Later in the order of names than the temporary collection.
    let source = ns("db.z");
    let f = Fixture::new();
    filled(&f.store);
    f.store
        .rename_collection(&ns("db.c"), &source, false)
        .unwrap();
    let (store, (done, waits)) = (f.store.clone(), mpsc::channel());
    thread::spawn(move || {
        let (running, mut rounds, mut next) = (store.clone(), 0, DOCUMENTS);
        let mut dropper = None;
        let _act = at_points(move |name| match name {
            "a part of a collection is copied" | "a round of changes is copied" => {
                rounds += usize::from(name == "a round of changes is copied");
                for _ in 0..100 {
                    let outcome =
                        running.insert(&ns("db.z"), &[&doc! {"_id": next, "a": next}], INSERT);
                    assert_eq!(outcome.unwrap().inserted, 1);
                    next += 1;
                }
            }
            // From this round on the copy keeps the writers waiting.
            "a document is about to be copied again" if rounds == 3 && dropper.is_none() => {
                let store = running.clone();
                dropper = Some(thread::spawn(move || store.drop_database("db").unwrap()));
                while temporary(&running).is_some() {
                    thread::yield_now();
                }
                // Now it waits for the writers.
                thread::sleep(Duration::from_millis(50));
            }
            _ => {}
        });
        let converted = store.convert_to_capped(&ns("db.z"), 1 << 20, &OpContext::new());
        done.send(converted.map_err(|error| error.code())).unwrap();
    });
    let converted = waits.recv_timeout(PATIENCE);
    let converted = converted.expect("they wait for each other");
    assert_eq!(converted, Err(ErrorCode::NamespaceNotFound));
    // The other thread may still be at it.
    f.store.drop_database("db").unwrap();
    assert!(f.store.list_collections("db").unwrap().is_empty());
}

#[test]
fn create_indexes_and_re_index_hold_nobody_up() {
    let f = Fixture::new();
    filled(&f.store);
    let reached = others_go_on_at("the entries of an index are loaded", &f.store, everything);
    let indexes = [
        &*doc! {"key": {"b": 1}},
        &doc! {"key": {"a": -1}, "unique": true},
    ];
    f.store.create_indexes(&ns("db.c"), &indexes).unwrap();
    f.store
        .rebuild_indexes(&ns("db.c"), &OpContext::new())
        .unwrap();
    assert_eq!(reached.times(), 2);
    check(&f.store, 2);
}

/// A reader looked for an unchanged definition again and again until the change was committed, which waits for room in
/// memory, and for larger commits.
#[test]
fn readers_do_not_wait_for_the_commit_of_a_change_of_the_catalog() {
    let f = Fixture::new();
    filled(&f.store);
    let point = "a change of a collection is about to be committed";
    let reached = others_go_on_at(point, &f.store, |store, number| {
        assert_eq!(find(store, &doc! {"a": 5}).len(), 1);
        insert(store, "db.other", &doc! {"_id": number as i32});
    });
    insert(&f.store, "db.other", &doc! {"_id": -1});
    let c = ns("db.c");
    f.store
        .create_indexes(&c, &[&doc! {"key": {"b": 1}}])
        .unwrap();
    f.store
        .modify_collection(&c, &doc! {"validationLevel": "off"})
        .unwrap();
    f.store
        .drop_indexes(&c, &IndexSelector::Name("b_1".to_owned()))
        .unwrap();
    f.store.drop_collection(&c).unwrap();
    assert!(reached.times() >= 5);
}

/// Entries of the catalog for trees that commands need while they run.
fn working_trees(store: &DocumentStore) -> usize {
    let (low, high) = (Bound::Included(&[6][..]), Bound::Excluded(&[7][..]));
    let snapshot = store.engine().snapshot();
    let mut cursor = snapshot
        .cursor(CATALOG_TREE, low, high, Direction::Forward)
        .unwrap();
    let mut count = 0;
    while cursor.next().unwrap().is_some() {
        count += 1;
    }
    count
}

/// After a crash the trees of an interrupted `collMod` stayed for ever: no catalog named them.
#[test]
fn a_crash_during_a_change_leaves_no_trees_behind() {
    for (point, wanted) in [
        ("the entries of an index are loaded", 1),
        ("a part of a collection is copied", 2),
    ] {
        let disk = MemDisk::default();
        let store = open_with(EngineOptions::with_disk(Arc::new(disk.clone())));
        filled(&store);
        let trees = store.engine().trees().unwrap().len();
        let images = Arc::new(std::sync::Mutex::new(Vec::new()));
        let (stopped, taken, running) = (disk.clone(), images.clone(), store.clone());
        let act = at_points(move |name| {
            if name == point {
                running.flush_log().unwrap();
                assert_eq!(working_trees(&running), 2);
                assert!(running.engine().trees().unwrap().len() > trees);
                let mut random = StdRng::seed_from_u64(1);
                taken.lock().unwrap().push(stopped.image(&mut random));
                running.checkpoint().unwrap();
                taken.lock().unwrap().push(stopped.image(&mut random));
            }
        });
        let context = OpContext::new();
        match wanted {
            1 => drop(
                store
                    .modify_index(&ns("db.c"), &to_unique(), &context)
                    .unwrap(),
            ),
            _ => store
                .convert_to_capped(&ns("db.c"), 1 << 20, &context)
                .unwrap(),
        }
        drop(act);
        let images = std::mem::take(&mut *images.lock().unwrap());
        assert!(images.len() >= 2);
        assert_eq!(working_trees(&store), 0);
        for image in images {
            let store = open_with(EngineOptions::with_disk(Arc::new(image)));
            assert_eq!(working_trees(&store), 0);
            assert_eq!(store.engine().trees().unwrap().len(), trees, "{point}");
            let report = store.verify(&ns("db.c")).unwrap();
            assert_eq!(
                (report.errors.len(), report.documents),
                (0, DOCUMENTS as u64)
            );
            let specs = store.list_indexes(&ns("db.c")).unwrap();
            assert_eq!(specs.len(), 2);
            assert_eq!(specs[1].get_bool("unique"), None);
            insert(&store, "db.c", &doc! {"_id": -1, "a": -1});
        }
    }
}

/// The segments of large documents look like no document, so the trees of a collection whose entry was damaged were
/// dropped in part when the store was opened.
#[test]
fn trees_of_a_collection_that_the_catalog_lost_are_kept() {
    let f = Fixture::new();
    let text = "x".repeat(1000);
    let mut part = DocBuf::new();
    for field in 0..200 {
        part.push(&format!("f{field}"), text.as_str());
    }
    let large = doc! {"_id": 1, "part": &part};
    insert(&f.store, "db.large", &large);
    filled(&f.store);
    let trees = f.store.engine().trees().unwrap();
    let segments = f
        .store
        .catalog()
        .collection(&ns("db.large"))
        .unwrap()
        .segments
        .unwrap();
    f.store.checkpoint().unwrap();
    let stats = f.store.engine().tree_stats(segments);
    assert!(stats.entries_estimate > 1, "{stats:?}");
    let mut batch = WriteSet::new();
    batch.delete(CATALOG_TREE, b"\x02db\0large");
    f.store.engine().commit(batch, Durability::Logged).unwrap();
    let f = f.reopen();
    assert!(!f.store.collection_exists(&ns("db.large")));
    assert_eq!(f.store.engine().trees().unwrap(), trees);
}
