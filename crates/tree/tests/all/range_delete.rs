//! Range deletes: their cost, the space they free, and reads around them.

#![allow(clippy::unwrap_used, missing_docs)]

use std::ops::Bound::{Excluded, Included, Unbounded};

use frond_tree::{
    Compression, Direction, Durability, Options, Snapshot, Store, TreeId, TreeOptions, WriteSet,
};

fn key(number: u32) -> Vec<u8> {
    format!("key{number:08}").into_bytes()
}

struct Fixture {
    store: Store,
    tree: TreeId,
    directory: tempfile::TempDir,
}

fn options(directory: &tempfile::TempDir) -> Options {
    let mut options = Options::new(directory.path());
    options.cache_bytes = 8 << 20;
    options.memtable_bytes = Some(256 << 10);
    options.fanout = 4;
    options
}

impl Fixture {
    /// A tree with the keys 0 to `count`, put in an order that fills buffers of several levels.
    fn new(count: u32) -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(options(&directory)).unwrap();
        let tree = store.allocate_tree();
        let fixture = Fixture {
            store,
            tree,
            directory,
        };
        fixture.commit(|set| {
            let options = TreeOptions {
                compression: Compression::None,
                node_bytes: 64 << 10,
                page_bytes: 2 << 10,
            };
            set.create_tree(tree, &options);
        });
        let mut number = 0;
        for _ in 0..count.div_ceil(100) {
            fixture.commit(|set| {
                for _ in 0..100 {
                    // A prime step visits every key once.
                    number = (number + 7_919) % count;
                    set.put(tree, &key(number), &[b'v'; 100]);
                }
            });
        }
        fixture.store.checkpoint().unwrap();
        fixture
    }

    fn commit(&self, build: impl FnOnce(&mut WriteSet)) {
        let mut set = WriteSet::new();
        build(&mut set);
        self.store.commit(set, Durability::Logged).unwrap();
    }

    fn delete(&self, lower: &[u8], upper: Option<&[u8]>) {
        self.commit(|set| set.delete_range(self.tree, lower, upper));
    }

    fn used(&self) -> u64 {
        let space = self.store.stats().space;
        space.file_bytes - space.free_bytes - space.waiting_bytes
    }

    fn keys(&self, snapshot: &Snapshot, direction: Direction) -> Vec<Vec<u8>> {
        let mut cursor = snapshot
            .cursor(self.tree, Unbounded, Unbounded, direction)
            .unwrap();
        let mut keys = Vec::new();
        while let Some((key, _)) = cursor.next().unwrap() {
            keys.push(key.to_vec());
        }
        if direction == Direction::Backward {
            keys.reverse();
        }
        keys
    }

    fn check(&self, snapshot: &Snapshot, expected: &[Vec<u8>]) {
        for direction in [Direction::Forward, Direction::Backward] {
            let keys = self.keys(snapshot, direction);
            assert_eq!(keys.len(), expected.len());
            assert!(keys == expected);
        }
    }
}

const COUNT: u32 = 40_000;

#[test]
fn deleting_most_of_a_tree_writes_little_and_frees_its_space() {
    let fixture = Fixture::new(COUNT);
    let before = fixture.store.tree_stats(fixture.tree);
    assert!(before.height >= 3, "{before:?}");
    let used = fixture.used();
    let written = fixture.store.stats().written_bytes;
    let old = fixture.store.snapshot();
    let all: Vec<_> = (0..COUNT).map(key).collect();

    fixture.delete(&key(1000), Some(&key(37_000)));
    let kept: Vec<_> = (0..1000).chain(37_000..COUNT).map(key).collect();
    fixture.check(&fixture.store.snapshot(), &kept);
    fixture.store.checkpoint().unwrap();
    fixture.check(&fixture.store.snapshot(), &kept);
    fixture.check(&old, &all);
    let after = fixture.store.tree_stats(fixture.tree);
    assert!(after.leaves < before.leaves / 5, "{before:?} {after:?}");
    assert!(fixture.used() >= used, "the snapshot holds what it sees");
    let written = fixture.store.stats().written_bytes - written;
    assert!(written < used / 6, "{written} bytes of {used}");

    drop(old);
    // A write, as the cursors' version is the one that the checkpoint replaces.
    fixture.commit(|set| set.put(fixture.tree, &key(0), b"v"));
    fixture.store.checkpoint().unwrap();
    assert!(fixture.used() < used / 4, "{} of {used}", fixture.used());

    let directory = fixture.directory;
    fixture.store.close().unwrap();
    let fixture = Fixture {
        store: Store::open(options(&directory)).unwrap(),
        tree: fixture.tree,
        directory,
    };
    fixture.check(&fixture.store.snapshot(), &kept);
}

#[test]
fn deleting_everything_leaves_an_empty_tree() {
    let fixture = Fixture::new(COUNT);
    fixture.delete(&[], None);
    fixture.check(&fixture.store.snapshot(), &[]);
    fixture.store.checkpoint().unwrap();
    let stats = fixture.store.tree_stats(fixture.tree);
    assert_eq!((stats.height, stats.disk_bytes), (0, 0), "{stats:?}");
    fixture.commit(|set| set.put(fixture.tree, &key(5), b"v"));
    fixture.store.checkpoint().unwrap();
    fixture.check(&fixture.store.snapshot(), &[key(5)]);
}

