//! Metadata that cannot be read, and may be read again later.

use super::*;
use crate::support::{EIO, Fault, Kind};

/// The sweep of an open in which a lost page of trees was read again freed the trees of the page, its copies, and what
/// had gathered for it.
fn sweep_after_lost_page(gather: bool, drop_one: bool) {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    let (lost, other) = (TreeId(300), TreeId(600));
    for tree in [TREE, lost, TreeId(301), other] {
        fill(&store, tree, 0..600);
    }
    store.close().unwrap();
    drop(store);
    let blocks = page_of(&disk, &[lost, TreeId(301)]);
    let store = open(&disk);
    if gather {
        fill(&store, lost, 600..650);
    }
    fill(&store, TREE, 600..650);
    store.flush_log().unwrap();
    disk.crash_after(0);
    drop(store);
    let disk = disk.after_kill();
    blocks.iter().for_each(|block| flip(&disk, *block));
    let store = open(&disk);
    if drop_one {
        let mut set = WriteSet::new();
        set.drop_tree(TreeId(301));
        store.commit(set, Durability::Logged).unwrap();
    }
    // A snapshot during the checkpoint: it is not exact.
    let snapshot = store.snapshot();
    fill(&store, TREE, 600..650);
    store.checkpoint().unwrap();
    disk.crash_after(0);
    drop(snapshot);
    drop(store);
    let disk = disk.after_kill();
    // The disk reads the page again.
    blocks.iter().for_each(|block| flip(&disk, *block));
    let store = open(&disk);
    check(&store, lost, 0..if gather { 650 } else { 600 });
    for round in 0..6 {
        fill(&store, TREE, 650..1500 + round);
        store.checkpoint().unwrap();
    }
    check(&store, lost, 0..if gather { 650 } else { 600 });
    check(&store, TREE, 0..1500);
    check(&store, other, 0..600);
    store.close().unwrap();
    drop(store);
    verify(&disk);
    let store = open(&disk);
    fill(&store, TREE, 0..1500);
    store.checkpoint().unwrap();
    store.close().unwrap();
    drop(store);
    assert_eq!(verify(&disk).leaked_bytes, 0);
}

#[test]
fn a_page_that_is_read_again_below_gathered_messages_is_not_swept() {
    sweep_after_lost_page(true, false);
}

#[test]
fn a_page_that_is_read_again_with_a_dropped_tree_is_not_swept() {
    sweep_after_lost_page(false, true);
}

#[test]
fn a_page_that_is_read_again_is_not_swept() {
    sweep_after_lost_page(false, false);
}
/// The system may be able to read a superblock later. The other one may be older, and its extents used again.
#[test]
fn a_superblock_that_the_system_cannot_read_is_an_error() {
    for slot in [0, 4096] {
        let disk = SimDisk::new(slot);
        let store = open(&disk);
        fill(&store, TREE, 0..600);
        store.checkpoint().unwrap();
        fill(&store, TREE, 0..700);
        store.close().unwrap();
        drop(store);
        disk.add_fault(Fault {
            kind: Kind::Read,
            file: "data",
            after: 0,
            times: u64::MAX,
            place: Some(slot..slot + 1),
            code: EIO,
        });
        let opened = Store::open(options(&disk));
        assert!(matches!(opened.err(), Some(Error::Unreadable { .. })));
        disk.clear_faults();
        let store = open(&disk);
        check(&store, TREE, 0..700);
    }
}

/// While a page could be read again, a damaged root with the messages for one of its trees stopped the open.
#[test]
fn a_page_below_damaged_gathered_messages_stays_lost() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    let lost = TreeId(300);
    fill(&store, TREE, 0..50);
    fill(&store, lost, 0..200);
    store.close().unwrap();
    drop(store);
    let blocks = page_of(&disk, &[lost]);
    let store = open(&disk);
    fill(&store, lost, 200..250);
    store.flush_log().unwrap();
    disk.crash_after(0);
    drop(store);
    let disk = disk.after_kill();
    blocks.iter().for_each(|block| flip(&disk, *block));
    let store = open(&disk);
    store.checkpoint().unwrap();
    disk.crash_after(0);
    drop(store);
    let disk = disk.after_kill();
    blocks.iter().for_each(|block| flip(&disk, *block));
    let mut stayed_lost = 0;
    for block in 2..disk.data_len() as usize / 4096 {
        let disk = disk.copy();
        flip(&disk, block);
        let store = open(&disk);
        let snapshot = store.snapshot();
        if (0..250).any(|number| snapshot.get(lost, &key(number)).is_ok()) {
            continue;
        }
        drop(snapshot);
        stayed_lost += 1;
        for _ in 0..3 {
            fill(&store, TreeId(600), 0..300);
            store.checkpoint().unwrap();
        }
        store.close().unwrap();
        drop(store);
        // The medium reads the messages again.
        flip(&disk, block);
        let store = open(&disk);
        check(&store, lost, 0..250);
        check(&store, TREE, 0..50);
        store.close().unwrap();
        drop(store);
        verify(&disk);
    }
    assert_eq!(stayed_lost, 1);
}
