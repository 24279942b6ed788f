//! Conflicts between transactions, and writers outside that wait.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::common::waiting::{PATIENCE, wait_until};
use super::common::{Fixture, ns};
use super::*;
use frond_bson::doc;
use frond_store::{CountRequest, FindAndModifyRequest, Interrupt, at_points};

fn set(field: &str, value: i32) -> DocBuf {
    doc! {"$set": doc! {field: value}}
}

/// A collection with a unique index and two documents.
fn fixture() -> (Fixture, Namespace) {
    let f = Fixture::new();
    let c = ns("db.c");
    let unique = doc! {"key": {"u": 1}, "unique": true};
    f.store.create_indexes(&c, &[&unique]).unwrap();
    f.insert(
        &c,
        &[
            doc! {"_id": 1, "u": 1, "n": 0},
            doc! {"_id": 2, "u": 2, "n": 0},
        ],
    );
    (f, c)
}

type Write = fn(&DocumentStore, &Namespace) -> Result<()>;

/// Writes that conflict with one another: all change document 1, or need the unique key 9.
const CONFLICTING: &[(&str, &[Write])] = &[
    (
        "one document",
        &[
            |store, c| update(store, c, &doc! {"_id": 1}, &set("n", 5)).map(|_| ()),
            |store, c| delete(store, c, &doc! {"u": 1}).map(|_| ()),
            |store, c| {
                let (filter, change) = (doc! {}, set("n", 6));
                let many = UpdateRequest {
                    multi: true,
                    ..update_request(&filter, &change)
                };
                store
                    .update(c, &many, LOGGED, &OpContext::new())
                    .map(|_| ())
            },
            |store, c| {
                let request = FindAndModifyRequest {
                    filter: Some(&doc! {"_id": 1}),
                    remove: true,
                    ..FindAndModifyRequest::default()
                };
                let context = OpContext::new();
                store
                    .find_and_modify(c, &request, LOGGED, &context)
                    .map(|_| ())
            },
        ],
    ),
    (
        "one key",
        &[
            |store, c| first_error(insert(store, c, &[doc! {"_id": 10, "u": 9}])?),
            |store, c| first_error(insert(store, c, &[doc! {"_id": 11, "u": 9}])?),
            |store, c| update(store, c, &doc! {"_id": 2}, &set("u", 9)).map(|_| ()),
            |store, c| {
                let (filter, change) = (doc! {"u": 9}, set("n", 1));
                let upsert = UpdateRequest {
                    upsert: true,
                    ..update_request(&filter, &change)
                };
                store
                    .update(c, &upsert, LOGGED, &OpContext::new())
                    .map(|_| ())
            },
        ],
    ),
    (
        "one _id",
        &[
            |store, c| first_error(insert(store, c, &[doc! {"_id": 20, "u": 20}])?),
            |store, c| first_error(insert(store, c, &[doc! {"_id": 20, "u": 21}])?),
            |store, c| {
                let (filter, change) = (doc! {"_id": 20}, set("u", 22));
                let upsert = UpdateRequest {
                    upsert: true,
                    ..update_request(&filter, &change)
                };
                store
                    .update(c, &upsert, LOGGED, &OpContext::new())
                    .map(|_| ())
            },
        ],
    ),
];

fn first_error(outcome: InsertOutcome) -> Result<()> {
    match outcome.errors.into_iter().next() {
        Some(failed) => Err(failed.error),
        None => Ok(()),
    }
}

#[test]
fn the_second_of_two_transactions_learns_of_the_conflict_at_once() {
    for (what, writes) in CONFLICTING {
        for (i, first) in writes.iter().enumerate() {
            for (j, second) in writes.iter().enumerate() {
                let (f, c) = fixture();
                let [one, two] = [f.store.begin(), f.store.begin()];
                let (in_one, in_two) = (f.store.in_transaction(&one), f.store.in_transaction(&two));
                first(&in_one, &c).unwrap();
                let name = format!("{what}: {i} then {j}");
                assert_eq!(
                    code(second(&in_two, &c)),
                    ErrorCode::WriteConflict,
                    "{name}"
                );
                // After the abort of the first one there is no conflict.
                one.abort();
                second(&in_two, &c).unwrap_or_else(|error| panic!("{name}: {error}"));
                two.commit(LOGGED).unwrap();
                assert_sound(&f.store, &[&c]);
            }
        }
    }
}

