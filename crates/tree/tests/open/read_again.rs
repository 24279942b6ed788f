//! Metadata that cannot be read, and may be read again later.

use super::*;

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

/// An unreadable sector of one superblock stopped the open.
#[test]
fn an_unreadable_superblock_costs_at_most_what_the_log_has() {
    for (unreadable, opens) in [(&[0][..], true), (&[4096], true), (&[0, 4096], false)] {
        let disk = SimDisk::new(1);
        let store = open(&disk);
        fill(&store, TREE, 0..600);
        store.checkpoint().unwrap();
        fill(&store, TREE, 0..700);
        store.checkpoint().unwrap();
        store.close().unwrap();
        drop(store);
        for offset in unreadable {
            disk.make_unreadable(*offset);
        }
        let store = match Store::open(options(&disk)) {
            Ok(store) => store,
            Err(error) => {
                assert!(
                    !opens && matches!(error, Error::Unreadable { .. }),
                    "{error}"
                );
                continue;
            }
        };
        assert!(opens);
        let damage = store.damage();
        assert_eq!(damage.len(), 1, "{damage:?}");
        assert_eq!(damage[0].offset(), Some(unreadable[0]));
        check(&store, TREE, 0..700);
        fill(&store, TREE, 700..800);
        store.checkpoint().unwrap();
        store.checkpoint().unwrap();
        check(&store, TREE, 0..800);
        store.close().unwrap();
    }
}

/// A store in which one superblock was never written, and the other one cannot be read, is not an empty store.
#[test]
fn an_unreadable_first_superblock_is_an_error() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    fill(&store, TREE, 0..10);
    disk.crash_after(0);
    drop(store);
    let disk = disk.after_kill();
    disk.make_unreadable(4096);
    let error = Store::open(options(&disk)).err().unwrap();
    assert!(matches!(error, Error::Unreadable { .. }), "{error}");
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
