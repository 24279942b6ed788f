//! Random operations on a store, compared with ordered maps.
//!
//! `FROND_MODELS` sets the number of runs, `FROND_SEED` the first seed.

#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use frond_tree::{
    Compression, Direction, Durability, Malformed, MergeOperator, Options, Snapshot, Store, TreeId,
    TreeOptions, WriteSet,
};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

mod detach;
use crate::list;

use crate::waiting::wait_until;
use detach::detach;

/// Values are decimal numbers; a delta adds. A sum of 0 is absent. Some keys hold lists instead.
struct Adder;

fn number(bytes: &[u8]) -> i64 {
    std::str::from_utf8(bytes)
        .ok()
        .and_then(|text| text.split(' ').next()?.parse().ok())
        .unwrap_or(0)
}

impl MergeOperator for Adder {
    fn apply(
        &self,
        tree: TreeId,
        key: &[u8],
        base: Option<&[u8]>,
        delta: &[u8],
    ) -> Result<Option<Vec<u8>>, Malformed> {
        if list::is_list(key) {
            return list::Lists.apply(tree, key, base, delta);
        }
        let sum = base.map_or(0, number) + number(delta);
        Ok((sum != 0).then(|| sum.to_string().into_bytes()))
    }

    fn combine(
        &self,
        tree: TreeId,
        key: &[u8],
        older: &[u8],
        newer: &[u8],
    ) -> Result<Vec<u8>, Malformed> {
        self.combine_all(tree, key, &[older, newer])
    }

    fn apply_all(
        &self,
        tree: TreeId,
        key: &[u8],
        base: Option<&[u8]>,
        deltas: &[&[u8]],
    ) -> Result<Option<Vec<u8>>, Malformed> {
        if list::is_list(key) {
            return list::Lists.apply_all(tree, key, base, deltas);
        }
        self.apply(tree, key, base, &self.combine_all(tree, key, deltas)?)
    }

    fn combine_all(
        &self,
        tree: TreeId,
        key: &[u8],
        deltas: &[&[u8]],
    ) -> Result<Vec<u8>, Malformed> {
        if list::is_list(key) {
            return list::Lists.combine_all(tree, key, deltas);
        }
        let sum: i64 = deltas.iter().map(|delta| number(delta)).sum();
        Ok(sum.to_string().into_bytes())
    }

    fn check(&self, _: TreeId, _: &[u8], _: &[u8]) -> Result<(), Malformed> {
        Ok(())
    }
}

type Map = BTreeMap<Vec<u8>, Vec<u8>>;
type Model = BTreeMap<TreeId, Map>;

fn options(path: &std::path::Path) -> Options {
    sized_options(path, 64 << 10)
}

fn sized_options(path: &std::path::Path, memtable_bytes: usize) -> Options {
    let mut options = Options::new(path);
    options.cache_bytes = 8 << 20;
    options.memtable_bytes = Some(memtable_bytes);
    options.fanout = 4;
    options.merge = Arc::new(Adder);
    options
}

fn tree_options(index: usize) -> TreeOptions {
    let codecs = [
        Compression::Zstd,
        Compression::None,
        Compression::Lz4,
        Compression::Snappy,
    ];
    TreeOptions {
        compression: codecs[index % 4],
        node_bytes: 64 << 10,
        page_bytes: 1 << 10,
    }
}

