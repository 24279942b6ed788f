//! Stored geometries: points, lines and areas on the sphere.

use s2::point::Point;

use super::edges::{Bounds, Edges};
use super::polygon::{Polygon, lines_cross};
use super::sphere::{TOLERANCE, angle, arc_distance};

/// Points, lines and areas together. A single GeoJSON object is one with one part.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shape {
    pub(crate) points: Vec<Point>,
    pub(crate) lines: Vec<Edges>,
    pub(crate) polygons: Vec<Polygon>,
}

impl Shape {
    pub(crate) fn of_point(point: Point) -> Shape {
        Shape {
            points: vec![point],
            ..Shape::default()
        }
    }

    pub(crate) fn of_polygon(polygon: Polygon) -> Shape {
        Shape {
            polygons: vec![polygon],
            ..Shape::default()
        }
    }

    /// Adds the parts of another shape.
    pub(crate) fn add(&mut self, other: Shape) {
        self.points.extend(other.points);
        self.lines.extend(other.lines);
        self.polygons.extend(other.polygons);
    }

    /// Whether the point is on any part.
    fn meets_point(&self, p: &Point) -> bool {
        self.points.iter().any(|q| angle(p, q) <= TOLERANCE)
            || self.lines.iter().any(|line| line.touches(p))
            || self.polygons.iter().any(|polygon| polygon.covers(p))
    }

    fn meets_line(&self, line: &Edges) -> bool {
        self.points.iter().any(|p| line.touches(p))
            || self.lines.iter().any(|other| lines_cross(other, line))
            || self.polygons.iter().any(|polygon| polygon.meets_line(line))
    }

    fn meets_polygon(&self, polygon: &Polygon) -> bool {
        self.points.iter().any(|p| polygon.covers(p))
            || self.lines.iter().any(|line| polygon.meets_line(line))
            || self.polygons.iter().any(|other| other.meets(polygon))
    }

    /// Whether two shapes have a point in common.
    pub(crate) fn meets(&self, other: &Shape) -> bool {
        other.points.iter().any(|p| self.meets_point(p))
            || other.lines.iter().any(|line| self.meets_line(line))
            || other.polygons.iter().any(|area| self.meets_polygon(area))
    }

    /// Whether each part of another shape lies in one area of this one. Borders count.
    pub(crate) fn covers(&self, other: &Shape) -> bool {
        let any = |condition: &dyn Fn(&Polygon) -> bool| self.polygons.iter().any(condition);
        other.points.iter().all(|p| any(&|area| area.covers(p)))
            && other
                .lines
                .iter()
                .all(|line| any(&|area| area.covers_line(line)))
            && other
                .polygons
                .iter()
                .all(|polygon| any(&|area| area.covers_polygon(polygon)))
    }

    /// The angle from a point to the nearest part: zero inside of an area.
    pub(crate) fn distance(&self, p: &Point) -> f64 {
        let points = self.points.iter().map(|q| angle(p, q));
        let lines = self.lines.iter().map(|line| line.distance(p));
        let areas = self.polygons.iter().map(|area| area.distance(p));
        points
            .chain(lines)
            .chain(areas)
            .fold(f64::INFINITY, f64::min)
    }

    /// The greatest angle from a point to any part.
    pub(crate) fn reach(&self, p: &Point) -> f64 {
        // The far side of the sphere is as near as this side is far.
        std::f64::consts::PI - self.distance(&super::sphere::antipode(p))
    }

    /// Whether an arc has a point in common with the border or a line, or a point lies on it.
    pub(crate) fn outline_meets(&self, bounds: &Bounds, a: &Point, b: &Point) -> bool {
        let meets =
            |edges: &Edges| edges.any_near(bounds, |c, d| super::sphere::arcs_meet(a, b, c, d));
        self.points
            .iter()
            .any(|p| arc_distance(p, a, b) <= TOLERANCE)
            || self.lines.iter().any(meets)
            || self
                .polygons
                .iter()
                .any(|area| area.rings().any(|ring| meets(ring.edges())))
    }

    /// A point of each point, line and ring.
    pub(crate) fn corners(&self) -> impl Iterator<Item = &Point> {
        let lines = self.lines.iter().filter_map(|line| line.vertices().first());
        let areas = self.polygons.iter().flat_map(|area| {
            area.rings()
                .filter_map(|ring| ring.edges().vertices().first())
        });
        self.points.iter().chain(lines).chain(areas)
    }
}
