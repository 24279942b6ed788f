//! Keys that are longer than TiKV takes them as they are.

use std::ops::Bound::{self, Excluded, Included, Unbounded};
use std::time::Duration;

use frond_kv::{Direction, Error, Operations, TreeId};
use frond_tikv::{Snapshot, WriteSet};

use super::{await_time, new_tree, servers};

/// A key that begins with the same bytes as all others that this makes.
fn long(end: &str, bytes: usize) -> Vec<u8> {
    let mut key = vec![b'k'; 8 << 10];
    key.extend_from_slice(end.as_bytes());
    key.resize(key.len() + bytes, b'.');
    key
}

fn keys(
    snapshot: &Snapshot,
    tree: TreeId,
    lower: Bound<&[u8]>,
    upper: Bound<&[u8]>,
    direction: Direction,
) -> Vec<Vec<u8>> {
    let mut cursor = snapshot.cursor(tree, lower, upper, direction).unwrap();
    let mut keys = Vec::new();
    while let Some((key, _)) = cursor.next().unwrap() {
        keys.push(key.to_vec());
    }
    keys
}

/// Fails without showing keys of some megabytes.
fn assert_same(found: &[Vec<u8>], expected: &[Vec<u8>]) {
    assert_eq!(found.len(), expected.len());
    let differs = found.iter().zip(expected).position(|(a, b)| a != b);
    assert_eq!(differs, None);
}

#[test]
fn servers_that_insert_the_same_long_key_conflict() {
    let Some(open) = servers() else {
        return;
    };
    let (one, other) = (open(), open());
    let tree = new_tree(&one);
    let key = long("same", 20_000);
    let insert = |engine: &frond_tikv::Cluster, snapshot: &Snapshot, key: &[u8]| {
        assert!(!snapshot.contains(tree, key).unwrap());
        let mut set = WriteSet::with_snapshot(snapshot);
        set.put_guarded(tree, key, b"value");
        engine.commit(set)
    };
    let (first, second, third) = (one.snapshot(), other.snapshot(), other.snapshot());
    insert(&one, &first, &key).unwrap();
    match insert(&other, &second, &key) {
        Err(Error::Conflict { key: of, held, .. }) => assert!(of == key && !held),
        other => panic!("{other:?}"),
    }
    // Another key is no conflict, though most of it is the same.
    insert(&other, &third, &long("other", 20_000)).unwrap();
    let found = one.get_latest(tree, &key).unwrap();
    assert!(found.is_none_or(|value| value.as_deref() == Some(&b"value"[..])));
    let found = one.snapshot().get(tree, &key).unwrap();
    assert_eq!(found.as_deref(), Some(&b"value"[..]));
    // A deletion conflicts with a change, too.
    let (first, second) = (one.snapshot(), other.snapshot());
    let mut set = WriteSet::with_snapshot(&first);
    set.delete_guarded(tree, &key);
    one.commit(set).unwrap();
    let mut set = WriteSet::with_snapshot(&second);
    set.put_guarded(tree, &key, b"changed");
    assert!(matches!(other.commit(set), Err(Error::Conflict { .. })));
    assert!(!other.snapshot().contains(tree, &key).unwrap());
}