fn check_range(random: &mut SmallRng, snapshot: &Snapshot, tree: TreeId, map: &Map) {
    let bound = |random: &mut SmallRng| match random.random_range(0..4) {
        0 => Bound::Unbounded,
        1 => Bound::Included(random_key(random)),
        _ => Bound::Excluded(random_key(random)),
    };
    let (lower, upper) = (bound(random), bound(random));
    let inside = |key: &Vec<u8>| {
        (match &lower {
            Bound::Included(lower) => key >= lower,
            Bound::Excluded(lower) => key > lower,
            Bound::Unbounded => true,
        }) && (match &upper {
            Bound::Included(upper) => key <= upper,
            Bound::Excluded(upper) => key < upper,
            Bound::Unbounded => true,
        })
    };
    let mut expected: Vec<_> = map.iter().filter(|(key, _)| inside(key)).collect();
    let direction = if random.random_bool(0.5) {
        Direction::Forward
    } else {
        expected.reverse();
        Direction::Backward
    };
    let as_slice = |bound: &Bound<Vec<u8>>| match bound {
        Bound::Included(key) => Bound::Included(key.clone()),
        Bound::Excluded(key) => Bound::Excluded(key.clone()),
        Bound::Unbounded => Bound::Unbounded,
    };
    let (low, high) = (as_slice(&lower), as_slice(&upper));
    let mut cursor = snapshot
        .cursor(
            tree,
            low.as_ref().map(Vec::as_slice),
            high.as_ref().map(Vec::as_slice),
            direction,
        )
        .unwrap();
    for (key, value) in &expected {
        let found = cursor.next().unwrap();
        assert_eq!(
            found,
            Some((key.as_slice(), value.as_slice())),
            "{direction:?} {lower:?} {upper:?}"
        );
    }
    assert_eq!(cursor.next().unwrap(), None);
    assert_eq!(cursor.next().unwrap(), None);
    // A seek inside the range, in the cursor's direction.
    let target = random_key(random);
    cursor.seek(&target).unwrap();
    let next = expected.iter().find(|(key, _)| match direction {
        Direction::Forward => **key >= target,
        Direction::Backward => **key <= target,
    });
    assert_eq!(
        cursor.next().unwrap(),
        next.map(|(key, value)| (key.as_slice(), value.as_slice()))
    );
}

fn random_key(random: &mut SmallRng) -> Vec<u8> {
    format!("key{:05}", random.random_range(0..20_000u32)).into_bytes()
}

/// Bounds of a range delete: a few keys mostly, sometimes much or everything.
fn random_range(random: &mut SmallRng, index: usize, ascending: u64) -> (Vec<u8>, Option<Vec<u8>>) {
    if index == 0 && random.random_bool(0.3) {
        // The right edge of the first tree, and keys that will be appended there.
        let back = random.random_range(0..40);
        let from = format!("new{:08}", ascending.saturating_sub(back)).into_bytes();
        let upto = format!("new{:08}", ascending + random.random_range(1..40)).into_bytes();
        return (from, random.random_bool(0.7).then_some(upto));
    }
    let from = random.random_range(0..20_000u32);
    let len = match random.random_range(0..1000) {
        0 => 20_000,
        1..4 => random.random_range(0..20_000),
        4..60 => random.random_range(0..1000),
        60..800 => random.random_range(0..60),
        _ => 1,
    };
    let key = |number: u32| format!("key{number:05}").into_bytes();
    let lower = match random.random_range(0..2000) {
        0 => Vec::new(),
        _ => key(from),
    };
    let upper = match len {
        20_000 => None,
        len => Some(key(from.saturating_add(len))),
    };
    (lower, upper)
}

fn check_all(random: &mut SmallRng, snapshot: &Snapshot, model: &Model) {
    for (tree, map) in model {
        check_range(random, snapshot, *tree, map);
        let lists = (0..3).map(|list| [list::PREFIX, list.to_string().as_bytes()].concat());
        let keys: Vec<_> = (0..20).map(|_| random_key(random)).chain(lists).collect();
        for key in keys {
            assert_eq!(
                snapshot.get(*tree, &key).unwrap().as_deref(),
                map.get(&key).map(Vec::as_slice)
            );
        }
    }
}

/// Sends an update message, and does in the model what it does.
fn merge(set: &mut WriteSet, tree: TreeId, map: &mut Map, key: Vec<u8>, delta: &[u8]) {
    set.merge(tree, &key, delta);
    let base = map.get(&key).map(Vec::as_slice);
    match Adder.apply(tree, &key, base, delta).unwrap() {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    };
}

