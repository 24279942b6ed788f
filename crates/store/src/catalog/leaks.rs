//! Trees that no collection has, after a crash in the middle of a command that copies.

use std::collections::HashSet;
use std::ops::Bound;

use frond_bson::Doc;

use super::Catalog;
use crate::error::Result;
use crate::keyspace::{
    CATALOG_TREE, Direction, Durability, EngineError, Snapshot, TreeId, WriteSet,
};

impl Catalog {
    /// Drops the trees that the catalog does not name: indexes that were being built in the place of others, notes of
    /// changes. A tree that may hold documents stays, for `frond salvage`: damage may have taken its entry of the catalog. So
    /// does one that cannot be read. Returns how many were dropped.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn drop_leaked_trees(&self) -> Result<usize> {
        let mut known: HashSet<TreeId> = HashSet::from([CATALOG_TREE]);
        for collection in self.view().iter() {
            known.extend(collection.trees());
            known.extend(collection.indexes.iter().flat_map(|index| index.trees()));
        }
        let mut leaked = self.engine.trees();
        leaked.retain(|tree| !known.contains(tree));
        if leaked.is_empty() {
            return Ok(0);
        }
        let snapshot = self.engine.snapshot();
        leaked.retain(|tree| matches!(may_hold_documents(&snapshot, *tree), Ok(false)));
        let mut batch = WriteSet::new();
        batch.set_frees_space();
        leaked.iter().for_each(|tree| batch.drop_tree(*tree));
        self.engine.commit(batch, Durability::Logged)?;
        Ok(leaked.len())
    }
}

/// Whether the first entry of a tree looks like a document, or like a large one that is stored in parts.
fn may_hold_documents(snapshot: &Snapshot, tree: TreeId) -> Result<bool, EngineError> {
    let (low, high) = (Bound::Unbounded, Bound::Unbounded);
    let mut cursor = snapshot.cursor(tree, low, high, Direction::Forward)?;
    let first = cursor.next()?;
    Ok(first.is_some_and(|(_, value)| {
        crate::record::is_in_parts(value)
            || Doc::validate(value).is_ok_and(|doc| doc.contains_key("_id"))
    }))
}
