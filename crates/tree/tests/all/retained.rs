//! The memory that snapshots keep beyond the current state.

#![allow(clippy::unwrap_used, missing_docs)]

use std::ops::Bound;

use frond_tree::{Direction, Durability, Options, Store, TreeOptions, WriteSet};

fn options(path: &std::path::Path) -> Options {
    let mut options = Options::new(path);
    options.cache_bytes = 8 << 20;
    options.memtable_bytes = Some(64 << 10);
    options.fanout = 4;
    options
}

/// Memtables that only snapshots held were in memory until the snapshots were dropped, however many there were.
#[test]
fn snapshots_do_not_keep_memtables_in_memory() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(options(directory.path())).unwrap();
    let (tree, other) = (store.allocate_tree(), store.allocate_tree());
    let mut set = WriteSet::new();
    set.create_tree(tree, &TreeOptions::default());
    set.create_tree(other, &TreeOptions::default());
    store.commit(set, Durability::Logged).unwrap();
    let mut snapshots = Vec::new();
    for round in 0..60u32 {
        for number in 0..40u32 {
            let mut set = WriteSet::new();
            let key = format!("{:08}", number * 60 + round);
            set.put(tree, key.as_bytes(), &[7; 1000]);
            set.put(other, key.as_bytes(), &[8; 1000]);
            store.commit(set, Durability::Logged).unwrap();
        }
        snapshots.push(store.snapshot());
    }
    store.checkpoint().unwrap();
    assert!(
        store.retained_bytes() > 2 << 20,
        "{}",
        store.retained_bytes()
    );
    assert!(store.retains_too_much());
    let written = store.stats().written_bytes;
    let unread = store.snapshot();
    assert_eq!(store.retained_by(&unread), 0);
    for (round, snapshot) in (1u32..).zip(&mut snapshots) {
        assert!(store.retained_by(snapshot) > 0, "{round}");
        *snapshot = store.detach(snapshot, &[tree]).unwrap();
        assert_eq!(store.retained_by(snapshot), 0);
        let (lower, upper) = (Bound::Unbounded, Bound::Unbounded);
        let mut cursor = snapshot
            .cursor(tree, lower, upper, Direction::Forward)
            .unwrap();
        let mut count = 0;
        while cursor.next().unwrap().is_some() {
            count += 1;
        }
        assert_eq!(count, 40 * round);
        let unknown = snapshot.get(other, b"00000000");
        assert!(matches!(unknown, Err(frond_tree::Error::UnknownTree(id)) if id == other));
    }
    assert_eq!(store.retained_bytes(), 0);
    assert!(!store.retains_too_much());
    assert!(store.stats().written_bytes > written);
    let free = |store: &Store| store.stats().space.free_bytes;
    let before = free(&store);
    drop(snapshots);
    store.checkpoint().unwrap();
    assert!(free(&store) > before, "the runs are gone");
    store.close().unwrap();
    drop(store);
    let report = Store::verify(&options(directory.path()), &mut |_| {}).unwrap();
    assert_eq!(report.problems, []);
}

/// Each detached snapshot has a copy of its own, so a large number of them filled the disk.
#[test]
fn detached_snapshots_take_a_bounded_part_of_the_disk() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options {
        memtable_bytes: Some(1 << 20),
        ..options(directory.path())
    };
    let store = Store::open(options).unwrap();
    let tree = store.allocate_tree();
    let mut set = WriteSet::new();
    set.create_tree(tree, &TreeOptions::default());
    store.commit(set, Durability::Logged).unwrap();
    for number in 0..400u32 {
        let mut set = WriteSet::new();
        set.put(tree, &number.to_be_bytes(), &[number as u8; 1000]);
        store.commit(set, Durability::Logged).unwrap();
    }
    let snapshots: Vec<_> = (0..1000).map(|_| store.snapshot()).collect();
    store.checkpoint().unwrap();
    let detach = |snapshot| store.detach(snapshot, &[tree]);
    let mut detached = Vec::new();
    let refused = loop {
        match detach(&snapshots[detached.len()]) {
            Ok(snapshot) => detached.push(snapshot),
            Err(error) => break error,
        }
    };
    assert!(matches!(
        refused,
        frond_tree::Error::Stalled {
            disk_full: false,
            ..
        }
    ));
    assert!((8..100).contains(&detached.len()), "{}", detached.len());
    let copy = detached.pop().unwrap();
    drop(copy.clone());
    assert!(detach(&snapshots[0]).is_err());
    drop(copy);
    detach(&snapshots[0]).unwrap();
}
