//! The part of a commit for other servers that write to the same collection.

use super::Staging;
use frond_storage::error::{Error, Result, Unannounced};

impl Staging<'_> {
    /// Fails if other servers do not know multikey paths of what was staged. Readers there would miss documents.
    ///
    /// # Errors
    /// [`Error::Unannounced`], with the paths.
    pub(super) fn check_announced(&self) -> Result<()> {
        let paths = self.multikey.iter();
        let paths: Vec<_> = paths
            .map(|(index, paths)| (index.tree, paths.clone()))
            .collect();
        if paths.is_empty() {
            Ok(())
        } else {
            Err(Error::Unannounced(Box::new(Unannounced {
                uuid: self.collection.uuid,
                paths,
            })))
        }
    }

    /// Stages what keeps this commit and those of other servers apart.
    /// Returns the number of the change of a watched collection.
    pub(super) fn stage_for_others(&mut self, is_watched: bool) -> Result<Option<i64>> {
        for (to, statement) in &self.recorded {
            to.guard(&mut self.batch, &self.snapshot, statement)?;
        }
        if let Some(last) = self.last_record {
            // Also orders the inserts, so that ids become visible in their order.
            let uuid = &self.collection.uuid;
            (self.coordination).stage_last_record(&mut self.batch, uuid, last);
        }
        if is_watched && self.catalog.is_live() {
            (self.coordination).stage_watched(&mut self.batch, &self.snapshot)
        } else {
            Ok(None)
        }
    }
}
