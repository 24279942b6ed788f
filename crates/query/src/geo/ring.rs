//! A closed line around an area.
//!
//! A point is inside if an arc from it to a point known to be outside crosses the ring an odd number of
//! times. Shared vertices are decided so that of the areas around a vertex exactly one has it, see
//! [`changes_side`].

use std::ops::ControlFlow;

use s2::point::Point;

use super::edges::{Bounds, Edges};
use super::exact::{changes_side, ordered, orientation, reference};
use super::sphere::{angle, arcs_cross, moved, to_lng_lat};

/// A ring that stays within this angle of its middle is treated as small.
const SMALL: f64 = 1.5;

/// A closed line without crossings, and which side is inside.
#[derive(Clone, Debug)]
pub(crate) struct Ring {
    edges: Edges,
    reference: Reference,
}

/// A point that is known to be inside or outside.
#[derive(Clone, Copy, Debug)]
enum Reference {
    /// Everything farther from the middle than this angle is outside.
    Cap { middle: Point, radius: f64 },
    /// S2's origin, and whether it is inside.
    Origin { inside: bool },
}

/// Which side of a ring is inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The smaller one, whatever the order of the vertices.
    Smaller,
    /// The one to the left of its arcs.
    Left,
}

impl Ring {
    /// The ring through these vertices, the last of which leads to the first. Fails with the reason,
    /// in the words of S2, if it is not a simple ring.
    pub(crate) fn new(vertices: Vec<Point>, side: Side) -> Result<Ring, String> {
        check(&vertices)?;
        let cap = match side {
            Side::Smaller => small_cap(&vertices),
            Side::Left => None,
        };
        let edges = Edges::new(vertices, true);
        check_crossings(&edges)?;
        if let Some(reference) = cap {
            return Ok(Ring { edges, reference });
        }
        let ring = Ring::by_origin(edges);
        if side == Side::Smaller && ring.turning() < 0.0 {
            let mut vertices = ring.edges.vertices().to_vec();
            vertices.reverse();
            return Ok(Ring::by_origin(Edges::new(vertices, true)));
        }
        Ok(ring)
    }

    /// Finds out whether the origin is inside: the left side of the second vertex has to be.
    fn by_origin(edges: Edges) -> Ring {
        let mut ring = Ring {
            edges,
            reference: Reference::Origin { inside: false },
        };
        if let [first, second, third, ..] = ring.edges.vertices() {
            let wanted = ordered(&reference(second), first, third, second);
            let inside = ring.contains(second) != wanted;
            ring.reference = Reference::Origin { inside };
        }
        ring
    }

    pub(crate) fn edges(&self) -> &Edges {
        &self.edges
    }

    /// The sum of the turns at the vertices: positive if the left side is smaller than a hemisphere
    /// (the theorem of Gauss and Bonnet).
    fn turning(&self) -> f64 {
        let turns = self.edges.arcs().enumerate().map(|(i, (a, b))| {
            let (_, c) = self.edges.arc(i + 1);
            let size = angle(
                &Point(a.cross(&b).0.normalize()),
                &Point(b.cross(&c).0.normalize()),
            );
            f64::from(orientation(&a, &b, &c)) * size
        });
        turns.sum()
    }

    /// Whether a point is inside. Of points on the ring some are.
    pub(crate) fn contains(&self, p: &Point) -> bool {
        match self.reference {
            Reference::Cap { middle, radius } => {
                let away = angle(&middle, p);
                if away > radius {
                    return false;
                }
                // On from the middle through the point, until the cap is left.
                let direction = if away < 1e-6 {
                    p.ortho()
                } else {
                    Point(p.0.cross(&p.0.cross(&middle.0)))
                };
                let outside = moved(p, &direction, radius * 1.01 - away + 5e-6);
                self.crossings_are_odd(p, &outside)
            }
            Reference::Origin { inside } => self.crossings_are_odd(p, &Point::origin()) != inside,
        }
    }

    fn crossings_are_odd(&self, from: &Point, to: &Point) -> bool {
        let mut odd = false;
        let _ = self
            .edges
            .near(&Bounds::of_arc(from, to), |_, a, b| -> ControlFlow<()> {
                odd ^= changes_side(from, to, a, b);
                ControlFlow::Continue(())
            });
        odd
    }

    /// Whether a point is inside or on the ring.
    pub(crate) fn covers(&self, p: &Point) -> bool {
        self.contains(p) || self.edges.touches(p)
    }
}

/// A cap around all vertices, if one is smaller than a hemisphere: then everything outside of it is
/// outside of the ring, whose smaller side is the one inside.
fn small_cap(vertices: &[Point]) -> Option<Reference> {
    let sum = vertices
        .iter()
        .fold(Point::from_coords(0.0, 0.0, 1.0).0 * 0.0, |sum, p| {
            sum + p.0
        });
    if sum.norm() < 1e-3 {
        return None;
    }
    let middle = Point::from_coords(sum.x, sum.y, sum.z);
    let radius = vertices
        .iter()
        .map(|p| angle(&middle, p))
        .fold(0.0, f64::max);
    let radius = radius * (1.0 + 1e-9) + 1e-8;
    (radius < SMALL).then_some(Reference::Cap { middle, radius })
}

