//! The expected content of a store, and random work for it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Bound::{Included, Unbounded};

use crate::support::rot::simulated_panic;
use frond_tree::{
    Compression, Direction, Error, Malformed, MergeOperator, Result, Snapshot, Store, TreeId,
    TreeOptions, WriteSet,
};
use rand::RngExt;
use rand::rngs::SmallRng;

use crate::list;

/// The tree that is there from the first commit on, and its key that counts commits.
pub const FIRST: TreeId = TreeId(1);
const MARKER: &[u8] = b"~commits";
/// The trees of the accounts, if there is a bank.
pub const BANK: [TreeId; 2] = [TreeId(2), TreeId(3)];

/// The tree of the stamped keys, if there is a bank.
pub const STAMPED: TreeId = TreeId(4);

/// Accounts, and what all of them have together.
pub const ACCOUNTS: u8 = 8;
pub const SUM: i64 = 1000 * ACCOUNTS as i64;

/// The tree of an account.
pub fn bank_of(number: u8) -> TreeId {
    BANK[usize::from(number) % 2]
}

/// The key of an account.
pub fn account(number: u8) -> Vec<u8> {
    vec![number]
}

pub fn balance_in(value: &[u8]) -> i64 {
    i64::from_le_bytes(value.try_into().expect("a balance"))
}

pub type Tree = BTreeMap<Vec<u8>, Vec<u8>>;

thread_local! {
    static PANICS_AFTER: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Makes the merge operator panic on this thread, after this number of calls.
pub fn panic_in_merge_after(calls: Option<u64>) {
    PANICS_AFTER.set(calls);
}

fn maybe_panic() {
    match PANICS_AFTER.get() {
        None => {}
        Some(0) => {
            PANICS_AFTER.set(None);
            simulated_panic();
        }
        Some(left) => PANICS_AFTER.set(Some(left - 1)),
    }
}

/// Adds numbers; a sum of zero is an absent key. Some keys hold lists instead.
pub struct Adder;

fn number(bytes: &[u8]) -> i64 {
    bytes
        .try_into()
        .map_or(bytes.len() as i64, i64::from_le_bytes)
}

impl MergeOperator for Adder {
    fn apply(
        &self,
        tree: TreeId,
        key: &[u8],
        base: Option<&[u8]>,
        delta: &[u8],
    ) -> Result<Option<Vec<u8>>, Malformed> {
        if list::is_list(key) {
            return list::Lists.apply(tree, key, base, delta);
        }
        maybe_panic();
        let sum = base.map_or(0, number).wrapping_add(number(delta));
        Ok((sum != 0).then(|| sum.to_le_bytes().to_vec()))
    }

    fn combine(
        &self,
        tree: TreeId,
        key: &[u8],
        older: &[u8],
        newer: &[u8],
    ) -> Result<Vec<u8>, Malformed> {
        if list::is_list(key) {
            return list::Lists.combine(tree, key, older, newer);
        }
        maybe_panic();
        let sum = number(older).wrapping_add(number(newer));
        Ok(sum.to_le_bytes().to_vec())
    }

    fn check(&self, _: TreeId, _: &[u8], _: &[u8]) -> Result<(), Malformed> {
        Ok(())
    }
}

/// The operations that found the bank.
fn found_bank(random: &mut SmallRng) -> Commit {
    let trees = [BANK[0], BANK[1], STAMPED].map(|tree| Op::Create(tree, random_options(random)));
    let balance = (SUM / i64::from(ACCOUNTS)).to_le_bytes().to_vec();
    let accounts =
        (0..ACCOUNTS).map(|number| Op::Put(bank_of(number), account(number), balance.clone()));
    trees.into_iter().chain(accounts).collect()
}

#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    Create(TreeId, TreeOptions),
    /// A tree that waits for a bulk loader.
    CreateToLoad(TreeId, TreeOptions),
    Drop(TreeId),
    Put(TreeId, Vec<u8>, Vec<u8>),
    /// A put of a stamped key by its offset. The commit makes it a put.
    PutStamped(TreeId, u32, Vec<u8>),
    Delete(TreeId, Vec<u8>),
    Merge(TreeId, Vec<u8>, i64),
    DeleteRange(TreeId, Vec<u8>, Option<Vec<u8>>),
}

/// The operations of one commit.
pub type Commit = Vec<Op>;

pub fn write_set(commit: &Commit) -> WriteSet {
    let mut set = WriteSet::new();
    add_to(&mut set, commit);
    set
}

