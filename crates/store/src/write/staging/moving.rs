//! Updates that change the primary key of a document.

use frond_bson::Doc;

use super::{Change, Staged, Staging, Updated, Written, counted_bytes};
use crate::catalog;
use crate::write::id_document;
use frond_storage::error::Result;

impl Staging<'_> {
    /// Stages the change of a document from `old` under `key` to `new` under `moved`. All its entries end with the key, so all are
    /// written again. For the oplog it is an update like any other: it has the same `_id`.
    pub(super) fn move_document(
        &mut self,
        key: &[u8],
        moved: &[u8],
        old: &Doc,
        new: &Doc,
        updated: Updated<'_>,
    ) -> Result<Staged> {
        super::check_key(moved)?;
        self.collection.check_partition(moved)?;
        let touches = |_: &str| true;
        let change = Change {
            old,
            touches: &touches,
        };
        if self.generate(new, moved, Some(change))? == Staged::NextCommit {
            return Ok(Staged::NextCommit);
        }
        let written = self
            .updated(old, new, updated.how, None)
            .unwrap_or(Written::Replaced { old, new });
        self.remove_entries(key, old)?;
        let writer = self.collection.document_writer();
        writer.delete(&mut self.batch, key, None, &mut self.buffers.key)?;
        if let Some(changes) = self.collection.changes {
            catalog::mark_dirty(&mut self.batch, changes, key, &id_document(old));
        }
        self.put_document(moved, new, None, &written)?;
        for position in 0..self.collection.indexes.len() {
            self.put_entries(position, moved, new, None);
        }
        let before = counted_bytes(old, None);
        self.count(key, |counts| counts.remove_document(before));
        self.count(moved, |counts| counts.add_document(new.len_bytes()));
        self.documents += 1;
        Ok(Staged::Done)
    }
}
