//! One suite for both engines of the keyspace: what the store relies on.
//!
//! The embedded engine always runs it; a TiKV cluster does if `FROND_TEST_PD` has the address of its PD.

#![allow(clippy::unwrap_used)]

use std::ops::Bound::{self, Excluded, Included, Unbounded};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use frond_store::EngineOptions;
use frond_store::keyspace::{
    CATALOG_TREE, ClusterOptions, Direction, Durability, Engine, EngineError, Malformed,
    MergeOperator, Snapshot, TreeId, TreeOptions, WriteSet,
};

/// Adds 64-bit numbers; an empty delta is malformed.
struct Adds;

fn number(bytes: &[u8]) -> Result<i64, Malformed> {
    let bytes = bytes.try_into().map_err(|_| Malformed("not a number"))?;
    Ok(i64::from_le_bytes(bytes))
}

impl MergeOperator for Adds {
    fn apply(
        &self,
        _: TreeId,
        _: &[u8],
        base: Option<&[u8]>,
        delta: &[u8],
    ) -> Result<Option<Vec<u8>>, Malformed> {
        let sum = base.map_or(Ok(0), number)? + number(delta)?;
        Ok(Some(sum.to_le_bytes().to_vec()))
    }

    fn combine(&self, _: TreeId, _: &[u8], a: &[u8], b: &[u8]) -> Result<Vec<u8>, Malformed> {
        Ok((number(a)? + number(b)?).to_le_bytes().to_vec())
    }

    fn check(&self, _: TreeId, _: &[u8], delta: &[u8]) -> Result<(), Malformed> {
        number(delta).map(drop)
    }
}

fn n(value: i64) -> [u8; 8] {
    value.to_le_bytes()
}

/// Counters are the keys of the catalog that begin with this.
const COUNTER: u8 = b'#';

/// Runs a test on both engines, each with an empty keyspace.
fn on_both(test: impl Fn(&dyn Fn() -> Engine)) {
    let directory = tempfile::tempdir().unwrap();
    let engine = Engine::open(EngineOptions {
        merge: Arc::new(Adds),
        ..EngineOptions::new(directory.path())
    })
    .unwrap();
    create(&engine, CATALOG_TREE);
    test(&|| engine.clone());
    engine.close().unwrap();
    let Ok(pd) = std::env::var("FROND_TEST_PD") else {
        return;
    };
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let now = std::time::SystemTime::now();
    let now = now
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_nanos();
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let prefix = format!("test/{now}/{run}/").into_bytes();
    let open = || {
        Engine::connect(ClusterOptions {
            key_prefix: prefix.clone(),
            merge: Arc::new(Adds),
            counters: Some((CATALOG_TREE, vec![COUNTER])),
            ..ClusterOptions::new(vec![pd.clone()])
        })
        .unwrap()
    };
    create(&open(), CATALOG_TREE);
    test(&open);
}

fn create(engine: &Engine, tree: TreeId) {
    let mut set = WriteSet::new();
    set.create_tree(tree, &TreeOptions::default());
    engine.commit(set, Durability::Logged).unwrap();
}

fn new_tree(engine: &Engine) -> TreeId {
    let tree = engine.allocate_tree().unwrap();
    create(engine, tree);
    tree
}

fn put(engine: &Engine, tree: TreeId, pairs: &[(&str, &str)]) {
    let mut set = WriteSet::new();
    for (key, value) in pairs {
        set.put(tree, key.as_bytes(), value.as_bytes());
    }
    engine.commit(set, Durability::Logged).unwrap();
}

fn get(snapshot: &Snapshot, tree: TreeId, key: &str) -> Option<String> {
    let value = snapshot.get(tree, key.as_bytes()).unwrap();
    value.map(|value| String::from_utf8(value.to_vec()).unwrap())
}

fn keys(
    snapshot: &Snapshot,
    tree: TreeId,
    (low, high): (Bound<&[u8]>, Bound<&[u8]>),
    direction: Direction,
) -> Vec<String> {
    let mut cursor = snapshot.cursor(tree, low, high, direction).unwrap();
    let mut keys = Vec::new();
    while let Some((key, _)) = cursor.next().unwrap() {
        keys.push(String::from_utf8(key.to_vec()).unwrap());
    }
    keys
}

const ALL: (Bound<&[u8]>, Bound<&[u8]>) = (Unbounded, Unbounded);

