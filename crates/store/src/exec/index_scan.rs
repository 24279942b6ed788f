//! The entries of an index inside its bounds.

use std::sync::Arc;

use frond_bson::{Doc, DocBuf};
use frond_query::matcher::Filter;

use super::describe::{Describer, Part, count};
use super::key_scan::KeyScan;
use super::operator::{ExecContext, Flow, Inputs, Operator, Pulled, RowRef, Sink};
use super::reader::Reader;
use super::seen::Seen;
use super::stats::OperatorStats;
use crate::plan::IndexAccess;
use crate::plan::merge::OrderPart;
use frond_storage::error::{Error, Result, corrupt};
use frond_storage::index::entry::{self, EntryParts};
use frond_storage::index::{Index, covered};
use frond_storage::keyspace::{Snapshot, TreeId};

/// The rows that a scan makes of the entries inside the bounds.
pub enum Emit {
    /// Keys of documents, for a fetch or a count. Entries whose fields do not pass the filter are left out.
    Keys(Option<Arc<Filter>>),
    /// Documents made of the fields of the entries; where these do not suffice, the document is read.
    Covered(Reader),
    /// The documents that lie in the entries of a clustering index.
    Clustered(Reader),
}

/// Reads entries, and drops those of documents seen before.
pub struct IndexScan {
    scan: KeyScan,
    access: Arc<IndexAccess>,
    emit: Emit,
    /// Which conditions are tested on the entries, for `explain`.
    part: Part,
    seen: Option<Seen>,
    /// Whether rows come with the fields of their entry.
    shows_key: bool,
    /// The sort key that rows come with, for a merge.
    order: Vec<OrderPart>,
    /// Whether rows are only counted.
    counts: bool,
}

impl IndexScan {
    /// A scan of the entries inside the bounds of `access`; `part` says what `emit` tests.
    pub fn new(access: Arc<IndexAccess>, emit: Emit, part: Part) -> IndexScan {
        IndexScan {
            scan: KeyScan::new(access.key_range()),
            seen: access.may_repeat.then(Seen::default),
            access,
            emit,
            part,
            shows_key: false,
            order: Vec::new(),
            counts: false,
        }
    }

    /// From here on rows come with the fields of their entry.
    pub fn showing_keys(mut self) -> IndexScan {
        self.shows_key = true;
        self
    }

    /// From here on rows come with a sort key for a merge.
    pub fn ordered_by(mut self, order: Vec<OrderPart>) -> IndexScan {
        self.order = order;
        self
    }

    /// From here on a document comes once for each of its entries: what is above removes duplicates.
    pub fn with_duplicates(mut self) -> IndexScan {
        self.seen = None;
        self
    }

    /// `explain` shows that the rows are only counted.
    pub fn counting(mut self) -> IndexScan {
        self.counts = true;
        self
    }
}

/// Splits an entry of `index` into its parts.
pub(super) fn parts_of<'a>(
    index: &Index,
    key: &'a [u8],
    value: &'a [u8],
    fields_end: usize,
) -> Result<EntryParts<'a>> {
    let end = if index.spec.unique {
        key.len()
    } else {
        fields_end
    };
    entry::split_at(&index.spec, key, value, end).ok_or_else(|| damaged(index))
}

impl Operator for IndexScan {
    fn pull(
        &mut self,
        cx: &ExecContext,
        _: &mut Inputs,
        stats: &mut OperatorStats,
        sink: Sink<'_>,
    ) -> Result<Pulled> {
        let IndexScan {
            scan,
            access,
            emit,
            seen,
            shows_key,
            order,
            ..
        } = self;
        let index = &*access.index;
        if stats.works == 0 {
            index.uses().add();
        }
        let mut order_bytes = Vec::new();
        let pulled = scan.for_each(cx, stats, |key, value, fields_end, stats| {
            let parts = parts_of(index, key, value, fields_end)?;
            if let Some(seen) = seen
                && !seen.is_new(cx, parts.id, stats)?
            {
                return Ok(Flow::Continue.into());
            }
            let mut row = RowRef::of_key(parts.id);
            // The operators above need not look the document up.
            row.record = index.spec.primary.then_some(value);
            let shown;
            if *shows_key {
                shown = if index.spec.primary {
                    covered::fields_of(&index.spec, Doc::from_trusted(value))
                } else {
                    covered::fields_document(&index.spec, parts.fields, parts.lost)
                        .ok_or_else(|| damaged(index))?
                };
                row.index_key = Some(&shown);
            }
            if !order.is_empty() {
                OrderPart::write(order, &index.spec, &parts, &mut order_bytes)
                    .ok_or_else(|| damaged(index))?;
                row.order = &order_bytes;
            }
            let flow = match emit {
                Emit::Keys(None) => {
                    stats.advanced += 1;
                    sink(row)?
                }
                Emit::Keys(Some(filter)) => {
                    let doc = covered::key_document(&index.spec, &parts);
                    if filter.try_matches(&doc.ok_or_else(|| damaged(index))?)? {
                        stats.advanced += 1;
                        sink(row)?
                    } else {
                        Flow::Continue
                    }
                }
                Emit::Clustered(reader) => {
                    let doc = parts.doc.ok_or_else(|| damaged(index))?;
                    reader.test(RowRef { doc, ..row }, stats, sink)?
                }
                Emit::Covered(reader) => match rebuild(cx, index, &parts)? {
                    Some(doc) => reader.test(RowRef { doc: &doc, ..row }, stats, sink)?,
                    None => {
                        let record = cx.snapshot().get(cx.collection.primary, parts.id)?;
                        let record = record.ok_or_else(|| orphan(index))?;
                        reader.read(cx, row, &record, stats, sink)?
                    }
                },
            };
            Ok(flow.into())
        })?;
        if pulled == Pulled::End {
            *seen = None;
        }
        Ok(pulled)
    }

    fn add_trees(&self, trees: &mut Vec<TreeId>) {
        trees.push(self.scan.tree());
    }

    fn continue_on(&mut self, snapshot: &Snapshot) {
        self.scan.continue_on(snapshot);
    }

    fn name(&self, _: &Describer<'_>) -> Option<&'static str> {
        Some(if self.counts { "COUNT_SCAN" } else { "IXSCAN" })
    }

    fn describe(&self, stage: &mut DocBuf, stats: &OperatorStats, describer: &Describer<'_>) {
        describer.push_filter(stage, &self.part);
        describer.push_index(stage, &self.access);
        describer.push_scan_stats(stage, stats);
        if describer.executed && stats.docs_examined > 0 {
            // A field that is null in its entry may be missing from the document.
            stage.push("docsExamined", count(stats.docs_examined));
        }
    }

    fn works(&self, stats: &OperatorStats, _: u64) -> u64 {
        stats.works
    }
}

/// The document made of an entry. `None` if a field is null: then only the stored document shows whether it is null or
/// missing.
fn rebuild(cx: &ExecContext, index: &Index, parts: &EntryParts<'_>) -> Result<Option<DocBuf>> {
    let doc = covered::document(&index.spec, parts, cx.collection.is_by_record());
    doc.ok_or_else(|| damaged(index))
}

#[cold]
pub(super) fn damaged(index: &Index) -> Error {
    corrupt(format!("an entry of index '{}'", index.spec.name))
}

#[cold]
pub(super) fn orphan(index: &Index) -> Error {
    corrupt(format!(
        "an entry of index '{}' leads to no document; run validate",
        index.spec.name
    ))
}
