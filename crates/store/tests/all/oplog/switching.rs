//! Turning the oplog on and off.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use frond_bson::doc;
use frond_error::ErrorCode;
use frond_store::keyspace::Stamps;
use frond_store::oplog::readers::Place;
use frond_store::{Engine, EngineOptions, StoreOptions, at_points, merge_operator};

use super::*;
use crate::common::ns;
use crate::common::waiting::wait_until;

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
    store.turn_on_oplog(OPLOG).unwrap();
    store
        .turn_on_oplog(OplogSettings {
            bytes_max: 1,
            ..OPLOG
        })
        .unwrap();
    assert_eq!(store.oplog().settings(), OPLOG);
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
    assert_eq!(oplog.settings(), OPLOG);
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
    let trees = store.engine().trees().unwrap().len();
    store.turn_off_oplog().unwrap();
    store.turn_off_oplog().unwrap();
    assert!(!store.oplog().is_on());
    assert_eq!(store.engine().trees().unwrap().len(), trees - 2);
    assert_eq!(store.oplog().size_bytes(), 0);
    insert(store, &c, &[doc! {"_id": 4}]);

    // A new one does not know the old one.
    store.turn_on_oplog(OPLOG).unwrap();
    assert!(store.oplog().first() > last);
    assert_eq!(documents(store).len(), 1);
    let fixture = fixture.reopen();
    assert_eq!(documents(&fixture.store).len(), 1);
}

/// Runs `run`, and `act` when a commit first reaches a point.
fn acting_at(point: &'static str, act: impl FnOnce() + 'static, run: impl FnOnce()) {
    let act = Rc::new(Cell::new(Some(act)));
    let left = act.clone();
    let acts = at_points(move |reached| {
        if reached == point
            && let Some(act) = left.take()
        {
            act();
        }
    });
    run();
    drop(acts);
    assert!(act.take().is_none(), "{point} was not reached");
}

/// A change that was staged without an entry is staged again.
#[test]
fn a_change_that_was_staged_before_the_oplog_is_turned_on_has_an_entry() {
    type Run = fn(&DocumentStore, &Namespace);
    let runs: [(Run, DocBuf); 4] = [
        (
            |store, c| {
                let changed = update(store, c, &doc! {"_id": 1}, &doc! {"$set": {"a": 2}});
                assert_eq!(changed.matched, 1);
            },
            doc! {"op": "u", "ns": "db.c", "o": {"$v": 2, "diff": {"u": {"a": 2}}}, "o2": {"_id": 1}},
        ),
        (
            |store, c| {
                let (filter, change) = (doc! {"_id": 1}, doc! {"$set": {"a": 3}});
                let request = UpdateRequest {
                    multi: true,
                    ..UpdateRequest::new(&filter, Value::Document(&change))
                };
                let changed = store.update(c, &request, LOGGED, &OpContext::new());
                assert_eq!(changed.unwrap().matched, 1);
            },
            doc! {"op": "u", "ns": "db.c", "o": {"$v": 2, "diff": {"u": {"a": 3}}}, "o2": {"_id": 1}},
        ),
        (
            |store, c| assert_eq!(delete(store, c, &doc! {"_id": 1}), 1),
            doc! {"op": "d", "ns": "db.c", "o": {"_id": 1}},
        ),
        (
            |store, c| assert_eq!(delete(store, c, &doc! {"a": 1}), 1),
            doc! {"op": "d", "ns": "db.c", "o": {"_id": 1}},
        ),
    ];
    for (run, expected) in runs {
        let fixture = Fixture::new();
        let store = &fixture.store;
        let c = ns("db.c");
        insert(store, &c, &[doc! {"_id": 1, "a": 1}]);
        let switched = store.clone();
        let turn_on = move || switched.turn_on_oplog(OPLOG).unwrap();
        let point = "staged documents are about to be committed";
        acting_at(point, turn_on, || run(store, &c));
        let entries: Vec<DocBuf> = documents(store).iter().map(|one| brief(one)).collect();
        assert_eq!(entries[1..], [expected]);
    }
}