#[test]
fn a_transaction_conflicts_with_what_was_committed_since_its_begin() {
    for (what, writes) in CONFLICTING {
        for (i, first) in writes.iter().enumerate() {
            for (j, second) in writes.iter().enumerate() {
                let (f, c) = fixture();
                let late = f.store.begin();
                first(&f.store, &c).unwrap();
                let inside = f.store.in_transaction(&late);
                let name = format!("{what}: {i} then {j}");
                match second(&inside, &c) {
                    // In a cluster only the commit looks what others have committed.
                    Ok(()) if f.store.engine().cluster().is_some() => {
                        assert_eq!(
                            code(late.commit(LOGGED)),
                            ErrorCode::WriteConflict,
                            "{name}"
                        );
                    }
                    found => {
                        assert_eq!(code(found), ErrorCode::WriteConflict, "{name}");
                        late.abort();
                    }
                }
                assert_sound(&f.store, &[&c]);
            }
        }
    }
}

#[test]
fn a_failed_statement_is_a_duplicate_key_and_not_a_conflict_if_the_transaction_can_see_it() {
    let (f, c) = fixture();
    let transaction = f.store.begin();
    let inside = f.store.in_transaction(&transaction);
    let docs = [
        doc! {"_id": 5, "u": 5},
        doc! {"_id": 6, "u": 1},
        doc! {"_id": 7, "u": 7},
    ];
    assert_eq!(insert_codes(&inside, &c, &docs), [11000]);
    // Without an order, too: the transaction is to be aborted.
    let docs: Vec<&Doc> = docs.iter().map(|doc| &**doc).collect();
    let unordered = frond_store::InsertOptions {
        ordered: false,
        ..INSERT
    };
    let outcome = inside.insert(&c, &docs[1..], unordered).unwrap();
    assert_eq!((outcome.inserted, outcome.errors.len()), (0, 1));
    let own = [doc! {"_id": 5, "u": 50}];
    assert_eq!(
        insert_codes(&inside, &c, &own),
        [11000],
        "a document of its own"
    );
    let error = update(&inside, &c, &doc! {"_id": 2}, &set("u", 5));
    assert_eq!(code(error), ErrorCode::DuplicateKey);
}

/// Runs a write outside on a thread of its own, which can be killed, and returns when it waits for a transaction.
fn waiting<'s, 'e>(
    scope: &'s thread::Scope<'s, 'e>,
    interrupt: &Interrupt,
    write: impl FnOnce() -> Result<()> + Send + 's,
) -> thread::ScopedJoinHandle<'s, Result<()>> {
    let (own, waits) = (interrupt.clone(), interrupt.waits.clone());
    let thread = scope.spawn(move || own.run(write));
    wait_until("a write that waits", || {
        assert!(!thread.is_finished(), "it does not wait");
        waits.get() == Some("an open transaction")
    });
    thread
}

#[test]
fn writers_outside_wait_for_the_end_of_a_transaction() {
    for commits in [false, true] {
        for (what, writes) in CONFLICTING {
            for (i, write) in writes.iter().enumerate() {
                let (f, c) = fixture();
                let transaction = f.store.begin();
                writes[0](&f.store.in_transaction(&transaction), &c).unwrap();
                let outcome = thread::scope(|scope| {
                    let interrupt = Interrupt::default();
                    let waiter = waiting(scope, &interrupt, || write(&f.store, &c));
                    // More than all attempts of a write without a transaction would take if they counted.
                    if i == 0 {
                        thread::sleep(Duration::from_millis(20));
                        assert!(!waiter.is_finished());
                    }
                    if commits {
                        transaction.commit(LOGGED).unwrap()
                    } else {
                        transaction.abort()
                    }
                    waiter.join().unwrap()
                });
                let name = format!("{what}: {i}, commit: {commits}");
                match outcome {
                    Ok(()) => {}
                    // The key or the `_id` is taken now.
                    Err(error) if commits && *what != "one document" => {
                        assert_eq!(error.code(), ErrorCode::DuplicateKey, "{name}");
                    }
                    Err(error) => panic!("{name}: {error}"),
                }
                assert_sound(&f.store, &[&c]);
            }
        }
    }
}

#[test]
fn a_waiting_writer_can_be_interrupted() {
    let (f, c) = fixture();
    let transaction = f.store.begin();
    update(
        &f.store.in_transaction(&transaction),
        &c,
        &doc! {"_id": 1},
        &set("n", 1),
    )
    .unwrap();
    let outside = || update(&f.store, &c, &doc! {"_id": 1}, &doc! {"$inc": {"n": 10}}).map(|_| ());
    thread::scope(|scope| {
        let killed = Interrupt::default();
        let waiter = waiting(scope, &killed, outside);
        killed.killed.store(true, Ordering::SeqCst);
        assert_eq!(code(waiter.join().unwrap()), ErrorCode::Interrupted);
        let closed = Arc::new(AtomicBool::new(false));
        let abandoned = Interrupt {
            abandoned: Some(closed.clone()),
            ..Interrupt::default()
        };
        let waiter = waiting(scope, &abandoned, outside);
        closed.store(true, Ordering::SeqCst);
        assert_eq!(code(waiter.join().unwrap()), ErrorCode::Interrupted);
        let timed = Interrupt {
            deadline: Some(Instant::now() + Duration::from_millis(50)),
            ..Interrupt::default()
        };
        assert_eq!(code(timed.run(outside)), ErrorCode::MaxTimeMSExpired);
    });
    transaction.commit(LOGGED).unwrap();
    assert_eq!(find(&f.store, &c, &doc! {"n": 1}).unwrap().len(), 1);
}

