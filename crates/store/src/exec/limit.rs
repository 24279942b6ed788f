//! The first rows only.

use frond_bson::DocBuf;

use super::describe::{Describer, count};
use super::operator::{ExecContext, Flow, OpStats, Operator, Pulled, Sink};
use crate::error::Result;

/// Ends after a number of rows of its input.
pub struct Limit {
    input: Box<dyn Operator>,
    rows: u64,
    stats: OpStats,
}

impl Limit {
    /// Ends after `rows` rows.
    pub fn new(input: Box<dyn Operator>, rows: u64) -> Limit {
        Limit {
            input,
            rows,
            stats: OpStats::default(),
        }
    }
}

impl Operator for Limit {
    fn pull(&mut self, cx: &ExecContext, sink: Sink<'_>) -> Result<Pulled> {
        let Limit { input, rows, stats } = self;
        if stats.advanced >= *rows {
            return Ok(stats.end());
        }
        let pulled = input.pull(cx, &mut |row| {
            stats.advanced += 1;
            let flow = sink(row)?;
            Ok(match stats.advanced < *rows {
                true => flow,
                false => Flow::Pause,
            })
        })?;
        if pulled == Pulled::End || stats.advanced >= *rows {
            return Ok(stats.end());
        }
        Ok(pulled)
    }

    fn stats(&self) -> OpStats {
        self.stats
    }

    fn inputs(&self) -> Vec<&dyn Operator> {
        vec![&*self.input]
    }

    fn name(&self, _: &Describer<'_>) -> Option<&'static str> {
        Some("LIMIT")
    }

    fn describe(&self, stage: &mut DocBuf, _: &Describer<'_>) {
        stage.push("limitAmount", count(self.rows));
    }
}
