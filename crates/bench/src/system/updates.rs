//! Updates of documents with very many keys.

use std::time::Duration;

use frond_bson::DocBuf;
use frond_client::{Collection, Result};

use super::WriteConcern;
use crate::documents::manykeys::Documents;
use crate::documents::updates::Update;

/// Operations of the workload `manykeys`.
pub trait KeyUpdates {
    /// Encodes the updates of a round, so that [`KeyUpdates::execute`] only sends.
    fn encode(
        &mut self,
        collection: &Collection,
        concern: WriteConcern,
        documents: &Documents,
        updates: &mut dyn Iterator<Item = &Update>,
    ) -> Result<()>;

    /// Sends the encoded updates one after the other, and passes the time of each to `done`, which
    /// returns whether to go on. Ends when the system has applied the last one. An update that does
    /// not find its document is an error if it is acknowledged.
    fn execute(&mut self, done: &mut dyn FnMut(Duration) -> bool) -> Result<()>;

    /// Finds the document with this ObjectId: the whole of it, or `_id` and one field, given by its
    /// path. The time is that from the first byte sent to the last one received.
    fn find_by_id(
        &mut self,
        collection: &Collection,
        id: [u8; 12],
        field: Option<&str>,
    ) -> Result<(Option<DocBuf>, Duration)>;

    /// Whether documents come back with their fields in the order in which they were written, and with
    /// the types of their numbers. Where they do not, both are left out of the comparison.
    fn keeps_order_and_types(&self) -> bool {
        true
    }
}