#[test]
fn commits_are_seen_by_later_snapshots_only() {
    on_both(|open| {
        let engine = open();
        let tree = new_tree(&engine);
        assert!(engine.has_tree(tree).unwrap() && engine.snapshot().has_tree(tree).unwrap());
        let before = engine.snapshot();
        put(&engine, tree, &[("a", "1"), ("b", ""), ("c", "3")]);
        assert_eq!(get(&before, tree, "a"), None);
        let after = engine.snapshot();
        assert_eq!(get(&after, tree, "a").as_deref(), Some("1"));
        assert_eq!(get(&after, tree, "b").as_deref(), Some(""));
        assert!(after.contains(tree, b"c").unwrap());
        after
            .prefetch(&[(tree, b"a"), (tree, b"b"), (tree, b"x")])
            .unwrap();
        assert_eq!(get(&after, tree, "b").as_deref(), Some(""));
        assert_eq!(get(&after, tree, "x"), None);
        let mut set = WriteSet::new();
        set.delete(tree, b"a");
        set.delete_range(tree, b"b", Some(b"c"));
        set.put(tree, b"d", b"4");
        engine.commit(set, Durability::Logged).unwrap();
        let now = open().snapshot();
        assert_eq!(keys(&now, tree, ALL, Direction::Forward), ["c", "d"]);
        assert_eq!(keys(&after, tree, ALL, Direction::Forward), ["a", "b", "c"]);
        let mut set = WriteSet::new();
        set.drop_tree(tree);
        engine.commit(set, Durability::Logged).unwrap();
        assert!(!engine.has_tree(tree).unwrap());
    });
}

#[test]
fn cursors_go_both_ways_over_many_pages() {
    on_both(|open| {
        let engine = open();
        let tree = new_tree(&engine);
        let other = new_tree(&engine);
        let names: Vec<String> = (0..3000).map(|i| format!("{i:05}")).collect();
        for some in names.chunks(500) {
            let mut set = WriteSet::new();
            for name in some {
                set.put(tree, name.as_bytes(), name.as_bytes());
            }
            set.put(other, some[0].as_bytes(), b"");
            engine.commit(set, Durability::Logged).unwrap();
        }
        let snapshot = engine.snapshot();
        assert_eq!(keys(&snapshot, tree, ALL, Direction::Forward), names);
        let backward: Vec<String> = names.iter().rev().cloned().collect();
        assert_eq!(keys(&snapshot, tree, ALL, Direction::Backward), backward);
        let bounds: (Bound<&[u8]>, Bound<&[u8]>) = (Excluded(b"00100"), Included(b"00103"));
        let some = ["00101", "00102", "00103"];
        assert_eq!(keys(&snapshot, tree, bounds, Direction::Forward), some);
        let bounds: (Bound<&[u8]>, Bound<&[u8]>) = (Included(b"00100"), Excluded(b"00103"));
        let some = ["00102", "00101", "00100"];
        assert_eq!(keys(&snapshot, tree, bounds, Direction::Backward), some);
        let mut cursor = snapshot
            .cursor(tree, Unbounded, Unbounded, Direction::Forward)
            .unwrap();
        for target in ["00010", "00010x", "02000", "00005", "02999", "9"] {
            cursor.seek(target.as_bytes()).unwrap();
            let found = cursor.next().unwrap().map(|(key, _)| key.to_vec());
            let expected = names.iter().find(|name| name.as_str() >= target);
            assert_eq!(
                found,
                expected.map(|name| name.clone().into_bytes()),
                "{target}"
            );
        }
        let mut cursor = snapshot
            .cursor(tree, Unbounded, Unbounded, Direction::Backward)
            .unwrap();
        for target in ["9", "02000", "00010x", "00011", "!"] {
            cursor.seek(target.as_bytes()).unwrap();
            let found = cursor.next().unwrap().map(|(key, _)| key.to_vec());
            let expected = names.iter().rev().find(|name| name.as_str() <= target);
            assert_eq!(
                found,
                expected.map(|name| name.clone().into_bytes()),
                "{target}"
            );
        }
        let last = snapshot.key_upper_bound(tree).unwrap();
        assert!(last.is_none_or(|last| last >= b"02999".to_vec()));
    });
}

