//! A consistent view of the store.

use std::ops::Deref;
use std::sync::Arc;

use crate::detached::Detached;
use crate::memtable::{MemValue, Memtable, for_versions};
use crate::merge::{Fold, Resolver};
use crate::node::Subtree;
use crate::page::Page;
use crate::readers::side_by_side;
use crate::run::Run;
use crate::version::{Tree, Version};
use crate::{Error, Kind, Result, TreeId, filter};

/// A consistent view of all trees: exactly the commits that were acknowledged before it was taken. It blocks
/// no writer. While it lives, the data that it sees is kept in memory or on disk.
#[derive(Clone)]
pub struct Snapshot {
    pub(crate) version: Arc<Version>,
    pub(crate) sequence: u64,
    /// The data on disk that was written for it alone.
    pub(crate) detached: Option<Arc<Detached>>,
    /// The writes of the snapshot's own transaction.
    pub(crate) own: Option<Arc<OwnWrites>>,
}

/// The writes of an open transaction, up to one moment: memtables that are newer than all others, with sequence numbers of
/// their own, from 1 on.
pub(crate) struct OwnWrites {
    /// The newest one comes first.
    pub(crate) memtables: Vec<Arc<Memtable>>,
    pub(crate) sequence: u64,
}

/// Larger values of memtables are pinned, not copied.
const COPIED_BYTES_MAX: usize = 64 << 10;

/// A value that was read: pinned with its page or its memtable, or copied.
pub struct ValueRef(Held);

enum Held {
    Page(Arc<Page>, usize),
    Memtable(MemValue),
    Bytes(Vec<u8>),
}

/// A value that was read elsewhere.
impl From<Vec<u8>> for ValueRef {
    fn from(bytes: Vec<u8>) -> ValueRef {
        ValueRef(Held::Bytes(bytes))
    }
}

impl Deref for ValueRef {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Held::Page(page, index) => page.message(*index).1,
            Held::Memtable(value) => value,
            Held::Bytes(bytes) => bytes,
        }
    }
}

/// The messages of one key, from the newest to the oldest.
struct Lookup<'a> {
    snapshot: &'a Snapshot,
    tree: TreeId,
    key: &'a [u8],
    /// Begun by the first update message.
    fold: Option<(Resolver, Fold)>,
    /// Set by the first put or delete.
    found: Option<Option<Held>>,
}

impl Lookup<'_> {
    /// Takes the next older message. True when nothing older matters.
    fn take(&mut self, kind: Kind, value: &[u8], hold: impl FnOnce() -> Held) -> bool {
        match (&mut self.fold, kind) {
            (None, Kind::Put) => self.found = Some(Some(hold())),
            (None, Kind::Delete) => self.found = Some(None),
            (fold, kind) => {
                // A reference to the operator is taken only here, because most keys do not need it and all threads write to its count.
                let begin = || (self.snapshot.resolver(self.tree), Fold::default());
                let (resolver, fold) = fold.get_or_insert_with(begin);
                return fold.add(resolver, self.key, kind, value);
            }
        }
        true
    }

    fn finish(self) -> Result<Option<ValueRef>> {
        if let Some((resolver, fold)) = self.fold {
            return Ok(match fold.finish_at_bottom(&resolver, self.key)? {
                (Kind::Put, value) => Some(ValueRef(Held::Bytes(value))),
                _ => None,
            });
        }
        Ok(self.found.flatten().map(ValueRef))
    }
}

impl Snapshot {
    /// The value of a key.
    ///
    /// # Errors
    /// [`Error::UnknownTree`], or an error of the disk.
    pub fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<ValueRef>> {
        self.look_up(tree, key, false)
    }