/// Returns the greatest height of a tree.
fn run(seed: u64, steps: usize) -> u32 {
    println!("seed {seed}");
    let mut random = SmallRng::seed_from_u64(seed);
    let directory = tempfile::tempdir().unwrap();
    // Small memtables are flushed often; in larger ones many range deletes overlap.
    let options = || sized_options(directory.path(), 64 << (10 + seed % 2 * 3));
    let mut store = Store::open(options()).unwrap();
    let mut model = Model::new();
    let mut snapshots: Vec<(Snapshot, Model)> = Vec::new();
    let mut ascending = 0u64;
    let mut height = 0;
    for step in 0..steps {
        let mut set = WriteSet::new();
        let mut next = model.clone();
        if (model.len() < 4 && random.random_bool(0.2)) || model.is_empty() {
            let tree = store.allocate_tree();
            set.create_tree(tree, &tree_options(model.len()));
            next.insert(tree, Map::new());
        } else if model.len() > 1 && random.random_bool(0.002) {
            let tree = *model.keys().next().unwrap();
            set.drop_tree(tree);
            next.remove(&tree);
        }
        let trees: Vec<TreeId> = next.keys().copied().collect();
        let wide = random.random_bool(0.3);
        for _ in 0..random.random_range(1..60) {
            let index = random.random_range(0..trees.len());
            let (tree, map) = (trees[index], next.get_mut(&trees[index]).unwrap());
            let mut key = random_key(&mut random);
            let filler = random.random_range(1..if wide { 900 } else { 30 });
            let value =
                format!("{} {}", random.random_range(-3..3), "x".repeat(filler)).into_bytes();
            match random.random_range(0..10) {
                0..5 => {
                    if index == 0 {
                        // The first tree mostly gets appends.
                        ascending += 1;
                        key = format!("new{ascending:08}").into_bytes();
                    }
                    set.put(tree, &key, &value);
                    map.insert(key, value);
                }
                5..7 => {
                    set.delete(tree, &key);
                    map.remove(&key);
                }
                _ => {
                    let delta = random.random_range(-2..3i64).to_string();
                    merge(&mut set, tree, map, key, delta.as_bytes());
                }
            }
        }
        if random.random_bool(0.3) {
            // Bursts of messages to few lists.
            let tree = trees[random.random_range(0..trees.len())];
            let map = next.get_mut(&tree).unwrap();
            for _ in 0..random.random_range(1..60) {
                let list = random.random_range(0..4u32).saturating_sub(1);
                let key = [list::PREFIX, list.to_string().as_bytes()].concat();
                let delta = random.random_range(0..1i64 << 20).to_le_bytes();
                match random.random_range(0..500) {
                    0 => {
                        let value = delta.repeat(random.random_range(0..200));
                        set.put(tree, &key, &value);
                        map.insert(key, value);
                    }
                    1 => {
                        set.delete(tree, &key);
                        map.remove(&key);
                    }
                    2 => {
                        let upper = [list::PREFIX, b"2"].concat();
                        set.delete_range(tree, &key, Some(&upper));
                        map.retain(|at, _| *at < key || *at >= upper);
                    }
                    _ => merge(&mut set, tree, map, key, &delta),
                }
            }
        }
        if random.random_bool(0.25) {
            for _ in 0..random.random_range(1..4) {
                let index = random.random_range(0..trees.len());
                let map = next.get_mut(&trees[index]).unwrap();
                let (lower, upper) = random_range(&mut random, index, ascending);
                set.delete_range(trees[index], &lower, upper.as_deref());
                map.retain(|key, _| {
                    *key < lower || upper.as_ref().is_some_and(|upper| key >= upper)
                });
                // Some keys come back in the same commit, or are changed by a delta to nothing.
                for _ in 0..random.random_range(0..3) {
                    let key = random_key(&mut random);
                    if random.random_bool(0.5) {
                        set.put(trees[index], &key, b"1");
                        map.insert(key, b"1".to_vec());
                    } else {
                        merge(&mut set, trees[index], map, key, b"1");
                    }
                }
            }
        }
        if random.random_bool(0.002) {
            // One commit deletes most of a tree.
            let index = random.random_range(0..trees.len());
            let map = next.get_mut(&trees[index]).unwrap();
            let keys: Vec<Vec<u8>> = map.keys().skip(map.len() / 10).cloned().collect();
            for key in keys {
                set.delete(trees[index], &key);
                map.remove(&key);
            }
        }
        let how = if random.random_bool(0.02) {
            Durability::Synced
        } else {
            Durability::Logged
        };
        store.commit(set, how).unwrap();
        model = next;
        match random.random_range(0..100) {
            0..4 => snapshots.push((store.snapshot(), model.clone())),
            4..7 if !snapshots.is_empty() => {
                let index = random.random_range(0..snapshots.len());
                let (snapshot, then) = snapshots.swap_remove(index);
                check_all(&mut random, &snapshot, &then);
            }
            15..18 if !snapshots.is_empty() => {
                let index = random.random_range(0..snapshots.len());
                let (snapshot, then) = &mut snapshots[index];
                detach(&mut random, &store, snapshot, then);
            }
            7..12 => check_all(&mut random, &store.snapshot(), &model),
            12 => {
                store.checkpoint().unwrap();
                let heights = model.keys().map(|tree| store.tree_stats(*tree).height);
                height = heights.chain([height]).max().unwrap();
            }
            14 if step % 3 == 0 => {
                if step % 6 == 0 {
                    store.compact().unwrap()
                } else {
                    let trees: Vec<TreeId> = model.keys().copied().collect();
                    assert!(store.compact_trees(&trees, |_| true).unwrap());
                }
                for tree in model.keys() {
                    assert_eq!(store.tree_stats(*tree).pending_bytes, 0);
                }
                check_all(&mut random, &store.snapshot(), &model);
            }
            13 if step % 3 == 0 => {
                snapshots.clear();
                store.close().unwrap();
                store = Store::open(options()).unwrap();
                check_all(&mut random, &store.snapshot(), &model);
            }
            _ => {}
        }
    }
    store.checkpoint().unwrap();
    check_all(&mut random, &store.snapshot(), &model);
    println!("height {height}, {:?}", store.stats());
    snapshots.clear();
    store.close().unwrap();
    drop(store);
    let report = Store::verify(&options(), &mut |_| {}).unwrap();
    assert_eq!(report.problems, [], "seed {seed}");
    height
}

