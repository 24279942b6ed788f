//! `kill -9` of a process that commits: everything that it acknowledged is there afterwards, without `Durability::Synced`.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::ops::Bound::Unbounded;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use frond_tree::{Direction, Durability, Options, Stamps, Store, TreeId, TreeOptions, WriteSet};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

const TREE: TreeId = TreeId(1);
/// Its keys are stamped, its values are the numbers that are committed.
const STAMPED: TreeId = TreeId(2);
/// A key that only transactions write that are not committed.
const ABORTED: &[u8] = b"aborted";
const THREADS: u64 = 3;
const ROUNDS: u64 = 20;
/// Set for the process that is killed: the directory of its store, and the first number to commit.
const DIRECTORY: &str = "FROND_KILL_DIRECTORY";
const FIRST: &str = "FROND_KILL_FIRST";

/// Continues behind the last stamp that is in the store.
#[derive(Default)]
struct Source(AtomicU64);

impl Stamps for Source {
    fn take(&self, count: u32) -> Option<u64> {
        Some(self.0.fetch_add(count.into(), Ordering::Relaxed) + 1)
    }
}

fn open(directory: &Path) -> Store {
    let stamps = Arc::new(Source::default());
    let mut options = Options::new(directory);
    options.cache_bytes = 16 << 20;
    options.memtable_bytes = Some(1 << 20);
    options.stamps = Some(stamps.clone());
    let store = Store::open(options).unwrap();
    if !store.has_tree(TREE) {
        let mut set = WriteSet::new();
        set.create_tree(TREE, &TreeOptions::default());
        set.create_tree(STAMPED, &TreeOptions::default());
        store.commit(set, Durability::Logged).unwrap();
    }
    let last = stamped(&store).last().map_or(0, |(stamp, _)| *stamp);
    // The replayed log is synced.
    assert!([0, last].contains(&store.durable_stamp()));
    stamps.0.store(last, Ordering::Relaxed);
    store
}

/// The stamps, and the numbers that were committed with them.
fn stamped(store: &Store) -> Vec<(u64, u64)> {
    let number = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().unwrap());
    let snapshot = store.snapshot();
    let cursor = snapshot.cursor(STAMPED, Unbounded, Unbounded, Direction::Forward);
    let (mut cursor, mut found) = (cursor.unwrap(), Vec::new());
    while let Some((key, value)) = cursor.next().unwrap() {
        found.push((number(key), number(value)));
    }
    found
}

/// The number of stamped keys that are committed with a number.
fn stamps_of(number: u64) -> u32 {
    number as u32 % 4
}

/// The value of a number: mostly small, and now and then larger than the log's buffer.
fn value(number: u64) -> Vec<u8> {
    let len = match number % 97 {
        0 => 1_500_000,
        1..8 => 30_000,
        _ => 10 + number as usize % 500,
    };
    let mut random = SmallRng::seed_from_u64(number);
    (0..len).map(|_| random.random()).collect()
}

/// Commits a write set in a transaction, together with a mark of its number, beside one that is never committed.
fn commit_in_transaction(store: &Store, number: u64, set: WriteSet) {
    let [transaction, aborted] = [(); 2].map(|()| store.begin(&store.snapshot()));
    let mut mark = transaction.write_set();
    mark.put_guarded(TREE, &mark_of(number), b"");
    transaction.stage(mark).unwrap();
    let mut lost = aborted.write_set();
    lost.put_guarded(TREE, ABORTED, &number.to_be_bytes());
    // Another thread may have one.
    let _ = aborted.stage(lost);
    transaction.stage(set).unwrap();
    transaction
        .commit(with_stamps(number, WriteSet::new()), Durability::Logged)
        .unwrap();
}

fn with_stamps(number: u64, mut set: WriteSet) -> WriteSet {
    for offset in 0..stamps_of(number) {
        set.put_stamped(STAMPED, offset, b"", &number.to_be_bytes());
    }
    set
}

