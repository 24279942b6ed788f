//! Skipping the first rows.

use frond_bson::DocBuf;

use super::describe::{Describer, count};
use super::operator::{ExecContext, Flow, OpStats, Operator, Pulled, Sink};
use crate::error::Result;

/// Drops the first rows of its input.
pub struct Skip {
    input: Box<dyn Operator>,
    rows: u64,
    /// Rows that are still to be dropped.
    left: u64,
    stats: OpStats,
}

impl Skip {
    /// Drops `rows` rows.
    pub fn new(input: Box<dyn Operator>, rows: u64) -> Skip {
        Skip {
            input,
            rows,
            left: rows,
            stats: OpStats::default(),
        }
    }
}

impl Operator for Skip {
    fn pull(&mut self, cx: &ExecContext, sink: Sink<'_>) -> Result<Pulled> {
        let Skip {
            input, left, stats, ..
        } = self;
        let pulled = input.pull(cx, &mut |row| {
            if *left > 0 {
                *left -= 1;
                return Ok(Flow::Continue);
            }
            stats.advanced += 1;
            sink(row)
        })?;
        stats.ended = pulled == Pulled::End;
        Ok(pulled)
    }

    fn stats(&self) -> OpStats {
        self.stats
    }

    fn inputs(&self) -> Vec<&dyn Operator> {
        vec![&*self.input]
    }

    fn name(&self, _: &Describer<'_>) -> Option<&'static str> {
        Some("SKIP")
    }

    fn describe(&self, stage: &mut DocBuf, _: &Describer<'_>) {
        stage.push("skipAmount", count(self.rows));
    }
}
