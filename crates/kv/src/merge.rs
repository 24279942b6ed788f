//! Update messages: deltas that a merge operator resolves.

use crate::TreeId;

/// A delta, or the value that it is applied to, cannot be read. The text says what is wrong with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Malformed {}

/// Defines the meaning of deltas, as RocksDB's merge operator does. All functions must be pure: they may run any number
/// of times, at any time between the commit and the last read, and `apply(apply(b, x), y)` must equal `apply(b, combine(x, y))`.
///
/// The functions for several deltas have defaults. An operator that can parse its deltas once and fold all of them
/// should override these: the engine gathers the deltas of a key and calls them.
///
/// All functions fail for bytes that they cannot read, and never guess: readers of the key then get
/// [`crate::Error::CorruptMessage`], until a newer put or delete replaces it. Deltas can be combined if each of them passes
/// [`MergeOperator::check`], and applied if the base is readable too. An operator that can fail must refuse the empty
/// delta: the engine stores it where a base cannot be read.
pub trait MergeOperator: Send + Sync {
    /// The value of a key after a delta; `base` is `None` when the key is absent, and so is the
    /// result when the key is to be absent afterwards.
    ///
    /// # Errors
    /// If the delta or the base cannot be read.
    fn apply(
        &self,
        tree: TreeId,
        key: &[u8],
        base: Option<&[u8]>,
        delta: &[u8],
    ) -> Result<Option<Vec<u8>>, Malformed>;

    /// One delta with the effect of `older` followed by `newer`.
    ///
    /// # Errors
    /// If one of them cannot be read.
    fn combine(
        &self,
        tree: TreeId,
        key: &[u8],
        older: &[u8],
        newer: &[u8],
    ) -> Result<Vec<u8>, Malformed>;

    /// Whether a delta can be read. The engine calls this after another function has failed, to find out which of several
    /// deltas is malformed.
    ///
    /// # Errors
    /// If it cannot be read.
    fn check(&self, tree: TreeId, key: &[u8], delta: &[u8]) -> Result<(), Malformed>;

    /// The value of a key after one delta or more, the oldest first: the same as [`MergeOperator::apply`] with one after
    /// the other. Combines them first, unless it is overridden.
    ///
    /// # Errors
    /// If one of the deltas or the base cannot be read.
    fn apply_all(
        &self,
        tree: TreeId,
        key: &[u8],
        base: Option<&[u8]>,
        deltas: &[&[u8]],
    ) -> Result<Option<Vec<u8>>, Malformed> {
        match deltas {
            [only] => self.apply(tree, key, base, only),
            deltas => self.apply(tree, key, base, &self.combine_all(tree, key, deltas)?),
        }
    }

    /// As [`MergeOperator::apply_all`], for a result that is stored in place of the base and the deltas: they are not applied
    /// again, unless writing it fails. An operator that counts deltas counts them here.
    ///
    /// # Errors
    /// As [`MergeOperator::apply_all`].
    fn settle(
        &self,
        tree: TreeId,
        key: &[u8],
        base: Option<&[u8]>,
        deltas: &[&[u8]],
    ) -> Result<Option<Vec<u8>>, Malformed> {
        self.apply_all(tree, key, base, deltas)
    }

    /// One delta with the effect of all of these, one or more, the oldest first: the same as
    /// [`MergeOperator::combine`] of one after the other. Combines them in pairs, unless it is overridden.
    ///
    /// # Errors
    /// If one of several cannot be read.
    fn combine_all(
        &self,
        tree: TreeId,
        key: &[u8],
        deltas: &[&[u8]],
    ) -> Result<Vec<u8>, Malformed> {
        match deltas {
            [] => Ok(Vec::new()),
            [only] => Ok(only.to_vec()),
            [older, newer] => self.combine(tree, key, older, newer),
            // In halves, so that a growing delta is not copied once for each other delta.
            deltas => {
                let (older, newer) = deltas.split_at(deltas.len() / 2);
                let older = self.combine_all(tree, key, older)?;
                let newer = self.combine_all(tree, key, newer)?;
                self.combine(tree, key, &older, &newer)
            }
        }
    }
}

/// The operator of a store without update messages: the newest delta is the value.
pub struct NoMerge;

impl MergeOperator for NoMerge {
    fn apply(
        &self,
        _: TreeId,
        _: &[u8],
        _: Option<&[u8]>,
        delta: &[u8],
    ) -> Result<Option<Vec<u8>>, Malformed> {
        Ok(Some(delta.to_vec()))
    }

    fn combine(&self, _: TreeId, _: &[u8], _: &[u8], newer: &[u8]) -> Result<Vec<u8>, Malformed> {
        Ok(newer.to_vec())
    }

    fn check(&self, _: TreeId, _: &[u8], _: &[u8]) -> Result<(), Malformed> {
        Ok(())
    }
}
