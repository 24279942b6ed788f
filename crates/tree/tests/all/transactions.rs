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
    store.commit(set, Durability::Logged).map(drop)
}

fn stage_put(on: &Transaction, tree: TreeId, key: &[u8], value: &[u8]) -> Result<(), Error> {
    let mut set = on.write_set();
    set.put_guarded(tree, key, value);
    on.stage(set)
}

fn commit(transaction: Transaction) -> Result<(), Error> {
    transaction
        .commit(WriteSet::new(), Durability::Logged)
        .map(drop)
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

fn held<T>(result: Result<T, Error>) -> Option<bool> {
    match result {
        Ok(_) => None,
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
    // A key that was committed after the snapshot is a conflict at once.
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
        if commits {
            commit(transaction).unwrap()
        } else {
            drop(transaction)
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

/// 100,000 documents with two indexes in one transaction, within a budget of the default size on a small machine.
#[test]
fn a_large_transaction_fits_into_the_budget() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = Options::new(directory.path());
    options.cache_bytes = 512 << 20;
    options.client_bytes = Some(128 << 20);
    let (store, documents) = with_tree(options);
    let used = || store.memory().used(MemoryUse::Transactions);
    let indexes = [store.allocate_tree(), store.allocate_tree()];
    let transaction = store.begin(&store.snapshot());
    let mut set = transaction.write_set();
    for index in indexes {
        set.create_tree(index, &TreeOptions::default());
    }
    transaction.stage(set).unwrap();
    let document = [b'd'; 900];
    for batch in 0..100u32 {
        let mut set = transaction.write_set();
        for number in batch * 1000..batch * 1000 + 1000 {
            let key = number.to_be_bytes();
            set.put_guarded(documents, &key, &document);
            let scattered = number.wrapping_mul(0x9e37_79b9).to_be_bytes();
            set.put(indexes[0], &[scattered, key].concat(), b"");
            set.put_guarded(indexes[1], &[[7; 4], key].concat(), b"");
        }
        transaction.stage(set).unwrap();
    }
    assert_eq!(used(), transaction.bytes() as u64);
    // Both copies are counted.
    assert!(transaction.bytes() > 2 * 90_000_000);
    assert!(transaction.bytes() < 300 << 20, "{}", transaction.bytes());
    let snapshot = transaction.snapshot();
    let mut cursor = snapshot
        .cursor(indexes[0], Unbounded, Unbounded, Direction::Backward)
        .unwrap();
    let mut count = 0;
    while cursor.next().unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, 100_000);
    drop((cursor, snapshot));
    commit(transaction).unwrap();
    assert_eq!(used(), 0);
    let last = 99_999u32.to_be_bytes();
    assert!(store.snapshot().contains(documents, &last).unwrap());
}

/// 29,000 open transactions with one small document each took 400 MiB, of which 33 MiB were counted.
#[test]
fn many_small_transactions_are_refused_before_they_take_all_memory() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree) = with_tree(options(directory.path()));
    let mut open = Vec::new();
    let refused = loop {
        let transaction = store.begin(&store.snapshot());
        let number = open.len() as u32;
        if let Err(error) = stage_put(&transaction, tree, &number.to_be_bytes(), b"small") {
            break error;
        }
        open.push(transaction);
    };
    assert!(matches!(refused, Error::OutOfMemory { .. }), "{refused}");
    let used = store.memory().used(MemoryUse::Transactions);
    assert!(used as usize > open.len() * (12 << 10), "{used}");
    assert!(used < store.memory().limit() / 4 * 3, "{used}");
    open.truncate(open.len() / 2);
    let transaction = store.begin(&store.snapshot());
    stage_put(&transaction, tree, b"another", b"small").unwrap();
    drop((open, transaction));
    assert_eq!(store.memory().used(MemoryUse::Transactions), 0);
}

