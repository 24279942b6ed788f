//! Stamped keys: commits make them, in the order in which they become visible.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Bound;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use frond_tree::disk::FsDisk;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use frond_tree::{
    Committed, Direction, Durability, Error, Options, Snapshot, Stamps, Store, TreeId, TreeOptions,
    WriteSet,
};

use crate::waiting::{PATIENCE, wait_until};

const LOG: TreeId = TreeId(1);
const DATA: TreeId = TreeId(2);

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
        let after = |next: u64| {
            let after = next.checked_add(u64::from(count))?;
            (after <= bound).then_some(after)
        };
        (self.next)
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, after)
            .ok()
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

/// A listener that sends each stamp that it receives.
fn listen(store: &Store) -> Receiver<u64> {
    let (told, stamps) = channel();
    store.set_stamp_listener(Arc::new(move |stamp| {
        let _ = told.send(stamp);
    }));
    stamps
}

/// Waits until the listener has received a stamp.
fn await_stamp(stamps: &Receiver<u64>, stamp: u64) {
    while stamps
        .recv_timeout(PATIENCE)
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
    let copy = copy(directory.path());
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
    let interval = Duration::from_secs(10);
    options.journal_commit_interval = interval;
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
    // A busy machine may delay some. Without these syncs no two in sequence would come so soon.
    let mut last = 5;
    wait_until("two syncs within half of the interval", || {
        let begun = Instant::now();
        for _ in 0..2 {
            last += 1;
            commit(&store, "d", 1, Durability::Logged);
            store.request_sync();
            store.request_sync();
            await_stamp(&told, last);
        }
        begun.elapsed() < interval / 2
    });
    // Nothing is left for it to do.
    store.request_sync();
    store.close().unwrap();
    assert_eq!(store.durable_stamp(), last);
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

/// Larger than any buffer of the log, and than what is compressed.
#[test]
fn a_large_commit_is_replayed_with_its_stamps() {
    let directory = tempfile::tempdir().unwrap();
    let stamps = Counter::from(1);
    let mut options = options(directory.path(), &stamps);
    options.cache_bytes = 256 << 20;
    drop(open(directory.path(), &stamps));
    let store = Store::open(options.clone()).unwrap();
    let mut random = SmallRng::seed_from_u64(1);
    let values: Vec<Vec<u8>> = [9 << 20, 10 << 20, 3]
        .map(|len| (0..len).map(|_| random.random()).collect())
        .into();
    let mut set = WriteSet::new();
    for (offset, value) in values.iter().enumerate() {
        set.put_stamped(LOG, offset as u32, b"", value);
    }
    store.commit(set, Durability::Logged).unwrap();
    commit(&store, "small", 1, Durability::Synced);
    let copy = copy(directory.path());
    options.disk = Arc::new(FsDisk::new(copy.path().to_owned(), false));
    let report = Store::verify(&options, &mut |_| {}).unwrap();
    // Two frames have made the trees.
    assert_eq!((report.problems, report.log_frames), (vec![], 4));
    let again = Store::open(options).unwrap();
    assert_eq!(again.durable_stamp(), 4);
    for (stamp, value) in (1u64..).zip(&values) {
        let found = again.snapshot().get(LOG, &stamp.to_be_bytes()).unwrap();
        assert!(found.as_deref() == Some(value.as_slice()));
    }
}

/// Salvage, a backup and a point-in-time recovery of a store with stamped keys in its log.
#[test]
fn salvage_and_backup_have_the_keys_that_the_commits_made() {
    let directory = tempfile::tempdir().unwrap();
    let stamps = Counter::from(1 << 33);
    let store = open(directory.path(), &stamps);
    for number in 0..50 {
        commit(&store, &number.to_string(), number % 4, Durability::Logged);
    }
    store.flush_log().unwrap();
    let expected = entries(&store.snapshot());
    assert_eq!(expected.len(), 73);
    let copy = copy(directory.path());
    let salvaged = tempfile::tempdir().unwrap();
    let from = options(copy.path(), &stamps);
    let mut into = options(salvaged.path(), &stamps);
    into.stamps = None;
    let report = Store::salvage(&from, into.clone(), &mut |_| {}).unwrap();
    assert!(
        report.lost.is_empty() && report.log_frames > 50,
        "{report:?}"
    );
    let salvaged = Store::open(into).unwrap();
    assert_eq!(entries(&salvaged.snapshot()), expected);
    let target = tempfile::tempdir().unwrap();
    let into = options(target.path(), &stamps);
    store.snapshot().backup(into.clone(), &mut |_| {}).unwrap();
    let restored = Store::open(into).unwrap();
    assert_eq!(entries(&restored.snapshot()), expected);
    assert_eq!(
        commit(&restored, "next", 1, Durability::Logged).first_stamp,
        Some((1 << 33) + 73)
    );
}

fn copy(directory: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(directory).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
    }
    copy
}

/// The name of a commit, and which of how many of its keys this is.
fn parse(value: &str) -> (&str, u64, u64) {
    let mut parts = value.split('/');
    let mut next = || parts.next().expect("three parts");
    (next(), next().parse().unwrap(), next().parse().unwrap())
}

/// The stamps that a reader has seen: the durable stamp before its snapshot, how many entries that has, and their hash.
type Seen = (u64, usize, u64);

fn hash(entries: &[(u64, String)]) -> u64 {
    let mut hasher = DefaultHasher::new();
    entries.hash(&mut hasher);
    hasher.finish()
}

/// Several committers with random commits: blind ones, ones that conflict, transactions.
struct Race {
    store: Store,
    stamps: Arc<Counter>,
    /// The first stamp of each commit and how many it took.
    committed: Mutex<BTreeMap<String, (u64, u64)>>,
    is_over: AtomicBool,
}

