//! The cursor that a client pulls documents from.

use std::sync::Arc;

use frond_bson::{Doc, DocBuf};
use frond_query::aggregate::Groups;
use frond_query::meta::Metadata;
use frond_query::projection::Projection;
use frond_query::spill::Spilled;

use super::ExecStats;
use super::executor::Executor;
use super::operator::{Flow, Pulled, Row};
use super::record_id::record_id;
use super::tail::Tail;
use crate::memory::OperationMemory;
use crate::op_stats;
use crate::signal::TailSignal;
use frond_storage::context::OpContext;
use frond_storage::error::Result;
use frond_storage::namespace::Namespace;

/// Where a cursor's documents come from.
enum Rows {
    /// From the operators of a plan.
    Plan(Box<Executor>),
    /// From a capped collection, and what is inserted into it later.
    Tail(Box<Tail>, TailOutput),
    Stream(Box<dyn DocStream>),
    Done(ExecStats),
}

/// A source of documents that are not those of a plan: what an aggregation makes.
pub trait DocStream: Send {
    fn next(&mut self) -> Result<Option<DocBuf>>;

    /// Sets the limits for what follows.
    fn set_context(&mut self, context: OpContext);

    /// As [`QueryCursor::held_bytes`].
    fn held_bytes(&self) -> u64 {
        0
    }

    /// As [`QueryCursor::retained_bytes`].
    fn retained_bytes(&self) -> u64 {
        0
    }

    /// As [`QueryCursor::release_memory`].
    fn release_memory(&mut self) -> Result<()> {
        Ok(())
    }

    /// As [`QueryCursor::release_pages`].
    fn release_pages(&mut self) {}

    /// Called when nothing more is taken for now. If it fails, the documents since the last call must not be shown.
    fn rest(&mut self) -> Result<()> {
        Ok(())
    }

    /// As [`QueryCursor::stats`].
    fn stats(&self) -> ExecStats {
        ExecStats::default()
    }

    /// As [`QueryCursor::is_tailable`].
    fn is_tailable(&self) -> bool {
        false
    }

    /// As [`QueryCursor::tail_signal`].
    fn signal(&self) -> Option<(Arc<TailSignal>, u64)> {
        None
    }

    /// As [`QueryCursor::resume_token`].
    fn resume_token(&self) -> Option<DocBuf> {
        None
    }

    /// As [`QueryCursor::is_invalidated`].
    fn is_invalidated(&self) -> bool {
        false
    }
}

/// The result of a query: pulls documents when it is asked for them. It owns its snapshot, so that
/// it sees the collection as it was when it was opened.
pub struct QueryCursor {
    ns: Namespace,
    rows: Rows,
    returned: u64,
    /// The bytes that the sort wrote to temporary files.
    spilled: Arc<Spilled>,
    /// The memory of a plan; a stream counts its own.
    memory: Option<OperationMemory>,
    /// The metadata of the last row, if some was asked for.
    meta: Option<Box<Metadata>>,
    /// The token of a change stream that has ended with an `invalidate`.
    invalidated: Option<Box<DocBuf>>,
    /// Statistics that a tailable cursor has already reported.
    noted: ExecStats,
}

/// The conversion of a tailable cursor's rows.
pub(crate) struct TailOutput {
    /// Documents to pass over.
    pub skip: u64,
    /// Documents that may still be returned.
    pub remaining: Option<u64>,
    pub projection: Option<Projection>,
    /// Whether documents are shown with their record ids.
    pub shows_record_ids: bool,
}

impl QueryCursor {
    fn new(ns: Namespace, rows: Rows) -> QueryCursor {
        QueryCursor {
            ns,
            rows,
            returned: 0,
            spilled: Arc::default(),
            memory: None,
            meta: None,
            invalidated: None,
            noted: ExecStats::default(),
        }
    }

    /// A cursor over the rows of a plan. `spilled` is what its sort writes to.
    pub(crate) fn of_plan(
        ns: Namespace,
        executor: Executor,
        spilled: Option<Arc<Spilled>>,
        memory: OperationMemory,
    ) -> QueryCursor {
        QueryCursor {
            spilled: spilled.unwrap_or_default(),
            memory: Some(memory),
            ..QueryCursor::new(ns, Rows::Plan(Box::new(executor)))
        }
    }

    pub(crate) fn of_tail(ns: Namespace, tail: Tail, output: TailOutput) -> QueryCursor {
        QueryCursor::new(ns, Rows::Tail(Box::new(tail), output))
    }

    /// A cursor over documents of another source.
    pub(crate) fn of_stream(ns: Namespace, stream: Box<dyn DocStream>) -> QueryCursor {
        QueryCursor::new(ns, Rows::Stream(stream))
    }

    /// A cursor without documents.
    pub fn empty(ns: Namespace) -> QueryCursor {
        QueryCursor::new(ns, Rows::Done(ExecStats::default()))
    }

