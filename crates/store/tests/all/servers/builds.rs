//! Indexes that one server builds while others write, and builders that end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use frond_bson::{ArrayBuf, Doc, DocBuf, doc};
use frond_store::{
    AggregateRequest, DocumentStore, Durability, IndexChange, IndexSelector, Namespace, OpContext,
    at_points,
};

use crate::common::waiting::{wait_for, wait_until};
use crate::servers::{Servers, check, common, delete, find, insert, ns, update};

/// A small cluster on a busy machine needs some time for a renewal.
const LEASE: Duration = Duration::from_secs(1);

fn fill(store: &DocumentStore, c: &Namespace, count: i32) {
    for first in (0..count).step_by(500) {
        let docs: Vec<DocBuf> = (first..first + 500)
            .map(|id| doc! {"_id": id, "a": id % 97, "u": id})
            .collect();
        assert_eq!(insert(store, c, &docs), 500);
    }
}

/// Ends the writers, also when the test fails.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Writes as fast as it can: also arrays, and unique values that move from one document to another. No two documents ever have
/// the same one at a time: each value of the 3,000 first documents moves once, from a document that only this writer changes.
fn write(store: &DocumentStore, c: &Namespace, thread: i32, stop: &AtomicBool) {
    let mut next = 0;
    while !stop.load(Ordering::Relaxed) {
        next += 1;
        let id = 1_000_000 * (thread + 1) + next;
        insert(store, c, &[doc! {"_id": id, "a": [next, thread], "u": id}]);
        // Spread over the keys; 7 and 1,500 have no common divisor.
        let old = next * 7 % 1500 * 2 + thread;
        if next < 1500 {
            let moved = doc! {"$set": {"u": id + 500_000}, "$inc": {"a": 1}};
            assert!(update(store, c, &doc! {"_id": old}, &moved));
            insert(store, c, &[doc! {"_id": -id, "u": old}]);
        }
        if next % 2 == 0 {
            delete(store, c, &doc! {"_id": id - 1});
        }
        if next % 16 == 0 && next < 1500 {
            delete(store, c, &doc! {"_id": old});
        }
    }
}

fn specs() -> [DocBuf; 2] {
    [
        doc! {"key": {"a": 1}, "name": "a"},
        doc! {"key": {"u": 1}, "name": "u", "unique": true},
    ]
}

fn build(store: &DocumentStore, c: &Namespace) -> frond_store::Result<()> {
    let specs = specs();
    let specs: Vec<&Doc> = specs.iter().map(|spec| &**spec).collect();
    store.create_indexes(c, &specs).map(|_| ())
}

#[test]
fn an_index_is_built_beside_writers_of_all_servers() {
    let servers = Servers::new(2);
    let c = ns("db.c");
    fill(servers.one(), &c, 3000);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for (thread, store) in servers.stores.iter().enumerate() {
            let (c, stop) = (&c, &stop);
            scope.spawn(move || write(store, c, thread as i32, stop));
        }
        let _ending = Ending(&stop);
        build(servers.one(), &c).unwrap();
    });
    for store in &servers.stores {
        check(store, &c);
        assert_eq!(store.list_indexes(&c).unwrap().len(), 3);
        let by_scan = doc! {"$expr": {"$eq": ["$u", 5]}};
        assert_eq!(
            find(store, &c, &doc! {"u": 5}).len(),
            find(store, &c, &by_scan).len()
        );
    }
}

#[test]
fn a_build_refuses_duplicates_and_leaves_nothing() {
    let servers = Servers::new(2);
    let c = ns("db.c");
    fill(servers.one(), &c, 3000);
    insert(servers.two(), &c, &[doc! {"_id": 1_000_000, "u": 2999}]);
    let refused = build(servers.two(), &c).unwrap_err();
    assert_eq!(refused.code().code(), 11000);
    for store in &servers.stores {
        assert_eq!(store.list_indexes(&c).unwrap().len(), 1);
        assert!(store.resume_index_builds(&OpContext::new()).is_empty());
        check(store, &c);
    }
    delete(servers.one(), &c, &doc! {"_id": 1_000_000});
    build(servers.two(), &c).unwrap();
    assert_eq!(check(servers.one(), &c), 3000);
}

/// The builder stops at a point, and another server goes on, beside writers.
fn builder_stops(at: &'static str, visits: usize) {
    let servers = Servers::with_lease(2, LEASE);
    let c = ns("db.c");
    fill(servers.one(), &c, 3000);
    let (stop, is_resumed) = (AtomicBool::new(false), Arc::new(AtomicBool::new(false)));
    thread::scope(|scope| {
        let _endings = (Ending(&stop), Ending(&is_resumed));
        let writer = scope.spawn(|| write(servers.two(), &c, 1, &stop));
        let goes_on = is_resumed.clone();
        let builder = scope.spawn(|| {
            let stalled = servers.one().clone();
            let mut left = visits;
            let _acts = at_points(move |name| {
                if name == at && left > 0 {
                    left -= 1;
                    if left == 0 {
                        stalled.stall(true);
                        wait_until("a build that was resumed", || {
                            goes_on.load(Ordering::Relaxed)
                        });
                    }
                }
            });
            build(servers.one(), &c)
        });
        let resumed = wait_for("a resumed build", || {
            let resumed = servers.two().resume_index_builds(&OpContext::new());
            (!resumed.is_empty()).then_some(resumed)
        });
        assert!(resumed[0].outcome.is_ok(), "{:?}", resumed[0].outcome);
        assert_eq!(resumed[0].indexes, ["a", "u"]);
        servers.one().stall(false);
        is_resumed.store(true, Ordering::Relaxed);
        assert!(builder.join().unwrap().is_err());
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap();
    });
    for store in &servers.stores {
        // The first one may still be without a lease, and not know what the second one has changed.
        wait_until("all indexes", || store.list_indexes(&c).unwrap().len() == 3);
        check(store, &c);
    }
}

