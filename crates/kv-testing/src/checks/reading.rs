//! Look-ups and scans.

use std::ops::Bound::{Excluded, Included, Unbounded};

use frond_kv::{Cursor, Direction, Engine, Snapshot, WriteSet};

use super::{ALL, Range, commit, get, keys, new_tree, pairs, put};
use crate::Keyspace;

/// Scans of thousands of keys, and seeks in them.
pub fn cursors_go_both_ways_over_many_pages<E: Engine>(keyspace: &Keyspace<E>) {
    let engine = keyspace.engine();
    let tree = new_tree(&engine);
    let other = new_tree(&engine);
    let names: Vec<String> = (0..3000).map(|i| format!("{i:05}")).collect();
    for some in names.chunks(500) {
        let mut set = WriteSet::new();
        for name in some {
            set.put(tree, name.as_bytes(), name.as_bytes());
        }
        set.put(other, some[0].as_bytes(), b"");
        commit(&engine, set);
    }
    let snapshot = engine.snapshot();
    assert_eq!(keys(&snapshot, tree, ALL, Direction::Forward), names);
    let backward: Vec<String> = names.iter().rev().cloned().collect();
    assert_eq!(keys(&snapshot, tree, ALL, Direction::Backward), backward);
    let scanned = pairs(&snapshot, tree, ALL, Direction::Forward);
    assert!(scanned.iter().all(|(key, value)| key == value));

    let seek = |direction, target: &str| {
        let mut cursor = snapshot
            .cursor(tree, Unbounded, Unbounded, direction)
            .unwrap();
        // A cursor that was moved goes on from there.
        cursor.next().unwrap();
        cursor.seek(target.as_bytes()).unwrap();
        let found = cursor.next().unwrap().map(|(key, _)| key.to_vec());
        found.map(|key| String::from_utf8(key).unwrap())
    };
    for target in ["00010", "00010x", "02000", "00005", "02999", "9"] {
        let expected = names.iter().find(|name| name.as_str() >= target).cloned();
        assert_eq!(seek(Direction::Forward, target), expected, "{target}");
    }
    for target in ["9", "02000", "00010x", "00011", "!"] {
        let expected = names.iter().rev().find(|name| name.as_str() <= target);
        assert_eq!(
            seek(Direction::Backward, target).as_ref(),
            expected,
            "{target}"
        );
    }
    let last = snapshot.key_upper_bound(tree).unwrap();
    assert!(last.is_none_or(|last| last >= b"02999".to_vec()));
    let bounds = snapshot.leaf_bounds(tree, b"00100", Some(b"02000"), 8);
    let bounds = bounds.unwrap();
    assert!(bounds.len() <= 8 && bounds.is_sorted());
}

/// Bounds of all kinds in both directions, of which seeks do not leave the range.
pub fn bounds_of_cursors_hold<E: Engine>(keyspace: &Keyspace<E>) {
    let engine = keyspace.engine();
    let tree = new_tree(&engine);
    let names = ["a", "aa", "b", "c", "d"];
    put(&engine, tree, &names.map(|name| (name, "")));
    let snapshot = engine.snapshot();
    let cases: [(Range<'_>, &[&str]); 8] = [
        ((Included(b"aa"), Included(b"c")), &["aa", "b", "c"]),
        ((Included(b"aa"), Excluded(b"c")), &["aa", "b"]),
        ((Excluded(b"aa"), Included(b"c")), &["b", "c"]),
        ((Excluded(b"aa"), Excluded(b"c")), &["b"]),
        ((Excluded(b"a"), Unbounded), &["aa", "b", "c", "d"]),
        ((Unbounded, Excluded(b"b")), &["a", "aa"]),
        ((Included(b"ab"), Excluded(b"b")), &[]),
        ((Excluded(b"d"), Unbounded), &[]),
    ];
    for (range, expected) in cases {
        assert_eq!(
            keys(&snapshot, tree, range, Direction::Forward),
            expected,
            "{range:?}"
        );
        let mut backward = expected.to_vec();
        backward.reverse();
        assert_eq!(
            keys(&snapshot, tree, range, Direction::Backward),
            backward,
            "{range:?}"
        );
        for (direction, outside) in [(Direction::Forward, b"!"), (Direction::Backward, b"z")] {
            let mut cursor = snapshot.cursor(tree, range.0, range.1, direction).unwrap();
            cursor.seek(outside).unwrap();
            let first = match direction {
                Direction::Forward => expected.first(),
                Direction::Backward => expected.last(),
            };
            let found = cursor.next().unwrap().map(|(key, _)| key.to_vec());
            assert_eq!(
                found,
                first.map(|key| key.as_bytes().to_vec()),
                "{range:?} {direction:?}"
            );
        }
    }
}

/// Values of many megabytes, also several in one scan.
pub fn large_values_are_kept<E: Engine>(keyspace: &Keyspace<E>) {
    let engine = keyspace.engine();
    let tree = new_tree(&engine);
    let large: Vec<u8> = (0..16 << 20).map(|i: u32| (i >> 7) as u8).collect();
    let mut set = WriteSet::new();
    set.put(tree, b"large", &large);
    set.put(tree, b"small", b"1");
    commit(&engine, set);
    let snapshot = keyspace.engine().snapshot();
    let is_there = || *snapshot.get(tree, b"large").unwrap().unwrap() == *large;
    assert!(is_there());
    (snapshot.prefetch(&[(tree, b"large"), (tree, b"small")])).unwrap();
    assert!(is_there());
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
    let text = "z".repeat(5 << 20);
    for i in 0..4 {
        put(&engine, tree, &[(&format!("{i}"), &text)]);
    }
    for direction in [Direction::Forward, Direction::Backward] {
        assert_eq!(keys(&engine.snapshot(), tree, ALL, direction).len(), 6);
    }
}
