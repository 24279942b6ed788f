//! Changes that are not committed: what a write set does to each key.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use frond_kv::operation::Op;
use frond_kv::{Error, Kind, MergeOperator, Operations, Result, TreeId};

/// A change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    Put(Arc<[u8]>),
    Delete,
    /// Deltas, the oldest first.
    Merge(Vec<Arc<[u8]>>),
}

impl Change {
    fn bytes(&self) -> usize {
        match self {
            Change::Put(value) => value.len(),
            Change::Delete => 0,
            Change::Merge(deltas) => deltas.iter().map(|delta| delta.len()).sum(),
        }
    }
}

/// A key, within its tree.
pub(crate) type TreeKey = (TreeId, Vec<u8>);

/// Bytes that an entry takes besides its key and its value.
const ENTRY_BYTES: usize = 96;

/// Changes of keys and trees.
#[derive(Debug, Clone, Default)]
pub(crate) struct Overlay {
    changes: BTreeMap<TreeKey, Change>,
    /// Trees that are created, or else dropped.
    trees: BTreeMap<TreeId, bool>,
    /// Keys that must not change.
    guards: BTreeSet<TreeKey>,
    bytes: usize,
}

impl Overlay {
    /// The change of a key that is staged, if there is one.
    pub(crate) fn get(&self, tree: TreeId, key: &[u8]) -> Option<&Change> {
        // A lookup by a borrowed pair would need a type of its own for the key.
        self.changes.get(&(tree, key.to_vec()))
    }

    /// The changes between two keys of a tree.
    pub(crate) fn range(
        &self,
        tree: TreeId,
        lower: &[u8],
        upper: Option<&[u8]>,
    ) -> impl DoubleEndedIterator<Item = (&[u8], &Change)> {
        let from = Bound::Included((tree, lower.to_vec()));
        let to = match upper {
            Some(upper) => Bound::Excluded((tree, upper.to_vec())),
            None => match tree.0.checked_add(1) {
                Some(next) => Bound::Excluded((TreeId(next), Vec::new())),
                None => Bound::Unbounded,
            },
        };
        let is_empty = upper.is_some_and(|upper| upper <= lower);
        let changes = (!is_empty).then(|| self.changes.range((from, to)));
        let changes = changes.into_iter().flatten();
        changes.map(|((_, key), change)| (key.as_slice(), change))
    }

    pub(crate) fn changes(&self) -> &BTreeMap<TreeKey, Change> {
        &self.changes
    }

    pub(crate) fn trees(&self) -> &BTreeMap<TreeId, bool> {
        &self.trees
    }

    pub(crate) fn guards(&self) -> &BTreeSet<TreeKey> {
        &self.guards
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.trees.is_empty() && self.guards.is_empty()
    }

    /// Memory that it takes, about.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds the operations of a write set. `keys_in` lists the stored keys of a range, with the changes so far.
    pub(crate) fn add(
        &mut self,
        set: &Operations,
        operator: &dyn MergeOperator,
        mut keys_in: impl FnMut(&Overlay, TreeId, &[u8], Option<&[u8]>) -> Result<Vec<Vec<u8>>>,
    ) -> Result<()> {
        for op in set.iter() {
            match op {
                Op::Entry {
                    tree,
                    kind,
                    key,
                    value,
                } => match kind {
                    Kind::Put => self.set(tree, key, Change::Put(value.into())),
                    Kind::Delete => self.set(tree, key, Change::Delete),
                    Kind::Merge => self.merge(tree, key, value, operator)?,
                },
                Op::DeleteRange { tree, lower, upper } => {
                    for key in keys_in(self, tree, lower, upper)? {
                        self.set(tree, &key, Change::Delete);
                    }
                }
                Op::CreateTree(tree, ..) => {
                    self.trees.insert(tree, true);
                }
                Op::DropTree(tree) => {
                    self.trees.insert(tree, false);
                }
            }
        }
        for (tree, key) in set.guarded_keys() {
            let key = (tree, key.to_vec());
            if !self.guards.contains(&key) {
                self.bytes += key.1.len() + ENTRY_BYTES;
                self.guards.insert(key);
            }
        }
        Ok(())
    }

