//! State that one server keeps in memory: multikey paths, counts, record ids, watched collections.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use frond_bson::{Doc, doc};
use frond_store::Durability;

use crate::servers::{Servers, check, delete, find, insert, ns};

#[test]
fn an_array_of_one_server_is_found_by_the_others() {
    let servers = Servers::new(2);
    let c = ns("db.c");
    for store in &servers.stores {
        store
            .create_indexes(&c, &[&doc! {"key": {"a": 1, "b": 1}, "name": "ab"}])
            .unwrap();
        insert(store, &c, &[doc! {"a": 1, "b": 2}]);
        // With a plan of an index that is not multikey.
        assert!(find(store, &c, &doc! {"a": {"$gt": 5, "$lt": 3}}).is_empty());
    }
    insert(servers.one(), &c, &[doc! {"_id": "x", "a": [1, 7], "b": 2}]);
    for store in &servers.stores {
        assert_eq!(find(store, &c, &doc! {"a": {"$gt": 5, "$lt": 3}}).len(), 1);
        check(store, &c);
    }
    // In a transaction, and for a server that comes later.
    let transaction = servers.two().begin();
    let inside = servers.two().in_transaction(&transaction);
    insert(&inside, &c, &[doc! {"_id": "y", "a": 1, "b": [1, 9]}]);
    transaction.commit(Durability::Logged).unwrap();
    let mut servers = servers;
    servers.add("127.0.0.1:3", std::time::Duration::from_secs(5));
    for store in &servers.stores {
        assert_eq!(
            find(store, &c, &doc! {"a": 1, "b": {"$gt": 8, "$lt": 3}}).len(),
            1
        );
        check(store, &c);
    }
}

/// It was announced, again and again, to servers that could not know the collection.
#[test]
fn an_array_in_a_collection_of_the_same_transaction_is_no_conflict() {
    let servers = Servers::new(2);
    let c = ns("db.c");
    let transaction = servers.one().begin();
    let inside = servers.one().in_transaction(&transaction);
    inside
        .create_indexes(&c, &[&doc! {"key": {"a": 1}, "name": "a"}])
        .unwrap();
    assert_eq!(insert(&inside, &c, &[doc! {"_id": 1, "a": [1, 9]}]), 1);
    transaction.commit(Durability::Logged).unwrap();
    insert(servers.two(), &c, &[doc! {"_id": 2, "a": 5}]);
    for store in &servers.stores {
        let found = find(store, &c, &doc! {"a": {"$gt": 8, "$lt": 3}});
        assert_eq!(found.len(), 1);
        assert_eq!(check(store, &c), 2);
    }
}

#[test]
fn arrays_of_both_servers_at_once() {
    let servers = Servers::new(2);
    let c = ns("db.c");
    let fields = ["a", "b", "d", "e", "f"];
    for field in fields {
        let mut key = doc! {};
        key.push(field, 1);
        let spec = doc! {"key": &key, "name": field};
        servers.one().create_indexes(&c, &[&spec]).unwrap();
    }
    thread::scope(|scope| {
        for thread in 0..4 {
            let (c, store) = (&c, &servers.stores[thread % 2]);
            scope.spawn(move || {
                for (at, field) in fields[1..].iter().enumerate() {
                    for n in 0..20 {
                        let mut doc = doc! {};
                        if n == 10 + thread || n == at {
                            doc.push(field, &doc! {"x": [n as i32, 100]})
                        } else {
                            doc.push(field, n as i32)
                        }
                        if n == 10 {
                            doc.push("a", &frond_bson::array![n as i32, 200]);
                        }
                        insert(store, c, &[doc]);
                        let filter = doc! {"a": {"$gt": 150, "$lt": 50}};
                        let by_index = find(store, c, &filter).len();
                        assert!(n < 10 || by_index > 0);
                    }
                }
            });
        }
    });
    for store in &servers.stores {
        check(store, &c);
        let scan = doc! {"$nor": [{"a": {"$not": {"$gt": 150}}}, {"a": {"$not": {"$lt": 50}}}]};
        assert_eq!(
            find(store, &c, &doc! {"a": {"$gt": 150, "$lt": 50}}).len(),
            find(store, &c, &scan).len()
        );
    }
}

#[test]
fn counts_are_those_of_all_servers() {
    let servers = Servers::new(2);
    let c = ns("db.c");
    for round in 0..5_i32 {
        for store in &servers.stores {
            insert(store, &c, &[doc! {"r": round}, doc! {"r": round}]);
            for other in &servers.stores {
                let all = find(other, &c, Doc::empty()).len() as u64;
                assert_eq!(other.estimated_count(&c), all);
            }
        }
        delete(
            &servers.stores[round as usize % 2],
            &c,
            &doc! {"r": round - 1},
        );
        assert_eq!(servers.one().estimated_count(&c), 4);
        assert_eq!(servers.two().estimated_count(&c), 4);
    }
}

