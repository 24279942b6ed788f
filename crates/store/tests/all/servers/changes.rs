//! Changes of the catalog, beside writers, on all servers at once.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use frond_bson::{Doc, DocBuf, Value, doc};
use frond_store::{DocumentStore, IndexSelector, OpContext};

use crate::servers::{Servers, check, delete, find, insert, ns, update};

#[test]
fn a_collection_of_one_server_is_there_for_the_others() {
    let servers = Servers::new(2);
    let c = ns("db.c");
    insert(servers.one(), &c, &[doc! {"_id": 1, "a": 5}]);
    assert_eq!(find(servers.two(), &c, &doc! {"a": 5}).len(), 1);
    servers
        .two()
        .create_indexes(&c, &[&doc! {"key": {"a": 1}, "name": "a"}])
        .unwrap();
    assert_eq!(servers.one().list_indexes(&c).unwrap().len(), 2);
    insert(servers.one(), &c, &[doc! {"_id": 2, "a": 6}]);
    assert_eq!(check(servers.two(), &c), 2);
    let d = ns("db.d");
    servers.one().rename_collection(&c, &d, false).unwrap();
    assert!(find(servers.two(), &c, Doc::empty()).is_empty());
    assert_eq!(find(servers.two(), &d, Doc::empty()).len(), 2);
    insert(servers.two(), &d, &[doc! {"_id": 3, "a": 7}]);
    servers.two().drop_collection(&d).unwrap();
    assert!(find(servers.one(), &d, Doc::empty()).is_empty());
    assert!(!servers.one().collection_exists(&d));
    let view = doc! {"viewOn": "c", "pipeline": [{"$match": {"a": 5}}]};
    servers.one().create_collection(&ns("db.v"), &view).unwrap();
    insert(servers.one(), &c, &[doc! {"a": 5}, doc! {"a": 6}]);
    assert_eq!(find(servers.two(), &ns("db.v"), Doc::empty()).len(), 1);
    assert_eq!(servers.two().list_collections("db").unwrap().len(), 3);
    assert!(servers.two().drop_database("db").unwrap());
    assert!(servers.one().list_collections("db").unwrap().is_empty());
}

#[test]
fn servers_have_numbers_and_addresses() {
    let servers = Servers::new(3);
    let listed = servers.two().servers().unwrap();
    let numbers: Vec<u32> = listed.iter().map(|server| server.number).collect();
    assert_eq!(numbers, [1, 2, 3]);
    assert_eq!(listed[2].address, "127.0.0.1:28253");
    assert!(listed[1].is_self && listed.iter().all(|server| server.is_live));
    assert_eq!(servers.stores[2].server_number(), 3);
    servers.two().leave().unwrap();
    assert_eq!(servers.one().servers().unwrap().len(), 2);
    let refused = servers.two().create_collection(&ns("db.c"), Doc::empty());
    assert_eq!(refused.unwrap_err().code().code(), 10107);
    servers
        .one()
        .create_collection(&ns("db.c"), Doc::empty())
        .unwrap();
}

/// Inserts, updates and deletes until `stop` is set. Returns how often it wrote.
fn write(store: &DocumentStore, thread: i32, stop: &AtomicBool) -> usize {
    let c = ns("db.c");
    let mut writes = 0;
    let mut next = 0;
    while !stop.load(Ordering::Relaxed) {
        let docs: Vec<DocBuf> = (0..5)
            .map(|i| {
                let id = thread * 1_000_000 + next + i;
                doc! {"_id": id, "a": id % 17, "b": format!("v{}", id % 5), "u": id, "t": thread}
            })
            .collect();
        insert(store, &c, &docs);
        let one = thread * 1_000_000 + next;
        update(
            store,
            &c,
            &doc! {"_id": one},
            &doc! {"$inc": {"a": 1}, "$set": {"b": "w"}},
        );
        if next % 3 == 0 {
            delete(store, &c, &doc! {"_id": one + 1});
        }
        next += 5;
        writes += 1;
    }
    writes
}

fn spec(number: usize) -> DocBuf {
    match number % 4 {
        0 => {
            doc! {"key": {"a": 1}, "name": format!("i{number}"), "sparse": number.is_multiple_of(8)}
        }
        1 => doc! {"key": {"b": 1, "a": number as i32}, "name": format!("i{number}")},
        2 => doc! {"key": {"u": 1}, "name": format!("i{number}"), "unique": true},
        _ => doc! {"key": {"t": -1, "b": 1}, "name": format!("i{number}")},
    }
}

