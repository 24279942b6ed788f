//! Damage below valid checksums: what a bug writes, or someone who makes a store to break a server.

#![allow(clippy::unwrap_used)]

use std::ops::Bound::Unbounded;

use frond_tree::fuzzing::Sealed;
use frond_tree::{
    Compression, Direction, Durability, Error, Options, Store, TreeId, TreeOptions, WriteSet,
};

const KEYS: u32 = 3000;

fn key(number: u32) -> Vec<u8> {
    format!("key {number:06}").into_bytes()
}

/// A store whose pages are not compressed, and the sound parts of its data file.
fn store(path: &std::path::Path) -> TreeId {
    let store = Store::open(Options::new(path)).unwrap();
    let tree = store.allocate_tree();
    let mut set = WriteSet::new();
    let options = TreeOptions {
        compression: Compression::None,
        node_bytes: 16 << 10,
        page_bytes: 1 << 10,
    };
    set.create_tree(tree, &options);
    for number in 0..KEYS {
        set.put(tree, &key(number), b"value of a key");
    }
    store.commit(set, Durability::Synced).unwrap();
    store.checkpoint().unwrap();
    store.close().unwrap();
    tree
}

/// The error of reading all keys in a direction.
fn scan(store: &Store, tree: TreeId, direction: Direction) -> Error {
    let snapshot = store.snapshot();
    let mut cursor = match snapshot.cursor(tree, Unbounded, Unbounded, direction) {
        Ok(cursor) => cursor,
        Err(error) => return error,
    };
    loop {
        match cursor.next() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("a scan passes a page with the keys of elsewhere"),
            Err(error) => return error,
        }
    }
}

#[test]
fn a_page_with_keys_outside_of_its_separators_is_damaged() {
    let directory = tempfile::tempdir().unwrap();
    let tree = store(directory.path());
    let file = directory.path().join("data.frond");
    let whole = std::fs::read(&file).unwrap();
    // After a block's header come the number of entries and the length of the prefix that all keys share, then the prefix.
    let parts = Sealed::find("data.frond", &whole);
    let pages: Vec<&Sealed> = parts
        .iter()
        .filter(|part| whole[part.range()].get(22..26) == Some(b"key "))
        .collect();
    assert!(pages.len() > 20, "{} pages", pages.len());
    for (page, first) in [
        (pages.len() / 2, b'z'),
        (pages.len() / 2, b'a'),
        (pages.len() - 1, b'z'),
    ] {
        let mut forged = whole.clone();
        let at = pages[page].range().start + 22;
        forged[at] = first;
        pages[page].seal(&mut forged);
        std::fs::write(&file, &forged).unwrap();
        let store = Store::open(Options::new(directory.path())).unwrap();
        for direction in [Direction::Forward, Direction::Backward] {
            let error = scan(&store, tree, direction);
            let Error::Corrupt { what, .. } = error else {
                panic!("{error}");
            };
            assert_eq!(what, "the keys of a page are not between its separators");
        }
        let snapshot = store.snapshot();
        let lost = (0..KEYS).filter(|number| snapshot.get(tree, &key(*number)).is_err());
        // One page, and what its filter lets through.
        assert!((1..400).contains(&lost.count()));
        store.close().unwrap();
    }
}