#[test]
fn another_server_goes_on_with_a_build_in_the_middle() {
    builder_stops("a part of an index is filled", 4);
}

#[test]
fn another_server_goes_on_with_the_last_writes() {
    builder_stops("the entries of an index are loaded", 1);
}

#[test]
fn an_index_becomes_unique_for_all_servers() {
    let servers = Servers::new(2);
    let c = ns("db.c");
    fill(servers.one(), &c, 3000);
    let spec = doc! {"key": {"u": 1}, "name": "u"};
    servers.one().create_indexes(&c, &[&spec]).unwrap();
    let mut change = IndexChange {
        which: IndexSelector::Name("u".to_owned()),
        expire_after: None,
        hidden: None,
        prepare_unique: Some(true),
        unique: false,
        dry_run: false,
    };
    let limits = OpContext::new();
    servers.two().modify_index(&c, &change, &limits).unwrap();
    change.prepare_unique = None;
    change.unique = true;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut next = 0;
            while !stop.load(Ordering::Relaxed) {
                next += 1;
                insert(
                    servers.two(),
                    &c,
                    &[doc! {"_id": 100_000 + next, "u": next}],
                );
                insert(
                    servers.two(),
                    &c,
                    &[doc! {"_id": 200_000 + next, "u": 200_000 + next}],
                );
            }
        });
        let changed = servers.one().modify_index(&c, &change, &limits);
        stop.store(true, Ordering::Relaxed);
        assert!(changed.unwrap().became_unique);
    });
    for store in &servers.stores {
        check(store, &c);
        assert_eq!(insert(store, &c, &[doc! {"u": 5}]), 0);
        assert_eq!(store.list_indexes(&c).unwrap().len(), 2);
    }
}

#[test]
fn a_collection_becomes_capped_beside_writers_of_all_servers() {
    let servers = Servers::new(2);
    let c = ns("db.c");
    fill(servers.one(), &c, 1500);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut next = 0;
            while !stop.load(Ordering::Relaxed) {
                next += 1;
                insert(
                    servers.two(),
                    &c,
                    &[doc! {"_id": 100_000 + next, "u": next}],
                );
            }
            next
        });
        thread::sleep(Duration::from_millis(50));
        let converted = servers
            .one()
            .convert_to_capped(&c, 16 << 20, &OpContext::new());
        stop.store(true, Ordering::Relaxed);
        converted.unwrap();
        let written = writer.join().unwrap() as u64;
        for store in &servers.stores {
            assert_eq!(check(store, &c), 1500 + written);
        }
    });
    assert_eq!(servers.two().list_collections("db").unwrap().len(), 1);
}

/// The server of a command stops at a point and loses its lease. Another one removes what the command needed, and the command fails
/// when its server is back.
fn command_stops(at: &'static str, command: impl Fn(&DocumentStore) -> bool + Sync) {
    let servers = Servers::with_lease(2, LEASE);
    let c = ns("db.c");
    fill(servers.one(), &c, 1500);
    let trees = common::trees(servers.one());
    let is_removed = Arc::new(AtomicBool::new(false));
    thread::scope(|scope| {
        let _ending = Ending(&is_removed);
        let goes_on = is_removed.clone();
        let running = scope.spawn(|| {
            let stalled = servers.one().clone();
            let mut is_first = true;
            let _acts = at_points(move |name| {
                if name == at && std::mem::take(&mut is_first) {
                    stalled.stall(true);
                    wait_until("removed leftovers", || goes_on.load(Ordering::Relaxed));
                    stalled.stall(false);
                }
            });
            command(servers.one())
        });
        wait_until("leftovers", || {
            servers.two().remove_leftovers().unwrap() > 0
        });
        is_removed.store(true, Ordering::Relaxed);
        assert!(!running.join().unwrap());
    });
    for store in &servers.stores {
        assert_eq!(store.list_collections("db").unwrap().len(), 1);
        insert(store, &c, &[doc! {"a": 1}]);
        assert_eq!(check(store, &c), find(store, &c, Doc::empty()).len() as u64);
        assert_eq!(store.remove_leftovers().unwrap(), 0);
    }
    assert_eq!(common::trees(servers.one()), trees);
    // It can be repeated.
    assert!(command(servers.two()));
    assert_eq!(servers.two().remove_leftovers().unwrap(), 0);
}

#[test]
fn a_conversion_that_stops_leaves_nothing() {
    command_stops("a part of a collection is copied", |store| {
        let context = OpContext::new();
        store
            .convert_to_capped(&ns("db.c"), 16 << 20, &context)
            .is_ok()
    });
}

#[test]
fn a_result_that_is_not_finished_leaves_nothing() {
    command_stops("a part of a result is written", |store| {
        let mut pipeline = ArrayBuf::new();
        pipeline.push(&doc! {"$out": "c"});
        let request = AggregateRequest {
            pipeline: &pipeline,
            hint: None,
            variables: None,
            durability: Durability::Logged,
            bypass_validation: false,
            allow_disk_use: None,
            collation: None,
        };
        let c = ns("db.c");
        let cursor = store.aggregate("db", Some(&c), &request, &OpContext::new());
        cursor.and_then(|mut cursor| cursor.next()).is_ok()
    });
}