#[test]
fn a_transaction_that_exceeds_the_limits_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree) = with_tree(options(directory.path()));
    let large = store.begin(&store.snapshot());
    let mut staged = 0u8;
    let refused = loop {
        match stage_put(&large, tree, &[staged], &[7; 500 << 10]) {
            Ok(()) => staged += 1,
            Err(error) => break error,
        }
    };
    let text = refused.to_string();
    assert!(matches!(refused, Error::OutOfMemory { .. }), "{text}");
    assert!(staged > 2 && store.memory().refused() < 3);
    // Nothing of the refused set is there, and others may use its key.
    assert!(!large.snapshot().contains(tree, &[staged]).unwrap());
    put(&store, tree, &[staged], b"").unwrap();
    // Memory is scarce, and still there is some for small ones.
    let small = store.begin(&store.snapshot());
    stage_put(&small, tree, b"small", &[7; 100 << 10]).unwrap();
    assert!(matches!(
        stage_put(&small, tree, b"larger", &[7; 500 << 10]),
        Err(Error::OutOfMemory { .. })
    ));
    commit(small).unwrap();
    commit(large).unwrap();
    assert!(store.snapshot().contains(tree, &[staged - 1]).unwrap());
    assert_eq!(store.memory().used(MemoryUse::Transactions), 0);

    // The limit of a write set holds for all of a transaction.
    let directory = tempfile::tempdir().unwrap();
    let mut options = options(directory.path());
    options.cache_bytes = 1 << 30;
    let (store, tree) = with_tree(options);
    let transaction = store.begin(&store.snapshot());
    let ranges = || {
        let mut set = transaction.write_set();
        for _ in 0..40_000 {
            set.delete_range(tree, b"a", None);
        }
        transaction.stage(set)
    };
    ranges().unwrap();
    assert!(matches!(ranges(), Err(Error::TooLarge { .. })));
    let mut extra = WriteSet::new();
    extra.put(tree, &vec![0; frond_tree::KEY_BYTES_MAX + 1], b"");
    let refused = transaction.commit(extra, Durability::Logged);
    assert!(matches!(refused, Err(Error::TooLarge { what: "key", .. })));
}

/// A transaction that is open for long keeps no flushed memtable in memory, once it is detached.
#[test]
fn an_open_transaction_does_not_pin_flushed_memtables() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree) = with_tree(options(directory.path()));
    let other = store.allocate_tree();
    let mut set = WriteSet::new();
    set.create_tree(other, &TreeOptions::default());
    set.put(other, b"k", b"v");
    store.commit(set, Durability::Logged).unwrap();
    for number in 0..20u32 {
        put(&store, tree, &number.to_be_bytes(), &[7; 1000]).unwrap();
    }
    let transaction = store.begin(&store.snapshot());
    stage_put(&transaction, tree, &5u32.to_be_bytes(), b"mine").unwrap();
    let new_tree = store.allocate_tree();
    let mut set = transaction.write_set();
    set.create_tree(new_tree, &TreeOptions::default());
    set.put(new_tree, b"k", b"new");
    transaction.stage(set).unwrap();
    for number in 0..200u32 {
        let key = [b"later ", &number.to_be_bytes()[..]].concat();
        put(&store, tree, &key, &[8; 1000]).unwrap();
    }
    store.checkpoint().unwrap();
    assert!(store.retained_by(&transaction.snapshot()) > 0);
    transaction.detach().unwrap();
    assert_eq!(store.retained_by(&transaction.snapshot()), 0);
    assert_eq!(store.retained_bytes(), 0);
    let check = |snapshot: &Snapshot| {
        for number in 0..20u32 {
            let found = snapshot.get(tree, &number.to_be_bytes()).unwrap().unwrap();
            let expected = if number == 5 {
                &b"mine"[..]
            } else {
                &[7; 1000]
            };
            assert_eq!(&*found, expected);
        }
        assert_eq!(text(snapshot, new_tree), "k=new");
        assert_eq!(text(snapshot, other), "k=v");
    };
    check(&transaction.snapshot());
    assert!(!transaction.snapshot().contains(tree, b"later ").unwrap());
    stage_put(&transaction, tree, &6u32.to_be_bytes(), &[7; 1000]).unwrap();
    check(&transaction.snapshot());
    commit(transaction).unwrap();
    check(&store.snapshot());
}

