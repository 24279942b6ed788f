//! Write sets as lists of operations, for another engine that commits them in its own way.

use crate::operation::{NewTree, Op, decode};
use crate::{Kind, Result, TreeId, WriteSet};

/// An operation of a write set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOperation<'a> {
    /// Sets the value of a key.
    Put(TreeId, &'a [u8], &'a [u8]),
    /// Removes a key.
    Delete(TreeId, &'a [u8]),
    /// Applies a delta to the value of a key.
    Merge(TreeId, &'a [u8], &'a [u8]),
    /// Removes the keys from the first one on and below the second one.
    DeleteRange(TreeId, &'a [u8], Option<&'a [u8]>),
    /// Creates a tree; the flag tells whether a bulk load is to come.
    CreateTree(TreeId, bool),
    /// Drops a tree.
    DropTree(TreeId),
}

impl WriteSet {
    /// The operations, in their order.
    pub fn operations(&self) -> impl Iterator<Item = WriteOperation<'_>> {
        decode(self.payload()).map(|op| match op {
            Op::Entry {
                tree,
                kind: Kind::Put,
                key,
                value,
            } => WriteOperation::Put(tree, key, value),
            Op::Entry {
                tree,
                kind: Kind::Delete,
                key,
                ..
            } => WriteOperation::Delete(tree, key),
            Op::Entry {
                tree,
                kind: Kind::Merge,
                key,
                value,
            } => WriteOperation::Merge(tree, key, value),
            Op::DeleteRange { tree, lower, upper } => {
                WriteOperation::DeleteRange(tree, lower, upper)
            }
            Op::CreateTree(tree, _, state) => {
                WriteOperation::CreateTree(tree, state == NewTree::ToBeLoaded)
            }
            Op::DropTree(tree) => WriteOperation::DropTree(tree),
        })
    }

    /// The keys that must not have changed since the snapshot.
    pub fn guarded_keys(&self) -> impl Iterator<Item = (TreeId, &[u8])> {
        let guards = self.guards().iter();
        guards.map(|guard| (guard.tree, self.guarded_key(guard)))
    }

    /// The first error of the calls that built the write set.
    ///
    /// # Errors
    /// [`crate::Error::TooLarge`], [`crate::Error::InvalidOption`].
    pub fn check(&mut self) -> Result<()> {
        self.take_failure()
    }

    /// How many stamps the commit takes.
    pub fn stamps_needed(&self) -> u32 {
        self.stamps()
    }

    /// Makes the keys of the stamped puts, which are ordinary ones from then on.
    pub fn stamp_keys(&mut self, first: u64) {
        self.add_stamps(first);
    }
}
