//! Ranges of keys that are chosen at random, so that a sample of a tree reads a page for each key and not the whole tree.
//!
//! The bounds of all pages of leaves, and of all index leaves of memtables, divide the keys of a tree into small ranges. One of them is
//! chosen by its lower bound: a leaf or a memtable by its number of entries, and then a page in it. What gathers in buffers spreads
//! over the pages of leaves, and needs no bounds.

use crate::memtable::Memtable;
use crate::node::Subtree;
use crate::run::Run;
use crate::snapshot::Snapshot;
use crate::{Result, TreeId};

/// A range of keys that was chosen at random.
#[derive(Debug, Clone, PartialEq)]
pub struct RandomRange {
    /// The lower bound, inclusive.
    pub lower: Vec<u8>,
    /// The upper bound, exclusive; `None` up to the last key.
    pub upper: Option<Vec<u8>>,
    /// The number of keys for which the range is chosen as often as it should be. A caller that takes this share of the keys that it finds,
    /// `1 / expected` of them on average, gets each key of the tree with the same probability.
    pub expected: f64,
}

impl Snapshot {
    /// A small range of a tree's keys, chosen with the random numbers of `random`. `None` if the tree has no bounds to choose from.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn random_range(
        &self,
        tree: TreeId,
        mut random: impl FnMut() -> u64,
    ) -> Result<Option<RandomRange>> {
        let root = &self.tree(tree)?.root;
        let stored = root.entries();
        let memtables: Vec<(&Memtable, u64)> = self
            .memtables()
            .filter_map(|(memtable, _)| Some((&**memtable, memtable.tree_stats(tree)?.entries)))
            .collect();
        let total = stored + memtables.iter().map(|(_, entries)| entries).sum::<u64>();
        if total == 0 || (stored == 0 && !matches!(root, Subtree::Empty)) {
            return Ok(None);
        }
        let mut at = random() % total;
        let mut range = if at < stored {
            let range = range_of_leaf(root, at);
            range.inspect_err(|error| self.version.damage.record(Some(tree), error))?
        } else {
            at -= stored;
            let mut chosen = None;
            for (memtable, entries) in &memtables {
                if at < *entries {
                    chosen = memtable.random_bound(tree, random());
                    break;
                }
                at -= entries;
            }
            let Some((lower, expected)) = chosen else {
                return Ok(None);
            };
            let upper = next_page(root, &lower)?;
            RandomRange {
                lower,
                upper,
                expected,
            }
        };
        for (memtable, _) in &memtables {
            memtable.lower_to_next_bound(tree, &range.lower, &mut range.upper);
        }
        Ok(Some(range))
    }
}

/// The bounds of the page with the entry at a position among all entries in leaves.
fn range_of_leaf(root: &Subtree, mut at: u64) -> Result<RandomRange> {
    let mut range = RandomRange {
        lower: Vec::new(),
        upper: None,
        expected: 1.0,
    };
    let mut next = root.clone();
    loop {
        match &next {
            Subtree::Empty => return Ok(range),
            Subtree::Leaf(leaf) => {
                let pages = leaf.index()?.pages().max(1);
                let entries = leaf.info.entries.max(1);
                let page = (u128::from(at) * pages as u128 / u128::from(entries)) as usize;
                bounds_of_page(leaf, page.min(pages - 1), &mut range)?;
                range.expected = entries as f64 / pages as f64;
                return Ok(range);
            }
            Subtree::Internal(node) => {
                let node = node.load()?;
                let Some(chosen) = node.children.iter().position(|child| {
                    let entries = child.subtree.entries();
                    let is_here = at < entries;
                    at -= if is_here { 0 } else { entries };
                    is_here
                }) else {
                    return Ok(range);
                };
                // Children without entries have no bounds: they belong to the range before them, or to the first one.
                let has_entries = |child: &&crate::node::Child| child.subtree.entries() > 0;
                if node.children[..chosen].iter().any(|one| has_entries(&one)) {
                    range.lower = node.children[chosen].pivot.to_vec();
                }
                if let Some(behind) = node.children[chosen + 1..].iter().find(has_entries) {
                    range.upper = Some(behind.pivot.to_vec());
                }
                next = node.children[chosen].subtree.clone();
            }
        }
    }
}

/// Narrows the range of a leaf to one of its pages.
fn bounds_of_page(leaf: &Run, page: usize, range: &mut RandomRange) -> Result<()> {
    let index = leaf.index()?;
    if page > 0 {
        range.lower = index.separator(page).to_vec();
    }
    if page + 1 < index.pages() {
        range.upper = Some(index.separator(page + 1).to_vec());
    }
    Ok(())
}

