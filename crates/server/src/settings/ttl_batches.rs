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
    /// `ttlMonitorMaxThreads`
    pub threads_max: u64,
}

/// The monitor adds a thread each time the backlog gets older by this many of its pauses.
const PAUSES_OF_A_THREAD: u64 = 2;
/// It adds none sooner than this, so that short pauses do not start threads at once.
const SECONDS_OF_A_THREAD_MIN: u64 = 10;

impl TtlBatches {
    /// Returns the number of threads for an index, by the age of its oldest expired document. The scheduler divides processor time
    /// among threads, so one thread falls behind busy clients, and several get a larger part. An operator who sets a share below
    /// 100 percent bounds the work, so a single thread has to do.
    pub fn threads(&self, oldest_expired_secs: u64, sleep_secs: u64) -> usize {
        if self.share < 100 || !self.enabled {
            return 1;
        }
        let of_a_thread = (PAUSES_OF_A_THREAD * sleep_secs).max(SECONDS_OF_A_THREAD_MIN);
        let threads = (1 + oldest_expired_secs / of_a_thread).min(self.threads_max);
        usize::try_from(threads).unwrap_or(1).max(1)
    }

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
            threads_max: 4,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_added_as_the_backlog_gets_older() {
        let batches = TtlBatches::default();
        for (age, sleep, threads) in [
            (0, 60, 1),
            (119, 60, 1),
            (120, 60, 2),
            (400, 60, 4),
            (90_000, 60, 4),
            (9, 1, 1),
            (10, 1, 2),
            (30, 1, 4),
            (u64::MAX, 1, 4),
        ] {
            assert_eq!(batches.threads(age, sleep), threads, "{age} {sleep}");
        }
        let bounded = TtlBatches {
            share: 99,
            ..batches
        };
        assert_eq!(bounded.threads(1000, 1), 1);
        let single = TtlBatches {
            threads_max: 1,
            ..batches
        };
        assert_eq!(single.threads(1000, 1), 1);
    }

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