#[test]
fn behaves_like_ordered_maps() {
    let number =
        |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let first: u64 = number("FROND_SEED", 1);
    let seeds = first..first + number("FROND_MODELS", 2);
    let height = seeds.map(|seed| run(seed, 1800)).max().unwrap();
    assert!(height >= 3, "the test must build deep trees");
}

#[test]
fn guarded_keys_conflict_and_blind_ones_do_not() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(options(directory.path())).unwrap();
    let tree = store.allocate_tree();
    let mut set = WriteSet::new();
    set.create_tree(tree, &TreeOptions::default());
    store.commit(set, Durability::Logged).unwrap();
    let snapshot = store.snapshot();
    let write = |value: &[u8]| {
        let mut set = WriteSet::with_snapshot(&snapshot);
        set.put_guarded(tree, b"k", value);
        store.commit(set, Durability::Logged)
    };
    write(b"first").unwrap();
    assert!(matches!(
        write(b"second"),
        Err(frond_tree::Error::Conflict { .. })
    ));
    let mut blind = WriteSet::new();
    blind.put(tree, b"other", b"1");
    store.commit(blind, Durability::Logged).unwrap();
    assert_eq!(
        store.snapshot().get(tree, b"k").unwrap().as_deref(),
        Some(&b"first"[..])
    );
    assert!(snapshot.get(tree, b"k").unwrap().is_none());
}