impl Race {
    fn work(&self, thread: u64, commits: u64) {
        let mut random = SmallRng::seed_from_u64(thread);
        for number in 0..commits {
            let name = format!("{thread}-{number:05}");
            let count = random.random_range(0..6u64);
            let mut set = WriteSet::with_snapshot(&self.store.snapshot());
            for offset in 0..count {
                let value = format!("{name}/{offset}/{count}");
                set.put_stamped(LOG, offset as u32, b"", value.as_bytes());
            }
            set.put(DATA, name.as_bytes(), count.to_string().as_bytes());
            let how = match random.random_range(0..20) {
                0 => Durability::Synced,
                _ => Durability::Logged,
            };
            let outcome = match random.random_range(0..4) {
                0 => {
                    let transaction = self.store.begin(&self.store.snapshot());
                    let mut staged = transaction.write_set();
                    staged.put_guarded(DATA, format!("~{name}").as_bytes(), b"");
                    transaction.stage(staged).unwrap();
                    transaction.commit(set, how)
                }
                1 => {
                    set.put_guarded(DATA, b"~hot", name.as_bytes());
                    self.store.commit(set, how)
                }
                _ => self.store.commit(set, how),
            };
            let committed = match outcome {
                Ok(committed) => committed,
                Err(Error::Conflict { .. }) => continue,
                Err(error) => panic!("{error}"),
            };
            assert_eq!(committed.first_stamp.is_some(), count > 0);
            let first = committed.first_stamp.unwrap_or(0);
            if count > 0 && how == Durability::Synced {
                assert!(self.store.durable_stamp() >= first + count - 1);
            }
            if random.random_bool(0.1) {
                self.store.request_sync();
                self.stamps.take(random.random_range(1..5)).unwrap();
            }
            let mut all = self.committed.lock().unwrap();
            all.insert(name, (first, count));
        }
    }

    /// Looks at snapshots until the work is over.
    fn look(&self) -> Vec<Seen> {
        let mut seen = Vec::new();
        while !self.is_over.load(Ordering::Relaxed) {
            let durable = self.store.durable_stamp();
            let snapshot = self.store.snapshot();
            let entries = entries(&snapshot);
            // Their commits are whole: what is in one tree is in the other one.
            let logged: BTreeSet<&str> = entries.iter().map(|(_, value)| parse(value).0).collect();
            let mut stored = BTreeSet::new();
            let mut cursor = snapshot
                .cursor(
                    DATA,
                    Bound::Unbounded,
                    Bound::Excluded(b"~"),
                    Direction::Forward,
                )
                .unwrap();
            while let Some((key, value)) = cursor.next().unwrap() {
                if value != b"0" {
                    stored.insert(String::from_utf8(key.to_vec()).unwrap());
                }
            }
            assert!(logged.into_iter().eq(stored.iter().map(String::as_str)));
            seen.push((durable, entries.len(), hash(&entries)));
            std::thread::sleep(Duration::from_millis(5));
        }
        seen
    }
}

#[test]
fn each_snapshot_has_a_prefix_of_the_stamped_keys() {
    let directory = tempfile::tempdir().unwrap();
    let stamps = Counter::from(1);
    drop(open(directory.path(), &stamps));
    let mut options = options(directory.path(), &stamps);
    options.memtable_bytes = Some(64 << 10);
    options.journal_commit_interval = Duration::from_millis(20);
    let race = Race {
        store: Store::open(options).unwrap(),
        stamps,
        committed: Mutex::default(),
        is_over: AtomicBool::new(false),
    };
    let told = listen(&race.store);
    let seen = std::thread::scope(|scope| {
        let readers = [(); 2].map(|()| scope.spawn(|| race.look()));
        let race = &race;
        let workers: Vec<_> = (0..4)
            .map(|thread| scope.spawn(move || race.work(thread, 500)))
            .collect();
        // The readers end also if a worker has panicked.
        let outcomes: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        race.is_over.store(true, Ordering::Relaxed);
        outcomes.into_iter().for_each(Result::unwrap);
        readers.map(|reader| reader.join().unwrap()).concat()
    });
    let all = entries(&race.store.snapshot());
    let committed = race.committed.into_inner().unwrap();
    let taken: u64 = committed.values().map(|(_, count)| count).sum();
    assert_eq!(all.len() as u64, taken);
    let mut previous = BTreeMap::new();
    let mut rest = all.as_slice();
    while let [(first, value), ..] = rest {
        let (name, offset, count) = parse(value);
        assert_eq!((offset, committed[name]), (0, (*first, count)));
        let (commit, others) = rest.split_at(count as usize);
        for (at, (stamp, value)) in commit.iter().enumerate() {
            assert_eq!(parse(value), (name, at as u64, count));
            assert_eq!(*stamp, first + at as u64);
        }
        // The commits of a thread are in their order.
        let (thread, number) = name.split_once('-').unwrap();
        let before = previous.insert(thread.to_owned(), number.to_owned());
        assert!(before.is_none_or(|before| *before < *number));
        rest = others;
    }
    assert!(!seen.is_empty());
    for (durable, count, hashed) in seen {
        assert_eq!(hash(&all[..count]), hashed);
        let promised = all.iter().take_while(|(stamp, _)| *stamp <= durable);
        assert!(count >= promised.count(), "a durable stamp was not visible");
    }
    race.store.flush_log().unwrap();
    let last = all.last().unwrap().0;
    assert_eq!(race.store.durable_stamp(), last);
    await_stamp(&told, last);
}