#[test]
fn a_change_that_was_staged_before_the_oplog_is_turned_off_is_kept() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let c = ns("db.c");
    insert(store, &c, &[doc! {"_id": 1}]);
    let switched = store.clone();
    let turn_off = move || switched.turn_off_oplog().unwrap();
    let point = "staged documents are about to be committed";
    acting_at(point, turn_off, || {
        let changed = update(store, &c, &doc! {"_id": 1}, &doc! {"$set": {"a": 2}});
        assert_eq!(changed.matched, 1);
    });
    assert!(!store.oplog().is_on());
    assert_eq!(delete(store, &c, &doc! {"a": 2}), 1);
}

#[test]
fn the_oplog_is_turned_on_before_or_after_an_insert() {
    let fixture = Fixture::new();
    let store = &fixture.store;
    let c = ns("db.c");
    store.create_collection(&c, &doc! {}).unwrap();
    let (thread, switched) = (Rc::new(Cell::new(None)), store.clone());
    let started = thread.clone();
    let turn_on = move || {
        let other = switched.clone();
        started.set(Some(thread::spawn(move || {
            other.turn_on_oplog(OPLOG).unwrap();
        })));
        thread::sleep(std::time::Duration::from_millis(50));
        assert!(!switched.oplog().is_on(), "the insert has begun");
    };
    let point = "the oplog of a commit of documents is known";
    acting_at(point, turn_on, || insert(store, &c, &[doc! {"_id": 1}]));
    thread.take().unwrap().join().unwrap();
    insert(store, &c, &[doc! {"_id": 2}]);
    let expected = doc! {"op": "i", "ns": "db.c", "o": {"_id": 2}, "o2": {"_id": 2}};
    let entries: Vec<DocBuf> = documents(store).iter().map(|one| brief(one)).collect();
    assert_eq!(entries[1..], [expected]);
}

#[test]
fn a_transaction_that_began_before_the_oplog_was_turned_on_fails() {
    let fixture = Fixture::new();
    let store = &fixture.store;
    let c = ns("db.c");
    store.create_collection(&c, &doc! {}).unwrap();
    let transaction = store.begin();
    insert(&store.in_transaction(&transaction), &c, &[doc! {"_id": 1}]);
    store.turn_on_oplog(OPLOG).unwrap();
    let error = transaction.commit(LOGGED).unwrap_err();
    assert_eq!(error.code(), ErrorCode::WriteConflict);
    assert_eq!(documents(store).len(), 1);
}

/// Of an idle store each look of a stream read the oplog again after a restart.
#[test]
fn readers_know_what_is_durable_when_the_store_is_opened() {
    let fixture = Fixture::with_oplog();
    insert(&fixture.store, &ns("db.c"), &[doc! {"_id": 1}]);
    let fixture = fixture.reopen();
    let oplog = fixture.store.oplog();
    let place = Place::Collection("db.c".into());
    let reader = oplog.readers().watch(place, || oplog.last().to_u64());
    let durable = oplog.durable();
    wait_until("a quiet place", || {
        let told = reader.signal().insertions();
        reader.quiet_until(durable, told) == Some(durable)
    });
}

/// A source of stamps that fails every other time, once that is switched on.
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
    store.turn_on_oplog(OPLOG).unwrap();
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
    // So are transactions, and changes of the catalog.
    for n in 0..10 {
        let transaction = store.begin();
        let inside = store.in_transaction(&transaction);
        insert(&inside, &c, &[doc! {"_id": 100 + n}]);
        transaction.commit(LOGGED).unwrap();
        let other = ns(&format!("db.c{n}"));
        store.create_collection(&other, &doc! {}).unwrap();
        store
            .create_indexes(&other, &[&doc! {"key": {"a": 1}}])
            .unwrap();
        if n % 2 == 0 {
            store.drop_collection(&other).unwrap();
        }
    }
    replay::check(&store);
}
