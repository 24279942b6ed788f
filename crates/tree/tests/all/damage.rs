//! Damage stays local: a damaged block costs the keys that need it, and everything else goes on.

#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::path::Path;
use std::sync::{Arc, Mutex};

use frond_kv_testing::Appends;
use frond_tree::{
    Damage, Direction, Durability, Error, EventListener, Options, Snapshot, Store, TreeId,
    TreeOptions, WriteSet,
};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

const TREES: [TreeId; 3] = [TreeId(1), TreeId(2), TreeId(3)];
/// The tree that is damaged.
const DAMAGED: TreeId = TreeId(2);
const KEYS: u32 = 4000;

type Model = BTreeMap<TreeId, BTreeMap<Vec<u8>, Vec<u8>>>;

/// Records the damage that is reported.
#[derive(Default)]
struct Told(Mutex<Vec<Damage>>);

impl EventListener for Told {
    fn damage_found(&self, damage: &Damage) {
        self.0.lock().unwrap().push(damage.clone());
    }
}

fn options(path: &Path) -> Options {
    let mut options = Options::new(path);
    options.cache_bytes = 8 << 20;
    options.memtable_bytes = Some(64 << 10);
    options.fanout = 4;
    options.inline = true;
    options.merge = Arc::new(Appends);
    options
}

fn create(store: &Store) {
    let mut set = WriteSet::new();
    for tree in TREES {
        let tree_options = TreeOptions {
            node_bytes: 8 << 10,
            page_bytes: 1 << 10,
            ..TreeOptions::default()
        };
        set.create_tree(tree, &tree_options);
    }
    store.commit(set, Durability::Logged).unwrap();
}

/// Random commits to all trees, each of which must succeed.
fn work(store: &Store, model: &mut Model, random: &mut SmallRng, commits: u32) {
    work_of_kinds(store, model, random, commits, 100);
}

/// As [`work`], with the operations below `kinds`: from 99 on they are range deletes.
fn work_of_kinds(
    store: &Store,
    model: &mut Model,
    random: &mut SmallRng,
    commits: u32,
    kinds: u32,
) {
    for _ in 0..commits {
        let mut set = WriteSet::new();
        for tree in TREES {
            let content = model.entry(tree).or_default();
            for _ in 0..4 {
                let number = random.random_range(0..KEYS);
                let key = number.to_be_bytes().to_vec();
                let value = vec![random.random::<u8>(); random.random_range(1..60)];
                match random.random_range(0..kinds) {
                    0..60 => {
                        set.put(tree, &key, &value);
                        content.insert(key, value);
                    }
                    60..75 => {
                        set.delete(tree, &key);
                        content.remove(&key);
                    }
                    75..99 => {
                        let delta = &value[..1];
                        set.merge(tree, &key, delta);
                        let old = content.entry(key).or_default();
                        old.extend_from_slice(delta);
                    }
                    _ => {
                        let upper = (number + random.random_range(1..60)).to_be_bytes().to_vec();
                        set.delete_range(tree, &key, Some(&upper));
                        content.retain(|at, _| *at < key || *at >= upper);
                    }
                }
            }
        }
        store.commit(set, Durability::Logged).unwrap();
    }
}

/// Compares everything that can be read with the model. Returns how many keys of the damaged tree cannot be read.
fn check(store: &Store, model: &Model) -> usize {
    let snapshot = store.snapshot();
    let mut lost = 0;
    for (tree, content) in model {
        for number in 0..KEYS {
            let key = number.to_be_bytes();
            match snapshot.get(*tree, &key) {
                Ok(found) => assert_eq!(found.as_deref(), content.get(&key[..]).map(|v| &v[..])),
                Err(error) => {
                    assert!(error.is_damage() && *tree == DAMAGED, "{tree:?}: {error}");
                    lost += 1;
                }
            }
        }
        for direction in [Direction::Forward, Direction::Backward] {
            scan(&snapshot, *tree, content, direction);
        }
    }
    lost
}

