//! Random transactions beside plain commits, compared with ordered maps: each transaction sees its base and its own writes;
//! a conflict comes exactly when another one was first; an aborted transaction leaves nothing.
//!
//! `FROND_MODELS` sets the number of runs, `FROND_SEED` the first seed.

#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use frond_tree::{
    Cursor, Direction, Durability, Error, MemoryUse, MergeOperator, Options, Snapshot, Store,
    Transaction, TreeId, TreeOptions, WriteSet,
};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::list;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;
type Model = BTreeMap<TreeId, Map>;
type Key = (TreeId, Vec<u8>);

/// Trees at a time.
const TREES_MAX: usize = 5;
const OPEN_MAX: usize = 4;

fn options(path: &std::path::Path) -> Options {
    let mut options = Options::new(path);
    options.cache_bytes = 8 << 20;
    options.memtable_bytes = Some(64 << 10);
    options.fanout = 4;
    options.merge = Arc::new(list::Lists);
    options
}

fn tree_options() -> TreeOptions {
    TreeOptions {
        node_bytes: 16 << 10,
        page_bytes: 1 << 10,
        ..TreeOptions::default()
    }
}

#[derive(Debug, Clone)]
enum Op {
    Create(TreeId),
    Drop(TreeId),
    Put(Key, Vec<u8>, bool),
    Delete(Key, bool),
    Merge(Key, Vec<u8>),
    DeleteRange(Key, Option<Vec<u8>>),
    Guard(Key),
}

impl Op {
    fn guarded(&self) -> Option<&Key> {
        match self {
            Op::Put(key, _, true) | Op::Delete(key, true) | Op::Guard(key) => Some(key),
            _ => None,
        }
    }

    fn add_to(&self, set: &mut WriteSet) {
        match self {
            Op::Create(tree) => set.create_tree(*tree, &tree_options()),
            Op::Drop(tree) => set.drop_tree(*tree),
            Op::Put((tree, key), value, true) => set.put_guarded(*tree, key, value),
            Op::Put((tree, key), value, false) => set.put(*tree, key, value),
            Op::Delete((tree, key), true) => set.delete_guarded(*tree, key),
            Op::Delete((tree, key), false) => set.delete(*tree, key),
            Op::Merge((tree, key), delta) => set.merge(*tree, key, delta),
            Op::DeleteRange((tree, lower), upper) => {
                set.delete_range(*tree, lower, upper.as_deref());
            }
            Op::Guard((tree, key)) => set.guard(*tree, key),
        }
    }

    /// A write to a tree that is gone has no effect.
    fn apply(&self, model: &mut Model) {
        let tree = match self {
            Op::Create(tree) => {
                model.insert(*tree, Map::new());
                return;
            }
            Op::Drop(tree) => {
                model.remove(tree);
                return;
            }
            Op::Put((tree, _), ..)
            | Op::Delete((tree, _), _)
            | Op::Merge((tree, _), _)
            | Op::DeleteRange((tree, _), _)
            | Op::Guard((tree, _)) => *tree,
        };
        let Some(map) = model.get_mut(&tree) else {
            return;
        };
        match self {
            Op::Put((_, key), value, _) => {
                map.insert(key.clone(), value.clone());
            }
            Op::Delete((_, key), _) => {
                map.remove(key);
            }
            Op::Merge((_, key), delta) => {
                let base = map.get(key).map(Vec::as_slice);
                match list::Lists.apply(tree, key, base, delta).unwrap() {
                    Some(value) => map.insert(key.clone(), value),
                    None => map.remove(key),
                };
            }
            Op::DeleteRange((_, lower), upper) => {
                let mut gone = map.split_off(lower);
                if let Some(upper) = upper {
                    map.append(&mut gone.split_off(upper));
                }
            }
            Op::Create(_) | Op::Drop(_) | Op::Guard(_) => {}
        }
    }
}

fn random_key(random: &mut SmallRng, tree: TreeId) -> Key {
    let key = match random.random_range(0..5) {
        0 => [list::PREFIX, &[b'0' + random.random_range(0..3u8)]].concat(),
        _ => format!("k{:03}", random.random_range(0..200u32)).into_bytes(),
    };
    (tree, key)
}

fn random_op(random: &mut SmallRng, tree: TreeId) -> Op {
    let key = random_key(random, tree);
    let guarded = random.random_bool(0.7);
    if list::is_list(&key.1) && random.random_bool(0.9) {
        return Op::Merge(key, random.random::<i64>().to_le_bytes().to_vec());
    }
    match random.random_range(0..100) {
        0..65 => {
            let len = random.random_range(0..8) * random.random_range(0..40);
            Op::Put(key, vec![random.random(); len], guarded)
        }
        65..85 => Op::Delete(key, guarded),
        85..95 => Op::Guard(key),
        _ => {
            let upper = random_key(random, tree).1;
            let upper = random.random_bool(0.9).then_some(upper);
            Op::DeleteRange(key, upper)
        }
    }
}

