//! The settings of the TTL monitor's batches.

use std::time::Duration;

use frond_store::TtlLimits;

/// The batches in which expired documents are deleted, under the names of MongoDB's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TtlBatches {
    /// `ttlMonitorBatchDeletes`
    pub enabled: bool,
    /// `ttlIndexDeleteTargetDocs`; 0 is no limit.
    pub documents: u64,
    /// `ttlIndexDeleteTargetTimeMS`; 0 is no limit.
    pub time_ms: u64,
    /// `ttlMonitorSubPassTargetSecs`
    pub sub_pass_secs: u64,
    /// `ttlMonitorSharePercent`
    pub share: u64,
}

impl TtlBatches {
    /// The limits of a batch.
    pub fn limits(&self) -> TtlLimits {
        let share = u32::try_from(self.share).unwrap_or(100);
        if !self.enabled {
            return TtlLimits {
                commit_documents: 1,
                share,
                ..TtlLimits::NONE
            };
        }
        TtlLimits {
            documents: self.documents,
            time: Duration::from_millis(self.time_ms),
            share,
            ..TtlLimits::NONE
        }
    }
}

impl Default for TtlBatches {
    fn default() -> TtlBatches {
        TtlBatches {
            enabled: true,
            documents: 50_000,
            time_ms: 1000,
            sub_pass_secs: 60,
            share: 100,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_batches_each_document_is_deleted_by_itself_and_no_limit_ends_an_index() {
        let mut batches = TtlBatches {
            documents: 7,
            share: 30,
            ..TtlBatches::default()
        };
        let limits = batches.limits();
        assert_eq!((limits.documents, limits.time.as_millis()), (7, 1000));
        assert_eq!(
            (limits.commit_documents, limits.share),
            (TtlLimits::NONE.commit_documents, 30)
        );
        batches.enabled = false;
        let limits = batches.limits();
        assert_eq!((limits.documents, limits.time.as_millis()), (0, 0));
        assert_eq!((limits.commit_documents, limits.share), (1, 30));
    }
}
