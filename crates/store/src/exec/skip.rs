//! Skipping the first rows.

use frond_bson::DocBuf;

use super::describe::{Describer, count};
use super::operator::{ExecContext, Flow, Inputs, Operator, Pulled, Sink};
use super::stats::OperatorStats;
use frond_storage::error::Result;

/// Drops the first rows of its input.
pub struct Skip {
    rows: u64,
    /// Rows that are still to be dropped.
    left: u64,
}

impl Skip {
    /// Drops `rows` rows.
    pub fn new(rows: u64) -> Skip {
        Skip { rows, left: rows }
    }
}

impl Operator for Skip {
    fn pull(
        &mut self,
        cx: &ExecContext,
        inputs: &mut Inputs,
        stats: &mut OperatorStats,
        sink: Sink<'_>,
    ) -> Result<Pulled> {
        let left = &mut self.left;
        inputs.pull(cx, &mut |row| {
            if *left > 0 {
                *left -= 1;
                return Ok(Flow::Continue);
            }
            stats.advanced += 1;
            sink(row)
        })
    }

    fn name(&self, _: &Describer<'_>) -> Option<&'static str> {
        Some("SKIP")
    }

    fn describe(&self, stage: &mut DocBuf, _: &OperatorStats, _: &Describer<'_>) {
        stage.push("skipAmount", count(self.rows));
    }
}