/// Transfers between accounts in two trees, in transactions and outside of them, from several threads: the sum is the same
/// in every snapshot, and no transfer is lost.
#[test]
fn a_bank_keeps_its_money() {
    const ACCOUNTS: u64 = 20;
    const START: i64 = 1000;
    const THREADS: u64 = 4;
    const EACH: u64 = 200;
    let directory = tempfile::tempdir().unwrap();
    let (store, tree) = with_tree(options(directory.path()));
    let trees = [tree, store.allocate_tree()];
    let mut set = WriteSet::new();
    set.create_tree(trees[1], &TreeOptions::default());
    for account in 0..ACCOUNTS {
        let tree = trees[account as usize % 2];
        set.put(tree, &account.to_be_bytes(), &START.to_le_bytes());
    }
    store.commit(set, Durability::Logged).unwrap();
    let read = |snapshot: &Snapshot, account: u64| {
        let value = snapshot.get(trees[account as usize % 2], &account.to_be_bytes());
        i64::from_le_bytes(value.unwrap().unwrap()[..].try_into().unwrap())
    };
    let sum = |snapshot: &Snapshot| (0..ACCOUNTS).map(|one| read(snapshot, one)).sum::<i64>();
    let write = |set: &mut WriteSet, account: u64, balance: i64| {
        let tree = trees[account as usize % 2];
        set.put_guarded(tree, &account.to_be_bytes(), &balance.to_le_bytes());
    };
    // Returns whether it took place.
    let transfer = |from: u64, to: u64| -> Result<bool, Error> {
        let transaction = store.begin(&store.snapshot());
        for (account, change) in [(from, -1), (to, 1)] {
            let mut set = transaction.write_set();
            let balance = read(&transaction.snapshot(), account);
            write(&mut set, account, balance + change);
            transaction.stage(set)?;
            thread::yield_now();
        }
        assert_eq!(sum(&transaction.snapshot()), START * ACCOUNTS as i64);
        if from.is_multiple_of(7) {
            return Ok(false);
        }
        commit(transaction).map(|()| true)
    };
    let plainly = |from: u64, to: u64| -> Result<bool, Error> {
        let snapshot = store.snapshot();
        let mut set = WriteSet::with_snapshot(&snapshot);
        write(&mut set, from, read(&snapshot, from) - 1);
        write(&mut set, to, read(&snapshot, to) + 1);
        match store.commit(set, Durability::Logged) {
            Err(Error::Conflict {
                held: true,
                tree,
                key,
            }) => {
                store.await_transaction(tree, &key).unwrap();
                Ok(false)
            }
            result => result.map(|_| true),
        }
    };
    let paid = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                let (transfer, plainly, sum, store) = (&transfer, &plainly, &sum, &store);
                scope.spawn(move || {
                    let mut paid = [0i64; ACCOUNTS as usize];
                    for round in 0..EACH {
                        let from = (round * 13 + number * 5) % ACCOUNTS;
                        let to = (from + 1 + round % (ACCOUNTS - 1)) % ACCOUNTS;
                        let done = match number % 2 {
                            0 => transfer(from, to),
                            _ => plainly(from, to),
                        };
                        match done {
                            Ok(true) => {
                                paid[from as usize] -= 1;
                                paid[to as usize] += 1;
                            }
                            Ok(false) | Err(Error::Conflict { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                        assert_eq!(sum(&store.snapshot()), START * ACCOUNTS as i64);
                    }
                    paid
                })
            })
            .collect();
        let all = threads.into_iter().map(|thread| thread.join().unwrap());
        all.fold([0i64; ACCOUNTS as usize], |mut sum, paid| {
            (0..sum.len()).for_each(|account| sum[account] += paid[account]);
            sum
        })
    });
    for account in 0..ACCOUNTS {
        let balance = read(&store.snapshot(), account);
        assert_eq!(balance, START + paid[account as usize], "{account}");
    }
    assert!(paid.iter().any(|paid| *paid != 0));
}
