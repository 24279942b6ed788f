//! Snapshots are isolated from later commits.

use std::sync::atomic::{AtomicBool, Ordering};

use frond_kv::{Direction, Engine, Snapshot, WriteSet};

use super::{ALL, commit, get, keys, new_tree, pairs, put};
use crate::Keyspace;

/// A snapshot has what was committed before it, and nothing else.
pub fn commits_are_seen_by_later_snapshots_only<E: Engine>(keyspace: &Keyspace<E>) {
    let engine = keyspace.engine();
    let tree = new_tree(&engine);
    assert!(engine.snapshot().has_tree(tree).unwrap());
    let before = engine.snapshot();
    put(&engine, tree, &[("a", "1"), ("b", ""), ("c", "3")]);
    assert_eq!(get(&before, tree, "a"), None);
    let after = engine.snapshot();
    assert_eq!(get(&after, tree, "a").as_deref(), Some("1"));
    assert_eq!(get(&after, tree, "b").as_deref(), Some(""));
    assert!(after.contains(tree, b"c").unwrap());
    (after.prefetch(&[(tree, b"a"), (tree, b"b"), (tree, b"x")])).unwrap();
    assert_eq!(get(&after, tree, "b").as_deref(), Some(""));
    assert_eq!(get(&after, tree, "x"), None);
    let mut set = WriteSet::new();
    set.delete(tree, b"a");
    set.delete_range(tree, b"b", Some(b"c"));
    set.put(tree, b"d", b"4");
    commit(&engine, set);
    let now = keyspace.engine().snapshot();
    assert_eq!(keys(&now, tree, ALL, Direction::Forward), ["c", "d"]);
    assert_eq!(keys(&after, tree, ALL, Direction::Forward), ["a", "b", "c"]);
}

/// A snapshot reads the same again and again while every key is changed.
pub fn a_snapshot_does_not_change_while_others_commit<E: Engine>(keyspace: &Keyspace<E>) {
    let (engine, other) = (keyspace.engine(), keyspace.engine());
    let tree = new_tree(&engine);
    let names: Vec<String> = (0..50).map(|i| format!("{i:02}")).collect();
    let write = |engine: &E, value: &str| {
        let pairs: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), value)).collect();
        put(engine, tree, &pairs);
    };
    write(&engine, "before");
    let snapshot = engine.snapshot();
    let expected = pairs(&snapshot, tree, ALL, Direction::Forward);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| (0..20).for_each(|round| write(&other, &format!("{round}"))));
        while !writer.is_finished() {
            assert_eq!(pairs(&snapshot, tree, ALL, Direction::Forward), expected);
            assert_eq!(get(&snapshot, tree, "25").as_deref(), Some("before"));
        }
    });
    assert_eq!(pairs(&snapshot, tree, ALL, Direction::Forward), expected);
    if keyspace.scans_the_past_backward {
        let mut backward = pairs(&snapshot, tree, ALL, Direction::Backward);
        backward.reverse();
        assert_eq!(backward, expected);
    }
    assert_eq!(get(&engine.snapshot(), tree, "25").as_deref(), Some("19"));
}

/// Readers find all keys of a commit with the same value, in several trees.
pub fn a_commit_is_seen_as_a_whole_or_not_at_all<E: Engine>(keyspace: &Keyspace<E>) {
    let (engine, other) = (keyspace.engine(), keyspace.engine());
    let trees = [new_tree(&engine), new_tree(&engine)];
    let is_done = AtomicBool::new(false);
    let write = |round: u32| {
        let mut set = WriteSet::new();
        for tree in trees {
            for key in [b"a", b"m", b"z"] {
                set.put(tree, key, &round.to_be_bytes());
            }
        }
        commit(&engine, set);
    };
    write(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (1..100).for_each(write);
            is_done.store(true, Ordering::Release);
        });
        while !is_done.load(Ordering::Acquire) {
            let snapshot = other.snapshot();
            let found = trees.map(|tree| pairs(&snapshot, tree, ALL, Direction::Forward));
            let values: Vec<&[u8]> = found.iter().flatten().map(|(_, value)| &**value).collect();
            assert_eq!(values.len(), 6);
            assert!(values.iter().all(|value| value == &values[0]), "{values:?}");
        }
    });
}
