//! Flushes that are divided among threads: their content is the same whatever the number of threads and the order of the
//! pieces, and what loaders append side by side is written once.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use frond_tree::{Direction, Durability, Options, Snapshot, Store, TreeId, TreeOptions, WriteSet};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

const NODE_BYTES: u32 = 16 << 10;

fn open(path: &std::path::Path, threads: usize, inline: bool, memtable: usize) -> Store {
    let mut options = Options::new(path);
    options.cache_bytes = 32 << 20;
    options.memtable_bytes = Some(memtable);
    options.fanout = 4;
    options.flush_threads = threads;
    options.inline = inline;
    Store::open(options).unwrap()
}

fn create_tree(store: &Store) -> TreeId {
    let tree = store.allocate_tree();
    let options = TreeOptions {
        node_bytes: NODE_BYTES,
        page_bytes: 1 << 10,
        ..TreeOptions::default()
    };
    let mut set = WriteSet::new();
    set.create_tree(tree, &options);
    store.commit(set, Durability::Logged).unwrap();
    tree
}

fn content(snapshot: &Snapshot, tree: TreeId) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut cursor = snapshot
        .cursor(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward)
        .unwrap();
    let mut found = Vec::new();
    while let Some((key, value)) = cursor.next().unwrap() {
        found.push((key.to_vec(), value.to_vec()));
    }
    found
}

fn bytes(random: &mut SmallRng, len: usize) -> Vec<u8> {
    (0..len).map(|_| random.random()).collect()
}

/// Random keys, ascending ones, ascending ones with some below the last key, deletes and range deletes.
#[test]
fn the_content_does_not_depend_on_the_threads() {
    let mut models = Vec::new();
    for (threads, inline) in [
        (1, true),
        (2, true),
        (4, true),
        (7, true),
        (2, false),
        (8, false),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path(), threads, inline, 128 << 10);
        let trees = [(); 3].map(|()| create_tree(&store));
        let mut model = [(); 3].map(|()| BTreeMap::new());
        let mut random = SmallRng::seed_from_u64(20);
        let mut next = 0u64;
        for _ in 0..300 {
            let mut set = WriteSet::new();
            for _ in 0..20 {
                let any = random.random_range(0..1u64 << 40).to_be_bytes().to_vec();
                next += 1;
                // The second tree has runs of keys that come late.
                let late = if random.random_bool(0.1) {
                    next.saturating_sub(random.random_range(0..60))
                } else {
                    next
                };
                for (index, key) in [
                    any,
                    next.to_be_bytes().to_vec(),
                    late.to_be_bytes().to_vec(),
                ]
                .into_iter()
                .enumerate()
                {
                    let len = random.random_range(0..90);
                    let value = bytes(&mut random, len);
                    set.put(trees[index], &key, &value);
                    model[index].insert(key, value);
                }
                if random.random_bool(0.05) {
                    let index = random.random_range(0..3);
                    let from = random.random_range(0..next).to_be_bytes().to_vec();
                    let found = model[index].range(from..).next();
                    if let Some(key) = found.map(|(key, _): (&Vec<u8>, &Vec<u8>)| key.clone()) {
                        set.delete(trees[index], &key);
                        model[index].remove(&key);
                    }
                }
            }
            if random.random_bool(0.01) {
                let index = random.random_range(0..3);
                let from = random.random_range(0..next);
                let (from, to) = (from.to_be_bytes(), (from + 300).to_be_bytes());
                set.delete_range(trees[index], &from, Some(&to));
                let gone = model[index].range(from.to_vec()..to.to_vec());
                let gone: Vec<Vec<u8>> = gone.map(|(key, _)| key.clone()).collect();
                for key in gone {
                    model[index].remove(&key);
                }
            }
            store.commit(set, Durability::Logged).unwrap();
        }
        store.checkpoint().unwrap();
        let check = |store: &Store| {
            let snapshot = store.snapshot();
            for (tree, model) in trees.iter().zip(&model) {
                let expected: Vec<_> = model.clone().into_iter().collect();
                assert!(
                    content(&snapshot, *tree) == expected,
                    "{threads} threads, inline: {inline}"
                );
            }
        };
        check(&store);
        store.close().unwrap();
        let store = open(directory.path(), threads, inline, 128 << 10);
        check(&store);
        store.close().unwrap();
        let report = Store::verify(&Options::new(directory.path()), &mut |_| {}).unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
        models.push(model);
    }
    assert!(models.windows(2).all(|pair| pair[0] == pair[1]));
}

/// Batches that are committed out of order leave some keys below the last one of the memtable before. All of the memtable went
/// through the buffer of the root for that, and was written twice.
#[test]
fn what_loaders_append_side_by_side_is_written_once() {
    let written = |swaps: bool| {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path(), 2, true, 1 << 20);
        let tree = create_tree(&store);
        let mut random = SmallRng::seed_from_u64(1);
        let mut order: Vec<u64> = (0..1200).collect();
        if swaps {
            order.chunks_mut(2).for_each(|pair| pair.reverse());
            order[1..].chunks_mut(2).for_each(|pair| pair.reverse());
        }
        let mut bytes_of_user = 0;
        for batch in order {
            let mut set = WriteSet::new();
            for key in batch * 50..batch * 50 + 50 {
                let value = bytes(&mut random, 100);
                bytes_of_user += 8 + value.len() as u64;
                set.put(tree, &key.to_be_bytes(), &value);
            }
            store.commit(set, Durability::Logged).unwrap();
        }
        store.checkpoint().unwrap();
        let stats = store.stats();
        assert!(stats.memtables_flushed > 4);
        assert_eq!(content(&store.snapshot(), tree).len(), 60_000);
        stats.written_bytes as f64 / bytes_of_user as f64
    };
    let (ordered, swapped) = (written(false), written(true));
    assert!(
        swapped < ordered * 1.3,
        "{swapped:.2} bytes written for each byte, {ordered:.2} in order"
    );
}

/// A flush that is divided among threads while commits and readers go on.
#[test]
fn snapshots_are_whole_while_threads_flush() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), 6, false, 128 << 10);
    let trees = [create_tree(&store), create_tree(&store)];
    let numbers = Arc::new(AtomicU64::new(0));
    let loaders: Vec<_> = (0..3)
        .map(|_| {
            let (store, numbers) = (store.clone(), numbers.clone());
            std::thread::spawn(move || {
                for _ in 0..250 {
                    let mut set = WriteSet::new();
                    let first = numbers.fetch_add(20, Ordering::Relaxed);
                    for number in first..first + 20 {
                        let value = [number as u8; 64];
                        set.put(trees[0], &number.to_be_bytes(), &value);
                        set.put(trees[1], &number.swap_bytes().to_be_bytes(), &value);
                    }
                    store.commit(set, Durability::Logged).unwrap();
                }
            })
        })
        .collect();
    while !loaders.iter().all(|loader| loader.is_finished()) {
        let snapshot = store.snapshot();
        let by_number = content(&snapshot, trees[0]);
        let mut swapped: Vec<Vec<u8>> = content(&snapshot, trees[1])
            .into_iter()
            .map(|(key, _)| key.into_iter().rev().collect())
            .collect();
        swapped.sort_unstable();
        let keys: Vec<Vec<u8>> = by_number.into_iter().map(|(key, _)| key).collect();
        assert!(keys == swapped);
        assert_eq!(keys.len() % 20, 0, "a commit is half there");
    }
    for loader in loaders {
        loader.join().unwrap();
    }
    assert_eq!(content(&store.snapshot(), trees[0]).len(), 15_000);
    store.close().unwrap();
}
