//! What a client pulls documents from.

use std::sync::Arc;

use frond_bson::{DocBuf, OwnedValue};
use frond_query::meta::{MetaField, MetaFields, Metadata};
use frond_query::projection::Projection;
use frond_query::sort::SortSpec;
use frond_query::spill::{Budget, Sorted, Spilled};

use super::access::{Executor, Row};
use super::tail::{Tail, record_id};
use super::{ExecStats, sort};
use crate::catalog::TailSignal;
use crate::context::OpContext;
use crate::error::Result;
use crate::namespace::Namespace;

/// Where a cursor's documents come from.
enum Rows {
    /// From a plan, in the order it finds them.
    Plan(Box<Executor>),
    /// From a plan that has still to be sorted.
    Unsorted(Box<Executor>, SortSpec, Budget),
    /// Sorted.
    Sorted(Sorted<Row>, ExecStats),
    /// From a capped collection, and what is inserted into it later.
    Tail(Box<Tail>),
    /// From an aggregation.
    Stream(Box<dyn DocStream>),
    /// No more.
    Done(ExecStats),
}

/// A source of documents that are not those of a plan: what an aggregation makes.
pub trait DocStream: Send {
    /// The next document.
    fn next(&mut self) -> Result<Option<DocBuf>>;

    /// Sets the limits for what follows.
    fn set_context(&mut self, context: OpContext);
}

/// How record ids are made.
#[derive(Clone, Copy)]
struct RecordIds {
    /// Whether keys are record ids.
    by_record: bool,
}

/// The result of a query: pulls documents when it is asked for them. It owns its snapshot, so that
/// it sees the collection as it was when it was opened.
pub struct QueryCursor {
    ns: Namespace,
    rows: Rows,
    skip: u64,
    /// Documents that may still be returned.
    remaining: Option<u64>,
    projection: Option<Projection>,
    /// Rows are returned as the fields of their index.
    returns_key: bool,
    /// Documents are shown with their record ids, which are, or are made from, their keys.
    record_ids: Option<RecordIds>,
    returned: u64,
    /// What the sort wrote to temporary files.
    spilled: Arc<Spilled>,
    /// The metadata of the last row, if some was asked for.
    meta: Option<Box<Metadata>>,
    /// What rows show as `$meta: "sortKey"`.
    sort_key: Option<SortSpec>,
}

impl QueryCursor {
    /// A cursor over the rows of a plan. `sort` is given if the plan does not sort.
    pub(crate) fn of_plan(
        ns: Namespace,
        executor: Executor,
        sort: Option<(SortSpec, Budget)>,
        skip: u64,
        limit: Option<u64>,
        projection: Option<Projection>,
    ) -> QueryCursor {
        let executor = Box::new(executor);
        let spilled = sort.as_ref().map(|(_, budget)| budget.spilled.clone());
        QueryCursor {
            spilled: spilled.unwrap_or_default(),
            ns,
            rows: match sort {
                Some((spec, budget)) => Rows::Unsorted(executor, spec, budget),
                None => Rows::Plan(executor),
            },
            skip,
            remaining: limit,
            projection,
            returns_key: false,
            record_ids: None,
            returned: 0,
            meta: None,
            sort_key: None,
        }
    }

    /// From here on rows are returned as the fields of the index that led to them, as `returnKey`
    /// asks; empty if none did. The projection is left out.
    pub(crate) fn returning_keys(mut self) -> QueryCursor {
        self.rows = match self.rows {
            Rows::Plan(executor) => Rows::Plan(Box::new(executor.with_index_keys())),
            Rows::Unsorted(executor, spec, budget) => {
                Rows::Unsorted(Box::new(executor.with_index_keys()), spec, budget)
            }
            other => other,
        };
        self.returns_key = true;
        self
    }

    /// From here on documents are shown with their record ids, as `showRecordId` asks.
    pub(crate) fn showing_record_ids(mut self, by_record: bool) -> QueryCursor {
        self.rows = match self.rows {
            Rows::Plan(executor) => Rows::Plan(Box::new(executor.with_keys())),
            Rows::Unsorted(executor, spec, budget) => {
                Rows::Unsorted(Box::new(executor.with_keys()), spec, budget)
            }
            Rows::Tail(tail) => Rows::Tail(Box::new(tail.with_keys())),
            other => other,
        };
        self.record_ids = Some(RecordIds { by_record });
        self
    }

    /// A tailable cursor.
    pub(crate) fn of_tail(
        ns: Namespace,
        tail: Tail,
        skip: u64,
        limit: Option<u64>,
        projection: Option<Projection>,
    ) -> QueryCursor {
        QueryCursor {
            rows: Rows::Tail(Box::new(tail)),
            skip,
            remaining: limit,
            projection,
            ..QueryCursor::empty(ns)
        }
    }

    /// Whether it may have more documents after it had none.
    pub fn is_tailable(&self) -> bool {
        matches!(self.rows, Rows::Tail(_)) && self.remaining != Some(0)
    }

    /// What tells of insertions that a tailable cursor has not seen, and how many it has.
    pub fn tail_signal(&self) -> Option<(Arc<TailSignal>, u64)> {
        match &self.rows {
            Rows::Tail(tail) => Some(tail.signal()),
            _ => None,
        }
    }