/// The whole pass waited for the end of the transaction.
#[test]
fn a_ttl_pass_leaves_out_what_an_open_transaction_has_written() {
    let f = Fixture::new();
    let c = ns("db.c");
    let index = doc! {"key": {"at": 1}, "expireAfterSeconds": 1};
    f.store.create_indexes(&c, &[&index]).unwrap();
    let docs: Vec<DocBuf> = (0..100)
        .map(|id| doc! {"_id": id, "at": Value::DateTime(0)})
        .collect();
    f.insert(&c, &docs);
    let transaction = f.store.begin();
    let inside = f.store.in_transaction(&transaction);
    update(&inside, &c, &doc! {"_id": 1}, &set("n", 1)).unwrap();
    update(&inside, &c, &doc! {"_id": 50}, &set("n", 1)).unwrap();
    let mut context = OpContext::new();
    context.deadline = Some(Instant::now() + Duration::from_secs(60));
    let done = f.store.delete_expired(1_000_000, &context);
    assert_eq!((done.deleted, done.failed.len()), (98, 0));
    transaction.abort();
    let done = f.store.delete_expired(1_000_000, &OpContext::new());
    assert_eq!((done.deleted, done.failed.len()), (2, 0));
    assert_sound(&f.store, &[&c]);
}

/// Its commits did not get smaller, so that one of their documents was always held by some transaction.
#[test]
fn a_change_of_many_documents_gets_on_beside_short_transactions() {
    let f = Fixture::new();
    let c = ns("db.c");
    let docs: Vec<DocBuf> = (0..20).map(|id| doc! {"_id": id}).collect();
    f.insert(&c, &docs);
    let hold = |id: i32| {
        let transaction = f.store.begin();
        let inside = f.store.in_transaction(&transaction);
        // The update may have committed the document since the begin.
        update(&inside, &c, &doc! {"_id": id}, &set("t", 1)).map(|_| transaction)
    };
    let mut held = hold(18).unwrap();
    thread::scope(|scope| {
        let interrupt = Interrupt::default();
        let waits = interrupt.waits.clone();
        let updating = scope.spawn(|| {
            let filter = doc! {};
            let change = set("n", 1);
            let request = UpdateRequest {
                multi: true,
                ..update_request(&filter, &change)
            };
            interrupt.run(|| f.store.update(&c, &request, LOGGED, &OpContext::new()))
        });
        // One of the last two documents is held at any time.
        let (mut rounds, until) = (0, Instant::now() + PATIENCE);
        while !updating.is_finished() && Instant::now() < until {
            if waits.get() != Some("an open transaction") {
                thread::yield_now();
                continue;
            }
            rounds += 1;
            let next = hold([18, 19][rounds % 2]);
            held.abort();
            let since = Instant::now();
            while waits.get().is_some() && since.elapsed() < Duration::from_millis(50) {
                thread::yield_now();
            }
            if let Ok(next) = next {
                held = next;
            }
        }
        let has_ended = updating.is_finished();
        held.abort();
        assert_eq!(updating.join().unwrap().unwrap().modified, 20);
        assert!(has_ended, "it waited {rounds} times");
    });
}

/// A commit came between the documents and the notes of what they change in memory.
#[test]
fn a_commit_from_another_thread_has_a_statement_whole_or_not_at_all() {
    let f = Fixture::new();
    let c = ns("db.c");
    f.insert(&c, &[doc! {"_id": 0}]);
    let transaction = f.store.begin();
    let inside = f.store.in_transaction(&transaction);
    let (committing, threads) = (transaction.clone(), Rc::new(RefCell::new(Vec::new())));
    let started = threads.clone();
    let acts = at_points(move |point| {
        if point == "a commit is staged in a transaction" {
            let transaction = committing.clone();
            let commit = thread::spawn(move || transaction.commit(LOGGED).map(|_| ()));
            let since = Instant::now();
            while !commit.is_finished() && since.elapsed() < Duration::from_millis(100) {
                thread::yield_now();
            }
            started.borrow_mut().push(commit);
        }
    });
    insert(&inside, &c, &[doc! {"_id": 1}]).unwrap();
    drop(acts);
    for commit in threads.borrow_mut().drain(..) {
        commit.join().unwrap().unwrap();
    }
    assert_eq!(find(&f.store, &c, &doc! {}).unwrap().len(), 2);
    let count = f
        .store
        .count(&c, &CountRequest::default(), &OpContext::new());
    assert_eq!(count.unwrap(), 2);
    assert_sound(&f.store, &[&c]);
}

