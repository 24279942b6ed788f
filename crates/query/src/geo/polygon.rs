//! An area with holes.

use s2::point::Point;

use super::edges::{Bounds, Edges};
use super::exact::{Crossing, crossing};
use super::ring::Ring;
use super::sphere::{TOLERANCE, arc_distance, arcs_cross, arcs_meet, middle, moved};

/// How far beside an arc to look for the side that is inside.
const BESIDE: f64 = 1e-8;

/// A shell and its holes.
#[derive(Clone, Debug)]
pub(crate) struct Polygon {
    shell: Ring,
    holes: Vec<Ring>,
}

impl Polygon {
    /// A polygon of one ring.
    pub(crate) fn of_ring(shell: Ring) -> Polygon {
        Polygon {
            shell,
            holes: Vec::new(),
        }
    }

    /// Whether a hole may be added: it lies inside of the shell.
    pub(crate) fn holds(&self, hole: &Ring) -> bool {
        hole.edges().vertices().iter().all(|p| self.shell.covers(p))
            && !self.shell.covers_other_side(hole)
    }

    /// Adds a hole. Fails with the reason, in the words of S2, if it crosses another ring.
    pub(crate) fn add_hole(&mut self, hole: Ring) -> Result<(), String> {
        let at = self.holes.len() + 1;
        for (i, other) in self.rings().enumerate() {
            if rings_cross(other, &hole) {
                return Err(format!("Polygon isn't valid: Loop {i} crosses loop {at}"));
            }
            let corners = other.edges().vertices();
            let shared = hole.edges().vertices();
            let shared = shared.iter().filter(|p| corners.contains(p)).count();
            if i == 0 && shared > 1 {
                return Err(format!(
                    "Loop {at} shares more than one vertex with its parent loop 0"
                ));
            }
        }
        let inside =
            |outer: &Ring, inner: &Ring| inner.edges().vertices().iter().all(|p| outer.contains(p));
        if self
            .holes
            .iter()
            .any(|other| inside(other, &hole) || inside(&hole, other))
        {
            return Err("Polygon interior loops cannot be nested".to_owned());
        }
        self.holes.push(hole);
        Ok(())
    }

    pub(crate) fn rings(&self) -> impl Iterator<Item = &Ring> {
        std::iter::once(&self.shell).chain(&self.holes)
    }

    /// Whether a point is inside; of points on the border some are.
    pub(crate) fn contains(&self, p: &Point) -> bool {
        self.shell.contains(p) && !self.holes.iter().any(|hole| hole.contains(p))
    }

    /// Whether a point is inside or on the border.
    pub(crate) fn covers(&self, p: &Point) -> bool {
        self.contains(p) || self.rings().any(|ring| ring.edges().touches(p))
    }

    /// Whether a line has a point in common with the area.
    pub(crate) fn meets_line(&self, line: &Edges) -> bool {
        line.vertices().first().is_some_and(|p| self.covers(p))
            || self.rings().any(|ring| lines_meet(ring.edges(), line))
    }

    /// Whether a line lies inside or on the border.
    pub(crate) fn covers_line(&self, line: &Edges) -> bool {
        line.vertices().iter().all(|p| self.covers(p))
            && line.arcs().all(|(a, b)| {
                self.pieces(&a, &b)
                    .is_some_and(|middles| middles.iter().all(|p| self.covers(p)))
            })
    }