    /// From here on rows show what they are sorted by as `$meta: "sortKey"`, if that is asked for.
    pub(crate) fn with_meta(mut self, meta: MetaFields, sort: &SortSpec) -> QueryCursor {
        if meta.has(MetaField::SortKey) && !sort.is_empty() {
            self.sort_key = Some(sort.clone());
        }
        self
    }

    /// The metadata of the document that [`QueryCursor::next`] gave last, as far as it was asked for.
    pub(crate) fn meta(&self) -> Option<&Metadata> {
        self.meta.as_deref()
    }

    /// A cursor over documents of another source.
    pub(crate) fn of_stream(ns: Namespace, stream: Box<dyn DocStream>) -> QueryCursor {
        QueryCursor {
            ns,
            rows: Rows::Stream(stream),
            skip: 0,
            remaining: None,
            projection: None,
            returns_key: false,
            record_ids: None,
            returned: 0,
            spilled: Arc::default(),
            meta: None,
            sort_key: None,
        }
    }

    /// A cursor without documents.
    pub fn empty(ns: Namespace) -> QueryCursor {
        QueryCursor {
            ns,
            rows: Rows::Done(ExecStats::default()),
            skip: 0,
            remaining: None,
            projection: None,
            returns_key: false,
            record_ids: None,
            returned: 0,
            spilled: Arc::default(),
            meta: None,
            sort_key: None,
        }
    }

    /// The collection.
    pub fn ns(&self) -> &Namespace {
        &self.ns
    }

    /// Sets the limits for what follows: each `getMore` has its own.
    pub fn set_context(&mut self, context: OpContext) {
        match &mut self.rows {
            Rows::Plan(executor) | Rows::Unsorted(executor, ..) => executor.set_context(context),
            Rows::Stream(stream) => stream.set_context(context),
            Rows::Tail(tail) => tail.set_context(context),
            Rows::Sorted(..) | Rows::Done(_) => {}
        }
    }

    /// Documents returned so far.
    pub fn returned(&self) -> u64 {
        self.returned
    }

    /// What the sort has written to temporary files so far.
    pub fn spilled(&self) -> &Spilled {
        &self.spilled
    }

    /// What was looked at so far.
    pub fn stats(&self) -> ExecStats {
        match &self.rows {
            Rows::Plan(executor) | Rows::Unsorted(executor, ..) => executor.stats(),
            Rows::Sorted(_, stats) | Rows::Done(stats) => *stats,
            Rows::Stream(_) => ExecStats::default(),
            Rows::Tail(tail) => tail.stats(),
        }
    }

    /// The next document.
    ///
    /// # Errors
    /// `MaxTimeMSExpired` (50), `Interrupted` (11601), memory limits, errors of the query and the
    /// engine. After an error the cursor is at its end.
    #[expect(clippy::should_implement_trait, reason = "it can fail")]
    pub fn next(&mut self) -> Result<Option<DocBuf>> {
        let next = self.pull();
        match &next {
            Ok(Some(_)) => self.returned += 1,
            Ok(None) if self.is_tailable() => {}
            Ok(None) | Err(_) => self.rows = Rows::Done(self.stats()),
        }
        next
    }

    fn pull(&mut self) -> Result<Option<DocBuf>> {
        if self.remaining == Some(0) {
            return Ok(None);
        }
        loop {
            let row = match &mut self.rows {
                Rows::Done(_) => return Ok(None),
                Rows::Stream(stream) => {
                    // Skip, limit and projection are stages of the stream.
                    return stream.next();
                }
                Rows::Plan(executor) => executor.next_row()?,
                Rows::Tail(tail) => tail.next_row()?,
                Rows::Sorted(rows, _) => rows.next()?.map(|(_, row)| row),
                Rows::Unsorted(executor, spec, budget) => {
                    let limit = self
                        .remaining
                        .map(|limit| limit.saturating_add(self.skip))
                        .map(|rows| usize::try_from(rows).unwrap_or(usize::MAX));
                    let rows = sort::sort(executor, spec, limit, budget.clone())?;
                    let stats = executor.stats();
                    self.rows = Rows::Sorted(rows, stats);
                    continue;
                }
            };
            let Some(mut row) = row else { return Ok(None) };
            if self.skip > 0 {
                self.skip -= 1;
                continue;
            }
            if let Some(remaining) = &mut self.remaining {
                *remaining -= 1;
            }
            if self.returns_key {
                return Ok(Some(row.index_key.unwrap_or_default()));
            }
            if let Some(mut meta) = row.meta.take() {
                if let Some(spec) = &self.sort_key {
                    let values = spec.values(&row.doc, Some(&meta))?;
                    meta.sort_key = Some(OwnedValue::Array(values.into_docbuf()));
                }
                self.meta = Some(meta);
            }
            let mut doc = match &self.projection {
                Some(projection) => {
                    projection.apply_with(&row.doc, row.positional, self.meta.as_deref())?
                }
                None => row.doc,
            };
            if let Some(RecordIds { by_record }) = self.record_ids {
                doc.push("$recordId", record_id(&row.key, by_record));
            }
            return Ok(Some(doc));
        }
    }
}

/// Documents in memory as a stream.
pub struct Listed(std::vec::IntoIter<DocBuf>);

impl Listed {
    /// These documents.
    pub fn new(docs: Vec<DocBuf>) -> Listed {
        Listed(docs.into_iter())
    }
}

impl DocStream for Listed {
    fn next(&mut self) -> Result<Option<DocBuf>> {
        Ok(self.0.next())
    }

    fn set_context(&mut self, _: OpContext) {}
}