fn random_ops(random: &mut SmallRng, model: &Model, store: &Store) -> Vec<Op> {
    let mut trees: Vec<TreeId> = model.keys().copied().collect();
    let mut ops = Vec::new();
    if trees.len() < TREES_MAX && (trees.is_empty() || random.random_bool(0.05)) {
        let tree = store.allocate_tree();
        ops.push(Op::Create(tree));
        trees.push(tree);
    }
    let count = match random.random_range(0..30) {
        0 => random.random_range(1..150),
        1..8 => 0,
        _ => random.random_range(1..6),
    };
    for _ in 0..count {
        let tree = trees[random.random_range(0..trees.len())];
        ops.push(random_op(random, tree));
    }
    ops
}

/// Compares one tree, read in several ways.
fn check(random: &mut SmallRng, snapshot: &Snapshot, model: &Model, seed: u64) {
    if model.is_empty() {
        return;
    }
    let (tree, map) = model
        .iter()
        .nth(random.random_range(0..model.len()))
        .unwrap();
    for direction in [Direction::Forward, Direction::Backward] {
        let mut expected: Vec<_> = map.iter().collect();
        if direction == Direction::Backward {
            expected.reverse();
        }
        let mut cursor = snapshot
            .cursor(*tree, Bound::Unbounded, Bound::Unbounded, direction)
            .unwrap();
        for (key, value) in expected {
            let found = cursor.next().unwrap();
            assert_eq!(found, Some((&**key, &**value)), "seed {seed} {direction:?}");
        }
        assert_eq!(cursor.next().unwrap(), None, "seed {seed} {direction:?}");
    }
    for _ in 0..10 {
        let key = random_key(random, *tree).1;
        let found = snapshot.get(*tree, &key).unwrap();
        let expected = map.get(&key).map(Vec::as_slice);
        assert_eq!(found.as_deref(), expected, "seed {seed}");
    }
    if let Some(bound) = snapshot.key_upper_bound(*tree).unwrap() {
        assert!(map.last_key_value().is_none_or(|(last, _)| *last <= bound));
    }
}

/// A walk that is in its middle while others write.
struct Walk {
    cursor: Cursor,
    snapshot: Snapshot,
    tree: TreeId,
    left: std::vec::IntoIter<(Vec<u8>, Vec<u8>)>,
}

struct Open {
    transaction: Transaction,
    view: Model,
    ops: Vec<Op>,
    guards: BTreeSet<Key>,
    /// Whether a commit without a snapshot has changed one of them.
    is_overwritten: bool,
    begun_at: u64,
    walks: Vec<Walk>,
}

struct World {
    seed: u64,
    random: SmallRng,
    store: Store,
    now: Model,
    /// The number of the last commit that guarded a key.
    changed: BTreeMap<Key, u64>,
    commits: u64,
    open: Vec<Open>,
    early: u64,
    late: u64,
    committed: u64,
}

/// The result of a commit or a stage: the conflict, if there was one.
fn conflict<T>(result: Result<T, Error>) -> Option<bool> {
    match result {
        Ok(_) => None,
        Err(Error::Conflict { held, .. }) => Some(held),
        Err(error) => panic!("{error}"),
    }
}

impl World {
    /// The conflict that guards must get: with other open transactions, or with commits after a moment.
    fn expected(&self, guards: &BTreeSet<Key>, since: u64, own: Option<usize>) -> Option<bool> {
        let others = self.open.iter().enumerate();
        let mut others = others.filter(|(index, _)| Some(*index) != own);
        if others.any(|(_, other)| !other.guards.is_disjoint(guards)) {
            return Some(true);
        }
        let last = |key| self.changed.get(key).copied().unwrap_or(0);
        guards.iter().any(|key| last(key) > since).then_some(false)
    }

    fn committed(&mut self, ops: &[Op]) {
        self.commits += 1;
        for op in ops {
            op.apply(&mut self.now);
        }
        for key in ops.iter().filter_map(Op::guarded) {
            self.changed.insert(key.clone(), self.commits);
        }
        for op in ops {
            if let Op::Drop(tree) = op {
                self.changed.retain(|(other, _), _| other != tree);
            }
        }
    }

