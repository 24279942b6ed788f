//! Turning the oplog on and off.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use frond_bson::doc;
use frond_error::ErrorCode;
use frond_store::keyspace::Stamps;
use frond_store::oplog::readers::Place;
use frond_store::{Engine, EngineOptions, StoreOptions, merge_operator};

use super::*;
use crate::common::ns;

#[test]
fn it_is_off_until_it_is_turned_on_and_stays_on() {
    let fixture = Fixture::new();
    let store = &fixture.store;
    let c = ns("db.c");
    assert!(!store.oplog().is_on());
    assert_eq!(store.oplog().tree(), None);
    insert(store, &c, &[doc! {"_id": 1}]);
    let error = store.oplog().append_noop(&doc! {}).unwrap_err();
    assert_eq!(error.code(), ErrorCode::IllegalOperation);
    assert_eq!(store.oplog().trim(0).unwrap(), Default::default());
    store.turn_on_oplog(SETTINGS).unwrap();
    store
        .turn_on_oplog(OplogSettings {
            bytes_max: 1,
            ..SETTINGS
        })
        .unwrap();
    assert_eq!(store.oplog().settings(), SETTINGS);
    insert(store, &c, &[doc! {"_id": 2}]);
    let (before, last) = (documents(store), store.oplog().last());
    let size = store.oplog().size_bytes();

    let fixture = fixture.reopen();
    let store = &fixture.store;
    let oplog = store.oplog();
    assert!(oplog.is_on());
    assert_eq!(documents(store), before);
    assert_eq!((oplog.last(), oplog.durable()), (last, last.to_u64()));
    assert_eq!(oplog.first().to_u64(), values(store)[0].0);
    assert_eq!(oplog.settings(), SETTINGS);
    assert_eq!((oplog.size_bytes(), oplog.entries_estimate()), (size, 2));
    insert(store, &c, &[doc! {"_id": 3}]);
    assert_eq!(documents(store).len(), 3);
    assert!(oplog.last() > last);
    let resized = OplogSettings {
        bytes_max: 5 << 20,
        min_retention_hours: 1.5,
    };
    oplog.resize(resized).unwrap();

    let fixture = fixture.reopen();
    let store = &fixture.store;
    assert_eq!(store.oplog().settings(), resized);
    let trees = store.engine().trees().len();
    store.turn_off_oplog().unwrap();
    store.turn_off_oplog().unwrap();
    assert!(!store.oplog().is_on());
    assert_eq!(store.engine().trees().len(), trees - 2);
    assert_eq!(store.oplog().size_bytes(), 0);
    insert(store, &c, &[doc! {"_id": 4}]);

    // A new one does not know the old one.
    store.turn_on_oplog(SETTINGS).unwrap();
    assert!(store.oplog().first() > last);
    assert_eq!(documents(store).len(), 1);
    let fixture = fixture.reopen();
    assert_eq!(documents(&fixture.store).len(), 1);
}

#[test]
fn every_change_behind_the_first_entry_has_an_entry() {
    let fixture = Fixture::new();
    let store = &fixture.store;
    let c = ns("db.c");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let stop = &stop;
        for writer in 0..3 {
            let c = &c;
            scope.spawn(move || {
                for n in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    insert(
                        store,
                        c,
                        &[doc! {"_id": format!("{writer}.{n}").as_str(), "n": n}],
                    );
                    let id = doc! {"_id": format!("{writer}.{}", n / 2).as_str()};
                    update(store, c, &id, &doc! {"$inc": {"m": 1}});
                    delete(store, c, &doc! {"n": n - 50});
                }
            });
        }
        for _ in 0..5 {
            thread::sleep(std::time::Duration::from_millis(20));
            store.turn_on_oplog(SETTINGS).unwrap();
            let snapshot = store.engine().snapshot();
            let all = {
                let tree = store.oplog().tree().unwrap();
                let (low, high) = (Bound::Unbounded, Bound::Unbounded);
                let mut cursor = snapshot
                    .cursor(tree, low, high, Direction::Forward)
                    .unwrap();
                cursor.next().unwrap().map(|(key, _)| key.to_vec())
            };
            assert!(all.is_some(), "a first entry");
            // The entries since then, applied to what was there before, are what is there now: each update and delete finds
            // the document that an insert before it or the snapshot before the first entry had.
            thread::sleep(std::time::Duration::from_millis(20));
            let moment = store.snapshot_reads();
            let at = store.at(&moment);
            let mut inserted = std::collections::BTreeSet::new();
            for entry in documents(store) {
                if entry.get_str("op") == Some("i") {
                    let id = entry
                        .get_doc("o")
                        .unwrap()
                        .get_str("_id")
                        .unwrap()
                        .to_owned();
                    assert!(inserted.insert(id.clone()), "{id} twice");
                }
            }
            let mut cursor = at.find(&c, &Default::default(), &OpContext::new()).unwrap();
            let mut newest = [0_i32; 3];
            let mut stored = std::collections::BTreeSet::new();
            while let Some(doc) = cursor.next().unwrap() {
                let id = doc.get_str("_id").unwrap().to_owned();
                let writer: usize = id[..1].parse().unwrap();
                newest[writer] = newest[writer].max(doc.get_i32("n").unwrap());
                stored.insert(id);
            }
            // From the first logged insert of a writer on, all are logged.
            for (writer, newest) in newest.iter().enumerate() {
                let numbers = inserted.iter().filter_map(|id| {
                    let (of, n) = id.split_once('.')?;
                    (of == writer.to_string()).then(|| n.parse::<i32>().unwrap())
                });
                let Some(first) = numbers.min() else { continue };
                for n in first..=*newest {
                    let id = format!("{writer}.{n}");
                    assert!(inserted.contains(&id), "{id} has no entry");
                }
            }
            store.turn_off_oplog().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    // With it on to the end, the entries and the documents agree for all that was inserted since.
    store.turn_on_oplog(SETTINGS).unwrap();
    store.drop_collection(&c).unwrap();
    insert(store, &c, &[doc! {"_id": 1}]);
}

