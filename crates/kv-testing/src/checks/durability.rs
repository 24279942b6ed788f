//! Stamps, syncs and restarts.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use frond_kv::{
    CLOSE_CALLED, Direction, Durability, Engine, Error, Operations, Transaction, WriteSet,
};

use super::{ALL, commit, get, new_tree, pairs, put};
use crate::Keyspace;

/// Waits for a future on this thread.
fn wait_for<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let (mut context, mut future) = (Context::from_waker(&waker), pin!(future));
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(result) => return result,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// The stamp and the rest of each key.
fn stamps<E: Engine>(engine: &E, tree: frond_kv::TreeId) -> Vec<(u64, Vec<u8>)> {
    let pairs = pairs(&engine.snapshot(), tree, ALL, Direction::Forward).into_iter();
    pairs
        .map(|(key, _)| {
            let (stamp, rest) = key.split_at(8);
            (u64::from_be_bytes(stamp.try_into().unwrap()), rest.to_vec())
        })
        .collect()
}

/// Keys that commits make are in the order of the commits, and below the stamp that readers may rely on once they are durable.
pub fn stamped_keys_are_in_the_order_of_their_commits<E: Engine>(keyspace: &Keyspace<E>) {
    let engine = keyspace.engine();
    let tree = new_tree(&engine);
    let heard = Arc::new(AtomicU64::new(0));
    let listener = heard.clone();
    engine.set_stamp_listener(Arc::new(move |stamp| {
        listener.fetch_max(stamp, Ordering::SeqCst);
    }));
    let mut expected = Vec::new();
    for round in 0..10_u8 {
        let mut set = WriteSet::with_snapshot(&engine.snapshot());
        set.put_stamped(tree, 1, &[round, b'b'], b"second");
        set.put_stamped(tree, 0, &[round, b'a'], b"first");
        set.put_guarded(tree, &[0xff, round], b"");
        set.delete_guarded(tree, &[0xff, round]);
        let how = match round % 2 {
            0 => Durability::Logged,
            _ => Durability::Synced,
        };
        let first = engine.commit(set, how).unwrap().first_stamp.unwrap();
        expected.push((first, vec![round, b'a']));
        expected.push((first + 1, vec![round, b'b']));
    }
    // With a transaction they come behind its writes.
    let transaction = engine.begin(&engine.snapshot());
    let mut extra = Operations::default();
    extra.put_stamped(tree, 0, b"of a transaction", b"");
    let committed = transaction.commit_reserving(extra, Durability::Logged, || false);
    let first = committed.unwrap().first_stamp.unwrap();
    expected.push((first, b"of a transaction".to_vec()));
    assert!(expected.is_sorted(), "{expected:?}");
    assert_eq!(stamps(&engine, tree), expected);

    engine.request_sync();
    engine.flush_log().unwrap();
    assert!(engine.durable_stamp() >= first);
    assert!(heard.load(Ordering::SeqCst) >= first);
    wait_for(engine.log_flushed()).unwrap();
}

/// A commit that finds no stamps has not taken place, and succeeds when its caller reserves some.
pub fn stamps_that_are_not_reserved_are_asked_for<E: Engine>(keyspace: &Keyspace<E>) {
    let engine = keyspace.engine();
    let Some(numbers) = &keyspace.numbers else {
        return;
    };
    let tree = new_tree(&engine);
    let stamped = || {
        let mut set = WriteSet::new();
        set.put_stamped(tree, 2, b"", b"");
        set
    };
    numbers.reserve(2);
    let refused = engine.commit(stamped(), Durability::Logged);
    assert!(matches!(refused, Err(Error::NoStamp)), "{refused:?}");
    let refused = engine.commit_reserving(stamped(), Durability::Logged, || false);
    assert!(matches!(refused, Err(Error::NoStamp)), "{refused:?}");
    assert!(stamps(&engine, tree).is_empty());
    let mut reserved = 0;
    let committed = engine.commit_reserving(stamped(), Durability::Logged, || {
        reserved += 1;
        numbers.reserve(3);
        true
    });
    let first = committed.unwrap().first_stamp.unwrap();
    assert_eq!(reserved, 1);
    assert_eq!(stamps(&engine, tree), [(first + 2, Vec::new())]);
}

/// Commits before a flush, a sync or a close are there when the engine is opened again.
pub fn what_was_flushed_is_there_after_a_restart<E: Engine>(keyspace: &Keyspace<E>) {
    let engine = keyspace.engine();
    let tree = new_tree(&engine);
    put(&engine, tree, &[("flushed", "1")]);
    engine.flush_log().unwrap();
    let mut set = WriteSet::new();
    set.put(tree, b"synced", b"2");
    engine.commit(set, Durability::Synced).unwrap();
    put(&engine, tree, &[("closed", "3")]);
    engine.close().unwrap();
    engine.close().unwrap();
    let Some(reopen) = &keyspace.reopen else {
        let mut set = WriteSet::new();
        set.put(tree, b"late", b"");
        let refused = engine.commit(set, Durability::Logged);
        assert!(matches!(refused, Err(Error::Closed(text)) if text == CLOSE_CALLED));
        return;
    };
    drop(engine);
    let engine = reopen();
    let snapshot = engine.snapshot();
    for (key, value) in [("flushed", "1"), ("synced", "2"), ("closed", "3")] {
        assert_eq!(get(&snapshot, tree, key).as_deref(), Some(value), "{key}");
    }
    let next = engine.allocate_tree().unwrap();
    assert!(next > tree, "numbers of trees are not used again");
    let mut set = WriteSet::with_snapshot(&snapshot);
    set.put_guarded(tree, b"flushed", b"4");
    commit(&engine, set);
    assert_eq!(
        get(&engine.snapshot(), tree, "flushed").as_deref(),
        Some("4")
    );
}