/// A scan finds the content up to the first damage. In the damaged tree it goes on after each damage.
fn scan(snapshot: &Snapshot, tree: TreeId, content: &BTreeMap<Vec<u8>, Vec<u8>>, way: Direction) {
    let mut cursor = snapshot.cursor(tree, Unbounded, Unbounded, way);
    let mut seen: Option<Vec<u8>> = None;
    loop {
        let next = match &mut cursor {
            Ok(cursor) => cursor
                .next()
                .map(|found| found.map(|(k, v)| (k.to_vec(), v.to_vec()))),
            Err(_) => return assert_eq!(tree, DAMAGED),
        };
        let expected = match (&seen, way) {
            (None, Direction::Forward) => content.first_key_value(),
            (None, Direction::Backward) => content.last_key_value(),
            (Some(seen), Direction::Forward) => content
                .range::<Vec<u8>, _>((Excluded(seen), Unbounded))
                .next(),
            (Some(seen), Direction::Backward) => content
                .range::<Vec<u8>, _>((Unbounded, Excluded(seen)))
                .next_back(),
        };
        let expected = expected.map(|(key, value)| (key.clone(), value.clone()));
        match next {
            Ok(None) => return assert_eq!(expected, None),
            Ok(found) => {
                assert_eq!(found, expected);
                seen = found.map(|(key, _)| key);
            }
            Err(error) => {
                assert!(error.is_damage() && tree == DAMAGED, "{tree:?}: {error}");
                let again = cursor.as_mut().unwrap().next();
                assert!(again.is_err(), "a cursor that failed goes on");
                return;
            }
        }
    }
}

/// Flips a byte of a block of the damaged tree that open stores read. Returns its offset.
fn damage(path: &Path, random: &mut SmallRng) -> u64 {
    let file = path.join("data.frond");
    let len = std::fs::metadata(&file).unwrap().len() as usize;
    loop {
        let at = random.random_range(8192..len);
        let flip = || {
            let mut bytes = std::fs::read(&file).unwrap();
            bytes[at] ^= 16;
            std::fs::write(&file, bytes).unwrap();
        };
        flip();
        let report = Store::verify(&self::options(path), &mut |_| {}).unwrap();
        let named = report.problems.iter().find(|it| it.tree == Some(DAMAGED));
        let is_padding = |what: &str| what.contains("zero");
        match named {
            Some(problem) if !is_padding(&problem.what) => return problem.offset,
            _ => flip(),
        }
    }
}

/// `FROND_SEED` sets the first seed.
fn first_seed() -> u64 {
    let set = std::env::var("FROND_SEED").ok();
    set.and_then(|seed| seed.parse().ok()).unwrap_or(0)
}

/// One damaged leaf, buffer or node stopped the flushes of all trees, and after that the replay, so that the store did not open.
#[test]
fn a_damaged_block_costs_only_the_keys_that_need_it() {
    let mut failed_reads = 0;
    for seed in first_seed()..first_seed() + 10 {
        let mut random = SmallRng::seed_from_u64(seed);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let mut model = Model::new();
        let store = Store::open(options(path)).unwrap();
        create(&store);
        work(&store, &mut model, &mut random, 1500);
        if seed % 2 == 0 {
            store.compact().unwrap();
        }
        store.close().unwrap();
        drop(store);

        let offset = damage(path, &mut random);
        let told = Arc::new(Told::default());
        for life in 0..3 {
            let mut options = options(path);
            options.listener = told.clone();
            let store = Store::open(options).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            work(&store, &mut model, &mut random, 600);
            failed_reads += check(&store, &model);
            store.checkpoint().unwrap();
            store.compact().unwrap();
            let lost = check(&store, &model);
            assert!(
                lost < KEYS as usize / 2,
                "seed {seed}, life {life}: {lost} keys"
            );
            for damage in store.damage() {
                assert_eq!(
                    (damage.tree, damage.offset()),
                    (Some(DAMAGED), Some(offset))
                );
            }
            let stopped = store.close();
            assert!(stopped.is_ok(), "seed {seed}: {stopped:?}");
            drop(store);
            let report = Store::verify(&self::options(path), &mut |_| {}).unwrap();
            let only = |at: &u64| *at == offset;
            let offsets: Vec<u64> = report.problems.iter().map(|it| it.offset).collect();
            assert!(
                offsets.iter().all(only),
                "seed {seed}: {:?}",
                report.problems
            );
        }
        for damage in &*told.0.lock().unwrap() {
            assert!(damage.to_string().contains(&offset.to_string()));
        }

        // A range delete over the damaged block heals the tree.
        let store = Store::open(options(path)).unwrap();
        let mut set = WriteSet::new();
        set.delete_range(DAMAGED, &[], None);
        store.commit(set, Durability::Logged).unwrap();
        model.insert(DAMAGED, BTreeMap::new());
        work(&store, &mut model, &mut random, 100);
        store.checkpoint().unwrap();
        store.compact().unwrap();
        assert_eq!(check(&store, &model), 0, "seed {seed}");
        assert_eq!(store.damage(), []);
        store.close().unwrap();
        drop(store);
        let report = Store::verify(&self::options(path), &mut |_| {}).unwrap();
        assert!(report.is_sound(), "seed {seed}: {:?}", report.problems);
    }
    assert!(failed_reads > 0);
}

