//! Counting rows.

use frond_bson::{DocBuf, doc};

use super::describe::{self, Describer};
use super::operator::{ExecContext, Flow, Inputs, Operator, Pulled, RowRef, Sink};
use super::stats::OperatorStats;
use frond_storage::error::Result;

/// Counts the rows of its input, and returns one row: `{n: …}`.
pub struct Count {
    skip: u64,
    limit: Option<u64>,
    /// Rows pulled so far, with those skipped.
    met: u64,
}

impl Count {
    /// Counts the rows after the first `skip` ones, and at most `limit`.
    pub fn new(skip: u64, limit: Option<u64>) -> Count {
        Count {
            skip,
            limit,
            met: 0,
        }
    }
}

impl Operator for Count {
    fn pull(
        &mut self,
        cx: &ExecContext,
        inputs: &mut Inputs,
        _: &mut OperatorStats,
        sink: Sink<'_>,
    ) -> Result<Pulled> {
        let Count { skip, limit, met } = self;
        let most = limit.map_or(u64::MAX, |limit| limit.saturating_add(*skip));
        if *met < most {
            let pulled = inputs.pull(cx, &mut |_| {
                *met += 1;
                Ok(if *met < most {
                    Flow::Continue
                } else {
                    Flow::Pause
                })
            })?;
            if pulled == Pulled::Paused && *met < most {
                return Ok(pulled);
            }
        }
        let found = met.saturating_sub(*skip);
        let n = i64::try_from(found).unwrap_or(i64::MAX);
        sink(RowRef {
            doc: &doc! {"n": n},
            ..RowRef::of_key(&[])
        })?;
        Ok(Pulled::End)
    }

    fn name(&self, _: &Describer<'_>) -> Option<&'static str> {
        Some("COUNT")
    }

    fn describe(&self, stage: &mut DocBuf, _: &OperatorStats, describer: &Describer<'_>) {
        if describer.executed {
            let found = self.met.saturating_sub(self.skip);
            stage.push("nCounted", describe::count(found));
            stage.push("nSkipped", describe::count(self.met.min(self.skip)));
        }
    }
}

/// The count that the collection keeps. Returns one row, as [`Count`].
pub struct RecordCount {
    documents: u64,
    skip: u64,
    limit: Option<u64>,
}

impl RecordCount {
    /// The count of a collection with `documents` documents.
    pub fn new(documents: u64, skip: u64, limit: Option<u64>) -> RecordCount {
        RecordCount {
            documents,
            skip,
            limit,
        }
    }

    fn counted(&self) -> u64 {
        let behind = self.documents.saturating_sub(self.skip);
        behind.min(self.limit.unwrap_or(u64::MAX))
    }
}

impl Operator for RecordCount {
    fn pull(
        &mut self,
        _: &ExecContext,
        _: &mut Inputs,
        _: &mut OperatorStats,
        sink: Sink<'_>,
    ) -> Result<Pulled> {
        let n = i64::try_from(self.counted()).unwrap_or(i64::MAX);
        sink(RowRef {
            doc: &doc! {"n": n},
            ..RowRef::of_key(&[])
        })?;
        Ok(Pulled::End)
    }

    fn name(&self, _: &Describer<'_>) -> Option<&'static str> {
        Some("RECORD_STORE_FAST_COUNT")
    }

    fn describe(&self, stage: &mut DocBuf, _: &OperatorStats, describer: &Describer<'_>) {
        if describer.executed {
            stage.push("nCounted", describe::count(self.counted()));
            stage.push("nSkipped", describe::count(self.documents.min(self.skip)));
        }
    }
}
