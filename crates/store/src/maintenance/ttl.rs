//! Deletes the documents that have expired by `expireAfterSeconds`.
//!
//! A document expires this many seconds after the date in its indexed field, or after the earliest of an array of
//! dates. One without a date never expires. The expired dates are one range of the index. The same option of a
//! collection applies to the date in `_id` of a clustered collection, or to the time of a measurement. Where it is partitioned by that time, whole
//! partitions are dropped; otherwise the measurements are scanned if there is no index on the time.
//!
//! # Batches
//!
//! A batch collects primary keys from the oldest entries of the range on, without their documents, and sorts them. Then
//! `write/expire.rs` deletes the documents in the order of their keys: documents that were inserted together are read
//! together, though the index has them in the order of their dates. The next batch continues behind the last entry, so that it
//! does not pass by the deleted ones again; the next pass begins at the oldest entry.

mod backlog;
mod source;

use std::time::Duration;

use crate::store::DocumentStore;
use crate::write::expire::{Expiry, Pace, interrupt};
use frond_storage::context::OpContext;
use frond_storage::error::{Error, Result};
use frond_storage::keyspace::COMMIT_DOCUMENTS_MAX;
use frond_storage::namespace::Namespace;

pub use backlog::TtlBacklog;
pub use source::Expiring;

/// Documents whose keys are collected at a time.
const KEYS_MAX: usize = 50_000;
/// The least number, where a batch ends before it has deleted all.
const KEYS_MIN: usize = 1000;
/// The documents of a commit, if the limits of its size allow: it makes one write where inserts make several, and writers
/// wait in turn when the engine is behind.
const COMMIT_DOCUMENTS: usize = 4 * COMMIT_DOCUMENTS_MAX;
/// Bytes of such keys.
const KEY_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The limits of a batch.
#[derive(Clone, Copy, Debug)]
pub struct TtlLimits {
    /// Documents to delete; 0 sets no limit.
    pub documents: u64,
    /// The time after which no further commit begins; zero sets no limit.
    pub time: Duration,
    /// Documents in one commit.
    pub commit_documents: usize,
    /// The part of the time in which each thread works, in percent. It pauses for the rest.
    pub share: u32,
    /// Threads that delete documents at the same time.
    pub threads: usize,
}

impl TtlLimits {
    pub const NONE: TtlLimits = TtlLimits {
        documents: 0,
        time: Duration::ZERO,
        commit_documents: COMMIT_DOCUMENTS,
        share: 100,
        threads: 1,
    };
}

/// The result of a batch.
#[derive(Debug)]
pub struct TtlBatch {
    pub deleted: u64,
    /// Whether a limit was reached, so that more documents may have expired.
    pub more: bool,
    /// The reason why it ended early. Earlier commits stay.
    pub error: Option<Error>,
}

/// The result of a pass over all TTL indexes.
#[derive(Debug, Default)]
pub struct TtlPass {
    pub deleted: u64,
    /// Indexes whose documents could not be deleted, with the reason.
    pub failed: Vec<(Namespace, String, Error)>,
}

impl DocumentStore {
    /// Deletes all documents that have expired, without limits. `now_ms` is the time in milliseconds since 1970.
    /// An error in one index does not stop the others. Documents that an open transaction has written are left for the next
    /// pass. The context interrupts its waits.
    pub fn delete_expired(&self, now_ms: i64, context: &OpContext) -> TtlPass {
        let mut pass = TtlPass::default();
        for mut expiring in self.expiring() {
            if context.check().is_err() {
                return pass;
            }
            let batch = self.delete_expired_batch(&mut expiring, now_ms, &TtlLimits::NONE, context);
            pass.deleted += batch.deleted;
            if let Some(error) = batch.error {
                pass.failed
                    .push((expiring.ns().clone(), expiring.name().to_owned(), error));
            }
        }
        pass
    }

    /// Deletes a batch of the documents that have expired by one index or option, and moves its position on. Documents that
    /// an open transaction has written are left for the next pass.
    pub fn delete_expired_batch(
        &self,
        expiring: &mut Expiring,
        now_ms: i64,
        limits: &TtlLimits,
        context: &OpContext,
    ) -> TtlBatch {
        let mut deleted = 0;
        let result = interrupt(context).run(|| {
            let mut pace = Pace::new(
                limits.documents,
                limits.time,
                limits.commit_documents,
                limits.share,
            );
            let threads = limits.threads;
            self.delete_batch(
                expiring,
                now_ms,
                (&mut pace, threads),
                context,
                &mut deleted,
            )
        });
        TtlBatch {
            deleted,
            more: matches!(result, Ok(true)),
            error: result.err(),
        }
    }

    /// Returns whether a limit was reached.
    fn delete_batch(
        &self,
        expiring: &mut Expiring,
        now_ms: i64,
        (pace, threads): (&mut Pace, usize),
        context: &OpContext,
        deleted: &mut u64,
    ) -> Result<bool> {
        loop {
            let Some((source, collection, snapshot)) = expiring.source(self.catalog(), now_ms)?
            else {
                return Ok(false);
            };
            if source.drops_partitions() {
                drop((collection, snapshot));
                let catalog = self.catalog();
                *deleted += catalog.drop_expired_partitions(expiring.ns(), source.until_ms())?;
                return Ok(false);
            }
            let left = usize::try_from(pace.documents_left()).unwrap_or(usize::MAX);
            let mut found = source.collect(
                &collection,
                &snapshot,
                expiring.position(),
                left.min(expiring.keys_wanted()),
                pace,
                context,
            )?;
            // Nothing keeps on disk what is deleted.
            drop((collection, snapshot));
            found.keys.sort();
            let expiry = Expiry {
                catalog: self.catalog(),
                ns: expiring.ns(),
                uuid: expiring.uuid(),
                filter: &source.filter,
                context,
            };
            let reached = expiry.delete(&found.keys, pace, threads, deleted)?;
            if reached < found.keys.len() {
                expiring.want_keys(reached);
                // In the order of an index, the keys that were not reached are anywhere among those that were found.
                if source.is_in_key_order() {
                    let last = found.keys.get(reached.saturating_sub(1));
                    expiring.continue_behind(last.map(<[u8]>::to_vec));
                }
                return Ok(true);
            }
            expiring.want_keys(2 * reached);
            expiring.continue_behind(found.position);
            if found.is_complete {
                return Ok(false);
            }
            if pace.is_over() {
                return Ok(true);
            }
        }
    }
}
