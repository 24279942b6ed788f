//! Plans that could be chosen for a query, ranked by their bounds: fields bounded to one value first, then the kind of the
//! first range, then whether the index gives the order.

use std::sync::Arc;

use frond_bson::{Collator, key};
use frond_query::matcher::{ElemMatch, Expr, Op};
use frond_query::sort::SortSpec;

use super::order::order_of_route;
use super::query::{Candidate, Query};
use super::residual::{Checked, checked};
use super::sorted::{OrderField, direction_for};
use super::{Access, IndexAccess, KeyInterval, merge, partial};
use crate::catalog::Collection;
use frond_storage::index::route::Route;
use frond_storage::index::spec::{IndexSpec, PlanRequest};
use frond_storage::index::{Index, covered};
use frond_storage::intervals::Intervals;
use frond_storage::intervals::conditions::{Conditions, narrowness};
use frond_storage::keyspace::Direction;
use frond_storage::plan_rules::AllowedIndexes;

/// Rank of an index that gives the order: less than any bound with one open end.
const RANK_SORTED: f64 = 1.5;
/// Rank of a plan that reads no documents.
const RANK_COVERED: f64 = 0.5;
/// Rank of a field bounded to one value.
const RANK_POINT: f64 = 5.0;
/// Rank of a further bounded field after a range.
const RANK_BEHIND_RANGE: f64 = 0.25;
/// Rank of a unique index bounded to one entry.
pub(super) const RANK_ONE_ENTRY: f64 = 1000.0;
/// Rank of one entry for each distinct value, if no condition lets entries be read in vain.
const RANK_DISTINCT: f64 = RANK_ONE_ENTRY;

/// Whether the index on `_id` and the query compare this value alike.
pub(super) fn has_id_order(query: &Query<'_>, id: &frond_bson::Value<'_>) -> bool {
    let own = query.sort.collator();
    own == query.id_collator || !(own.affects(id) || query.id_collator.affects(id))
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
    let reads_no_more = covered || spec.clustering || spec.primary;
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
    let read = query.partitions.filter(|_| !spec.primary);
    let access = IndexAccess {
        index: index.clone(),
        multikey: route.multikey.clone(),
        interval: KeyInterval::default(),
        direction: direction.unwrap_or(Direction::Forward),
        covered,
        exact: route.is_exact,
        may_repeat: route.may_repeat,
        bounds: route.bounds.clone(),
        partitions: read.map(|read| read.spans.clone()),
        expanded: route.expanded.clone(),
    };
    if read.is_some_and(|read| read.spans.is_empty()) {
        return Some(Candidate {
            access: Access::Eof,
            sorted: true,
            rank,
        });
    }
    let is_expanded = route.expanded.is_some();
    // Each partition gives the order for itself. One after the other gives it, too, if it is that of the field that divides.
    let partitions_apart =
        gives_order && read.is_some_and(|read| !read.is_ordered(query.sort, &order));
    let merged = |access: &IndexAccess| {
        let may_explode = (direction.is_none() || partitions_apart)
            && spec.method.is_none()
            && !is_expanded
            // Rows that need no fetch are sorted instead: a merge fetches each document.
            && (!reads_no_more || partitions_apart);
        if !may_explode {
            return None;
        }
        let partitions = match read {
            Some(read) => read.existing(merge::SCANS_MAX)?,
            None => Vec::new(),
        };
        let limit_reached = query.merge_limit_reached;
        merge::of_index(access, query.sort, &order, &partitions, limit_reached).map(Box::new)
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
            sorted: direction.is_some() && !partitions_apart,
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
        // A value may be in several partitions.
        && spec.records.partitions().is_none()
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
pub(super) fn through_id(
    query: &Query<'_>,
    conditions: &Conditions,
    hinted: bool,
) -> Option<Candidate> {
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
            sample: None,
            ..*query
        };
        let through_indexes = collection
            .searchable_indexes()
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
