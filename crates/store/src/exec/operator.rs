//! Shared by all operators: rows, the statistics of an operator, and the trait itself.
//!
//! A pull goes down the tree and rows come up: an operator hands each row to the sink of the operator that
//! pulled, borrowed from the pinned page that it lies in. The sink says after each row whether it wants more, so
//! one pull brings a batch of any size, and rows that are dropped on the way up are never copied. (The closest designs
//! are the push-based pipelines of DuckDB and the coprocessor of TiKV, whose operators also collect their own
//! statistics.)

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use frond_bson::{Doc, DocBuf, doc};
use frond_query::aggregate::Groups;
use frond_query::meta::Metadata;

use super::describe::Describer;
use super::stats::OperatorStats;
use crate::catalog::Collection;
use crate::op_stats;
use crate::own_files::OwnFiles;
use frond_storage::context::OpContext;
use frond_storage::error::Result;
use frond_storage::keyspace::{Engine, MemoryBudget, Snapshot, TreeId};
use frond_storage::record;

/// Steps between two checks of the limits, and of the memory that the snapshot keeps.
const STEPS_BETWEEN_CHECKS: u32 = 128;

/// Whether the consumer of a row wants another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    Continue,
    /// Return from the pull; the next one continues behind this row.
    Pause,
}

/// Why a pull ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pulled {
    /// The sink asked for a pause, or a trial run is out of work.
    Paused,
    /// There are no more rows.
    End,
}

/// The function that an operator passes its rows to.
pub type Sink<'s> = &'s mut dyn FnMut(RowRef<'_>) -> Result<Flow>;

/// A row on its way through the operators.
#[derive(Clone, Copy)]
pub struct RowRef<'a> {
    /// The encoded `_id`, or the record id: the document's key in the tree of the collection.
    pub key: &'a [u8],
    /// The record as it is stored, once it has been read.
    pub record: Option<&'a [u8]>,
    /// The document as far as it has been read: all of it, the parts that the query needs, or the fields of an index.
    /// Empty before the document is fetched.
    pub doc: &'a Doc,
    /// The fields of the index that led here, if they were asked for.
    pub index_key: Option<&'a Doc>,
    /// Its metadata, if some was asked for.
    pub meta: Option<&'a Metadata>,
    /// The sort key for a merge of sorted scans: bytes that compare as the sort does.
    pub order: &'a [u8],
}

impl<'a> RowRef<'a> {
    /// A row of which only the key is known.
    pub fn of_key(key: &'a [u8]) -> RowRef<'a> {
        RowRef {
            key,
            record: None,
            doc: Doc::empty(),
            index_key: None,
            meta: None,
            order: &[],
        }
    }

    /// The row by itself. Its key and, of a large document, its record are copied only if `keeps_keys`.
    pub fn to_row(self, keeps_keys: bool) -> Row {
        let record = self.record.filter(|record| record::is_in_parts(record));
        Row {
            key: if keeps_keys {
                self.key.to_vec()
            } else {
                Vec::new()
            },
            doc: self.doc.to_owned(),
            stored: record.filter(|_| keeps_keys).map(<[u8]>::to_vec),
            index_key: self.index_key.map(ToOwned::to_owned),
            meta: self.meta.map(|meta| Box::new(meta.clone())),
        }
    }
}

/// A row that owns what it shows.
#[derive(Debug)]
pub struct Row {
    /// The encoded `_id`: its key in the primary tree. Empty unless it was asked for.
    pub key: Vec<u8>,
    /// The document; of a covered plan only the fields of the index.
    pub doc: DocBuf,
    /// The record of a large document, if keys were asked for. Then `doc` can be a part of it.
    pub stored: Option<Vec<u8>>,
    /// The fields of the index that led here; `None` unless they were asked for, and if no index did.
    pub index_key: Option<DocBuf>,
    /// Its metadata; `None` unless some was asked for.
    pub meta: Option<Box<Metadata>>,
}

impl Row {
    /// The row, lent to an operator.
    pub fn as_ref(&self) -> RowRef<'_> {
        RowRef {
            key: &self.key,
            record: self.stored.as_deref(),
            doc: &self.doc,
            index_key: self.index_key.as_deref(),
            meta: self.meta.as_deref(),
            order: &[],
        }
    }
}

