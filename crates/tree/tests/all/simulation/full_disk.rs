//! A disk of known size becomes full, by the store itself or by others.

use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

use frond_tree::disk::Disk;
use frond_tree::{Direction, WriteSet};
use frond_tree::{Duplicates, Durability, Error, Options, Result, Store, TreeId, TreeOptions};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::support::{EIO, Fault, Kind, SimDisk};
use crate::waiting::wait_until;

const TREE: TreeId = TreeId(1);
const OTHER: TreeId = TreeId(2);
const MIB: u64 = 1 << 20;
const VALUE_BYTES: usize = 4000;

fn options(disk: &SimDisk) -> Options {
    let mut options = Options::with_disk(Arc::new(disk.clone()));
    options.cache_bytes = 32 << 20;
    options.memtable_bytes = Some(1 << 20);
    options.journal_commit_interval = Duration::from_millis(5);
    options
}

/// A store with two trees on a disk of this many bytes.
fn store_on(capacity: u64) -> (SimDisk, Store) {
    let disk = SimDisk::new(capacity);
    disk.set_capacity(capacity);
    let store = Store::open(options(&disk)).unwrap();
    let mut set = WriteSet::new();
    for tree in [TREE, OTHER] {
        let small = TreeOptions {
            node_bytes: 256 << 10,
            ..TreeOptions::default()
        };
        set.create_tree(tree, &small);
    }
    store.commit(set, Durability::Synced).unwrap();
    (disk, store)
}

/// A value that does not compress.
fn value(number: u64) -> Vec<u8> {
    let mut bytes = vec![0_u8; VALUE_BYTES];
    SmallRng::seed_from_u64(number).fill(&mut bytes[..]);
    bytes
}

fn put(store: &Store, tree: TreeId, number: u64) -> Result<()> {
    let mut set = WriteSet::new();
    set.put(tree, &number.to_be_bytes(), &value(number));
    store.commit(set, Durability::Synced).map(drop)
}

fn free(store: &Store, change: impl FnOnce(&mut WriteSet)) -> Result<()> {
    let mut set = WriteSet::new();
    change(&mut set);
    set.set_frees_space();
    store.commit(set, Durability::Synced).map(drop)
}

fn is_full(error: &Error) -> bool {
    matches!(
        error,
        Error::Stalled {
            disk_full: true,
            ..
        }
    )
}

/// Puts until the disk is full, first into the one tree and then into the other; returns how many there are in each. A put is
/// repeated for a tenth of a second, because a flush that is under way may make room again.
fn fill(store: &Store) -> u64 {
    for number in 0.. {
        for tree in [TREE, OTHER] {
            let start = Instant::now();
            let refused = loop {
                match put(store, tree, number) {
                    Ok(()) => break false,
                    Err(error) => assert!(is_full(&error), "{error}"),
                }
                if start.elapsed() > Duration::from_millis(100) {
                    break true;
                }
                std::thread::sleep(Duration::from_millis(5));
            };
            if !refused {
                continue;
            }
            // Of the pair only the first may be there.
            let _ = free(store, |set| set.delete(TREE, &number.to_be_bytes()));
            return number;
        }
    }
    unreachable!("the disk takes everything")
}

fn count(store: &Store, tree: TreeId) -> u64 {
    let snapshot = store.snapshot();
    let mut cursor = snapshot
        .cursor(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward)
        .unwrap();
    let mut entries = 0;
    while let Some((key, found)) = cursor.next().unwrap() {
        let number = u64::from_be_bytes(key.try_into().unwrap());
        assert!(*found == *value(number), "{number}");
        entries += 1;
    }
    entries
}

fn is_low(store: &Store) -> bool {
    store.stats().disk_space.low_since.is_some()
}

fn wait_for_room(store: &Store) {
    wait_until("room", || succeeds(put(store, OTHER, u64::MAX)));
}

/// Whether a write succeeds; otherwise the disk is full.
fn succeeds(written: Result<()>) -> bool {
    let assert_full = |error: &Error| assert!(is_full(error), "{error}");
    written.inspect_err(assert_full).is_ok()
}

#[test]
fn a_full_disk_refuses_writes_at_once_and_takes_deletes() {
    let (disk, store) = store_on(40 * MIB);
    let there = fill(&store);
    assert!(there > 2000, "only {there} pairs fit");
    // One that finds room nevertheless is taken back.
    wait_until("refusals in sequence", || {
        let is_refused = |_| !succeeds(put(&store, TREE, u64::MAX));
        let are_refused = (0..20).all(is_refused);
        if !are_refused {
            free(&store, |set| set.delete(TREE, &u64::MAX.to_be_bytes())).unwrap();
        }
        are_refused && is_low(&store)
    });
    assert!(store.stats().disk_space.refused >= 20);
    assert_eq!((count(&store, TREE), count(&store, OTHER)), (there, there));
    for number in 0..there {
        free(&store, |set| set.delete(TREE, &number.to_be_bytes())).unwrap();
    }
    wait_for_room(&store);
    assert_eq!(count(&store, TREE), 0);
    assert_eq!(count(&store, OTHER), there + 1);
    store.close().unwrap();
    let report = Store::verify(&options(&disk), &mut |_| {}).unwrap();
    assert!(report.problems.is_empty(), "{report:?}");
}

