//! The documents of the rows that an index found.

use frond_bson::DocBuf;

use super::describe::{Describer, Part, count};
use super::operator::{ExecContext, Inputs, OpStats, Operator, Pulled, Sink};
use super::reader::Reader;
use crate::error::{Result, corrupt};

/// Reads the document of each row and tests it.
pub struct Fetch {
    reader: Reader,
    /// Which conditions the reader tests, for `explain`.
    part: Part,
}

impl Fetch {
    /// Reads the documents of the rows of `input`; `part` says what `reader` tests.
    pub fn new(reader: Reader, part: Part) -> Fetch {
        Fetch { reader, part }
    }
}

impl Operator for Fetch {
    fn pull(
        &mut self,
        cx: &ExecContext,
        inputs: &mut Inputs,
        stats: &mut OpStats,
        sink: Sink<'_>,
    ) -> Result<Pulled> {
        let reader = &self.reader;
        inputs.pull(cx, &mut |row| match row.record {
            // A branch of a union has fetched and tested it.
            Some(_) if !row.doc.is_empty() => {
                stats.advanced += 1;
                sink(row)
            }
            Some(record) => {
                stats.already_read += 1;
                reader.read(cx, row, record, stats, sink)
            }
            None => {
                let record = cx.snapshot().get(cx.collection.primary, row.key)?;
                let record = record.ok_or_else(|| {
                    corrupt("an entry of an index leads to no document; run validate")
                })?;
                reader.read(cx, row, &record, stats, sink)
            }
        })
    }

    fn name(&self, _: &Describer<'_>) -> Option<&'static str> {
        Some("FETCH")
    }

    fn describe(&self, stage: &mut DocBuf, stats: &OpStats, describer: &Describer<'_>) {
        describer.push_filter(stage, &self.part);
        if describer.executed {
            stage.push("docsExamined", count(stats.docs_examined));
            stage.push("alreadyHasObj", count(stats.already_read));
        }
    }
}