    fn commit_plainly(&mut self) {
        let mut ops = random_ops(&mut self.random, &self.now, &self.store);
        if self.now.len() == TREES_MAX && self.random.random_bool(0.03) {
            let which = self.random.random_range(0..TREES_MAX);
            let tree = *self.now.keys().nth(which).unwrap();
            ops.push(Op::Drop(tree));
        }
        let guards: BTreeSet<Key> = ops.iter().filter_map(Op::guarded).cloned().collect();
        let has_snapshot = self.random.random_bool(0.85);
        let (mut set, expected) = if has_snapshot {
            (
                WriteSet::with_snapshot(&self.store.snapshot()),
                self.expected(&guards, self.commits, None),
            )
        } else {
            // It is not refused, and a transaction that holds a key gets the conflict.
            (WriteSet::new(), None)
        };
        ops.iter().for_each(|op| op.add_to(&mut set));
        let got = conflict(self.store.commit(set, Durability::Logged));
        assert_eq!(got, expected, "seed {}", self.seed);
        if got.is_none() {
            self.committed(&ops);
        }
        for open in &mut self.open {
            open.is_overwritten |= !has_snapshot && !open.guards.is_disjoint(&guards);
        }
    }

    fn begin(&mut self) {
        if self.open.len() < OPEN_MAX {
            self.open.push(Open {
                transaction: self.store.begin(&self.store.snapshot()),
                view: self.now.clone(),
                ops: Vec::new(),
                guards: BTreeSet::new(),
                is_overwritten: false,
                begun_at: self.commits,
                walks: Vec::new(),
            });
        }
    }

    fn stage(&mut self, which: usize) {
        let ops = random_ops(&mut self.random, &self.open[which].view, &self.store);
        let guards: BTreeSet<Key> = ops.iter().filter_map(Op::guarded).cloned().collect();
        let expected = self.expected(&guards, self.open[which].begun_at, Some(which));
        let open = &mut self.open[which];
        let mut set = open.transaction.write_set();
        ops.iter().for_each(|op| op.add_to(&mut set));
        let got = conflict(open.transaction.stage(set));
        assert_eq!(got, expected, "seed {}", self.seed);
        match got {
            Some(_) => self.early += 1,
            None => {
                ops.iter().for_each(|op| op.apply(&mut open.view));
                open.ops.extend(ops);
                open.guards.extend(guards);
            }
        }
        let snapshot = self.open[which].transaction.snapshot();
        check(
            &mut self.random,
            &snapshot,
            &self.open[which].view,
            self.seed,
        );
    }

    fn end(&mut self, which: usize, commits: bool) {
        let mut guards = BTreeSet::new();
        let mut extra = Vec::new();
        if self.random.random_bool(0.3) {
            extra = random_ops(&mut self.random, &self.open[which].view, &self.store);
            guards.extend(extra.iter().filter_map(Op::guarded).cloned());
        }
        let expected = if self.open[which].is_overwritten {
            Some(false)
        } else {
            self.expected(&guards, self.open[which].begun_at, Some(which))
        };
        let mut open = self.open.swap_remove(which);
        if !commits {
            return;
        }
        let mut set = WriteSet::new();
        extra.iter().for_each(|op| op.add_to(&mut set));
        open.ops.extend(extra);
        let got = conflict(open.transaction.commit(set, Durability::Logged));
        assert_eq!(got, expected, "seed {}", self.seed);
        match got {
            Some(_) => self.late += 1,
            None => {
                self.committed += 1;
                self.committed(&open.ops);
            }
        }
        // A walk goes on after the end.
        for walk in &mut open.walks {
            for (key, value) in walk.left.by_ref() {
                let found = walk.cursor.next().unwrap();
                assert_eq!(found, Some((&*key, &*value)), "seed {}", self.seed);
            }
            assert_eq!(walk.cursor.next().unwrap(), None);
        }
    }

    /// Begins a walk in a transaction, or continues one, on a detached snapshot now and then.
    fn walk(&mut self, which: usize) {
        let (random, open) = (&mut self.random, &mut self.open[which]);
        if open.view.is_empty() {
            return;
        }
        if open.walks.len() < 3 {
            let nth = random.random_range(0..open.view.len());
            let (tree, map) = open.view.iter().nth(nth).unwrap();
            let direction = if random.random_bool(0.5) {
                Direction::Forward
            } else {
                Direction::Backward
            };
            let snapshot = open.transaction.snapshot();
            let cursor = snapshot
                .cursor(*tree, Bound::Unbounded, Bound::Unbounded, direction)
                .unwrap();
            let mut left: Vec<_> = map.clone().into_iter().collect();
            if direction == Direction::Backward {
                left.reverse();
            }
            open.walks.push(Walk {
                cursor,
                snapshot,
                tree: *tree,
                left: left.into_iter(),
            });
            return;
        }
        let nth = random.random_range(0..open.walks.len());
        let walk = &mut open.walks[nth];
        if random.random_bool(0.4) {
            walk.snapshot = self.store.detach(&walk.snapshot, &[walk.tree]).unwrap();
            walk.cursor.continue_on(&walk.snapshot);
        }
        for _ in 0..random.random_range(0..60) {
            let expected = walk.left.next();
            let expected = expected.as_ref().map(|(key, value)| (&**key, &**value));
            assert_eq!(walk.cursor.next().unwrap(), expected, "seed {}", self.seed);
            if expected.is_none() {
                open.walks.swap_remove(nth);
                return;
            }
        }
    }

