//! Inserts, made ready while the system works on the last one.

use frond_bson::Doc;

use super::WriteConcern;
use crate::collection::Collection;
use crate::error::Result;

/// Documents of one insert: BSON of equal lengths, one after another.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// All of them.
    pub bytes: &'a [u8],
    /// Bytes of each.
    pub each: usize,
}

impl<'a> Batch<'a> {
    /// How many they are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() / self.each.max(1)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One by one.
    pub fn documents(&self) -> impl Iterator<Item = &'a Doc> {
        self.bytes
            .chunks_exact(self.each.max(1))
            .map(Doc::from_trusted)
    }
}

/// Inserts. The order of calls is `insert_into`, and then for each batch `prepare`, `send`, `finish`;
/// the next `prepare` may come before the `finish` of the batch that was sent.
pub trait Inserts {
    /// From now on documents go there.
    fn insert_into(&mut self, collection: &Collection, concern: WriteConcern) -> Result<()>;

    /// Makes a batch ready to be sent.
    fn prepare(&mut self, batch: Batch<'_>) -> Result<()>;

    /// Sends what was made ready.
    fn send(&mut self) -> Result<()>;

    /// Takes the answer to what was sent. Anything but all documents inserted is an error. Returns
    /// at once if nothing is acknowledged.
    fn finish(&mut self) -> Result<()>;
}
