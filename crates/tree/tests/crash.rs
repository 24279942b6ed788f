//! Crashes at random operations of a simulated disk: what was acknowledged as synced is there
//! afterwards, and no commit is half there.
//!
//! `FROND_CRASHES` sets the number of crashes, `FROND_SEED` the first seed.

#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use frond_tree::{
    Direction, Durability, Error, Options, Result, Store, TreeId, TreeOptions, WriteSet,
};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use support::SimDisk;

const TREES: u32 = 3;

/// What one commit does, for the store and for the model.
type Commit = Vec<(TreeId, Vec<u8>, Option<Vec<u8>>)>;
type Content = BTreeMap<(TreeId, Vec<u8>), Vec<u8>>;

fn options(disk: &SimDisk) -> Options {
    let mut options = Options::with_disk(Arc::new(disk.clone()));
    options.cache_bytes = 8 << 20;
    options.memtable_bytes = Some(64 << 10);
    options.fanout = 4;
    options.journal_commit_interval = std::time::Duration::from_millis(1);
    options
}

/// The trees of the test, created by its first commit.
fn trees() -> impl Iterator<Item = TreeId> {
    (1..=TREES).map(TreeId)
}

fn marker() -> (TreeId, Vec<u8>) {
    (TreeId(1), b"~commits".to_vec())
}

fn random_commit(random: &mut SmallRng, number: usize) -> Commit {
    let mut commit: Commit = (0..random.random_range(1..40))
        .map(|_| {
            let tree = TreeId(random.random_range(1..=TREES));
            let key = match tree.0 {
                3 => format!("{number:06}{:03}", random.random_range(0..999)),
                _ => format!("k{:05}", random.random_range(0..3000)),
            };
            let len = random.random_range(0..300);
            let value = random.random_bool(0.8).then(|| vec![number as u8; len]);
            (tree, key.into_bytes(), value)
        })
        .collect();
    let (tree, key) = marker();
    commit.push((tree, key, Some(number.to_string().into_bytes())));
    commit
}

fn write_set(commit: &Commit, create: bool) -> WriteSet {
    let mut set = WriteSet::new();
    if create {
        for tree in trees() {
            let options = TreeOptions {
                node_bytes: 64 << 10,
                page_bytes: 2 << 10,
                ..TreeOptions::default()
            };
            set.create_tree(tree, &options);
        }
    }
    for (tree, key, value) in commit {
        match value {
            Some(value) => set.put(*tree, key, value),
            None => set.delete(*tree, key),
        }
    }
    set
}

fn content(store: &Store) -> Result<Content> {
    let snapshot = store.snapshot();
    let mut content = Content::new();
    for tree in trees().filter(|tree| store.has_tree(*tree)) {
        let mut cursor =
            snapshot.cursor(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward)?;
        while let Some((key, value)) = cursor.next()? {
            content.insert((tree, key.to_vec()), value.to_vec());
        }
    }
    Ok(content)
}

fn model(commits: &[Commit]) -> Content {
    let mut content = Content::new();
    for (tree, key, value) in commits.iter().flatten() {
        match value {
            Some(value) => content.insert((*tree, key.clone()), value.clone()),
            None => content.remove(&(*tree, key.clone())),
        };
    }
    content
}

/// Commits until the disk crashes. Returns how many commits must have survived.
fn work(store: &Store, random: &mut SmallRng, commits: &mut Vec<Commit>) -> usize {
    let mut safe = 0;
    loop {
        let create = commits.is_empty();
        let commit = random_commit(random, commits.len() + 1);
        let how = match random.random_bool(0.1) {
            true => Durability::Synced,
            false => Durability::Logged,
        };
        let set = write_set(&commit, create);
        commits.push(commit);
        if store.commit(set, how).is_err() {
            return safe;
        }
        if how == Durability::Synced {
            safe = commits.len();
        }
        if random.random_bool(0.005) {
            let done = commits.len();
            match store.checkpoint() {
                Ok(()) => safe = done,
                Err(_) => return safe,
            }
        }
    }
}

fn crash_run(seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut disk = SimDisk::default();
    let mut commits: Vec<Commit> = Vec::new();
    for round in 0..3 {
        let reach = if random.random_bool(0.3) { 30 } else { 1500 };
        disk.crash_after(random.random_range(1..reach));
        let mut safe = commits.len();
        if let Ok(store) = Store::open(options(&disk)) {
            safe = safe.max(work(&store, &mut random, &mut commits));
        }
        disk = disk.after_crash(&mut random);
        let store = Store::open(options(&disk))
            .unwrap_or_else(|error| panic!("seed {seed}, round {round}: not opened: {error}"));
        let content = content(&store).unwrap();
        let (tree, key) = marker();
        let survived = content.get(&(tree, key)).map_or(0, |number| {
            String::from_utf8_lossy(number).parse::<usize>().unwrap()
        });
        assert!(
            survived >= safe,
            "seed {seed}, round {round}: {survived} commits of {safe} survived"
        );
        commits.truncate(survived);
        assert!(
            content == model(&commits),
            "seed {seed}, round {round}: a commit is half there"
        );
        store.close().unwrap();
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

#[test]
fn survives_crashes_at_random_operations() {
    let first = setting("FROND_SEED", 1);
    for seed in first..first + setting("FROND_CRASHES", 100) {
        crash_run(seed);
    }
}

#[test]
fn flipped_bits_are_named_and_never_returned() {
    let mut random = SmallRng::seed_from_u64(5);
    let disk = SimDisk::default();
    let store = Store::open(options(&disk)).unwrap();
    let commits: Vec<Commit> = (1..400)
        .map(|number| random_commit(&mut random, number))
        .collect();
    for (index, commit) in commits.iter().enumerate() {
        store
            .commit(write_set(commit, index == 0), Durability::Logged)
            .unwrap();
    }
    store.close().unwrap();
    let expected = model(&commits);
    let mut noticed = 0;
    for _ in 0..150 {
        let copy = disk.after_crash(&mut random);
        let at = copy.flip_bit("data.frond", &mut random);
        match Store::open(options(&copy)).and_then(|store| content(&store)) {
            // A bit of free space, of padding, or of the older superblock.
            Ok(content) => assert!(
                content == expected,
                "a bit flipped at {at} changed an answer"
            ),
            Err(Error::Corrupt { file, .. }) => {
                assert_eq!(file, "data.frond");
                noticed += 1;
            }
            Err(error) => panic!("a bit flipped at {at}: {error}"),
        }
    }
    assert!(
        noticed > 20,
        "only {noticed} of 150 flipped bits were noticed"
    );
}