    /// Whether it may have more documents after it had none.
    pub fn is_tailable(&self) -> bool {
        match &self.rows {
            Rows::Tail(..) => true,
            Rows::Stream(stream) => stream.is_tailable(),
            Rows::Plan(_) | Rows::Done(_) => false,
        }
    }

    /// The signal of insertions that a tailable cursor has not seen, and the number of those it has. None if there is more to look at
    /// now: a change stream does not look at a long part of the oplog at once.
    pub fn tail_signal(&self) -> Option<(Arc<TailSignal>, u64)> {
        match &self.rows {
            Rows::Tail(tail, _) => Some(tail.signal()),
            Rows::Stream(stream) => stream.signal(),
            Rows::Plan(_) | Rows::Done(_) => None,
        }
    }

    /// Of a change stream, the token behind all documents that it has given: `postBatchResumeToken`. If the caller keeps the
    /// last document back, it is instead the `_id` of the document before that. None for other cursors.
    pub fn resume_token(&self) -> Option<DocBuf> {
        match &self.rows {
            Rows::Stream(stream) => stream.resume_token(),
            Rows::Done(_) => self.invalidated.as_deref().cloned(),
            Rows::Plan(_) | Rows::Tail(..) => None,
        }
    }

    /// Whether it is a change stream that has ended with an `invalidate`.
    pub fn is_invalidated(&self) -> bool {
        match &self.rows {
            Rows::Stream(stream) => stream.is_invalidated(),
            _ => self.invalidated.is_some(),
        }
    }

    /// The metadata of the document that [`QueryCursor::next`] gave last, as far as it was asked for.
    pub(crate) fn meta(&self) -> Option<&Metadata> {
        self.meta.as_deref()
    }

    pub fn ns(&self) -> &Namespace {
        &self.ns
    }

    /// Sets the limits for what follows: each `getMore` has its own.
    pub fn set_context(&mut self, context: OpContext) {
        match &mut self.rows {
            Rows::Plan(executor) => executor.set_context(context),
            Rows::Stream(stream) => stream.set_context(context),
            Rows::Tail(tail, _) => tail.set_context(context),
            Rows::Done(_) => {}
        }
    }

    /// Bytes of rows that it holds: sorted ones, groups.
    pub fn held_bytes(&self) -> u64 {
        match &self.rows {
            Rows::Stream(stream) => stream.held_bytes(),
            Rows::Plan(_) => self.memory.as_ref().map_or(0, OperationMemory::held),
            Rows::Tail(..) | Rows::Done(_) => 0,
        }
    }

    /// Bytes of flushed memtables that it keeps in memory. They can be the same for several cursors.
    pub fn retained_bytes(&self) -> u64 {
        match &self.rows {
            Rows::Plan(executor) => executor.retained_bytes(),
            Rows::Stream(stream) => stream.retained_bytes(),
            Rows::Tail(tail, _) => tail.retained_bytes(),
            Rows::Done(_) => 0,
        }
    }

    /// Moves memtables and sorted rows that it keeps in memory to disk, for a cursor that is idle while memory is scarce.
    /// Its results are the same.
    ///
    /// # Errors
    /// Errors of the engine. If there is no room on the disk the cursor keeps what it has, and can go on.
    pub fn release_memory(&mut self) -> Result<()> {
        match &mut self.rows {
            Rows::Plan(executor) => {
                executor.release_memory()?;
                Ok(self.spilled.spill_results()?)
            }
            Rows::Stream(stream) => stream.release_memory(),
            Rows::Tail(tail, _) => {
                tail.release_memory();
                Ok(())
            }
            Rows::Done(_) => Ok(()),
        }
    }

    /// Drops the pages that it reads, and reads them again when it goes on: for one that waits and has begun already.
    pub fn release_pages(&mut self) {
        match &mut self.rows {
            Rows::Plan(executor) => executor.release_pages(),
            Rows::Stream(stream) => stream.release_pages(),
            Rows::Tail(..) | Rows::Done(_) => {}
        }
    }

    /// Documents returned so far.
    pub fn returned(&self) -> u64 {
        self.returned
    }

    /// The bytes that the sort has written to temporary files so far.
    pub fn spilled(&self) -> &Spilled {
        &self.spilled
    }

    /// The counts of examined keys and documents so far.
    pub fn stats(&self) -> ExecStats {
        match &self.rows {
            Rows::Plan(executor) => executor.stats(),
            Rows::Done(stats) => *stats,
            Rows::Stream(stream) => stream.stats(),
            Rows::Tail(tail, _) => tail.stats(),
        }
    }

    /// The next document.
    ///
    /// # Errors
    /// `MaxTimeMSExpired` (50), `Interrupted` (11601), memory limits, errors of the query and the
    /// engine. After an error the cursor is at its end.
    #[expect(clippy::should_implement_trait, reason = "it can fail")]
    pub fn next(&mut self) -> Result<Option<DocBuf>> {
        let mut next = None;
        self.advance(&mut |doc| {
            next = Some(doc.to_owned());
            Flow::Pause
        })?;
        Ok(next)
    }