#[test]
fn increments_from_many_threads_are_all_there() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(options(directory.path())).unwrap();
    let tree = store.allocate_tree();
    let mut set = WriteSet::new();
    set.create_tree(tree, &tree_options(0));
    store.commit(set, Durability::Logged).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let store = store.clone();
            scope.spawn(move || {
                let mut random = SmallRng::seed_from_u64(thread);
                for _ in 0..1000 {
                    loop {
                        let snapshot = store.snapshot();
                        let value = snapshot.get(tree, b"counter").unwrap();
                        let next = value.as_deref().map_or(0, number) + 1;
                        let mut set = WriteSet::with_snapshot(&snapshot);
                        set.put_guarded(tree, b"counter", next.to_string().as_bytes());
                        set.put(tree, &random_key(&mut random), &[b'7'; 100]);
                        match store.commit(set, Durability::Logged) {
                            Ok(_) => break,
                            Err(frond_tree::Error::Conflict { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
            });
        }
    });
    assert_eq!(
        number(&store.snapshot().get(tree, b"counter").unwrap().unwrap()),
        4000
    );
}

#[test]
fn an_idle_store_compacts_in_the_background() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(options(directory.path())).unwrap();
    let tree = store.allocate_tree();
    let mut set = WriteSet::new();
    set.create_tree(tree, &tree_options(0));
    store.commit(set, Durability::Logged).unwrap();
    let mut random = SmallRng::seed_from_u64(3);
    for _ in 0..3000 {
        let mut set = WriteSet::new();
        for _ in 0..20 {
            set.put(tree, &random_key(&mut random), &[7; 50]);
        }
        store.commit(set, Durability::Logged).unwrap();
    }
    wait_until("a compacted tree", || {
        store.tree_stats(tree).pending_bytes == 0
    });
}

#[test]
fn hot_keys_are_exact_in_every_snapshot() {
    const EACH: i64 = 1500;
    let directory = tempfile::tempdir().unwrap();
    // Some memtables fill up meanwhile.
    let options = || sized_options(directory.path(), 512 << 10);
    let mut store = Store::open(options()).unwrap();
    let trees = [store.allocate_tree(), store.allocate_tree()];
    let mut set = WriteSet::new();
    set.create_tree(trees[0], &tree_options(0));
    set.create_tree(trees[1], &tree_options(1));
    store.commit(set, Durability::Logged).unwrap();
    // Both lists get the same changes, in the same order.
    let keys = ["list of one tree", "list of the other"].map(str::as_bytes);
    let both = |snapshot: &Snapshot| {
        let get = |index: usize| {
            let found = snapshot.get(trees[index], keys[index]).unwrap();
            found.map_or(Vec::new(), |value| value.to_vec())
        };
        let scanned = trees.map(|tree| {
            let mut cursor = snapshot
                .cursor(
                    tree,
                    Bound::Unbounded,
                    Bound::Unbounded,
                    Direction::Backward,
                )
                .unwrap();
            cursor
                .next()
                .unwrap()
                .map_or(Vec::new(), |(_, value)| value.to_vec())
        });
        let lists = [get(0), get(1)];
        assert_eq!(lists[0], lists[1]);
        assert_eq!(lists, scanned);
        let [list, _] = lists;
        // Of each thread: its name, and how often it has added 1.
        let elements = list.chunks_exact(8);
        elements
            .map(|element| i64::from_le_bytes(element.try_into().unwrap()))
            .map(|element| (element >> 2 & 15, element >> 6))
            .collect::<BTreeMap<i64, i64>>()
    };
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3i64)
            .map(|thread| {
                let store = store.clone();
                scope.spawn(move || {
                    for number in 0..EACH {
                        let mut set = WriteSet::new();
                        for (tree, key) in trees.iter().zip(keys) {
                            set.merge(*tree, key, &(1 << 6 | thread << 2).to_le_bytes());
                        }
                        if number % 100 == 99 {
                            // A name that comes and goes, so that the order counts.
                            for change in [1 << 6 | 9 << 2, 9 << 2 | 2] {
                                for (tree, key) in trees.iter().zip(keys) {
                                    set.merge(*tree, key, &i64::to_le_bytes(change));
                                }
                            }
                        }
                        store.commit(set, Durability::Logged).unwrap();
                    }
                })
            })
            .collect();
        let (store, done) = (store.clone(), &done);
        let reader = scope.spawn(move || {
            let mut held = Vec::new();
            let mut before = BTreeMap::new();
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let snapshot = store.snapshot();
                let now = both(&snapshot);
                for (name, count) in &before {
                    assert!(now[name] >= *count, "{name}: {now:?} after {before:?}");
                }
                before.clone_from(&now);
                held.push((snapshot, now));
                if held.len() > 40 {
                    let (snapshot, then) = held.swap_remove(held.len() / 2);
                    assert_eq!(both(&snapshot), then);
                }
            }
            for (snapshot, then) in held {
                assert_eq!(both(&snapshot), then);
            }
        });
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        reader.join().unwrap();
    });
    let all = BTreeMap::from([(0, EACH), (1, EACH), (2, EACH)]);
    assert_eq!(both(&store.snapshot()), all);
    store.close().unwrap();
    store = Store::open(options()).unwrap();
    assert_eq!(both(&store.snapshot()), all);
}

