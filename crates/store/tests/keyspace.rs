//! One suite for both engines of the keyspace: what the store relies on.
//!
//! The embedded engine always runs it; a TiKV cluster does if `FROND_TEST_PD` has the address of its PD.

#![allow(clippy::unwrap_used)]

use std::ops::Bound::{self, Excluded, Included, Unbounded};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
fn operations_take_few_round_trips() {
    let Ok(_) = std::env::var("FROND_TEST_PD") else {
        return;
    };
    on_both(|open| {
        let engine = open();
        let Some(_) = engine.cluster_stats() else {
            return;
        };
        let trips = || engine.cluster_stats().unwrap().round_trips;
        let tree = new_tree(&engine);
        let began = trips();
        let snapshot = engine.snapshot();
        assert_eq!(trips() - began, 1, "a snapshot");
        let mut set = WriteSet::with_snapshot(&snapshot);
        for i in 0..500 {
            set.put_guarded(tree, format!("{i:05}").as_bytes(), b"value");
        }
        set.merge(CATALOG_TREE, &[COUNTER, 9], &n(500));
        engine.commit(set, Durability::Logged).unwrap();
        assert_eq!(trips() - began, 4, "a commit: two phases and a timestamp");
        let began = trips();
        let snapshot = engine.snapshot();
        let names: Vec<String> = (0..500).map(|i| format!("{i:05}")).collect();
        let wanted: Vec<(TreeId, &[u8])> =
            names.iter().map(|name| (tree, name.as_bytes())).collect();
        snapshot.prefetch(&wanted).unwrap();
        for name in &names {
            assert!(snapshot.contains(tree, name.as_bytes()).unwrap());
        }
        assert_eq!(trips() - began, 2, "500 look-ups");
    });
}
