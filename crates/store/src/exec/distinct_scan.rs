//! The distinct values of a field of an index: reads one entry for each value, and skips the others.

use std::sync::Arc;

use frond_bson::{DocBuf, key};
use frond_query::matcher::Filter;

use super::describe::{Describer, Part, count};
use super::index_scan::{damaged, orphan, parts_of};
use super::key_scan::{KeyScan, Step};
use super::operator::{ExecContext, Flow, Inputs, Operator, Pulled, RowRef, Sink};
use super::reader::Reader;
use super::stats::OperatorStats;
use crate::plan::IndexAccess;
use frond_storage::error::Result;
use frond_storage::index::covered;
use frond_storage::index::spec::IndexSpec;
use frond_storage::keyspace::{Direction, Snapshot, TreeId, after_prefix};

/// Entries with equal values that are skipped one by one before the scan seeks: a step is a few times cheaper.
const STEPS_BEFORE_SEEK: u32 = 4;

/// Reads the first passing entry for each value of one field.
pub struct DistinctScan {
    scan: KeyScan,
    access: Arc<IndexAccess>,
    /// The position of the field; the fields before it have one value.
    position: usize,
    /// Conditions on the fields of the entry.
    filter: Option<Arc<Filter>>,
    /// Reads documents whose field is null or missing.
    reader: Reader,
    /// The prefix of the entries with the last value returned; empty before the first one.
    last: Vec<u8>,
    /// The number of skipped entries with this prefix.
    repeated: u32,
}

impl DistinctScan {
    /// A scan for the values of the field at `position`.
    pub fn new(
        access: Arc<IndexAccess>,
        position: usize,
        filter: Option<Arc<Filter>>,
        reader: Reader,
    ) -> DistinctScan {
        DistinctScan {
            scan: KeyScan::new(access.key_range()),
            access,
            position,
            filter,
            reader,
            last: Vec::new(),
            repeated: 0,
        }
    }
}

/// Where the fields up to and with the one at `position` end, and where that one begins.
fn ends_at(spec: &IndexSpec, fields: &[u8], position: usize) -> Option<(usize, usize)> {
    let (mut start, mut end) = (0, 0);
    for field in spec.fields.iter().take(position + 1) {
        start = end;
        end += key::skip(fields.get(start..)?, field.direction)?;
    }
    Some((start, end))
}

impl Operator for DistinctScan {
    fn pull(
        &mut self,
        cx: &ExecContext,
        _: &mut Inputs,
        stats: &mut OperatorStats,
        sink: Sink<'_>,
    ) -> Result<Pulled> {
        let DistinctScan {
            scan,
            access,
            position,
            filter,
            reader,
            last,
            repeated,
        } = self;
        let index = &*access.index;
        let forward = access.direction == Direction::Forward;
        if stats.works == 0 {
            index.uses().add();
        }
        scan.for_each(cx, stats, |key, value, fields_end, stats| {
            if !last.is_empty() && key.starts_with(last) {
                *repeated += 1;
                let target = match (*repeated > STEPS_BEFORE_SEEK, forward) {
                    (false, _) => return Ok(Step::Next),
                    (true, true) => after_prefix(last),
                    // Every key is longer than this prefix, so this seeks to the keys below it.
                    (true, false) => Some(last.clone()),
                };
                return Ok(target.map_or(Step::Next, Step::Seek));
            }
            let parts = parts_of(index, key, value, fields_end)?;
            let doc = covered::key_document(&index.spec, &parts).ok_or_else(|| damaged(index))?;
            if let Some(filter) = filter
                && !filter.try_matches(&doc)?
            {
                return Ok(Step::Next);
            }
            let (start, end) =
                ends_at(&index.spec, parts.fields, *position).ok_or_else(|| damaged(index))?;
            let mut is_found = true;
            let row = RowRef::of_key(parts.id);
            let flow = if is_null(&index.spec, parts.fields.get(start..end), *position) {
                // Only the document shows whether the field is null or missing.
                let record = cx.snapshot().get(cx.collection.primary, parts.id)?;
                let record = record.ok_or_else(|| orphan(index))?;
                is_found = false;
                let path = &access.index.spec.fields;
                let path = path.get(*position).map_or("", |field| field.path.as_str());
                reader.read(cx, row, &record, stats, &mut |row| {
                    is_found = has_value(row.doc, path);
                    sink(row)
                })?
            } else {
                stats.advanced += 1;
                sink(RowRef { doc: &doc, ..row })?
            };
            if is_found {
                last.clear();
                last.extend_from_slice(key.get(..end).unwrap_or_default());
                *repeated = 0;
            }
            Ok(match flow {
                Flow::Continue => Step::Next,
                Flow::Pause => Step::Pause,
            })
        })
    }

    fn add_trees(&self, trees: &mut Vec<TreeId>) {
        trees.push(self.scan.tree());
    }

    fn continue_on(&mut self, snapshot: &Snapshot) {
        self.scan.continue_on(snapshot);
    }

    fn name(&self, _: &Describer<'_>) -> Option<&'static str> {
        Some("DISTINCT_SCAN")
    }

    fn describe(&self, stage: &mut DocBuf, stats: &OperatorStats, describer: &Describer<'_>) {
        describer.push_filter(stage, &Part::Keys(self.access.clone()));
        describer.push_index(stage, &self.access);
        describer.push_scan_stats(stage, stats);
        if describer.executed && stats.docs_examined > 0 {
            stage.push("docsExamined", count(stats.docs_examined));
        }
    }

    fn works(&self, stats: &OperatorStats, _: u64) -> u64 {
        stats.works
    }
}

/// Whether the bytes of a field are those of null.
fn is_null(spec: &IndexSpec, bytes: Option<&[u8]>, position: usize) -> bool {
    let Some(field) = spec.fields.get(position) else {
        return false;
    };
    let mut null = Vec::new();
    frond_bson::Collator::BINARY.encode_directed(
        &frond_bson::Value::Null,
        field.direction,
        &mut null,
    );
    bytes == Some(&null)
}

/// Whether a document has a value at a path without arrays.
fn has_value(doc: &frond_bson::Doc, path: &str) -> bool {
    let mut found = false;
    let path = frond_query::paths::Path::new(path);
    frond_query::paths::distinct_values(doc, &path, |_| found = true);
    found
}