#[test]
fn guarded_writers_conflict_and_blind_ones_do_not() {
    on_both(|open| {
        let (engine, other) = (open(), open());
        let tree = new_tree(&engine);
        put(&engine, tree, &[("a", "0")]);
        let guarded = |snapshot: &Snapshot, key: &str, value: &str| {
            let mut set = WriteSet::with_snapshot(snapshot);
            set.put_guarded(tree, key.as_bytes(), value.as_bytes());
            set
        };
        let commit = |engine: &Engine, set| engine.commit(set, Durability::Logged);
        let is_conflict = |error| matches!(error, Err(EngineError::Conflict { held: false, .. }));
        // Writers of the same key, an absent one included.
        for key in ["a", "new"] {
            let (one, two) = (engine.snapshot(), other.snapshot());
            commit(&engine, guarded(&one, key, "1")).unwrap();
            assert!(is_conflict(
                commit(&other, guarded(&two, key, "2")).map(drop)
            ));
            assert_eq!(get(&other.snapshot(), tree, key).as_deref(), Some("1"));
        }
        // A guard without a write, against a write and, on the embedded engine, a guard of the same key: unistore, which stands in
        // for TiKV here, forgets keys that were only locked.
        let (one, two, three) = (engine.snapshot(), other.snapshot(), other.snapshot());
        let mut set = WriteSet::with_snapshot(&one);
        match engine.is_remote() {
            true => set.put_guarded(tree, b"a", b"1"),
            false => set.guard(tree, b"a"),
        }
        set.put(tree, b"b", b"1");
        commit(&engine, set).unwrap();
        assert!(is_conflict(
            commit(&other, guarded(&two, "a", "9")).map(drop)
        ));
        let mut set = WriteSet::with_snapshot(&three);
        set.guard(tree, b"a");
        set.put(tree, b"c", b"1");
        assert!(is_conflict(commit(&other, set).map(drop)));
        // Writers of different keys.
        let (one, two) = (engine.snapshot(), other.snapshot());
        commit(&engine, guarded(&one, "x", "1")).unwrap();
        commit(&other, guarded(&two, "y", "1")).unwrap();
        // Blind ones.
        std::thread::scope(|scope| {
            for engine in [&engine, &other] {
                scope.spawn(|| {
                    for _ in 0..20 {
                        put(engine, tree, &[("hot", "1")]);
                    }
                });
            }
        });
    });
}

#[test]
fn counters_of_concurrent_writers_add_up() {
    on_both(|open| {
        let (engine, other) = (open(), open());
        let tree = new_tree(&engine);
        let counter = [COUNTER, 1];
        std::thread::scope(|scope| {
            for (place, engine) in [&engine, &other, &engine, &other].into_iter().enumerate() {
                scope.spawn(move || {
                    for i in 0..25 {
                        let snapshot = engine.snapshot();
                        let mut set = WriteSet::with_snapshot(&snapshot);
                        set.put_guarded(tree, format!("{place}/{i}").as_bytes(), b"");
                        set.merge(CATALOG_TREE, &counter, &n(i));
                        engine.commit(set, Durability::Logged).unwrap();
                    }
                });
            }
        });
        let third = open();
        let snapshot = third.snapshot();
        let count = snapshot.get(CATALOG_TREE, &counter).unwrap().unwrap();
        assert_eq!(number(&count).unwrap(), 4 * (0..25).sum::<i64>());
        let mut cursor = snapshot.cursor(CATALOG_TREE, Unbounded, Unbounded, Direction::Forward);
        let (key, value) = cursor.as_mut().unwrap().next().unwrap().unwrap();
        assert_eq!((key, value), (&counter[..], &count[..]));
        let mut set = WriteSet::new();
        set.delete(CATALOG_TREE, &counter);
        other.commit(set, Durability::Logged).unwrap();
        assert!(!third.snapshot().contains(CATALOG_TREE, &counter).unwrap());
    });
}

#[test]
fn messages_are_applied_in_their_order() {
    on_both(|open| {
        let engine = open();
        let tree = new_tree(&engine);
        let mut set = WriteSet::new();
        set.merge(tree, b"a", &n(1));
        set.merge(tree, b"a", &n(2));
        set.put(tree, b"b", &n(10));
        set.merge(tree, b"b", &n(5));
        engine.commit(set, Durability::Logged).unwrap();
        let mut set = WriteSet::new();
        set.merge(tree, b"a", &n(4));
        set.delete(tree, b"b");
        set.merge(tree, b"b", &n(1));
        engine.commit(set, Durability::Logged).unwrap();
        let snapshot = engine.snapshot();
        let value = |key: &[u8]| number(&snapshot.get(tree, key).unwrap().unwrap()).unwrap();
        assert_eq!((value(b"a"), value(b"b")), (7, 1));
    });
}

