//! The common parts of `2dsphere` and `2d` indexes.

use frond_bson::{Doc, Value};
use frond_error::{Error, Result};
use frond_query::geo::GeoQuery;
use frond_query::matcher::{Expr, Leaf, Op};
use frond_query::paths::{LeafArrays, Path, walk};
use std::ops::ControlFlow;

use crate::index::route::Route;
use crate::index::spec::PlanRequest;
use crate::intervals::Intervals;

/// The values at a path; arrays at its end are not unwound.
pub(super) fn values_at<'a>(doc: &'a Doc, path: &Path) -> Vec<Value<'a>> {
    let mut values = Vec::new();
    let _ = walk(doc, path, LeafArrays::Whole, &mut |value, _| {
        values.extend(value);
        ControlFlow::<()>::Continue(())
    });
    values
}

/// An option that has to be a number.
pub(super) fn number_option(spec: &Doc, name: &str) -> Result<Option<f64>> {
    match spec.get(name) {
        None => Ok(None),
        Some(value) if value.is_number() => Ok(value.as_f64()),
        Some(value) => Err(Error::type_mismatch(format!(
            "The field '{name}' must be a number, but got {}",
            value.type_name()
        ))),
    }
}

/// The geospatial conditions on a path that all documents must meet.
pub(super) fn conditions_on<'e>(
    expr: &'e Expr,
    path: &'e Path,
) -> Box<dyn Iterator<Item = &'e GeoQuery> + 'e> {
    match expr {
        Expr::And(children) => Box::new(
            children
                .iter()
                .filter(|child| matches!(child, Expr::Leaf(_)))
                .flat_map(move |child| conditions_on(child, path)),
        ),
        Expr::Leaf(Leaf {
            path: own,
            op: Op::Geo(query),
        }) if own == path => Box::new(std::iter::once(&**query)),
        _ => Box::new(std::iter::empty()),
    }
}

/// The route through an index whose geospatial parts have these ranges. There is none without ranges, because
/// the index lacks documents; a hint uses it all the same.
pub(super) fn route(request: &PlanRequest<'_>, fields: Vec<(usize, Intervals)>) -> Vec<Route> {
    if fields.is_empty() && !request.hinted {
        return Vec::new();
    }
    let mut route = Route::ordinary(&request.index.spec, request.multikey, request.conditions);
    route.is_exact = false;
    route.may_repeat = !request.multikey.is_empty();
    for (position, ranges) in fields {
        if let Some(field) = route.bounds.fields.get_mut(position) {
            *field = ranges;
        }
    }
    vec![route]
}
