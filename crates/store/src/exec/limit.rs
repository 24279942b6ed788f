//! The first rows only.

use frond_bson::DocBuf;

use super::describe::{Describer, count};
use super::operator::{ExecContext, Flow, Inputs, Operator, Pulled, Sink};
use super::stats::OperatorStats;
use frond_storage::error::Result;

/// Ends after a number of rows of its input.
pub struct Limit {
    rows: u64,
}

impl Limit {
    /// Ends after `rows` rows.
    pub fn new(rows: u64) -> Limit {
        Limit { rows }
    }
}

impl Operator for Limit {
    fn pull(
        &mut self,
        cx: &ExecContext,
        inputs: &mut Inputs,
        stats: &mut OperatorStats,
        sink: Sink<'_>,
    ) -> Result<Pulled> {
        let rows = self.rows;
        if stats.advanced >= rows {
            return Ok(Pulled::End);
        }
        let pulled = inputs.pull(cx, &mut |row| {
            stats.advanced += 1;
            let flow = sink(row)?;
            Ok(if stats.advanced < rows {
                flow
            } else {
                Flow::Pause
            })
        })?;
        if pulled == Pulled::End || stats.advanced >= rows {
            return Ok(Pulled::End);
        }
        Ok(pulled)
    }

    fn name(&self, _: &Describer<'_>) -> Option<&'static str> {
        Some("LIMIT")
    }

    fn describe(&self, stage: &mut DocBuf, _: &OperatorStats, _: &Describer<'_>) {
        stage.push("limitAmount", count(self.rows));
    }
}
