//! `explain`: the plan of a query, and what it does when it is run.

mod stages;

use std::collections::BTreeSet;
use std::time::Instant;

use frond_bson::{Collator, Doc, DocBuf, doc};
use frond_query::matcher::canonical;

use crate::clock::environment;
use crate::context::OpContext;
use crate::error::Result;
use crate::exec::ExecStats;
use crate::find::trial::shape;
use crate::find::{FindRequest, Planned, Question};
use crate::namespace::Namespace;
use crate::plan::Access;
use crate::queries::QueryLimit;
use crate::store::DocumentStore;
pub use stages::Task;
pub(crate) use stages::int;
use stages::{Measured, Room, Shown, counter_stage, stages};

/// How much `explain` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verbosity {
    /// The plan.
    QueryPlanner,
    /// The plan, run, with figures.
    ExecutionStats,
    /// As the former; other plans are not tried.
    AllPlansExecution,
}

/// What the documents of a query are found for.
#[derive(Clone, Copy)]
pub struct Purpose<'a> {
    /// What is done with them.
    pub task: Task,
    /// Whether the command returns a document that it changes or deletes.
    pub returns: bool,
    /// Whether an update would change a document.
    pub would_change: &'a dyn Fn(&Doc) -> bool,
}

impl Purpose<'_> {
    /// They are returned.
    pub const FIND: Purpose<'static> = Purpose {
        task: Task::Find,
        returns: true,
        would_change: &|_| false,
    };
}

