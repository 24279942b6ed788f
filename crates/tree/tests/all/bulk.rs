//! Bulk loads, compared with ordered maps.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use frond_kv_testing::Appends;
use frond_tree::{
    Compression, Direction, Duplicates, Durability, Error, Options, Store, TreeId, TreeOptions,
    WriteSet,
};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use support::SimDisk;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn options(disk: &SimDisk) -> Options {
    let mut options = Options::with_disk(Arc::new(disk.clone()));
    options.cache_bytes = 8 << 20;
    options.memtable_bytes = Some(64 << 10);
    options.fanout = 4;
    options.flush_threads = 2;
    options.merge = Arc::new(Appends);
    options
}

fn tree_options() -> TreeOptions {
    TreeOptions {
        compression: Compression::Lz4,
        node_bytes: 64 << 10,
        page_bytes: 2 << 10,
    }
}

/// A store with `count` trees to be loaded, from 1 on.
fn store_with(disk: &SimDisk, count: u32) -> Store {
    let store = Store::open(options(disk)).unwrap();
    let mut set = WriteSet::new();
    for _ in 0..count {
        set.create_tree_to_load(store.allocate_tree(), &tree_options());
    }
    store.commit(set, Durability::Synced).unwrap();
    store
}

fn content(store: &Store, tree: TreeId) -> Map {
    let snapshot = store.snapshot();
    let (low, high) = (Bound::Unbounded, Bound::Unbounded);
    let mut cursor = snapshot
        .cursor(tree, low, high, Direction::Forward)
        .unwrap();
    let mut map = Map::new();
    while let Some((key, value)) = cursor.next().unwrap() {
        map.insert(key.to_vec(), value.to_vec());
    }
    let mut cursor = snapshot
        .cursor(tree, low, high, Direction::Backward)
        .unwrap();
    for (key, value) in map.iter().rev() {
        assert_eq!(cursor.next().unwrap(), Some((&key[..], &value[..])));
    }
    assert_eq!(cursor.next().unwrap(), None);
    for (key, value) in map.iter().step_by(7) {
        assert_eq!(
            snapshot.get(tree, key).unwrap().as_deref(),
            Some(&value[..])
        );
    }
    map
}

fn random_key(random: &mut SmallRng) -> Vec<u8> {
    format!("key{:06}", random.random_range(0..60_000u32)).into_bytes()
}

/// Entries in an order of many kinds: random, ascending, nearly ascending, descending.
fn entries(random: &mut SmallRng, kind: usize, count: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut entries: Vec<_> = (0..count)
        .map(|number| {
            let value = vec![number as u8; random.random_range(0..60)];
            (random_key(random), value)
        })
        .collect();
    match kind {
        0 => {}
        1 => entries.sort(),
        2 => {
            entries.sort();
            for _ in 0..count.min(5) {
                let (a, b) = (random.random_range(0..count), random.random_range(0..count));
                entries.swap(a, b);
            }
        }
        _ => entries.sort_by(|a, b| b.cmp(a)),
    }
    entries
}

#[test]
fn loads_what_was_added_in_any_order() {
    let mut random = SmallRng::seed_from_u64(1);
    for kind in 0..4 {
        for count in [0, 1, 700, 60_000] {
            let disk = SimDisk::default();
            let store = store_with(&disk, 2);
            let trees = [TreeId(1), TreeId(2)];
            let loads = trees.map(|tree| (tree, Duplicates::LastWins));
            let mut loader = store.bulk_loader(&loads, Some(1)).unwrap();
            let mut models = [Map::new(), Map::new()];
            for (key, value) in entries(&mut random, kind, count) {
                let place = random.random_range(0..2);
                loader.add(place, &key, &value).unwrap();
                models[place].insert(key, value);
            }
            loader.finish().unwrap();
            for (tree, model) in trees.iter().zip(&models) {
                assert!(!store.is_loading(*tree));
                assert!(
                    content(&store, *tree) == *model,
                    "order {kind}, {count} entries"
                );
            }
            drop(store);
            let store = Store::open(options(&disk.after_crash(&mut random))).unwrap();
            for (tree, model) in trees.iter().zip(&models) {
                assert!(!store.is_loading(*tree));
                assert!(
                    content(&store, *tree) == *model,
                    "order {kind}, {count} entries"
                );
            }
        }
    }
}

