//! `explain`: the plan of a query, and the statistics of its run.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Instant;

use frond_bson::{Doc, DocBuf, Value, doc};
use frond_query::matcher::canonical;
use frond_query::projection::Projection;

use crate::exec::ExecStats;
use crate::exec::build::{Output, RowParts};
use crate::exec::count::RecordCount;
use crate::exec::describe::{Describer, ExplainBudget, count};
use crate::exec::eof::Eof;
use crate::exec::executor::Executor;
use crate::exec::operator::{Flow, Node};
use crate::exec::stats::OperatorStats;
use crate::exec::trial::TrialRun;
use crate::find::{FindRequest, Planned, PlannedQuery, shape_of};
use crate::op_stats::PlanHashes;
use crate::plan::partitions::PartitionsRead;
use crate::store::DocumentStore;
use frond_storage::context::OpContext;
use frond_storage::environment::environment;
use frond_storage::error::Result;
use frond_storage::namespace::Namespace;

/// The verbosity of `explain`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verbosity {
    QueryPlanner,
    /// The plan is also run, with statistics.
    ExecutionStats,
    /// As `ExecutionStats`, with those of the trial runs of several plans.
    AllPlansExecution,
}

/// The action on the found documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    Find,
    Count,
    /// They are updated; with `upsert` one is inserted if there is none.
    Update {
        upsert: bool,
    },
    Delete,
}

/// The purpose for which a query finds documents.
#[derive(Clone, Copy)]
pub struct Purpose<'a> {
    pub task: Task,
    /// Whether the command returns a document that it changes or deletes.
    pub returns: bool,
    /// Whether an update would change a document.
    pub would_change: &'a dyn Fn(&Doc) -> bool,
    /// The path, if only its distinct values are wanted.
    pub distinct: Option<&'a str>,
}

impl Purpose<'_> {
    pub const FIND: Purpose<'static> = Purpose {
        task: Task::Find,
        returns: true,
        would_change: &|_| false,
        distinct: None,
    };
}

/// The statistics of a run to the end.
#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    stats: ExecStats,
    /// Documents that it found, or counted.
    found: u64,
    /// Documents that an update would change.
    modified: u64,
    millis: u64,
}

impl DocumentStore {
    /// Explains a find: `explainVersion`, `queryPlanner` and, if asked for, `executionStats`.
    ///
    /// # Errors
    /// As [`DocumentStore::find`]; those of its cursor if the query is run.
    pub fn explain_find(
        &self,
        ns: &Namespace,
        request: &FindRequest<'_>,
        verbosity: Verbosity,
        context: &OpContext,
    ) -> Result<DocBuf> {
        self.explain(ns, request, &Purpose::FIND, verbosity, context)
    }

    /// Explains a command that finds documents for some purpose. Nothing is changed.
    ///
    /// # Errors
    /// As [`DocumentStore::explain_find`].
    pub fn explain(
        &self,
        ns: &Namespace,
        request: &FindRequest<'_>,
        purpose: &Purpose<'_>,
        verbosity: Verbosity,
        context: &OpContext,
    ) -> Result<DocBuf> {
        let natural = doc! {"$natural": 1};
        let tailing;
        let request = if request.tailable {
            // A tailable cursor reads in the order of insertion, whatever indexes there are.
            tailing = FindRequest {
                hint: Some(Value::Document(&natural)),
                ..request.clone()
            };
            &tailing
        } else {
            request
        };
        let trials = RefCell::new(Vec::new());
        let (projection, planned) = match purpose.task {
            Task::Count => (None, self.plan_count(ns, request, &trials, context)?),
            _ => {
                let kept = Some(&trials);
                let (projection, planned) =
                    self.plan_find(ns, request, purpose.distinct, kept, context)?;
                ((!projection.is_identity()).then_some(projection), planned)
            }
        };
        let collator = self.catalog().collator(ns, request.collation.as_ref());
        let id_collator = self.catalog().collator(ns, None);
        let empty = Doc::empty();
        let filter = &*canonical(request.filter.unwrap_or(empty));
        let budget = ExplainBudget::default();
        let read = planned.as_ref().and_then(|planned| {
            let filter = &planned.question.filter;
            PartitionsRead::new(&planned.collection, &planned.snapshot, filter)
        });
        let partitions = match &read {
            Some(read) => read.all()?,
            None => Vec::new(),
        };
        let mut describer = Describer {
            partitions: &partitions,
            filter,
            sort: request.sort.unwrap_or(empty),
            projection: request.projection.unwrap_or(empty),
            collator: &collator,
            id_collator: &id_collator,
            executed: false,
            budget: &budget,
        };
        let query = Explained {
            request,
            purpose,
            projection,
            context,
            is_subplan: filter.count() == 1 && filter.contains_key("$or") && request.hint.is_none(),
        };
        let mut tree = match &planned {
            _ if purpose.task == Task::Count && filter.is_empty() && request.hint.is_none() => {
                let documents = self.estimated_count(ns);
                Tree::Bare(Node::leaf(RecordCount::new(
                    documents,
                    request.skip,
                    request.limit,
                )))
            }
            None => Tree::Bare(Node::leaf(Eof)),
            Some(planned) => Tree::Plan(Box::new(query.operators(planned))),
        };
        let mut reply = doc! {"explainVersion": "1"};
        reply.push_doc("queryPlanner", |planner| {
            planner.push("namespace", ns.as_str());
            query.push_planner(planner, planned.as_ref(), tree.root(), &describer);
        });
        if verbosity == Verbosity::QueryPlanner {
            return Ok(reply);
        }
        let measured = match &mut tree {
            Tree::Bare(_) => Measured {
                found: match purpose.task {
                    Task::Count => self.count_of(ns, request),
                    _ => 0,
                },
                ..Measured::default()
            },
            Tree::Plan(executor) => query.run(executor)?,
        };
        describer.executed = true;
        reply.push_doc("executionStats", |stats| {
            query.push_execution(stats, &measured, tree.root(), &describer);
            if verbosity == Verbosity::AllPlansExecution {
                stats.push_array("allPlansExecution", |list| {
                    for run in trials.borrow().iter() {
                        list.push(&of_trial(run, &describer));
                    }
                });
            }
        });
        Ok(reply)
    }