    /// Hands documents to `visit` until it returns `Pause`; the result is then `Pause`, too. Without further documents the
    /// result is `Continue`; only a tailable cursor may have some later.
    ///
    /// # Errors
    /// As [`QueryCursor::next`].
    pub fn for_each(&mut self, visit: &mut dyn FnMut(&Doc) -> Flow) -> Result<Flow> {
        let flow = self.advance(visit);
        self.update_op_stats();
        flow
    }

    /// Notes what it has examined in the figures of the operation. A plan that has ended has done that.
    pub(crate) fn update_op_stats(&mut self) {
        match &mut self.rows {
            Rows::Plan(executor) => executor.update_op_stats(),
            Rows::Tail(..) => {
                let now = self.stats();
                let noted = std::mem::replace(&mut self.noted, now);
                op_stats::set_summary("COLLSCAN");
                op_stats::update(|op_stats| {
                    // After a pause another scan counts from zero.
                    let since = |now: u64, noted: u64| now.checked_sub(noted).unwrap_or(now);
                    op_stats.keys_examined += since(now.keys_examined, noted.keys_examined);
                    op_stats.docs_examined += since(now.docs_examined, noted.docs_examined);
                });
            }
            Rows::Stream(_) | Rows::Done(_) => {}
        }
        if self.spilled.times() > 0 {
            op_stats::update(|op_stats| op_stats.used_disk = true);
        }
    }

    fn advance(&mut self, visit: &mut dyn FnMut(&Doc) -> Flow) -> Result<Flow> {
        let mut pulled = self.pull(visit);
        if let Rows::Stream(stream) = &mut self.rows
            && let Err(error) = stream.rest()
        {
            pulled = Err(error);
        }
        let may_have_more = match &pulled {
            Ok(Pulled::Paused) => true,
            Ok(Pulled::End) => self.is_tailable(),
            Err(_) => false,
        };
        if !may_have_more {
            if self.is_invalidated() {
                self.invalidated = self.resume_token().map(Box::new);
            }
            self.rows = Rows::Done(self.stats());
        }
        Ok(match pulled? {
            Pulled::Paused => Flow::Pause,
            Pulled::End => Flow::Continue,
        })
    }

    /// Adds all documents to groups; the cursor is at its end then.
    ///
    /// # Errors
    /// As [`QueryCursor::next`], and those of the groups.
    pub fn group(&mut self, groups: &mut Groups) -> Result<()> {
        if let Rows::Plan(executor) = &mut self.rows {
            let grouped = executor.group(groups);
            self.rows = Rows::Done(self.stats());
            return grouped.map(|_| ());
        }
        while let Some(doc) = self.next()? {
            groups.add(&doc, self.meta())?;
        }
        Ok(())
    }

    fn pull(&mut self, visit: &mut dyn FnMut(&Doc) -> Flow) -> Result<Pulled> {
        let QueryCursor {
            rows,
            returned,
            meta,
            ..
        } = self;
        match rows {
            Rows::Done(_) => Ok(Pulled::End),
            Rows::Plan(executor) => executor.for_each(&mut |row| {
                *returned += 1;
                if let Some(of_row) = row.meta {
                    *meta = Some(Box::new(of_row.clone()));
                }
                Ok(visit(row.doc))
            }),
            Rows::Stream(stream) => {
                // Skip, limit and projection are stages of the stream.
                while let Some(doc) = stream.next()? {
                    *returned += 1;
                    if visit(&doc) == Flow::Pause {
                        return Ok(Pulled::Paused);
                    }
                }
                Ok(Pulled::End)
            }
            Rows::Tail(tail, output) => {
                while output.remaining != Some(0) {
                    let Some(row) = tail.next_row()? else {
                        return Ok(Pulled::End);
                    };
                    let Some(doc) = output.show(row)? else {
                        continue;
                    };
                    *returned += 1;
                    if visit(&doc) == Flow::Pause {
                        return Ok(Pulled::Paused);
                    }
                }
                Ok(Pulled::End)
            }
        }
    }
}

impl TailOutput {
    /// The projected row; `None` if it is passed over.
    fn show(&mut self, row: Row) -> Result<Option<DocBuf>> {
        if self.skip > 0 {
            self.skip -= 1;
            return Ok(None);
        }
        if let Some(remaining) = &mut self.remaining {
            *remaining -= 1;
        }
        let mut doc = match &self.projection {
            Some(projection) => projection.apply(&row.doc)?,
            None => row.doc,
        };
        if self.shows_record_ids {
            doc.push("$recordId", record_id(&row.key, true));
        }
        Ok(Some(doc))
    }
}

/// Documents in memory as a stream.
pub struct Listed(std::vec::IntoIter<DocBuf>);

impl Listed {
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
