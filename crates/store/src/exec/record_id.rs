//! Record ids, as `showRecordId` shows them.

use frond_bson::DocBuf;
use xxhash_rust::xxh3::xxh3_64;

use super::describe::Describer;
use super::operator::{ExecContext, OpStats, Operator, Pulled, RowRef, Sink};
use crate::catalog::record_of_key;
use crate::error::Result;

/// Adds `$recordId` to each document.
pub struct RecordId {
    input: Box<dyn Operator>,
    stats: OpStats,
}

impl RecordId {
    /// Adds the record ids of the rows of `input`, which come with their keys.
    pub fn new(input: Box<dyn Operator>) -> RecordId {
        RecordId {
            input,
            stats: OpStats::default(),
        }
    }
}

impl Operator for RecordId {
    fn pull(&mut self, cx: &ExecContext, sink: Sink<'_>) -> Result<Pulled> {
        let RecordId { input, stats } = self;
        let by_record = cx.collection.is_by_record();
        let pulled = input.pull(cx, &mut |row| {
            let mut doc = row.doc.to_owned();
            doc.push("$recordId", record_id(row.key, by_record));
            stats.advanced += 1;
            sink(RowRef { doc: &doc, ..row })
        })?;
        stats.ended = pulled == Pulled::End;
        Ok(pulled)
    }

    fn stats(&self) -> OpStats {
        self.stats
    }

    fn inputs(&self) -> Vec<&dyn Operator> {
        vec![&*self.input]
    }

    fn name(&self, _: &Describer<'_>) -> Option<&'static str> {
        None
    }

    fn describe(&self, _: &mut DocBuf, _: &Describer<'_>) {}
}

/// The record id of a document, from its key. Where documents are stored by `_id`, the number is computed from that,
/// and is always the same for a document.
pub fn record_id(key: &[u8], by_record: bool) -> i64 {
    let record = record_of_key(key).filter(|_| by_record);
    record.unwrap_or_else(|| (xxh3_64(key) >> 1) as i64)
}