#[test]
fn update_messages_are_written_combined_and_in_batches() {
    const KEYS: u64 = 3000;
    let directory = tempfile::tempdir().unwrap();
    let mut options = sized_options(directory.path(), 256 << 10);
    options.inline = true;
    let store = Store::open(options).unwrap();
    let trees = [store.allocate_tree(), store.allocate_tree()];
    let key = |number: u64| [list::PREFIX, &number.to_be_bytes()].concat();
    let commit = |set: &mut WriteSet| {
        let set = std::mem::take(set);
        store.commit(set, Durability::Logged).unwrap();
    };
    let mut set = WriteSet::new();
    set.create_tree(trees[0], &tree_options(1));
    // Nothing is resolved in a tree that waits for its load.
    set.create_tree_to_load(trees[1], &tree_options(1));
    commit(&mut set);
    for number in 0..KEYS {
        set.put(trees[0], &key(number), &1i64.to_le_bytes().repeat(60));
        commit(&mut set);
    }
    store.compact().unwrap();

    // Messages at random: a leaf is only written again when it gets many of them.
    let messages = 60_000;
    let before = store.stats().written_bytes;
    let mut random = SmallRng::seed_from_u64(9);
    for _ in 0..messages {
        let key = key(random.random_range(0..KEYS));
        set.merge(trees[0], &key, &(1i64 << 6).to_le_bytes());
        commit(&mut set);
    }
    store.checkpoint().unwrap();
    let each = (store.stats().written_bytes - before) / messages;
    println!("{each} bytes for each message");
    assert!(each < 100, "{each} bytes for each message");

    // Messages for one key: each flush writes one to the tree.
    let flushes = store.stats().memtables_flushed;
    for _ in 0..messages {
        set.merge(trees[1], &key(7), &(1i64 << 6).to_le_bytes());
        commit(&mut set);
    }
    store.checkpoint().unwrap();
    let flushes = store.stats().memtables_flushed - flushes;
    assert!(flushes > 5);
    let pending = store.tree_stats(trees[1]).pending_bytes;
    assert!(
        pending <= flushes * 50,
        "{pending} bytes after {flushes} flushes"
    );
    let found = store.snapshot().get(trees[1], &key(7)).unwrap().unwrap();
    let sum = i64::from_le_bytes(found[..].try_into().unwrap()) >> 6;
    assert_eq!(sum, messages as i64);
}
