//! Rows of several inputs, one input after the other.

use frond_bson::DocBuf;

use super::describe::{Describer, count};
use super::operator::{ExecContext, Flow, Inputs, Operator, Pulled, Sink};
use super::seen::Seen;
use super::stats::OperatorStats;
use frond_storage::error::Result;

/// The union of its inputs; a document that several of them find is returned once.
#[derive(Default)]
pub struct Union {
    /// The number of ended inputs at the front.
    ended: usize,
    seen: Seen,
}

impl Operator for Union {
    fn pull(
        &mut self,
        cx: &ExecContext,
        inputs: &mut Inputs,
        stats: &mut OperatorStats,
        sink: Sink<'_>,
    ) -> Result<Pulled> {
        let seen = &mut self.seen;
        while self.ended < inputs.count() {
            let pulled = inputs.pull_from(self.ended, cx, &mut |row| {
                if !seen.is_new(cx, row.key, stats)? {
                    return Ok(Flow::Continue);
                }
                stats.advanced += 1;
                sink(row)
            })?;
            if pulled == Pulled::Paused {
                return Ok(pulled);
            }
            self.ended += 1;
        }
        *seen = Seen::default();
        Ok(Pulled::End)
    }

    fn name(&self, _: &Describer<'_>) -> Option<&'static str> {
        Some("OR")
    }

    fn describe(&self, stage: &mut DocBuf, stats: &OperatorStats, describer: &Describer<'_>) {
        if describer.executed {
            stage.push("dupsTested", count(stats.dups_tested));
            stage.push("dupsDropped", count(stats.dups_dropped));
        }
    }
}