#[test]
fn transactions_see_their_writes_and_conflict() {
    on_both(|open| {
        let (engine, other) = (open(), open());
        let tree = new_tree(&engine);
        put(&engine, tree, &[("a", "0"), ("b", "0"), ("d", "0")]);
        let transaction = engine.begin(&engine.snapshot());
        let stage = |transaction: &frond_store::keyspace::EngineTransaction, key: &str| {
            let mut set = WriteSet::with_snapshot(&transaction.snapshot());
            set.put_guarded(tree, key.as_bytes(), b"mine");
            transaction.stage_leaving_room(set, 0)
        };
        assert!(transaction.is_empty());
        stage(&transaction, "a").unwrap();
        let early = transaction.snapshot();
        stage(&transaction, "c").unwrap();
        let mut set = WriteSet::with_snapshot(&transaction.snapshot());
        set.delete_guarded(tree, b"b");
        transaction.stage_leaving_room(set, 0).unwrap();
        let own = transaction.snapshot();
        assert_eq!(get(&own, tree, "a").as_deref(), Some("mine"));
        assert_eq!(keys(&own, tree, ALL, Direction::Forward), ["a", "c", "d"]);
        assert_eq!(keys(&own, tree, ALL, Direction::Backward), ["d", "c", "a"]);
        assert_eq!(keys(&early, tree, ALL, Direction::Forward), ["a", "b", "d"]);
        assert_eq!(get(&engine.snapshot(), tree, "a").as_deref(), Some("0"));
        // Another transaction of the same server meets it at once.
        let second = engine.begin(&engine.snapshot());
        let held = stage(&second, "a");
        assert!(matches!(
            held,
            Err(EngineError::Conflict { held: true, .. })
        ));
        drop(second);
        transaction
            .commit_reserving(WriteSet::new(), Durability::Logged, || false)
            .unwrap();
        let now = other.snapshot();
        assert_eq!(keys(&now, tree, ALL, Direction::Forward), ["a", "c", "d"]);
        // A commit after its begin.
        let transaction = other.begin(&other.snapshot());
        let snapshot = engine.snapshot();
        let mut set = WriteSet::with_snapshot(&snapshot);
        set.put_guarded(tree, b"d", b"1");
        engine.commit(set, Durability::Logged).unwrap();
        let staged = stage(&transaction, "d");
        let done = staged.and_then(|()| {
            transaction.commit_reserving(WriteSet::new(), Durability::Logged, || false)
        });
        assert!(matches!(
            done,
            Err(EngineError::Conflict { held: false, .. })
        ));
    });
}

#[test]
fn large_values_are_kept() {
    on_both(|open| {
        let engine = open();
        let tree = new_tree(&engine);
        let large: Vec<u8> = (0..16 << 20).map(|i: u32| (i >> 7) as u8).collect();
        let mut set = WriteSet::new();
        set.put(tree, b"large", &large);
        set.put(tree, b"small", b"1");
        engine.commit(set, Durability::Logged).unwrap();
        let snapshot = open().snapshot();
        assert!(*snapshot.get(tree, b"large").unwrap().unwrap() == *large);
        snapshot
            .prefetch(&[(tree, b"large"), (tree, b"small")])
            .unwrap();
        assert!(*snapshot.get(tree, b"large").unwrap().unwrap() == *large);
        let mut cursor = snapshot
            .cursor(tree, Unbounded, Unbounded, Direction::Forward)
            .unwrap();
        let (key, value) = cursor.next().unwrap().unwrap();
        assert!(key == b"large" && value == large);
        put(&engine, tree, &[("large", "no more")]);
        assert_eq!(
            get(&engine.snapshot(), tree, "large").as_deref(),
            Some("no more")
        );
    });
}

#[test]
fn tree_ids_are_unique_and_clocks_agree() {
    on_both(|open| {
        let (one, two) = (open(), open());
        let mut seen = std::collections::HashSet::new();
        for _ in 0..200 {
            assert!(seen.insert(one.allocate_tree().unwrap()));
            assert!(seen.insert(two.allocate_tree().unwrap()));
        }
        assert!((one.now_ms() - two.now_ms()).abs() < 2000);
        assert!(one.instance().is_none() || one.instance() != two.instance());
    });
}

