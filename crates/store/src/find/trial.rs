//! Short trial runs: of several plans, the one that finds documents with the least work.
//!
//! Every candidate runs on the query's snapshot until it has found a batch of documents, has come
//! to its end, or has done its share of work. The one with the most documents per unit of work wins;
//! a plan that still has to sort counts only if it came to its end. (This is how MongoDB ranks
//! plans.) The choice is remembered for queries of the same shape: the same fields, operators and
//! order, whatever the constants.

use std::sync::Arc;

use frond_query::matcher::{ElemMatch, Expr, Filter, Op, Relation};
use frond_query::sort::SortSpec;
use xxhash_rust::xxh3::Xxh3;

use crate::catalog::Collection;
use crate::context::OpContext;
use crate::error::Result;
use crate::exec::access::{Executor, Loading};
use crate::keyspace::Snapshot;
use crate::plan::Access;
use crate::plan::choose::Candidate;

/// Units of work, keys and documents looked at, that each candidate may do.
const WORK_MAX: u64 = 1000;
/// Documents after which a candidate has shown what it can do: a first batch.
const FOUND_MAX: u64 = 101;
/// Candidates that are tried; those with the best ranks.
const CANDIDATES_MAX: usize = 8;

/// A hash of which index a plan uses, without its bounds.
fn identity(access: &Access) -> u64 {
    let mut hasher = Xxh3::new();
    add_access(access, &mut hasher);
    hasher.digest()
}

fn add_access(access: &Access, hasher: &mut Xxh3) {
    match access {
        Access::Eof => hasher.update(b"eof"),
        Access::CollScan(_) => hasher.update(b"collscan"),
        Access::Id(_) | Access::IdRange { .. } => hasher.update(b"id"),
        Access::Index(access) => {
            hasher.update(b"index");
            hasher.update(&access.index.tree.0.to_le_bytes());
        }
        // It is never one of several.
        Access::Near(access) => {
            hasher.update(b"near");
            hasher.update(&access.scan.index.tree.0.to_le_bytes());
        }
        Access::Or(branches) => {
            hasher.update(b"or");
            for branch in branches {
                add_access(branch, hasher);
            }
        }
    }
}

/// A hash of a query without its constants.
pub fn shape(filter: &Filter, sort: &SortSpec) -> u64 {
    let mut hasher = Xxh3::new();
    if let Some(collation) = sort.collator().spec() {
        hasher.update(collation.as_bytes());
    }
    add_expr(filter.predicates(), &mut hasher);
    for (path, direction) in sort.fields() {
        hasher.update(path.as_str().as_bytes());
        hasher.update(match direction {
            frond_bson::key::Direction::Ascending => b"\0+",
            frond_bson::key::Direction::Descending => b"\0-",
        });
    }
    hasher.digest()
}

fn add_expr(expr: &Expr, hasher: &mut Xxh3) {
    let add_all = |name: &[u8], children: &[Expr], hasher: &mut Xxh3| {
        hasher.update(name);
        hasher.update(&children.len().to_le_bytes());
        for child in children {
            add_expr(child, hasher);
        }
    };
    match expr {
        Expr::And(children) => add_all(b"&", children, hasher),
        Expr::Or(children) => add_all(b"|", children, hasher),
        Expr::Nor(children) => add_all(b"~", children, hasher),
        Expr::Not(child) => {
            hasher.update(b"!");
            add_expr(child, hasher);
        }
        Expr::Computed(_) => hasher.update(b"$"),
        Expr::Schema(_) => hasher.update(b"s"),
        Expr::Text(_) => hasher.update(b"t"),
        Expr::Sample(_) => hasher.update(b"r"),
        Expr::False => hasher.update(b"f"),
        Expr::Leaf(leaf) => {
            hasher.update(leaf.path.as_str().as_bytes());
            hasher.update(b"\0");
            add_op(&leaf.op, hasher);
        }
    }
}

fn add_op(op: &Op, hasher: &mut Xxh3) {
    let name: &[u8] = match op {
        Op::Compare(comparison) => match comparison.relation() {
            Relation::Eq => b"eq",
            Relation::Lt => b"lt",
            Relation::Lte => b"lte",
            Relation::Gt => b"gt",
            Relation::Gte => b"gte",
        },
        Op::In(_) => b"in",
        Op::Exists => b"exists",
        Op::Type(_) => b"type",
        Op::Size(_) => b"size",
        Op::Mod(_) => b"mod",
        Op::Regex(_) => b"regex",
        Op::Bits(_) => b"bits",
        Op::Geo(_) => b"geo",
        Op::Near(_) => b"near",
        Op::ElemMatch(condition) => {
            hasher.update(b"elem");
            match &**condition {
                ElemMatch::Document(inner) | ElemMatch::Value(inner) => add_expr(inner, hasher),
            }
            b""
        }
    };
    hasher.update(name);
}

/// What is tried, and on what.
pub struct Trial<'a> {
    /// The collection.
    pub collection: &'a Arc<Collection>,
    /// The snapshot of the query.
    pub snapshot: &'a Snapshot,
    /// The filter.
    pub filter: &'a Arc<Filter>,
    /// The order wanted.
    pub sort: &'a SortSpec,
    /// Limits.
    pub context: &'a OpContext,
}

impl Trial<'_> {
    /// The place of the best among several candidates, which are ordered by rank.
    ///
    /// # Errors
    /// The limits of the context, errors of the engine.
    pub fn best(&self, candidates: &[Candidate]) -> Result<usize> {
        let documents = self.collection.counts().documents;
        let shape = shape(self.filter, self.sort);
        let plans = self.collection.plans();
        let known = plans.get(shape, documents).and_then(|plan| {
            let mut candidates = candidates.iter();
            candidates.position(|candidate| identity(&candidate.access) == plan)
        });
        if let Some(known) = known {
            return Ok(known);
        }
        let mut best = (f64::NEG_INFINITY, 0);
        let mut work_max = WORK_MAX;
        for (place, candidate) in candidates.iter().enumerate().take(CANDIDATES_MAX) {
            let score = self.run(candidate, &mut work_max)?;
            // Of equals the one with the better rank, which comes first.
            if score > best.0 {
                best = (score, place);
            }
        }
        if let Some(chosen) = candidates.get(best.1) {
            plans.put(shape, documents, identity(&chosen.access));
        }
        Ok(best.1)
    }

    /// Runs one candidate: documents per unit of work, and more if it came to its end. Then the
    /// others have no more work than it needed.
    fn run(&self, candidate: &Candidate, work_max: &mut u64) -> Result<f64> {
        let mut executor = Executor::open(
            self.collection.clone(),
            self.snapshot.clone(),
            candidate.access.clone(),
            self.filter.clone(),
            self.context.clone(),
        )?
        .loading(Loading::ForFilter(None));
        executor.set_work_max(*work_max);
        let mut found = 0;
        let ended = loop {
            match executor.next_row() {
                Ok(Some(_)) => found += 1,
                Ok(None) => break !executor.is_out_of_work(),
                // A document on which the filter fails says nothing about the plan.
                Err(crate::error::Error::Command(_)) => break false,
                Err(error) => return Err(error),
            }
            if found >= FOUND_MAX {
                break false;
            }
        };
        let work = executor.stats().work().max(1);
        if ended {
            *work_max = work.min(*work_max);
            return Ok(1.0 + found as f64 / work as f64 - work as f64 * 1e-6);
        }
        // Before it has seen everything, a plan that has to sort cannot return anything.
        Ok(if candidate.sorted {
            found as f64 / work as f64
        } else {
            0.0
        })
    }
}
