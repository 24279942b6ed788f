//! Stamped keys: commits make them, in the order in which they become visible.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use frond_tree::disk::FsDisk;
use frond_tree::{
    Committed, Direction, Durability, Error, Options, Snapshot, Stamps, Store, TreeId, TreeOptions,
    WriteSet,
};

const LOG: TreeId = TreeId(1);
const DATA: TreeId = TreeId(2);
const WAIT: Duration = Duration::from_secs(20);

/// Counts on, up to a bound.
struct Counter {
    next: AtomicU64,
    bound: AtomicU64,
}

impl Counter {
    fn from(next: u64) -> Arc<Counter> {
        Arc::new(Counter {
            next: AtomicU64::new(next),
            bound: AtomicU64::new(u64::MAX),
        })
    }
}

impl Stamps for Counter {
    fn take(&self, count: u32) -> Option<u64> {
        let bound = self.bound.load(Ordering::Relaxed);
        let next = self.next.load(Ordering::Relaxed);
        let after = next.checked_add(u64::from(count))?;
        (after <= bound).then(|| self.next.swap(after, Ordering::Relaxed))
    }
}

fn options(path: &Path, stamps: &Arc<Counter>) -> Options {
    let mut options = Options::with_disk(Arc::new(FsDisk::new(path.to_owned(), false)));
    options.cache_bytes = 16 << 20;
    options.stamps = Some(stamps.clone());
    options
}

fn open(path: &Path, stamps: &Arc<Counter>) -> Store {
    let store = Store::open(options(path, stamps)).unwrap();
    for tree in [LOG, DATA] {
        if !store.has_tree(tree) {
            assert_eq!(store.allocate_tree(), tree);
            let mut set = WriteSet::new();
            set.create_tree(tree, &TreeOptions::default());
            store.commit(set, Durability::Logged).unwrap();
        }
    }
    store
}

/// A commit with `count` stamped keys and an ordinary one, which names the commit.
fn commit(store: &Store, name: &str, count: u32, how: Durability) -> Committed {
    let mut set = WriteSet::new();
    for offset in 0..count {
        set.put_stamped(LOG, offset, b"", format!("{name}.{offset}").as_bytes());
    }
    set.put(DATA, name.as_bytes(), b"");
    store.commit(set, how).unwrap()
}

/// The stamps of a tree and the values.
fn entries(snapshot: &Snapshot) -> Vec<(u64, String)> {
    let mut cursor = snapshot
        .cursor(LOG, Bound::Unbounded, Bound::Unbounded, Direction::Forward)
        .unwrap();
    let mut found = Vec::new();
    while let Some((key, value)) = cursor.next().unwrap() {
        let stamp = u64::from_be_bytes(key[..8].try_into().unwrap());
        found.push((stamp, String::from_utf8(value.to_vec()).unwrap()));
    }
    found
}

/// A listener that sends what it is told.
fn listen(store: &Store) -> Receiver<u64> {
    let (told, stamps) = channel();
    store.set_stamp_listener(Arc::new(move |stamp| {
        let _ = told.send(stamp);
    }));
    stamps
}

/// Waits until the listener was told a stamp.
fn await_stamp(stamps: &Receiver<u64>, stamp: u64) {
    while stamps
        .recv_timeout(WAIT)
        .expect("the stamp becomes durable")
        < stamp
    {}
}

#[test]
fn keys_are_made_by_the_commit_and_again_by_the_replay() {
    let directory = tempfile::tempdir().unwrap();
    let stamps = Counter::from(100);
    let store = open(directory.path(), &stamps);
    assert_eq!(
        commit(&store, "a", 2, Durability::Logged).first_stamp,
        Some(100)
    );
    assert_eq!(commit(&store, "b", 0, Durability::Logged).first_stamp, None);
    // Others take stamps too.
    stamps.take(5).unwrap();
    let mut set = WriteSet::new();
    set.put_stamped(LOG, 3, b" with a suffix", b"c.3");
    set.put_stamped(LOG, 1, b"", b"c.1");
    let committed = store.commit(set, Durability::Logged).unwrap();
    assert_eq!(committed.first_stamp, Some(107));
    assert_eq!(
        commit(&store, "d", 1, Durability::Synced).first_stamp,
        Some(111)
    );
    let expected: Vec<(u64, String)> = [
        (100, "a.0"),
        (101, "a.1"),
        (108, "c.1"),
        (110, "c.3"),
        (111, "d.0"),
    ]
    .map(|(stamp, text)| (stamp, text.to_owned()))
    .into();
    assert_eq!(entries(&store.snapshot()), expected);
    let key = [&110u64.to_be_bytes()[..], b" with a suffix"].concat();
    assert!(store.snapshot().contains(LOG, &key).unwrap());
    // A copy has what the log has.
    let copy = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(directory.path()).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
    }
    let again = open(copy.path(), &stamps);
    assert_eq!(entries(&again.snapshot()), expected);
    assert_eq!(again.durable_stamp(), 111);
    assert_eq!(
        commit(&again, "e", 1, Durability::Synced).first_stamp,
        Some(112)
    );
    again.close().unwrap();
    drop(again);
    let again = open(copy.path(), &stamps);
    assert_eq!(entries(&again.snapshot()).len(), 6);
    // Nothing of it is in the log.
    assert_eq!(again.durable_stamp(), 0);
}