#[test]
fn a_scan_passes_a_deleted_range_without_reading_it() {
    let fixture = Fixture::new(COUNT);
    fixture.delete(&key(10), Some(&key(COUNT - 10)));
    let snapshot = fixture.store.snapshot();
    let looked_up = || {
        let stats = fixture.store.stats();
        stats.cache_hits + stats.cache_misses
    };
    let before = looked_up();
    let kept: Vec<_> = (0..10).chain(COUNT - 10..COUNT).map(key).collect();
    fixture.check(&snapshot, &kept);
    let pages = looked_up() - before;
    assert!(pages < 400, "{pages} pages and indexes for two scans");
}

#[test]
fn appends_behind_a_pending_range_delete_are_seen() {
    // The range delete is small, so it waits in a buffer above the last leaf when the leaf is appended.
    for upper in [None, Some(key(COUNT + 500))] {
        let fixture = Fixture::new(COUNT);
        fixture.delete(&key(COUNT - 3), upper.as_deref());
        fixture.store.checkpoint().unwrap();
        let mut expected: Vec<_> = (0..COUNT - 3).map(key).collect();
        for number in COUNT..COUNT + 1000 {
            fixture.commit(|set| set.put(fixture.tree, &key(number), &[b'n'; 100]));
            expected.push(key(number));
            if number % 100 == 0 {
                fixture.store.checkpoint().unwrap();
            }
        }
        fixture.store.checkpoint().unwrap();
        fixture.check(&fixture.store.snapshot(), &expected);
    }
}

#[test]
fn a_small_last_leaf_is_not_joined_with_appends_while_a_range_delete_waits_for_it() {
    // One internal node; the range delete waits in it for the last leaf.
    let fixture = Fixture::new(2000);
    let append = |numbers: std::ops::Range<u32>| {
        for number in numbers {
            fixture.commit(|set| set.put(fixture.tree, &key(number), &[b'n'; 100]));
        }
        fixture.store.checkpoint().unwrap();
    };
    append(2000..2050);
    fixture.delete(&key(2010), Some(&key(2020)));
    fixture.store.checkpoint().unwrap();
    assert!(fixture.store.tree_stats(fixture.tree).pending_bytes > 0);
    append(2050..2100);
    let expected: Vec<_> = (0..2010).chain(2020..2100).map(key).collect();
    fixture.check(&fixture.store.snapshot(), &expected);
}

#[test]
fn many_range_deletes_in_one_memtable_hide_what_each_snapshot_saw_deleted() {
    let fixture = Fixture::new(COUNT);
    let mut alive: std::collections::BTreeSet<u32> = (0..COUNT).collect();
    let mut snapshots = Vec::new();
    for round in 0..55u32 {
        let lower = round * 7_919 % COUNT;
        let upper = (lower + 10 + round).min(COUNT);
        fixture.delete(&key(lower), Some(&key(upper)));
        alive.retain(|number| !(lower..upper).contains(number));
        if round % 3 == 0 {
            fixture.commit(|set| set.put(fixture.tree, &key(lower), b"again"));
            alive.insert(lower);
        }
        if round % 9 == 0 {
            snapshots.push((fixture.store.snapshot(), alive.clone()));
        }
    }
    for _ in 0..2 {
        for (snapshot, alive) in &snapshots {
            let expected: Vec<_> = alive.iter().map(|number| key(*number)).collect();
            fixture.check(snapshot, &expected);
            for number in (0..COUNT).step_by(7) {
                let found = snapshot.contains(fixture.tree, &key(number)).unwrap();
                assert_eq!(found, alive.contains(&number), "{number}");
            }
        }
        fixture.store.checkpoint().unwrap();
    }
}

#[test]
fn bounded_scans_end_inside_deleted_ranges() {
    let fixture = Fixture::new(COUNT);
    fixture.delete(&key(100), Some(&key(200)));
    fixture.delete(&key(200), Some(&key(30_000)));
    for _ in 0..2 {
        let snapshot = fixture.store.snapshot();
        for (lower, upper, expected) in [
            (50, 150, (50..100).collect::<Vec<_>>()),
            (150, 25_000, vec![]),
            (150, 30_005, (30_000..30_005).collect()),
            (99, 30_001, vec![99, 30_000]),
        ] {
            let (low, high) = (key(lower), key(upper));
            for direction in [Direction::Forward, Direction::Backward] {
                let mut cursor = snapshot
                    .cursor(fixture.tree, Included(&low), Excluded(&high), direction)
                    .unwrap();
                let mut found = Vec::new();
                while let Some((key, _)) = cursor.next().unwrap() {
                    found.push(key.to_vec());
                }
                if direction == Direction::Backward {
                    found.reverse();
                }
                let expected: Vec<_> = expected.iter().map(|number| key(*number)).collect();
                assert!(found == expected, "{lower}..{upper} {direction:?}");
            }
        }
        fixture.store.checkpoint().unwrap();
    }
}
