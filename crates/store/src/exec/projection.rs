//! Projections: the fields of its documents that a query returns.

use frond_bson::{Doc, DocBuf, FieldFinder, Value};
use frond_query::projection::Projection as Shape;

use super::describe::Describer;
use super::operator::{ExecContext, Inputs, Operator, Pulled, RowRef, Sink};
use super::stats::OperatorStats;
use frond_storage::error::Result;

pub struct Projection {
    shape: Shape,
    /// Whether the rows of the input are made of index entries.
    covered: bool,
    /// The last document, whose memory the next one takes.
    buffer: DocBuf,
    /// Finds the only field that is kept.
    only: Option<FieldFinder>,
}

/// A buffer that a larger document has left is not kept: a cursor may be idle for long.
const BUFFER_BYTES_MAX: usize = 64 << 10;

impl Projection {
    /// Applies `shape` to each row; `covered` if rows are made of index entries.
    pub fn new(shape: Shape, covered: bool) -> Projection {
        let only = shape.only_field();
        Projection {
            only: only.map(|name| FieldFinder::new(vec![name.into()])),
            shape,
            covered,
            buffer: DocBuf::new(),
        }
    }
}

/// Whether a projection only names top-level fields.
fn is_simple(projection: &Doc) -> bool {
    projection.iter().all(|(name, value)| {
        !name.contains('.') && (value.is_number() || matches!(value, Value::Bool(_)))
    })
}

impl Operator for Projection {
    fn pull(
        &mut self,
        cx: &ExecContext,
        inputs: &mut Inputs,
        stats: &mut OperatorStats,
        sink: Sink<'_>,
    ) -> Result<Pulled> {
        let (shape, buffer, only) = (&self.shape, &mut self.buffer, &mut self.only);
        let pulled = inputs.pull(cx, &mut |row| {
            match only {
                Some(finder) => {
                    let mut found = [None];
                    finder.find(row.doc, &mut found);
                    buffer.clear();
                    found
                        .iter()
                        .flatten()
                        .for_each(|field| buffer.push_raw(field));
                }
                None => shape.apply_to(row.doc, row.meta, buffer)?,
            }
            stats.advanced += 1;
            sink(RowRef { doc: buffer, ..row })
        });
        if self.buffer.capacity() > BUFFER_BYTES_MAX {
            self.buffer = DocBuf::new();
        }
        pulled
    }

    fn name(&self, describer: &Describer<'_>) -> Option<&'static str> {
        Some(if self.covered {
            "PROJECTION_COVERED"
        } else if is_simple(describer.projection) {
            "PROJECTION_SIMPLE"
        } else {
            "PROJECTION_DEFAULT"
        })
    }

    fn describe(&self, stage: &mut DocBuf, _: &OperatorStats, describer: &Describer<'_>) {
        describer
            .budget
            .push(stage, "transformBy", describer.projection);
    }
}

/// `returnKey`: returns the fields of the index that led to each row, empty if none did.
pub struct ReturnKey;

impl Operator for ReturnKey {
    fn pull(
        &mut self,
        cx: &ExecContext,
        inputs: &mut Inputs,
        stats: &mut OperatorStats,
        sink: Sink<'_>,
    ) -> Result<Pulled> {
        inputs.pull(cx, &mut |row| {
            stats.advanced += 1;
            let doc = row.index_key.unwrap_or(Doc::empty());
            sink(RowRef { doc, ..row })
        })
    }

    fn name(&self, _: &Describer<'_>) -> Option<&'static str> {
        Some("RETURN_KEY")
    }
}
