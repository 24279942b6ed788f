//! Choosing how to find the documents of a query. Where several candidates remain, short trial runs decide.

use std::sync::Arc;

use frond_error::ErrorCode;
use frond_query::matcher::{Expr, Filter, Op};

use super::candidates::{RANK_ONE_ENTRY, has_id_order, through_id, through_index, union};
use super::query::{Candidate, Query, find_hinted, hinted_scan};
use super::{Access, Hint, KeyInterval, Plan, text};
use crate::catalog::Collection;
use frond_storage::error::{Result, command};
use frond_storage::index::Index;
use frond_storage::index::spec::IndexSpec;
use frond_storage::intervals::conditions::Conditions;
use frond_storage::intervals::{Interval, Intervals};
use frond_storage::keyspace::Direction;
use frond_storage::plan_rules::AllowedIndexes;

/// Picks the plan. `trial` decides between several candidates, ordered by rank.
///
/// # Errors
/// `BadValue` (2) if the hint names no index; errors of the trial.
pub fn choose(
    collection: &Collection,
    query: Query<'_>,
    trial: impl FnOnce(&[Candidate]) -> Result<usize>,
) -> Result<Plan> {
    if let Some(oplog) = collection.oplog() {
        return super::oplog::plan(collection, oplog, &query);
    }
    if let Some((path, near)) = query.filter.near() {
        return super::near::plan(collection, &query, path, near);
    }
    if query.filter.text().is_some() {
        return text::choose(collection, query);
    }
    if !query.limits.is_empty()
        && !matches!(
            query.hint,
            Some(Hint::Name(_) | Hint::Key(_) | Hint::Tree(_))
        )
    {
        return Err(command(
            ErrorCode::Location(51173),
            "When using min()/max() a hint of which index to use must be provided",
        ));
    }
    if let Some(access) = by_id(&query) {
        return Ok(simple(access));
    }
    if let Some(access) = hinted_scan(&query)? {
        return Ok(Plan {
            sorted: query.sort.is_empty(),
            access,
            rejected: Vec::new(),
        });
    }
    let conditions = Conditions::from_filter(query.filter.predicates(), query.id_collator);
    if conditions.impossible {
        return Ok(simple(Access::Eof));
    }
    let hinted = match query.hint {
        Some(hint) => Some(find_hinted(collection, hint)?),
        None => None,
    };
    let mut candidates = candidates(collection, &query, &conditions, hinted.as_ref());
    for candidate in &mut candidates {
        limit(&mut candidate.access, &query)?;
    }
    candidates.sort_by(|a, b| b.rank.total_cmp(&a.rank));
    if candidates.is_empty()
        && let Some(Some(index)) = &hinted
        && index.spec.method.is_some()
    {
        return Err(command(
            ErrorCode::NoQueryExecutionPlans,
            format!(
                "error processing query: ns={} planner returned error :: caused by :: No query \
                 solutions",
                collection.ns
            ),
        ));
    }
    let Some(first) = candidates.first() else {
        return Ok(Plan {
            access: match query.sample {
                Some(size) => Access::Random(size),
                None => Access::CollScan(
                    query
                        .allowed
                        .and_then(AllowedIndexes::natural)
                        .unwrap_or(Direction::Forward),
                ),
            },
            sorted: query.sort.is_empty(),
            rejected: Vec::new(),
        });
    };
    let is_clear = candidates.len() == 1
        || first.rank >= RANK_ONE_ENTRY / 2.0
        || matches!(first.access, Access::Eof);
    let best = if is_clear { 0 } else { trial(&candidates)? };
    let best = candidates.remove(best.min(candidates.len() - 1));
    Ok(Plan {
        access: best.access,
        sorted: best.sorted,
        rejected: candidates,
    })
}

/// The access by an equality of `_id`. `None` if the query has none, or must not use it.
fn by_id(query: &Query<'_>) -> Option<Access> {
    if query.hint.is_some() || query.by_record || query.sort.natural().is_some() {
        return None;
    }
    let id = query.filter.equality("_id")?;
    let is_only = is_one_equality(query.filter);
    if !has_id_order(query, &id) || !(query.allows_id || is_only) {
        return None;
    }
    if query.by_id_only && is_only {
        let mut encoded = Vec::new();
        query.id_collator.encode(&id, &mut encoded);
        return Some(Access::Id(encoded));
    }
    let conditions = Conditions::from_filter(query.filter.predicates(), query.id_collator);
    let found = through_id(query, &conditions, true).filter(|_| !conditions.impossible);
    Some(found.map_or(Access::Eof, |found| found.access))
}

/// The plans through the index of a hint, `Some(None)` being the one on `_id`, or through all.
fn candidates(
    collection: &Collection,
    query: &Query<'_>,
    conditions: &Conditions,
    hinted: Option<&Option<Arc<Index>>>,
) -> Vec<Candidate> {
    let filters = [query.filter.predicates()];
    let mut found = Vec::new();
    match hinted {
        Some(Some(index)) => {
            found.extend(through_index(index, query, conditions, &filters, true));
            // A wildcard index has no entries for all conditions at once, but for each branch of an `$or`.
            if found.is_empty() {
                found.extend(union(collection, query, conditions, Some(index)));
            }
        }
        Some(None) => found.extend(through_id(query, conditions, true)),
        None => {
            for index in collection.searchable_indexes() {
                found.extend(through_index(index, query, conditions, &filters, false));
            }
            found.extend(through_id(query, conditions, false));
            found.extend(union(collection, query, conditions, None));
        }
    }
    found
}

/// Whether a filter is one equality, and nothing else.
fn is_one_equality(filter: &Filter) -> bool {
    matches!(
        filter.predicates(),
        Expr::Leaf(leaf) if matches!(leaf.op, Op::Compare(_))
    )
}

/// Applies `min` and `max`.
fn limit(access: &mut Access, query: &Query<'_>) -> Result<()> {
    let limits = query.limits;
    if limits.is_empty() {
        return Ok(());
    }
    match access {
        Access::Index(access) => {
            let spec = &access.index.spec;
            access.interval = limits.encode(&spec.fields, &spec.collator)?;
        }
        Access::IdRange { ranges, .. } => {
            let spec = IndexSpec::parse(&IndexSpec::id_index_doc())?;
            let KeyInterval { low, high } = limits.encode(&spec.fields, query.id_collator)?;
            let between = Interval {
                low: low.unwrap_or_default(),
                high,
                ..Interval::all()
            };
            *ranges = ranges.intersection(&Intervals::one(between));
        }
        _ => {}
    }
    Ok(())
}

/// A plan whose order does not matter, because it finds one document at most.
fn simple(access: Access) -> Plan {
    Plan {
        access,
        sorted: true,
        rejected: Vec::new(),
    }
}
