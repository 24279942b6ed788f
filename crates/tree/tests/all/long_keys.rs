//! Keys that are longer than a page or a leaf, and that differ only far from their beginning.

#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use frond_tree::{
    Compression, Direction, Duplicates, Durability, Error, KEY_BYTES_MAX, Options, Snapshot,
    Stamps, Store, TreeId, TreeOptions, VALUE_BYTES_MAX, WriteSet,
};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

const TREE: TreeId = TreeId(1);

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn options(path: &Path) -> Options {
    let mut options = Options::new(path);
    options.cache_bytes = 16 << 20;
    options.memtable_bytes = Some(256 << 10);
    options.fanout = 4;
    options
}

fn create(store: &Store, tree: TreeId, compression: Compression) {
    let mut set = WriteSet::new();
    let options = TreeOptions {
        compression,
        node_bytes: 64 << 10,
        page_bytes: 1 << 10,
    };
    set.create_tree(tree, &options);
    store.commit(set, Durability::Logged).unwrap();
}

/// Few of them, of lengths around the limit of short keys. Many begin with the same bytes, and some are the beginning of others.
fn random_key(random: &mut SmallRng) -> Vec<u8> {
    const LENGTHS: [usize; 8] = [3, 65_534, 65_535, 65_536, 65_537, 65_600, 70_000, 150_000];
    let mut key = vec![random.random_range(b'a'..b'd')];
    key.resize(LENGTHS[random.random_range(0..LENGTHS.len())], 0xff);
    if random.random_bool(0.5) {
        key.extend([random.random_range(0..4u8), 0xff, 0xff]);
    }
    key
}

fn check(random: &mut SmallRng, snapshot: &Snapshot, map: &Map) {
    for direction in [Direction::Forward, Direction::Backward] {
        let (a, b) = (random_key(random), random_key(random));
        let (low, high) = match random.random_range(0..3) {
            0 => (Unbounded, Unbounded),
            1 => (Included(a.as_slice()), Excluded(b.as_slice())),
            _ => (Excluded(a.as_slice()), Included(b.as_slice())),
        };
        let is_inside = |key: &[u8]| {
            let above = match low {
                Included(low) => key >= low,
                Excluded(low) => key > low,
                Unbounded => true,
            };
            above
                && match high {
                    Included(high) => key <= high,
                    Excluded(high) => key < high,
                    Unbounded => true,
                }
        };
        let mut expected: Vec<_> = map.iter().filter(|(key, _)| is_inside(key)).collect();
        if direction == Direction::Backward {
            expected.reverse();
        }
        let mut cursor = snapshot.cursor(TREE, low, high, direction).unwrap();
        for (key, value) in expected {
            let (found, there) = cursor.next().unwrap().unwrap();
            assert!(
                found == key.as_slice() && there == value.as_slice(),
                "{} bytes in place of {}",
                found.len(),
                key.len()
            );
        }
        assert!(cursor.next().unwrap().is_none());
    }
    for _ in 0..4 {
        let key = random_key(random);
        let found = snapshot.get(TREE, &key).unwrap();
        assert!(found.as_deref() == map.get(&key).map(Vec::as_slice));
    }
    let last = snapshot.key_upper_bound(TREE).unwrap();
    let model_last = map.keys().next_back();
    assert!(last.is_none_or(|last| model_last.is_none_or(|there| *there <= last)));
}

fn run(seed: u64, compression: Compression) {
    let mut random = SmallRng::seed_from_u64(seed);
    let directory = tempfile::tempdir().unwrap();
    let mut store = Store::open(options(directory.path())).unwrap();
    create(&store, TREE, compression);
    let mut map = Map::new();
    let mut snapshots: Vec<(Snapshot, Map)> = Vec::new();
    for step in 0..250u32 {
        let mut set = WriteSet::with_snapshot(&store.snapshot());
        for _ in 0..random.random_range(1..4) {
            let key = random_key(&mut random);
            match random.random_range(0..20) {
                0..12 => {
                    let value = step.to_string().repeat(random.random_range(1..400));
                    set.put_guarded(TREE, &key, value.as_bytes());
                    map.insert(key, value.into_bytes());
                }
                12..19 => {
                    set.delete_guarded(TREE, &key);
                    map.remove(&key);
                }
                _ => {
                    let upper = random_key(&mut random);
                    set.delete_range(TREE, &key, Some(&upper));
                    map.retain(|at, _| *at < key || *at >= upper);
                }
            }
        }
        store.commit(set, Durability::Logged).unwrap();
        match random.random_range(0..40) {
            0 => store.checkpoint().unwrap(),
            1 => store.compact().unwrap(),
            2 => {
                snapshots.clear();
                // The log has what is not flushed.
                drop(store);
                store = Store::open(options(directory.path())).unwrap();
            }
            3 => snapshots.push((store.snapshot(), map.clone())),
            4 => {
                if let Some((snapshot, then)) = snapshots.pop() {
                    check(&mut random, &snapshot, &then);
                }
            }
            5..10 => check(&mut random, &store.snapshot(), &map),
            _ => {}
        }
    }
    store.compact().unwrap();
    check(&mut random, &store.snapshot(), &map);
    let target = tempfile::tempdir().unwrap();
    let backup = store.snapshot();
    backup.backup(options(target.path()), &mut |_| {}).unwrap();
    drop((backup, snapshots));
    store.close().unwrap();
    drop(store);
    let salvaged = tempfile::tempdir().unwrap();
    let to = options(salvaged.path());
    let report = Store::salvage(&options(directory.path()), to, &mut |_| {}).unwrap();
    assert_eq!(report.lost, [], "seed {seed}");
    for path in [directory.path(), target.path(), salvaged.path()] {
        let report = Store::verify(&options(path), &mut |_| {}).unwrap();
        assert_eq!(report.problems, [], "seed {seed}");
        let store = Store::open(options(path)).unwrap();
        check(&mut random, &store.snapshot(), &map);
    }
}

