//! Transactions, and waits for them.

use std::sync::atomic::Ordering;
use std::time::Instant;

use frond_kv::{
    Direction, Durability, Engine, Error, Interrupt, MemoryUse, Operations, Result, Transaction,
    TreeId, WriteSet,
};

use super::{ALL, commit, get, keys, new_tree, put};
use crate::Keyspace;

fn stage<T: Transaction>(transaction: &T, tree: TreeId, key: &str) -> Result<()> {
    let mut set = Operations::default();
    set.put_guarded(tree, key.as_bytes(), b"mine");
    transaction.stage_leaving_room(set, 0)
}

fn end<T: Transaction>(transaction: T) -> Result<()> {
    let done = transaction.commit_reserving(Operations::default(), Durability::Logged, || false);
    done.map(drop)
}

/// A transaction reads what it has written, others do not, and the first committer wins.
pub fn transactions_see_their_writes_and_conflict<E: Engine>(keyspace: &Keyspace<E>) {
    let (engine, other) = (keyspace.engine(), keyspace.engine());
    let tree = new_tree(&engine);
    put(&engine, tree, &[("a", "0"), ("b", "0"), ("d", "0")]);
    let transaction = engine.begin(&engine.snapshot());
    assert!(transaction.is_empty());
    stage(&transaction, tree, "a").unwrap();
    let early = transaction.snapshot();
    stage(&transaction, tree, "c").unwrap();
    let mut set = Operations::default();
    set.delete_guarded(tree, b"b");
    transaction.stage_leaving_room(set, 0).unwrap();
    assert!(!transaction.is_empty());
    let own = transaction.snapshot();
    assert_eq!(get(&own, tree, "a").as_deref(), Some("mine"));
    assert_eq!(keys(&own, tree, ALL, Direction::Forward), ["a", "c", "d"]);
    assert_eq!(keys(&own, tree, ALL, Direction::Backward), ["d", "c", "a"]);
    assert_eq!(keys(&early, tree, ALL, Direction::Forward), ["a", "b", "d"]);
    assert_eq!(get(&engine.snapshot(), tree, "a").as_deref(), Some("0"));

    // Another transaction of the same server meets it at once.
    let second = engine.begin(&engine.snapshot());
    let held = stage(&second, tree, "a");
    assert!(
        matches!(held, Err(Error::Conflict { held: true, .. })),
        "{held:?}"
    );
    drop(second);
    let mut extra = Operations::default();
    extra.put(tree, b"extra", b"");
    let done = transaction.commit_reserving(extra, Durability::Logged, || false);
    done.unwrap();
    let now = other.snapshot();
    assert_eq!(
        keys(&now, tree, ALL, Direction::Forward),
        ["a", "c", "d", "extra"]
    );

    // A commit after its begin.
    let transaction = other.begin(&other.snapshot());
    let mut set = WriteSet::with_snapshot(&engine.snapshot());
    set.put_guarded(tree, b"d", b"1");
    commit(&engine, set);
    let done = stage(&transaction, tree, "d").and_then(|()| end(transaction));
    assert!(
        matches!(done, Err(Error::Conflict { held: false, .. })),
        "{done:?}"
    );
}

/// After an abort the writes, the held keys and the memory of the transaction are gone.
pub fn a_dropped_transaction_leaves_nothing<E: Engine>(keyspace: &Keyspace<E>) {
    let engine = keyspace.engine();
    let tree = new_tree(&engine);
    put(&engine, tree, &[("a", "0")]);
    let used = || engine.memory().used(MemoryUse::Transactions);
    let before = used();
    let transaction = engine.begin(&engine.snapshot());
    for i in 0..100 {
        stage(&transaction, tree, &format!("key {i}")).unwrap();
    }
    stage(&transaction, tree, "a").unwrap();
    assert!(transaction.bytes() > 100 && used() > before);
    let kept = transaction.snapshot();
    drop(transaction);
    assert_eq!(used(), before);
    assert_eq!(get(&kept, tree, "a").as_deref(), Some("mine"));
    assert_eq!(
        keys(&engine.snapshot(), tree, ALL, Direction::Forward),
        ["a"]
    );
    engine.await_transaction(tree, b"a").unwrap();
    let next = engine.begin(&engine.snapshot());
    stage(&next, tree, "a").unwrap();
    end(next).unwrap();
    assert_eq!(get(&engine.snapshot(), tree, "a").as_deref(), Some("mine"));
    // Stamped keys are made by the commit, so that the transaction could not read them.
    let stamped = engine.begin(&engine.snapshot());
    let mut set = Operations::default();
    set.put_stamped(tree, 0, b"", b"");
    let refused = stamped.stage_leaving_room(set, 0);
    assert!(
        matches!(refused, Err(Error::InvalidOption(_))),
        "{refused:?}"
    );
}

/// A wait ends with the transaction, with a kill and at a deadline.
pub fn waits_for_transactions_end_by_interrupts<E: Engine>(keyspace: &Keyspace<E>) {
    let engine = keyspace.engine();
    let tree = new_tree(&engine);
    let transaction = engine.begin(&engine.snapshot());
    stage(&transaction, tree, "a").unwrap();
    let wait = |interrupt: Interrupt| interrupt.run(|| engine.await_transaction(tree, b"a"));

    let late = Interrupt {
        deadline: Some(Instant::now()),
        ..Interrupt::default()
    };
    let ended = wait(late);
    assert!(
        matches!(ended, Err(Error::Interrupted { timed_out: true })),
        "{ended:?}"
    );
    std::thread::scope(|scope| {
        let (killed, patient) = (Interrupt::default(), Interrupt::default());
        let waits = [killed.waits.clone(), patient.waits.clone()];
        let (kill, of_killed) = (killed.killed.clone(), killed);
        let first = scope.spawn(|| wait(of_killed));
        let second = scope.spawn(|| wait(patient));
        while waits.iter().any(|waits| waits.get().is_none()) {
            std::thread::yield_now();
        }
        assert_eq!(waits[0].get(), Some("an open transaction"));
        kill.store(true, Ordering::Relaxed);
        let ended = first.join().unwrap();
        assert!(
            matches!(ended, Err(Error::Interrupted { timed_out: false })),
            "{ended:?}"
        );
        assert!(!second.is_finished());
        drop(transaction);
        second.join().unwrap().unwrap();
    });
    engine.await_transaction(tree, b"a").unwrap();
}