/// Of an idle store each look of a stream read the oplog again after a restart.
#[test]
fn readers_know_what_is_durable_when_the_store_is_opened() {
    let fixture = with_oplog();
    insert(&fixture.store, &ns("db.c"), &[doc! {"_id": 1}]);
    let fixture = fixture.reopen();
    let oplog = fixture.store.oplog();
    let place = Place::Collection("db.c".into());
    let reader = oplog.readers().watch(place, || oplog.last().to_u64());
    let durable = oplog.durable();
    let is_quiet = (0..2000).any(|_| {
        thread::sleep(std::time::Duration::from_millis(1));
        let told = reader.signal().insertions();
        reader.quiet_until(durable, told) == Some(durable)
    });
    assert!(is_quiet);
}

/// A source of stamps that fails every other time, once it is told to.
#[derive(Default)]
struct Scarce {
    last: AtomicU64,
    fails: AtomicBool,
    calls: AtomicU64,
}

impl Stamps for Scarce {
    fn take(&self, count: u32) -> Option<u64> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        if self.fails.load(Ordering::SeqCst) && call.is_multiple_of(2) {
            return None;
        }
        Some(self.last.fetch_add(u64::from(count), Ordering::SeqCst) + 1)
    }
}

#[test]
fn a_commit_that_finds_no_time_is_tried_again() {
    let directory = tempfile::tempdir().unwrap();
    let stamps = Arc::new(Scarce::default());
    let engine = Engine::open(EngineOptions {
        merge: merge_operator(),
        stamps: Some(stamps.clone()),
        ..EngineOptions::new(directory.path())
    });
    let store = DocumentStore::open(engine.unwrap(), StoreOptions::default()).unwrap();
    store.turn_on_oplog(SETTINGS).unwrap();
    let c = ns("db.c");
    store.create_collection(&c, &doc! {}).unwrap();
    stamps.fails.store(true, Ordering::SeqCst);
    let before = stamps.calls.load(Ordering::SeqCst);
    for n in 0..10 {
        insert(&store, &c, &[doc! {"_id": n}]);
        update(&store, &c, &doc! {"_id": n}, &doc! {"$set": {"a": n}});
        if n % 2 == 0 {
            assert_eq!(delete(&store, &c, &doc! {"_id": n}), 1);
        }
    }
    let calls = stamps.calls.load(Ordering::SeqCst) - before;
    assert!(calls > 45, "{calls} for 25 commits");
    // A transaction cannot be tried again in the store, and neither are changes of the catalog.
    let failed = (0..10).any(|n| {
        let transaction = store.begin();
        let inside = store.in_transaction(&transaction);
        insert(&inside, &c, &[doc! {"_id": 100 + n}]);
        match transaction.commit(LOGGED) {
            Ok(()) => false,
            Err(error) => {
                assert_eq!(error.code(), ErrorCode::WriteConflict);
                true
            }
        }
    });
    assert!(failed);
    replay::check(&store);
}
