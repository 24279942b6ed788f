//! The limits of capped collections.

use std::ops::Bound;

use frond_bson::Doc;
use frond_error::ErrorCode;

use super::Staging;
use crate::write::written::Written;
use frond_storage::error::{Result, command};
use frond_storage::keyspace::{COMMIT_DOCUMENTS_MAX, Direction};
use frond_storage::merge::Counts;

impl Staging<'_> {
    /// Whether a document has to wait for the next commit because a capped collection would have to remove
    /// documents of this one for it.
    ///
    /// # Errors
    /// `BadValue` (2) if it is larger than the collection may be.
    pub(super) fn leaves_no_room(&self, doc: &Doc) -> Result<bool> {
        let Some(capped) = self.collection.settings.capped else {
            return Ok(false);
        };
        let bytes = doc.len_bytes() as u64;
        if bytes > capped.bytes {
            return Err(command(
                ErrorCode::BadValue,
                "object to insert exceeds cappedMaxSize",
            ));
        }
        let staged = u64::try_from(self.counts.bytes).unwrap_or(0);
        let documents = self.documents as u64;
        Ok(documents > 0
            && (staged + bytes > capped.bytes
                || capped.documents.is_some_and(|most| documents >= most)))
    }

    /// Stages the removal of the oldest documents of a capped collection that is too large.
    pub(super) fn remove_oldest(&mut self) -> Result<()> {
        let (Some(capped), Some(insertion)) = (self.collection.settings.capped, &self.insertion)
        else {
            return Ok(());
        };
        let first = insertion.first.clone();
        let before = self.collection.counts_in(&self.snapshot)?;
        let documents = self.documents;
        let is_over = |staged: Counts| {
            let after = before + staged;
            let count = u64::try_from(after.documents).unwrap_or(0);
            let bytes = u64::try_from(after.bytes).unwrap_or(0);
            bytes > capped.bytes || capped.documents.is_some_and(|most| count > most)
        };
        if !is_over(self.counts) {
            return Ok(());
        }
        let snapshot = self.snapshot.clone();
        let low = Bound::Included(first.as_slice());
        let forward = Direction::Forward;
        let mut oldest =
            snapshot.cursor(self.collection.primary, low, Bound::Unbounded, forward)?;
        // A collection whose limit was much reduced shrinks over several inserts.
        while is_over(self.counts) && self.documents - documents < 2 * COMMIT_DOCUMENTS_MAX {
            let Some((key, doc)) = oldest.next()? else {
                break;
            };
            self.remove(key, Doc::from_trusted(doc), None, &Written::Unlogged)?;
            self.removed_to.clear();
            self.removed_to.extend_from_slice(key);
        }
        self.documents = documents;
        Ok(())
    }
}
