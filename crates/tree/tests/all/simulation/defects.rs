//! Regression tests: bugs that the simulation found, and the effects of a failing disk.

use std::sync::Arc;

use frond_tree::disk::Disk;
use frond_tree::{
    Duplicates, Durability, Error, Options, Result, Store, TreeId, TreeOptions, WriteSet,
};
use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::simulation::log::eventually;
use crate::simulation::model::Adder;
use crate::support::{EIO, ENOSPC, Fault, Kind, SimDisk};

const TREE: TreeId = TreeId(1);
const OTHER: TreeId = TreeId(2);

fn options(disk: &SimDisk, inline: bool) -> Options {
    let mut options = Options::with_disk(Arc::new(disk.clone()));
    options.cache_bytes = 8 << 20;
    options.memtable_bytes = Some(16 << 10);
    options.inline = inline;
    options
}

fn put(store: &Store, number: u64, how: Durability) -> Result<()> {
    let mut set = WriteSet::new();
    if !store.has_tree(TREE) {
        set.create_tree(TREE, &TreeOptions::default());
    }
    set.put(TREE, &number.to_be_bytes(), &[7; 1000]);
    store.commit(set, how).map(drop)
}

fn has(store: &Store, number: u64) -> bool {
    store.has_tree(TREE)
        && store
            .snapshot()
            .contains(TREE, &number.to_be_bytes())
            .unwrap()
}

/// Names and lengths of the log's segments.
fn segments(disk: &SimDisk) -> Vec<(String, usize)> {
    let mut files = disk.files();
    files.retain(|(name, _)| name.starts_with("log-0"));
    files
}

fn fault(kind: Kind, file: &'static str, code: i32) -> Fault {
    Fault {
        kind,
        file,
        after: 0,
        times: 1,
        place: None,
        code,
    }
}

/// A checkpoint while the commit that created a tree was not flushed yet kept the tree without the rest of the commit.
#[test]
fn a_created_tree_is_not_durable_before_the_rest_of_its_commit() {
    let mut reached = 0;
    for crash in 1..90 {
        let mut random = SmallRng::seed_from_u64(crash);
        let journal = crash % 2 == 0;
        let disk = SimDisk::new(crash);
        let mut options = options(&disk, true);
        options.journal = journal;
        let store = Store::open(options.clone()).unwrap();
        put(&store, 0, Durability::Logged).unwrap();
        // The first memtable stays sealed, so the second one holds the commit.
        disk.fill("data", 0);
        for number in 1..20 {
            put(&store, number, Durability::Logged).unwrap();
        }
        assert_eq!(store.stats().sealed_memtables, 1);
        let mut set = WriteSet::new();
        set.create_tree(OTHER, &TreeOptions::default());
        set.put(OTHER, b"first", b"commit");
        store.commit(set, Durability::Logged).unwrap();
        disk.clear_faults();
        disk.crash_after(crash / 2);
        let _ = store.checkpoint();
        disk.crash_after(0);
        drop(store);

        options.disk = Arc::new(disk.after_crash(&mut random));
        let store = Store::open(options).unwrap();
        if store.has_tree(OTHER) {
            reached += 1;
            let snapshot = store.snapshot();
            assert!(snapshot.contains(OTHER, b"first").unwrap(), "crash {crash}");
            assert!(has(&store, 19), "crash {crash}: an earlier commit is lost");
        }
    }
    assert!(reached > 5);
}

/// A failed checkpoint incremented the generation, so that the retry overwrote the only valid superblock.
#[test]
fn a_superblock_that_could_not_be_written_does_not_cost_the_last_one() {
    for seed in 0..200 {
        let mut random = SmallRng::seed_from_u64(seed);
        let disk = SimDisk::new(seed);
        let store = Store::open(options(&disk, true)).unwrap();
        for number in 0..3 {
            put(&store, number, Durability::Logged).unwrap();
            store.checkpoint().unwrap();
        }
        put(&store, 3, Durability::Logged).unwrap();
        disk.add_fault(Fault {
            place: Some(0..8192),
            ..fault(Kind::Write, "data", ENOSPC)
        });
        assert!(matches!(
            store.checkpoint(),
            Err(Error::Io { .. } | Error::Unreadable { .. })
        ));
        // The retry is interrupted; most seeds hit the write of its superblock.
        disk.crash_after(2 + seed % 4);
        let _ = store.checkpoint();
        disk.crash_after(0);
        drop(store);
        let disk = disk.after_crash(&mut random);
        let store = Store::open(options(&disk, true)).unwrap();
        assert!((0..3).all(|number| has(&store, number)), "seed {seed}");
    }
}