/// Changes the collection a number of times. Errors of the other server's changes of the same index are expected.
fn change(store: &DocumentStore, server: usize, changes: usize, done: &AtomicUsize) {
    let c = ns("db.c");
    for number in 0..changes {
        let mine = format!("i{}", number - number % 2);
        let other = ns(&format!("db.other{server}_{}", number % 7));
        match (number + server) % 6 {
            0 | 1 => {
                let _ = store.create_indexes(&c, &[&spec(number)]);
            }
            2 => {
                let _ = store.drop_indexes(&c, &IndexSelector::Name(mine));
            }
            3 => {
                insert(store, &other, &[doc! {"x": 1}]);
            }
            4 => {
                let to = ns(&format!("db.renamed{server}_{}", number % 3));
                let _ = store.rename_collection(&other, &to, true);
            }
            _ => {
                let _ = store.drop_collection(&other);
            }
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_hundred_changes_on_both_servers_beside_writers() {
    let servers = Servers::new(2);
    let c = ns("db.c");
    servers
        .one()
        .create_indexes(&c, &[&doc! {"key": {"a": 1, "t": 1}, "name": "stays"}])
        .unwrap();
    let (stop, done) = (AtomicBool::new(false), AtomicUsize::new(0));
    let writes = thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|thread: i32| {
                let (stop, store) = (&stop, &servers.stores[thread as usize % 2]);
                scope.spawn(move || write(store, thread + 1, stop))
            })
            .collect();
        let changers: Vec<_> = (servers.stores.iter().enumerate())
            .map(|(server, store)| {
                let done = &done;
                scope.spawn(move || change(store, server, 50, done))
            })
            .collect();
        changers.into_iter().for_each(|one| one.join().unwrap());
        stop.store(true, Ordering::Relaxed);
        writers
            .into_iter()
            .map(|one| one.join().unwrap())
            .sum::<usize>()
    });
    assert_eq!(done.load(Ordering::Relaxed), 100);
    assert!(writes > 50, "{writes}");
    let all = find(servers.one(), &c, Doc::empty()).len();
    for store in &servers.stores {
        assert_eq!(check(store, &c), all as u64);
        assert_eq!(
            store.list_indexes(&c).unwrap(),
            servers.one().list_indexes(&c).unwrap()
        );
        for a in 0..3 {
            let by_index = find(store, &c, &doc! {"a": a});
            let expected = find(store, &c, &doc! {"$expr": {"$eq": ["$a", a]}});
            assert_eq!(by_index.len(), expected.len());
        }
        for collection in store.list_collections("db").unwrap() {
            check(store, &ns(&format!("db.{}", collection.name)));
        }
    }
}

#[test]
fn dropped_and_created_again_beside_writers() {
    let servers = Servers::new(2);
    let c = ns("db.c");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for thread in 0..2 {
            let (stop, c, store) = (&stop, &c, &servers.stores[thread]);
            scope.spawn(move || {
                let mut next = 0;
                while !stop.load(Ordering::Relaxed) {
                    next += 1;
                    let id = format!("{thread}-{next}");
                    insert(store, c, &[doc! {"_id": id, "a": next}]);
                }
            });
        }
        for number in 0..30 {
            let store = &servers.stores[number % 2];
            let _ = store.drop_collection(&c);
            let _ = store.create_indexes(&c, &[&doc! {"key": {"a": 1}, "name": "a"}]);
        }
        stop.store(true, Ordering::Relaxed);
    });
    for store in &servers.stores {
        check(store, &c);
    }
}

#[test]
fn a_unique_index_refuses_duplicates_of_all_servers() {
    let servers = Servers::new(2);
    let c = ns("db.c");
    servers
        .one()
        .create_indexes(&c, &[&doc! {"key": {"u": 1}, "name": "u", "unique": true}])
        .unwrap();
    let inserted: usize = thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let (c, store) = (&c, &servers.stores[thread % 2]);
                scope.spawn(move || {
                    let insert_one = |u: i32| insert(store, c, &[doc! {"u": u}]);
                    (0..100).map(insert_one).sum::<usize>()
                })
            })
            .collect();
        threads.into_iter().map(|one| one.join().unwrap()).sum()
    });
    assert_eq!(inserted, 100);
    assert_eq!(check(servers.two(), &c), 100);
}

