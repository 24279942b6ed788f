//! Choosing how to find the documents of a query.
//!
//! Candidates are ranked by their bounds: fields bounded to one value first, then the kind of the first range, then
//! whether the index gives the order. Where several candidates remain, short trial runs decide.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;

use frond_bson::{Collator, key};
use frond_error::ErrorCode;
use frond_query::matcher::{ElemMatch, Expr, Filter, Op};
use frond_query::sort::SortSpec;

use super::order::order_of_route;
use super::residual::{Checked, checked};
use super::sorted::{OrderField, direction_for};
use super::text;
use super::{Access, Hint, IndexAccess, KeyInterval, KeyLimits, Plan, merge, partial};
use crate::catalog::Collection;
use frond_storage::error::{Result, command};
use frond_storage::index::kinds::PlanRequest;
use frond_storage::index::route::Route;
use frond_storage::index::spec::IndexSpec;
use frond_storage::index::{Index, covered};
use frond_storage::intervals::conditions::{Conditions, narrowness};
use frond_storage::intervals::{Interval, Intervals};
use frond_storage::keyspace::Direction;
use frond_storage::plan_rules::AllowedIndexes;

/// The input of the planner.
#[derive(Clone, Copy)]
pub struct Query<'a> {
    pub filter: &'a Filter,
    /// The order wanted, empty for none, with the collator of the query.
    pub sort: &'a SortSpec,
    /// The collation of the collection, and so of the index on `_id`.
    pub id_collator: &'a Collator,
    /// The index to use.
    pub hint: Option<&'a Hint>,
    /// The indexes that may be used; `None` for all.
    pub allowed: Option<&'a AllowedIndexes>,
    /// Whether the one on `_id` may be used.
    pub allows_id: bool,
    /// The fields that the query returns; `None` for all.
    pub shown: Option<&'a BTreeSet<String>>,
    /// Bounds of the hinted index.
    pub limits: &'a KeyLimits,
    /// Whether documents are stored by record id, and not by `_id`.
    pub by_record: bool,
    /// Whether the options of the request allow the plan `IDHACK`.
    pub by_id_only: bool,
    /// The path, if only its distinct values are wanted.
    pub distinct: Option<&'a str>,
    /// Set if a sort is not done by merging scans because there are too many of them.
    pub merge_limit_reached: &'a Cell<bool>,
}

/// A plan that could be chosen.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The access path to its documents.
    pub access: Access,
    /// Whether they come in the order that was asked for.
    pub sorted: bool,
    /// Its rank, by its bounds.
    pub rank: f64,
}

/// Rank of an index that gives the order: less than any bound with one open end.
const RANK_SORTED: f64 = 1.5;
/// Rank of a plan that reads no documents.
const RANK_COVERED: f64 = 0.5;
/// Rank of a field bounded to one value.
const RANK_POINT: f64 = 5.0;
/// Rank of a further bounded field after a range.
const RANK_BEHIND_RANGE: f64 = 0.25;
/// Rank of a unique index bounded to one entry.
const RANK_ONE_ENTRY: f64 = 1000.0;
/// Rank of one entry for each distinct value, if no condition lets entries be read in vain.
const RANK_DISTINCT: f64 = RANK_ONE_ENTRY;

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
    if query.hint.is_none()
        && !query.by_record
        && query.sort.natural().is_none()
        && let Some(id) = query.filter.equality("_id")
        && has_id_order(&query, &id)
        && (query.allows_id || is_one_equality(query.filter))
    {
        if query.by_id_only && is_one_equality(query.filter) {
            let mut encoded = Vec::new();
            query.id_collator.encode(&id, &mut encoded);
            return Ok(simple(Access::Id(encoded)));
        }
        let conditions = Conditions::from_filter(query.filter.predicates(), query.id_collator);
        let found = through_id(&query, &conditions, true).filter(|_| !conditions.impossible);
        return Ok(simple(found.map_or(Access::Eof, |found| found.access)));
    }
    if let Some(access) = hinted_scan(&query)? {
        return Ok(Plan {
            sorted: query.sort.is_empty(),
            access,
            rejected: Vec::new(),
        });
    }
    let filters = [query.filter.predicates()];
    let conditions = Conditions::from_filter(query.filter.predicates(), query.id_collator);
    if conditions.impossible {
        return Ok(simple(Access::Eof));
    }
    let hinted = match query.hint {
        Some(hint) => Some(find_hinted(collection, hint)?),
        None => None,
    };
    let mut candidates = Vec::new();
    match &hinted {
        Some(Some(index)) => {
            candidates.extend(through_index(index, &query, &conditions, &filters, true));
            // A wildcard index has no entries for all conditions at once, but for each branch of an `$or`.
            if candidates.is_empty() {
                candidates.extend(union(collection, &query, &conditions, Some(index)));
            }
        }
        Some(None) => candidates.extend(through_id(&query, &conditions, true)),
        None => {
            for index in collection.ready_indexes() {
                candidates.extend(through_index(index, &query, &conditions, &filters, false));
            }
            candidates.extend(through_id(&query, &conditions, false));
            candidates.extend(union(collection, &query, &conditions, None));
        }
    }
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
            access: Access::CollScan(
                query
                    .allowed
                    .and_then(AllowedIndexes::natural)
                    .unwrap_or(Direction::Forward),
            ),
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

