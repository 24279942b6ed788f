//! The blocking sort: all rows of a query, or the first few of them, in order.

use std::collections::BinaryHeap;

use frond_query::error::ErrorCode;
use frond_query::sort::SortSpec;

use super::access::{Executor, Row};
use crate::error::{Result, command};

/// Most memory of one sort, in bytes.
pub const SORT_BYTES_MAX: usize = 100 * 1024 * 1024;
/// What one row costs beside its bytes.
const ROW_OVERHEAD_BYTES: usize = 120;

/// A row and its place. Ordered by key, then by arrival, so that the sort is stable.
struct Keyed {
    key: Vec<u8>,
    arrival: u64,
    row: Row,
}

impl Keyed {
    fn bytes(&self) -> usize {
        let index_key = self.row.index_key.as_ref();
        let row = self.row.doc.len_bytes() + self.row.key.len();
        self.key.len() + row + index_key.map_or(0, |key| key.len_bytes()) + ROW_OVERHEAD_BYTES
    }
}

impl PartialEq for Keyed {
    fn eq(&self, other: &Keyed) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Keyed {}

impl PartialOrd for Keyed {
    fn partial_cmp(&self, other: &Keyed) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Keyed {
    fn cmp(&self, other: &Keyed) -> std::cmp::Ordering {
        (&self.key, self.arrival).cmp(&(&other.key, other.arrival))
    }
}

/// Pulls all rows and returns the first `limit` of them in order, all if there is no limit. With a
/// limit, no more than `limit` rows are held at any time.
///
/// # Errors
/// 292 above [`SORT_BYTES_MAX`]; errors of the executor.
pub fn sort(executor: &mut Executor, spec: &SortSpec, limit: Option<usize>) -> Result<Vec<Row>> {
    let mut heap: BinaryHeap<Keyed> = BinaryHeap::new();
    let mut bytes = 0;
    let mut arrival = 0;
    if limit == Some(0) {
        return Ok(Vec::new());
    }
    while let Some(row) = executor.next_row()? {
        arrival += 1;
        let keyed = Keyed {
            key: spec.key(&row.doc)?,
            arrival,
            row,
        };
        if limit.is_some_and(|limit| heap.len() >= limit) {
            match heap.peek() {
                Some(greatest) if keyed < *greatest => {
                    bytes -= greatest.bytes();
                    heap.pop();
                }
                _ => continue,
            }
        }
        bytes += keyed.bytes();
        if bytes > SORT_BYTES_MAX {
            return Err(command(
                ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed,
                format!(
                    "Executor error during find command :: caused by :: Sort exceeded memory limit \
                     of {SORT_BYTES_MAX} bytes, but did not opt in to external sorting."
                ),
            ));
        }
        heap.push(keyed);
    }
    let sorted = heap.into_sorted_vec();
    Ok(sorted.into_iter().map(|keyed| keyed.row).collect())
}
