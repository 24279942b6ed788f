//! The documents of the rows that an index found.

use frond_bson::DocBuf;

use super::describe::{Describer, Part, count};
use super::operator::{ExecContext, OpStats, Operator, Pulled, Sink};
use super::reader::Reader;
use crate::error::{Result, corrupt};

/// Reads the document of each row and tests it.
pub struct Fetch {
    input: Box<dyn Operator>,
    reader: Reader,
    /// Which conditions the reader tests, for `explain`.
    part: Part,
    stats: OpStats,
}

impl Fetch {
    /// Reads the documents of the rows of `input`; `part` says what `reader` tests.
    pub fn new(input: Box<dyn Operator>, reader: Reader, part: Part) -> Fetch {
        Fetch {
            input,
            reader,
            part,
            stats: OpStats::default(),
        }
    }
}

impl Operator for Fetch {
    fn pull(&mut self, cx: &ExecContext, sink: Sink<'_>) -> Result<Pulled> {
        let Fetch {
            input,
            reader,
            stats,
            ..
        } = self;
        let pulled = input.pull(cx, &mut |row| match row.record {
            Some(record) => {
                stats.already_read += 1;
                reader.read(cx, row, record, stats, sink)
            }
            None => {
                let record = cx.snapshot.get(cx.collection.primary, row.key)?;
                let record = record.ok_or_else(|| {
                    corrupt("an entry of an index leads to no document; run validate")
                })?;
                reader.read(cx, row, &record, stats, sink)
            }
        })?;
        if pulled == Pulled::End {
            stats.end();
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
        Some("FETCH")
    }

    fn describe(&self, stage: &mut DocBuf, describer: &Describer<'_>) {
        describer.push_filter(stage, &self.part);
        if describer.executed {
            stage.push("docsExamined", count(self.stats.docs_examined));
            stage.push("alreadyHasObj", count(self.stats.already_read));
        }
    }
}
