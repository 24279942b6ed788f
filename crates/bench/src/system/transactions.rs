//! The operations of a Sysbench transaction.

use std::ops::RangeInclusive;

use frond_bson::Doc;
use frond_client::{Collection, Result};

/// Operations of the workload `sysbench`. Documents are `{_id, k, c, pad}` with 32-bit integers as `_id`. Each
/// operation is a request of its own, acknowledged and not journaled.
pub trait Transactions {
    /// Documents found by `_id`, of which `c` is returned: 0 or 1.
    fn point(&mut self, collection: &Collection, id: i32) -> Result<u64>;

    /// Documents found, of which `c` is returned.
    fn range(&mut self, collection: &Collection, ids: RangeInclusive<i32>) -> Result<u64>;

    /// The sum of `k`, made by the system.
    fn sum(&mut self, collection: &Collection, ids: RangeInclusive<i32>) -> Result<i64>;

    /// Documents found, of which `c` is returned, ordered by `c`.
    fn ordered(&mut self, collection: &Collection, ids: RangeInclusive<i32>) -> Result<u64>;

    /// Different values of `c`.
    fn distinct(&mut self, collection: &Collection, ids: RangeInclusive<i32>) -> Result<u64>;

    /// Adds 1 to `k`, which is indexed. Returns documents found: 0 or 1.
    fn update_k(&mut self, collection: &Collection, id: i32) -> Result<u64>;

    /// Sets `c`, which is not indexed. Returns documents found: 0 or 1.
    fn update_c(&mut self, collection: &Collection, id: i32, c: &str) -> Result<u64>;

    /// Deletes by `_id`. Returns documents deleted: 0 or 1.
    fn delete(&mut self, collection: &Collection, id: i32) -> Result<u64>;

    /// Inserts a document. Returns documents inserted: 0 if there is one with its `_id`.
    fn insert(&mut self, collection: &Collection, document: &Doc) -> Result<u64>;
}