    /// The value of a key that is expected to be there, as that of an entry of an index: in the leaf it is searched without the
    /// filter, unless that is in memory.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn get_expected(&self, tree: TreeId, key: &[u8]) -> Result<Option<ValueRef>> {
        self.look_up(tree, key, true)
    }

    /// Whether a key is there without the messages in memtables.
    pub(crate) fn tree_has(&self, tree: TreeId, key: &[u8]) -> Result<bool> {
        let found = self.look_up_in(std::iter::empty(), tree, key, false)?;
        Ok(found.is_some())
    }

    fn look_up(&self, tree: TreeId, key: &[u8], is_expected: bool) -> Result<Option<ValueRef>> {
        self.look_up_in(self.memtables(), tree, key, is_expected)
    }

    /// The value of a key in these memtables and in the tree.
    fn look_up_in<'a>(
        &'a self,
        memtables: impl Iterator<Item = (&'a Arc<Memtable>, u64)>,
        tree: TreeId,
        key: &[u8],
        is_expected: bool,
    ) -> Result<Option<ValueRef>> {
        let root = &self.tree(tree)?.root;
        let mut lookup = Lookup {
            snapshot: self,
            tree,
            key,
            fold: None,
            found: None,
        };
        let note = |error: &Error| self.version.damage.record(Some(tree), error);
        let mut done = false;
        for (memtable, sequence) in memtables {
            for_versions(memtable, tree, key, sequence, |kind, value, pin| {
                done = lookup.take(kind, value, || match value.len() {
                    ..=COPIED_BYTES_MAX => Held::Bytes(value.to_vec()),
                    _ => Held::Memtable(pin()),
                });
                !done
            });
            if done {
                return lookup.finish().inspect_err(note);
            }
        }
        let searched = search(root, key, is_expected, &mut lookup, note);
        searched.and_then(|()| lookup.finish()).inspect_err(note)
    }

    /// Reads the leaf pages of these keys into the cache, several at a time, unless they are there or large. No filter of a leaf is read,
    /// so [`Snapshot::get_expected`] finds the keys without the device.
    pub fn read_pages(&self, keys: &[(TreeId, &[u8])]) {
        let absent = keys.iter().filter(|(tree, key)| {
            let tree = self.tree(*tree);
            tree.is_ok_and(|tree| is_read_ahead(&tree.root, key))
        });
        let absent: Vec<(TreeId, Vec<u8>)> =
            absent.map(|(tree, key)| (*tree, key.to_vec())).collect();
        if absent.len() < 2 {
            return;
        }
        let snapshot = self.clone();
        side_by_side(absent.len(), move |number| {
            let (tree, key) = &absent[number];
            // An error comes back when the key is looked up.
            drop(snapshot.get_expected(*tree, key));
        });
    }

    /// An upper bound of the tree's keys in this snapshot: no key is greater. `None` if it is not cheap to find.
    ///
    /// # Errors
    /// [`Error::UnknownTree`].
    pub fn key_upper_bound(&self, tree: TreeId) -> Result<Option<Vec<u8>>> {
        let root = &self.tree(tree)?.root;
        let mut last = match (root, root.max_key()) {
            (Subtree::Empty, _) => Vec::new(),
            (_, Some(key)) => key,
            (_, None) => return Ok(None),
        };
        for (memtable, _) in self.memtables() {
            memtable.raise_to_last_key(tree, &mut last);
        }
        Ok(Some(last))
    }

    /// Whether a key is there.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn contains(&self, tree: TreeId, key: &[u8]) -> Result<bool> {
        Ok(self.get(tree, key)?.is_some())
    }

    /// Whether the tree exists in this snapshot.
    pub fn has_tree(&self, tree: TreeId) -> bool {
        self.version.trees.contains_at(tree, self.sequence)
    }

    /// All memtables, newest first, each with the last sequence number that is seen in it.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = (&Arc<Memtable>, u64)> {
        let own = self.own.iter().flat_map(|own| {
            let memtables = own.memtables.iter();
            memtables.map(|memtable| (memtable, own.sequence))
        });
        let memtables = self.version.memtables();
        own.chain(memtables.map(|memtable| (memtable, self.sequence)))
    }

    pub(crate) fn tree(&self, tree: TreeId) -> Result<&Tree> {
        let trees = &self.version.trees;
        let found = trees.get_at(tree, self.sequence);
        found.ok_or_else(|| trees.missing(tree))
    }

    pub(crate) fn resolver(&self, tree: TreeId) -> Resolver {
        Resolver {
            tree,
            operator: self.version.operator.clone(),
            settles: false,
        }
    }
}

/// Walks one path from a root and passes the messages of the key to `lookup`. What is damaged but not needed is
/// reported to `note`.
fn search(
    root: &Subtree,
    key: &[u8],
    is_expected: bool,
    lookup: &mut Lookup<'_>,
    note: impl Fn(&Error),
) -> Result<()> {
    let hash = filter::hash(key);
    let visit = |run: &Run, is_leaf: bool, lookup: &mut Lookup<'_>| -> Result<bool> {
        let Some((page, index)) = run.get(key, hash, is_leaf && is_expected, &note)? else {
            return Ok(false);
        };
        let (kind, value) = page.message(index);
        Ok(lookup.take(kind, value, || Held::Page(page.clone(), index)))
    };
    descend(root, key, lookup, &visit)
}

