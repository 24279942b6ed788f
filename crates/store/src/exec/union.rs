//! Rows of several inputs, one input after the other.

use frond_bson::DocBuf;

use super::describe::{Describer, count};
use super::operator::{ExecContext, Flow, OpStats, Operator, Pulled, Sink};
use super::seen::Seen;
use crate::error::Result;

/// The union of its inputs; a document that several of them find is returned once.
pub struct Union {
    inputs: Vec<Box<dyn Operator>>,
    /// How many inputs, from the first on, have reached their end.
    ended: usize,
    seen: Seen,
    stats: OpStats,
}

impl Union {
    /// The union of these inputs, in this order.
    pub fn new(inputs: Vec<Box<dyn Operator>>) -> Union {
        Union {
            inputs,
            ended: 0,
            seen: Seen::default(),
            stats: OpStats::default(),
        }
    }
}

impl Operator for Union {
    fn pull(&mut self, cx: &ExecContext, sink: Sink<'_>) -> Result<Pulled> {
        while let Some(input) = self.inputs.get_mut(self.ended) {
            let (seen, stats) = (&mut self.seen, &mut self.stats);
            let pulled = input.pull(cx, &mut |row| {
                if !seen.is_new(row.key, stats)? {
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
        Ok(self.stats.end())
    }

    fn stats(&self) -> OpStats {
        self.stats
    }

    fn inputs(&self) -> Vec<&dyn Operator> {
        self.inputs.iter().map(|input| &**input).collect()
    }

    fn name(&self, _: &Describer<'_>) -> Option<&'static str> {
        Some("OR")
    }

    fn describe(&self, stage: &mut DocBuf, describer: &Describer<'_>) {
        if describer.executed {
            stage.push("dupsTested", count(self.stats.dups_tested));
            stage.push("dupsDropped", count(self.stats.dups_dropped));
        }
    }
}