#[test]
fn a_sorted_load_is_written_once() {
    let disk = SimDisk::default();
    let store = store_with(&disk, 2);
    let load = |tree, keys: &mut dyn Iterator<Item = u32>| {
        let before = store.stats().written_bytes;
        let mut loader = store
            .bulk_loader(&[(tree, Duplicates::Fail)], Some(1))
            .unwrap();
        for key in keys {
            let key = key.wrapping_mul(2_654_435_761).to_be_bytes();
            loader.add(0, &key, &key.repeat(5)).unwrap();
        }
        loader.finish().unwrap();
        let stats = store.tree_stats(tree);
        (store.stats().written_bytes - before, stats)
    };
    let mut sorted: Vec<u32> = (0..50_000).collect();
    let (shuffled_bytes, shuffled) = load(TreeId(1), &mut sorted.clone().into_iter());
    sorted.sort_by_key(|key| key.wrapping_mul(2_654_435_761));
    let (sorted_bytes, stats) = load(TreeId(2), &mut sorted.into_iter());
    assert_eq!(
        (stats.leaves, stats.height),
        (shuffled.leaves, shuffled.height)
    );
    // 24 bytes each: full leaves of 64 KiB.
    assert!((19..=21).contains(&stats.leaves), "{stats:?}");
    assert_eq!(stats.entries_estimate, 50_000);
    assert!(
        sorted_bytes * 3 < shuffled_bytes * 2,
        "{sorted_bytes} {shuffled_bytes}"
    );
    assert!(
        sorted_bytes < stats.disk_bytes * 5 / 4,
        "{sorted_bytes} {stats:?}"
    );
}

#[test]
fn duplicates_fail_a_load_that_wants_it() {
    let mut random = SmallRng::seed_from_u64(2);
    // In one chunk, in chunks that follow each other, and far apart.
    for (first, second, count) in [(0, 1, 100), (0, 99, 100), (5, 49_000, 50_000)] {
        for sorted in [false, true] {
            let store = store_with(&SimDisk::default(), 1);
            let load = [(TreeId(1), Duplicates::Fail)];
            let mut loader = store.bulk_loader(&load, Some(1)).unwrap();
            let mut keys: Vec<u32> = (0..count).collect();
            if !sorted {
                for index in (1..keys.len()).rev() {
                    keys.swap(index, random.random_range(0..=index));
                }
            }
            keys[second] = keys[first];
            let result = (0u32..)
                .zip(&keys)
                .try_for_each(|(at, key)| loader.add(0, &key.to_be_bytes(), &at.to_be_bytes()))
                .and_then(|()| loader.finish());
            match result {
                Err(Error::Duplicate { tree, key, values }) => {
                    assert_eq!((tree, key), (TreeId(1), keys[first].to_be_bytes().to_vec()));
                    let places = [first, second].map(|at| (at as u32).to_be_bytes().to_vec());
                    assert_eq!(*values, places);
                }
                other => panic!("{other:?}"),
            }
            assert!(store.is_loading(TreeId(1)));
            assert_eq!(content(&store, TreeId(1)), Map::new());
        }
    }
}

/// The change of a key by a commit.
fn change(random: &mut SmallRng, set: &mut WriteSet, tree: TreeId, model: &mut Map) {
    let key = random_key(random);
    let value = vec![b'c'; random.random_range(0..80)];
    if random.random_bool(0.02) {
        // A few keys mostly, and now and then most of them.
        let mut upper = key.clone();
        let at = if random.random_bool(0.02) {
            1
        } else {
            key.len() - 2
        };
        upper.truncate(at + 1);
        upper[at] = upper[at].saturating_add(1);
        set.delete_range(tree, &key, Some(&upper));
        model.retain(|other, _| *other < key || *other >= upper);
    }
    match random.random_range(0..3) {
        0 => {
            set.put(tree, &key, &value);
            model.insert(key, value);
        }
        1 => {
            set.delete(tree, &key);
            model.remove(&key);
        }
        _ => {
            set.merge(tree, &key, b"+");
            model.entry(key).or_default().push(b'+');
        }
    }
}