#[test]
fn many_long_keys_with_the_same_begin_are_read_in_order() {
    let Some(open) = servers() else {
        return;
    };
    let engine = open();
    let tree = new_tree(&engine);
    // More than a cursor holds at once. One has a value, and one a tail, that is stored in parts.
    let mut expected = vec![b"before".to_vec(), vec![b'k'; 8 << 10], b"z".to_vec()];
    expected.extend((0..40).map(|n| long(&format!("{:02}", n * 7 % 40), 200 << 10)));
    expected.push(long("parts", 3 << 20));
    let most_plain = vec![b'k'; 7 << 10];
    expected.extend(
        (1..most_plain.len())
            .step_by(2000)
            .map(|len| most_plain[..len].to_vec()),
    );
    for some in expected.chunks(8) {
        let mut set = WriteSet::new();
        some.iter()
            .for_each(|key| set.put(tree, key, &key[..3.min(key.len())]));
        engine.commit(set).unwrap();
    }
    let large = vec![7; 2 << 20];
    let mut set = WriteSet::new();
    set.put(tree, &long("05", 200 << 10), &large);
    engine.commit(set).unwrap();
    expected.sort();
    let snapshot = engine.snapshot();
    let backward = |mut keys: Vec<Vec<u8>>| {
        keys.reverse();
        keys
    };
    let all = |direction| keys(&snapshot, tree, Unbounded, Unbounded, direction);
    assert_same(&all(Direction::Forward), &expected);
    assert_same(&backward(all(Direction::Backward)), &expected);
    assert_eq!(
        snapshot.get(tree, &long("05", 200 << 10)).unwrap(),
        Some(large)
    );
    let parts = long("parts", 3 << 20);
    assert_eq!(
        snapshot.get(tree, &parts).unwrap().as_deref(),
        Some(&b"kkk"[..])
    );
    // Bounds within the group, of keys that are there and that are not.
    let bounds = [long("05", 200 << 10), long("17", 5), long("30", 300 << 10)];
    for (lower, upper) in [(0, 1), (0, 2), (1, 2)] {
        let (lower, upper) = (&bounds[lower], &bounds[upper]);
        let there: Vec<Vec<u8>> = (expected.iter())
            .filter(|key| *key > lower && *key <= upper)
            .cloned()
            .collect();
        assert!(there.len() > 5);
        let found = |direction| keys(&snapshot, tree, Excluded(lower), Included(upper), direction);
        assert_same(&found(Direction::Forward), &there);
        assert_same(&backward(found(Direction::Backward)), &there);
    }
    let mut cursor = snapshot
        .cursor(tree, Unbounded, Unbounded, Direction::Forward)
        .unwrap();
    for n in [30, 3, 39] {
        cursor.seek(&long(&format!("{n:02}"), 0)).unwrap();
        let (key, _) = cursor.next().unwrap().unwrap();
        assert!(key == long(&format!("{n:02}"), 200 << 10), "{n}");
    }
    // A transaction reads its writes among them.
    let transaction = engine.begin(&snapshot);
    let mut set = Operations::default();
    set.put_guarded(tree, &long("055", 0), b"");
    set.delete_guarded(tree, &long("06", 200 << 10));
    set.delete_range(tree, &long("20", 0), Some(&long("29", 300 << 10)));
    transaction.stage_leaving_room(set, 0).unwrap();
    let removed = |key: &Vec<u8>| {
        *key == long("06", 200 << 10) || (*key >= long("20", 0) && *key < long("29", 300 << 10))
    };
    let before = expected.len();
    expected.retain(|key| !removed(key));
    expected.push(long("055", 0));
    expected.sort();
    assert_eq!(expected.len(), before - 10);
    let own = transaction.snapshot();
    assert_same(
        &keys(&own, tree, Unbounded, Unbounded, Direction::Forward),
        &expected,
    );
    let found = keys(&own, tree, Unbounded, Unbounded, Direction::Backward);
    assert_same(&backward(found), &expected);
    transaction.commit(Operations::default()).unwrap();
    let now = engine.snapshot();
    assert_same(
        &keys(&now, tree, Unbounded, Unbounded, Direction::Forward),
        &expected,
    );
    assert_eq!(snapshot_count(&snapshot, tree), before);
    // A range that is deleted in parts: only what lies between the bounds.
    let mut set = WriteSet::new();
    set.set_frees_space();
    set.put(tree, b"beside", b"");
    set.delete_range(tree, &long("10", 0), Some(&long("15", 100 << 10)));
    engine.commit(set).unwrap();
    let left = keys(
        &engine.snapshot(),
        tree,
        Unbounded,
        Unbounded,
        Direction::Forward,
    );
    expected.retain(|key| *key < long("10", 0) || *key >= long("15", 100 << 10));
    expected.push(b"beside".to_vec());
    expected.sort();
    assert_same(&left, &expected);
    let mut set = WriteSet::new();
    set.delete_range(tree, &long("00", 0), None);
    engine.commit(set).unwrap();
    let left = keys(
        &engine.snapshot(),
        tree,
        Unbounded,
        Unbounded,
        Direction::Forward,
    );
    expected.retain(|key| *key < long("00", 0));
    assert_same(&left, &expected);
}

fn snapshot_count(snapshot: &Snapshot, tree: TreeId) -> usize {
    keys(snapshot, tree, Unbounded, Unbounded, Direction::Forward).len()
}

#[test]
fn parts_of_the_values_of_long_keys_are_collected() {
    let Some(open) = servers() else {
        return;
    };
    let engine = open();
    let tree = new_tree(&engine);
    let (kept, replaced, deleted) = (long("a", 100), long("b", 2 << 20), long("c", 100));
    let large = vec![1; 2 << 20];
    let put = |key: &[u8], value: &[u8]| {
        let mut set = WriteSet::new();
        set.put(tree, key, value);
        engine.commit(set).unwrap();
    };
    for key in [&kept, &replaced, &deleted] {
        put(key, &large);
    }
    put(&replaced, b"small");
    let mut set = WriteSet::new();
    set.delete(tree, &deleted);
    engine.commit(set).unwrap();
    let collect = || {
        drop(engine.snapshot());
        let run = engine.collect_garbage(engine.oldest_snapshot(), Duration::ZERO, &[]);
        run.unwrap().values
    };
    // The clock of the cluster may stand for some milliseconds after a commit, and an attempt that was repeated leaves parts, too.
    let mut collected = 0;
    loop {
        let values = collect();
        collected += values;
        if collected >= 2 && values == 0 {
            break;
        }
        await_time(&engine, engine.now_ms() + 1);
    }
    let snapshot = engine.snapshot();
    assert_eq!(snapshot.get(tree, &kept).unwrap(), Some(large));
    // Its tail alone is stored in parts.
    assert_eq!(
        snapshot.get(tree, &replaced).unwrap().as_deref(),
        Some(&b"small"[..])
    );
    assert!(!snapshot.contains(tree, &deleted).unwrap());
    let wanted: Vec<(TreeId, &[u8])> = [&kept, &replaced, &deleted]
        .map(|key| (tree, key.as_slice()))
        .to_vec();
    let again = engine.snapshot();
    again.prefetch(&wanted).unwrap();
    assert_eq!(
        again.get(tree, &replaced).unwrap().as_deref(),
        Some(&b"small"[..])
    );
}
