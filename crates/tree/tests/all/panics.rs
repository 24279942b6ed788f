//! Panics in background work: it is repeated, and nothing else notices. Panics where going on would lie end the
//! process; the crate's own tests have those (`fail_stop.rs`).

#![allow(clippy::unwrap_used, missing_docs)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use frond_tree::{
    Durability, Error, Malformed, MergeOperator, Options, Store, TreeId, TreeOptions, WriteSet,
};

use crate::waiting::wait_until;

const TREE: TreeId = TreeId(1);

/// The newest delta is the value. Panics while that is asked for.
#[derive(Default)]
struct Newest {
    panics: AtomicBool,
}

impl MergeOperator for Newest {
    fn apply(
        &self,
        _: TreeId,
        _: &[u8],
        _: Option<&[u8]>,
        delta: &[u8],
    ) -> Result<Option<Vec<u8>>, Malformed> {
        assert!(!self.panics.load(Ordering::SeqCst), "as the test asked for");
        Ok(Some(delta.to_vec()))
    }

    fn combine(&self, _: TreeId, _: &[u8], _: &[u8], newer: &[u8]) -> Result<Vec<u8>, Malformed> {
        Ok(newer.to_vec())
    }

    fn check(&self, _: TreeId, _: &[u8], _: &[u8]) -> Result<(), Malformed> {
        Ok(())
    }
}

fn open(path: &std::path::Path) -> (Store, Arc<Newest>) {
    let operator = Arc::new(Newest::default());
    let mut options = Options::new(path);
    options.cache_bytes = 8 << 20;
    options.memtable_bytes = Some(64 << 10);
    options.flush_threads = 2;
    options.merge = operator.clone();
    let store = Store::open(options).unwrap();
    (store, operator)
}

fn commit(store: &Store, number: u32) -> Result<(), Error> {
    let mut set = WriteSet::new();
    set.put(TREE, format!("key {number:06}").as_bytes(), &[b'v'; 200]);
    set.merge(TREE, b"updated", &number.to_be_bytes());
    store.commit(set, Durability::Logged).map(drop)
}

fn check(store: &Store, count: u32) {
    let snapshot = store.snapshot();
    for number in 0..count {
        let key = format!("key {number:06}");
        assert!(snapshot.contains(TREE, key.as_bytes()).unwrap(), "{key}");
    }
}

fn updated(store: &Store) -> Option<Vec<u8>> {
    let value = store.snapshot().get(TREE, b"updated").unwrap();
    value.map(|value| value.to_vec())
}

#[test]
fn a_panic_in_a_flush_is_repeated_work_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let (store, operator) = open(directory.path());
    let mut set = WriteSet::new();
    assert_eq!(store.allocate_tree(), TREE);
    set.create_tree(TREE, &TreeOptions::default());
    store.commit(set, Durability::Logged).unwrap();
    for number in 0..10 {
        commit(&store, number).unwrap();
    }

    // The caller of a checkpoint gets an error, and nothing is published.
    operator.panics.store(true, Ordering::SeqCst);
    assert!(matches!(store.checkpoint(), Err(Error::Internal(_))));
    // Commits go on until the memtables are full. They never hang.
    let mut count = 10;
    let stalled = loop {
        match commit(&store, count) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
        assert!(count < 100_000);
    };
    assert!(
        matches!(
            stalled,
            Error::Stalled {
                disk_full: false,
                ..
            }
        ),
        "{stalled}"
    );
    check(&store, count);

    // The flusher tries again by itself.
    operator.panics.store(false, Ordering::SeqCst);
    wait_until("a commit that succeeds", || commit(&store, count).is_ok());
    count += 1;
    store.checkpoint().unwrap();
    check(&store, count);
    assert_eq!(updated(&store), Some((count - 1).to_be_bytes().to_vec()));
    store.close().unwrap();
    drop(store);
    let (store, _) = open(directory.path());
    check(&store, count);
    assert_eq!(updated(&store), Some((count - 1).to_be_bytes().to_vec()));
}