#[test]
fn commits_during_a_load_are_on_top_of_it() {
    for seed in 0..4 {
        let mut random = SmallRng::seed_from_u64(seed);
        let disk = SimDisk::default();
        let store = store_with(&disk, 1);
        let tree = TreeId(1);
        let loaded = entries(&mut random, 0, 20_000);
        let mut model: Map = loaded.iter().cloned().collect();
        let mut loader = store
            .bulk_loader(&[(tree, Duplicates::LastWins)], Some(1))
            .unwrap();
        let failed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for (key, value) in &loaded {
                    if loader.add(0, key, value).is_err() {
                        failed.store(true, Ordering::Relaxed);
                    }
                }
            });
            // Enough to fill dozens of memtables: their runs are joined.
            for number in 0..[50, 1000, 9000, 30_000][seed as usize] {
                let mut set = WriteSet::new();
                change(&mut random, &mut set, tree, &mut model);
                store.commit(set, Durability::Logged).unwrap();
                if number == 1000 {
                    store.checkpoint().unwrap();
                }
            }
        });
        assert!(!failed.load(Ordering::Relaxed));
        assert!(store.is_loading(tree));
        let before = store.snapshot();
        loader.finish().unwrap();
        assert!(!store.is_loading(tree) && store.tree_stats(tree).leaves > 5);
        assert!(content(&store, tree) == model, "seed {seed}");
        drop(before);
        // And later ones, until everything has moved down.
        for _ in 0..3000 {
            let mut set = WriteSet::new();
            change(&mut random, &mut set, tree, &mut model);
            store.commit(set, Durability::Logged).unwrap();
        }
        store.checkpoint().unwrap();
        assert!(content(&store, tree) == model, "seed {seed}");
        drop(store);
        let store = Store::open(options(&disk.after_crash(&mut random))).unwrap();
        assert!(content(&store, tree) == model, "seed {seed}");
    }
}

/// Commits puts of random values, so that memtables are flushed, each with a checkpoint.
fn gather(store: &Store, tree: TreeId, random: &mut SmallRng, flushes: usize) {
    for _ in 0..flushes {
        let mut set = WriteSet::new();
        for _ in 0..20 {
            let value: Vec<u8> = (0..1000).map(|_| random.random()).collect();
            set.put(tree, &random.random::<[u8; 8]>(), &value);
        }
        store.commit(set, Durability::Logged).unwrap();
        store.checkpoint().unwrap();
    }
}

/// Beyond 16 runs all of them were merged with every sixteenth flush, so that a message was written again for as long as
/// the load took.
#[test]
fn messages_that_gather_during_a_load_are_written_again_few_times() {
    let mut random = SmallRng::seed_from_u64(5);
    let disk = SimDisk::default();
    let store = store_with(&disk, 1);
    let tree = TreeId(1);
    let loader = store
        .bulk_loader(&[(tree, Duplicates::LastWins)], Some(1))
        .unwrap();
    gather(&store, tree, &mut random, 800);
    let times = store.stats().written_bytes / (800 * 20 * 1000);
    assert!(times <= 8, "each byte was written {times} times");
    loader.finish().unwrap();
    assert_eq!(content(&store, tree).len(), 800 * 20);
}

/// A damaged run was read again, and all that are newer with it, by every flush that found too many runs.
#[test]
fn a_damaged_run_is_not_read_again_by_each_flush_during_a_load() {
    let mut random = SmallRng::seed_from_u64(5);
    let disk = SimDisk::default();
    let store = store_with(&disk, 1);
    let tree = TreeId(1);
    gather(&store, tree, &mut random, 12);
    drop(store);
    let store = Store::open(options(&disk)).unwrap();
    assert!(
        !store
            .snapshot()
            .contains(tree, b"the root is read")
            .unwrap()
    );
    disk.record_reads();
    assert_eq!(content(&store, tree).len(), 12 * 20);
    let of_runs = disk.recorded_reads();
    drop(store);
    let damaged = of_runs[of_runs.len() / 2].start;
    disk.make_unreadable(damaged);
    let store = Store::open(options(&disk)).unwrap();
    disk.record_reads();
    gather(&store, tree, &mut random, 72);
    let reads = disk.recorded_reads();
    let again = reads.iter().filter(|read| read.contains(&damaged)).count();
    assert!(again <= 2, "read {again} times");
    assert!(!store.damage().is_empty());
}