fn mark_of(number: u64) -> [u8; 9] {
    let mut key = [b'm'; 9];
    key[1..].copy_from_slice(&number.to_be_bytes());
    key
}

/// Commits numbers from several threads until it is killed, and reports each one that is acknowledged.
fn commit_for_ever(directory: &Path, first: u64) {
    let store = open(directory);
    let next = AtomicU64::new(first);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let mut set = WriteSet::new();
                    set.put(TREE, &number.to_be_bytes(), &value(number));
                    match number % 3 {
                        0 => commit_in_transaction(&store, number, set),
                        _ => {
                            let set = with_stamps(number, set);
                            store.commit(set, Durability::Logged).unwrap();
                        }
                    }
                    let line = format!("acknowledged {number}\n");
                    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
                }
            });
        }
    });
}

/// Frames that the log thread had not written yet were lost: up to 100 ms of commits.
#[test]
fn kill_9_loses_nothing_that_was_acknowledged() {
    if let (Ok(directory), Ok(first)) = (std::env::var(DIRECTORY), std::env::var(FIRST)) {
        commit_for_ever(Path::new(&directory), first.parse().unwrap());
    }
    let directory = tempfile::tempdir().unwrap();
    let mut random = SmallRng::seed_from_u64(15);
    let mut acknowledged: Vec<u64> = Vec::new();
    for round in 0..ROUNDS {
        let before = acknowledged.len();
        // Numbers that were committed and not reported may be there; no number is committed twice.
        let first = round * 1_000_000;
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "kill::kill_9_loses_nothing_that_was_acknowledged",
            ])
            .arg("--nocapture")
            .env(DIRECTORY, directory.path())
            .env(FIRST, first.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let number =
            |line: String| -> Option<u64> { line.strip_prefix("acknowledged ")?.parse().ok() };
        let mut next = || lines.next().map(|line| number(line.unwrap()));
        while acknowledged.len() == before {
            acknowledged.extend(next().expect("the process commits"));
        }
        let moment = Duration::from_micros(random.random_range(0..150_000));
        // The pipe must not fill up, or the process would wait.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(moment);
                child.kill().unwrap();
                child.wait().unwrap();
            });
            while let Some(number) = next() {
                acknowledged.extend(number);
            }
        });
        let store = open(directory.path());
        assert!(store.stats().log_is_mapped);
        let snapshot = store.snapshot();
        for number in &acknowledged {
            let found = snapshot.get(TREE, &number.to_be_bytes()).unwrap();
            assert!(found.is_some(), "{number} is lost in round {round}");
            assert!(*number < first || *found.unwrap() == value(*number));
        }
        assert!(!snapshot.contains(TREE, ABORTED).unwrap());
        // A transaction is there as a whole or not at all, whether or not it was acknowledged.
        let last = acknowledged.iter().max().unwrap() + 2 * THREADS;
        for number in (first..=last).filter(|number| number % 3 == 0) {
            let mark = snapshot.contains(TREE, &mark_of(number)).unwrap();
            let value = snapshot.contains(TREE, &number.to_be_bytes()).unwrap();
            assert_eq!(mark, value, "{number} in round {round}");
        }
        // So is a commit with stamps, which come in a row.
        let stamped = stamped(&store);
        let mut rest = stamped.as_slice();
        let mut found = BTreeSet::new();
        while let [(first, number), ..] = rest {
            let (commit, others) = rest.split_at(stamps_of(*number) as usize);
            assert!(
                (*first..)
                    .zip(commit)
                    .all(|(stamp, found)| (stamp, *number) == *found)
            );
            assert!(
                found.insert(*number) && snapshot.contains(TREE, &number.to_be_bytes()).unwrap()
            );
            rest = others;
        }
        for number in (first..=last).filter(|number| stamps_of(*number) > 0) {
            let is_there = snapshot.contains(TREE, &number.to_be_bytes()).unwrap();
            assert_eq!(
                is_there,
                found.contains(&number),
                "{number} in round {round}"
            );
        }
    }
    assert!(acknowledged.len() > 20 * ROUNDS as usize);
}
