//! Record ids, as `showRecordId` shows them.

use xxhash_rust::xxh3::xxh3_64;

use super::describe::Describer;
use super::operator::{ExecContext, Inputs, Operator, Pulled, RowRef, Sink};
use super::oplog_scan::time_of_key;
use super::stats::OperatorStats;
use crate::catalog::record_of_key;
use frond_storage::error::Result;

/// Adds `$recordId` to each document.
pub struct RecordId;

impl Operator for RecordId {
    fn pull(
        &mut self,
        cx: &ExecContext,
        inputs: &mut Inputs,
        stats: &mut OperatorStats,
        sink: Sink<'_>,
    ) -> Result<Pulled> {
        let numbered = cx.collection.numbers_records();
        inputs.pull(cx, &mut |row| {
            let mut doc = row.doc.to_owned();
            doc.push("$recordId", record_id(row.key, numbered));
            stats.advanced += 1;
            sink(RowRef { doc: &doc, ..row })
        })
    }

    fn name(&self, _: &Describer<'_>) -> Option<&'static str> {
        None
    }
}

/// The record id of a document, from its key. Where documents are not stored by record ids, the number is computed from the key,
/// and is always the same for a document.
pub fn record_id(key: &[u8], numbered: bool) -> i64 {
    // That of an entry of the oplog is its timestamp, as in MongoDB.
    let record = time_of_key(key).map(u64::cast_signed);
    let record = record.or_else(|| record_of_key(key)).filter(|_| numbered);
    record.unwrap_or_else(|| (xxh3_64(key) >> 1) as i64)
}
