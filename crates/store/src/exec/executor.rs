//! A running plan: the root of its operators, and the context that they read from.

use std::sync::Arc;

use frond_bson::{Doc, DocBuf};
use frond_query::aggregate::Groups;
use frond_query::matcher::canonical;

use super::ExecStats;
use super::coll_scan::CollScan;
use super::describe::{Describer, ExplainBudget};
use super::operator::{ExecContext, Flow, Inputs, Node, Operator, Pulled, Row, RowRef, Sink};
use super::oplog_scan::OplogScan;
use super::stats::OperatorStats;
use crate::catalog::Collection;
use crate::op_stats;
use frond_storage::context::OpContext;
use frond_storage::error::Result;
use frond_storage::keyspace::{Engine, EngineError, Snapshot, TreeId};

/// Longer stages, with the bounds of many intervals, are not kept for the profiler.
const STAGES_BYTES_MAX: usize = 64 << 10;

/// Pulls rows out of a collection.
pub struct Executor {
    root: Node,
    cx: ExecContext,
    keeps_keys: bool,
    ended: bool,
    /// Whether its statistics are those of the operation; those of trial runs are not.
    updates_op_stats: bool,
    /// Whether its stages are those that the profiler shows.
    reports: bool,
    /// The knowledge of the operation about the collection.
    noted: ExecStats,
}

impl Executor {
    /// Operators over a snapshot; nothing is read yet. Rows that are taken one by one keep their keys if `keeps_keys`.
    pub fn new(
        root: Node,
        collection: Arc<Collection>,
        snapshot: Snapshot,
        limits: OpContext,
        keeps_keys: bool,
    ) -> Executor {
        Executor {
            root,
            cx: ExecContext::new(collection, snapshot, limits),
            keeps_keys,
            ended: false,
            updates_op_stats: false,
            reports: false,
            noted: ExecStats::default(),
        }
    }

    /// Adds what it examines to the statistics of the operation, and its stages too if it `reports`.
    pub fn updating_op_stats(mut self, reports: bool) -> Executor {
        self.updates_op_stats = true;
        self.reports = reports;
        self
    }

    /// Notes what it has examined since the last time.
    pub fn update_op_stats(&mut self) {
        if !self.updates_op_stats {
            return;
        }
        let now = self.stats();
        let noted = std::mem::replace(&mut self.noted, now);
        op_stats::update(|op_stats| {
            op_stats.keys_examined += now.keys_examined - noted.keys_examined;
            op_stats.docs_examined += now.docs_examined - noted.docs_examined;
        });
        if self.reports
            && let Some((filter, sort)) = op_stats::wanted_exec_stats()
        {
            let stages = self.stages(&filter, &sort);
            let is_short = stages.len_bytes() <= STAGES_BYTES_MAX;
            op_stats::update(|op_stats| op_stats.exec_stats = Some(stages).filter(|_| is_short));
        }
    }

    /// Its operators with their statistics, as `explain` shows them.
    fn stages(&self, filter: &Doc, sort: &Doc) -> DocBuf {
        let collator = self.cx.collection.collator();
        let describer = Describer {
            filter: &canonical(filter),
            sort,
            projection: Doc::empty(),
            collator,
            id_collator: collator,
            partitions: &[],
            executed: true,
            budget: &ExplainBudget::default(),
        };
        self.root.describe(&describer)
    }

    /// Hands rows to `sink` until it asks for a pause or there are no more.
    ///
    /// # Errors
    /// The limits of the context; errors of the sink, the query and the engine. There are no more rows after one.
    pub fn for_each(&mut self, sink: Sink<'_>) -> Result<Pulled> {
        self.run(&mut |root, cx| root.pull(cx, sink))
    }

    /// Adds all rows to groups.
    ///
    /// # Errors
    /// As [`Executor::for_each`], and those of the groups.
    pub fn group(&mut self, groups: &mut Groups) -> Result<Pulled> {
        self.run(&mut |root, cx| root.group(cx, groups))
    }

    /// Pulls, and again when the scan has stopped to be detached from memtables.
    #[inline]
    fn run(
        &mut self,
        pull: &mut dyn FnMut(&mut Node, &ExecContext) -> Result<Pulled>,
    ) -> Result<Pulled> {
        if self.ended {
            return Ok(Pulled::End);
        }
        let mut pulled = pull(&mut self.root, &self.cx);
        while matches!(pulled, Ok(Pulled::Paused)) && self.cx.take_stopped() {
            match self.detached_snapshot(Engine::try_detach) {
                Ok(Some(snapshot)) => self.continue_on(snapshot),
                // Other operations are at it. This one goes on and tries again.
                Ok(None) => {}
                // There is no room on the disk, say. The operation goes on as it is, and does not try again.
                Err(_) => self.cx.set_engine(None),
            }
            pulled = pull(&mut self.root, &self.cx);
        }
        self.ended = !matches!(pulled, Ok(Pulled::Paused));
        if self.ended || self.root.has_read_all() {
            // A cursor with sorted rows may be idle for long.
            self.cx.release_snapshot();
        }
        pulled
    }

    /// With the engine of its snapshot: when the snapshot keeps memtables in memory that take too much of it, their part
    /// for this plan is written to disk.
    pub fn with_engine(mut self, engine: Engine) -> Executor {
        self.cx.set_engine(Some(engine));
        self
    }