/// Whether MongoDB would look one `_id` up without a plan, which it shows as `IDHACK`. A count skips by itself.
fn takes_short_way(request: &FindRequest<'_>, task: Task) -> bool {
    (request.skip == 0 || task == Task::Count)
        && request.hint.is_none()
        && request.min.is_none()
        && request.max.is_none()
        && !request.show_record_id
        && !request.tailable
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
        let measured = if verbosity == Verbosity::QueryPlanner {
            None
        } else {
            Some(self.measure(ns, request, purpose, context)?)
        };
        let planned = match purpose.task {
            Task::Count => self.plan_count(ns, request, context)?,
            _ => self.plan_find(ns, request, context)?.1,
        };
        let text = planned
            .as_ref()
            .and_then(|planned| planned.question.filter.text_match().cloned());
        let collator = self.catalog().collator(ns, request.collation.as_ref());
        let id_collator = self.catalog().collator(ns, None);
        let empty = Doc::empty();
        let filter = &*canonical(request.filter.unwrap_or(empty));
        let by_counter = purpose.task == Task::Count && filter.is_empty() && request.hint.is_none();
        let shape = planned
            .as_ref()
            .map(|planned| shape(&planned.question.filter, &planned.question.sort));
        let (access, rejected, sorted) = match planned {
            Some(planned) => {
                let plan = planned.plan;
                (plan.access, plan.rejected, plan.sorted)
            }
            None => (Access::Eof, Vec::new(), true),
        };
        let all_stages = |access: &Access, shown: &Shown<'_>| {
            if by_counter {
                counter_stage(shown)
            } else {
                stages(access, shown)
            }
        };
        let room = Room::default();
        let shown = Shown {
            room: &room,
            task: purpose.task,
            by_id_only: takes_short_way(request, purpose.task),
            hinted: request.hint.is_some(),
            filter,
            projection: request.projection.unwrap_or(empty),
            return_key: request.return_key,
            sort: if sorted {
                empty
            } else {
                request.sort.unwrap_or(empty)
            },
            sort_bytes: self.queries().limit(QueryLimit::Sort),
            collator: &collator,
            id_collator: &id_collator,
            skip: request.skip,
            limit: request.limit,
            measured: None,
            text: text.as_deref(),
        };
        let mut reply = doc! {"explainVersion": "1"};
        reply.push_doc("queryPlanner", |planner| {
            planner.push("namespace", ns.as_str());
            room.push(planner, "parsedQuery", filter);
            planner.push("indexFilterSet", false);
            if let Some(collation) = collator.spec() {
                planner.push("collation", collation);
            }
            if let Some(shape) = shape {
                let hash = format!("{:08X}", shape as u32);
                planner.push("queryHash", hash.as_str());
                planner.push("planCacheShapeHash", hash.as_str());
                planner.push("planCacheKey", hash.as_str());
            }
            planner.push("optimizationTimeMillis", 0);
            planner.push("maxIndexedOrSolutionsReached", false);
            planner.push("maxIndexedAndSolutionsReached", false);
            planner.push("maxScansToExplodeReached", false);
            planner.push("prunedSimilarIndexes", false);
            planner.push("winningPlan", &all_stages(&access, &shown));
            planner.push_array("rejectedPlans", |list| {
                for other in &rejected {
                    list.push(&stages(other, &shown));
                }
            });
        });
        if let Some(measured) = measured {
            reply.push_doc("executionStats", |stats| {
                stats.push("executionSuccess", true);
                let returned = if purpose.returns {
                    measured.returned
                } else {
                    0
                };
                stats.push("nReturned", int(returned));
                stats.push("executionTimeMillis", int(measured.millis));
                stats.push("totalKeysExamined", int(measured.stats.keys_examined));
                stats.push("totalDocsExamined", int(measured.stats.docs_examined));
                // MongoDB has no such field: only who has large documents sees it.
                if measured.stats.large_examined > 0 {
                    let large = int(measured.stats.large_examined);
                    stats.push("largeDocumentsExamined", large);
                }
                let shown = Shown {
                    measured: Some(measured),
                    ..shown
                };
                stats.push("executionStages", &all_stages(&access, &shown));
                if verbosity == Verbosity::AllPlansExecution {
                    stats.push_array("allPlansExecution", |_| ());
                }
            });
        }
        Ok(reply)
    }

    /// Plans a count: it looks at no field.
    fn plan_count(
        &self,
        ns: &Namespace,
        request: &FindRequest<'_>,
        context: &OpContext,
    ) -> Result<Option<Planned>> {
        let environment = environment(request.variables, Collator::BINARY);
        let question = Question::parse(request.filter, None, request.hint, &environment)?;
        let question = question.showing(Some(BTreeSet::new()));
        question.plan(self.catalog(), ns, context)
    }

    /// Runs a count to its end.
    fn measure_count(
        &self,
        ns: &Namespace,
        request: &FindRequest<'_>,
        context: &OpContext,
    ) -> Result<Measured> {
        let start = Instant::now();
        let mut measured = Measured {
            stats: ExecStats::default(),
            returned: 0,
            modified: 0,
            spills: 0,
            spilled_bytes: 0,
            millis: 0,
        };
        let most = request.limit.unwrap_or(u64::MAX);
        if request.filter.is_none_or(Doc::is_empty) && request.hint.is_none() {
            measured.returned = self
                .estimated_count(ns)
                .saturating_sub(request.skip)
                .min(most);
        } else if let Some(planned) = self.plan_count(ns, request, context)? {
            let mut executor = planned.open(context)?.without_docs();
            let mut found = 0;
            while found < most.saturating_add(request.skip) && executor.next_row()?.is_some() {
                found += 1;
            }
            measured.stats = executor.stats();
            measured.returned = found.saturating_sub(request.skip);
        }
        measured.millis = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(measured)
    }

    /// Runs a find to its end.
    fn measure(
        &self,
        ns: &Namespace,
        request: &FindRequest<'_>,
        purpose: &Purpose<'_>,
        context: &OpContext,
    ) -> Result<Measured> {
        if purpose.task == Task::Count {
            return self.measure_count(ns, request, context);
        }
        let start = Instant::now();
        let mut cursor = self.find(ns, request, context)?;
        let mut modified = 0;
        while let Some(doc) = cursor.next()? {
            modified += u64::from((purpose.would_change)(&doc));
        }
        let stats: ExecStats = cursor.stats();
        Ok(Measured {
            stats,
            returned: cursor.returned(),
            modified,
            spills: cursor.spilled().times(),
            spilled_bytes: cursor.spilled().bytes(),
            millis: u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX),
        })
    }
}