    fn set(&mut self, tree: TreeId, key: &[u8], change: Change) {
        self.bytes += key.len() + change.bytes() + ENTRY_BYTES;
        if let Some(before) = self.changes.insert((tree, key.to_vec()), change) {
            self.bytes = self
                .bytes
                .saturating_sub(key.len() + before.bytes() + ENTRY_BYTES);
        }
    }

    fn merge(
        &mut self,
        tree: TreeId,
        key: &[u8],
        delta: &[u8],
        operator: &dyn MergeOperator,
    ) -> Result<()> {
        let merged = match self.changes.get_mut(&(tree, key.to_vec())) {
            None => Change::Merge(vec![delta.into()]),
            Some(Change::Merge(deltas)) => {
                deltas.push(delta.into());
                self.bytes += delta.len();
                return Ok(());
            }
            Some(Change::Put(base)) => {
                changed(operator, tree, key, Some(&base[..]), &[delta.into()])?
            }
            Some(Change::Delete) => changed(operator, tree, key, None, &[delta.into()])?,
        };
        self.set(tree, key, merged);
        Ok(())
    }
}

/// A value after some deltas, as a change.
fn changed(
    operator: &dyn MergeOperator,
    tree: TreeId,
    key: &[u8],
    base: Option<&[u8]>,
    deltas: &[Arc<[u8]>],
) -> Result<Change> {
    Ok(match apply(operator, tree, key, base, deltas)? {
        Some(value) => Change::Put(value.into()),
        None => Change::Delete,
    })
}

/// A value after some deltas.
pub(crate) fn apply(
    operator: &dyn MergeOperator,
    tree: TreeId,
    key: &[u8],
    base: Option<&[u8]>,
    deltas: &[Arc<[u8]>],
) -> Result<Option<Vec<u8>>> {
    let deltas: Vec<&[u8]> = deltas.iter().map(|delta| &**delta).collect();
    let applied = operator.apply_all(tree, key, base, &deltas);
    applied.map_err(|malformed| Error::CorruptMessage {
        tree,
        key: key.to_vec(),
        what: malformed.0,
    })
}

/// The value of a key after a change.
pub(crate) fn value_after(
    operator: &dyn MergeOperator,
    tree: TreeId,
    key: &[u8],
    base: Option<Vec<u8>>,
    change: &Change,
) -> Result<Option<Vec<u8>>> {
    match change {
        Change::Put(value) => Ok(Some(value.to_vec())),
        Change::Delete => Ok(None),
        Change::Merge(deltas) => apply(operator, tree, key, base.as_deref(), deltas),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use frond_kv::NoMerge;

    const TREE: TreeId = TreeId(3);

    fn keys(overlay: &Overlay, lower: &[u8], upper: Option<&[u8]>) -> Vec<Vec<u8>> {
        let range = overlay.range(TREE, lower, upper);
        range.map(|(key, _)| key.to_vec()).collect()
    }

    #[test]
    fn later_operations_win_and_ranges_stay_within_the_tree() {
        let mut set = Operations::default();
        set.put(TREE, b"a", b"1");
        set.put(TREE, b"b", b"2");
        set.put(TreeId(4), b"", b"of another tree");
        set.delete(TREE, b"a");
        set.merge(TREE, b"b", b"3");
        set.merge(TREE, b"c", b"4");
        set.guard(TREE, b"d");
        let mut overlay = Overlay::default();
        overlay
            .add(&set, &NoMerge, |_, _, _, _| Ok(Vec::new()))
            .unwrap();
        assert_eq!(overlay.get(TREE, b"a"), Some(&Change::Delete));
        assert_eq!(overlay.get(TREE, b"b"), Some(&Change::Put(b"3"[..].into())));
        let merge = Change::Merge(vec![b"4"[..].into()]);
        assert_eq!(overlay.get(TREE, b"c"), Some(&merge));
        assert_eq!(keys(&overlay, b"", None).len(), 3);
        assert_eq!(keys(&overlay, b"b", Some(b"c")), [b"b".to_vec()]);
        assert!(keys(&overlay, b"c", Some(b"b")).is_empty());
        assert_eq!(overlay.guards().len(), 1);
        let mut set = Operations::default();
        set.delete_range(TREE, b"b", None);
        overlay
            .add(&set, &NoMerge, |so_far, _, lower, upper| {
                Ok(keys(so_far, lower, upper))
            })
            .unwrap();
        assert_eq!(overlay.get(TREE, b"c"), Some(&Change::Delete));
    }
}
