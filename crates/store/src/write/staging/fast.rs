//! Messages of fast updates.

use frond_bson::{DocBuf, Value};

use super::{Staging, check_key};
use crate::catalog;
use frond_storage::error::Result;

impl Staging<'_> {
    /// Stages a message to the document with a primary key, which is not read. The key is guarded as a key that is written, so that
    /// others who have read the document notice, and an open transaction that has written it is waited for.
    ///
    /// # Errors
    /// 17280 for a key that is too long.
    pub(in crate::write) fn send(
        &mut self,
        (key, id): (&[u8], &Value<'_>),
        message: &[u8],
        is_upsert: bool,
    ) -> Result<()> {
        check_key(key)?;
        let primary = self.collection.primary;
        self.removes_only = false;
        if let Some(changes) = self.collection.changes {
            let mut note = DocBuf::new();
            note.push_value("_id", id);
            catalog::mark_dirty(&mut self.batch, changes, key, &note);
        }
        self.batch.guard(primary, key);
        self.batch.merge(primary, key, message);
        self.counts.updates += 1;
        self.counts.upserts += i64::from(is_upsert);
        self.documents += 1;
        Ok(())
    }
}
