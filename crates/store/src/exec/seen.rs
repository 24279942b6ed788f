//! Removal of duplicates: documents that several entries or several branches of a plan lead to.

use std::collections::HashSet;

use frond_error::ErrorCode;

use super::operator::ExecContext;
use super::stats::OperatorStats;
use crate::memory;
use frond_storage::error::{Result, command};
use frond_storage::keyspace::Reservation;

/// Maximum bytes that an operator keeps of the keys of documents seen.
const SEEN_BYTES_MAX: usize = 100 * 1024 * 1024;
/// Bytes of one kept key beside the key itself.
const SEEN_OVERHEAD_BYTES: usize = 48;

/// The keys of the documents seen so far.
#[derive(Default)]
pub struct Seen {
    keys: HashSet<Box<[u8]>>,
    bytes: usize,
    reserved: Option<Reservation>,
}

impl Seen {
    /// Whether the key is kept.
    pub fn has(&self, key: &[u8]) -> bool {
        self.keys.contains(key)
    }

    /// Whether the document with this key is new; keeps the key.
    ///
    /// # Errors
    /// `QueryExceededMemoryLimitNoDiskUseAllowed` (292) if too many are kept, `ExceededMemoryLimit` (146) if other
    /// operations have the memory.
    pub fn is_new(
        &mut self,
        cx: &ExecContext,
        key: &[u8],
        stats: &mut OperatorStats,
    ) -> Result<bool> {
        stats.dups_tested += 1;
        if self.keys.contains(key) {
            stats.dups_dropped += 1;
            return Ok(false);
        }
        self.bytes += key.len() + SEEN_OVERHEAD_BYTES;
        if self.bytes > SEEN_BYTES_MAX {
            return Err(command(
                ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed,
                format!(
                    "the query exceeded {SEEN_BYTES_MAX} bytes for recognising documents that it \
                     found twice"
                ),
            ));
        }
        let what = "recognising documents that the query found twice";
        memory::take(&mut self.reserved, cx.memory(), self.bytes, what)?;
        self.keys.insert(key.into());
        Ok(true)
    }
}