#[test]
fn a_commit_without_stamps_stores_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let stamps = Counter::from(1);
    let store = open(directory.path(), &stamps);
    stamps.bound.store(4, Ordering::Relaxed);
    commit(&store, "a", 2, Durability::Logged);
    let mut set = WriteSet::new();
    set.put(DATA, b"b", b"");
    set.put_stamped(LOG, 1, b"", b"");
    assert!(matches!(
        store.commit(set, Durability::Logged),
        Err(Error::NoStamp)
    ));
    assert!(!store.snapshot().contains(DATA, b"b").unwrap());
    assert_eq!(
        commit(&store, "c", 1, Durability::Logged).first_stamp,
        Some(3)
    );
    // A source that goes back would mix up the order.
    stamps.next.store(2, Ordering::Relaxed);
    let mut set = WriteSet::new();
    set.put_stamped(LOG, 0, b"", b"");
    let refused = store.commit(set, Durability::Logged);
    assert!(
        matches!(refused, Err(Error::InvalidOption(text)) if text.contains("2 was given out after 3"))
    );
    assert_eq!(entries(&store.snapshot()).len(), 3);
    drop(store);

    let mut options = options(directory.path(), &stamps);
    options.stamps = None;
    let store = Store::open(options).unwrap();
    let mut set = WriteSet::new();
    set.put_stamped(LOG, 0, b"", b"");
    assert!(matches!(
        store.commit(set, Durability::Logged),
        Err(Error::InvalidOption(_))
    ));
    let mut set = WriteSet::new();
    set.put_stamped(LOG, u32::MAX, b"", b"");
    assert!(matches!(
        store.commit(set, Durability::Logged),
        Err(Error::TooLarge { .. })
    ));
}

#[test]
fn a_transaction_takes_stamps_at_its_commit() {
    let directory = tempfile::tempdir().unwrap();
    let stamps = Counter::from(1);
    let store = open(directory.path(), &stamps);
    let transaction = store.begin(&store.snapshot());
    let mut set = transaction.write_set();
    set.put_guarded(DATA, b"staged", b"");
    transaction.stage(set).unwrap();
    let mut set = transaction.write_set();
    set.put_stamped(LOG, 0, b"", b"");
    assert!(matches!(
        transaction.stage(set),
        Err(Error::InvalidOption(_))
    ));
    commit(&store, "before", 1, Durability::Logged);
    let mut extra = WriteSet::new();
    extra.put_stamped(LOG, 0, b"", b"of the transaction");
    let committed = transaction.commit(extra, Durability::Logged).unwrap();
    assert_eq!(committed.first_stamp, Some(2));
    let found = entries(&store.snapshot());
    assert_eq!(found[1], (2, "of the transaction".to_owned()));
    assert!(store.snapshot().contains(DATA, b"staged").unwrap());
}

#[test]
fn a_stamp_is_durable_after_the_sync() {
    let directory = tempfile::tempdir().unwrap();
    let stamps = Counter::from(1);
    let mut options = options(directory.path(), &stamps);
    // Only what asks for it is synced.
    options.journal_commit_interval = Duration::from_secs(10);
    drop(open(directory.path(), &stamps));
    let store = Store::open(options).unwrap();
    let told = listen(&store);
    assert_eq!(store.durable_stamp(), 0);
    commit(&store, "a", 3, Durability::Logged);
    assert_eq!(store.durable_stamp(), 0);
    commit(&store, "b", 1, Durability::Synced);
    assert_eq!(store.durable_stamp(), 4);
    await_stamp(&told, 4);
    commit(&store, "c", 1, Durability::Logged);
    store.flush_log().unwrap();
    assert_eq!(store.durable_stamp(), 5);
    await_stamp(&told, 5);
    for stamp in 6..=12 {
        let begun = Instant::now();
        commit(&store, "d", 1, Durability::Logged);
        store.request_sync();
        store.request_sync();
        await_stamp(&told, stamp);
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
    // Nothing is left for it to do.
    store.request_sync();
    store.close().unwrap();
    assert_eq!(store.durable_stamp(), 12);
}

#[test]
fn without_a_journal_a_visible_stamp_counts() {
    let directory = tempfile::tempdir().unwrap();
    let stamps = Counter::from(1);
    drop(open(directory.path(), &stamps));
    let mut options = options(directory.path(), &stamps);
    options.journal = false;
    let store = Store::open(options).unwrap();
    let told = listen(&store);
    commit(&store, "a", 3, Durability::Logged);
    assert_eq!(store.durable_stamp(), 3);
    await_stamp(&told, 3);
    assert_eq!(entries(&store.snapshot()).len(), 3);
}