/// The collection and the snapshot that the operators read, and the limits of the operation.
pub struct ExecContext {
    pub collection: Arc<Collection>,
    /// The snapshot that is read; `None` once all that the operators need has been read.
    snapshot: Option<Snapshot>,
    limits: OpContext,
    steps: Cell<u32>,
    /// The engine, if the operators may stop to be detached from memtables ([`Executor::release_memory`]).
    ///
    /// [`Executor::release_memory`]: super::executor::Executor::release_memory
    engine: Option<Engine>,
    memory: Option<MemoryBudget>,
    /// Whether scans are to stop before their next key, and whether one has.
    stops: Cell<bool>,
    stopped: Cell<bool>,
    /// Keys and documents that a trial run may still examine; unlimited otherwise.
    work_left: Cell<u64>,
    /// Whether operators take their times, for `explain`: only that pays for the clock.
    takes_times: bool,
}

impl ExecContext {
    /// Reading a collection within these limits.
    pub fn new(collection: Arc<Collection>, snapshot: Snapshot, limits: OpContext) -> ExecContext {
        ExecContext {
            collection,
            snapshot: Some(snapshot),
            limits,
            steps: Cell::new(0),
            engine: None,
            memory: None,
            stops: Cell::new(false),
            stopped: Cell::new(false),
            work_left: Cell::new(u64::MAX),
            takes_times: false,
        }
    }

    /// The same reading for another thread, which checks the limits too.
    pub fn for_helper(&self) -> ExecContext {
        let snapshot = self.snapshot().clone();
        ExecContext::new(self.collection.clone(), snapshot, self.limits.clone())
    }

    /// Checks the limits now.
    ///
    /// # Errors
    /// As [`ExecContext::step`].
    pub fn check(&self) -> Result<()> {
        self.limits.check()
    }

    /// The snapshot that is read.
    #[inline]
    pub fn snapshot(&self) -> &Snapshot {
        let held = self.snapshot.as_ref();
        held.expect("it is released only when no operator reads any more")
    }

    /// Lets go of the snapshot, which keeps old data alive. No operator may read after that.
    pub fn release_snapshot(&mut self) {
        self.snapshot = None;
    }

    /// Called for each key or document examined; checks the limits once in a while.
    ///
    /// # Errors
    /// `MaxTimeMSExpired` (50), `Interrupted` (11601).
    #[inline]
    pub fn step(&self) -> Result<()> {
        let steps = self.steps.get() + 1;
        if steps < STEPS_BETWEEN_CHECKS {
            self.steps.set(steps);
            return Ok(());
        }
        self.steps.set(0);
        op_stats::show_plan();
        if let Some(engine) = &self.engine
            && OwnFiles::new(engine).retains_too_much()
        {
            let held = self.snapshot.as_ref();
            let retained = held.map_or(0, |snapshot| engine.retained_by(snapshot));
            self.stops.set(retained > 0);
        }
        self.limits.check_between_steps()
    }

    /// From here on scans stop when the snapshot keeps memtables in memory that take too much of it.
    pub fn set_engine(&mut self, engine: Option<Engine>) {
        if let Some(engine) = &engine {
            self.memory = Some(engine.memory().clone());
        }
        self.engine = engine;
    }

    /// The memory budget of the process; `None` for a trial run, whose work is limited.
    #[inline]
    pub fn memory(&self) -> Option<&MemoryBudget> {
        self.memory.as_ref()
    }

    /// The engine, unless scans need not stop.
    pub fn engine(&self) -> Option<&Engine> {
        self.engine.as_ref()
    }

    /// Called by a scan before each key. If true, the scan has to pause there, although its consumer did not ask for it.
    #[inline]
    pub fn must_stop(&self) -> bool {
        let must_stop = self.stops.get();
        if must_stop {
            self.stopped.set(true);
        }
        must_stop
    }

    /// Whether a scan has stopped. It may go on.
    pub fn take_stopped(&self) -> bool {
        let stopped = self.stopped.take();
        if stopped {
            self.stops.set(false);
        }
        stopped
    }

    /// Replaces the snapshot by another one of the same moment.
    pub fn set_snapshot(&mut self, snapshot: Snapshot) {
        self.snapshot = Some(snapshot);
    }

