//! A bounding volume hierarchy over arcs, to find those near a location without a scan.
//!
//! Arcs of a chain that follow each other are near each other. So the tree is the chain itself, halved
//! again and again, with a box of space around each half (a bounding volume hierarchy).

use std::ops::ControlFlow;

use s2::point::Point;

use super::sphere::{TOLERANCE, arc_distance};

/// Arcs of a leaf.
const LEAF_ARCS: usize = 8;

/// A box of space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    low: [f64; 3],
    high: [f64; 3],
}

impl Bounds {
    const NOTHING: Bounds = Bounds {
        low: [f64::INFINITY; 3],
        high: [f64::NEG_INFINITY; 3],
    };

    /// A box that holds an arc, and what is as near to it as the tolerance.
    pub(crate) fn of_arc(a: &Point, b: &Point) -> Bounds {
        let half = ((b.0 - a.0).norm() / 2.0).min(1.0);
        // Height of the arc above its chord, and the tolerance on both sides.
        let bulge = 1.0 - (1.0 - half * half).sqrt() + 2.0 * TOLERANCE;
        let (a, b) = (coordinates(a), coordinates(b));
        Bounds {
            low: std::array::from_fn(|i| a[i].min(b[i]) - bulge),
            high: std::array::from_fn(|i| a[i].max(b[i]) + bulge),
        }
    }

    /// A box that holds everything within `angle` of a point.
    pub(crate) fn around(p: &Point, angle: f64) -> Bounds {
        // A chord is no longer than its arc.
        let reach = angle.min(2.0) + 2.0 * TOLERANCE;
        let p = coordinates(p);
        Bounds {
            low: p.map(|x| x - reach),
            high: p.map(|x| x + reach),
        }
    }

    pub(crate) fn joined(&self, other: &Bounds) -> Bounds {
        Bounds {
            low: std::array::from_fn(|i| self.low[i].min(other.low[i])),
            high: std::array::from_fn(|i| self.high[i].max(other.high[i])),
        }
    }

    pub(crate) fn meets(&self, other: &Bounds) -> bool {
        (0..3).all(|i| self.low[i] <= other.high[i] && other.low[i] <= self.high[i])
    }

    /// No point inside is nearer to `p` than this chord.
    fn chord_from(&self, p: &Point) -> f64 {
        let p = coordinates(p);
        let squares = (0..3).map(|i| {
            let gap = (self.low[i] - p[i]).max(p[i] - self.high[i]).max(0.0);
            gap * gap
        });
        squares.sum::<f64>().sqrt()
    }
}

fn coordinates(p: &Point) -> [f64; 3] {
    [p.0.x, p.0.y, p.0.z]
}

#[derive(Clone, Debug)]
struct Node {
    bounds: Bounds,
    start: usize,
    end: usize,
    /// The place of the second half; the first half follows its parent.
    second: usize,
}

/// The arcs of a line or a ring.
#[derive(Clone, Debug)]
pub(crate) struct Edges {
    vertices: Vec<Point>,
    /// Whether an arc leads from the last vertex to the first.
    closed: bool,
    nodes: Vec<Node>,
}

impl Edges {
    /// The arcs between vertices that follow each other.
    pub(crate) fn new(vertices: Vec<Point>, closed: bool) -> Edges {
        let mut edges = Edges {
            vertices,
            closed,
            nodes: Vec::new(),
        };
        if edges.len() > 0 {
            edges.grow(0, edges.len());
        }
        edges
    }

    /// Builds the tree over some arcs; the depth is the logarithm of their number.
    fn grow(&mut self, start: usize, end: usize) -> Bounds {
        let at = self.nodes.len();
        self.nodes.push(Node {
            bounds: Bounds::NOTHING,
            start,
            end,
            second: 0,
        });
        let (bounds, second) = if end - start <= LEAF_ARCS {
            let bounds = (start..end).fold(Bounds::NOTHING, |all, i| {
                let (a, b) = self.arc(i);
                all.joined(&Bounds::of_arc(&a, &b))
            });
            (bounds, 0)
        } else {
            let half = start + (end - start) / 2;
            let first = self.grow(start, half);
            let second = self.nodes.len();
            (first.joined(&self.grow(half, end)), second)
        };
        if let Some(node) = self.nodes.get_mut(at) {
            node.bounds = bounds;
            node.second = second;
        }
        bounds
    }

