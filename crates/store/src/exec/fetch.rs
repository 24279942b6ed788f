//! The documents of the rows that an index found.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use frond_bson::DocBuf;

use super::describe::{Describer, Part, count};
use super::operator::{ExecContext, Flow, Inputs, Operator, Pulled, Row, RowRef, Sink};
use super::reader::Reader;
use super::stats::OperatorStats;
use frond_storage::error::{Result, corrupt};
use frond_storage::keyspace::TreeId;

/// Rows whose documents are read from a cluster with one request: of the first one, and of the others.
const CLUSTER_ROWS: RangeInclusive<usize> = 128..=512;

/// Rows whose documents are read from a device side by side. More would only take more of the cache.
pub(super) const DEVICE_ROWS: RangeInclusive<usize> = 8..=64;

/// A pull reads documents ahead once this many rows had to wait for the device.
pub(super) const DEVICE_WAITS: u32 = 2;

/// Reads the document of each row and tests it.
///
/// The embedded engine reads a document when its row comes, unless the documents are on the device: then those of several rows are read side
/// by side. From a cluster the documents of many rows are read with one request. The rows wait here until there are enough.
pub struct Fetch {
    reader: Reader,
    /// Which conditions the reader tests, for `explain`.
    part: Part,
    /// Rows whose documents were read ahead.
    waiting: VecDeque<Waiting>,
    /// The number of rows of the next request; 0 before the first one.
    rows: usize,
    /// Whether documents of an embedded engine are read ahead.
    is_on_device: bool,
    has_ended: bool,
    /// Whether the input has paused by itself.
    is_paused: bool,
}

/// A row that waits.
struct Waiting {
    row: Row,
    record: Option<Vec<u8>>,
    order: Vec<u8>,
}

impl Fetch {
    /// Reads the documents of the rows of `input`; `part` says what `reader` tests.
    pub fn new(reader: Reader, part: Part) -> Fetch {
        Fetch {
            reader,
            part,
            waiting: VecDeque::new(),
            rows: 0,
            is_on_device: false,
            has_ended: false,
            is_paused: false,
        }
    }

    /// As [`Operator::pull`], a row at a time. `None` once the documents prove to be on the device.
    fn pull_each(
        &self,
        cx: &ExecContext,
        inputs: &mut Inputs,
        stats: &mut OperatorStats,
        sink: Sink<'_>,
    ) -> Result<Option<Pulled>> {
        let (mut waits, mut is_on_device) = (0, false);
        let snapshot = cx.snapshot();
        let pulled = inputs.pull(cx, &mut |row| {
            let before = snapshot.waits_of_thread();
            let flow = hand_on(&self.reader, cx, row, stats, sink)?;
            waits += u32::from(snapshot.waits_of_thread() != before);
            is_on_device = waits >= DEVICE_WAITS && flow == Flow::Continue;
            Ok(if is_on_device { Flow::Pause } else { flow })
        })?;
        Ok((!is_on_device).then_some(pulled))
    }

    /// As [`Operator::pull`], but gathers rows and reads their documents together. `rows` has the least and the greatest number of rows.
    fn pull_ahead(
        &mut self,
        cx: &ExecContext,
        inputs: &mut Inputs,
        rows: RangeInclusive<usize>,
        stats: &mut OperatorStats,
        sink: Sink<'_>,
    ) -> Result<Pulled> {
        loop {
            while let Some(waiting) = self.waiting.pop_front() {
                let row = RowRef {
                    record: waiting.record.as_deref(),
                    order: &waiting.order,
                    ..waiting.row.as_ref()
                };
                if hand_on(&self.reader, cx, row, stats, sink)? == Flow::Pause {
                    return Ok(Pulled::Paused);
                }
            }
            if self.has_ended {
                return Ok(Pulled::End);
            }
            if std::mem::take(&mut self.is_paused) {
                return Ok(Pulled::Paused);
            }
            self.rows = (self.rows * 2).clamp(*rows.start(), *rows.end());
            let (waiting, rows) = (&mut self.waiting, self.rows);
            let pulled = inputs.pull(cx, &mut |row| {
                waiting.push_back(Waiting {
                    row: row.to_row(true),
                    record: row.record.map(<[u8]>::to_vec),
                    order: row.order.to_vec(),
                });
                Ok(if waiting.len() >= rows {
                    Flow::Pause
                } else {
                    Flow::Continue
                })
            })?;
            self.has_ended = pulled == Pulled::End;
            self.is_paused = pulled == Pulled::Paused && self.waiting.len() < rows;
            let wanted: Vec<(TreeId, &[u8])> = (self.waiting.iter())
                .filter(|waiting| waiting.record.is_none())
                .map(|waiting| (cx.collection.primary, waiting.row.key.as_slice()))
                .collect();
            cx.snapshot().prefetch(&wanted)?;
        }
    }
}

/// Hands a row on with its document.
#[inline]
fn hand_on(
    reader: &Reader,
    cx: &ExecContext,
    row: RowRef<'_>,
    stats: &mut OperatorStats,
    sink: Sink<'_>,
) -> Result<Flow> {
    match row.record {
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
            let record = cx.snapshot().get_expected(cx.collection.primary, row.key)?;
            let record = record.ok_or_else(|| {
                corrupt("an entry of an index leads to no document; run validate")
            })?;
            reader.read(cx, row, &record, stats, sink)
        }
    }
}

impl Operator for Fetch {
    fn pull(
        &mut self,
        cx: &ExecContext,
        inputs: &mut Inputs,
        stats: &mut OperatorStats,
        sink: Sink<'_>,
    ) -> Result<Pulled> {
        if cx.snapshot().gathers_reads() {
            return self.pull_ahead(cx, inputs, CLUSTER_ROWS, stats, sink);
        }
        if !self.is_on_device {
            match self.pull_each(cx, inputs, stats, sink)? {
                Some(pulled) => return Ok(pulled),
                None => self.is_on_device = true,
            }
        }
        self.pull_ahead(cx, inputs, DEVICE_ROWS, stats, sink)
    }

    fn name(&self, _: &Describer<'_>) -> Option<&'static str> {
        Some("FETCH")
    }

    fn describe(&self, stage: &mut DocBuf, stats: &OperatorStats, describer: &Describer<'_>) {
        describer.push_filter(stage, &self.part);
        if describer.executed {
            stage.push("docsExamined", count(stats.docs_examined));
            stage.push("alreadyHasObj", count(stats.already_read));
        }
    }
}