    /// The snapshot, if it was not released.
    pub fn held_snapshot(&self) -> Option<&Snapshot> {
        self.snapshot.as_ref()
    }

    /// Counts a key or a document against the work of a trial run.
    #[inline]
    pub fn spend(&self) {
        self.work_left.set(self.work_left.get().saturating_sub(1));
    }

    /// Whether a trial run has done its share of work.
    #[inline]
    pub fn is_out_of_work(&self) -> bool {
        self.work_left.get() == 0
    }

    /// Lets a trial run pause after this much work.
    pub fn set_work_max(&self, work_max: u64) {
        self.work_left.set(work_max);
    }

    /// From here on operators take their times.
    pub fn take_times(&mut self) {
        self.takes_times = true;
    }

    /// Sets the limits for what follows.
    pub fn set_limits(&mut self, limits: OpContext) {
        self.limits = limits;
    }
}

/// A step of a plan: makes rows, or processes those of its inputs.
pub trait Operator: Send {
    /// Hands rows to the sink until it asks for a pause or there are no more. It counts what it does in `stats`. After
    /// an error, and after the end, an operator is not pulled again.
    ///
    /// # Errors
    /// The limits of the context; errors of the sink, the query and the engine.
    fn pull(
        &mut self,
        cx: &ExecContext,
        inputs: &mut Inputs,
        stats: &mut OperatorStats,
        sink: Sink<'_>,
    ) -> Result<Pulled>;

    /// Adds the rows to the groups of a `$group`, all of them unless the scan has to stop.
    ///
    /// # Errors
    /// As [`Operator::pull`], and those of the groups.
    fn group(
        &mut self,
        cx: &ExecContext,
        inputs: &mut Inputs,
        stats: &mut OperatorStats,
        groups: &mut Groups,
    ) -> Result<Pulled> {
        self.pull(cx, inputs, stats, &mut |row| {
            groups.add(row.doc, row.meta)?;
            Ok(Flow::Continue)
        })
    }

