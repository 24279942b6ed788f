//! Short trial runs of several plans, to find the one that needs the least work for a document.
//!
//! Every candidate runs on the query's snapshot until it has found a batch of documents, has reached
//! its end, or has done its share of work. The one with the most documents per unit of work wins;
//! a plan that still has to sort counts only if it reached its end. (This is how MongoDB ranks
//! plans.) The choice is cached for queries of the same shape, see [`crate::plan::cache`].

use std::cell::RefCell;
use std::sync::Arc;

use frond_bson::{Doc, DocBuf, doc};
use frond_error::ErrorCode;
use frond_query::matcher::Filter;
use frond_query::sort::SortSpec;

use super::build::{Builder, RowParts};
use super::executor::Executor;
use super::operator::{Flow, Pulled};
use super::reader::Loading;
use crate::catalog::{Collection, Winner};
use crate::op_stats;
use crate::plan::cache::{identity, shape};
use crate::plan::query::Candidate;
use crate::plan::summary::Summary;
use frond_storage::context::OpContext;
use frond_storage::error::{Error, Result};
use frond_storage::keyspace::Snapshot;

/// Units of work, keys and documents examined, that each candidate may do.
const WORK_MAX: u64 = 1000;
/// Documents after which a candidate stops: a first batch.
const FOUND_MAX: u64 = 101;
/// Candidates that are tried; those with the best ranks.
const CANDIDATES_MAX: usize = 8;
/// Of larger queries the plan cache has no example.
const EXAMPLE_BYTES_MAX: usize = 2 << 10;

/// A query as it was asked.
#[derive(Clone, Debug)]
pub struct ExampleQuery {
    query: DocBuf,
    sort: Option<DocBuf>,
}

impl ExampleQuery {
    /// Copies a query. `None` if it is large: the plan cache would hold as much.
    pub fn new(query: Option<&Doc>, sort: Option<&Doc>) -> Option<ExampleQuery> {
        let query = query.filter(|query| !query.is_empty())?;
        let sort = sort.filter(|sort| !sort.is_empty());
        let bytes = query.as_bytes().len() + sort.map_or(0, |sort| sort.as_bytes().len());
        (bytes <= EXAMPLE_BYTES_MAX).then(|| ExampleQuery {
            query: query.to_owned(),
            sort: sort.map(Doc::to_owned),
        })
    }

    fn to_doc(&self) -> DocBuf {
        let sort = self.sort.as_deref().unwrap_or(Doc::empty());
        doc! {"query": &self.query, "sort": sort, "projection": {}}
    }
}

/// The query whose plans are tried.
pub struct Trial<'a> {
    pub collection: &'a Arc<Collection>,
    /// The snapshot of the query.
    pub snapshot: &'a Snapshot,
    pub filter: &'a Arc<Filter>,
    pub sort: &'a SortSpec,
    /// The query as it was asked, if it is known.
    pub example_query: Option<&'a ExampleQuery>,
    pub context: &'a OpContext,
    /// Keeps the runs for `explain`, which ignores the cached choice.
    pub kept: Option<&'a RefCell<Vec<TrialRun>>>,
}

/// A candidate that was tried.
pub struct TrialRun {
    /// Its position among the candidates.
    pub candidate: usize,
    /// Its operators, with their statistics.
    pub executor: Executor,
    /// Documents that it found.
    pub found: u64,
    /// Its score: documents per unit of work, plus one if it reached its end.
    pub score: f64,
}

impl Trial<'_> {
    /// The position of the best among several candidates, which are ordered by rank.
    ///
    /// # Errors
    /// The limits of the context, errors of the engine.
    pub fn best(&self, candidates: &[Candidate]) -> Result<usize> {
        let documents = self.collection.counts().documents;
        let shape = shape(self.filter, self.sort);
        let plans = self.collection.plans();
        if self.kept.is_none()
            && let Some(plan) = plans.get(shape, documents)
            && let Some(known) = (candidates.iter()).position(|one| identity(&one.access) == plan)
        {
            op_stats::update(|op_stats| op_stats.from_plan_cache = true);
            return Ok(known);
        }
        op_stats::update(|op_stats| op_stats.from_multi_planner = true);
        let (mut best, mut works) = ((f64::NEG_INFINITY, 0), 0);
        let mut work_max = WORK_MAX;
        for (position, candidate) in candidates.iter().enumerate().take(CANDIDATES_MAX) {
            let run = self.run(position, candidate, &mut work_max)?;
            // Of equals the one with the better rank, which comes first.
            if run.score > best.0 {
                best = (run.score, position);
                works = run.executor.stats().work().max(1);
            }
            if let Some(kept) = self.kept {
                kept.borrow_mut().push(run);
            }
        }
        if let Some(chosen) = candidates.get(best.1) {
            let winner = Winner {
                plan: identity(&chosen.access),
                summary: Summary::from_access(&chosen.access).text(),
                works,
                example: self.example_query.map(ExampleQuery::to_doc),
            };
            plans.put(shape, documents, winner);
        }
        Ok(best.1)
    }

    /// Runs one candidate. If it reaches its end, the others may do no more work than it needed.
    fn run(&self, position: usize, candidate: &Candidate, work_max: &mut u64) -> Result<TrialRun> {
        let wanted = RowParts::documents(Loading::ForFilter(None));
        let builder = Builder {
            collection: self.collection,
            filter: self.filter,
            sort: self.sort,
            wanted: &wanted,
        };
        let (collection, snapshot) = (self.collection.clone(), self.snapshot.clone());
        let rows = builder.rows(candidate.access.clone());
        let mut executor = Executor::new(rows, collection, snapshot, self.context.clone(), false);
        if self.kept.is_some() {
            executor.take_times();
        }
        executor.set_work_max(*work_max);
        let mut found = 0;
        let pulled = executor.for_each(&mut |_| {
            found += 1;
            Ok(if found < FOUND_MAX {
                Flow::Continue
            } else {
                Flow::Pause
            })
        });
        let ended = match pulled {
            Ok(pulled) => pulled == Pulled::End,
            Err(Error::Command(error)) if is_limit(error.code()) => {
                return Err(Error::Command(error));
            }
            // A document on which the filter fails says nothing about the plan.
            Err(Error::Command(_)) => false,
            Err(error) => return Err(error),
        };
        let work = executor.stats().work().max(1);
        let score = if ended {
            *work_max = work.min(*work_max);
            1.0 + found as f64 / work as f64 - work as f64 * 1e-6
        } else if candidate.sorted {
            found as f64 / work as f64
        } else {
            // A plan that has to sort returns nothing before it has read all rows.
            0.0
        };
        Ok(TrialRun {
            candidate: position,
            executor,
            found,
            score,
        })
    }
}

/// Whether an error says that the operation must end.
fn is_limit(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::MaxTimeMSExpired
            | ErrorCode::Interrupted
            | ErrorCode::ClientDisconnect
            | ErrorCode::InterruptedAtShutdown
    )
}
