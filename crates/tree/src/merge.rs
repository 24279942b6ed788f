//! Update messages: deltas that a merge operator resolves.

use std::sync::Arc;

use crate::{Kind, TreeId};

/// Defines the meaning of deltas, as RocksDB's merge operator does. All functions must be pure: they may run any number
/// of times, at any time between the commit and the last read, and `apply(apply(b, x), y)` must equal `apply(b, combine(x, y))`.
///
/// The functions for several deltas have defaults. An operator that can parse its deltas once and fold all of them
/// should override these: the engine gathers the deltas of a key and calls them.
pub trait MergeOperator: Send + Sync {
    /// The value of a key after a delta; `base` is `None` when the key is absent, and so is the
    /// result when the key is to be absent afterwards.
    fn apply(&self, tree: TreeId, key: &[u8], base: Option<&[u8]>, delta: &[u8])
    -> Option<Vec<u8>>;

    /// One delta with the effect of `older` followed by `newer`.
    fn combine(&self, tree: TreeId, key: &[u8], older: &[u8], newer: &[u8]) -> Vec<u8>;

    /// The value of a key after one delta or more, the oldest first: the same as [`MergeOperator::apply`] with one after
    /// the other. Combines them first, unless it is overridden.
    fn apply_all(
        &self,
        tree: TreeId,
        key: &[u8],
        base: Option<&[u8]>,
        deltas: &[&[u8]],
    ) -> Option<Vec<u8>> {
        match deltas {
            [only] => self.apply(tree, key, base, only),
            deltas => self.apply(tree, key, base, &self.combine_all(tree, key, deltas)),
        }
    }

    /// One delta with the effect of all of these, one or more, the oldest first: the same as
    /// [`MergeOperator::combine`] of one after the other. Combines them in pairs, unless it is overridden.
    fn combine_all(&self, tree: TreeId, key: &[u8], deltas: &[&[u8]]) -> Vec<u8> {
        match deltas {
            [] => Vec::new(),
            [only] => only.to_vec(),
            [older, newer] => self.combine(tree, key, older, newer),
            // In halves, so that a growing delta is not copied once for each other delta.
            deltas => {
                let (older, newer) = deltas.split_at(deltas.len() / 2);
                let older = self.combine_all(tree, key, older);
                let newer = self.combine_all(tree, key, newer);
                self.combine(tree, key, &older, &newer)
            }
        }
    }
}

/// The operator of a store without update messages: the newest delta is the value.
pub struct NoMerge;

impl MergeOperator for NoMerge {
    fn apply(&self, _: TreeId, _: &[u8], _: Option<&[u8]>, delta: &[u8]) -> Option<Vec<u8>> {
        Some(delta.to_vec())
    }

    fn combine(&self, _: TreeId, _: &[u8], _: &[u8], newer: &[u8]) -> Vec<u8> {
        newer.to_vec()
    }
}

/// The merge operator, bound to a tree.
#[derive(Clone)]
pub(crate) struct Resolver {
    pub(crate) tree: TreeId,
    pub(crate) operator: Arc<dyn MergeOperator>,
}

/// Gathered deltas are combined when they take more memory than this, in bytes.
const GATHER_BYTES: usize = 1 << 20;

/// The messages of one key, gathered from the newest to the oldest. The operator gets the deltas all at once: when
/// their base is found, or when there is nothing older.
#[derive(Default)]
pub(crate) struct Fold {
    /// The deltas, one after another, and where each ends.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// They are combined when they take more bytes than this.
    limit: usize,
    resolved: Option<(Kind, Vec<u8>)>,
}

impl Fold {
    /// Adds the next older message. True when nothing older matters.
    pub(crate) fn add(
        &mut self,
        resolver: &Resolver,
        key: &[u8],
        kind: Kind,
        value: &[u8],
    ) -> bool {
        let base = match kind {
            Kind::Merge => {
                self.push(value);
                let limit = self.limit.max(GATHER_BYTES);
                if self.bytes.len() + self.ends.len() * size_of::<usize>() > limit {
                    let combined = self.combine(resolver, key);
                    self.bytes.clear();
                    self.ends.clear();
                    self.push(&combined);
                    self.limit = 2 * combined.len();
                }
                return false;
            }
            kind if self.ends.is_empty() => {
                self.resolved = Some((kind, value.to_vec()));
                return true;
            }
            Kind::Put => Some(value),
            Kind::Delete => None,
        };
        self.resolved = Some(self.apply(resolver, key, base));
        true
    }

