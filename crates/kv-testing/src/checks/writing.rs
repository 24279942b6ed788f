//! Write sets: messages, ranges, guards, limits.

use frond_kv::{
    Direction, Durability, Engine, Error, KEY_BYTES_MAX, Snapshot, VALUE_BYTES_MAX, WriteSet,
};

use super::{ALL, commit, get, keys, new_tree, put};
use crate::{Keyspace, number, to_bytes};

/// Deltas on values, on deleted keys and on other deltas.
pub fn messages_are_applied_in_their_order<E: Engine>(keyspace: &Keyspace<E>) {
    let engine = keyspace.engine();
    let tree = new_tree(&engine);
    let mut set = WriteSet::new();
    set.merge(tree, b"a", &to_bytes(1));
    set.merge(tree, b"a", &to_bytes(2));
    set.put(tree, b"b", &to_bytes(10));
    set.merge(tree, b"b", &to_bytes(5));
    commit(&engine, set);
    let before = engine.snapshot();
    let mut set = WriteSet::new();
    set.merge(tree, b"a", &to_bytes(4));
    set.delete(tree, b"b");
    set.merge(tree, b"b", &to_bytes(1));
    commit(&engine, set);
    let value = |snapshot: &E::Snapshot, key: &[u8]| {
        number(&snapshot.get(tree, key).unwrap().unwrap()).unwrap()
    };
    assert_eq!((value(&before, b"a"), value(&before, b"b")), (3, 15));
    let now = engine.snapshot();
    assert_eq!((value(&now, b"a"), value(&now, b"b")), (7, 1));
}

/// Deltas of writers that do not wait for each other.
pub fn counters_of_concurrent_writers_add_up<E: Engine>(keyspace: &Keyspace<E>) {
    let (engine, other) = (keyspace.engine(), keyspace.engine());
    let tree = new_tree(&engine);
    std::thread::scope(|scope| {
        for engine in [&engine, &other, &engine, &other] {
            scope.spawn(move || {
                for i in 0..25 {
                    let mut set = WriteSet::new();
                    set.merge(tree, b"count", &to_bytes(i));
                    commit(engine, set);
                }
            });
        }
    });
    let snapshot = keyspace.engine().snapshot();
    let count = snapshot.get(tree, b"count").unwrap().unwrap();
    assert_eq!(number(&count).unwrap(), 4 * (0..25).sum::<i64>());
}

/// Range deletes over thousands of keys, beside other operations and alone.
pub fn ranges_of_many_keys_are_deleted_with_other_operations<E: Engine>(keyspace: &Keyspace<E>) {
    let engine = keyspace.engine();
    let tree = new_tree(&engine);
    for part in 0..5 {
        let mut set = WriteSet::new();
        for i in 0..5000 {
            set.put(tree, format!("{part} {i:05}").as_bytes(), b"x");
        }
        commit(&engine, set);
    }
    let mut set = WriteSet::new();
    set.set_frees_space();
    set.delete_range(tree, b"", Some(b"4 04990"));
    set.put(tree, b"mark", b"1");
    commit(&engine, set);
    let count = || keys(&engine.snapshot(), tree, ALL, Direction::Forward).len();
    assert_eq!(count(), 11);
    let mut set = WriteSet::new();
    set.delete_range(tree, b"b", Some(b"a"));
    set.delete_range(tree, b"mark", Some(b"mark"));
    commit(&engine, set);
    assert_eq!(count(), 11, "empty ranges");
    let mut set = WriteSet::new();
    set.delete_range(tree, b"", None);
    commit(&engine, set);
    assert_eq!(count(), 0);
}

/// Nothing of a write set with a key or a value above its limit is committed.
pub fn what_is_too_large_is_refused<E: Engine>(keyspace: &Keyspace<E>) {
    let engine = keyspace.engine();
    let tree = new_tree(&engine);
    for (key_len, value_len) in [(KEY_BYTES_MAX + 1, 0), (1, VALUE_BYTES_MAX + 1)] {
        let mut set = WriteSet::new();
        set.put(tree, b"before", b"");
        set.put(tree, &vec![b'k'; key_len], &vec![0; value_len]);
        set.put(tree, b"behind", b"");
        let refused = engine.commit(set, Durability::Logged);
        assert!(
            matches!(refused, Err(Error::TooLarge { .. })),
            "{refused:?}"
        );
    }
    let there = keys(&engine.snapshot(), tree, ALL, Direction::Forward);
    assert!(there.is_empty(), "{there:?}");
}

