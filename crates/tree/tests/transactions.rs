//! Transactions: what they see, when they conflict, what they leave behind, and what they take.
#![allow(clippy::unwrap_used, missing_docs)]

use std::ops::Bound::Unbounded;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use frond_tree::{
    Direction, Durability, Error, Interrupt, MemoryUse, Options, Snapshot, Store, Transaction,
    TreeId, TreeOptions, WriteSet,
};

fn options(path: &std::path::Path) -> Options {
    let mut options = Options::new(path);
    options.cache_bytes = 8 << 20;
    options.memtable_bytes = Some(64 << 10);
    options.fanout = 4;
    options
}

fn with_tree(options: Options) -> (Store, TreeId) {
    let store = Store::open(options).unwrap();
    let tree = store.allocate_tree();
    let mut set = WriteSet::new();
    set.create_tree(tree, &TreeOptions::default());
    store.commit(set, Durability::Logged).unwrap();
    (store, tree)
}

fn put(store: &Store, tree: TreeId, key: &[u8], value: &[u8]) -> Result<(), Error> {
    let mut set = WriteSet::with_snapshot(&store.snapshot());
    set.put_guarded(tree, key, value);
    store.commit(set, Durability::Logged)
}

fn stage_put(on: &Transaction, tree: TreeId, key: &[u8], value: &[u8]) -> Result<(), Error> {
    let mut set = on.write_set();
    set.put_guarded(tree, key, value);
    on.stage(set)
}

fn commit(transaction: Transaction) -> Result<(), Error> {
    transaction.commit(WriteSet::new(), Durability::Logged)
}

fn text(snapshot: &Snapshot, tree: TreeId) -> String {
    let read = |direction| {
        let mut cursor = snapshot
            .cursor(tree, Unbounded, Unbounded, direction)
            .unwrap();
        let mut all = Vec::new();
        while let Some((key, value)) = cursor.next().unwrap() {
            assert_eq!(snapshot.get(tree, key).unwrap().as_deref(), Some(value));
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            all.push(format!("{}={}", text(key), text(value)));
        }
        all
    };
    let forward = read(Direction::Forward);
    let mut backward = read(Direction::Backward);
    backward.reverse();
    assert_eq!(forward, backward);
    forward.join(" ")
}

fn held(result: Result<(), Error>) -> Option<bool> {
    match result {
        Ok(()) => None,
        Err(Error::Conflict { held, .. }) => Some(held),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_transaction_sees_its_own_writes_and_nobody_else_does() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree) = with_tree(options(directory.path()));
    for key in [b"a", b"b", b"c", b"d"] {
        put(&store, tree, key, b"old").unwrap();
    }
    let transaction = store.begin(&store.snapshot());
    assert!(transaction.is_empty() && transaction.bytes() == 0);
    put(&store, tree, b"e", b"later").unwrap();
    let before = transaction.snapshot();
    assert_eq!(text(&before, tree), "a=old b=old c=old d=old");
    let mut set = transaction.write_set();
    set.delete_range(tree, b"b", Some(b"d"));
    set.put_guarded(tree, b"c", b"new");
    set.delete_guarded(tree, b"a");
    set.put(tree, b"z", b"last");
    transaction.stage(set).unwrap();
    let middle = transaction.snapshot();
    let new_tree = store.allocate_tree();
    let mut set = transaction.write_set();
    set.create_tree(new_tree, &TreeOptions::default());
    set.put(new_tree, b"k", b"v");
    set.put_guarded(tree, b"c", b"newer");
    transaction.stage(set).unwrap();
    // Each snapshot sees what was staged before it.
    assert_eq!(text(&before, tree), "a=old b=old c=old d=old");
    assert_eq!(text(&middle, tree), "c=new d=old z=last");
    assert!(!middle.has_tree(new_tree));
    let now = transaction.snapshot();
    assert_eq!(text(&now, tree), "c=newer d=old z=last");
    assert_eq!(text(&now, new_tree), "k=v");
    assert_eq!(now.key_upper_bound(new_tree).unwrap().unwrap(), b"k");
    let outside = store.snapshot();
    assert_eq!(text(&outside, tree), "a=old b=old c=old d=old e=later");
    assert!(!outside.has_tree(new_tree));
    let mut extra = WriteSet::new();
    extra.put(tree, b"y", b"extra");
    transaction.commit(extra, Durability::Synced).unwrap();
    let expected = "c=newer d=old e=later y=extra z=last";
    assert_eq!(text(&store.snapshot(), tree), expected);
    assert_eq!(text(&store.snapshot(), new_tree), "k=v");
    assert_eq!(text(&now, tree), "c=newer d=old z=last", "after the end");
    drop((before, middle, now));
    assert_eq!(store.memory().used(MemoryUse::Transactions), 0);
    store.close().unwrap();
    let store = Store::open(options(directory.path())).unwrap();
    assert_eq!(text(&store.snapshot(), tree), expected);
}

