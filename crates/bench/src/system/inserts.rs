//! Inserts, made ready while the system works on the last one.

use frond_bson::Doc;
use frond_client::{Collection, Result};

use super::WriteConcern;

/// Documents of one insert: BSON of equal lengths, one after another.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    pub bytes: &'a [u8],
    pub each: usize,
}

impl<'a> Batch<'a> {
    pub fn len(&self) -> usize {
        self.bytes.len() / self.each.max(1)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn documents(&self) -> impl Iterator<Item = &'a Doc> {
        self.bytes
            .chunks_exact(self.each.max(1))
            .map(Doc::from_trusted)
    }
}

/// Inserts. The order of calls is `insert_into`, and then for each batch `prepare`, `send`, `finish`;
/// the next `prepare` may come before the `finish` of the batch that was sent.
pub trait Inserts {
    /// Sets the collection of the inserts that follow.
    fn insert_into(&mut self, collection: &Collection, concern: WriteConcern) -> Result<()>;

    fn prepare(&mut self, batch: Batch<'_>) -> Result<()>;

    /// Sends the prepared batch.
    fn send(&mut self) -> Result<()>;

    /// Reads the reply to the batch that was sent. Anything but all documents inserted is an error.
    /// Returns at once if nothing is acknowledged.
    fn finish(&mut self) -> Result<()>;
}
