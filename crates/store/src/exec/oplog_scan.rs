//! Entries of the oplog, as the documents that clients see.
//!
//! Conditions on fields that an entry has in its head are tested before its document is built, and a count builds only the
//! documents that other conditions need.

use std::sync::Arc;

use frond_bson::{DocBuf, Timestamp, Value};
use frond_query::matcher::{Expr, Filter};

use super::describe::{Describer, Part, count, direction_text};
use super::key_scan::{KeyScan, Step};
use super::operator::{ExecContext, Inputs, Operator, Pulled, RowRef, Sink};
use super::stats::OperatorStats;
use crate::plan::key_range::KeyRange;
use crate::plan::oplog::OplogAccess;
use crate::plan::{KeyInterval, residual};
use frond_oplog::entry::{RawEntry, document};
use frond_storage::error::{Result, corrupt};
use frond_storage::keyspace::{Snapshot, TreeId};

/// The term in the entries: that of a replica set which has had one election.
const TERM: i64 = 1;

/// The fields of the head of an entry.
const HEAD: [&str; 6] = ["ts", "op", "ns", "ui", "t", "v"];

/// Reads the oplog and tests its entries.
pub struct OplogScan {
    scan: KeyScan,
    access: OplogAccess,
    /// The conditions on the head.
    on_head: Option<Arc<Filter>>,
    on_document: Option<Arc<Filter>>,
    /// Whether the rows need documents.
    wants_documents: bool,
    /// Whether no timestamp is inside the bounds.
    is_empty: bool,
    /// The last entry examined, if a tailable cursor continues behind it.
    position: Option<Vec<u8>>,
    head: DocBuf,
}

/// The timestamp of a key.
pub fn time_of_key(key: &[u8]) -> Option<u64> {
    key.try_into().ok().map(u64::from_be_bytes)
}

/// The keys of an access.
fn interval(access: &OplogAccess) -> KeyInterval {
    let high = access.high.unwrap_or(u64::MAX).min(access.durable);
    KeyInterval {
        low: access.low.map(|low| low.to_be_bytes().to_vec()),
        high: high.checked_add(1).map(|end| end.to_be_bytes().to_vec()),
    }
}

/// Whether a condition is about fields of the head only.
fn is_on_head(condition: &Expr) -> bool {
    let required = Filter::of_conditions([condition]).required_fields();
    let mut paths = required.paths();
    !required.is_whole() && !required.is_none() && paths.all(|path| HEAD.contains(&path))
}

impl OplogScan {
    /// A scan that has not begun.
    pub fn new(access: OplogAccess, filter: &Arc<Filter>, wants_documents: bool) -> OplogScan {
        let range = KeyRange {
            tree: access.tree,
            fields: Vec::new(),
            interval: interval(&access),
            direction: access.direction,
            partitions: None,
        };
        OplogScan {
            scan: KeyScan::new(range).of_collection(),
            access,
            on_head: residual::part(filter, is_on_head),
            on_document: residual::part(filter, |condition| !is_on_head(condition)),
            wants_documents,
            is_empty: access.low.unwrap_or(0) > access.high.unwrap_or(u64::MAX).min(access.durable),
            position: None,
            head: DocBuf::new(),
        }
    }

    /// The same scan, behind an entry if there is one. It records its position.
    pub fn behind(mut access: OplogAccess, position: Option<u64>, filter: &Arc<Filter>) -> Self {
        if let Some(position) = position {
            let next = position.saturating_add(1);
            access.low = Some(access.low.map_or(next, |low| low.max(next)));
        }
        OplogScan {
            position: Some(Vec::new()),
            ..OplogScan::new(access, filter, true)
        }
    }

    /// The last entry examined, if the position is recorded and there was one.
    pub fn position(&self) -> Option<&[u8]> {
        self.position.as_deref().filter(|key| !key.is_empty())
    }
}

/// Fills in the head of an entry.
fn fill_head(head: &mut DocBuf, ts: u64, entry: &RawEntry<'_>) {
    head.clear();
    head.push("ts", Timestamp::from_u64(ts));
    head.push("op", entry.kind().op());
    head.push("ns", entry.ns());
    if let Some(uuid) = entry.uuid() {
        let (subtype, bytes) = (4, uuid.as_slice());
        head.push("ui", Value::Binary { subtype, bytes });
    }
    head.push("t", TERM);
    head.push("v", 2_i64);
}

impl Operator for OplogScan {
    fn pull(
        &mut self,
        cx: &ExecContext,
        _: &mut Inputs,
        stats: &mut OperatorStats,
        sink: Sink<'_>,
    ) -> Result<Pulled> {
        if self.is_empty {
            return Ok(Pulled::End);
        }
        let OplogScan {
            scan,
            on_head,
            on_document,
            wants_documents,
            position,
            head,
            ..
        } = self;
        scan.for_each(cx, stats, |key, value, _, stats| {
            cx.spend();
            stats.docs_examined += 1;
            if let Some(position) = position {
                position.clear();
                position.extend_from_slice(key);
            }
            let ts = time_of_key(key).ok_or_else(|| corrupt("a key of the oplog"))?;
            let entry = RawEntry::read(value)?;
            if let Some(filter) = &on_head {
                fill_head(head, ts, &entry);
                if !filter.try_matches(head)? {
                    return Ok(Step::Next);
                }
            }
            let row = RowRef::of_key(key);
            if on_document.is_none() && !*wants_documents {
                stats.advanced += 1;
                return Ok(sink(row)?.into());
            }
            let doc = document(ts, &entry, TERM)?;
            if let Some(filter) = &on_document
                && !filter.try_matches(&doc)?
            {
                return Ok(Step::Next);
            }
            stats.advanced += 1;
            Ok(sink(RowRef { doc: &doc, ..row })?.into())
        })
    }

    fn add_trees(&self, trees: &mut Vec<TreeId>) {
        trees.push(self.scan.tree());
    }

    fn continue_on(&mut self, snapshot: &Snapshot) {
        self.scan.continue_on(snapshot);
    }

    fn name(&self, _: &Describer<'_>) -> Option<&'static str> {
        Some("COLLSCAN")
    }

    fn describe(&self, stage: &mut DocBuf, stats: &OperatorStats, describer: &Describer<'_>) {
        describer.push_filter(stage, &Part::All);
        let record = |time: u64| Value::Int64(time.cast_signed());
        if let Some(low) = self.access.low {
            stage.push("minRecord", record(low));
        }
        if let Some(high) = self.access.high {
            stage.push("maxRecord", record(high));
        }
        stage.push("direction", direction_text(self.access.direction));
        if describer.executed {
            stage.push("docsExamined", count(stats.docs_examined));
        }
    }

    fn works(&self, stats: &OperatorStats, _: u64) -> u64 {
        stats.works
    }
}