/// Unsynced writes of a killed process were read and taken for durable.
#[test]
fn what_a_killed_process_did_not_sync_is_synced_before_it_counts() {
    for seed in 0..200 {
        let mut random = SmallRng::seed_from_u64(seed);
        let disk = SimDisk::new(seed);
        let store = Store::open(options(&disk, true)).unwrap();
        for number in 0..40 {
            put(&store, number, Durability::Logged).unwrap();
        }
        disk.crash_after(1 + seed % 12);
        let _ = store.checkpoint();
        disk.crash_after(0);
        drop(store);
        let disk = disk.after_kill();
        let store = Store::open(options(&disk, true)).unwrap();
        let found: Vec<u64> = (0..40).filter(|number| has(&store, *number)).collect();
        put(&store, 100, Durability::Synced).unwrap();
        for number in 200..200 + seed % 30 {
            put(&store, number, Durability::Logged).unwrap();
        }
        disk.crash_after(0);
        drop(store);
        let disk = disk.after_crash(&mut random);
        let store = Store::open(options(&disk, true)).unwrap();
        assert!(has(&store, 100), "seed {seed}");
        assert!(
            found.iter().all(|number| has(&store, *number)),
            "seed {seed}"
        );
    }
}

/// The threads and the log of a failed store stayed in memory.
#[test]
fn a_store_that_failed_ends_its_threads_when_it_is_closed() {
    let disk = SimDisk::new(1);
    let merge = Arc::new(Adder);
    let mut options = options(&disk, false);
    options.merge = merge.clone();
    let store = Store::open(options).unwrap();
    put(&store, 1, Durability::Logged).unwrap();
    disk.add_fault(fault(Kind::Sync, "data", EIO));
    assert!(store.checkpoint().is_err());
    assert!(matches!(
        put(&store, 2, Durability::Logged),
        Err(Error::Closed(_))
    ));
    assert!(has(&store, 1), "readers go on");
    store.close().unwrap();
    drop(store);
    assert_eq!(Arc::strong_count(&merge), 1);
    let store = Store::open(self::options(&disk, false)).unwrap();
    assert!(has(&store, 1), "what was logged is safe");
}

#[test]
fn a_failed_sync_is_never_tried_again() {
    for (file, inline) in [
        ("log", false),
        ("log", true),
        ("data", false),
        ("data", true),
    ] {
        let disk = SimDisk::new(2);
        let store = Store::open(options(&disk, inline)).unwrap();
        put(&store, 1, Durability::Synced).unwrap();
        disk.add_fault(fault(Kind::Sync, file, EIO));
        let failed = match file {
            "log" => put(&store, 2, Durability::Synced),
            _ => store.checkpoint(),
        };
        assert!(failed.is_err(), "{file}");
        for number in 3..6 {
            for how in [Durability::Logged, Durability::Synced] {
                let outcome = put(&store, number, how);
                assert!(
                    matches!(outcome, Err(Error::Closed(_))),
                    "{file}: {outcome:?}"
                );
            }
        }
        if file == "data" {
            assert!(matches!(store.checkpoint(), Err(Error::Closed(_))));
        }
        assert!(has(&store, 1) && !has(&store, 3));
    }
}

#[test]
fn a_full_disk_stalls_commits_and_they_go_on_when_there_is_room() {
    for inline in [true, false] {
        let disk = SimDisk::new(3);
        let store = Store::open(options(&disk, inline)).unwrap();
        put(&store, 0, Durability::Logged).unwrap();
        store.checkpoint().unwrap();
        disk.fill("data", 5000);
        let mut number = 1;
        let error = loop {
            match put(&store, number, Durability::Logged) {
                Ok(()) => number += 1,
                Err(error) => break error,
            }
            assert!(number < 1000, "a full disk takes everything");
        };
        let is_full = matches!(
            error,
            Error::Stalled {
                disk_full: true,
                ..
            }
        );
        assert!(is_full, "{error}");
        assert!(
            (0..number).all(|number| has(&store, number)),
            "readers go on"
        );
        disk.clear_faults();
        eventually(|| put(&store, number, Durability::Logged));
        store.checkpoint().unwrap();
        assert!((0..=number).all(|number| has(&store, number)));
    }
}

/// A failed flush leaked its half-written extents, and the retry used more space.
#[test]
fn tries_on_a_full_disk_take_no_more_room() {
    let disk = SimDisk::new(4);
    let store = Store::open(options(&disk, true)).unwrap();
    disk.fill("data", 0);
    let mut number = 0;
    while put(&store, number, Durability::Logged).is_ok() {
        number += 1;
    }
    let before = store.stats().space.file_bytes;
    for _ in 0..50 {
        assert!(put(&store, number, Durability::Logged).is_err());
    }
    assert_eq!(store.stats().space.file_bytes, before);
}

#[test]
fn a_segment_that_cannot_be_deleted_stops_nothing() {
    let disk = SimDisk::new(5);
    disk.add_fault(Fault {
        times: u64::MAX,
        ..fault(Kind::Remove, "log-0", EIO)
    });
    for number in 0..6 {
        // Each start begins a segment.
        let store = Store::open(options(&disk, true)).unwrap();
        put(&store, number, Durability::Logged).unwrap();
        store.checkpoint().unwrap();
        put(&store, number + 10, Durability::Synced).unwrap();
        store.close().unwrap();
    }
    assert_eq!(segments(&disk).len(), 6);
    disk.clear_faults();
    let store = Store::open(options(&disk, true)).unwrap();
    assert!((0..6).all(|number| has(&store, number)));
    put(&store, 6, Durability::Logged).unwrap();
    store.checkpoint().unwrap();
    assert_eq!(segments(&disk).len(), 1);
}