#[test]
fn a_collection_of_a_transaction_is_seen_with_its_other_writes() {
    let servers = Servers::new(2);
    let (a, b) = (ns("db.a"), ns("db.b"));
    insert(servers.one(), &a, &[doc! {"_id": 0}]);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let moment = servers.two().snapshot_reads();
                let here = servers.two().at(&moment);
                let count = find(&here, &a, Doc::empty()).len();
                let second = find(&here, &b, Doc::empty()).len();
                assert_eq!(count, 1 + second);
            }
        });
        thread::sleep(Duration::from_millis(50));
        let transaction = servers.one().begin();
        let inside = servers.one().in_transaction(&transaction);
        insert(&inside, &a, &[doc! {"_id": 1}]);
        insert(&inside, &b, &[doc! {"_id": 1}]);
        transaction.commit(frond_store::Durability::Logged).unwrap();
        assert_eq!(find(servers.two(), &b, Doc::empty()).len(), 1);
        stop.store(true, Ordering::Relaxed);
    });
    insert(servers.two(), &b, &[doc! {"_id": 2}]);
    assert_eq!(check(servers.one(), &b), 2);
}

#[test]
fn options_of_a_collection_and_of_an_index_change_for_all() {
    let servers = Servers::new(2);
    let c = ns("db.c");
    insert(servers.one(), &c, &[doc! {"a": 1}]);
    find(servers.two(), &c, Doc::empty());
    let validator = doc! {"validator": {"a": {"$gt": 0}}};
    servers.one().modify_collection(&c, &validator).unwrap();
    assert_eq!(insert(servers.two(), &c, &[doc! {"a": -1}]), 0);
    servers
        .one()
        .create_indexes(&c, &[&doc! {"key": {"a": 1}, "name": "a"}])
        .unwrap();
    let change = frond_store::IndexChange {
        which: IndexSelector::Name("a".to_owned()),
        expire_after: None,
        hidden: Some(true),
        prepare_unique: None,
        unique: false,
        dry_run: false,
    };
    servers
        .two()
        .modify_index(&c, &change, &OpContext::new())
        .unwrap();
    let indexes = servers.one().list_indexes(&c).unwrap();
    assert_eq!(indexes[1].get("hidden"), Some(Value::Bool(true)));
}

/// Changes definitions in databases of its own. Returns what failed.
fn change_own(store: &DocumentStore, server: usize, rounds: usize) -> Vec<String> {
    let mut failed = Vec::new();
    for round in 0..rounds {
        let db = format!("own{server}_{}", round % 3);
        let (c, d) = (ns(&format!("{db}.c")), ns(&format!("{db}.d")));
        let mut note = |what: &str, done: Result<(), frond_store::Error>| {
            if let Err(error) = done {
                failed.push(format!("{what}: {error}"));
            }
        };
        let docs = [doc! {"a": 1}, doc! {"a": [1, 2]}];
        let docs: Vec<&Doc> = docs.iter().map(|doc| &**doc).collect();
        let inserted = store.insert(&c, &docs, crate::servers::INSERT).map(|_| ());
        note("insert", inserted);
        let spec = doc! {"key": {"a": 1}, "name": "a"};
        let indexed = store.create_indexes(&c, &[&spec]).map(|_| ());
        note("index", indexed);
        note("rename", store.rename_collection(&c, &d, true));
        let capped = doc! {"capped": true, "size": 4096};
        let created = store.create_collection(&c, &capped).map(|_| ());
        note("create", created);
        note("drop", store.drop_database(&db).map(|_| ()));
    }
    failed
}

#[test]
fn changes_beside_writers_meet_no_conflict() {
    let servers = Servers::new(2);
    insert(servers.one(), &ns("db.c"), &[doc! {"_id": -1, "a": 0}]);
    let stop = AtomicBool::new(false);
    let failed = thread::scope(|scope| {
        let mut writers = Vec::new();
        for (number, store) in servers.stores.iter().enumerate() {
            for thread in 0..2 {
                let (stop, thread) = (&stop, (number * 2 + thread) as i32);
                writers.push(scope.spawn(move || write(store, thread, stop)));
            }
        }
        let changers: Vec<_> = (servers.stores.iter().enumerate())
            .map(|(number, store)| scope.spawn(move || change_own(store, number, 10)))
            .collect();
        let failed: Vec<String> = (changers.into_iter())
            .flat_map(|changer| changer.join().unwrap())
            .collect();
        stop.store(true, Ordering::Relaxed);
        assert!(writers.into_iter().all(|writer| writer.join().unwrap() > 0));
        failed
    });
    assert_eq!(failed, Vec::<String>::new());
    assert!(check(servers.two(), &ns("db.c")) > 0);
}
