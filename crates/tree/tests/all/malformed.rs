//! Messages that the merge operator cannot read: damage of their key, and of nothing else.

#![allow(clippy::unwrap_used, missing_docs)]

use std::sync::Arc;

use frond_kv_testing::Careful;
use frond_tree::{
    Compression, DamagePlace, Durability, Error, Options, Snapshot, Store, TreeId, TreeOptions,
    WriteSet,
};

const TREE: TreeId = TreeId(1);
/// Enough for a tree of two levels, whose buffer takes the last memtable.
const KEYS: u32 = 20_000;

/// Refuses deltas that begin with a question mark, and values that begin with an exclamation mark.
const OPERATOR: Careful = Careful {
    refuses_delta: |delta| match delta.first() {
        Some(b'?') => Some("a delta begins with a question mark"),
        Some(_) => None,
        None => Some("a delta is empty"),
    },
    refuses_base: |base| {
        let is_refused = base.starts_with(b"!");
        is_refused.then_some("a base begins with an exclamation mark")
    },
};

fn options(path: &std::path::Path) -> Options {
    let mut options = Options::new(path);
    options.cache_bytes = 8 << 20;
    options.merge = Arc::new(OPERATOR);
    options
}

fn key(number: u32) -> Vec<u8> {
    format!("key {number:06}").into_bytes()
}

fn merge(store: &Store, number: u32, deltas: &[&[u8]]) {
    for delta in deltas {
        let mut set = WriteSet::new();
        set.merge(TREE, &key(number), delta);
        store.commit(set, Durability::Logged).unwrap();
    }
}

/// Key 1 is damaged and all others are as they were.
fn check(snapshot: &Snapshot) {
    match snapshot.get(TREE, &key(1)) {
        Err(Error::CorruptMessage {
            tree,
            key: found,
            what,
        }) => {
            assert_eq!((tree, found), (TREE, key(1)));
            assert_eq!(what, "a delta begins with a question mark");
        }
        other => panic!("{:?}", other.map(|value| value.is_some())),
    }
    assert_eq!(
        &*snapshot.get(TREE, &key(2)).unwrap().unwrap(),
        b"value+a+b"
    );
    for number in (3..KEYS).step_by(977) {
        assert_eq!(
            &*snapshot.get(TREE, &key(number)).unwrap().unwrap(),
            b"value"
        );
    }
}

#[test]
fn an_unreadable_update_message_is_damage_of_its_key_alone() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(options(directory.path())).unwrap();
    let mut set = WriteSet::new();
    let tree_options = TreeOptions {
        compression: Compression::Lz4,
        node_bytes: 64 << 10,
        page_bytes: 4 << 10,
    };
    assert_eq!(store.allocate_tree(), TREE);
    set.create_tree(TREE, &tree_options);
    for number in 0..KEYS {
        set.put(TREE, &key(number), b"value");
    }
    store.commit(set, Durability::Logged).unwrap();
    store.checkpoint().unwrap();
    assert!(store.tree_stats(TREE).internal_nodes > 0);

    // More than are folded by a commit, with the malformed one among them.
    merge(&store, 1, &[b"+a", b"?", b"+b"]);
    merge(&store, 1, &[&b"+c"[..]; 40]);
    merge(&store, 2, &[b"+a", b"+b"]);
    check(&store.snapshot());
    // Into the buffer of the root.
    store.checkpoint().unwrap();
    let places: Vec<DamagePlace> = store.damage().into_iter().map(|one| one.place).collect();
    assert_eq!(places, [DamagePlace::Key(key(1))]);
    check(&store.snapshot());
    merge(&store, 1, &[b"+d"]);
    check(&store.snapshot());
    store.checkpoint().unwrap();
    check(&store.snapshot());
    store.close().unwrap();
    drop(store);

    let store = Store::open(options(directory.path())).unwrap();
    check(&store.snapshot());
    let damaged = store.snapshot();
    let mut set = WriteSet::new();
    set.put(TREE, &key(1), b"new");
    store.commit(set, Durability::Logged).unwrap();
    merge(&store, 1, &[b"+e"]);
    assert_eq!(
        &*store.snapshot().get(TREE, &key(1)).unwrap().unwrap(),
        b"new+e"
    );
    store.compact().unwrap();
    assert_eq!(
        &*store.snapshot().get(TREE, &key(1)).unwrap().unwrap(),
        b"new+e"
    );
    check(&damaged);
}

#[test]
fn an_unreadable_update_message_for_a_leaf_stops_no_flush() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(options(directory.path())).unwrap();
    let mut set = WriteSet::new();
    assert_eq!(store.allocate_tree(), TREE);
    set.create_tree(TREE, &TreeOptions::default());
    for number in 0..KEYS {
        set.put(TREE, &key(number), b"value");
    }
    store.commit(set, Durability::Logged).unwrap();
    store.checkpoint().unwrap();
    assert_eq!(store.tree_stats(TREE).height, 1);
    merge(&store, 2, &[b"+a", b"+b"]);
    for deltas in [&[&b"?"[..]][..], &[b"+a", b"+b"], &[b"?"]] {
        merge(&store, 1, deltas);
        check(&store.snapshot());
        store.checkpoint().unwrap();
        check(&store.snapshot());
        store.compact().unwrap();
        check(&store.snapshot());
    }
    store.close().unwrap();
    drop(store);
    let store = Store::open(options(directory.path())).unwrap();
    check(&store.snapshot());
    let mut set = WriteSet::new();
    set.delete(TREE, &key(1));
    store.commit(set, Durability::Logged).unwrap();
    store.compact().unwrap();
    assert!(store.snapshot().get(TREE, &key(1)).unwrap().is_none());
    assert!(store.snapshot().get(TREE, &key(3)).unwrap().is_some());
}

/// A flush into a buffer stored the base as if there were no updates above it: the error and the updates disappeared.
#[test]
fn an_unreadable_base_stays_damage_when_it_is_flushed() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(options(directory.path())).unwrap();
    let mut set = WriteSet::new();
    set.create_tree(store.allocate_tree(), &TreeOptions::default());
    set.put(TREE, &key(1), b"!base");
    store.commit(set, Durability::Logged).unwrap();
    merge(&store, 1, &[b"+a"]);
    let is_damage = || {
        let found = store
            .snapshot()
            .get(TREE, &key(1))
            .map(|value| value.is_some());
        assert!(
            matches!(found, Err(Error::CorruptMessage { .. })),
            "{found:?}"
        );
    };
    is_damage();
    store.checkpoint().unwrap();
    is_damage();
    let mut set = WriteSet::new();
    set.put(TREE, &key(1), b"new");
    store.commit(set, Durability::Logged).unwrap();
    store.checkpoint().unwrap();
    assert_eq!(
        &*store.snapshot().get(TREE, &key(1)).unwrap().unwrap(),
        b"new"
    );
}
