//! Snapshots, and backups of them, while writes go on.

#![allow(clippy::unwrap_used, missing_docs)]

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::ops::Bound::Unbounded;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use frond_tree::disk::FsDisk;
use frond_tree::{
    Compression, Direction, Durability, Error, Options, Snapshot, Store, TreeId, TreeOptions,
    WriteSet,
};

fn options(path: &Path) -> Options {
    let mut options = Options::new(path);
    options.cache_bytes = 8 << 20;
    options.memtable_bytes = Some(64 << 10);
    options.fanout = 4;
    options
}

fn tree_options(number: u32) -> TreeOptions {
    let codecs = [Compression::Zstd, Compression::None, Compression::Lz4];
    TreeOptions {
        compression: codecs[number as usize % 3],
        node_bytes: 64 << 10,
        page_bytes: 1 << 10,
    }
}

fn content(snapshot: &Snapshot, tree: TreeId) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut cursor = snapshot
        .cursor(tree, Unbounded, Unbounded, Direction::Forward)
        .unwrap();
    let mut content = Vec::new();
    while let Some((key, value)) = cursor.next().unwrap() {
        content.push((key.to_vec(), value.to_vec()));
    }
    content
}

/// Writes until `stop` is set, at least for a while.
fn write(store: &Store, stop: &AtomicBool) {
    let mut random = SmallRng::seed_from_u64(5);
    for number in 0..1_000_000u64 {
        if number > 3000 && stop.load(Ordering::Relaxed) {
            return;
        }
        let mut key = || format!("{:05}", random.random_range(0..20_000));
        let (key, other) = (key(), key());
        let mut set = WriteSet::new();
        set.put(TreeId(0), key.as_bytes(), &number.to_be_bytes());
        set.put(TreeId(300), key.as_bytes(), &[number as u8; 50]);
        set.merge(TreeId(301), &key.as_bytes()[..2], &number.to_be_bytes());
        set.delete(TreeId(0), other.as_bytes());
        if number % 20 == 0 {
            set.delete_range(TreeId(300), &key.as_bytes()[..4], Some(key.as_bytes()));
        }
        store.commit(set, Durability::Logged).unwrap();
    }
}

#[test]
fn a_backup_is_the_snapshot_whatever_is_written_meanwhile() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(options(&directory.path().join("store"))).unwrap();
    let trees = [0, 7, 300, 301].map(TreeId);
    let mut set = WriteSet::new();
    for tree in trees {
        set.create_tree(tree, &tree_options(tree.0));
    }
    store.commit(set, Durability::Logged).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write(&store, &stop));
        for round in 0..5 {
            std::thread::sleep(std::time::Duration::from_millis(40));
            let snapshot = store.snapshot();
            let path = directory.path().join(format!("copy {round}"));
            let mut last = 0;
            let report = snapshot
                .backup(options(&path), &mut |progress| {
                    last = progress.done_bytes;
                    assert!(last <= progress.total_bytes);
                })
                .unwrap();
            assert_eq!((report.trees, report.run_bytes), (4, last));
            let disk = Arc::new(FsDisk::read_only(path.clone()));
            let verified = Store::verify(&Options::with_disk(disk), &mut |_| {}).unwrap();
            assert_eq!(verified.problems, []);
            let copy = Store::open(options(&path)).unwrap();
            for tree in trees {
                let (there, here) = (content(&copy.snapshot(), tree), content(&snapshot, tree));
                assert!(there == here, "round {round}, tree {}", tree.0);
            }
            // The copy is a store like any other.
            let new = copy.allocate_tree();
            assert!(!trees.contains(&new));
            let mut set = WriteSet::new();
            set.create_tree(new, &TreeOptions::default());
            set.put(new, b"more", b"");
            copy.commit(set, Durability::Synced).unwrap();
            copy.close().unwrap();
            assert!(report.messages > 0 || report.runs > 0);
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap();
    });
}

#[test]
fn a_backup_does_not_go_over_a_store() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(options(directory.path())).unwrap();
    let error = store
        .snapshot()
        .backup(options(directory.path()), &mut |_| {});
    assert!(matches!(error, Err(Error::InvalidOption(_))), "{error:?}");
}

#[test]
fn a_backup_does_not_copy_damage() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(options(&directory.path().join("store"))).unwrap();
    let mut set = WriteSet::new();
    set.create_tree(TreeId(1), &tree_options(1));
    for number in 0..5000u32 {
        let value = [3u32, 5, 7, 9, 11].map(|factor| number.wrapping_mul(factor << 24 | 0x79B1));
        let value: Vec<u8> = value.into_iter().flat_map(u32::to_be_bytes).collect();
        set.put(TreeId(1), &number.to_be_bytes(), &value);
    }
    store.commit(set, Durability::Logged).unwrap();
    store.checkpoint().unwrap();
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(directory.path().join("store/data.frond"))
        .unwrap();
    // Wherever the leaves are.
    for at in (16_000..file.metadata().unwrap().len()).step_by(8000) {
        std::os::unix::fs::FileExt::write_all_at(&file, b"damage", at).unwrap();
    }
    let target = options(&directory.path().join("copy"));
    let error = store.snapshot().backup(target, &mut |_| {});
    assert!(matches!(error, Err(Error::Corrupt { .. })), "{error:?}");
}

#[test]
fn a_snapshot_sees_trees_come_and_go_with_their_commits() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(options(directory.path())).unwrap();
    let mut set = WriteSet::new();
    set.create_tree(TreeId(0), &tree_options(0));
    store.commit(set, Durability::Logged).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let snapshot = store.snapshot();
                let there = snapshot.get(TreeId(0), b"there").unwrap();
                let tree = there.map(|id| TreeId(u32::from_be_bytes((*id).try_into().unwrap())));
                let Some(tree) = tree.filter(|tree| tree.0 > 0) else {
                    continue;
                };
                assert_eq!(
                    snapshot.get(tree, b"key").unwrap().as_deref(),
                    Some(&b"value"[..])
                );
                let next = TreeId(tree.0 + 1);
                assert!(matches!(
                    snapshot.get(next, b""),
                    Err(Error::UnknownTree(_))
                ));
            }
        });
        for _ in 0..3000 {
            let tree = store.allocate_tree();
            let mut set = WriteSet::new();
            set.create_tree(tree, &tree_options(0));
            set.put(tree, b"key", b"value");
            for filler in 0..50u32 {
                set.put(TreeId(0), &filler.to_be_bytes(), b"");
            }
            set.put(TreeId(0), b"there", &tree.0.to_be_bytes());
            store.commit(set, Durability::Logged).unwrap();
            let mut set = WriteSet::new();
            set.drop_tree(tree);
            for filler in 0..50u32 {
                set.put(TreeId(0), &filler.to_be_bytes(), b"");
            }
            set.put(TreeId(0), b"there", &0u32.to_be_bytes());
            store.commit(set, Durability::Logged).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
}
