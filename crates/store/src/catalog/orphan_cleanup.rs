//! Trees and collections of a command that a crash interrupted.

use frond_storage::error::Result;
use frond_storage::keyspace::{Durability, WriteSet};

use super::{Catalog, persist};

impl Catalog {
    /// Drops the trees that commands needed while they ran: indexes that were being built in the place of others, notes of
    /// changes. The catalog has an entry for each, so nothing is dropped by guess: a tree that no entry names may
    /// be one of documents, or of parts of them, whose entry was damaged, and stays for `frond salvage`. Returns how many
    /// were dropped.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn drop_orphaned_trees(&self) -> Result<usize> {
        let working = persist::working_trees(&self.state.engine.snapshot())?;
        if working.is_empty() {
            return Ok(0);
        }
        let (mut batch, mut dropped) = (WriteSet::new(), 0);
        batch.set_frees_space();
        for (tree, _) in working {
            let is_used = self.view().iter().any(|collection| {
                let mut of_indexes = collection.indexes.iter().flat_map(|index| index.trees());
                collection.trees().any(|used| used == tree) || of_indexes.any(|used| used == tree)
            });
            if !is_used && self.state.engine.has_tree(tree)? {
                batch.drop_tree(tree);
                dropped += 1;
            }
            persist::delete_working(&mut batch, tree);
        }
        self.state.engine.commit(batch, Durability::Logged)?;
        Ok(dropped)
    }

    /// With several servers: drops the temporary collections and the trees of commands whose servers are gone. One server does that
    /// for all. Returns how many there were.
    ///
    /// # Errors
    /// Errors of the engine; `NotWritablePrimary` (10107).
    pub(crate) fn drop_leftovers(&self) -> Result<usize> {
        let coordination = &self.state.coordination;
        let snapshot = self.state.engine.snapshot();
        let temporary = coordination.temporary(&snapshot)?;
        let working = persist::working_trees(&snapshot)?;
        drop(snapshot);
        if temporary.is_empty() && working.is_empty() {
            return Ok(0);
        }
        let Some(live) = coordination.live()? else {
            return Ok(0);
        };
        let mut dropped = 0;
        // The collections first. A command whose server has lost its lease for a while fails then, before it misses its trees.
        for (uuid, owner) in temporary {
            if !live.contains(&owner)
                && let Some(collection) = self.by_uuid(&uuid)
            {
                self.drop_collection(&collection.ns)?;
                dropped += 1;
            }
        }
        for (tree, owner) in working {
            if owner.is_none_or(|owner| live.contains(&owner)) {
                continue;
            }
            let holder = (self.view().iter())
                .find(|collection| collection.changes == Some(tree))
                .map(|collection| collection.uuid);
            match holder {
                Some(uuid) => self.drop_dirty_set(&uuid)?,
                None => self.drop_working_tree(tree)?,
            }
            dropped += 1;
        }
        Ok(dropped)
    }
}