#[test]
fn records_of_all_servers_lie_in_one_order() {
    let servers = Servers::new(2);
    let c = ns("db.c");
    let options = doc! {"naturalOrder": "insertion"};
    servers.one().create_collection(&c, &options).unwrap();
    thread::scope(|scope| {
        for thread in 0..4 {
            let (c, store) = (&c, &servers.stores[thread % 2]);
            scope.spawn(move || {
                for n in 0..200 {
                    insert(store, c, &[doc! {"t": thread as i32, "n": n}]);
                }
            });
        }
    });
    let all = find(servers.one(), &c, Doc::empty());
    assert_eq!(all.len(), 800);
    for thread in 0..4 {
        let mine = all.iter().filter(|doc| doc.get_i32("t") == Some(thread));
        let numbers: Vec<_> = mine.filter_map(|doc| doc.get_i32("n")).collect();
        assert_eq!(numbers, (0..200).collect::<Vec<_>>());
    }
    assert_eq!(check(servers.two(), &c), 800);
}

#[test]
fn a_capped_collection_has_one_order_and_one_limit() {
    let servers = Servers::new(2);
    let c = ns("db.c");
    let options = doc! {"capped": true, "size": 1 << 20, "max": 50};
    servers.one().create_collection(&c, &options).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                assert!(find(servers.two(), &c, Doc::empty()).len() <= 50);
            }
        });
        let writers: Vec<_> = (0..4)
            .map(|thread| {
                let (c, store) = (&c, &servers.stores[thread % 2]);
                scope.spawn(move || {
                    for n in 0..60 {
                        assert_eq!(insert(store, c, &[doc! {"t": thread as i32, "n": n}]), 1);
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|one| one.join().unwrap());
        stop.store(true, Ordering::Relaxed);
    });
    for store in &servers.stores {
        assert_eq!(check(store, &c), 50);
        assert_eq!(store.estimated_count(&c), 50);
    }
    let last = |thread: i32| {
        let filter = doc! {"t": thread};
        find(servers.one(), &c, &filter)
            .last()
            .and_then(|doc| doc.get_i32("n"))
    };
    assert!((0..4).any(|thread| last(thread) == Some(59)));
}

/// Each server took the moment of a time for one of its own, as if there were no other writers.
#[test]
fn a_time_is_the_same_moment_on_all_servers() {
    let servers = Servers::new(2);
    if !servers.are_in_a_cluster() {
        return;
    }
    let (c, d) = (ns("db.c"), ns("db.d"));
    let mut moments = Vec::new();
    for n in 0..6_i32 {
        let store = &servers.stores[n as usize % 2];
        insert(store, &c, &[doc! {"_id": n}]);
        match n {
            2 => drop(
                servers
                    .two()
                    .create_indexes(&c, &[&doc! {"key": {"a": 1}, "name": "a"}]),
            ),
            3 => servers.one().rename_collection(&c, &d, false).unwrap(),
            4 => servers.two().rename_collection(&d, &c, true).unwrap(),
            _ => {}
        }
        let (reads, time) = store.timed_snapshot_reads().unwrap().unwrap();
        moments.push((find(&store.at(&reads), &c, Doc::empty()), time));
    }
    assert_eq!(moments[5].0.len(), 5);
    for store in &servers.stores {
        for (expected, time) in &moments {
            let reads = store.snapshot_reads_at(*time).unwrap().unwrap();
            assert_eq!(find(&store.at(&reads), &c, Doc::empty()), *expected);
        }
    }
    let other = frond_bson::Timestamp::from_u64(moments[0].1.to_u64() - 1);
    assert!(servers.one().snapshot_reads_at(other).unwrap().is_none());
}

#[test]
fn copies_of_watched_collections_are_told_before_the_reply() {
    let servers = Servers::new(2);
    let users = ns("admin.system.users");
    let heard: Vec<Arc<AtomicUsize>> = (servers.stores.iter())
        .map(|store| {
            let heard = Arc::new(AtomicUsize::new(0));
            let counter = heard.clone();
            let hooks = store.catalog().hooks();
            hooks.on_change_of(&["admin.system.users"], move || {
                counter.fetch_add(1, Ordering::SeqCst);
            });
            heard
        })
        .collect();
    insert(servers.one(), &users, &[doc! {"user": "a", "db": "admin"}]);
    for round in 0..10 {
        let before: Vec<_> = (heard.iter())
            .map(|heard| heard.load(Ordering::SeqCst))
            .collect();
        let store = &servers.stores[round % 2];
        match round % 4 {
            3 => {
                let transaction = store.begin_for_server();
                let inside = store.in_transaction(&transaction);
                insert(&inside, &users, &[doc! {"user": round as i32, "db": "t"}]);
                transaction.commit(Durability::Logged).unwrap();
            }
            _ => {
                insert(store, &users, &[doc! {"user": round as i32, "db": "admin"}]);
            }
        }
        for (heard, before) in heard.iter().zip(before) {
            assert!(heard.load(Ordering::SeqCst) > before);
        }
    }
}