    /// Plans a count, which returns no field.
    fn plan_count(
        &self,
        ns: &Namespace,
        request: &FindRequest<'_>,
        trials: &RefCell<Vec<TrialRun>>,
        context: &OpContext,
    ) -> Result<Option<Planned>> {
        let collator = self.catalog().collator(ns, request.collation.as_ref());
        let environment = environment(request.variables, &collator);
        let question = PlannedQuery::parse(request.filter, None, request.hint, &environment)?;
        let question = question.showing(Some(BTreeSet::new()));
        question.plan_keeping(self.catalog(), ns, context, Some(trials))
    }

    /// The count from the counter of a collection.
    fn count_of(&self, ns: &Namespace, request: &FindRequest<'_>) -> u64 {
        let behind = self.estimated_count(ns).saturating_sub(request.skip);
        behind.min(request.limit.unwrap_or(u64::MAX))
    }
}

/// The operators that are shown.
enum Tree {
    /// One operator that reads no collection: there is none, or a counter has the result.
    Bare(Node),
    /// Those of a plan.
    Plan(Box<Executor>),
}

impl Tree {
    fn root(&self) -> &Node {
        match self {
            Tree::Bare(node) => node,
            Tree::Plan(executor) => executor.root(),
        }
    }
}

/// A query that is explained.
struct Explained<'a> {
    request: &'a FindRequest<'a>,
    purpose: &'a Purpose<'a>,
    projection: Option<Projection>,
    context: &'a OpContext,
    /// Whether it is one `$or`, whose branches MongoDB plans one by one.
    is_subplan: bool,
}

