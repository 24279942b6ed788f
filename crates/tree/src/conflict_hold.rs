//! Holds on the conflict windows, for operations that commit long after they took their snapshot.

use std::sync::Arc;

use crate::engine::Engine;
use crate::snapshot::Snapshot;
use crate::store::Store;

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
}

impl Drop for ConflictHold {
    fn drop(&mut self) {
        let mut state = self.engine.commit_lock.lock();
        state.recent.release(self.sequence);
    }
}