/// Adds operations to a write set. Accounts are guarded.
pub fn add_to(set: &mut WriteSet, commit: &Commit) {
    for op in commit {
        match op {
            Op::Create(tree, options) => set.create_tree(*tree, options),
            Op::CreateToLoad(tree, options) => set.create_tree_to_load(*tree, options),
            Op::Drop(tree) => set.drop_tree(*tree),
            Op::Put(tree, key, value) if BANK.contains(tree) => {
                set.put_guarded(*tree, key, value);
            }
            Op::Put(tree, key, value) => set.put(*tree, key, value),
            Op::PutStamped(tree, offset, value) => set.put_stamped(*tree, *offset, b"", value),
            Op::Delete(tree, key) => set.delete(*tree, key),
            Op::Merge(tree, key, delta) => set.merge(*tree, key, &delta.to_le_bytes()),
            Op::DeleteRange(tree, lower, upper) => set.delete_range(*tree, lower, upper.as_deref()),
        }
    }
}

/// The content of a store.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Model {
    pub trees: BTreeMap<TreeId, Tree>,
    /// The changes of the trees that wait for a bulk loader.
    pub loading: BTreeMap<TreeId, Vec<Op>>,
    /// The number of commits so far.
    pub commits: u64,
    /// Whether there is a bank, from the first commit on. Random commits leave its trees alone.
    pub has_bank: bool,
}

impl Model {
    pub fn apply(&mut self, commit: &Commit) {
        self.commits += 1;
        for op in commit {
            match op {
                Op::Create(tree, _) => {
                    self.trees.insert(*tree, Tree::new());
                }
                Op::CreateToLoad(tree, _) => {
                    self.trees.insert(*tree, Tree::new());
                    self.loading.insert(*tree, Vec::new());
                }
                Op::Drop(tree) => {
                    self.trees.remove(tree);
                    self.loading.remove(tree);
                }
                Op::Put(tree, ..)
                | Op::PutStamped(tree, ..)
                | Op::Delete(tree, _)
                | Op::Merge(tree, ..)
                | Op::DeleteRange(tree, ..) => {
                    let content = self.trees.get_mut(tree).unwrap();
                    change(*tree, content, op);
                    if let Some(ops) = self.loading.get_mut(tree) {
                        ops.push(op.clone());
                    }
                }
            }
        }
    }

    /// A load goes below everything that was committed.
    pub fn finish_load(&mut self, tree: TreeId, mut content: Tree) {
        for op in self.loading.remove(&tree).unwrap() {
            change(tree, &mut content, &op);
        }
        self.trees.insert(tree, content);
    }

    /// A random commit that may follow.
    pub fn random_commit(&self, random: &mut SmallRng, store: &Store) -> Commit {
        let mut commit = Vec::new();
        let mut trees: Vec<TreeId> = self.trees.keys().copied().collect();
        trees.retain(|tree| !self.has_bank || (!BANK.contains(tree) && *tree != STAMPED));
        let first = self.commits == 0;
        if first && self.has_bank {
            commit.extend(found_bank(random));
        }
        if first || (trees.len() < 6 && random.random_bool(0.02)) {
            let tree = if first { FIRST } else { store.allocate_tree() };
            assert!(
                !self.trees.contains_key(&tree),
                "an id of a tree is used twice"
            );
            let options = random_options(random);
            commit.push(if !first && random.random_bool(0.4) {
                Op::CreateToLoad(tree, options)
            } else {
                Op::Create(tree, options)
            });
            trees.push(tree);
        } else if trees.len() > 1 && random.random_bool(0.01) {
            let tree = trees.remove(random.random_range(1..trees.len()));
            commit.push(Op::Drop(tree));
        }
        let ops = match random.random_range(0..20) {
            0 => random.random_range(1..200),
            1..5 => random.random_range(1..40),
            _ => random.random_range(1..6),
        };
        for _ in 0..ops {
            let tree = trees[random.random_range(0..trees.len())];
            let key = self.random_key(random, tree);
            // They stand for much in memory, so most trees get few.
            let ranges = if tree.0.is_multiple_of(3) {
                0.05
            } else {
                0.005
            };
            if random.random_bool(ranges) {
                let upper = random_upper(random, &key);
                commit.push(Op::DeleteRange(tree, key, upper));
                continue;
            }
            if list::is_list(&key) {
                commit.push(match random.random_range(0..200) {
                    0 => Op::Put(tree, key, random_value(random)),
                    1 => Op::Delete(tree, key),
                    _ => Op::Merge(tree, key, random.random_range(0..1 << 20)),
                });
                continue;
            }
            commit.push(match random.random_range(0..100) {
                0..60 => Op::Put(tree, key, random_value(random)),
                60..80 => Op::Delete(tree, key),
                _ => Op::Merge(tree, key, random.random_range(-3..=3)),
            });
        }
        commit.push(self.marker());
        commit
    }

