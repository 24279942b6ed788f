//! Notes of the documents that change while a collection is copied.
//!
//! A copy reads a snapshot, beside the writers. Meanwhile each writer notes, in the commit of a change, the key of the
//! document in a tree of notes. The copy then looks at these documents again. As for the side trees of an index,
//! writers switch to a new tree, so that the previous one is final, until little is left.
//!
//! | key | value |
//! | --- | --- |
//! | the key of the document in the collection | `0`, `{_id}` |

use frond_bson::Doc;
use frond_error::ErrorCode;

use super::{Catalog, Uuid, persist};
use crate::oplog::Batch;
use frond_storage::error::{Error, Result, command};
use frond_storage::keyspace::{Durability, TreeId, TreeOptions, WriteSet};

/// The first byte of a note, so that it is not taken for a document.
const NOTE: u8 = 0;

/// Notes that a document changes.
pub(crate) fn mark_dirty(batch: &mut WriteSet, tree: TreeId, key: &[u8], id: &Doc) {
    batch.put(tree, key, &[&[NOTE], id.as_bytes()].concat());
}

/// The document with the `_id` in a note.
pub(crate) fn dirty_id(mark_dirty: &[u8]) -> Option<&Doc> {
    let id = mark_dirty.strip_prefix(&[NOTE])?;
    Doc::validate(id).ok()
}

fn gone() -> Error {
    command(
        ErrorCode::NamespaceNotFound,
        "the collection was dropped while it was copied",
    )
}

impl Catalog {
    /// From here on writers of a collection note what they change.
    ///
    /// # Errors
    /// `ConflictingOperationInProgress` (117) if they do already; `NamespaceNotFound` (26) if the collection was dropped.
    pub(crate) fn begin_dirty_set(&self, uuid: &Uuid) -> Result<()> {
        match self.switch_dirty_set(uuid, |before| before.is_none())? {
            Switched::Refused => Err(command(
                ErrorCode::Location(117),
                "another command is copying the collection; try again when it is done",
            )),
            Switched::Done(_) => Ok(()),
        }
    }

    /// Gives the writers another tree for their notes. Returns the previous one, which is final, and which the caller
    /// drops.
    ///
    /// # Errors
    /// As [`Catalog::begin_dirty_set`].
    pub(crate) fn next_dirty_set(&self, uuid: &Uuid) -> Result<TreeId> {
        match self.switch_dirty_set(uuid, |before| before.is_some())? {
            Switched::Done(Some(before)) => Ok(before),
            Switched::Done(None) | Switched::Refused => Err(gone()),
        }
    }

    fn switch_dirty_set(
        &self,
        uuid: &Uuid,
        may: impl FnOnce(Option<TreeId>) -> bool,
    ) -> Result<Switched> {
        let _changing = self.begin_change()?;
        let collection = self.by_uuid(uuid).ok_or_else(gone)?;
        if !may(collection.changes) {
            return Ok(Switched::Refused);
        }
        let tree = self.allocate_tree()?;
        let mut batch = Batch::new(None);
        batch.create_tree(tree, &TreeOptions::default());
        persist::put_working(&mut batch, tree, &self.state.coordination);
        let after = collection.with_dirty_set(Some(tree));
        persist::put_changes(&mut batch, &after);
        self.replace(&collection, Some(after), batch)?;
        Ok(Switched::Done(collection.changes))
    }

    /// Ends that writers note what they change, if the collection is still there.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn drop_dirty_set(&self, uuid: &Uuid) -> Result<()> {
        let _changing = self.begin_change()?;
        let Some(collection) = self.by_uuid(uuid) else {
            return Ok(());
        };
        let Some(tree) = collection.changes else {
            return Ok(());
        };
        let mut batch = Batch::new(None);
        batch.set_frees_space();
        batch.drop_tree(tree);
        persist::delete_working(&mut batch, tree);
        let after = collection.with_dirty_set(None);
        persist::put_changes(&mut batch, &after);
        self.replace(&collection, Some(after), batch)
    }
}

impl Catalog {
    /// Creates a tree for what a command has to remember while it runs.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn create_working_tree(&self) -> Result<TreeId> {
        let _changing = self.begin_change()?;
        let tree = self.allocate_tree()?;
        let mut batch = WriteSet::new();
        batch.create_tree(tree, &TreeOptions::default());
        persist::put_working(&mut batch, tree, &self.state.coordination);
        self.commit_beside_view(batch, None)?;
        Ok(tree)
    }

    /// Drops such a tree, or one of final notes.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn drop_working_tree(&self, tree: TreeId) -> Result<()> {
        let mut batch = WriteSet::new();
        batch.set_frees_space();
        batch.drop_tree(tree);
        persist::delete_working(&mut batch, tree);
        self.state.engine.commit(batch, Durability::Logged)?;
        Ok(())
    }
}

/// The result of switching to another tree of notes.
enum Switched {
    /// With the previous tree.
    Done(Option<TreeId>),
    Refused,
}
