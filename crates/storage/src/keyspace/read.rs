//! Snapshots and cursors.

use std::ops::Bound;

use frond_kv::Snapshot as Kv;

use super::{Direction, EngineError, TreeId, ValueRef};

type Result<T, E = EngineError> = std::result::Result<T, E>;

/// A consistent view of all trees.
#[derive(Clone)]
pub enum Snapshot {
    Files(frond_tree::Snapshot),
    /// Of a TiKV cluster.
    Tikv(frond_tikv::Snapshot),
}

impl From<frond_tree::Snapshot> for Snapshot {
    #[inline]
    fn from(snapshot: frond_tree::Snapshot) -> Snapshot {
        Snapshot::Files(snapshot)
    }
}

impl From<frond_tikv::Snapshot> for Snapshot {
    fn from(snapshot: frond_tikv::Snapshot) -> Snapshot {
        Snapshot::Tikv(snapshot)
    }
}

impl Snapshot {
    /// The snapshot of the engine with files, with what only that has.
    pub fn files(&self) -> Option<&frond_tree::Snapshot> {
        match self {
            Snapshot::Files(snapshot) => Some(snapshot),
            Snapshot::Tikv(_) => None,
        }
    }

    /// The snapshot of a cluster, with what only that has.
    pub fn cluster(&self) -> Option<&frond_tikv::Snapshot> {
        match self {
            Snapshot::Files(_) => None,
            Snapshot::Tikv(snapshot) => Some(snapshot),
        }
    }

    /// The value of a key.
    ///
    /// # Errors
    /// [`EngineError::UnknownTree`] of files; errors of the disk or the cluster.
    #[inline]
    pub fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<ValueRef>> {
        match self {
            Snapshot::Files(snapshot) => snapshot.get(tree, key),
            Snapshot::Tikv(snapshot) => Ok(snapshot.get(tree, key)?.map(ValueRef::from)),
        }
    }

    /// The value of a key that is expected to be there, because an entry of an index leads to it: less is read than to find out
    /// that a key is absent.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    #[inline]
    pub fn get_expected(&self, tree: TreeId, key: &[u8]) -> Result<Option<ValueRef>> {
        match self {
            Snapshot::Files(snapshot) => snapshot.get_expected(tree, key),
            Snapshot::Tikv(_) => self.get(tree, key),
        }
    }

    /// Announces that some keys are about to be read. A cluster reads them with one request; of files those pages that are not in memory
    /// are read, several at a time.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    #[inline]
    pub fn prefetch(&self, keys: &[(TreeId, &[u8])]) -> Result<()> {
        match self {
            Snapshot::Files(snapshot) => snapshot.prefetch(keys),
            Snapshot::Tikv(snapshot) => snapshot.prefetch(keys),
        }
    }

    /// Takes some keys for absent, so that a cluster need not look them up: a commit that is based on this snapshot and puts one of them
    /// fails with a conflict if it is there. A caller that decides by their absence has to put them in that commit. Files do nothing, since
    /// their look-ups cost little.
    pub fn presume_absent(&self, keys: &[(TreeId, &[u8])]) {
        match self {
            Snapshot::Files(_) => {}
            Snapshot::Tikv(snapshot) => snapshot.presume_absent(keys),
        }
    }

    /// Whether a read takes a request over the network, so that it pays to gather keys for [`Snapshot::prefetch`].
    #[inline]
    pub fn gathers_reads(&self) -> bool {
        match self {
            Snapshot::Files(snapshot) => snapshot.gathers_reads(),
            Snapshot::Tikv(snapshot) => snapshot.gathers_reads(),
        }
    }

    /// The number of reads of files for which this thread has waited for the device.
    #[inline]
    pub fn waits_of_thread(&self) -> u64 {
        match self {
            Snapshot::Files(snapshot) => snapshot.waits_of_thread(),
            Snapshot::Tikv(snapshot) => snapshot.waits_of_thread(),
        }
    }

    /// Whether a key is there.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    #[inline]
    pub fn contains(&self, tree: TreeId, key: &[u8]) -> Result<bool> {
        match self {
            Snapshot::Files(snapshot) => snapshot.contains(tree, key),
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
            Snapshot::Files(snapshot) => {
                Cursor::Files(snapshot.cursor(tree, lower, upper, direction)?)
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
            Snapshot::Files(snapshot) => snapshot.key_upper_bound(tree),
            Snapshot::Tikv(snapshot) => snapshot.key_upper_bound(tree),
        }
    }

    /// Keys that divide a range of a tree into parts of about the same size, at most `most`. A cluster has none.
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
            Snapshot::Files(snapshot) => snapshot.leaf_bounds(tree, lower, upper, most),
            Snapshot::Tikv(snapshot) => snapshot.leaf_bounds(tree, lower, upper, most),
        }
    }

    /// Whether the tree exists in this snapshot.
    ///
    /// # Errors
    /// Errors of the cluster.
    #[inline]
    pub fn has_tree(&self, tree: TreeId) -> Result<bool> {
        match self {
            Snapshot::Files(snapshot) => Ok(snapshot.has_tree(tree)),
            Snapshot::Tikv(snapshot) => snapshot.has_tree(tree),
        }
    }
}

/// A cursor over a range of keys of one tree. It owns its snapshot.
#[allow(
    clippy::large_enum_variant,
    reason = "that of files is used for every scan; a box would be an allocation for each"
)]
pub enum Cursor {
    Files(frond_tree::Cursor),
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
            Cursor::Files(cursor) => cursor.next(),
            Cursor::Tikv(cursor) => cursor.next(),
        }
    }

    /// Expects that the whole range will be read, and not soon again. A cluster reads as it did.
    pub fn expect_long(&mut self) {
        match self {
            Cursor::Files(cursor) => cursor.expect_long(),
            Cursor::Tikv(_) => {}
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
            Cursor::Files(cursor) => cursor.seek(key),
            Cursor::Tikv(cursor) => cursor.seek(key),
        }
    }

    /// Continues on another snapshot of the same moment ([`super::Engine::detach`]), or the same one, behind the key that was returned
    /// last. Until then it holds no pages.
    pub fn continue_on(&mut self, snapshot: &Snapshot) {
        match (self, snapshot) {
            (Cursor::Files(cursor), Snapshot::Files(snapshot)) => cursor.continue_on(snapshot),
            // A snapshot of a cluster keeps nothing in memory that had to be released.
            (Cursor::Files(_) | Cursor::Tikv(_), _) => {}
        }
    }
}
