//! Staging the changes of large documents.

use frond_bson::Doc;

use super::staging::{Change, Staged, Staging, Updated};
use frond_oplog::diff::IsWhole;
use frond_storage::error::Result;
use frond_storage::record::load::{DocumentReader, Parts};

impl Staging<'_> {
    /// Reads the documents of the snapshot below.
    pub(super) fn document_reader(&self) -> DocumentReader<'_> {
        self.collection.document_reader(&self.snapshot)
    }

    /// Stages the change of a large document of which `old` and `new` are parts, unless it was read as a `whole`. `None` if it
    /// has to be written whole.
    ///
    /// # Errors
    /// As [`Staging::update`]; 17419 if the document becomes too large.
    pub(super) fn update_parts(
        &mut self,
        key: &[u8],
        old: &Doc,
        parts: &Parts,
        new: &Doc,
        updated: Updated<'_>,
        whole: bool,
    ) -> Result<Option<Staged>> {
        let writer = self.collection.document_writer();
        let Some(update) = writer.partial_update(old, parts, new)? else {
            return Ok(None);
        };
        let is_whole = |path: &[u8]| !parts.leads_to_container(path);
        let is_whole: Option<IsWhole<'_>> = if whole { None } else { Some(&is_whole) };
        let Some(written) = self.updated(old, new, updated.how, is_whole) else {
            return Ok(None);
        };
        let warning = self.validate(new, Some(old))?;
        let touches = updated.touches;
        let change = Change { old, touches };
        if self.generate(new, key, Some(change))? == Staged::NextCommit {
            return Ok(Some(Staged::NextCommit));
        }
        self.removes_only = false;
        self.note_change(key, new, &written);
        let buffers = (&mut self.buffers.key, &mut self.buffers.value);
        let more = writer.update(&mut self.batch, key, update, buffers)?;
        self.count(key, |counts| counts.bytes += more);
        for position in 0..self.collection.indexes.len() {
            self.put_entries(position, key, new, Some(change));
        }
        self.documents += 1;
        self.warnings.extend(warning);
        Ok(Some(Staged::Done))
    }
}