impl Explained<'_> {
    /// The part of the planner: the query, and the plans for it.
    fn push_planner(
        &self,
        planner: &mut DocBuf,
        planned: Option<&Planned>,
        root: &Node,
        describer: &Describer<'_>,
    ) {
        describer
            .budget
            .push(planner, "parsedQuery", describer.filter);
        let is_filtered = planned.is_some_and(|planned| planned.is_filtered);
        planner.push("indexFilterSet", is_filtered);
        let rules = self.context.rules.as_ref();
        if let Some(settings) = rules.and_then(|rules| rules.shown.as_ref()) {
            planner.push("querySettings", settings);
        }
        if let Some(collation) = describer.collator.spec() {
            planner.push("collation", collation);
        }
        if let Some(planned) = planned {
            let question = &planned.question;
            let hashes =
                PlanHashes::for_query(&question.filter, &question.sort, &planned.collection);
            planner.push("queryHash", hashes.shape.as_str());
            planner.push("planCacheShapeHash", hashes.shape.as_str());
            planner.push("planCacheKey", hashes.key.as_str());
        }
        planner.push("optimizationTimeMillis", 0);
        planner.push("maxIndexedOrSolutionsReached", false);
        planner.push("maxIndexedAndSolutionsReached", false);
        let reached = planned.is_some_and(|planned| planned.merge_limit_reached);
        planner.push("maxScansToExplodeReached", reached);
        planner.push("prunedSimilarIndexes", false);
        let winning = self.describe(root, describer, &Measured::default());
        planner.push("winningPlan", &winning);
        planner.push_array("rejectedPlans", |list| {
            let Some(planned) = planned else { return };
            for other in &planned.plan.rejected {
                let other = self.operators(&planned.instead(other));
                let stages = self.describe(other.root(), describer, &Measured::default());
                list.push(&stages);
            }
        });
    }

    /// The statistics of the run.
    fn push_execution(
        &self,
        stats: &mut DocBuf,
        measured: &Measured,
        root: &Node,
        describer: &Describer<'_>,
    ) {
        stats.push("executionSuccess", true);
        let returned = if self.purpose.returns {
            measured.found
        } else {
            0
        };
        stats.push("nReturned", count(returned));
        stats.push("executionTimeMillis", count(measured.millis));
        stats.push("totalKeysExamined", count(measured.stats.keys_examined));
        stats.push("totalDocsExamined", count(measured.stats.docs_examined));
        // MongoDB has no such field, so it is shown only if there are large documents.
        if measured.stats.large_examined > 0 {
            let large = count(measured.stats.large_examined);
            stats.push("largeDocumentsExamined", large);
        }
        let stages = self.describe(root, describer, measured);
        stats.push("executionStages", &stages);
    }

    /// The operators of a plan, which measure their times.
    fn operators(&self, planned: &Planned) -> Executor {
        let request = self.request;
        if self.purpose.task == Task::Count {
            let mut executor = planned.count(request.skip, request.limit, self.context);
            executor.take_times();
            return executor;
        }
        let (wanted, output) = match self.purpose.task {
            Task::Find => shape_of(planned, request, self.projection.clone()),
            _ => {
                let sort = planned.sort();
                let output = Output {
                    // Updates and deletes end by themselves.
                    limit: request.limit.filter(|_| sort.is_some()),
                    sort,
                    ..Output::default()
                };
                let wanted = RowParts {
                    // A writer reads the documents, whatever the index holds.
                    keys: true,
                    ..planned.wanted()
                };
                (wanted, output)
            }
        };
        let mut executor = planned.query(&wanted, output, self.context);
        executor.take_times();
        executor
    }

    /// Runs the operators to their end.
    fn run(&self, executor: &mut Executor) -> Result<Measured> {
        let start = Instant::now();
        let mut measured = Measured::default();
        let most = match self.purpose.task {
            Task::Find | Task::Count => u64::MAX,
            Task::Update { .. } | Task::Delete => self.request.limit.unwrap_or(u64::MAX),
        };
        let counts = self.purpose.task == Task::Count;
        executor.for_each(&mut |row| {
            if counts {
                let n = row.doc.get_i64("n").unwrap_or(0);
                measured.found = u64::try_from(n).unwrap_or(0);
                return Ok(Flow::Continue);
            }
            measured.found += 1;
            measured.modified += u64::from((self.purpose.would_change)(row.doc));
            Ok(if measured.found < most {
                Flow::Continue
            } else {
                Flow::Pause
            })
        })?;
        measured.stats = executor.stats();
        measured.millis = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(measured)
    }

    /// The operators as stages, with the stages above them that only `explain` has.
    fn describe(&self, root: &Node, describer: &Describer<'_>, measured: &Measured) -> DocBuf {
        let mut stages = root.describe(describer);
        let stats = OperatorStats {
            ended: true,
            ..OperatorStats::default()
        };
        let is_eof = stages.get_str("stage") == Some("EOF");
        if self.is_subplan && !is_eof {
            let advanced = root.stats().advanced;
            let of_subplan = OperatorStats { advanced, ..stats };
            let mut outer = describer.begin("SUBPLAN", &of_subplan, root.works());
            outer.push("inputStage", &stages);
            stages = outer;
        }
        let name = match self.purpose.task {
            Task::Update { .. } => "UPDATE",
            Task::Delete => "DELETE",
            Task::Count if is_eof => "COUNT",
            Task::Find | Task::Count => return stages,
        };
        let mut outer = describer.begin(name, &stats, root.works());
        if describer.executed {
            match self.purpose.task {
                Task::Update { upsert } => {
                    outer.push("nMatched", count(measured.found));
                    outer.push("nWouldModify", count(measured.modified));
                    let inserts = upsert && measured.found == 0;
                    outer.push("nWouldUpsert", i32::from(inserts));
                }
                Task::Delete => outer.push("nWouldDelete", count(measured.found)),
                Task::Find | Task::Count => {
                    outer.push("nCounted", 0);
                    outer.push("nSkipped", 0);
                }
            }
        }
        outer.push("inputStage", &stages);
        outer
    }
}

/// The trial run of a plan, for `allPlansExecution`.
fn of_trial(run: &TrialRun, describer: &Describer<'_>) -> DocBuf {
    let stats = run.executor.stats();
    let root = run.executor.root();
    let millis = root.stats().time.as_millis();
    doc! {
        "nReturned": count(run.found),
        "executionTimeMillisEstimate": count(millis),
        "totalKeysExamined": count(stats.keys_examined),
        "totalDocsExamined": count(stats.docs_examined),
        "score": run.score,
        "executionStages": root.describe(describer),
    }
}
