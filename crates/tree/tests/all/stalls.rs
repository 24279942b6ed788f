//! The work of one client holds up no other: late commits beside loads, drops of large trees.
#![allow(clippy::unwrap_used, missing_docs)]

use frond_tree::{Durability, Options, Snapshot, SpaceStats, Store, TreeOptions, WriteSet};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

fn sized_options(path: &std::path::Path, memtable_bytes: usize) -> Options {
    let mut options = Options::new(path);
    options.cache_bytes = 8 << 20;
    options.memtable_bytes = Some(memtable_bytes);
    options.fanout = 4;
    options
}

/// Small nodes.
fn tree_options() -> TreeOptions {
    TreeOptions {
        node_bytes: 64 << 10,
        page_bytes: 2 << 10,
        ..TreeOptions::default()
    }
}

fn random_key(random: &mut SmallRng) -> Vec<u8> {
    random.random::<[u8; 8]>().to_vec()
}

/// The table of recent commits was one for all trees: after 262,144 commits of other trees each commit on an older
/// snapshot got a conflict.
#[test]
fn a_slow_commit_beside_a_load_of_another_tree_has_no_conflict() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(sized_options(directory.path(), 1 << 20)).unwrap();
    let [quiet, loaded] = [store.allocate_tree(), store.allocate_tree()];
    let mut set = WriteSet::new();
    set.create_tree(quiet, &TreeOptions::default());
    set.create_tree(loaded, &TreeOptions::default());
    store.commit(set, Durability::Logged).unwrap();
    let load = || {
        for batch in 0..270u32 {
            let mut set = WriteSet::new();
            for number in 0..1000u32 {
                let key = [batch.to_be_bytes(), number.to_be_bytes()].concat();
                set.put_guarded(loaded, &key, b"");
            }
            store.commit(set, Durability::Logged).unwrap();
        }
    };
    let put = |tree, snapshot: &Snapshot, key: &[u8]| {
        let mut set = WriteSet::with_snapshot(snapshot);
        set.put_guarded(tree, key, b"");
        store.commit(set, Durability::Logged)
    };
    let snapshot = store.snapshot();
    load();
    put(quiet, &snapshot, b"k").unwrap();
    let again = put(quiet, &snapshot, b"k");
    assert!(matches!(again, Err(frond_tree::Error::Conflict { .. })));
    // In the loaded tree the snapshot is too old, unless it was held.
    let old = put(loaded, &snapshot, b"k");
    assert!(matches!(old, Err(frond_tree::Error::Conflict { .. })));
}

#[test]
fn a_held_snapshot_conflicts_only_with_commits_of_its_keys() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = sized_options(directory.path(), 1 << 20);
    options.cache_bytes = 64 << 20;
    let store = Store::open(options).unwrap();
    let tree = store.allocate_tree();
    let mut set = WriteSet::new();
    set.create_tree(tree, &TreeOptions::default());
    store.commit(set, Durability::Logged).unwrap();
    let snapshot = store.snapshot();
    let hold = store.hold_conflicts(&snapshot);
    for batch in 0..150u32 {
        let mut set = WriteSet::new();
        for number in 0..1000u32 {
            let key = [batch.to_be_bytes(), number.to_be_bytes()].concat();
            set.put_guarded(tree, &key, b"");
        }
        store.commit(set, Durability::Logged).unwrap();
    }
    let put = |key: &[u8]| {
        let mut set = WriteSet::with_snapshot(&snapshot);
        set.put_guarded(tree, key, b"");
        store.commit(set, Durability::Logged)
    };
    let taken = put(&[0; 8]);
    assert!(matches!(taken, Err(frond_tree::Error::Conflict { .. })));
    put(b"free").unwrap();
    drop(hold);
    let forgotten = put(b"another");
    assert!(matches!(forgotten, Err(frond_tree::Error::Conflict { .. })));
}

/// The commit removed all pages of the tree from the cache, one by one, under the commit lock; or the reader did, who
/// dropped the last snapshot of the tree.
#[test]
fn a_drop_leaves_the_pages_of_the_tree_to_the_background() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = sized_options(directory.path(), 1 << 20);
    options.cache_bytes = 64 << 20;
    options.inline = true;
    let store = Store::open(options).unwrap();
    let tree = store.allocate_tree();
    let mut set = WriteSet::new();
    set.create_tree(tree, &tree_options());
    store.commit(set, Durability::Logged).unwrap();
    let mut random = SmallRng::seed_from_u64(3);
    for _ in 0..40 {
        let mut set = WriteSet::new();
        for _ in 0..500 {
            set.put(tree, &random_key(&mut random), &[b'7'; 100]);
        }
        store.commit(set, Durability::Logged).unwrap();
    }
    store.checkpoint().unwrap();
    assert!(store.tree_stats(tree).height > 1);
    let before = store.stats();
    let snapshot = store.snapshot();
    let key = random_key(&mut random);
    let value = snapshot.get(tree, &key).unwrap();
    let mut set = WriteSet::new();
    set.drop_tree(tree);
    store.commit(set, Durability::Logged).unwrap();
    assert!(store.stats().page_bytes >= before.page_bytes);
    assert_eq!(
        snapshot.get(tree, &key).unwrap().as_deref(),
        value.as_deref()
    );
    store.checkpoint().unwrap();
    drop(snapshot);
    assert!(store.stats().page_bytes >= before.page_bytes);
    for _ in 0..20 {
        let mut set = WriteSet::new();
        set.create_tree(store.allocate_tree(), &tree_options());
        store.commit(set, Durability::Logged).unwrap();
        store.checkpoint().unwrap();
    }
    let after = store.stats();
    assert!(after.page_bytes < before.page_bytes / 4);
    let used = |space: SpaceStats| space.file_bytes - space.free_bytes - space.waiting_bytes;
    assert!(used(after.space) < used(before.space) / 4);
}