#[test]
fn several_threads_may_commit_and_read_without_background_threads() {
    let disk = SimDisk::new(6);
    let store = Store::open(options(&disk, true)).unwrap();
    put(&store, 0, Durability::Logged).unwrap();
    std::thread::scope(|scope| {
        for thread in 1..5u64 {
            let store = &store;
            scope.spawn(move || {
                for step in 0..150 {
                    let how = match step % 10 {
                        0 => Durability::Synced,
                        _ => Durability::Logged,
                    };
                    put(store, thread * 1000 + step, how).unwrap();
                    assert!(has(store, thread * 1000 + step));
                }
            });
        }
    });
    disk.crash_after(0);
    drop(store);
    let store = Store::open(options(&disk.after_kill(), true)).unwrap();
    let synced = |thread: u64| (0..141).all(|step| has(&store, thread * 1000 + step));
    assert!((1..5).all(synced));
}

/// Such segments were reported as damage, because others between them stayed deleted.
#[test]
fn segments_that_a_crash_brings_back_are_no_problem() {
    let disk = SimDisk::new(7);
    disk.add_fault(Fault {
        times: u64::MAX,
        ..fault(Kind::Remove, "log-0", EIO)
    });
    for number in 0..5 {
        let store = Store::open(options(&disk, true)).unwrap();
        put(&store, number, Durability::Synced).unwrap();
        put(&store, number, Durability::Synced).unwrap();
        store.checkpoint().unwrap();
        store.close().unwrap();
    }
    disk.clear_faults();
    let logs = segments(&disk);
    assert_eq!(logs.len(), 5);
    disk.remove(&logs[1].0).unwrap();
    let verify = |disk: &SimDisk| Store::verify(&options(disk, true), &mut |_| {}).unwrap();
    let report = verify(&disk);
    assert_eq!(
        (report.problems.as_slice(), report.log_lost_bytes),
        (&[][..], 0)
    );

    // The damage in them is still reported: surely, if what follows shows that it was durable once.
    let (name, len) = &logs[2];
    for (bit, is_sure) in [(80, true), (8 * len - 1, false)] {
        let copy = disk.copy();
        copy.flip_bit(name, bit);
        let report = verify(&copy);
        assert_eq!(report.problems.len(), usize::from(is_sure), "{report:?}");
        assert!(report.problems.iter().all(|problem| problem.file == *name));
        assert_eq!(report.log_lost_bytes > 0, !is_sure);
        let store = Store::open(options(&copy, true)).unwrap();
        assert!((0..5).all(|number| has(&store, number)), "nobody needs it");
    }
}

/// Trees were merged on several threads, so that a simulation was not deterministic.
#[test]
fn a_load_of_several_trees_replays_without_background_threads() {
    let run = || {
        let disk = SimDisk::new(8);
        let mut options = options(&disk, true);
        options.cache_bytes = 64 << 20;
        options.flush_threads = 4;
        let store = Store::open(options).unwrap();
        let trees = [TREE, OTHER];
        let mut set = WriteSet::new();
        for tree in trees {
            set.create_tree_to_load(tree, &TreeOptions::default());
        }
        store.commit(set, Durability::Logged).unwrap();
        let loads = trees.map(|tree| (tree, Duplicates::LastWins));
        let mut loader = store.bulk_loader(&loads, Some(1)).unwrap();
        for number in 0..20_000u64 {
            let key = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
            loader.add(number as usize % 2, &key, &key).unwrap();
        }
        loader.finish().unwrap();
        drop(store);
        disk.trace()
    };
    let first = run();
    assert!((0..5).all(|_| run() == first));
}

/// A new segment that could not be made durable was left empty, and a replay began with it.
#[test]
fn the_log_goes_on_in_a_segment_that_could_not_be_begun() {
    for kind in [Kind::Open, Kind::SyncDirectory] {
        let disk = SimDisk::new(1);
        let store = Store::open(options(&disk, true)).unwrap();
        for number in 0..40 {
            put(&store, number, Durability::Logged).unwrap();
        }
        let file = if kind == Kind::Open { "log" } else { "" };
        disk.add_fault(fault(kind, file, EIO));
        // Compaction starts a new segment of the log.
        store.compact().unwrap();
        for number in 40..50 {
            put(&store, number, Durability::Synced).unwrap();
        }
        // Now a replay starts behind where the new segment was to begin.
        store.checkpoint().unwrap();
        for number in 50..60 {
            put(&store, number, Durability::Synced).unwrap();
        }
        disk.crash_after(0);
        drop(store);
        let mut options = options(&disk, true);
        options.disk = Arc::new(disk.after_crash(&mut SmallRng::seed_from_u64(1)));
        let store = Store::open(options).unwrap();
        assert!((0..60).all(|number| has(&store, number)), "{kind:?}");
    }
}
