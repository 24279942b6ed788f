//! An area with holes.
//!
//! Two areas that have only corners or edges in common do not intersect, as in S2. A line along an edge belongs to the area
//! to its left. Points on the border are inside.

use std::ops::ControlFlow;

use s2::point::Point;

use super::edges::{Bounds, Edges};
use super::exact::{Crossing, crossing};
use super::ring::Ring;
use super::sphere::{TOLERANCE, arc_distance, arcs_cross, middle, moved};

/// Distance from an arc at which a probe point decides which side is inside.
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
        self.contains(p) || self.touches(p)
    }

    /// Whether a part of a line lies inside. A line that only touches the border does not; one along the border does
    /// where the area is to its left.
    pub(crate) fn meets_line(&self, line: &Edges) -> bool {
        let visited = self.parts(line, &mut |part| {
            if self.has(&part) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        visited.is_break()
    }

    /// Whether all parts of a line lie inside, as for [`Polygon::meets_line`].
    pub(crate) fn covers_line(&self, line: &Edges) -> bool {
        let visited = self.parts(line, &mut |part| match part {
            Part::Crossing => ControlFlow::Break(()),
            part if self.has(&part) => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        });
        visited.is_continue() && line.vertices().iter().all(|p| self.covers(p))
    }

    /// Whether a part of a line is a part of the area.
    fn has(&self, part: &Part) -> bool {
        match part {
            Part::Crossing | Part::Inside => true,
            Part::Outside => false,
            Part::Border { left, .. } => self.contains(left),
        }
    }

    /// Visits the parts into which the border cuts a line.
    fn parts(
        &self,
        line: &Edges,
        visit: &mut dyn FnMut(Part) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        // As long as the line does not touch the border, it stays on one side.
        let mut known = None;
        for (a, b) in line.arcs() {
            let Some(middles) = self.pieces(&a, &b) else {
                visit(Part::Crossing)?;
                known = None;
                continue;
            };
            if middles.len() != 1 {
                known = None;
            }
            for p in &middles {
                if known.is_none() && self.touches(p) {
                    let across = a.cross(&b);
                    visit(Part::Border {
                        left: moved(p, &across, BESIDE),
                        right: moved(p, &across, -BESIDE),
                    })?;
                    continue;
                }
                let inside = known.unwrap_or_else(|| self.contains(p));
                visit(if inside { Part::Inside } else { Part::Outside })?;
                known = (middles.len() == 1 && !self.touches(&b)).then_some(inside);
            }
        }
        ControlFlow::Continue(())
    }

    /// Whether a point is on the border.
    fn touches(&self, p: &Point) -> bool {
        self.rings().any(|ring| ring.edges().touches(p))
    }

    /// Whether arcs lie inside or on the border.
    fn encloses(&self, line: &Edges) -> bool {
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
                    [p, q] if (p.0 - q.0).norm() > TOLERANCE => Some(middle(p, q)),
                    _ => None,
                })
                .collect(),
        )
    }

    /// Whether two areas overlap.
    pub(crate) fn meets(&self, other: &Polygon) -> bool {
        self.reaches_into(other) || other.reaches_into(self)
    }

    /// Whether a ring has a part inside of another area, or along its border with both areas on one side.
    fn reaches_into(&self, other: &Polygon) -> bool {
        self.rings().any(|ring| {
            let visited = other.parts(ring.edges(), &mut |part| {
                let overlaps = match part {
                    Part::Crossing | Part::Inside => true,
                    Part::Outside => false,
                    Part::Border { left, right } => [left, right]
                        .iter()
                        .any(|p| self.contains(p) && other.contains(p)),
                };
                if overlaps {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            });
            visited.is_break()
        })
    }

    /// Whether all of another area lies inside or on the border.
    pub(crate) fn covers_polygon(&self, other: &Polygon) -> bool {
        if !other.rings().all(|ring| self.encloses(ring.edges())) {
            return false;
        }
        // No part of the border may lie inside of the other: there the area ends.
        let corner_inside = self.rings().any(|ring| {
            let corners = ring.edges().vertices();
            corners
                .iter()
                .any(|p| other.contains(p) && !other.touches(p))
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

/// A part of a line that does not leave one side of a border.
enum Part {
    /// It crosses the border.
    Crossing,
    Inside,
    Outside,
    /// It lies on the border. Points beside it.
    Border {
        left: Point,
        right: Point,
    },
}
