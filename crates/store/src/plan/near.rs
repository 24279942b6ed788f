//! Plans of `$near` and `$geoNear`, which need a geospatial index.

use std::sync::Arc;

use frond_error::ErrorCode;
use frond_query::geo::Near;
use frond_query::paths::Path;

use super::key_range::KeyRange;
use super::query::{Query, find_hinted};
use super::{Access, Hint, IndexAccess, KeyInterval, Plan, partial};
use crate::catalog::Collection;
use frond_storage::error::{Error, Result, command};
use frond_storage::index::Index;
use frond_storage::index::kinds::near::GeoField;
use frond_storage::index::route::Route;
use frond_storage::intervals::Intervals;
use frond_storage::intervals::conditions::Conditions;
use frond_storage::keyspace::Direction;

/// Reading an index around a point.
#[derive(Clone, Debug)]
pub struct NearAccess {
    /// The index, with bounds for the other parts.
    pub scan: IndexAccess,
    /// The part with the cells.
    pub field: GeoField,
    /// The point and the distances.
    pub near: Arc<Near>,
    /// The path of the geometry.
    pub path: Path,
}

impl NearAccess {
    /// The keys between two distances from the point.
    pub fn ring_range(&self, from: f64, to: f64) -> KeyRange {
        let mut scan = self.scan.clone();
        if let Some(field) = scan.bounds.fields.get_mut(self.field.position) {
            *field = self.field.ring(&self.near, from, to);
        }
        scan.key_range()
    }
}

/// The plan of a query with `$near`.
///
/// # Errors
/// `NoQueryExecutionPlans` (291) if there is no index for it, `BadValue` (2) with `$natural`.
pub(super) fn plan(
    collection: &Collection,
    query: &Query<'_>,
    path: &Path,
    near: &Arc<Near>,
) -> Result<Plan> {
    for (natural, what) in [
        (query.sort.natural().is_some(), "sort order"),
        (matches!(query.hint, Some(Hint::Natural(_))), "hint"),
    ] {
        if natural {
            return Err(command(
                ErrorCode::BadValue,
                format!("geoNear expression not allowed with $natural {what}"),
            ));
        }
    }
    let hinted = match query.hint {
        Some(hint) => Some(find_hinted(collection, hint)?.ok_or_else(|| no_index(collection))?),
        None => None,
    };
    let conditions = Conditions::from_filter(query.filter.predicates(), query.id_collator);
    let candidates = collection.ready_indexes().filter(|index| match &hinted {
        Some(hinted) => Arc::ptr_eq(hinted, index),
        None => !index.spec.hidden && has_all(index, query),
    });
    let best = candidates
        .filter_map(|index| {
            let field = index.spec.method.as_ref()?.near(path, near)?;
            let multikey = index.multikey();
            let own = Conditions::from_filter(query.filter.predicates(), &index.spec.collator);
            let route = Route::ordinary(&index.spec, &multikey, &own);
            let bounded = route.bounds.fields.iter().filter(|ranges| !ranges.is_all());
            let rank = (bounded.count(), std::cmp::Reverse(index.spec.fields.len()));
            let scan = IndexAccess {
                index: index.clone(),
                may_repeat: !multikey.is_empty(),
                multikey,
                bounds: route.bounds,
                interval: KeyInterval::default(),
                direction: Direction::Forward,
                covered: false,
                exact: false,
                partitions: query.partitions.map(|read| read.spans.clone()),
                expanded: None,
            };
            Some((
                rank,
                NearAccess {
                    scan,
                    field,
                    near: near.clone(),
                    path: path.clone(),
                },
            ))
        })
        // The first one of equal ranks.
        .reduce(|best, other| if other.0 > best.0 { other } else { best });
    let (_, access) = best.ok_or_else(|| no_index(collection))?;
    let access =
        if conditions.impossible || access.scan.bounds.fields.iter().any(Intervals::is_none) {
            Access::Eof
        } else {
            Access::Near(Box::new(access))
        };
    Ok(Plan {
        sorted: query.sort.is_empty(),
        access,
        rejected: Vec::new(),
    })
}

/// Whether a partial index has all documents that can match.
fn has_all(index: &Index, query: &Query<'_>) -> bool {
    index.spec.partial.as_ref().is_none_or(|partial| {
        partial::implies(
            &[query.filter.predicates()],
            partial.filter.predicates(),
            &index.spec.collator,
        )
    })
}

fn no_index(collection: &Collection) -> Error {
    command(
        ErrorCode::NoQueryExecutionPlans,
        format!(
            "error processing query: ns={} planner returned error :: caused by :: unable to find \
             index for $geoNear query",
            collection.ns
        ),
    )
}
