//! The blocking sort: all rows of a query, or the first few of them, in order.

use frond_bson::{Doc, DocBuf, Value};
use frond_error::Result as QueryResult;
use frond_query::memory::StageMemory;
use frond_query::meta::Metadata;
use frond_query::sort::SortSpec;
use frond_query::spill::{Budget, Record, Sorted, Sorter, key_prefix};

use super::describe::{Describer, count};
use super::operator::{ExecContext, Flow, Inputs, Operator, Pulled, Row, RowRef, Sink};
use super::stats::OperatorStats;
use crate::memory::make_room;
use frond_storage::error::Result;

/// Memory of one row beside its bytes.
const ROW_OVERHEAD_BYTES: usize = 56;

/// Rows that are only documents are few up to this many bytes, with their sort keys.
const FEW_BYTES_MAX: usize = 64 << 10;

/// The phase of a sort.
enum State {
    /// There are only few rows so far.
    ReadingFew(FewRows),
    Reading(Sorter<Row>),
    /// The number of the next row.
    GivingFew(FewRows, usize),
    Giving(Sorted<Row>),
    Done,
}

/// Few rows: their sort keys and documents in one buffer.
struct FewRows {
    bytes: Vec<u8>,
    rows: Vec<FewRow>,
    held: StageMemory,
}

/// The place of a row: its sort key, followed by its document.
struct FewRow {
    /// The first bytes of the key, which decide most comparisons.
    prefix: u64,
    key: usize,
    doc: usize,
    end: usize,
}

impl FewRow {
    fn key<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        bytes.get(self.key..self.doc).unwrap_or_default()
    }

    fn doc<'b>(&self, bytes: &'b [u8]) -> &'b Doc {
        Doc::from_trusted(bytes.get(self.doc..self.end).unwrap_or_default())
    }
}

impl FewRows {
    fn new(budget: &Budget) -> FewRows {
        FewRows {
            bytes: Vec::new(),
            rows: Vec::new(),
            held: budget.held(),
        }
    }

    /// Adds a row; false if it is more than a document, or does not fit.
    fn push(&mut self, key: &[u8], row: &RowRef<'_>) -> bool {
        let is_plain = row.index_key.is_none() && row.meta.is_none();
        let bytes = key.len() + row.doc.len_bytes();
        if !is_plain || self.held.bytes() + bytes + ROW_OVERHEAD_BYTES > FEW_BYTES_MAX {
            return false;
        }
        make_room(&mut self.bytes, bytes);
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(row.doc.as_bytes());
        self.rows.push(FewRow {
            prefix: key_prefix(key),
            key: start,
            doc: start + key.len(),
            end: start + bytes,
        });
        // A stage always has this much.
        self.held.add(bytes + ROW_OVERHEAD_BYTES);
        true
    }

    /// Hands the rows over to a sorter.
    fn into_sorter(self, mut sorter: Sorter<Row>) -> Result<Sorter<Row>> {
        for row in &self.rows {
            let whole = RowRef {
                doc: row.doc(&self.bytes),
                ..RowRef::of_key(&[])
            };
            sorter.push(row.key(&self.bytes).to_vec(), whole.to_row(false))?;
        }
        Ok(sorter)
    }

    /// Puts the rows in order; those with equal keys keep theirs.
    fn sort(&mut self) {
        let bytes = &self.bytes;
        self.rows.sort_unstable_by(|a, b| {
            let keys = || a.key(bytes).cmp(b.key(bytes)).then(a.key.cmp(&b.key));
            a.prefix.cmp(&b.prefix).then_with(keys)
        });
    }
}

/// Pulls all rows and returns the first `limit` of them in order, all if there is no limit. With a limit, no more than
/// `limit` rows are held at any time; beyond the budget they go to temporary files.
pub struct Sort {
    spec: SortSpec,
    limit: Option<u64>,
    budget: Budget,
    keeps_keys: bool,
    state: State,
    /// Bytes of the documents that were sorted.
    sorted_bytes: u64,
}

impl Sort {
    /// Sorts the rows of `input`; they keep their keys if `keeps_keys`.
    pub fn new(spec: SortSpec, limit: Option<u64>, budget: Budget, keeps_keys: bool) -> Sort {
        let rows = limit.map(|rows| usize::try_from(rows).unwrap_or(usize::MAX));
        Sort {
            spec,
            limit,
            state: match limit {
                Some(0) => State::Done,
                None if !keeps_keys && budget.bytes_max >= FEW_BYTES_MAX => {
                    State::ReadingFew(FewRows::new(&budget))
                }
                _ => State::Reading(Sorter::new(budget.clone(), rows)),
            },
            budget,
            keeps_keys,
            sorted_bytes: 0,
        }
    }
}