#[test]
fn a_fenced_instance_commits_nothing_that_it_began_before() {
    let Ok(_) = std::env::var("FROND_TEST_PD") else {
        return;
    };
    on_both(|open| {
        let (one, other) = (open(), open());
        let Some(instance) = one.instance() else {
            return;
        };
        let tree = new_tree(&one);
        put(&one, tree, &[("a", "0")]);
        let begun = one.snapshot();
        let prepared: Vec<WriteSet> = (0..3)
            .map(|i| {
                let mut set = WriteSet::with_snapshot(&one.snapshot());
                set.put_guarded(tree, format!("late {i}").as_bytes(), b"");
                set.merge(CATALOG_TREE, &[COUNTER, 3], &n(1));
                set
            })
            .collect();
        let transaction = one.begin(&begun);
        let mut set = WriteSet::with_snapshot(&begun);
        set.put_guarded(tree, b"of a transaction", b"");
        transaction.stage_leaving_room(set, 0).unwrap();
        other.fence(instance, 0).unwrap();
        for set in prepared {
            let late = one.commit(set, Durability::Logged);
            assert!(
                matches!(late, Err(EngineError::Conflict { .. })),
                "{late:?}"
            );
        }
        let late = transaction.commit_reserving(WriteSet::new(), Durability::Logged, || false);
        assert!(
            matches!(late, Err(EngineError::Conflict { .. })),
            "{late:?}"
        );
        assert_eq!(
            keys(&other.snapshot(), tree, ALL, Direction::Forward),
            ["a"]
        );
        // What it begins later is another matter: that is for its lease to forbid.
        put(&one, tree, &[("b", "1")]);
        assert_eq!(get(&other.snapshot(), tree, "b").as_deref(), Some("1"));
        let before = one.snapshot();
        one.set_lease(&before, one.now_ms() - 1000).unwrap();
        let mut set = WriteSet::new();
        set.put(tree, b"c", b"");
        let late = one.commit(set, Durability::Logged);
        assert!(
            matches!(late, Err(EngineError::Conflict { .. })),
            "{late:?}"
        );
        one.extend_lease(one.now_ms() + 60_000);
        put(&one, tree, &[("c", "2")]);
        // A new instance goes on, but not with snapshots of the old one.
        let old = one.snapshot();
        one.begin_instance().unwrap();
        assert_ne!(one.instance(), Some(instance));
        let mut set = WriteSet::new();
        set.put(tree, b"d", b"");
        assert!(one.commit(set, Durability::Logged).is_err());
        one.set_lease(&one.snapshot(), one.now_ms() + 60_000)
            .unwrap();
        let mut set = WriteSet::with_snapshot(&old);
        set.put_guarded(tree, b"d", b"");
        let late = one.commit(set, Durability::Logged);
        assert!(
            matches!(late, Err(EngineError::Conflict { .. })),
            "{late:?}"
        );
        put(&one, tree, &[("d", "3")]);
        other.fence(one.instance().unwrap(), 0).unwrap();
        other.fence(one.instance().unwrap() + 100, 0).unwrap();
    });
}

