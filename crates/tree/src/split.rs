//! Where a range of keys can be divided, so that several threads can scan it.

use crate::node::Subtree;
use crate::snapshot::Snapshot;
use crate::{Result, TreeId};

impl Snapshot {
    /// Keys that divide the range from `lower` on and below `upper` (`None`: without an end): the bounds between the
    /// next leaves, ascending, at most `most` of them. Keys that are only in memtables do not matter.
    /// Cursors between two of them read about as much as a leaf holds, and share no leaf.
    ///
    /// A node that cannot be read is not divided: the cursor that meets it reports the error.
    ///
    /// # Errors
    /// [`Error::UnknownTree`](crate::Error::UnknownTree).
    pub fn leaf_bounds(
        &self,
        tree: TreeId,
        lower: &[u8],
        upper: Option<&[u8]>,
        most: usize,
    ) -> Result<Vec<Vec<u8>>> {
        let mut bounds = Bounds {
            lower,
            upper,
            most,
            found: Vec::new(),
        };
        bounds.visit(&self.tree(tree)?.root);
        Ok(bounds.found)
    }
}

struct Bounds<'a> {
    lower: &'a [u8],
    upper: Option<&'a [u8]>,
    most: usize,
    found: Vec<Vec<u8>>,
}

impl Bounds<'_> {
    /// Adds the bounds inside of a part of the tree.
    fn visit(&mut self, at: &Subtree) {
        let Subtree::Internal(node) = at else {
            return;
        };
        let Ok(node) = node.load() else {
            return;
        };
        for index in node.child_of(self.lower)..node.children.len() {
            let child = &node.children[index];
            let is_beyond = self.upper.is_some_and(|upper| &*child.pivot >= upper);
            if is_beyond || self.found.len() >= self.most {
                return;
            }
            let is_above = self.found.last().is_none_or(|last| **last < *child.pivot);
            if *child.pivot > *self.lower && is_above {
                self.found.push(child.pivot.to_vec());
            }
            self.visit(&child.subtree);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Bound;

    use crate::{Direction, Options, Snapshot, Store, TreeId, TreeOptions, WriteSet};

    const TREE: TreeId = TreeId(1);

    #[test]
    fn the_parts_between_bounds_are_the_whole_range() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(Options::new(folder.path())).unwrap();
        let mut set = WriteSet::new();
        let options = TreeOptions {
            node_bytes: 64 << 10,
            ..TreeOptions::default()
        };
        set.create_tree(TREE, &options);
        store.commit(set, crate::Durability::Logged).unwrap();
        assert!(
            bounds(&store.snapshot(), b"", None, 9).is_empty(),
            "an empty tree"
        );
        let count = 40_000u32;
        for from in (0..count).step_by(1000) {
            let mut set = WriteSet::new();
            for key in from..from + 1000 {
                // Every third key comes later, out of order.
                if key % 3 != 0 {
                    set.put(TREE, &key.to_be_bytes(), &[7; 50]);
                }
            }
            store.commit(set, crate::Durability::Logged).unwrap();
        }
        store.compact().unwrap();
        let mut set = WriteSet::new();
        for key in (0..count).step_by(3) {
            set.put(TREE, &key.to_be_bytes(), &[8; 50]);
        }
        set.delete_range(TREE, &500u32.to_be_bytes(), Some(&9000u32.to_be_bytes()));
        store.commit(set, crate::Durability::Logged).unwrap();
        // The background may write the memtable meanwhile, and divide leaves; a snapshot keeps its own.
        let snapshot = store.snapshot();
        let all = bounds(&snapshot, b"", None, usize::MAX);
        assert!(all.len() > 10, "{} bounds", all.len());
        assert!(all.is_sorted_by(|a, b| a < b));
        for (lower, upper, most) in [
            (0, None, usize::MAX),
            (0, None, 3),
            (12_345, None, 5),
            (100, Some(30_000), usize::MAX),
            (39_999, None, 7),
            (5, Some(6), 7),
        ] {
            let lower = u32::to_be_bytes(lower);
            let upper = upper.map(u32::to_be_bytes);
            let upper = upper.as_ref().map(|upper| &upper[..]);
            let found = bounds(&snapshot, &lower, upper, most);
            assert!(found.len() <= most);
            let inside = |key: &Vec<u8>| {
                let key = key.as_slice();
                key > &lower[..] && upper.is_none_or(|upper| key < upper)
            };
            let expected = all.iter().filter(|key| inside(key)).take(most);
            assert!(found.iter().eq(expected));
            let mut parts = Vec::new();
            let mut from = lower.to_vec();
            for to in found.into_iter().map(Some).chain([None]) {
                let end = to.as_deref().or(upper);
                parts.extend(keys(&snapshot, &from, end));
                from = to.unwrap_or_default();
            }
            assert_eq!(parts, keys(&snapshot, &lower, upper));
        }
    }

    fn bounds(
        snapshot: &Snapshot,
        lower: &[u8],
        upper: Option<&[u8]>,
        most: usize,
    ) -> Vec<Vec<u8>> {
        snapshot.leaf_bounds(TREE, lower, upper, most).unwrap()
    }

    fn keys(snapshot: &Snapshot, lower: &[u8], upper: Option<&[u8]>) -> Vec<Vec<u8>> {
        let upper = upper.map_or(Bound::Unbounded, Bound::Excluded);
        let cursor = snapshot.cursor(TREE, Bound::Included(lower), upper, Direction::Forward);
        let mut cursor = cursor.unwrap();
        let mut found = Vec::new();
        while let Some((key, _)) = cursor.next().unwrap() {
            found.push(key.to_vec());
        }
        found
    }
}