impl Operator for Sort {
    fn pull(
        &mut self,
        cx: &ExecContext,
        inputs: &mut Inputs,
        stats: &mut OperatorStats,
        sink: Sink<'_>,
    ) -> Result<Pulled> {
        let Sort {
            spec,
            keeps_keys,
            state,
            sorted_bytes,
            budget,
            ..
        } = self;
        if matches!(state, State::ReadingFew(_) | State::Reading(_)) {
            let mut key = Vec::new();
            let pulled = inputs.pull(cx, &mut |row| {
                spec.key_with(row.doc, row.meta, &mut key)?;
                if let State::ReadingFew(few) = state {
                    if few.push(&key, &row) {
                        *sorted_bytes += row.doc.len_bytes() as u64;
                        return Ok(Flow::Continue);
                    }
                    if let State::ReadingFew(few) = std::mem::replace(state, State::Done) {
                        let sorter = few.into_sorter(Sorter::new(budget.clone(), None))?;
                        *state = State::Reading(sorter);
                    }
                }
                if let State::Reading(sorter) = state
                    && sorter.wants(&key)
                {
                    *sorted_bytes += row.doc.len_bytes() as u64;
                    sorter.push(key.clone(), row.to_row(*keeps_keys))?;
                }
                Ok(Flow::Continue)
            })?;
            if pulled == Pulled::Paused {
                return Ok(pulled);
            }
            *state = match std::mem::replace(state, State::Done) {
                State::ReadingFew(mut few) => {
                    few.sort();
                    State::GivingFew(few, 0)
                }
                State::Reading(sorter) => State::Giving(sorter.finish()?),
                other => other,
            };
        }
        if let State::GivingFew(few, next) = state {
            while let Some(row) = few.rows.get(*next) {
                *next += 1;
                stats.advanced += 1;
                let row = RowRef {
                    doc: row.doc(&few.bytes),
                    ..RowRef::of_key(&[])
                };
                if sink(row)? == Flow::Pause {
                    return Ok(Pulled::Paused);
                }
            }
            *state = State::Done;
        }
        if let State::Giving(rows) = state {
            while let Some((_, row)) = rows.next()? {
                stats.advanced += 1;
                if sink(row.as_ref())? == Flow::Pause {
                    return Ok(Pulled::Paused);
                }
            }
            *state = State::Done;
        }
        Ok(Pulled::End)
    }

    fn name(&self, _: &Describer<'_>) -> Option<&'static str> {
        Some("SORT")
    }

    fn describe(&self, stage: &mut DocBuf, _: &OperatorStats, describer: &Describer<'_>) {
        describer.budget.push(stage, "sortPattern", describer.sort);
        stage.push("memLimit", count(self.budget.bytes_max as u64));
        if let Some(limit) = self.limit {
            stage.push("limitAmount", count(limit));
        }
        stage.push("type", "simple");
        if describer.executed {
            let spilled = &self.budget.spilled;
            stage.push("totalDataSizeSorted", count(self.sorted_bytes));
            stage.push("usedDisk", spilled.times() > 0);
            stage.push("spills", count(spilled.times()));
            stage.push("spilledDataStorageSize", count(spilled.bytes()));
        }
    }

    fn has_read_all(&self) -> bool {
        !matches!(self.state, State::ReadingFew(_) | State::Reading(_))
    }

    fn works(&self, stats: &OperatorStats, inputs: u64) -> u64 {
        // One for the turn from reading to giving.
        inputs + 1 + stats.advanced
    }
}

impl Record for Row {
    fn memory_bytes(&self) -> usize {
        let index_key = self.index_key.as_ref().map_or(0, |key| key.len_bytes());
        let meta = self.meta.as_ref().map_or(0, |meta| meta.len_bytes());
        let stored = self.stored.as_ref().map_or(0, Vec::len);
        self.doc.len_bytes() + self.key.len() + stored + index_key + meta + ROW_OVERHEAD_BYTES
    }

    /// The optional parts of a row as a document, whose field names show which of them there are.
    fn write(&self, out: &mut Vec<u8>) {
        let mut parts = DocBuf::with_capacity(self.memory_bytes());
        parts.push("doc", &self.doc);
        let binary = |bytes| Value::Binary { subtype: 0, bytes };
        if !self.key.is_empty() {
            parts.push("key", binary(&self.key));
        }
        if let Some(stored) = &self.stored {
            parts.push("stored", binary(stored));
        }
        if let Some(index_key) = &self.index_key {
            parts.push("indexKey", index_key);
        }
        if let Some(meta) = &self.meta {
            parts.push("meta", &meta.to_doc());
        }
        out.extend_from_slice(parts.as_bytes());
    }

    fn read(bytes: &[u8]) -> QueryResult<Row> {
        let parts = DocBuf::from_vec_trusted(bytes.to_vec());
        let part = |name| parts.get_doc(name).map(ToOwned::to_owned);
        Ok(Row {
            key: parts.get_binary("key").unwrap_or_default().to_vec(),
            stored: parts.get_binary("stored").map(<[u8]>::to_vec),
            doc: part("doc").unwrap_or_default(),
            index_key: part("indexKey"),
            meta: parts
                .get_doc("meta")
                .map(|meta| Box::new(Metadata::from_doc(meta))),
        })
    }
}