/// Checks vertices: at least three, no two the same, none opposite to its neighbour.
fn check(vertices: &[Point]) -> Result<(), String> {
    if vertices.len() < 3 {
        return Err("Degenerate loop: fewer than 3 vertices".to_owned());
    }
    let mut places: Vec<usize> = (0..vertices.len()).collect();
    let key = |i: usize| vertices.get(i).map(|p| (p.0.x, p.0.y, p.0.z));
    places.sort_by(|&i, &j| {
        key(i)
            .partial_cmp(&key(j))
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    for pair in places.windows(2) {
        if let [i, j] = *pair
            && key(i) == key(j)
        {
            return Err(format!("Duplicate vertices: {} and {}", i.min(j), i.max(j)));
        }
    }
    for (i, a) in vertices.iter().enumerate() {
        let j = (i + 1) % vertices.len();
        if vertices.get(j).is_some_and(|b| (a.0 + b.0).norm() == 0.0) {
            return Err(format!("Vertices {i} and {j} are antipodal"));
        }
    }
    Ok(())
}

fn check_crossings(edges: &Edges) -> Result<(), String> {
    let mut found = None;
    for i in 0..edges.len() {
        let (a, b) = edges.arc(i);
        let _ = edges.near(&Bounds::of_arc(&a, &b), |j, c, d| {
            if j > i && arcs_cross(&a, &b, c, d) {
                found = Some((j, *c, *d));
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        if let Some((j, c, d)) = found {
            let [a, b, c, d] = [a, b, c, d].map(|p| {
                let (lng, lat) = to_lng_lat(&p);
                format!("[{lat:.6}, {lng:.6}]")
            });
            return Err(format!(
                "Edges {i} and {j} cross. Edge locations in degrees: {a}-{b} and {c}-{d}"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::geo::sphere::from_lng_lat;

    fn ring(points: &[(f64, f64)], side: Side) -> Result<Ring, String> {
        let vertices = points.iter().map(|&(lng, lat)| from_lng_lat(lng, lat));
        Ring::new(vertices.collect(), side)
    }

    #[test]
    fn the_smaller_side_is_inside_whatever_the_order() {
        type Case<'a> = (&'a [(f64, f64)], &'a [(f64, f64)], &'a [(f64, f64)]);
        let cases: &[Case<'_>] = &[
            (
                &[(0., 0.), (10., 0.), (10., 10.), (0., 10.)],
                &[(5., 5.), (0.001, 0.001), (9.9, 9.9)],
                &[(-1., 5.), (11., 5.), (5., -0.001), (-175., -5.), (5., 11.)],
            ),
            // Over the antimeridian.
            (
                &[(170., -10.), (-170., -10.), (-170., 10.), (170., 10.)],
                &[(180., 0.), (-179., 5.), (171., 0.)],
                &[(169., 0.), (-169., 0.), (0., 0.)],
            ),
            // Around the pole.
            (
                &[(0., 80.), (90., 80.), (180., 80.), (-90., 80.)],
                &[(0., 90.), (45., 88.), (-135., 85.)],
                &[(0., 79.), (45., 79.), (0., -90.)],
            ),
            // Nearly a hemisphere, and with vertices all around.
            (
                &[(0., 5.), (90., 5.), (180., 5.), (-90., 5.)],
                &[(0., 90.), (20., 30.)],
                &[(0., 0.), (20., -30.), (0., -90.)],
            ),
            (
                &[(0., -5.), (90., -5.), (180., -5.), (-90., -5.)],
                &[(0., -90.), (20., -30.)],
                &[(0., 0.), (20., 30.), (0., 90.)],
            ),
        ];
        for (points, inside, outside) in cases {
            let mut backward = points.to_vec();
            backward.reverse();
            for points in [points.to_vec(), backward] {
                let ring = ring(&points, Side::Smaller).unwrap();
                for &(lng, lat) in *inside {
                    assert!(
                        ring.contains(&from_lng_lat(lng, lat)),
                        "{points:?} {lng} {lat}"
                    );
                }
                for &(lng, lat) in *outside {
                    assert!(
                        !ring.contains(&from_lng_lat(lng, lat)),
                        "{points:?} {lng} {lat}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_left_side_is_inside_if_the_order_counts() {
        let points = [(0., 0.), (10., 0.), (10., 10.), (0., 10.)];
        let small = ring(&points, Side::Left).unwrap();
        let mut backward = points;
        backward.reverse();
        let large = ring(&backward, Side::Left).unwrap();
        for (lng, lat) in [(5., 5.), (20., 20.), (-100., -50.), (0.5, 9.)] {
            let p = from_lng_lat(lng, lat);
            assert_ne!(small.contains(&p), large.contains(&p));
        }
        assert!(small.contains(&from_lng_lat(5., 5.)));
    }

    #[test]
    fn corners_belong_to_one_of_four_squares() {
        let squares: Vec<Ring> = [(0., 0.), (-10., 0.), (0., -10.), (-10., -10.)]
            .map(|(x, y)| {
                let corners = [(x, y), (x + 10., y), (x + 10., y + 10.), (x, y + 10.)];
                ring(&corners, Side::Smaller).unwrap()
            })
            .into();
        let middle = from_lng_lat(0., 0.);
        assert_eq!(squares.iter().filter(|s| s.contains(&middle)).count(), 1);
        assert!(squares.iter().all(|s| s.covers(&middle)));
    }

    #[test]
    fn wrong_rings_are_refused_with_the_reason() {
        for (points, reason) in [
            (&[(0., 0.), (1., 1.)][..], "fewer than 3"),
            (
                &[(0., 0.), (2., 2.), (2., 0.), (0., 2.)],
                "Edges 0 and 2 cross. Edge locations in degrees: [0.000000, 0.000000]-[2.0",
            ),
            (
                &[(0., 0.), (1., 1.), (2., 0.), (1., 1.), (3., 3.)],
                "Duplicate vertices: 1 and 3",
            ),
        ] {
            let error = ring(points, Side::Smaller).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }
}
