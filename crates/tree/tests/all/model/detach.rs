//! Walks that go on over a snapshot without the memtables of its moment.

use std::ops::Bound;

use frond_tree::{Direction, Snapshot, Store, TreeId};
use rand::RngExt;
use rand::rngs::SmallRng;

use super::{Model, random_key};

/// Detaches a snapshot from memtables that are flushed, in the middle of walks over its trees.
pub fn detach(random: &mut SmallRng, store: &Store, snapshot: &mut Snapshot, model: &Model) {
    let unbounded = || (Bound::Unbounded, Bound::Unbounded);
    let mut walks = Vec::new();
    for (tree, map) in model {
        for direction in [Direction::Forward, Direction::Backward] {
            let (lower, upper) = unbounded();
            let mut cursor = snapshot.cursor(*tree, lower, upper, direction).unwrap();
            let from = if random.random_bool(0.2) {
                random_key(random)
            } else if direction == Direction::Forward {
                Vec::new()
            } else {
                b"~".to_vec()
            };
            if random.random_bool(0.9) {
                cursor.seek(&from).unwrap();
            }
            let mut expected: Vec<_> = map.iter().collect();
            if direction == Direction::Backward {
                expected.reverse();
            }
            let mut left = expected
                .into_iter()
                .skip_while(|(key, _)| match direction {
                    Direction::Forward => **key < from,
                    Direction::Backward => **key > from,
                })
                .collect::<Vec<_>>()
                .into_iter();
            if from.first() == Some(&b'k') {
                // Whether it was moved there or not, it is there from here on.
                cursor.seek(&from).unwrap();
            }
            for _ in 0..random.random_range(0..map.len() + 2) {
                let next = left.next();
                let next = next.map(|(key, value)| (key.as_slice(), value.as_slice()));
                assert_eq!(cursor.next().unwrap(), next);
            }
            walks.push((cursor, left));
        }
    }
    let trees: Vec<TreeId> = model.keys().copied().collect();
    *snapshot = store.detach(snapshot, &trees).unwrap();
    for (cursor, left) in &mut walks {
        cursor.continue_on(snapshot);
        for (key, value) in left {
            let found = cursor.next().unwrap();
            assert_eq!(found, Some((key.as_slice(), value.as_slice())));
        }
        assert_eq!(cursor.next().unwrap(), None);
    }
}
