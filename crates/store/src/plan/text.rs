//! Plans of queries with `$text`, which need the text index.

use frond_error::ErrorCode;
use frond_query::matcher::Expr;

use super::candidates::{through_index, union};
use super::query::{Candidate, Query};
use super::{Access, Plan};
use crate::catalog::Collection;
use frond_storage::error::{Error, Result, command};
use frond_storage::intervals::conditions::Conditions;

/// Picks the plan.
///
/// # Errors
/// `BadValue` (2) for a hint and a natural order; `NoQueryExecutionPlans` (291) if the fields before the text are
/// not bounded, or a branch of an `$or` besides the text has no index.
pub fn choose(collection: &Collection, query: Query<'_>) -> Result<Plan> {
    let refuse = |message: &str| Err(command(ErrorCode::BadValue, message));
    if query.hint.is_some() {
        return refuse("text and hint not allowed in same query");
    }
    if query.sort.natural().is_some() {
        return refuse("text expression not allowed with $natural sort order");
    }
    let filters = [query.filter.predicates()];
    let conditions = Conditions::from_filter(query.filter.predicates(), query.id_collator);
    if conditions.impossible {
        return Ok(Plan {
            access: Access::Eof,
            sorted: true,
            rejected: Vec::new(),
        });
    }
    let best = if conditions.text.is_some() {
        let candidates = collection
            .ready_indexes()
            .filter(|index| {
                index
                    .spec
                    .method
                    .as_ref()
                    .is_some_and(|method| method.text().is_some())
            })
            .flat_map(|index| through_index(index, &query, &conditions, &filters, false));
        candidates.max_by(|a, b| a.rank.total_cmp(&b.rank))
    } else {
        union(collection, &query, &conditions, None).pop()
    };
    match best {
        Some(Candidate { access, sorted, .. }) => Ok(Plan {
            access,
            sorted,
            rejected: Vec::new(),
        }),
        None => Err(no_plan(collection, query.filter.predicates())),
    }
}

#[cold]
fn no_plan(collection: &Collection, filter: &Expr) -> Error {
    let is_branch = match filter {
        Expr::And(children) => !children.iter().any(|child| matches!(child, Expr::Text(_))),
        other => matches!(other, Expr::Or(_)),
    };
    let reason = if is_branch {
        "Failed to produce a solution for TEXT under OR - other non-TEXT clauses under OR have to be indexed as well."
    } else {
        "failed to use text index to satisfy $text query (if text index is compound, are equality predicates given \
         for all prefix fields?)"
    };
    command(
        ErrorCode::NoQueryExecutionPlans,
        format!(
            "error processing query: ns={} planner returned error :: caused by :: {reason}",
            collection.ns
        ),
    )
}