    /// MongoDB's name of the stage; `None` if `explain` shows only its input.
    fn name(&self, describer: &Describer<'_>) -> Option<&'static str>;

    /// Adds the fields of the stage in `explain` besides those that all stages have.
    fn describe(&self, _stage: &mut DocBuf, _stats: &OperatorStats, _describer: &Describer<'_>) {}

    /// Whether it holds all that it will hand on, so that neither it nor its inputs read any more.
    fn has_read_all(&self) -> bool {
        false
    }

    /// Adds the trees that it reads, besides those of the documents.
    fn add_trees(&self, _trees: &mut Vec<TreeId>) {}

    /// Continues on another snapshot of the same moment.
    fn continue_on(&mut self, _snapshot: &Snapshot) {}

    /// Units of work, as MongoDB counts them, without the last one that meets the end: rows, and pulls on which there
    /// was none to give. `inputs` are those of its inputs.
    fn works(&self, _stats: &OperatorStats, inputs: u64) -> u64 {
        inputs
    }
}

/// An operator in a tree: with its inputs and its figures.
pub struct Node {
    operator: Box<dyn Operator>,
    inputs: Inputs,
    stats: OperatorStats,
}

impl Node {
    /// An operator without inputs.
    pub fn leaf(operator: impl Operator + 'static) -> Node {
        Node::over(operator, Vec::new())
    }

    /// An operator over these inputs.
    pub fn over(operator: impl Operator + 'static, inputs: Vec<Node>) -> Node {
        Node {
            operator: Box::new(operator),
            inputs: Inputs(inputs),
            stats: OperatorStats::default(),
        }
    }

    /// Hands rows to the sink until it asks for a pause or there are no more.
    ///
    /// # Errors
    /// As [`Operator::pull`].
    pub fn pull(&mut self, cx: &ExecContext, sink: Sink<'_>) -> Result<Pulled> {
        let pulled = if cx.takes_times {
            self.pull_timed(cx, sink)?
        } else {
            (self.operator).pull(cx, &mut self.inputs, &mut self.stats, sink)?
        };
        self.stats.ended = pulled == Pulled::End;
        Ok(pulled)
    }

    /// Adds all rows to groups; `Paused` if the scan has to stop before.
    ///
    /// # Errors
    /// As [`Operator::group`].
    pub fn group(&mut self, cx: &ExecContext, groups: &mut Groups) -> Result<Pulled> {
        let pulled = (self.operator).group(cx, &mut self.inputs, &mut self.stats, groups)?;
        self.stats.ended = pulled == Pulled::End;
        Ok(pulled)
    }

    /// Takes the time of the operator and its inputs, without that of the operators that get its rows.
    fn pull_timed(&mut self, cx: &ExecContext, sink: Sink<'_>) -> Result<Pulled> {
        let start = Instant::now();
        let mut of_consumer = Duration::ZERO;
        let pulled = (self.operator).pull(cx, &mut self.inputs, &mut self.stats, &mut |row| {
            let start = Instant::now();
            let flow = sink(row);
            of_consumer += start.elapsed();
            flow
        });
        self.stats.time += start.elapsed().saturating_sub(of_consumer);
        pulled
    }

    /// Whether the operator, or all that it pulls from, has read everything.
    pub fn has_read_all(&self) -> bool {
        let inputs = self.inputs();
        self.operator.has_read_all()
            || (!inputs.is_empty() && inputs.iter().all(Node::has_read_all))
    }

    /// Adds the trees that the operators read, besides those of the documents.
    pub fn add_trees(&self, trees: &mut Vec<TreeId>) {
        self.operator.add_trees(trees);
        self.inputs()
            .iter()
            .for_each(|input| input.add_trees(trees));
    }

    /// Lets all operators continue on another snapshot of the same moment.
    pub fn continue_on(&mut self, snapshot: &Snapshot) {
        self.operator.continue_on(snapshot);
        for input in &mut self.inputs.0 {
            input.continue_on(snapshot);
        }
    }

    /// The operator and its inputs as `explain` shows them.
    pub fn describe(&self, describer: &Describer<'_>) -> DocBuf {
        let inputs = self.inputs();
        let Some(name) = self.operator.name(describer) else {
            return inputs
                .first()
                .map(|input| input.describe(describer))
                .unwrap_or_default();
        };
        let mut stage = describer.begin(name, &self.stats, self.works());
        self.operator.describe(&mut stage, &self.stats, describer);
        match inputs {
            [] => {}
            [input] if !matches!(name, "OR" | "SORT_MERGE") => {
                stage.push("inputStage", &input.describe(describer));
            }
            _ => stage.push_array("inputStages", |stages| {
                for input in inputs {
                    if !describer.takes_stage() {
                        let text = "stats tree exceeded BSON size limit for explain";
                        stages.push(&doc! {"warning": text});
                        break;
                    }
                    stages.push(&input.describe(describer));
                }
            }),
        }
        stage
    }

    pub fn operator(&self) -> &dyn Operator {
        &*self.operator
    }

    pub fn inputs(&self) -> &[Node] {
        &self.inputs.0
    }

    /// Its figures so far.
    pub fn stats(&self) -> &OperatorStats {
        &self.stats
    }

    /// Units of work, see [`Operator::works`].
    pub fn works(&self) -> u64 {
        let inputs = self.inputs().iter().map(Node::works).sum();
        self.operator.works(&self.stats, inputs)
    }
}

/// The inputs of an operator.
#[derive(Default)]
pub struct Inputs(Vec<Node>);

impl Inputs {
    /// Pulls from the only input. There is nothing to pull without one.
    ///
    /// # Errors
    /// As [`Operator::pull`].
    #[inline]
    pub fn pull(&mut self, cx: &ExecContext, sink: Sink<'_>) -> Result<Pulled> {
        self.pull_from(0, cx, sink)
    }

    /// Pulls from the input at a position; there is nothing to pull beyond the last one.
    ///
    /// # Errors
    /// As [`Operator::pull`].
    #[inline]
    pub fn pull_from(
        &mut self,
        position: usize,
        cx: &ExecContext,
        sink: Sink<'_>,
    ) -> Result<Pulled> {
        match self.0.get_mut(position) {
            Some(input) => input.pull(cx, sink),
            None => Ok(Pulled::End),
        }
    }

    /// The number of inputs.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}