    fn step(&mut self) {
        let which = match self.open.len() {
            0 => None,
            len => Some(self.random.random_range(0..len)),
        };
        match (self.random.random_range(0..100), which) {
            (0..8, _) => self.begin(),
            (8..40, _) | (_, None) => self.commit_plainly(),
            (40..75, Some(which)) => self.stage(which),
            (75..80, Some(which)) => self.end(which, true),
            (80..82, Some(which)) => self.end(which, false),
            (82..92, Some(which)) => self.walk(which),
            (92..95, Some(which)) => {
                let open = &self.open[which];
                open.transaction.detach().unwrap();
                let snapshot = open.transaction.snapshot();
                check(&mut self.random, &snapshot, &open.view, self.seed);
            }
            (95, _) => self.store.checkpoint().unwrap(),
            _ => check(
                &mut self.random,
                &self.store.snapshot(),
                &self.now,
                self.seed,
            ),
        }
    }
}

/// Returns how many transactions were committed, how many conflicts came early, and how many at the commit.
fn run(seed: u64, steps: usize) -> [u64; 3] {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World {
        seed,
        random: SmallRng::seed_from_u64(seed),
        store: Store::open(options(directory.path())).unwrap(),
        now: Model::new(),
        changed: BTreeMap::new(),
        commits: 0,
        open: Vec::new(),
        early: 0,
        late: 0,
        committed: 0,
    };
    for _ in 0..steps {
        world.step();
    }
    let World {
        store,
        now,
        mut random,
        open,
        ..
    } = world;
    // Open transactions are lost, in the middle of everything.
    store.close().unwrap();
    drop(open);
    assert_eq!(store.memory().used(MemoryUse::Transactions), 0);
    drop(store);
    let store = Store::open(options(directory.path())).unwrap();
    assert_eq!(store.trees(), now.keys().copied().collect::<Vec<_>>());
    for _ in 0..30 {
        check(&mut random, &store.snapshot(), &now, seed);
    }
    store.close().unwrap();
    drop(store);
    let report = Store::verify(&options(directory.path()), &mut |_| {}).unwrap();
    assert_eq!(report.problems, [], "seed {seed}");
    [world.committed, world.early, world.late]
}

#[test]
fn transactions_are_isolated_and_the_first_committer_wins() {
    let number =
        |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let first: u64 = number("FROND_SEED", 1);
    let mut all = [0; 3];
    for seed in first..first + number("FROND_MODELS", 6) {
        for (sum, more) in all.iter_mut().zip(run(seed, 1500)) {
            *sum += more;
        }
    }
    println!("committed, refused early, refused at the commit: {all:?}");
    assert!(all.iter().all(|count| *count > 3), "{all:?}");
}

/// Many update messages of one key are folded, also in a transaction; each snapshot still sees those before it.
#[test]
fn hot_keys_of_a_transaction_are_exact_in_every_snapshot() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(options(directory.path())).unwrap();
    let tree = store.allocate_tree();
    let mut set = WriteSet::new();
    set.create_tree(tree, &tree_options());
    set.put(tree, b"list", &7i64.to_le_bytes());
    store.commit(set, Durability::Logged).unwrap();
    let mut random = SmallRng::seed_from_u64(9);
    let mut model = Model::from([(
        tree,
        Map::from([(b"list".to_vec(), vec![7, 0, 0, 0, 0, 0, 0, 0])]),
    )]);
    let transaction = store.begin(&store.snapshot());
    let mut snapshots = Vec::new();
    for step in 0..600 {
        let mut set = transaction.write_set();
        for _ in 0..random.random_range(1..4) {
            let delta = random.random::<i64>().to_le_bytes().to_vec();
            let op = Op::Merge((tree, b"list".to_vec()), delta);
            op.add_to(&mut set);
            op.apply(&mut model);
        }
        transaction.stage(set).unwrap();
        if step % 10 == 0 {
            snapshots.push((transaction.snapshot(), model.clone()));
        }
    }
    for (snapshot, model) in &snapshots {
        check(&mut random, snapshot, model, 0);
        let found = snapshot.get(tree, b"list").unwrap();
        assert_eq!(
            found.as_deref(),
            model[&tree].get(&b"list"[..]).map(Vec::as_slice)
        );
    }
    transaction
        .commit(WriteSet::new(), Durability::Logged)
        .unwrap();
    check(&mut random, &store.snapshot(), &model, 0);
}
