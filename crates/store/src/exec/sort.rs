//! The blocking sort: all rows of a query, or the first few of them, in order.

use frond_bson::{DocBuf, Value};
use frond_query::error::Result as QueryResult;
use frond_query::meta::Metadata;
use frond_query::sort::SortSpec;
use frond_query::spill::{Budget, Record, Sorted, Sorter};

use super::access::{Executor, Row};
use crate::error::Result;

/// What one row costs beside its bytes.
const ROW_OVERHEAD_BYTES: usize = 56;

/// Pulls all rows and gives the first `limit` of them in order, all if there is no limit. With a
/// limit, no more than `limit` rows are held at any time; beyond the budget they go to disk.
///
/// # Errors
/// 292 beyond the budget if nothing may be written; errors of the executor.
pub fn sort(
    executor: &mut Executor,
    spec: &SortSpec,
    limit: Option<usize>,
    budget: Budget,
) -> Result<Sorted<Row>> {
    let mut sorter = Sorter::new(budget, limit);
    let mut key = Vec::new();
    if limit != Some(0) {
        while let Some(row) = executor.next_row()? {
            spec.key_with(&row.doc, row.meta.as_deref(), &mut key)?;
            if sorter.wants(&key) {
                sorter.push(key.clone(), row)?;
            }
        }
    }
    Ok(sorter.finish()?)
}

impl Record for Row {
    fn memory_bytes(&self) -> usize {
        let index_key = self.index_key.as_ref().map_or(0, |key| key.len_bytes());
        let meta = self.meta.as_ref().map_or(0, |meta| meta.len_bytes());
        let stored = self.stored.as_ref().map_or(0, Vec::len);
        self.doc.len_bytes() + self.key.len() + stored + index_key + meta + ROW_OVERHEAD_BYTES
    }

    /// A document of the parts, so that it says itself which there are.
    fn write(&self, out: &mut Vec<u8>) {
        let mut parts = DocBuf::with_capacity(self.memory_bytes());
        parts.push("doc", &self.doc);
        let binary = |bytes| Value::Binary { subtype: 0, bytes };
        if !self.key.is_empty() {
            parts.push("key", binary(&self.key));
        }
        if let Some(stored) = &self.stored {
            parts.push("stored", binary(stored));
        }
        if let Some(position) = self.positional {
            parts.push("positional", position as i64);
        }
        if let Some(index_key) = &self.index_key {
            parts.push("indexKey", index_key);
        }
        if let Some(meta) = &self.meta {
            parts.push("meta", &meta.to_doc());
        }
        out.extend_from_slice(parts.as_bytes());
    }

    fn read(bytes: &[u8]) -> QueryResult<Row> {
        let parts = DocBuf::from_vec_trusted(bytes.to_vec());
        let part = |name| parts.get_doc(name).map(ToOwned::to_owned);
        Ok(Row {
            key: parts.get_binary("key").unwrap_or_default().to_vec(),
            stored: parts.get_binary("stored").map(<[u8]>::to_vec),
            doc: part("doc").unwrap_or_default(),
            positional: parts
                .get_i64("positional")
                .and_then(|position| usize::try_from(position).ok()),
            index_key: part("indexKey"),
            meta: parts
                .get_doc("meta")
                .map(|meta| Box::new(Metadata::from_doc(meta))),
        })
    }
}