#[test]
fn commits_that_meet_a_fence_are_before_it_or_fail() {
    let Ok(_) = std::env::var("FROND_TEST_PD") else {
        return;
    };
    on_both(|open| {
        let (one, other) = (open(), open());
        let Some(instance) = one.instance() else {
            return;
        };
        let tree = new_tree(&one);
        one.set_lease(&one.snapshot(), one.now_ms()).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for writer in 0..8 {
                let (one, stop) = (&one, &stop);
                scope.spawn(move || {
                    for i in 0.. {
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                        let snapshot = one.snapshot();
                        let mut set = WriteSet::with_snapshot(&snapshot);
                        set.put_guarded(tree, format!("{writer} {i}").as_bytes(), b"");
                        match one.commit(set, Durability::Logged) {
                            Ok(_) | Err(EngineError::Conflict { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
            for _ in 0..10 {
                let until = one.now_ms() + 40;
                one.extend_lease(until);
                other.fence(instance, until).unwrap();
                let after = other.snapshot();
                std::thread::sleep(std::time::Duration::from_millis(50));
                // Nothing has come since.
                let now = other.snapshot();
                let there = |snapshot| keys(snapshot, tree, ALL, Direction::Forward);
                assert_eq!(there(&now), there(&after));
            }
            stop.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn the_garbage_collector_removes_what_nobody_can_see() {
    let Ok(_) = std::env::var("FROND_TEST_PD") else {
        return;
    };
    on_both(|open| {
        let engine = open();
        let Engine::Tikv(cluster) = &engine else {
            return;
        };
        let collect = |live: &[u32]| {
            std::thread::sleep(std::time::Duration::from_millis(2));
            drop(engine.snapshot());
            let needed = cluster.oldest_snapshot();
            let retention = std::time::Duration::ZERO;
            cluster.collect_garbage(needed, retention, live).unwrap()
        };
        let (kept, dropped) = (new_tree(&engine), new_tree(&engine));
        let names: Vec<String> = (0..3000).map(|i| format!("{i:04}")).collect();
        let pairs: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "x")).collect();
        put(&engine, kept, &pairs[..10]);
        put(&engine, dropped, &pairs);
        let large = "y".repeat(3 << 20);
        put(&engine, kept, &[("large", &large), ("replaced", &large)]);
        put(&engine, dropped, &[("large", &large)]);
        // An instance that is gone has added to a counter.
        let gone = open();
        for key in [1, 2] {
            let mut set = WriteSet::new();
            set.merge(CATALOG_TREE, &[COUNTER, key], &n(5));
            gone.commit(set, Durability::Logged).unwrap();
        }
        let instance = gone.instance().unwrap();
        drop(gone);
        let old = engine.snapshot();
        put(&engine, kept, &[("replaced", "small"), ("0001", "z")]);
        let mut set = WriteSet::new();
        set.drop_tree(dropped);
        engine.commit(set, Durability::Logged).unwrap();
        engine.fence(instance, 0).unwrap();
        // The old snapshot holds all of it.
        let run = collect(&[]);
        assert_eq!((run.trees, run.values, run.counters), (0, 0, 0));
        assert_eq!(get(&old, dropped, "2999").as_deref(), Some("x"));
        assert_eq!(
            get(&old, kept, "replaced").map(|value| value.len()),
            Some(3 << 20)
        );
        drop(old);
        // Nor is anything collected of an instance that is live.
        let run = collect(&[instance]);
        assert_eq!((run.trees, run.values, run.counters), (1, 1, 0), "{run:?}");
        let run = collect(&[]);
        assert_eq!((run.trees, run.values, run.counters), (0, 0, 2), "{run:?}");
        let run = collect(&[]);
        assert_eq!((run.trees, run.values, run.counters), (0, 0, 0), "{run:?}");
        let snapshot = engine.snapshot();
        for key in [1, 2] {
            let sum = snapshot
                .get(CATALOG_TREE, &[COUNTER, key])
                .unwrap()
                .unwrap();
            assert_eq!(&*sum, n(5));
        }
        assert_eq!(get(&snapshot, kept, "replaced").as_deref(), Some("small"));
        assert_eq!(get(&snapshot, kept, "0001").as_deref(), Some("z"));
        assert_eq!(
            get(&snapshot, kept, "large").map(|value| value.len()),
            Some(3 << 20)
        );
        assert_eq!(keys(&snapshot, dropped, ALL, Direction::Forward).len(), 0);
    });
}

#[test]
fn operations_take_few_round_trips() {
    let Ok(_) = std::env::var("FROND_TEST_PD") else {
        return;
    };
    on_both(|open| {
        let engine = open();
        let Engine::Tikv(cluster) = &engine else {
            return;
        };
        let (tree, index) = (new_tree(&engine), new_tree(&engine));
        let names: Vec<String> = (0..1000).map(|i| format!("{i:05}")).collect();
        let wanted = |tree| -> Vec<(TreeId, &[u8])> {
            names.iter().map(|name| (tree, name.as_bytes())).collect()
        };
        let insert = |names: &[String], stamped: bool| {
            let snapshot = engine.snapshot();
            let keys: Vec<(TreeId, &[u8])> =
                names.iter().map(|name| (tree, name.as_bytes())).collect();
            snapshot.prefetch(&keys).unwrap();
            let mut set = WriteSet::with_snapshot(&snapshot);
            for name in names {
                assert!(!snapshot.contains(tree, name.as_bytes()).unwrap());
                set.put_guarded(tree, name.as_bytes(), &[7; 100]);
                for part in 0..4 {
                    set.put(index, format!("{part} {name}").as_bytes(), b"");
                }
                if stamped {
                    set.put_stamped(index, 0, b"", b"entry");
                }
            }
            set.merge(CATALOG_TREE, &[COUNTER, 9], &n(1));
            engine.commit(set, Durability::Logged).unwrap();
        };
        let scan = |tree, rows: usize| {
            let snapshot = engine.snapshot();
            let mut cursor = snapshot
                .cursor(tree, Included(b"0 00100"), Unbounded, Direction::Forward)
                .unwrap();
            for _ in 0..rows {
                cursor.next().unwrap().unwrap();
            }
            snapshot.prefetch(&wanted(index)[..rows]).unwrap();
        };
        insert(&names[..1], false);
        scan(index, 0);
        // Where the region is, and whether there is a lock still.
        while engine
            .get_latest(tree, names[0].as_bytes())
            .unwrap()
            .is_none()
        {}
        let operations: [(&str, u64, &dyn Fn()); 8] = [
            ("a snapshot", 1, &|| drop(engine.snapshot())),
            ("1,000 documents with 4 indexes", 5, &|| {
                insert(&names[1..], false)
            }),
            ("the newest value of a key", 1, &|| {
                let found = engine.get_latest(tree, names[0].as_bytes()).unwrap();
                assert_eq!(found.unwrap().unwrap().len(), 100);
            }),
            ("the newest value of no key", 1, &|| {
                assert!(engine.get_latest(tree, b"x").unwrap().unwrap().is_none());
            }),
            ("1,000 look-ups", 2, &|| {
                let snapshot = engine.snapshot();
                snapshot.prefetch(&wanted(tree)).unwrap();
                for name in &names {
                    assert!(snapshot.contains(tree, name.as_bytes()).unwrap());
                }
            }),
            ("the region of a scan", 4, &|| scan(index, 100)),
            ("100 entries of an index with their documents", 3, &|| {
                scan(index, 100)
            }),
            ("a document with its entry in the oplog", 5, &|| {
                insert(&["a".to_owned()], true);
            }),
        ];
        for (what, most, operation) in operations {
            let began = cluster.stats().round_trips;
            operation();
            let taken = cluster.stats().round_trips - began;
            assert!(taken <= most, "{what}: {taken} of {most}");
        }
        let stats = cluster.stats();
        assert!(stats.timestamps.count > 0 && stats.timestamps.micros > 0);
        assert!(stats.gets.count > 0 && stats.scans.count > 0 && stats.commits.count > 0);
    });
}

#[test]
fn ranges_of_many_keys_are_deleted_with_other_operations() {
    on_both(|open| {
        let engine = open();
        let tree = new_tree(&engine);
        for part in 0..5 {
            let mut set = WriteSet::new();
            for i in 0..5000 {
                set.put(tree, format!("{part} {i:05}").as_bytes(), b"x");
            }
            engine.commit(set, Durability::Logged).unwrap();
        }
        let mut set = WriteSet::new();
        set.set_frees_space();
        set.delete_range(tree, b"", Some(b"4 04990"));
        set.put(tree, b"mark", b"1");
        engine.commit(set, Durability::Logged).unwrap();
        assert_eq!(
            keys(&engine.snapshot(), tree, ALL, Direction::Forward).len(),
            11
        );
        let mut set = WriteSet::new();
        set.delete_range(tree, b"", None);
        engine.commit(set, Durability::Logged).unwrap();
        assert_eq!(
            keys(&engine.snapshot(), tree, ALL, Direction::Forward).len(),
            0
        );
    });
}

#[test]
fn pages_of_large_values_are_bounded() {
    on_both(|open| {
        let engine = open();
        let tree = new_tree(&engine);
        let large = "z".repeat(5 << 20);
        for i in 0..4 {
            put(&engine, tree, &[(&format!("{i}"), &large)]);
        }
        put(&engine, tree, &[("4", "small"), ("5", "small")]);
        for direction in [Direction::Forward, Direction::Backward] {
            assert_eq!(keys(&engine.snapshot(), tree, ALL, direction).len(), 6);
        }
    });
}
