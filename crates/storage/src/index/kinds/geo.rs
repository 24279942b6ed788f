//! The common parts of `2dsphere` and `2d` indexes.

use frond_bson::{Doc, Value, key};
use frond_error::{Error, Result};
use frond_query::geo::cells::Levels;
use frond_query::geo::grid::Grid;
use frond_query::geo::{GeoQuery, Near};
use frond_query::matcher::{Expr, Leaf, Op};
use frond_query::paths::{LeafArrays, Path, walk};
use std::ops::ControlFlow;

use super::{PlanRequest, plane, sphere};
use crate::index::route::Route;
use crate::intervals::{Interval, Intervals, Label};

/// The cells of a geospatial field.
#[derive(Clone, Copy, Debug)]
pub enum GeoCells {
    /// Those of the sphere.
    Sphere(Levels),
    /// Those of a grid.
    Plane(Grid),
}

/// The part of an index that finds what is near a point.
#[derive(Clone, Copy, Debug)]
pub struct GeoField {
    /// Its position among the parts.
    pub position: usize,
    pub cells: GeoCells,
}

impl GeoField {
    /// The values of the part for geometries between two distances from the point: radians on the sphere.
    pub fn ring(&self, near: &Near, from: f64, to: f64) -> Intervals {
        match &self.cells {
            GeoCells::Sphere(levels) => sphere::ring(near, from, to, *levels),
            GeoCells::Plane(grid) => plane::ring(near, from, to, grid),
        }
    }

    /// The smallest distance that the cells resolve.
    pub fn finest(&self, near: &Near) -> f64 {
        match &self.cells {
            GeoCells::Plane(grid) if !near.is_spherical() => (grid.max - grid.min) * 1e-7,
            _ => 1e-6,
        }
    }

    /// The greatest distance that a geometry can have.
    pub fn farthest(&self, near: &Near) -> f64 {
        match &self.cells {
            GeoCells::Plane(grid) if !near.is_spherical() => near.distance_to_corner(grid),
            _ => std::f64::consts::PI,
        }
    }

    /// The name of the stage in `explain`.
    pub fn stage(&self) -> &'static str {
        match &self.cells {
            GeoCells::Sphere(_) => "GEO_NEAR_2DSPHERE",
            GeoCells::Plane(_) => "GEO_NEAR_2D",
        }
    }
}

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

/// Numbers from `low` to `high`, inclusive.
pub(super) fn span(low: i64, high: i64) -> Interval {
    let encoded = |number: i64| {
        let mut bytes = Vec::new();
        key::encode(&Value::Int64(number), &mut bytes);
        bytes
    };
    let label = |number: i64| Label::Value {
        value: Value::Int64(number).to_owned(),
        inclusive: true,
    };
    Interval {
        low: encoded(low),
        high: crate::keyspace::after_prefix(&encoded(high)),
        low_label: label(low),
        high_label: label(high),
        point: low == high,
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