/// The part of [`search`] from a node on.
fn descend(
    at: &Subtree,
    key: &[u8],
    lookup: &mut Lookup<'_>,
    visit: &impl Fn(&Run, bool, &mut Lookup<'_>) -> Result<bool>,
) -> Result<()> {
    let node = match at {
        Subtree::Empty => return Ok(()),
        Subtree::Leaf(run) => return visit(run, true, lookup).map(|_| ()),
        Subtree::Internal(node) => node.load()?,
    };
    let child = &node.children[node.child_of(key)];
    for run in node.pending(child) {
        if let Some(part) = run.part_of(key)
            && visit(part, false, lookup)?
        {
            return Ok(());
        }
        if run.ranges.covering(key).is_some() {
            lookup.take(Kind::Delete, &[], || Held::Bytes(Vec::new()));
            return Ok(());
        }
    }
    descend(&child.subtree, key, lookup, visit)
}

/// Whether the page of the leaf that a key belongs to is read ahead: it is on the device, and small.
fn is_read_ahead(at: &Subtree, key: &[u8]) -> bool {
    match at {
        Subtree::Empty => false,
        Subtree::Leaf(run) => run.has_small_pages() && !run.is_in_memory(key),
        Subtree::Internal(node) => node.load().is_ok_and(|node| {
            let child = &node.children[node.child_of(key)];
            is_read_ahead(&child.subtree, key)
        }),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::data_file::reads_of_thread;
    use crate::{Durability, MemoryUse, Options, Store, TreeId, TreeOptions, WriteSet};

    #[test]
    fn pages_of_announced_keys_are_read_side_by_side_before_the_look_ups() {
        let directory = tempfile::tempdir().unwrap();
        let key = |number: u32| number.to_be_bytes();
        let open = || Store::open(Options::new(directory.path())).unwrap();
        let store = open();
        let tree = store.allocate_tree();
        let mut set = WriteSet::new();
        set.create_tree(tree, &TreeOptions::default());
        for number in 0..20_000 {
            set.put(tree, &key(number), &number.to_le_bytes().repeat(20));
        }
        store.commit(set, Durability::Logged).unwrap();
        store.compact().unwrap();
        store.close().unwrap();

        let store = open();
        let snapshot = store.snapshot();
        let keys: Vec<[u8; 4]> = (0..40).map(|at| key(at * 500)).collect();
        let reads = || (store.stats().reads, reads_of_thread());
        let announce = || {
            let keys = keys.iter().map(|key| (tree, key.as_slice()));
            snapshot.read_pages(&keys.collect::<Vec<_>>());
        };
        let held = store.memory().bytes() as usize;
        let memtables = store.memory().reserve(MemoryUse::Loads, held);
        announce();
        let none = store.stats().reads;
        drop(memtables);
        announce();
        let (all, _) = reads();
        assert!(all >= none + 40, "{none} while memory is short, then {all}");
        // An absent tree and an absent key are not in the way.
        snapshot.read_pages(&[(TreeId(9999), b"a"), (tree, b"absent"), (tree, b"")]);
        let before = reads();
        announce();
        for (key, number) in keys.iter().zip((0..).step_by(500)) {
            let value = snapshot.get_expected(tree, key).unwrap().unwrap();
            assert_eq!(value[..4], u32::to_le_bytes(number));
        }
        assert_eq!(reads(), before);
    }

    #[test]
    fn an_expected_key_is_read_without_the_filter_of_its_leaf() {
        let directory = tempfile::tempdir().unwrap();
        let key = |number: u32| number.to_be_bytes();
        let open = || Store::open(Options::new(directory.path())).unwrap();
        let store = open();
        let tree = store.allocate_tree();
        let mut set = WriteSet::new();
        let options = TreeOptions {
            node_bytes: 64 << 10,
            ..TreeOptions::default()
        };
        set.create_tree(tree, &options);
        for number in 0..5000 {
            set.put(tree, &key(number), &[7; 100]);
        }
        store.commit(set, Durability::Logged).unwrap();
        store.compact().unwrap();
        drop(store);
        let store = open();
        let snapshot = store.snapshot();
        let reads = |number, is_expected| {
            let before = store.stats().reads;
            let found = if is_expected {
                snapshot.get_expected(tree, &key(number))
            } else {
                snapshot.get(tree, &key(number))
            };
            assert_eq!(&*found.unwrap().unwrap(), [7; 100]);
            store.stats().reads - before
        };
        // The nodes above the leaves.
        reads(0, false);
        let of_any = reads(2000, false);
        assert_eq!(reads(4000, true), of_any - 1);
        assert!(snapshot.get_expected(tree, &key(9000)).unwrap().is_none());
        assert!(snapshot.get_expected(tree, b"x").unwrap().is_none());
    }
}