    /// Counts the next commit.
    pub fn marker(&self) -> Op {
        let count = (self.commits + 1).to_string().into_bytes();
        Op::Put(FIRST, MARKER.to_vec(), count)
    }

    /// Even trees take ascending keys, odd ones random ones.
    pub fn random_key(&self, random: &mut SmallRng, tree: TreeId) -> Vec<u8> {
        // Hot keys: in some trees one list gets most of the messages.
        let (hot, lists) = [(0.02, 1), (0.1, 30), (0.6, 1)][tree.0 as usize % 3];
        if random.random_bool(hot) {
            let list = random.random_range(0..lists);
            return [list::PREFIX, format!("{list:03}").as_bytes()].concat();
        }
        let number = random.random_range(0..400u64);
        if tree.0.is_multiple_of(2) && random.random_bool(0.9) {
            return format!("{:06}{:03}", self.commits + 1, number).into_bytes();
        }
        let mut key = format!("k{number:04}").into_bytes();
        if random.random_bool(0.01) {
            // Some have about as many bytes as short keys may have.
            let len = if random.random_bool(0.1) {
                random.random_range(65_500..65_600)
            } else {
                random.random_range(5..2000)
            };
            key.resize(len, b'x');
        }
        key
    }
}

/// Changes a tree as an operation on its keys says.
fn change(tree: TreeId, content: &mut Tree, op: &Op) {
    match op {
        Op::Put(_, key, value) => {
            content.insert(key.clone(), value.clone());
        }
        Op::Delete(_, key) => {
            content.remove(key);
        }
        Op::Merge(_, key, delta) => {
            let base = content.get(key).map(Vec::as_slice);
            match Adder.apply(tree, key, base, &delta.to_le_bytes()).unwrap() {
                Some(value) => content.insert(key.clone(), value),
                None => content.remove(key),
            };
        }
        Op::DeleteRange(_, lower, upper) => {
            let mut gone = content.split_off(lower);
            if let Some(upper) = upper {
                content.append(&mut gone.split_off(upper));
            }
        }
        Op::Create(..) | Op::CreateToLoad(..) | Op::Drop(_) => unreachable!("not about keys"),
        Op::PutStamped(..) => unreachable!("its key is not known"),
    }
}

/// The end of a range: most ranges are short, some reach to the end of the tree.
fn random_upper(random: &mut SmallRng, lower: &[u8]) -> Option<Vec<u8>> {
    match random.random_range(0..20) {
        0 => None,
        1 => Some(b"z".to_vec()),
        _ => {
            let mut upper = lower.to_vec();
            let last = upper.len() - 1 - random.random_range(0..3);
            upper.truncate(last + 1);
            upper[last] = upper[last].saturating_add(random.random_range(1..4));
            Some(upper)
        }
    }
}

pub fn random_value(random: &mut SmallRng) -> Vec<u8> {
    let len = match random.random_range(0..300) {
        0 => random.random_range(0..40_000),
        1..30 => random.random_range(0..1000),
        30..200 => random.random_range(0..60),
        _ => 0,
    };
    let noise = random.random::<u8>();
    (0..len)
        .map(|i| noise.wrapping_mul((i / 3) as u8))
        .collect()
}

fn random_options(random: &mut SmallRng) -> TreeOptions {
    let codecs = [
        Compression::Zstd,
        Compression::Zlib,
        Compression::Lz4,
        Compression::Snappy,
        Compression::None,
    ];
    TreeOptions {
        compression: codecs[random.random_range(0..codecs.len())],
        node_bytes: 4096 << random.random_range(0..4),
        page_bytes: 1024 << random.random_range(0..3),
    }
}

/// The number of commits that a snapshot shows.
pub fn commits_in(snapshot: &Snapshot) -> Result<u64> {
    match snapshot.get(FIRST, MARKER) {
        Ok(found) => Ok(found.map_or(0, |count| String::from_utf8_lossy(&count).parse().unwrap())),
        Err(Error::UnknownTree(_)) => Ok(0),
        Err(error) => Err(error),
    }
}