#[test]
fn a_dropped_loader_leaves_nothing_behind() {
    let mut random = SmallRng::seed_from_u64(3);
    let disk = SimDisk::default();
    let store = store_with(&disk, 1);
    store.checkpoint().unwrap();
    let used = |store: &Store| {
        let space = store.stats().space;
        space.file_bytes - space.free_bytes - space.waiting_bytes
    };
    let before = used(&store);
    let load = [(TreeId(1), Duplicates::LastWins)];
    for stop in [false, true] {
        let mut loader = store.bulk_loader(&load, Some(1)).unwrap();
        for (key, value) in entries(&mut random, 0, 40_000) {
            loader.add(0, &key, &value).unwrap();
        }
        assert!(used(&store) > before);
        if stop {
            assert!(!loader.merge(&|merged, total| merged < total / 2).unwrap());
            assert!(matches!(loader.finish(), Err(Error::Failed(_))));
        } else {
            drop(loader);
        }
        assert_eq!(used(&store), before);
        assert!(store.is_loading(TreeId(1)));
    }
    let mut loader = store.bulk_loader(&load, None).unwrap();
    loader.add(0, b"a", b"1").unwrap();
    let mut set = WriteSet::new();
    set.drop_tree(TreeId(1));
    store.commit(set, Durability::Logged).unwrap();
    assert!(matches!(loader.finish(), Err(Error::UnknownTree(_))));
    assert!(matches!(
        store.bulk_loader(&load, None),
        Err(Error::UnknownTree(_))
    ));
}

#[test]
fn only_one_loader_can_finish() {
    let store = store_with(&SimDisk::default(), 1);
    let load = [(TreeId(1), Duplicates::LastWins)];
    let mut loaders = [b"a", b"b"].map(|key| {
        let mut loader = store.bulk_loader(&load, None).unwrap();
        loader.add(0, key, b"").unwrap();
        assert!(matches!(
            loader.add(1, key, b""),
            Err(Error::InvalidOption(_))
        ));
        Some(loader)
    });
    loaders[0].take().unwrap().finish().unwrap();
    let late = loaders[1].take().unwrap().finish();
    assert!(matches!(late, Err(Error::NotLoading(_))));
    assert_eq!(content(&store, TreeId(1)).len(), 1);
    assert!(matches!(
        store.bulk_loader(&load, None),
        Err(Error::NotLoading(_))
    ));
}

#[test]
fn a_crash_during_a_load_loses_all_of_it_or_nothing() {
    let mut finished = 0;
    for seed in 0..60 {
        let mut random = SmallRng::seed_from_u64(seed);
        let disk = SimDisk::default();
        let store = store_with(&disk, 2);
        let mut committed = Map::new();
        let mut set = WriteSet::new();
        set.put(TreeId(1), b"committed", b"before");
        set.delete(TreeId(1), b"key000001");
        store.commit(set, Durability::Synced).unwrap();
        committed.insert(b"committed".to_vec(), b"before".to_vec());
        let loads = [1, 2].map(|tree| (TreeId(tree), Duplicates::LastWins));
        let mut loader = store.bulk_loader(&loads, Some(1)).unwrap();
        let loaded = entries(&mut random, 0, 10_000);
        disk.crash_after(random.random_range(1..160));
        let added = loaded
            .iter()
            .enumerate()
            .try_for_each(|(at, (key, value))| {
                if at == 5000 {
                    store.checkpoint()?;
                }
                loader.add(0, key, value)?;
                loader.add(1, key, value)
            });
        let result = added.and_then(|()| loader.finish());
        drop(store);
        let disk = disk.after_crash(&mut random);
        let store = Store::open(options(&disk)).unwrap();
        let loading = [1, 2].map(|tree| store.is_loading(TreeId(tree)));
        assert_eq!(loading[0], loading[1], "seed {seed}");
        if loading[0] {
            assert!(result.is_err(), "seed {seed}: a finished load is gone");
        } else {
            finished += 1;
            let loaded: Map = loaded.into_iter().collect();
            assert!(content(&store, TreeId(2)) == loaded);
            committed.extend(loaded);
            committed.remove(&b"key000001"[..]);
        }
        assert!(content(&store, TreeId(1)) == committed, "seed {seed}");
        store.checkpoint().unwrap();
        if loading[0] {
            let mut loader = store.bulk_loader(&loads, None).unwrap();
            loader.add(0, b"key000001", b"deleted").unwrap();
            loader.add(0, b"again", b"").unwrap();
            loader.finish().unwrap();
            committed.insert(b"again".to_vec(), Vec::new());
            assert!(content(&store, TreeId(1)) == committed, "seed {seed}");
        }
    }
    assert!(
        (5..55).contains(&finished),
        "{finished} loads were finished"
    );
}
