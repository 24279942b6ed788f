//! Operations that work long after they took their snapshot: holds on the conflict windows, and whether keys have changed since.

use std::sync::Arc;

use frond_kv::key_hash;

use crate::TreeId;
use crate::engine::Engine;
use crate::snapshot::Snapshot;
use crate::store::Store;

/// The moment of a snapshot. Unlike the snapshot it keeps no data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

impl Snapshot {
    /// The moment of this snapshot. The writes of its own transaction, if it has one, do not count.
    pub fn moment(&self) -> Moment {
        Moment(self.sequence)
    }
}

/// Keeps the commits after a snapshot in the conflict windows, so that a commit on that snapshot, seconds or minutes
/// later, conflicts only with commits of the same keys. Dropping it ends that.
///
/// The memory for it is taken from the store's budget, at most an eighth of it. When that is used up, the largest window
/// forgets its oldest commits, and guarded commits on older snapshots to the same tree get
/// [`crate::Error::Conflict`].
pub struct ConflictHold {
    engine: Arc<Engine>,
    sequence: u64,
}

impl Store {
    /// Keeps what is committed after `snapshot` in the conflict windows.
    ///
    /// ```
    /// # use frond_tree::{Durability, Options, Store, TreeOptions, WriteSet};
    /// # fn main() -> frond_tree::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let store = Store::open(Options::new(directory.path()))?;
    /// # let tree = store.allocate_tree();
    /// # let mut set = WriteSet::new();
    /// # set.create_tree(tree, &TreeOptions::default());
    /// # store.commit(set, Durability::Logged)?;
    /// let snapshot = store.snapshot();
    /// let hold = store.hold_conflicts(&snapshot);
    /// let mut set = WriteSet::with_snapshot(&snapshot);
    /// // A long time and many commits of others later:
    /// set.put_guarded(tree, b"rowan", b"red");
    /// store.commit(set, Durability::Logged)?;
    /// drop(hold);
    /// # Ok(())
    /// # }
    /// ```
    pub fn hold_conflicts(&self, snapshot: &Snapshot) -> ConflictHold {
        let engine = self.engine().clone();
        engine.commit_lock.lock().recent.hold(snapshot.sequence);
        ConflictHold {
            engine,
            sequence: snapshot.sequence,
        }
    }

    /// Whether a guarded commit after `since` may have changed one of these keys of a tree. If not, each has in a snapshot that was
    /// taken before the call the value that it had at that moment. Blind writes are not known; a commit that the windows have
    /// forgotten counts as a change of all keys.
    pub fn may_have_changed<'k>(
        &self,
        tree: TreeId,
        keys: impl IntoIterator<Item = &'k [u8]>,
        since: Moment,
    ) -> bool {
        let hashes: Vec<u64> = keys.into_iter().map(|key| key_hash(tree, key)).collect();
        let mut state = self.engine().commit_lock.lock();
        // The windows of a secondary do not have the commits of the primary.
        if self.engine().is_following() {
            return true;
        }
        let recent = &mut state.recent;
        (hashes.iter()).any(|hash| recent.conflicts(tree, *hash, since.0))
    }
}

impl Drop for ConflictHold {
    fn drop(&mut self) {
        let mut state = self.engine.commit_lock.lock();
        state.recent.release(self.sequence);
    }
}