/// Messages for a damaged leaf gather above it without end: their runs are merged.
#[test]
fn messages_for_a_damaged_leaf_gather_in_few_runs() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let mut random = SmallRng::seed_from_u64(1);
    let store = Store::open(options(path)).unwrap();
    create(&store);
    let mut model = Model::new();
    work(&store, &mut model, &mut random, 2000);
    store.compact().unwrap();
    store.close().unwrap();
    drop(store);
    damage(path, &mut random);

    let store = Store::open(options(path)).unwrap();
    // Range deletes would delete the leaf.
    work_of_kinds(&store, &mut model, &mut random, 3000, 99);
    let before = store.tree_stats(DAMAGED);
    work_of_kinds(&store, &mut model, &mut random, 12_000, 99);
    let after = store.tree_stats(DAMAGED);
    check(&store, &model);
    assert_eq!(store.damage().len(), 1);
    // The same keys are written again and again.
    assert!(
        after.disk_bytes < before.disk_bytes * 2,
        "{before:?} {after:?}"
    );
    let healthy = store.tree_stats(TREES[0]);
    assert!(after.height <= healthy.height + 2, "{after:?} {healthy:?}");
}

/// A filter that cannot be read only costs time.
#[test]
fn reads_do_without_a_damaged_filter() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let mut random = SmallRng::seed_from_u64(5);
    let store = Store::open(options(path)).unwrap();
    create(&store);
    let mut model = Model::new();
    work(&store, &mut model, &mut random, 1500);
    store.compact().unwrap();
    store.close().unwrap();
    drop(store);
    let file = path.join("data.frond");
    let whole = std::fs::read(&file).unwrap();
    // Some of the blocks are filters.
    let mut filters = 0;
    for _ in 0..30 {
        std::fs::write(&file, &whole).unwrap();
        let offset = damage(path, &mut random);
        let Ok(store) = Store::open(options(path)) else {
            continue;
        };
        let snapshot = store.snapshot();
        let range = (Included(&[][..]), Unbounded);
        let Ok(mut cursor) = snapshot.cursor(DAMAGED, range.0, range.1, Direction::Forward) else {
            continue;
        };
        let mut scanned = Ok(0);
        while let Ok(count) = scanned {
            scanned = match cursor.next() {
                Ok(Some(_)) => Ok(count + 1),
                Ok(None) => break,
                Err(error) => Err(error),
            };
        }
        if matches!(scanned, Err(Error::Corrupt { .. })) {
            continue;
        }
        assert_eq!(check(&store, &model), 0);
        let damage = store.damage();
        if damage.iter().any(|damage| damage.offset() == Some(offset)) {
            filters += 1;
        }
    }
    assert!(filters > 0);
}
