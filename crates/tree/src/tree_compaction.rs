//! Compaction of some trees on request.

use crate::damage::Activity;
use crate::store::Store;
use crate::{Result, TreeId};

impl Store {
    /// Flushes everything that is committed, moves the pending messages of these trees down to the leaves, and returns the
    /// space that this frees to the file system. Readers and writers go on meanwhile. Before each step `goes_on` is called with
    /// the bytes of messages that are still pending, by estimate; it ends the compaction by returning false. The result is
    /// false then. What was compacted until then stays so.
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
    /// let is_done = store.compact_trees(&[tree], |pending| {
    ///     println!("{pending} bytes are pending");
    ///     true
    /// })?;
    /// assert!(is_done);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn compact_trees(
        &self,
        trees: &[TreeId],
        mut goes_on: impl FnMut(u64) -> bool,
    ) -> Result<bool> {
        let engine = self.engine();
        engine.checkpoint_all()?;
        let pending = || engine.pending_bytes(trees);
        let (_, _, mut saved) = engine.runs.data.io_stats();
        let mut is_done = goes_on(pending());
        engine.report(Activity::Compaction, pending(), || {
            for tree in trees {
                while is_done && engine.compact_tree_once(*tree)? {
                    let (_, _, written) = engine.runs.data.io_stats();
                    if written - saved >= engine.disk_space.step_bytes() {
                        // The space of what was replaced is free after a checkpoint only.
                        engine.checkpoint_trees()?;
                        saved = written;
                    }
                    is_done = goes_on(pending());
                }
            }
            engine.checkpoint_trees()
        })?;
        engine.give_back_space()?;
        Ok(is_done)
    }
}