#[test]
fn an_aborted_transaction_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree) = with_tree(options(directory.path()));
    put(&store, tree, b"a", b"1").unwrap();
    let logged = store.stats().log_bytes;
    let transaction = store.begin(&store.snapshot());
    stage_put(&transaction, tree, b"a", b"2").unwrap();
    stage_put(&transaction, tree, b"b", b"2").unwrap();
    assert_eq!(held(put(&store, tree, b"a", b"3")), Some(true));
    drop(transaction);
    assert_eq!(store.stats().log_bytes, logged);
    assert_eq!(store.memory().used(MemoryUse::Transactions), 0);
    assert_eq!(text(&store.snapshot(), tree), "a=1");
    put(&store, tree, b"a", b"3").unwrap();
    put(&store, tree, b"b", b"3").unwrap();
}

#[test]
fn the_first_writer_of_a_key_wins() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree) = with_tree(options(directory.path()));
    let [first, second] = [(); 2].map(|()| store.begin(&store.snapshot()));
    stage_put(&first, tree, b"a", b"1").unwrap();
    stage_put(&first, tree, b"a", b"2").unwrap();
    stage_put(&second, tree, b"b", b"1").unwrap();
    // A set that conflicts adds nothing, and holds no key.
    let mut set = second.write_set();
    set.put_guarded(tree, b"c", b"1");
    set.put_guarded(tree, b"a", b"1");
    assert_eq!(held(second.stage(set)), Some(true));
    assert_eq!(text(&second.snapshot(), tree), "b=1");
    put(&store, tree, b"c", b"2").unwrap();
    // What was committed after the snapshot is a conflict at once.
    assert_eq!(held(stage_put(&second, tree, b"c", b"3")), Some(false));
    let mut guard = second.write_set();
    guard.guard(tree, b"a");
    assert_eq!(held(second.stage(guard)), Some(true));
    commit(first).unwrap();
    assert_eq!(held(stage_put(&second, tree, b"a", b"3")), Some(false));
    commit(second).unwrap();
    assert_eq!(text(&store.snapshot(), tree), "a=2 b=1 c=2");
}

/// Write sets without a snapshot are not refused, so the transaction is.
#[test]
fn a_commit_checks_again() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree) = with_tree(options(directory.path()));
    let transaction = store.begin(&store.snapshot());
    stage_put(&transaction, tree, b"a", b"1").unwrap();
    let mut set = WriteSet::new();
    set.put_guarded(tree, b"a", b"2");
    store.commit(set, Durability::Logged).unwrap();
    assert_eq!(held(commit(transaction)), Some(false));
    assert_eq!(text(&store.snapshot(), tree), "a=2");
    // So are guards that only join at the commit.
    let [first, second] = [(); 2].map(|()| store.begin(&store.snapshot()));
    stage_put(&first, tree, b"a", b"3").unwrap();
    let mut extra = second.write_set();
    extra.put_guarded(tree, b"a", b"4");
    assert_eq!(held(second.commit(extra, Durability::Logged)), Some(true));
    commit(first).unwrap();
    assert_eq!(text(&store.snapshot(), tree), "a=3");
    put(&store, tree, b"a", b"5").unwrap();
}

#[test]
fn a_commit_outside_waits_for_the_end_of_a_transaction() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree) = with_tree(options(directory.path()));
    put(&store, tree, b"n", b"1").unwrap();
    store.await_transaction(tree, b"n").unwrap();
    for commits in [true, false] {
        let transaction = store.begin(&store.snapshot());
        stage_put(&transaction, tree, b"n", b"2").unwrap();
        let interrupt = Interrupt::default();
        let waits = interrupt.waits.clone();
        let waiting = thread::spawn({
            let store = store.clone();
            move || {
                interrupt.run(|| {
                    assert_eq!(held(put(&store, tree, b"n", b"3")), Some(true));
                    store.await_transaction(tree, b"n").unwrap();
                    let seen = store.snapshot().get(tree, b"n").unwrap().unwrap().to_vec();
                    put(&store, tree, b"n", b"1").unwrap();
                    seen
                })
            }
        });
        while waits.get().is_none() {
            thread::yield_now();
        }
        assert_eq!(waits.get(), Some("an open transaction"));
        match commits {
            true => commit(transaction).unwrap(),
            false => drop(transaction),
        }
        let seen = waiting.join().unwrap();
        assert_eq!(seen, if commits { b"2" } else { b"1" });
    }
    // The wait ends with its operation.
    let transaction = store.begin(&store.snapshot());
    stage_put(&transaction, tree, b"n", b"2").unwrap();
    let timed = Interrupt {
        deadline: Some(Instant::now() + Duration::from_millis(30)),
        ..Interrupt::default()
    };
    let over = timed.run(|| store.await_transaction(tree, b"n"));
    assert!(matches!(over, Err(Error::Interrupted { timed_out: true })));
    let killed = Interrupt {
        killed: Arc::new(AtomicBool::new(true)),
        ..Interrupt::default()
    };
    let over = killed.run(|| store.await_transaction(tree, b"n"));
    assert!(matches!(over, Err(Error::Interrupted { timed_out: false })));
}