    pub(crate) fn vertices(&self) -> &[Point] {
        &self.vertices
    }

    pub(crate) fn len(&self) -> usize {
        match self.vertices.len() {
            0 => 0,
            count if self.closed => count,
            count => count - 1,
        }
    }

    /// The ends of an arc.
    pub(crate) fn arc(&self, i: usize) -> (Point, Point) {
        let count = self.vertices.len().max(1);
        let vertex = |i: usize| self.vertices.get(i % count).copied().unwrap_or_default();
        (vertex(i), vertex(i + 1))
    }

    /// The ends of all arcs.
    pub(crate) fn arcs(&self) -> impl Iterator<Item = (Point, Point)> {
        (0..self.len()).map(|i| self.arc(i))
    }

    /// Visits the arcs that may meet a box, at least.
    pub(crate) fn near<B>(
        &self,
        bounds: &Bounds,
        mut visit: impl FnMut(usize, &Point, &Point) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let mut waiting = vec![0];
        while let Some(at) = waiting.pop() {
            let Some(node) = self.nodes.get(at) else {
                continue;
            };
            if !node.bounds.meets(bounds) {
                continue;
            }
            if node.second > 0 {
                waiting.extend([node.second, at + 1]);
                continue;
            }
            for i in node.start..node.end {
                let (a, b) = self.arc(i);
                visit(i, &a, &b)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Whether any arc near a box satisfies a condition.
    pub(crate) fn any_near(
        &self,
        bounds: &Bounds,
        mut condition: impl FnMut(&Point, &Point) -> bool,
    ) -> bool {
        self.near(bounds, |_, a, b| {
            if condition(a, b) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })
        .is_break()
    }

    /// The angle from a point to the nearest arc; to the only vertex if there are no arcs.
    pub(crate) fn distance(&self, p: &Point) -> f64 {
        let mut best = f64::INFINITY;
        let mut waiting = vec![0];
        while let Some(at) = waiting.pop() {
            let Some(node) = self.nodes.get(at) else {
                continue;
            };
            let chord = node.bounds.chord_from(p);
            if chord > 2.0 * (best.min(std::f64::consts::PI) / 2.0).sin() {
                continue;
            }
            if node.second > 0 {
                waiting.extend([node.second, at + 1]);
                continue;
            }
            for i in node.start..node.end {
                let (a, b) = self.arc(i);
                best = best.min(arc_distance(p, &a, &b));
            }
        }
        best
    }

    /// Whether a point lies on an arc.
    pub(crate) fn touches(&self, p: &Point) -> bool {
        self.any_near(&Bounds::around(p, 0.0), |a, b| {
            arc_distance(p, a, b) <= TOLERANCE
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geo::sphere::{arcs_cross, from_lng_lat};
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    fn chain(rng: &mut StdRng, count: usize) -> Vec<Point> {
        let (mut lng, mut lat): (f64, f64) = (rng.random_range(-180.0..180.0), 0.0);
        let step: f64 = rng.random_range(0.1..30.0);
        (0..count)
            .map(|_| {
                lng = (lng + rng.random_range(-step..step)).clamp(-180.0, 180.0);
                lat = (lat + rng.random_range(-step..step)).clamp(-90.0, 90.0);
                from_lng_lat(lng, lat)
            })
            .collect()
    }

    #[test]
    fn the_tree_finds_what_a_scan_finds() {
        let mut rng = StdRng::seed_from_u64(7);
        for round in 0..60 {
            let edges = Edges::new(chain(&mut rng, 2 + round * 2), round % 2 == 0);
            for _ in 0..20 {
                let probe = chain(&mut rng, 2);
                let (a, b) = (probe[0], probe[1]);
                let scan = edges.arcs().any(|(c, d)| arcs_cross(&a, &b, &c, &d));
                let tree = edges.any_near(&Bounds::of_arc(&a, &b), |c, d| arcs_cross(&a, &b, c, d));
                assert_eq!(scan, tree);
                let nearest = edges
                    .arcs()
                    .map(|(c, d)| arc_distance(&a, &c, &d))
                    .fold(f64::INFINITY, f64::min);
                assert!((edges.distance(&a) - nearest).abs() < 1e-12);
            }
        }
    }
}
