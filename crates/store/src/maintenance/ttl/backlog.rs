//! The documents that have expired and are still there.

use super::source::Expiring;
use crate::store::DocumentStore;
use frond_storage::context::OpContext;
use frond_storage::error::Result;

/// Entries that are counted one by one. More are estimated.
const ENTRIES_COUNTED: u64 = 10_000;

/// The state of an index by which documents expire, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TtlBacklog {
    /// Documents that have expired: counted up to 10,000, estimated above that. A document with an array of dates counts for
    /// each of them.
    pub documents: u64,
    /// The time at which the document with the oldest date expires or expired, in milliseconds since 1970.
    pub oldest_expires_ms: Option<i64>,
}

impl DocumentStore {
    /// The backlog of an index behind the position of its pass. `None` for a time series without an index on its time, whose
    /// documents would have to be read.
    ///
    /// More than 10,000 documents are estimated: the part of the index's leaves that hold expired dates, times the documents of
    /// the collection. Neither reads a leaf.
    ///
    /// # Errors
    /// Errors of the engine, the limits of the context.
    pub fn ttl_backlog(
        &self,
        expiring: &Expiring,
        now_ms: i64,
        context: &OpContext,
    ) -> Result<Option<TtlBacklog>> {
        let Some((source, collection, snapshot)) = expiring.source(self.catalog(), now_ms)? else {
            return Ok(None);
        };
        let (Some(expired), Some(dates)) = (source.expired(&collection), source.dates(&collection))
        else {
            return Ok(None);
        };
        let mut backlog = TtlBacklog::default();
        if let Some((key, _)) = dates.cursor(&snapshot, expiring.position())?.next()? {
            let age_ms = source.seconds.saturating_mul(1000);
            backlog.oldest_expires_ms = source.date(key).map(|date| date.saturating_add(age_ms));
        }
        let is_due = |at: &i64| *at <= now_ms;
        if !backlog.oldest_expires_ms.as_ref().is_some_and(is_due) {
            return Ok(Some(backlog));
        }
        let mut cursor = expired.cursor(&snapshot, expiring.position())?;
        while backlog.documents < ENTRIES_COUNTED && cursor.next()?.is_some() {
            backlog.documents += 1;
            if backlog.documents.is_multiple_of(1024) {
                context.check()?;
            }
        }
        if backlog.documents < ENTRIES_COUNTED {
            return Ok(Some(backlog));
        }
        let leaves = self.catalog().engine().tree_stats(expired.tree).leaves;
        let (lower, upper) = expired.keys(expiring.position());
        let most = usize::try_from(leaves).unwrap_or(usize::MAX);
        let with_expired = snapshot.leaf_bounds(expired.tree, &lower, upper.as_deref(), most)?;
        if leaves > 0 {
            let part = with_expired.len() as f64 / leaves as f64;
            let documents = collection.counts().documents.max(0) as f64;
            backlog.documents = ((documents * part) as u64).max(ENTRIES_COUNTED);
        }
        Ok(Some(backlog))
    }
}