/// The first committer of a guarded key wins.
pub fn guarded_writers_conflict_and_blind_ones_do_not<E: Engine>(keyspace: &Keyspace<E>) {
    let (engine, other) = (keyspace.engine(), keyspace.engine());
    let tree = new_tree(&engine);
    put(&engine, tree, &[("a", "0")]);
    let guarded = |snapshot: &E::Snapshot, key: &str, value: &str| {
        let mut set = WriteSet::with_snapshot(snapshot);
        set.put_guarded(tree, key.as_bytes(), value.as_bytes());
        set
    };
    let is_conflict = |engine: &E, set| {
        let done = engine.commit(set, Durability::Logged);
        matches!(done, Err(Error::Conflict { held: false, tree: of, .. }) if of == tree)
    };
    // Writers of the same key, an absent one included.
    for key in ["a", "new"] {
        let (one, two) = (engine.snapshot(), other.snapshot());
        commit(&engine, guarded(&one, key, "1"));
        assert!(is_conflict(&other, guarded(&two, key, "2")));
        assert_eq!(get(&other.snapshot(), tree, key).as_deref(), Some("1"));
    }
    // A guard without a write, against a write and against a guard of the same key.
    let (one, two, three) = (engine.snapshot(), other.snapshot(), other.snapshot());
    let mut set = WriteSet::with_snapshot(&one);
    if keyspace.remembers_guards {
        set.guard(tree, b"a");
    } else {
        set.put_guarded(tree, b"a", b"1");
    }
    set.put(tree, b"b", b"1");
    commit(&engine, set);
    assert!(is_conflict(&other, guarded(&two, "a", "9")));
    let mut set = WriteSet::with_snapshot(&three);
    set.guard(tree, b"a");
    set.put(tree, b"c", b"1");
    assert!(is_conflict(&other, set));
    // A deleted key was changed, too.
    let (one, two) = (engine.snapshot(), other.snapshot());
    let mut set = WriteSet::with_snapshot(&one);
    set.delete_guarded(tree, b"a");
    commit(&engine, set);
    assert!(is_conflict(&other, guarded(&two, "a", "9")));
    // Writers of different keys.
    let (one, two) = (engine.snapshot(), other.snapshot());
    commit(&engine, guarded(&one, "x", "1"));
    commit(&other, guarded(&two, "y", "1"));
    // Blind ones.
    std::thread::scope(|scope| {
        for engine in [&engine, &other] {
            scope.spawn(|| (0..20).for_each(|_| put(engine, tree, &[("hot", "1")])));
        }
    });
}

/// A conflict of one key of many, in a set made by [`Engine::write_set`].
pub fn a_conflict_leaves_nothing_of_the_commit<E: Engine>(keyspace: &Keyspace<E>) {
    let engine = keyspace.engine();
    let tree = new_tree(&engine);
    put(&engine, tree, &[("a", "0")]);
    let snapshot = engine.snapshot();
    let mut set = engine.write_set(&snapshot, 100_000);
    for i in 0..100 {
        set.put(tree, format!("blind {i}").as_bytes(), b"");
    }
    set.delete_range(tree, b"a", Some(b"b"));
    set.put_guarded(tree, b"guarded", b"");
    set.guard(tree, b"a");
    let mut first = WriteSet::with_snapshot(&snapshot);
    first.put_guarded(tree, b"a", b"1");
    commit(&engine, first);
    let refused = engine.commit(set, Durability::Logged);
    assert!(
        matches!(refused, Err(Error::Conflict { .. })),
        "{refused:?}"
    );
    let now = engine.snapshot();
    assert_eq!(keys(&now, tree, ALL, Direction::Forward), ["a"]);
    assert_eq!(get(&now, tree, "a").as_deref(), Some("1"));
}