#[test]
fn many_writers_wait_for_one_transaction_and_lose_nothing() {
    let (f, c) = fixture();
    let transaction = f.store.begin();
    let inside = f.store.in_transaction(&transaction);
    update(&inside, &c, &doc! {"_id": 1}, &doc! {"$inc": {"n": 1000}}).unwrap();
    let change = doc! {"$inc": {"n": 1}};
    thread::scope(|scope| {
        let writers: Vec<_> = (0..8)
            .map(|_| {
                let write = || {
                    for _ in 0..20 {
                        update(&f.store, &c, &doc! {"_id": 1}, &change)?;
                    }
                    Ok(())
                };
                waiting(scope, &Interrupt::default(), write)
            })
            .collect();
        transaction.commit(LOGGED).unwrap();
        for writer in writers {
            writer.join().unwrap().unwrap();
        }
    });
    assert_eq!(find(&f.store, &c, &doc! {"n": 1160}).unwrap().len(), 1);
}

#[test]
fn a_definition_that_changes_meanwhile_is_a_conflict() {
    let target = ns("db.other");
    type Change = fn(&Fixture, &Namespace);
    let changes: [(&str, Change); 6] = [
        ("index", |f, c| {
            f.store
                .create_indexes(c, &[&doc! {"key": {"n": 1}}])
                .unwrap();
        }),
        ("drop", |f, c| {
            f.store.drop_collection(c).unwrap();
        }),
        ("drop and create", |f, c| {
            f.store.drop_collection(c).unwrap();
            f.store.create_collection(c, Doc::empty()).unwrap();
        }),
        ("rename", |f, c| {
            f.store.rename_collection(c, &ns("db.new"), false).unwrap()
        }),
        ("replace", |f, c| {
            f.store.rename_collection(&ns("db.other"), c, true).unwrap();
        }),
        ("validator", |f, c| {
            let changes = doc! {"validator": {"n": {"$gte": 0}}};
            f.store.modify_collection(c, &changes).unwrap();
        }),
    ];
    for (name, change) in changes {
        let write = |inside: &DocumentStore, c: &Namespace| {
            update(inside, c, &doc! {"_id": 1}, &doc! {"$inc": {"n": 5}}).map(|_| ())
        };
        // Before the change, and after it.
        for written_before in [true, false] {
            let (f, c) = fixture();
            f.insert(&target, &[doc! {"_id": 1}]);
            let transaction = f.store.begin();
            let inside = f.store.in_transaction(&transaction);
            if written_before {
                write(&inside, &c).unwrap();
                insert(&inside, &target, &[doc! {"_id": 2}]).unwrap();
            }
            let before = find(&inside, &c, &doc! {}).unwrap();
            change(&f, &c);
            // It reads what it has read before.
            assert_eq!(find(&inside, &c, &doc! {}).unwrap(), before, "{name}");
            let by_index = find(&inside, &c, &doc! {"u": 2}).unwrap();
            assert_eq!(by_index.len(), 1, "{name}");
            assert_eq!(code(write(&inside, &c)), ErrorCode::WriteConflict, "{name}");
            if written_before {
                assert_eq!(
                    code(transaction.commit(LOGGED)),
                    ErrorCode::WriteConflict,
                    "{name}"
                );
                assert!(!transaction.is_open());
            }
            transaction.abort();
            for name in [&c, &target] {
                if f.store.collection_exists(name) {
                    assert_sound(&f.store, &[name]);
                    assert!(find(&f.store, name, &doc! {"n": 5}).unwrap().is_empty());
                }
            }
        }
    }
}

/// A rename that replaces a collection waits for the writers of two collections, and so does a commit.
#[test]
fn commits_and_renames_do_not_block_each_other_for_ever() {
    let f = Fixture::new();
    let (a, b) = (ns("db.a"), ns("db.b"));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let (store, stop) = (&f.store, &stop);
        for client in 0..2 {
            let (a, b) = (&a, &b);
            scope.spawn(move || {
                for n in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let transaction = store.begin();
                    let inside = store.in_transaction(&transaction);
                    let doc = doc! {"_id": format!("{client}.{n}")};
                    let written = insert(&inside, a, std::slice::from_ref(&doc))
                        .and_then(|_| insert(&inside, b, &[doc]))
                        .and_then(|_| transaction.commit(LOGGED));
                    if let Err(error) = written {
                        assert_eq!(error.code(), ErrorCode::WriteConflict);
                    }
                }
            });
        }
        for _ in 0..300 {
            for ns in [&a, &b] {
                store.create_collection(ns, Doc::empty()).unwrap();
            }
            store.rename_collection(&a, &b, true).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_sound(&f.store, &[&b]);
}
