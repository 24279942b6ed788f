//! The cells of a geospatial field as ranges of an index.

use frond_bson::{Value, key};
use frond_query::geo::Near;
use frond_query::geo::cells::{self, Levels};
use frond_query::geo::grid::{self, Grid};

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
            GeoCells::Sphere(levels) => {
                sphere_intervals(&cells::ring_spans(near, from, to, *levels))
            }
            GeoCells::Plane(grid) => plane_intervals(&grid::ring_spans(near, from, to, grid)),
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

/// A cell of the grid as a signed number of the same order.
pub(super) fn signed(place: u64) -> i64 {
    place.cast_signed() ^ i64::MIN
}

/// The ranges of cells of a grid.
pub(super) fn plane_intervals(spans: &[(u64, u64)]) -> Intervals {
    let spans = spans.iter();
    Intervals::union_of(
        spans
            .map(|(low, high)| span(signed(*low), signed(*high)))
            .collect(),
    )
}

/// The ranges of cells of the sphere.
pub(super) fn sphere_intervals(spans: &[(i64, i64)]) -> Intervals {
    Intervals::union_of(spans.iter().map(|(low, high)| span(*low, *high)).collect())
}

/// Numbers from `low` to `high`, inclusive.
fn span(low: i64, high: i64) -> Interval {
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
