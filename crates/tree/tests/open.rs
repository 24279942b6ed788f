//! Opening: the free space, the copies of metadata, and what is read.

#![allow(clippy::unwrap_used, missing_docs)]

#[allow(dead_code, reason = "each test uses a part of it")]
mod support;

use std::sync::Arc;

use frond_tree::{
    Duplicates, Durability, Options, Store, TreeId, TreeOptions, VerifyReport, WriteSet,
};
use support::SimDisk;

const TREE: TreeId = TreeId(1);

fn options(disk: &SimDisk) -> Options {
    let mut options = Options::with_disk(Arc::new(disk.clone()));
    options.cache_bytes = 8 << 20;
    options.memtable_bytes = Some(64 << 10);
    options.fanout = 4;
    options.inline = true;
    options
}

fn open(disk: &SimDisk) -> Store {
    Store::open(options(disk)).unwrap()
}

fn verify(disk: &SimDisk) -> VerifyReport {
    let report = Store::verify(&options(&disk.copy()), &mut |_| {}).unwrap();
    assert_eq!(report.problems, []);
    report
}

fn tree_options() -> TreeOptions {
    TreeOptions {
        node_bytes: 4 << 10,
        page_bytes: 1 << 10,
        ..TreeOptions::default()
    }
}

fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
}

fn fill(store: &Store, tree: TreeId, numbers: std::ops::Range<u64>) {
    let mut set = WriteSet::new();
    if !store.has_tree(tree) {
        set.create_tree(tree, &tree_options());
    }
    for number in numbers {
        set.put(tree, &key(number), &[number as u8; 50]);
        if set.len() >= 100 {
            let set = std::mem::take(&mut set);
            store.commit(set, Durability::Logged).unwrap();
        }
    }
    store.commit(set, Durability::Logged).unwrap();
}

fn check(store: &Store, tree: TreeId, numbers: std::ops::Range<u64>) {
    let snapshot = store.snapshot();
    for number in numbers {
        let value = snapshot.get(tree, &key(number)).unwrap();
        assert_eq!(value.as_deref(), Some(&[number as u8; 50][..]), "{number}");
    }
}

fn used(store: &Store) -> u64 {
    let space = store.stats().space;
    space.file_bytes - space.free_bytes - space.waiting_bytes
}

#[test]
fn free_space_after_a_reopen_is_what_it_was() {
    let disk = SimDisk::new(1);
    for round in 0..6 {
        let store = open(&disk);
        fill(&store, TREE, round * 2000..(round + 1) * 2000);
        fill(&store, TreeId(300 + round as u32), 0..500);
        let mut set = WriteSet::new();
        set.delete_range(TREE, &[40 * round as u8], Some(&[40 * round as u8 + 20]));
        store.commit(set, Durability::Logged).unwrap();
        if round % 2 == 1 {
            store.compact().unwrap();
        }
        store.close().unwrap();
        let before = used(&store);
        drop(store);
        let report = verify(&disk);
        assert_eq!(report.leaked_bytes, 0);
        let store = open(&disk);
        assert_eq!(used(&store), before);
        assert_eq!(store.stats().space.waiting_bytes, 0);
        assert_eq!(report.reachable_bytes, before);
    }
}

/// What a load and a snapshot held when the process ended stayed used for ever.
#[test]
fn a_crash_with_a_load_in_progress_leaks_nothing_after_the_sweep() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    let mut set = WriteSet::new();
    set.create_tree_to_load(TreeId(2), &tree_options());
    store.commit(set, Durability::Logged).unwrap();
    fill(&store, TREE, 0..3000);
    let snapshot = store.snapshot();
    let mut loader = store
        .bulk_loader(&[(TreeId(2), Duplicates::Fail)], Some(1))
        .unwrap();
    for number in 0..40_000 {
        loader.add(0, &key(number), &[1; 50]).unwrap();
    }
    fill(&store, TREE, 3000..6000);
    store.checkpoint().unwrap();
    disk.crash_after(0);
    drop((snapshot, loader, store));

    let disk = disk.after_kill();
    let crashed = verify(&disk);
    assert!(crashed.leaked_bytes > 1 << 19, "{crashed:?}");
    let store = open(&disk);
    store.checkpoint().unwrap();
    store.close().unwrap();
    drop(store);
    let swept = verify(&disk);
    assert_eq!(swept.leaked_bytes, 0);
    assert!(swept.file_bytes - swept.reachable_bytes >= crashed.leaked_bytes);
    let store = open(&disk);
    check(&store, TREE, 0..6000);
    assert!(store.is_loading(TreeId(2)));
}

/// The manifest, the map of the free space and each page of trees were stored once: one damaged sector of them and the
/// store did not open, with all its trees.
#[test]
fn one_damaged_copy_of_any_metadata_costs_nothing() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    for tree in [1, 2, 300, 600] {
        fill(&store, TreeId(tree), 0..600);
    }
    store.close().unwrap();
    drop(store);
    let sound = verify(&disk);
    let len = disk
        .files()
        .iter()
        .find(|(name, _)| name.starts_with("data"))
        .unwrap()
        .1;
    let mut survived = 0;
    for block in 2..len / 4096 {
        let copy = disk.copy();
        copy.flip_bit("data.frond", block * 8 * 4096 + 8 * 20);
        let report = Store::verify(&options(&copy.copy()), &mut |_| {}).unwrap();
        let is_metadata = report.problems.iter().all(|problem| problem.tree.is_none());
        if report.problems.is_empty() || !is_metadata {
            continue;
        }
        assert_eq!(report.trees, sound.trees, "block {block}");
        survived += 1;
        let store = open(&copy);
        for tree in [1, 2, 300, 600] {
            check(&store, TreeId(tree), 0..600);
        }
        let is_first = !store.damage().is_empty();
        fill(&store, TreeId(300), 600..700);
        store.close().unwrap();
        drop(store);
        if is_first {
            // It was noticed, so the checkpoint has written it again.
            assert_eq!(verify(&copy).leaked_bytes, 0);
        }
        check(&open(&copy), TreeId(300), 0..700);
    }
    // The manifest, the map and three pages.
    assert_eq!(survived, 10);
}

#[test]
fn a_lost_map_of_the_free_space_is_made_again() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    fill(&store, TREE, 0..6000);
    store.close().unwrap();
    let before = used(&store);
    drop(store);
    // The last two blocks that the last checkpoint wrote before the manifest; found by what a flip changes.
    let mut maps = Vec::new();
    let len = disk
        .files()
        .iter()
        .find(|(name, _)| name.starts_with("data"))
        .unwrap()
        .1;
    for block in 2..len / 4096 {
        let copy = disk.copy();
        copy.flip_bit("data.frond", block * 8 * 4096 + 8 * 4000);
        let report = Store::verify(&options(&copy), &mut |_| {}).unwrap();
        // Its block fills the extent, so a flip far behind is not in padding.
        if let [problem] = report.problems.as_slice()
            && problem.tree.is_none()
            && problem.kind == frond_tree::ProblemKind::Damaged
        {
            maps.push(block);
        }
    }
    assert_eq!(maps.len(), 2);
    let copy = disk.copy();
    for block in maps {
        copy.flip_bit("data.frond", block * 8 * 4096 + 8 * 4000);
    }
    let store = open(&copy);
    assert_eq!(used(&store), before);
    check(&store, TREE, 0..6000);
    store.close().unwrap();
    drop(store);
    assert_eq!(verify(&copy).leaked_bytes, 0);
}