#[test]
fn long_keys_behave_like_those_of_ordered_maps() {
    run(1, Compression::Zstd);
    run(2, Compression::None);
}

#[test]
fn loads_of_long_keys_are_sorted() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(options(directory.path())).unwrap();
    let mut set = WriteSet::new();
    set.create_tree_to_load(TREE, &TreeOptions::default());
    store.commit(set, Durability::Logged).unwrap();
    let mut random = SmallRng::seed_from_u64(3);
    let trees = [(TREE, Duplicates::LastWins)];
    let mut loader = store.bulk_loader(&trees, Some(1)).unwrap();
    let mut map = Map::new();
    for number in 0..120u32 {
        let (key, value) = (random_key(&mut random), number.to_be_bytes().to_vec());
        loader.add(0, &key, &value).unwrap();
        map.insert(key, value);
    }
    loader.finish().unwrap();
    check(&mut random, &store.snapshot(), &map);
    store.close().unwrap();
    drop(store);
    let report = Store::verify(&options(directory.path()), &mut |_| {}).unwrap();
    assert_eq!(report.problems, []);
    let store = Store::open(options(directory.path())).unwrap();
    check(&mut random, &store.snapshot(), &map);
}

/// Every separator is about as long as the keys, so nodes have few children.
#[test]
fn nodes_of_keys_that_differ_at_their_ends_stay_small() {
    const BYTES: usize = 1 << 20;
    let directory = tempfile::tempdir().unwrap();
    let mut options = options(directory.path());
    options.memtable_bytes = Some(4 << 20);
    options.fanout = 64;
    let store = Store::open(options.clone()).unwrap();
    create(&store, TREE, Compression::Lz4);
    let mut map = Map::new();
    for number in 0..40u64 {
        let mut key = vec![b'k'; BYTES];
        // Neither ascending nor descending.
        key.extend((number * 23 % 40).to_be_bytes());
        let mut set = WriteSet::new();
        set.put(TREE, &key, b"value");
        store.commit(set, Durability::Logged).unwrap();
        map.insert(key, b"value".to_vec());
    }
    store.compact().unwrap();
    let stats = store.tree_stats(TREE);
    assert!(stats.internal_nodes > 3 && stats.height > 2, "{stats:?}");
    store.close().unwrap();
    drop(store);
    let report = Store::verify(&options, &mut |_| {}).unwrap();
    assert_eq!(report.problems, []);
    let store = Store::open(options).unwrap();
    let snapshot = store.snapshot();
    let cursor = snapshot.cursor(TREE, Unbounded, Unbounded, Direction::Forward);
    let mut cursor = cursor.unwrap();
    for key in map.keys() {
        assert!(cursor.next().unwrap().unwrap().0 == key.as_slice());
        assert!(snapshot.contains(TREE, key).unwrap());
    }
    assert!(cursor.next().unwrap().is_none());
}

struct Counter(AtomicU64);

impl Stamps for Counter {
    fn take(&self, count: u32) -> Option<u64> {
        Some(self.0.fetch_add(count.into(), Ordering::Relaxed))
    }
}

#[test]
fn the_largest_keys_are_stored_and_replayed() {
    let directory = tempfile::tempdir().unwrap();
    let open = || {
        let mut options = options(directory.path());
        options.stamps = Some(Arc::new(Counter(AtomicU64::new(1000))));
        Store::open(options).unwrap()
    };
    let store = open();
    create(&store, TREE, Compression::Lz4);
    let largest = vec![b'k'; KEY_BYTES_MAX];
    let value = vec![b'v'; VALUE_BYTES_MAX];
    let suffix = vec![b's'; 70_000];
    let stamped = [&1000u64.to_be_bytes()[..], &suffix].concat();
    let mut set = WriteSet::new();
    set.put(TREE, &largest, &value);
    set.put_stamped(TREE, 0, &suffix, b"stamped");
    store.commit(set, Durability::Synced).unwrap();
    let mut set = WriteSet::new();
    set.put(TREE, &[&largest[..], b"k"].concat(), b"");
    let refused = store.commit(set, Durability::Synced);
    assert!(matches!(refused, Err(Error::TooLarge { what: "key", .. })));
    let check = |store: &Store| {
        let snapshot = store.snapshot();
        assert!(*snapshot.get(TREE, &largest).unwrap().unwrap() == *value);
        assert!(*snapshot.get(TREE, &stamped).unwrap().unwrap() == *b"stamped");
    };
    check(&store);
    drop(store);
    let store = open();
    check(&store);
    store.checkpoint().unwrap();
    check(&store);
    store.close().unwrap();
    drop(store);
    let store = open();
    check(&store);
}
