//! The checks of the conformance suite: what the store relies on. Each gets an empty keyspace.

mod durability;
mod isolation;
mod model;
mod reading;
mod transactions;
mod trees;
mod writing;

use std::ops::Bound::{self, Unbounded};

use frond_kv::{Cursor, Direction, Durability, Engine, Snapshot, TreeId, TreeOptions, WriteSet};

pub use durability::*;
pub use isolation::*;
pub use model::*;
pub use reading::*;
pub use transactions::*;
pub use trees::*;
pub use writing::*;

type Range<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

const ALL: Range<'_> = (Unbounded, Unbounded);

fn new_tree<E: Engine>(engine: &E) -> TreeId {
    let tree = engine.allocate_tree().unwrap();
    let mut set = WriteSet::new();
    set.create_tree(tree, &TreeOptions::default());
    commit(engine, set);
    tree
}

fn commit<E: Engine>(engine: &E, set: WriteSet<E::Snapshot>) {
    engine.commit(set, Durability::Logged).unwrap();
}

fn put<E: Engine>(engine: &E, tree: TreeId, pairs: &[(&str, &str)]) {
    let mut set = WriteSet::new();
    for (key, value) in pairs {
        set.put(tree, key.as_bytes(), value.as_bytes());
    }
    commit(engine, set);
}

fn get<S: Snapshot>(snapshot: &S, tree: TreeId, key: &str) -> Option<String> {
    let value = snapshot.get(tree, key.as_bytes()).unwrap();
    value.map(|value| String::from_utf8(value.to_vec()).unwrap())
}

/// The keys and values of a range.
fn pairs<S: Snapshot>(
    snapshot: &S,
    tree: TreeId,
    (lower, upper): Range<'_>,
    direction: Direction,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut cursor = snapshot.cursor(tree, lower, upper, direction).unwrap();
    let mut pairs = Vec::new();
    while let Some((key, value)) = cursor.next().unwrap() {
        pairs.push((key.to_vec(), value.to_vec()));
    }
    pairs
}

fn keys<S: Snapshot>(
    snapshot: &S,
    tree: TreeId,
    range: Range<'_>,
    direction: Direction,
) -> Vec<String> {
    let pairs = pairs(snapshot, tree, range, direction).into_iter();
    pairs
        .map(|(key, _)| String::from_utf8(key).unwrap())
        .collect()
}
