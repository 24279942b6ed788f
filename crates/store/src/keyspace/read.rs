//! Snapshots and cursors.

use std::ops::Bound;

use super::{Damage, Direction, EngineError, TreeId, ValueRef};

type Result<T, E = EngineError> = std::result::Result<T, E>;

/// A consistent view of all trees.
#[derive(Clone)]
pub enum Snapshot {
    /// Of the embedded engine.
    Tree(frond_tree::Snapshot),
    /// Of a TiKV cluster.
    Tikv(frond_tikv::Snapshot),
}

impl Snapshot {
    /// The value of a key.
    ///
    /// # Errors
    /// [`EngineError::UnknownTree`] on the embedded engine; errors of the disk or the cluster.
    #[inline]
    pub fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<ValueRef>> {
        match self {
            Snapshot::Tree(snapshot) => snapshot.get(tree, key),
            Snapshot::Tikv(snapshot) => Ok(snapshot.get(tree, key)?.map(ValueRef::from)),
        }
    }

    /// Tells that some keys are about to be read. A cluster reads them with one request; the embedded engine does nothing.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    #[inline]
    pub fn prefetch(&self, keys: &[(TreeId, &[u8])]) -> Result<()> {
        match self {
            Snapshot::Tree(_) => Ok(()),
            Snapshot::Tikv(snapshot) => snapshot.prefetch(keys),
        }
    }

    /// Of a cluster: a time of the oplog's clock from which any server takes the same snapshot; see [`frond_tikv::Snapshot::stamp`].
    ///
    /// # Errors
    /// Why there is no snapshot.
    pub fn stamp(&self) -> Result<Option<u64>> {
        match self {
            Snapshot::Tree(_) => Ok(None),
            Snapshot::Tikv(snapshot) => snapshot.stamp(),
        }
    }

    /// Whether a read takes a request over the network, so that callers should gather keys for [`Snapshot::prefetch`].
    #[inline]
    pub fn is_remote(&self) -> bool {
        matches!(self, Snapshot::Tikv(_))
    }

    /// Whether a key is there.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    #[inline]
    pub fn contains(&self, tree: TreeId, key: &[u8]) -> Result<bool> {
        match self {
            Snapshot::Tree(snapshot) => snapshot.contains(tree, key),
            Snapshot::Tikv(snapshot) => snapshot.contains(tree, key),
        }
    }

    /// A cursor over the keys between two bounds.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    #[inline]
    pub fn cursor(
        &self,
        tree: TreeId,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        direction: Direction,
    ) -> Result<Cursor> {
        Ok(match self {
            Snapshot::Tree(snapshot) => {
                Cursor::Tree(snapshot.cursor(tree, lower, upper, direction)?)
            }
            Snapshot::Tikv(snapshot) => {
                Cursor::Tikv(Box::new(snapshot.cursor(tree, lower, upper, direction)?))
            }
        })
    }

    /// An upper bound of the tree's keys in this snapshot: no key is greater. `None` if it is not cheap to find. In a cluster it
    /// is the last key.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn key_upper_bound(&self, tree: TreeId) -> Result<Option<Vec<u8>>> {
        match self {
            Snapshot::Tree(snapshot) => snapshot.key_upper_bound(tree),
            Snapshot::Tikv(snapshot) => Ok(Some(snapshot.last_key(tree)?)),
        }
    }

    /// Reads every block of a tree, and lists those that cannot be read. A cluster has no blocks of its own.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn check_blocks(&self, tree: TreeId) -> Result<Vec<Damage>> {
        match self {
            Snapshot::Tree(snapshot) => snapshot.check_blocks(tree),
            Snapshot::Tikv(_) => Ok(Vec::new()),
        }
    }

    /// Keys that divide a range of a tree into parts of about the same size, at most `most`. A cluster tells none.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn leaf_bounds(
        &self,
        tree: TreeId,
        lower: &[u8],
        upper: Option<&[u8]>,
        most: usize,
    ) -> Result<Vec<Vec<u8>>> {
        match self {
            Snapshot::Tree(snapshot) => snapshot.leaf_bounds(tree, lower, upper, most),
            Snapshot::Tikv(_) => Ok(Vec::new()),
        }
    }

    /// Whether the tree exists in this snapshot.
    ///
    /// # Errors
    /// Errors of the cluster.
    #[inline]
    pub fn has_tree(&self, tree: TreeId) -> Result<bool> {
        match self {
            Snapshot::Tree(snapshot) => Ok(snapshot.has_tree(tree)),
            Snapshot::Tikv(snapshot) => snapshot.has_tree(tree),
        }
    }
}

/// A cursor over a range of keys of one tree. It owns its snapshot.
#[allow(
    clippy::large_enum_variant,
    reason = "the embedded one is used for every scan; a box would be an allocation for each"
)]
pub enum Cursor {
    /// Of the embedded engine.
    Tree(frond_tree::Cursor),
    /// Of a TiKV cluster.
    Tikv(Box<frond_tikv::Cursor>),
}

impl Cursor {
    /// The next key and its value, or `None` at the end of the range.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    #[allow(
        clippy::should_implement_trait,
        reason = "the result borrows from the cursor"
    )]
    #[inline]
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        match self {
            Cursor::Tree(cursor) => cursor.next(),
            Cursor::Tikv(cursor) => cursor.next(),
        }
    }

    /// Moves to `key`: forward, the next key is the first one at or after it; backward, the last one at or before it. The bounds
    /// of the cursor still hold.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    #[inline]
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        match self {
            Cursor::Tree(cursor) => cursor.seek(key),
            Cursor::Tikv(cursor) => cursor.seek(key),
        }
    }

    /// Continues on another snapshot of the same moment ([`super::Engine::detach`]), behind the key that was returned last.
    ///
    /// # Errors
    /// Errors of the disk; then the cursor is lost until the next [`Cursor::seek`].
    pub fn continue_on(&mut self, snapshot: &Snapshot) -> Result<()> {
        match (self, snapshot) {
            (Cursor::Tree(cursor), Snapshot::Tree(snapshot)) => cursor.continue_on(snapshot),
            // A snapshot of a cluster keeps nothing in memory that had to be released.
            _ => Ok(()),
        }
    }
}