    fn push(&mut self, delta: &[u8]) {
        self.bytes.extend_from_slice(delta);
        self.ends.push(self.bytes.len());
    }

    /// The messages as one: a put or a delete if the base was among them.
    pub(crate) fn finish(self, resolver: &Resolver, key: &[u8]) -> (Kind, Vec<u8>) {
        match self.resolved {
            Some(resolved) => resolved,
            None if self.ends.len() == 1 => (Kind::Merge, self.bytes),
            None => (Kind::Merge, self.combine(resolver, key)),
        }
    }

    /// The messages as one, when there is nothing older.
    pub(crate) fn finish_at_bottom(self, resolver: &Resolver, key: &[u8]) -> (Kind, Vec<u8>) {
        match self.resolved {
            Some(resolved) => resolved,
            None => self.apply(resolver, key, None),
        }
    }

    fn combine(&self, resolver: &Resolver, key: &[u8]) -> Vec<u8> {
        let Resolver { tree, operator } = resolver;
        operator.combine_all(*tree, key, &self.deltas())
    }

    fn apply(&self, resolver: &Resolver, key: &[u8], base: Option<&[u8]>) -> (Kind, Vec<u8>) {
        let Resolver { tree, operator } = resolver;
        let value = match self.ends.as_slice() {
            [_] => operator.apply(*tree, key, base, &self.bytes),
            _ => operator.apply_all(*tree, key, base, &self.deltas()),
        };
        match value {
            Some(value) => (Kind::Put, value),
            None => (Kind::Delete, Vec::new()),
        }
    }

    /// The deltas, oldest first.
    fn deltas(&self) -> Vec<&[u8]> {
        let start = |index: usize| index.checked_sub(1).map_or(0, |before| self.ends[before]);
        let places = self.ends.iter().enumerate().rev();
        places
            .map(|(index, end)| &self.bytes[start(index)..*end])
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Joins texts.
    struct Join;

    impl MergeOperator for Join {
        fn apply(&self, _: TreeId, _: &[u8], base: Option<&[u8]>, delta: &[u8]) -> Option<Vec<u8>> {
            Some([base.unwrap_or_default(), delta].concat())
        }

        fn combine(&self, _: TreeId, _: &[u8], older: &[u8], newer: &[u8]) -> Vec<u8> {
            [older, newer].concat()
        }
    }

    #[test]
    fn deltas_meet_in_their_order() {
        let resolver = Resolver {
            tree: TreeId(1),
            operator: Arc::new(Join),
        };
        // The last ones are more than is gathered.
        for (count, len) in [(1, 3), (2, 3), (7, 3), (100, 3), (9, GATHER_BYTES / 4)] {
            let deltas: Vec<Vec<u8>> = (0..count).map(|i| vec![i as u8; len]).collect();
            let whole = deltas.concat();
            let gathered = || {
                let mut fold = Fold::default();
                for delta in deltas.iter().rev() {
                    assert!(!fold.add(&resolver, b"k", Kind::Merge, delta));
                    assert!(fold.bytes.len() <= fold.limit.max(GATHER_BYTES) + len);
                }
                fold
            };
            let merged = (Kind::Merge, whole.clone());
            assert!(gathered().finish(&resolver, b"k") == merged);
            let put = (Kind::Put, whole.clone());
            assert!(gathered().finish_at_bottom(&resolver, b"k") == put);
            for (kind, base) in [(Kind::Put, &b"base"[..]), (Kind::Delete, b"")] {
                let mut fold = gathered();
                assert!(fold.add(&resolver, b"k", kind, base));
                let value = [base, &whole].concat();
                assert!(fold.finish(&resolver, b"k") == (Kind::Put, value));
            }
        }
    }

    #[test]
    fn a_base_alone_is_what_it_is() {
        let resolver = Resolver {
            tree: TreeId(1),
            operator: Arc::new(Join),
        };
        for (kind, value) in [(Kind::Put, &b"v"[..]), (Kind::Delete, b"")] {
            let mut fold = Fold::default();
            assert!(fold.add(&resolver, b"k", kind, value));
            assert_eq!(fold.finish(&resolver, b"k"), (kind, value.to_vec()));
        }
    }
}
