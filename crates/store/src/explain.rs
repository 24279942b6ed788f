//! `explain`: the plan of a query, and what it does when it is run.

use std::time::Instant;

use frond_bson::{Doc, DocBuf, doc};

use crate::context::OpContext;
use crate::error::Result;
use crate::exec::ExecStats;
use crate::find::FindRequest;
use crate::namespace::Namespace;
use crate::plan::Access;
use crate::plan::explain::{Measured, Shown, stages};
use crate::queries::QueryLimit;
use crate::store::DocumentStore;

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
        let measured = if verbosity == Verbosity::QueryPlanner {
            None
        } else {
            Some(self.measure(ns, request, context)?)
        };
        let planned = self.plan_find(ns, request, context)?.1;
        let empty = Doc::empty();
        let filter = request.filter.unwrap_or(empty);
        let (access, rejected, sorted) = match planned {
            Some(planned) => {
                let plan = planned.plan;
                (plan.access, plan.rejected, plan.sorted)
            }
            None => (Access::Eof, Vec::new(), true),
        };
        let shown = Shown {
            filter,
            projection: request.projection.unwrap_or(empty),
            return_key: request.return_key,
            sort: if sorted {
                empty
            } else {
                request.sort.unwrap_or(empty)
            },
            sort_bytes: self.queries().limit(QueryLimit::Sort),
            skip: request.skip,
            limit: request.limit,
            measured: None,
        };
        let mut reply = doc! {"explainVersion": "1"};
        reply.push_doc("queryPlanner", |planner| {
            planner.push("namespace", ns.as_str());
            planner.push("indexFilterSet", false);
            planner.push("parsedQuery", filter);
            planner.push("maxIndexedOrSolutionsReached", false);
            planner.push("maxIndexedAndSolutionsReached", false);
            planner.push("maxScansToExplodeReached", false);
            planner.push("winningPlan", &stages(&access, &shown));
            planner.push_array("rejectedPlans", |list| {
                for other in &rejected {
                    list.push(&stages(other, &shown));
                }
            });
        });
        if let Some(measured) = measured {
            reply.push_doc("executionStats", |stats| {
                stats.push("executionSuccess", true);
                stats.push("nReturned", measured.returned as i64);
                stats.push("executionTimeMillis", measured.millis as i64);
                stats.push("totalKeysExamined", measured.stats.keys_examined as i64);
                stats.push("totalDocsExamined", measured.stats.docs_examined as i64);
                let shown = Shown {
                    measured: Some(measured),
                    ..shown
                };
                stats.push("executionStages", &stages(&access, &shown));
                if verbosity == Verbosity::AllPlansExecution {
                    stats.push_array("allPlansExecution", |_| ());
                }
            });
        }
        Ok(reply)
    }

    /// Runs a find to its end.
    fn measure(
        &self,
        ns: &Namespace,
        request: &FindRequest<'_>,
        context: &OpContext,
    ) -> Result<Measured> {
        let start = Instant::now();
        let mut cursor = self.find(ns, request, context)?;
        while cursor.next()?.is_some() {}
        let stats: ExecStats = cursor.stats();
        Ok(Measured {
            stats,
            returned: cursor.returned(),
            spills: cursor.spilled().times(),
            spilled_bytes: cursor.spilled().bytes(),
            millis: u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX),
        })
    }
}
