//! Trees come and go.

use std::collections::HashSet;

use frond_kv::{Engine, Operations, Snapshot, Transaction, TreeOptions, WriteSet};

use super::{commit, get, new_tree, put};
use crate::Keyspace;

/// Trees are created and dropped with the commit that says so, also in transactions.
pub fn trees_are_created_and_dropped<E: Engine>(keyspace: &Keyspace<E>) {
    let engine = keyspace.engine();
    let before = engine.snapshot();
    let trees = [new_tree(&engine), new_tree(&engine)];
    put(&engine, trees[0], &[("a", "1")]);
    put(&engine, trees[1], &[("a", "2")]);
    let both = engine.snapshot();
    for tree in trees {
        assert!(both.has_tree(tree).unwrap() && !before.has_tree(tree).unwrap());
    }
    let listed = engine.trees().unwrap();
    assert!(listed.is_sorted() && trees.iter().all(|tree| listed.contains(tree)));
    assert_eq!(engine.tree_stats(trees[0]).entries_estimate, 1);

    // In a transaction, whose own reads see them first.
    let created = engine.allocate_tree().unwrap();
    let transaction = engine.begin(&engine.snapshot());
    let mut set = Operations::default();
    set.create_tree(created, &TreeOptions::default());
    set.put(created, b"a", b"3");
    transaction.stage_leaving_room(set, 0).unwrap();
    let own = transaction.snapshot();
    assert!(own.has_tree(created).unwrap());
    assert_eq!(get(&own, created, "a").as_deref(), Some("3"));
    assert!(!engine.snapshot().has_tree(created).unwrap());
    drop(transaction);
    assert!(!engine.snapshot().has_tree(created).unwrap());

    let mut set = WriteSet::new();
    set.drop_tree(trees[0]);
    set.put(trees[1], b"b", b"");
    commit(&engine, set);
    let now = engine.snapshot();
    assert!(!now.has_tree(trees[0]).unwrap() && now.has_tree(trees[1]).unwrap());
    assert!(!engine.trees().unwrap().contains(&trees[0]));
    assert_eq!(get(&now, trees[1], "b").as_deref(), Some(""));
    assert_eq!(get(&both, trees[0], "a").as_deref(), Some("1"));
}

/// No handle gets the number of a tree that another has got.
pub fn tree_ids_are_unique_and_clocks_agree<E: Engine>(keyspace: &Keyspace<E>) {
    let (one, two) = (keyspace.engine(), keyspace.engine());
    let mut seen = HashSet::new();
    for _ in 0..200 {
        assert!(seen.insert(one.allocate_tree().unwrap()));
        assert!(seen.insert(two.allocate_tree().unwrap()));
    }
    let first = one.now_ms();
    let between = two.now_ms();
    let last = one.now_ms();
    // Clocks of servers may differ, but not by seconds.
    assert!((first - 2000..=last + 2000).contains(&between));
}