/// The lower bound of the first page of leaves that is above `key`.
fn next_page(root: &Subtree, key: &[u8]) -> Result<Option<Vec<u8>>> {
    let mut upper = None;
    let mut next = root.clone();
    loop {
        match &next {
            Subtree::Empty => return Ok(upper),
            Subtree::Leaf(leaf) => {
                let index = leaf.index()?;
                let behind = index.page_of(key) + 1;
                return Ok(if behind < index.pages() {
                    Some(index.separator(behind).to_vec())
                } else {
                    upper
                });
            }
            Subtree::Internal(node) => {
                let node = node.load()?;
                let child = node.child_of(key);
                let mut behind = node.children[child + 1..].iter();
                if let Some(behind) = behind.find(|child| child.subtree.entries() > 0) {
                    upper = Some(behind.pivot.to_vec());
                }
                next = node.children[child].subtree.clone();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ops::Bound;

    use crate::{Direction, Options, Snapshot, Store, TreeId, TreeOptions, WriteSet};

    const TREE: TreeId = TreeId(1);
    const KEYS: u32 = 40_000;

    /// Which part of a store's keys is where.
    #[derive(Debug)]
    struct Case {
        /// Keys below this one are in leaves, and those from it on in memtables.
        stored: u32,
        /// Every key whose remainder by this is 0 is in a memtable, too.
        updated: Option<u32>,
        /// Keys that are deleted by a range delete.
        deleted: std::ops::Range<u32>,
    }

    #[test]
    fn every_key_is_found_as_often_as_the_others() {
        let none = 0..0;
        for case in [
            Case {
                stored: KEYS,
                updated: None,
                deleted: none.clone(),
            },
            Case {
                stored: KEYS / 2,
                updated: None,
                deleted: none.clone(),
            },
            Case {
                stored: 0,
                updated: None,
                deleted: none.clone(),
            },
            Case {
                stored: KEYS,
                updated: Some(3),
                deleted: none,
            },
            Case {
                stored: KEYS - 100,
                updated: Some(50),
                deleted: 5000..15_000,
            },
        ] {
            let folder = tempfile::tempdir().unwrap();
            let store = store(folder.path(), &case);
            let snapshot = store.snapshot();
            let mut random = SplitMix(7);
            let mut found: BTreeMap<u32, f64> = BTreeMap::new();
            let probes = 8000;
            for _ in 0..probes {
                let range = snapshot
                    .random_range(TREE, || random.next())
                    .unwrap()
                    .unwrap();
                let upper = range.upper.as_deref();
                for key in keys(&snapshot, &range.lower, upper) {
                    *found.entry(key).or_default() += 1.0 / range.expected;
                }
            }
            let alive = (0..KEYS).filter(|key| !case.deleted.contains(key));
            let all: f64 = found.values().sum();
            // Each twentieth of the keys gets its share of what was taken.
            let alive: Vec<u32> = alive.collect();
            for part in alive.chunks(alive.len() / 20) {
                let taken: f64 = part.iter().filter_map(|key| found.get(key)).sum();
                let share = taken / all * alive.len() as f64 / part.len() as f64;
                assert!((0.75..1.33).contains(&share), "{share} in {case:?}");
            }
            assert!(found.len() > alive.len() / 2, "{} in {case:?}", found.len());
            assert!(all > probes as f64 * 0.4, "{all} in {case:?}");
        }
    }

    #[test]
    fn a_tree_without_keys_has_no_range() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(Options::new(folder.path())).unwrap();
        let mut set = WriteSet::new();
        set.create_tree(TREE, &TreeOptions::default());
        store.commit(set, crate::Durability::Logged).unwrap();
        let range = store.snapshot().random_range(TREE, || 1).unwrap();
        assert_eq!(range, None);
    }

    fn store(path: &std::path::Path, case: &Case) -> Store {
        let store = Store::open(Options::new(path)).unwrap();
        let mut set = WriteSet::new();
        let options = TreeOptions {
            node_bytes: 64 << 10,
            ..TreeOptions::default()
        };
        set.create_tree(TREE, &options);
        store.commit(set, crate::Durability::Logged).unwrap();
        put(&store, 0..case.stored);
        store.compact().unwrap();
        put(&store, case.stored..KEYS);
        if let Some(step) = case.updated {
            put(&store, (0..case.stored).step_by(step as usize));
        }
        if !case.deleted.is_empty() {
            let mut set = WriteSet::new();
            let (from, to) = (case.deleted.start, case.deleted.end);
            set.delete_range(TREE, &from.to_be_bytes(), Some(&to.to_be_bytes()));
            store.commit(set, crate::Durability::Logged).unwrap();
        }
        store
    }

    fn put(store: &Store, keys: impl Iterator<Item = u32>) {
        let keys: Vec<u32> = keys.collect();
        for part in keys.chunks(1000) {
            let mut set = WriteSet::new();
            for key in part {
                set.put(TREE, &key.to_be_bytes(), &[7; 50]);
            }
            store.commit(set, crate::Durability::Logged).unwrap();
        }
    }

    fn keys(snapshot: &Snapshot, lower: &[u8], upper: Option<&[u8]>) -> Vec<u32> {
        let upper = upper.map_or(Bound::Unbounded, Bound::Excluded);
        let cursor = snapshot.cursor(TREE, Bound::Included(lower), upper, Direction::Forward);
        let mut cursor = cursor.unwrap();
        let mut found = Vec::new();
        while let Some((key, _)) = cursor.next().unwrap() {
            found.push(u32::from_be_bytes(key.try_into().unwrap()));
        }
        found
    }

    struct SplitMix(u64);

    impl SplitMix {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            z ^ (z >> 31)
        }
    }
}