#[test]
fn a_dropped_tree_makes_room_on_a_full_disk() {
    let (_, store) = store_on(40 * MIB);
    let there = fill(&store);
    free(&store, |set| set.drop_tree(TREE)).unwrap();
    wait_for_room(&store);
    assert_eq!(count(&store, OTHER), there + 1);
    let times = store.stats().disk_space.times_low;
    assert!((1..50).contains(&times), "the state alternates: {times}");
}

/// Then not even what is in memory can be flushed without the file of the reserve.
#[test]
fn a_disk_that_others_filled_takes_drops_and_recovers() {
    let (disk, store) = store_on(200 * MIB);
    for number in 0..3000 {
        put(&store, TREE, number).unwrap();
    }
    assert!(store.stats().disk_space.held_bytes > 0);
    disk.fill("", 0);
    let refused = (3000..).find_map(|number| put(&store, TREE, number).err().map(|e| (number, e)));
    let (there, error) = refused.unwrap();
    assert!(is_full(&error), "{error}");
    assert_eq!(count(&store, TREE), there);
    for number in 0..100u64 {
        free(&store, |set| set.delete(TREE, &number.to_be_bytes())).unwrap();
    }
    assert_eq!(count(&store, TREE), there - 100);
    disk.clear_faults();
    wait_for_room(&store);
    wait_until("a reserve", || store.stats().disk_space.held_bytes > 0);
}

#[test]
fn a_killed_store_opens_on_the_full_disk() {
    let (disk, store) = store_on(40 * MIB);
    let there = fill(&store);
    let copy = disk.after_kill();
    drop(store);
    let store = Store::open(options(&copy)).unwrap();
    assert_eq!((count(&store, TREE), count(&store, OTHER)), (there, there));
    for number in 0..there / 2 {
        free(&store, |set| set.delete(TREE, &number.to_be_bytes())).unwrap();
    }
    let copy = copy.after_kill();
    drop(store);
    let store = Store::open(options(&copy)).unwrap();
    assert_eq!(count(&store, TREE), there - there / 2);
    free(&store, |set| set.drop_tree(TREE)).unwrap();
    wait_for_room(&store);
    assert_eq!(count(&store, OTHER), there + 1);
}

#[test]
fn a_bulk_load_on_a_full_disk_fails_and_leaves_nothing() {
    let (_, store) = store_on(40 * MIB);
    let loaded = TreeId(9);
    let mut set = WriteSet::new();
    set.create_tree_to_load(loaded, &TreeOptions::default());
    store.commit(set, Durability::Synced).unwrap();
    let mut loader = store
        .bulk_loader(&[(loaded, Duplicates::LastWins)], Some(1))
        .unwrap();
    let error = (0u64..).find_map(|number| {
        let key = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
        loader.add(0, &key, &value(number)).err()
    });
    let error = error.unwrap();
    assert!(error.is_disk_full(), "{error}");
    drop(loader);
    wait_for_room(&store);
    assert!(store.is_loading(loaded));
}

/// Such a write ended all commits until a restart.
#[test]
fn an_extent_that_cannot_be_written_is_replaced_by_another_one() {
    for inline in [true, false] {
        let disk = SimDisk::new(1);
        let mut options = options(&disk);
        options.memtable_bytes = Some(64 << 10);
        options.inline = inline;
        let store = Store::open(options.clone()).unwrap();
        let mut set = WriteSet::new();
        set.create_tree(TREE, &TreeOptions::default());
        store.commit(set, Durability::Logged).unwrap();
        disk.add_fault(Fault {
            kind: Kind::Write,
            file: "data",
            after: 0,
            times: u64::MAX,
            place: Some(16384..16385),
            code: EIO,
        });
        for number in 0..200 {
            put(&store, TREE, number).unwrap();
        }
        store.checkpoint().unwrap();
        assert_eq!(count(&store, TREE), 200);
        store.close().unwrap();
        drop(store);
        disk.clear_faults();
        let store = Store::open(options).unwrap();
        assert_eq!(count(&store, TREE), 200);
    }
}

/// The superblock cannot move: the next checkpoint writes it again.
#[test]
fn a_superblock_that_cannot_be_written_for_a_while_ends_nothing() {
    let disk = SimDisk::new(2);
    let store = Store::open(options(&disk)).unwrap();
    let mut set = WriteSet::new();
    set.create_tree(TREE, &TreeOptions::default());
    store.commit(set, Durability::Logged).unwrap();
    disk.add_fault(Fault {
        kind: Kind::Write,
        file: "data",
        after: 0,
        times: 3,
        place: Some(0..8192),
        code: EIO,
    });
    assert!(matches!(store.checkpoint(), Err(Error::Io { .. })));
    put(&store, TREE, 1).unwrap();
    wait_until("a checkpoint", || store.checkpoint().is_ok());
    assert_eq!(count(&store, TREE), 1);
}