/// Whether a filter is one equality, and nothing else.
fn is_one_equality(filter: &Filter) -> bool {
    matches!(
        filter.predicates(),
        Expr::Leaf(leaf) if matches!(leaf.op, Op::Compare(_))
    )
}

/// Whether the index on `_id` and the query compare this value alike.
fn has_id_order(query: &Query<'_>, id: &frond_bson::Value<'_>) -> bool {
    let own = query.sort.collator();
    own == query.id_collator || !(own.affects(id) || query.id_collator.affects(id))
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

/// The scan that `$natural` asks for, as hint or as sort.
pub(super) fn hinted_scan(query: &Query<'_>) -> Result<Option<Access>> {
    let natural = query.sort.natural().map(|direction| match direction {
        key::Direction::Ascending => Direction::Forward,
        key::Direction::Descending => Direction::Backward,
    });
    match (query.hint, natural) {
        (None, None) | (Some(Hint::Name(_) | Hint::Key(_) | Hint::Tree(_)), None) => Ok(None),
        (None, Some(direction)) => Ok(Some(Access::CollScan(direction))),
        (Some(Hint::Natural(hinted)), sorted) => {
            Ok(Some(Access::CollScan(sorted.unwrap_or(*hinted))))
        }
        (Some(Hint::Name(_) | Hint::Key(_) | Hint::Tree(_)), Some(_)) => Err(command(
            ErrorCode::BadValue,
            "Cannot use a $natural sort with a hint that is not $natural",
        )),
    }
}

/// The index of a hint; `None` for the one on `_id`.
pub(super) fn find_hinted(collection: &Collection, hint: &Hint) -> Result<Option<Arc<Index>>> {
    let none = || {
        command(
            ErrorCode::BadValue,
            "error processing query: planner returned error :: caused by :: hint provided does not \
             correspond to an existing index",
        )
    };
    match hint {
        Hint::Name(name) if !collection.is_by_record() && name == collection.id_index_name() => {
            Ok(None)
        }
        Hint::Name(name) => {
            let found = collection
                .ready_indexes()
                .find(|index| index.spec.name == *name && !index.spec.hidden);
            found.cloned().map(Some).ok_or_else(none)
        }
        Hint::Key(pattern) => {
            let id_pattern = frond_bson::doc! {"_id": 1};
            if !collection.is_by_record() && frond_bson::compare_docs(pattern, &id_pattern).is_eq()
            {
                return Ok(None);
            }
            let same = |index: &&Arc<Index>| {
                !index.spec.hidden && frond_bson::compare_docs(&index.spec.key, pattern).is_eq()
            };
            let found: Vec<_> = collection.ready_indexes().filter(same).collect();
            match found.as_slice() {
                [] => Err(none()),
                [one] => Ok(Some(Arc::clone(one))),
                _ => Err(command(
                    ErrorCode::IndexNotFound,
                    format!(
                        "Hint matched multiple indexes, must hint by index name. Matched: {}",
                        found
                            .iter()
                            .map(|index| frond_storage::text::document(&index.spec.doc))
                            .collect::<Vec<_>>()
                            .join(" and ")
                    ),
                )),
            }
        }
        Hint::Tree(tree) => {
            let found = collection.ready_indexes().find(|index| index.tree == *tree);
            found.cloned().map(Some).ok_or_else(none)
        }
        // Handled before.
        Hint::Natural(_) => Err(none()),
    }
}

fn rank_of_bounds(bounds: &[Intervals]) -> f64 {
    let mut rank = 0.0;
    let mut behind_range = false;
    for ranges in bounds {
        if behind_range {
            rank += if ranges.is_all() {
                0.0
            } else {
                RANK_BEHIND_RANGE
            };
        } else if ranges.is_point() {
            rank += RANK_POINT;
        } else {
            rank += f64::from(narrowness(ranges));
            behind_range = true;
        }
    }
    rank
}

/// Plans through one index, as far as they are of use. `conditions` are those of `filters` for the
/// collator of the collection.
pub(super) fn through_index(
    index: &Arc<Index>,
    query: &Query<'_>,
    conditions: &Conditions,
    filters: &[&Expr],
    hinted: bool,
) -> Vec<Candidate> {
    let spec = &index.spec;
    // A hidden index is used only by the server's own hint.
    if spec.hidden && !hinted {
        return Vec::new();
    }
    let is_allowed = |allowed: &AllowedIndexes| allowed.has(&spec.name, &spec.key);
    if !hinted && !query.allowed.is_none_or(is_allowed) {
        return Vec::new();
    }
    let multikey = index.multikey();
    let own;
    let conditions = if spec.collator == *query.id_collator {
        conditions
    } else {
        own = Conditions::of_all(filters, &spec.collator);
        &own
    };
    let routes = match &spec.method {
        None => vec![Route::ordinary(spec, &multikey, conditions)],
        Some(method) => method.routes(&PlanRequest {
            filter: query.filter.predicates(),
            conditions,
            index,
            multikey: &multikey,
            hinted,
        }),
    };
    let routes = routes.into_iter();
    routes
        .filter_map(|route| by_route(index, query, filters, route, hinted))
        .collect()
}

/// A plan for one route through an index, if it is of use.
fn by_route(
    index: &Arc<Index>,
    query: &Query<'_>,
    filters: &[&Expr],
    route: Route,
    hinted: bool,
) -> Option<Candidate> {
    let spec = &index.spec;
    let bounds = &route.bounds;
    if let Some(partial) = &spec.partial
        && !hinted
        && !partial::implies(filters, partial.filter.predicates(), &spec.collator)
    {
        return None;
    }
    if spec.sparse && bounds.may_be_missing && !hinted {
        return None;
    }
    let mut order = order_of_route(&route, spec);
    if query.by_record {
        // An entry ends with the record id, not with the `_id`.
        order.truncate(bounds.fields.len());
    }
    let collators = [&spec.collator, query.id_collator];
    without_foreign_order(&mut order, &bounds.fields, query, collators);
    let direction = direction_for(query.sort, &order);
    let gives_order = direction.is_some() && !query.sort.is_empty();
    let is_bounded = bounds.fields.first().is_some_and(|first| !first.is_all());
    let distinct = distinct_position(spec, &route, query);
    // An index without entries for some documents may be scanned completely.
    let is_smaller = spec.sparse || spec.partial.is_some();
    if !hinted && !is_bounded && !gives_order && !is_smaller && distinct.is_none() {
        return None;
    }
    // A string cannot be restored from a key with a collation.
    let covered = !spec.clustering
        && route.multikey.is_empty()
        && query.id_collator.is_binary()
        && is_covered(spec, query);
    let reads_no_more = covered || spec.clustering;
    let one_entry = spec.unique && bounds.leading_points() == spec.fields.len();
    let rank = rank_of_bounds(&bounds.fields)
        + if one_entry { RANK_ONE_ENTRY } else { 0.0 }
        + if gives_order { RANK_SORTED } else { 0.0 }
        + if reads_no_more { RANK_COVERED } else { 0.0 }
        - 0.01 * spec.fields.len() as f64;
    if bounds.is_none() {
        return Some(Candidate {
            access: Access::Eof,
            sorted: true,
            rank,
        });
    }
    let is_expanded = route.expanded.is_some();
    let merged = |access: &IndexAccess| {
        let may_explode = direction.is_none()
            && spec.method.is_none()
            && !is_expanded
            // Rows that need no fetch are sorted instead: a merge fetches each document.
            && !reads_no_more;
        let access = may_explode
            .then(|| merge::of_index(access, query.sort, &order, query.merge_limit_reached))?;
        access.map(Box::new)
    };
    let access = IndexAccess {
        index: index.clone(),
        multikey: route.multikey.clone(),
        interval: KeyInterval::default(),
        direction: direction.unwrap_or(Direction::Forward),
        covered,
        exact: route.is_exact,
        may_repeat: route.may_repeat,
        bounds: route.bounds.clone(),
        expanded: route.expanded.clone(),
    };
    if let Some(position) = distinct
        && is_told_by_entries(query.filter.predicates(), &access)
    {
        let mut behind = access.bounds.fields.iter().skip(position + 1);
        let mut conditions = query.filter.conditions().into_iter();
        let reads_nothing_in_vain = behind.all(Intervals::is_all)
            && conditions.all(|one| checked(one, &access) == Checked::ByBounds);
        return Some(Candidate {
            access: Access::Distinct {
                scan: access,
                position,
            },
            sorted: true,
            rank: rank
                + if reads_nothing_in_vain {
                    RANK_DISTINCT
                } else {
                    RANK_COVERED
                },
        });
    }
    if !hinted && !is_bounded && !gives_order && !is_smaller {
        return None;
    }
    Some(match merged(&access).filter(|_| query.limits.is_empty()) {
        Some(merge) => Candidate {
            access: Access::Merge(merge),
            sorted: true,
            rank: rank + RANK_SORTED,
        },
        None => Candidate {
            access: Access::Index(access),
            sorted: direction.is_some(),
            rank,
        },
    })
}

/// The position of the field whose distinct values the query wants, if entries have the values of the field and the
/// fields before it are bounded to one value.
fn distinct_position(spec: &IndexSpec, route: &Route, query: &Query<'_>) -> Option<usize> {
    let path = query.distinct?;
    let position = spec.fields.iter().position(|field| field.path == path)?;
    let before = route.bounds.fields.get(..position)?;
    let is_told = covered::can_rebuild(spec)
        && route.expanded.is_none()
        && !route.multikey.has_array(position)
        && query.limits.is_empty()
        && query.sort.collator().is_binary();
    (is_told && before.iter().all(Intervals::is_point)).then_some(position)
}

/// Whether the bounds and the entries of a scan decide all conditions of a filter.
fn is_told_by_entries(filter: &Expr, access: &IndexAccess) -> bool {
    match filter {
        Expr::And(children) => children.iter().all(|one| is_told_by_entries(one, access)),
        one => access.exact || checked(one, access) != Checked::OnDocument,
    }
}

/// Removes the order of fields whose strings are in another order than that of the query. The `collators` are that
/// of the fields and that of the `_id` after them.
fn without_foreign_order(
    order: &mut [OrderField<'_>],
    ranges: &[Intervals],
    query: &Query<'_>,
    collators: [&Collator; 2],
) {
    let wanted = query.sort.collator();
    for (position, field) in order.iter_mut().enumerate() {
        let (ranges, collator) = match ranges.get(position) {
            Some(ranges) => (Some(ranges), collators[0]),
            None => (None, collators[1]),
        };
        if collator != wanted && ranges.is_none_or(Intervals::may_hold_text) {
            field.is_array = true;
        }
    }
}

/// A plan over ranges of `_id`, if it is of use.
fn through_id(query: &Query<'_>, conditions: &Conditions, hinted: bool) -> Option<Candidate> {
    if query.by_record || !(hinted || query.allows_id) {
        return None;
    }
    let ranges = conditions
        .list
        .iter()
        .filter(|one| one.path == "_id")
        .fold(Intervals::all(), |ranges, one| {
            ranges.intersection(&one.intervals)
        });
    let mut order = [OrderField {
        path: "_id",
        direction: key::Direction::Ascending,
        is_point: ranges.is_point(),
        is_array: false,
    }];
    let collators = [query.id_collator; 2];
    without_foreign_order(&mut order, std::slice::from_ref(&ranges), query, collators);
    let direction = direction_for(query.sort, &order);
    let gives_order = direction.is_some() && !query.sort.is_empty();
    if !hinted && ranges.is_all() && !gives_order {
        return None;
    }
    let rank = if ranges.is_point() {
        RANK_ONE_ENTRY
    } else {
        rank_of_bounds(std::slice::from_ref(&ranges))
    };
    Some(Candidate {
        access: if ranges.is_none() {
            Access::Eof
        } else {
            Access::IdRange {
                ranges,
                direction: direction.unwrap_or(Direction::Forward),
                exact: conditions.are_exact_for(|path| path == "_id"),
            }
        },
        sorted: direction.is_some(),
        // The scan finds the documents themselves: nothing has to be fetched.
        rank: rank + RANK_COVERED + if gives_order { RANK_SORTED } else { 0.0 },
    })
}

/// Plans for the branches of an `$or`, if each branch has a bounded one: their union and, where each branch gives the
/// order of the query, their merge. With `only`, through that index.
pub(super) fn union(
    collection: &Collection,
    query: &Query<'_>,
    conditions: &Conditions,
    only: Option<&Arc<Index>>,
) -> Vec<Candidate> {
    let branches = match query.filter.predicates() {
        Expr::Or(branches) => Some(branches),
        Expr::And(children) => children.iter().find_map(|child| match child {
            Expr::Or(branches) => Some(branches),
            _ => None,
        }),
        _ => None,
    };
    let (Some(branches), Ok(unordered)) = (branches, SortSpec::parse(frond_bson::Doc::empty()))
    else {
        return Vec::new();
    };
    let unordered = unordered.collated(query.sort.collator());
    let best = |branch: &Expr, sort: &SortSpec| -> Option<Candidate> {
        let mut of_branch = Conditions::from_filter(branch, query.id_collator);
        if of_branch.impossible {
            return Some(Candidate {
                access: Access::Eof,
                sorted: true,
                rank: f64::INFINITY,
            });
        }
        of_branch.add_outer(conditions);
        let filters = [branch, query.filter.predicates()];
        let part = Query {
            sort,
            hint: None,
            // The union removes duplicates by `_id`, and the whole filter is tested above it.
            shown: None,
            distinct: None,
            ..*query
        };
        let through_indexes = collection
            .ready_indexes()
            .filter(|index| only.is_none_or(|only| Arc::ptr_eq(only, index)))
            .flat_map(|index| through_index(index, &part, &of_branch, &filters, false));
        let through_id = match only {
            None => through_id(&part, &of_branch, false),
            Some(_) => None,
        };
        through_indexes
            .chain(through_id)
            .filter(|candidate| candidate.sorted)
            .max_by(|a, b| a.rank.total_cmp(&b.rank))
    };
    let all = |sort: &SortSpec| -> Option<Vec<Candidate>> {
        let found: Option<Vec<Candidate>> =
            branches.iter().map(|branch| best(branch, sort)).collect();
        let mut found = found?;
        found.retain(|candidate| !matches!(candidate.access, Access::Eof));
        Some(found)
    };
    // The rank is that of the worst branch.
    let rank = |parts: &[Candidate]| {
        let least = parts.iter().map(|part| part.rank);
        least.fold(f64::INFINITY, f64::min) - 0.5
    };
    let mut plans = Vec::new();
    if !query.sort.is_empty()
        && let Some(parts) = all(query.sort)
        && !parts.is_empty()
    {
        let rank = rank(&parts);
        let branches: Option<Vec<_>> = parts
            .into_iter()
            .map(|part| merge::branches(part.access, query.sort, query.by_record))
            .collect();
        let branches = branches.into_iter().flatten().flatten();
        let branches: Vec<_> = branches.take(merge::SCANS_MAX + 1).collect();
        if branches.len() > merge::SCANS_MAX {
            query.merge_limit_reached.set(true);
        } else if !branches.is_empty() {
            let merge = merge::MergeAccess {
                branches,
                exploded: None,
                may_repeat: true,
            };
            plans.push(Candidate {
                access: Access::Merge(Box::new(merge)),
                sorted: true,
                rank,
            });
        }
    }
    if let Some(parts) = all(&unordered) {
        plans.push(Candidate {
            rank: rank(&parts),
            sorted: query.sort.is_empty(),
            access: if parts.is_empty() {
                Access::Eof
            } else {
                Access::Or(parts.into_iter().map(|part| part.access).collect())
            },
        });
    }
    plans
}

/// Whether entries of an index hold all fields that a query needs.
fn is_covered(spec: &IndexSpec, query: &Query<'_>) -> bool {
    let Some(shown) = query.shown else {
        return false;
    };
    let has = |path: &str| {
        (path == "_id" && !query.by_record) || spec.fields.iter().any(|field| field.path == path)
    };
    covered::can_rebuild(spec)
        && shown.iter().all(|path| has(path))
        && query.sort.fields().all(|(path, _)| has(path.as_str()))
        && paths_all(query.filter.predicates(), &has)
}

/// Whether all paths of a filter satisfy `has`.
fn paths_all(expr: &Expr, has: &impl Fn(&str) -> bool) -> bool {
    match expr {
        Expr::And(children) | Expr::Or(children) | Expr::Nor(children) => {
            children.iter().all(|child| paths_all(child, has))
        }
        Expr::Not(child) => paths_all(child, has),
        Expr::False => true,
        // It may read any field.
        Expr::Computed(_) | Expr::Schema(_) | Expr::Text(_) | Expr::Sample(_) => false,
        Expr::Leaf(leaf) => {
            let inner_is_fine = match &leaf.op {
                Op::ElemMatch(condition) => matches!(**condition, ElemMatch::Value(_)),
                _ => true,
            };
            inner_is_fine && has(leaf.path.as_str())
        }
    }
}