    /// Bytes of memtables that its snapshot keeps in memory beyond the current state of the store.
    pub fn retained_bytes(&self) -> u64 {
        let (engine, snapshot) = (self.cx.engine(), self.cx.held_snapshot());
        let both = engine.zip(snapshot).filter(|_| !self.ended);
        both.map_or(0, |(engine, snapshot)| engine.retained_by(snapshot))
    }

    /// Lets go of the memtables that only this plan keeps in memory, and of pages that it is about to read.
    ///
    /// # Errors
    /// Errors of the engine: without room on the disk that is not possible.
    pub fn release_memory(&mut self) -> Result<()> {
        let detach = |engine: &Engine, snapshot: &Snapshot, trees: &[TreeId]| {
            engine.detach(snapshot, trees).map(Some)
        };
        if let Some(snapshot) = self.detached_snapshot(detach)?
            && !self.ended
        {
            self.continue_on(snapshot);
        }
        Ok(())
    }

    /// Drops the pages that it reads, until it goes on.
    pub fn release_pages(&mut self) {
        if let Some(snapshot) = self.cx.held_snapshot().cloned() {
            self.root.continue_on(&snapshot);
        }
    }

    /// A snapshot of the same moment without flushed memtables, made by `detach`. `None` if none is held.
    fn detached_snapshot(
        &self,
        detach: impl FnOnce(&Engine, &Snapshot, &[TreeId]) -> Result<Option<Snapshot>, EngineError>,
    ) -> Result<Option<Snapshot>> {
        let (engine, snapshot) = (self.cx.engine(), self.cx.held_snapshot());
        let Some((engine, snapshot)) = engine.zip(snapshot) else {
            return Ok(None);
        };
        let mut trees = vec![self.cx.collection.primary];
        trees.extend(self.cx.collection.segments);
        self.root.add_trees(&mut trees);
        trees.sort_unstable();
        trees.dedup();
        Ok(detach(engine, snapshot, &trees)?)
    }

    fn continue_on(&mut self, snapshot: Snapshot) {
        self.root.continue_on(&snapshot);
        self.cx.set_snapshot(snapshot);
    }

    /// The next row.
    ///
    /// # Errors
    /// As [`Executor::for_each`].
    pub fn next_row(&mut self) -> Result<Option<Row>> {
        let keeps_keys = self.keeps_keys;
        let mut next = None;
        self.for_each(&mut |row| {
            next = Some(row.to_row(keeps_keys));
            Ok(Flow::Pause)
        })?;
        Ok(next)
    }

    /// The statistics so far.
    pub fn stats(&self) -> ExecStats {
        ExecStats::collect(&self.root)
    }

    pub fn root(&self) -> &Node {
        &self.root
    }

    /// From here on operators take their times, for `explain`.
    pub fn take_times(&mut self) {
        self.cx.take_times();
    }

    /// Lets a trial run pause after this much work.
    pub fn set_work_max(&self, work_max: u64) {
        self.cx.set_work_max(work_max);
    }

    /// Sets the limits for what follows.
    pub fn set_context(&mut self, limits: OpContext) {
        self.cx.set_limits(limits);
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.update_op_stats();
    }
}

/// The source of a tailable cursor.
pub enum TailSource {
    /// The documents of a capped collection.
    Documents(CollScan),
    Oplog(OplogScan),
}

/// A scan of a capped collection from a position on.
pub struct TailScan {
    scan: TailSource,
    cx: ExecContext,
    stats: OperatorStats,
    keeps_keys: bool,
}

impl TailScan {
    /// A scan that has not begun.
    pub fn new(
        scan: TailSource,
        collection: Arc<Collection>,
        snapshot: Snapshot,
        limits: OpContext,
        keeps_keys: bool,
    ) -> TailScan {
        TailScan {
            scan,
            stats: OperatorStats::default(),
            cx: ExecContext::new(collection, snapshot, limits),
            keeps_keys,
        }
    }

    /// The next row.
    ///
    /// # Errors
    /// As [`Executor::for_each`].
    pub fn next_row(&mut self) -> Result<Option<Row>> {
        let keeps_keys = self.keeps_keys;
        let mut next = None;
        let (inputs, stats) = (&mut Inputs::default(), &mut self.stats);
        let sink = &mut |row: RowRef<'_>| {
            next = Some(row.to_row(keeps_keys));
            Ok(Flow::Pause)
        };
        match &mut self.scan {
            TailSource::Documents(scan) => scan.pull(&self.cx, inputs, stats, sink)?,
            TailSource::Oplog(scan) => scan.pull(&self.cx, inputs, stats, sink)?,
        };
        Ok(next)
    }

    /// The key of the last document examined; `None` before the first one.
    pub fn position(&self) -> Option<&[u8]> {
        match &self.scan {
            TailSource::Documents(scan) => scan.position(),
            TailSource::Oplog(scan) => scan.position(),
        }
    }

    /// The snapshot that it reads.
    pub fn snapshot(&self) -> Option<&Snapshot> {
        self.cx.held_snapshot()
    }

    /// The counts of examined keys and documents so far.
    pub fn stats(&self) -> ExecStats {
        ExecStats::from(&self.stats)
    }

    /// Sets the limits for what follows.
    pub fn set_context(&mut self, limits: OpContext) {
        self.cx.set_limits(limits);
    }
}