/// Such a tree kept its messages, however many deletes were among them, because all of them would not fit at once.
#[test]
fn a_buffer_larger_than_the_room_is_emptied_in_steps() {
    let disk = SimDisk::new(3);
    disk.allow_holes();
    disk.set_capacity(1 << 30);
    let mut options = options(&disk);
    options.memtable_bytes = Some(320 << 10);
    options.disk_reserve_bytes = Some(5 * MIB / 2);
    let store = Store::open(options.clone()).unwrap();
    let mut set = WriteSet::new();
    set.create_tree(TREE, &TreeOptions::default());
    store.commit(set, Durability::Synced).unwrap();
    // Keys that are spread over the leaf, so that none is appended.
    let number_of = |index: u64| index.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut there = 0;
    while store.tree_stats(TREE).pending_bytes < 3 * MIB / 2 {
        put(&store, TREE, number_of(there)).unwrap();
        there += 1;
    }
    store.checkpoint().unwrap();
    let pending = store.tree_stats(TREE).pending_bytes;
    assert!(pending > MIB, "the buffer was emptied before: {pending}");
    wait_until("a full disk", || {
        // Segments of the log are deleted meanwhile.
        let space = Disk::space(&disk).unwrap().unwrap();
        let used = space.total - space.available - store.stats().disk_space.held_bytes;
        disk.set_capacity(used + 19 * MIB / 8);
        is_low(&store)
    });
    for index in 0..10 {
        free(&store, |set| {
            set.delete(TREE, &number_of(index).to_be_bytes())
        })
        .unwrap();
    }
    wait_until("an empty buffer", || {
        store.tree_stats(TREE).pending_bytes < pending / 10
    });
    assert_eq!(count(&store, TREE), there - 10);
    store.close().unwrap();
    let report = Store::verify(&options, &mut |_| {}).unwrap();
    assert!(report.problems.is_empty(), "{report:?}");
}

const SMALL_TREES: u32 = 4;
const SMALL_BATCH: u64 = 1000;

/// A key of a document in one of the small trees: each has an order of its own.
fn small_key(tree: u32, number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    let mixed = (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15 ^ (u64::from(tree) << 40) | 1);
    key[..8].copy_from_slice(&mixed.rotate_left(tree * 7).to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

fn count_small(store: &Store, tree: u32) -> u64 {
    let snapshot = store.snapshot();
    let all = (Bound::Unbounded, Bound::Unbounded);
    let tree = TreeId(10 + tree);
    let mut cursor = snapshot
        .cursor(tree, all.0, all.1, Direction::Forward)
        .unwrap();
    let mut entries = 0;
    while cursor.next().unwrap().is_some() {
        entries += 1;
    }
    entries
}

/// Small documents have delete messages of about their own size: the deletion of all writes many times the reserve. Such
/// a deletion failed after two seconds without room.
#[test]
fn a_deletion_larger_than_the_reserve_succeeds_on_a_full_disk() {
    let (disk, store) = store_on(32 * MIB);
    disk.allow_holes();
    let small = TreeOptions {
        node_bytes: 1 << 20,
        ..TreeOptions::default()
    };
    let mut set = WriteSet::new();
    for tree in 0..SMALL_TREES {
        set.create_tree(TreeId(10 + tree), &small);
    }
    store.commit(set, Durability::Synced).unwrap();
    let mut there = 0;
    loop {
        let mut set = WriteSet::new();
        for number in there..there + SMALL_BATCH {
            for tree in 0..SMALL_TREES {
                set.put(TreeId(10 + tree), &small_key(tree, number), b"");
            }
        }
        match store.commit(set, Durability::Logged) {
            Ok(_) => there += SMALL_BATCH,
            Err(error) => {
                assert!(is_full(&error), "{error}");
                break;
            }
        }
    }
    for first in (0..there).step_by(SMALL_BATCH as usize) {
        let deleted = free(&store, |set| {
            for number in first..first + SMALL_BATCH {
                for tree in 0..SMALL_TREES {
                    set.delete(TreeId(10 + tree), &small_key(tree, number));
                }
            }
        });
        if let Err(error) = deleted {
            let stats = store.stats();
            panic!("{first} of {there}: {error}; {stats:?} {:?}", disk.files());
        }
    }
    wait_for_room(&store);
    for tree in 0..SMALL_TREES {
        assert_eq!(count_small(&store, tree), 0);
    }
    store.close().unwrap();
    let report = Store::verify(&options(&disk), &mut |_| {}).unwrap();
    assert!(report.problems.is_empty(), "{report:?}");
}
