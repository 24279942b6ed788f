//! A random history beside a model of it.

use std::collections::BTreeMap;
use std::ops::Bound;

use frond_kv::{Direction, Engine, Snapshot, TreeId, WriteSet};

use super::{Range, commit, new_tree, pairs};
use crate::{Keyspace, number, to_bytes};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const COMMITS: u64 = 120;
const KEYS: u64 = 60;
/// Keys with this many bytes are longer than clusters take them as they are.
const LONG_BEGIN_BYTES: usize = 9_000;
const LONG_COMMITS: u64 = 40;

/// A generator of numbers (SplitMix64), the same for each run.
struct Random {
    state: u64,
    makes_long: bool,
}

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % limit
    }

    fn new(state: u64, makes_long: bool) -> Random {
        Random { state, makes_long }
    }

    fn key(&mut self) -> Vec<u8> {
        let short = format!("{:03}", self.below(KEYS)).into_bytes();
        if !self.makes_long {
            return short;
        }
        // Most begin with the same bytes; of some there is no greater byte, so that no key follows them.
        let begin = [b'k', 0xff][usize::from(self.below(4) == 0)];
        let mut key = vec![begin; LONG_BEGIN_BYTES];
        match self.below(8) {
            0 => return short,
            1 => key.truncate(1 + self.below(LONG_BEGIN_BYTES as u64) as usize),
            2 => key.resize(LONG_BEGIN_BYTES * 3, b'l'),
            _ => {}
        }
        key.extend_from_slice(&short);
        key
    }

    fn bound(&mut self) -> Bound<Vec<u8>> {
        match self.below(4) {
            0 => Bound::Unbounded,
            1 => Bound::Excluded(self.key()),
            _ => Bound::Included(self.key()),
        }
    }
}

fn within((lower, upper): &(Bound<Vec<u8>>, Bound<Vec<u8>>), key: &[u8]) -> bool {
    let above = match lower {
        Bound::Included(lower) => key >= lower.as_slice(),
        Bound::Excluded(lower) => key > lower.as_slice(),
        Bound::Unbounded => true,
    };
    above
        && match upper {
            Bound::Included(upper) => key <= upper.as_slice(),
            Bound::Excluded(upper) => key < upper.as_slice(),
            Bound::Unbounded => true,
        }
}

/// Changes a write set and the model in the same way.
fn change<S>(random: &mut Random, tree: TreeId, set: &mut WriteSet<S>, model: &mut Model) {
    let key = random.key();
    match random.below(10) {
        0..5 => {
            let value = to_bytes(random.below(1000) as i64);
            set.put(tree, &key, &value);
            model.insert(key, value.to_vec());
        }
        5 | 6 => {
            set.delete(tree, &key);
            model.remove(&key);
        }
        7 | 8 => {
            let delta = random.below(1000) as i64;
            set.merge(tree, &key, &to_bytes(delta));
            let base = model.get(&key).map_or(0, |base| number(base).unwrap());
            model.insert(key, to_bytes(base + delta).to_vec());
        }
        _ => {
            let upper = (random.below(5) > 0).then(|| random.key());
            set.delete_range(tree, &key, upper.as_deref());
            model.retain(|at, _| *at < key || upper.as_ref().is_some_and(|upper| at >= upper));
        }
    }
}

fn compare<S: Snapshot>(
    random: &mut Random,
    tree: TreeId,
    snapshot: &S,
    model: &Model,
    scans_backward: bool,
) {
    for _ in 0..3 {
        let bounds = (random.bound(), random.bound());
        let range: Range<'_> = (
            bounds.0.as_ref().map(Vec::as_slice),
            bounds.1.as_ref().map(Vec::as_slice),
        );
        let there = model.iter().filter(|(key, _)| within(&bounds, key));
        let mut expected: Vec<_> = there.map(|(k, v)| (k.clone(), v.clone())).collect();
        let forward = pairs(snapshot, tree, range, Direction::Forward);
        assert_same(&forward, &expected);
        if scans_backward {
            expected.reverse();
            let backward = pairs(snapshot, tree, range, Direction::Backward);
            assert_same(&backward, &expected);
        }
        let key = random.key();
        let found = snapshot.get(tree, &key).unwrap();
        let found = found.as_deref();
        assert_eq!(found, model.get(&key).map(Vec::as_slice));
    }
}

/// Fails with the first row that differs, and not with all keys, which may be long.
fn assert_same(found: &[(Vec<u8>, Vec<u8>)], expected: &[(Vec<u8>, Vec<u8>)]) {
    let shown = |row: Option<&(Vec<u8>, Vec<u8>)>| {
        row.map(|(key, value)| {
            let end = key.len().saturating_sub(8);
            (key.len(), key[end..].to_vec(), value.clone())
        })
    };
    for at in 0..found.len().max(expected.len()) {
        let (one, other) = (found.get(at), expected.get(at));
        assert!(
            one == other,
            "row {at}: {:?}, not {:?}",
            shown(one),
            shown(other)
        );
    }
}

/// Random commits of all messages; look-ups and scans of the newest snapshot and of old ones agree with a model.
pub fn a_random_history_agrees_with_a_model<E: Engine>(keyspace: &Keyspace<E>) {
    history(keyspace, Random::new(7, false), COMMITS);
}

/// Checks keys of several kilobytes, many of which share their first bytes, in the same way.
pub fn a_random_history_of_long_keys_agrees_with_a_model<E: Engine>(keyspace: &Keyspace<E>) {
    history(keyspace, Random::new(39, true), LONG_COMMITS);
}

fn history<E: Engine>(keyspace: &Keyspace<E>, mut random: Random, commits: u64) {
    let engine = keyspace.engine();
    let tree = new_tree(&engine);
    let mut model = Model::new();
    let mut old: Vec<(E::Snapshot, Model)> = Vec::new();
    for round in 0..commits {
        let mut set = WriteSet::new();
        for _ in 0..=random.below(8) {
            change(&mut random, tree, &mut set, &mut model);
        }
        commit(&engine, set);
        let snapshot = engine.snapshot();
        compare(&mut random, tree, &snapshot, &model, true);
        if round % 10 == 0 {
            old.push((snapshot, model.clone()));
        }
    }
    for (snapshot, model) in &old {
        let scans_backward = keyspace.scans_the_past_backward;
        compare(&mut random, tree, snapshot, model, scans_backward);
    }
}
