//! Keys that are chosen at random, so that a sample of a tree reads a page for each of them and not the whole tree.
//!
//! One choice is that of an entry: one of a leaf, with its whole page, or one of a memtable. Of a page it takes a share of the keys that the
//! leaf and the buffers above it have within the page's bounds: one on average. An entry of a memtable is taken if it is the newest one of its
//! key, and the tree has no such key. So each key is taken with the same probability, wherever its messages are, and whether there are
//! several. Some choices take nothing.

use std::ops::Bound;

use crate::cursor::{Cursor, Sources};
use crate::memtable::Memtable;
use crate::node::Subtree;
use crate::run::Run;
use crate::snapshot::Snapshot;
use crate::{Direction, Result, TreeId};

/// The bounds of a page of a leaf, and the average number of entries of the leaf's pages.
struct PageRange {
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
    entries: f64,
}

impl Snapshot {
    /// Adds the keys of one random choice to `chosen`: none, one, or several neighbours. Some of them may be deleted in this snapshot. `random`
    /// returns random numbers. False if the tree has nothing to choose from.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn choose_keys(
        &self,
        tree: TreeId,
        mut random: impl FnMut() -> u64,
        chosen: &mut Vec<Vec<u8>>,
    ) -> Result<bool> {
        let root = &self.tree(tree)?.root;
        let stored = root.entries();
        let slots = |memtable: &Memtable| memtable.slots(tree);
        let total = stored + self.memtables().map(|(one, _)| slots(one)).sum::<u64>();
        if total == 0 || (stored == 0 && !matches!(root, Subtree::Empty)) {
            return Ok(false);
        }
        let mut at = random() % total;
        let note = |error: &crate::Error| self.version.damage.record(Some(tree), error);
        if at < stored {
            let range = range_of_page(root, at).inspect_err(note)?;
            self.choose_in_page(tree, &range, random, chosen)?;
            return Ok(true);
        }
        at -= stored;
        for (memtable, _) in self.memtables() {
            let slots = slots(memtable);
            if at < slots {
                if let Some((key, sequence)) = memtable.entry_in(tree, at)
                    && self.is_only_in(memtable, tree, key, sequence)?
                {
                    chosen.push(key.to_vec());
                }
                break;
            }
            at -= slots;
        }
        Ok(true)
    }

    /// Chooses from the keys that the tree has within the bounds of a page, one on average.
    fn choose_in_page(
        &self,
        tree: TreeId,
        range: &PageRange,
        mut random: impl FnMut() -> u64,
        chosen: &mut Vec<Vec<u8>>,
    ) -> Result<()> {
        let lower = Bound::Included(range.lower.as_slice());
        let upper = match &range.upper {
            Some(upper) => Bound::Excluded(upper.as_slice()),
            None => Bound::Unbounded,
        };
        let forward = Direction::Forward;
        let mut cursor = Cursor::new(self.clone(), tree, lower, upper, forward, Sources::Tree)?;
        let mut keys = 0u64;
        while cursor.next()?.is_some() {
            keys += 1;
        }
        // A double has 53 bits.
        let fraction = (random() >> 11) as f64 / (1u64 << 53) as f64;
        let mut wanted = ((keys as f64 / range.entries + fraction) as u64).min(keys);
        if wanted == 0 {
            return Ok(());
        }
        // Each key is taken with the share that is wanted of those that are left (Knuth, The Art of Computer Programming, 3.4.2, algorithm S).
        cursor.seek(&range.lower)?;
        for left in (1..=keys).rev() {
            let Some((key, _)) = cursor.next()? else {
                break;
            };
            if random() % left < wanted {
                chosen.push(key.to_vec());
                wanted -= 1;
                if wanted == 0 {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Whether an entry of a memtable is the newest one of its key, and the tree does not have the key.
    fn is_only_in(
        &self,
        memtable: &Memtable,
        tree: TreeId,
        key: &[u8],
        sequence: u64,
    ) -> Result<bool> {
        for (one, up_to) in self.memtables() {
            if let Some(newest) = one.newest(tree, key, up_to) {
                let is_it = std::ptr::eq(&**one, memtable) && newest == sequence;
                return Ok(is_it && !self.tree_has(tree, key)?);
            }
        }
        Ok(false)
    }
}

/// The bounds of the page with the entry at a position among all entries in leaves.
fn range_of_page(root: &Subtree, mut at: u64) -> Result<PageRange> {
    let mut range = PageRange {
        lower: Vec::new(),
        upper: None,
        entries: 1.0,
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
                range.entries = entries as f64 / pages as f64;
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
fn bounds_of_page(leaf: &Run, page: usize, range: &mut PageRange) -> Result<()> {
    let index = leaf.index()?;
    if page > 0 {
        range.lower = index.separator(page).to_vec();
    }
    if page + 1 < index.pages() {
        range.upper = Some(index.separator(page + 1).to_vec());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::{Options, Store, TreeId, TreeOptions, WriteSet};

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
            let (mut found, choices) = (Vec::new(), 20_000);
            let mut together = 0;
            for _ in 0..choices {
                let before = found.len();
                assert!(
                    snapshot
                        .choose_keys(TREE, || random.next(), &mut found)
                        .unwrap()
                );
                together = together.max(found.len() - before);
            }
            let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
            for key in &found {
                if snapshot.contains(TREE, key).unwrap() {
                    let key = u32::from_be_bytes(key.as_slice().try_into().unwrap());
                    *counts.entry(key).or_default() += 1;
                }
            }
            let alive: Vec<u32> = (0..KEYS)
                .filter(|key| !case.deleted.contains(key))
                .collect();
            assert!(counts.keys().all(|key| alive.binary_search(key).is_ok()));
            let all: usize = counts.values().sum();
            assert!(all > choices / 4, "{all} in {case:?}");
            assert!(together <= 4, "{together} neighbours in {case:?}");
            // Each twentieth of the keys is found as often as the others.
            for part in alive.chunks(alive.len() / 20) {
                let taken: usize = part.iter().filter_map(|key| counts.get(key)).sum();
                let share = (taken * alive.len()) as f64 / (all * part.len()) as f64;
                assert!((0.8..1.25).contains(&share), "{share} in {case:?}");
            }
        }
    }

    #[test]
    fn a_tree_without_keys_has_nothing_to_choose_from() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(Options::new(folder.path())).unwrap();
        let mut set = WriteSet::new();
        set.create_tree(TREE, &TreeOptions::default());
        store.commit(set, crate::Durability::Logged).unwrap();
        let mut chosen = Vec::new();
        let chooses = store.snapshot().choose_keys(TREE, || 1, &mut chosen);
        assert!(!chooses.unwrap() && chosen.is_empty());
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