    /// The middles of the pieces into which the border cuts an arc. `None` if it crosses the border.
    fn pieces(&self, a: &Point, b: &Point) -> Option<Vec<Point>> {
        let bounds = Bounds::of_arc(a, b);
        let mut cuts = vec![*a, *b];
        for ring in self.rings() {
            let crosses = ring.edges().any_near(&bounds, |c, d| {
                let on_border = |p: &Point| arc_distance(p, c, d) <= TOLERANCE;
                if arc_distance(c, a, b) <= TOLERANCE {
                    cuts.push(*c);
                }
                // An end on the border is not beyond it.
                arcs_cross(a, b, c, d)
                    && !on_border(a)
                    && !on_border(b)
                    && arc_distance(c, a, b) > TOLERANCE
                    && arc_distance(d, a, b) > TOLERANCE
            });
            if crosses {
                return None;
            }
        }
        cuts.sort_by(|p, q| (p.0 - a.0).norm().total_cmp(&(q.0 - a.0).norm()));
        Some(
            cuts.windows(2)
                .filter_map(|pair| match pair {
                    [p, q] => Some(middle(p, q)),
                    _ => None,
                })
                .collect(),
        )
    }

    /// Whether two areas have a point in common.
    pub(crate) fn meets(&self, other: &Polygon) -> bool {
        let corner_in = |a: &Polygon, b: &Polygon| {
            a.rings()
                .filter_map(|ring| ring.edges().vertices().first())
                .any(|p| b.covers(p))
        };
        corner_in(self, other)
            || corner_in(other, self)
            || self
                .rings()
                .any(|a| other.rings().any(|b| lines_meet(a.edges(), b.edges())))
    }

    /// Whether all of another area lies inside or on the border.
    pub(crate) fn covers_polygon(&self, other: &Polygon) -> bool {
        if !other.rings().all(|ring| self.covers_line(ring.edges())) {
            return false;
        }
        // No part of the border may lie inside of the other: there the area ends.
        let corner_inside = self.rings().any(|ring| {
            let corners = ring.edges().vertices();
            corners
                .iter()
                .any(|p| other.contains(p) && !other.rings().any(|ring| ring.edges().touches(p)))
        });
        if corner_inside {
            return false;
        }
        // Beside every arc of the other, what is inside of it has to be inside of this one.
        other.rings().all(|ring| {
            ring.edges().arcs().all(|(a, b)| {
                let at = middle(&a, &b);
                let across = a.cross(&b);
                [BESIDE, -BESIDE].iter().all(|side| {
                    let beside = moved(&at, &across, *side);
                    !other.contains(&beside) || self.covers(&beside)
                })
            })
        })
    }

    /// The angle from a point to the area: zero inside.
    pub(crate) fn distance(&self, p: &Point) -> f64 {
        if self.contains(p) {
            return 0.0;
        }
        self.rings()
            .map(|ring| ring.edges().distance(p))
            .fold(f64::INFINITY, f64::min)
    }
}

impl Ring {
    /// Whether `hole` is the ring itself or goes around it, so that nothing would be left.
    fn covers_other_side(&self, hole: &Ring) -> bool {
        self.edges().vertices().iter().all(|p| hole.covers(p))
    }
}

/// Whether the lines of two rings cross each other.
fn rings_cross(a: &Ring, b: &Ring) -> bool {
    b.edges().arcs().any(|(c, d)| {
        a.edges()
            .any_near(&Bounds::of_arc(&c, &d), |e, f| arcs_cross(&c, &d, e, f))
    })
}

/// Whether two lines cross or touch. As in MongoDB, an arc that lies within another, without a vertex in
/// common, does not count.
pub(crate) fn lines_cross(a: &Edges, b: &Edges) -> bool {
    let on = |p: &Point, e: &Point, f: &Point| arc_distance(p, e, f) <= TOLERANCE;
    b.arcs().any(|(c, d)| {
        a.any_near(&Bounds::of_arc(&c, &d), |e, f| {
            crossing(&c, &d, e, f) != Crossing::Apart
                || on(&c, e, f) != on(&d, e, f)
                || on(e, &c, &d) != on(f, &c, &d)
        })
    })
}

/// Whether two lines have a point in common.
pub(crate) fn lines_meet(a: &Edges, b: &Edges) -> bool {
    b.arcs()
        .any(|(c, d)| a.any_near(&Bounds::of_arc(&c, &d), |e, f| arcs_meet(&c, &d, e, f)))
}
