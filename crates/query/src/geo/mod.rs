//! Geometry: GeoJSON and legacy pairs, containment, intersection and distance, and the cells of geospatial
//! indexes.
//!
//! On the sphere, lines are the shortest ones ("geodesic"); in the plane of legacy pairs they are
//! straight. Cells come from the crate `s2`, exact determinants from `robust`; lines, rings and areas are
//! here, because `s2` has none.

pub mod cells;
mod edges;
mod exact;
pub mod flat;
pub mod grid;
mod index;
mod near;
mod parse;
mod polygon;
mod region;
mod ring;
mod shape;
mod sphere;
#[cfg(test)]
mod tests;

pub use index::{cannot_extract, flat_keys, is_nothing, sphere_keys};
pub(crate) use near::is_near;
pub use near::{Near, Nearest};
pub use parse::Geometry;
pub use region::{GeoQuery, Predicate};
pub use sphere::EARTH_RADIUS_METRES;