/// Compares a tree with what it must hold: walks both ways, seeks, and point reads. Errors that are `allowed` end a walk;
/// what they hide is read key by key. Returns how many keys cannot be read.
pub fn check_tree(
    snapshot: &Snapshot,
    tree: TreeId,
    expected: &Tree,
    random: &mut SmallRng,
    allowed: &dyn Fn(&Error) -> bool,
) -> Result<u64> {
    let mut unread = 0;
    let ended = |error: Error| if allowed(&error) { Ok(()) } else { Err(error) };
    let walks = [Direction::Forward, Direction::Backward];
    for direction in walks {
        let mut rest: Box<dyn Iterator<Item = (&Vec<u8>, &Vec<u8>)>> = match direction {
            Direction::Forward => Box::new(expected.iter()),
            Direction::Backward => Box::new(expected.iter().rev()),
        };
        let mut walk = || {
            let mut cursor = snapshot.cursor(tree, Unbounded, Unbounded, direction)?;
            while let Some((key, value)) = cursor.next()? {
                let (expected_key, expected_value) = rest.next().expect("a key too many");
                assert!(
                    key == expected_key,
                    "{tree:?}, {direction:?}: {key:?} is not {expected_key:?}"
                );
                assert!(
                    value == expected_value,
                    "{tree:?}, {direction:?}: another value of {key:?}"
                );
            }
            assert!(
                rest.next().is_none(),
                "{tree:?}, {direction:?}: keys are missing at the end"
            );
            Ok(())
        };
        if let Err(error) = walk() {
            ended(error)?;
            if direction == Direction::Forward {
                unread = check_around_damage(snapshot, tree, expected, allowed)?;
            }
        }
    }
    for _ in 0..5 {
        let key = format!("k{:04}", random.random_range(0..420u32)).into_bytes();
        match snapshot.get(tree, &key) {
            Ok(found) => assert!(
                found.as_deref() == expected.get(&key).map(Vec::as_slice),
                "{tree:?}: read of {key:?}"
            ),
            Err(error) => ended(error)?,
        }
        let seek = || {
            let mut cursor =
                snapshot.cursor(tree, Included(&key), Unbounded, Direction::Forward)?;
            Ok(cursor.next()?.map(|(key, _)| key.to_vec()))
        };
        let next = expected.range(key.clone()..).next();
        match seek() {
            Ok(found) => assert!(
                found.as_ref() == next.map(|(key, _)| key),
                "{tree:?}: seek of {key:?}"
            ),
            Err(error) => ended(error)?,
        }
    }
    Ok(unread)
}

/// Reads all keys of a tree with damage, and walks on behind the damage. Returns how many cannot be read.
fn check_around_damage(
    snapshot: &Snapshot,
    tree: TreeId,
    expected: &Tree,
    allowed: &dyn Fn(&Error) -> bool,
) -> Result<u64> {
    let (mut unread, mut was_read) = (0, true);
    for (key, value) in expected {
        let found = match snapshot.get(tree, key) {
            Ok(found) => found,
            Err(error) if allowed(&error) => {
                (unread, was_read) = (unread + 1, false);
                continue;
            }
            Err(error) => return Err(error),
        };
        assert!(
            found.as_deref() == Some(value),
            "{tree:?}: another value of {key:?} beside damage"
        );
        if std::mem::replace(&mut was_read, true) {
            continue;
        }
        let mut rest = expected.range(key.clone()..);
        let mut walk = || {
            let mut cursor = snapshot.cursor(tree, Included(key), Unbounded, Direction::Forward)?;
            for _ in 0..50 {
                let found = cursor.next()?;
                assert!(found == rest.next().map(|(key, value)| (&**key, &**value)));
            }
            Ok(())
        };
        match walk() {
            Err(error) if !allowed(&error) => return Err(error),
            _ => {}
        }
    }
    Ok(unread)
}

/// Compares all trees.
pub fn check_store(store: &Store, expected: &Model, random: &mut SmallRng) -> Result<()> {
    check_damaged_store(store, expected, random, &|_| false).map(|_| ())
}

/// Compares all trees, as far as damage lets them be read. Returns how many keys it does not.
pub fn check_damaged_store(
    store: &Store,
    expected: &Model,
    random: &mut SmallRng,
    allowed: &dyn Fn(&Error) -> bool,
) -> Result<u64> {
    let snapshot = store.snapshot();
    assert_eq!(store.stats().trees, expected.trees.len() as u64);
    let mut unread = 0;
    for (tree, content) in &expected.trees {
        let is_loading = expected.loading.contains_key(tree);
        assert_eq!(store.is_loading(*tree), is_loading, "{tree:?} is loading");
        unread += check_tree(&snapshot, *tree, content, random, allowed)?;
    }
    Ok(unread)
}
