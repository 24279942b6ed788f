//! Orientation and crossings, decided exactly.
//!
//! Three points are never on one great circle here: where the determinant is zero, the points are taken to
//! be moved by infinitely small amounts, the same ones every time ("simulation of simplicity",
//! Edelsbrunner and Mücke 1990; S2 does so too, see <https://s2geometry.io/devguide/degeneracies>). So the
//! answers about different arcs agree with each other.

use robust::{Coord, Coord3D, orient2d, orient3d};
use s2::point::Point;

/// Determinants above this are right in their sign; see S2's `predicates`.
const DETERMINANT_ERROR: f64 = 4e-15;

/// 1 if three points follow each other counter-clockwise, -1 if clockwise, 0 if two are the same.
pub(crate) fn orientation(a: &Point, b: &Point, c: &Point) -> i32 {
    let determinant = a.0.cross(&b.0).dot(&c.0);
    if determinant.abs() > DETERMINANT_ERROR {
        return sign(determinant);
    }
    if a == b || b == c || c == a {
        return 0;
    }
    let at = |p: &Point| Coord3D {
        x: p.0.x,
        y: p.0.y,
        z: p.0.z,
    };
    let origin = Coord3D {
        x: 0.0,
        y: 0.0,
        z: 0.0,
    };
    match sign(orient3d(at(a), at(b), at(c), origin)) {
        0 => perturbed(a, b, c),
        exact => exact,
    }
}

fn sign(x: f64) -> i32 {
    if x > 0.0 {
        1
    } else if x < 0.0 {
        -1
    } else {
        0
    }
}

/// The sign of `x * w - y * v`.
fn minor(x: f64, y: f64, v: f64, w: f64) -> i32 {
    let origin = Coord { x: 0.0, y: 0.0 };
    sign(orient2d(Coord { x, y }, Coord { x: v, y: w }, origin))
}

/// The orientation of points on one great circle, moved a little: less, the later a coordinate comes, and
/// much less, the greater the point is.
fn perturbed(a: &Point, b: &Point, c: &Point) -> i32 {
    let mut points = [a.0, b.0, c.0].map(|v| [v.x, v.y, v.z]);
    let mut parity = 1;
    for (i, j) in [(0, 1), (1, 2), (0, 1)] {
        if points[i] > points[j] {
            points.swap(i, j);
            parity = -parity;
        }
    }
    let [[a0, a1, a2], [b0, b1, b2], [c0, c1, c2]] = points;
    let terms = [
        minor(b0, b1, c0, c1),
        minor(b2, b0, c2, c0),
        minor(b1, b2, c1, c2),
        minor(c0, c1, a0, a1),
        sign(c0),
        -sign(c1),
        minor(c2, c0, a2, a0),
        sign(c2),
        minor(a0, a1, b0, b1),
        -sign(b0),
        sign(b1),
        sign(a0),
    ];
    parity * terms.into_iter().find(|term| *term != 0).unwrap_or(1)
}

/// Whether the arcs from `o` to `a`, `b` and `c` follow each other counter-clockwise.
pub(crate) fn ordered(a: &Point, b: &Point, c: &Point, o: &Point) -> bool {
    let turns = [
        orientation(b, o, a) >= 0,
        orientation(c, o, b) >= 0,
        orientation(a, o, c) > 0,
    ];
    turns.iter().filter(|turn| **turn).count() >= 2
}

/// Relative position of two arcs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crossing {
    Apart,
    /// They have a vertex in common.
    Vertex,
    /// They cross in points that are no ends.
    Inside,
}

/// Classifies the arcs `ab` and `cd`.
pub(crate) fn crossing(a: &Point, b: &Point, c: &Point, d: &Point) -> Crossing {
    if a == c || a == d || b == c || b == d {
        return Crossing::Vertex;
    }
    if a == b || c == d {
        return Crossing::Apart;
    }
    // The four triangles have one orientation.
    let first = orientation(a, c, b);
    let crosses = first == orientation(c, b, d)
        && first == orientation(b, d, a)
        && first == orientation(d, a, c);
    if crosses {
        Crossing::Inside
    } else {
        Crossing::Apart
    }
}

/// Whether an arc `ab` gets to the other side of a ring at its arc `cd`. At a common vertex that is so if
/// `ab` comes behind `cd` on the way around it, counter-clockwise from a fixed direction.
pub(crate) fn changes_side(a: &Point, b: &Point, c: &Point, d: &Point) -> bool {
    match crossing(a, b, c, d) {
        Crossing::Apart => false,
        Crossing::Inside => true,
        Crossing::Vertex if a == b || c == d => false,
        Crossing::Vertex => {
            if a == d {
                b == c || ordered(&reference(a), c, b, a)
            } else if b == c {
                ordered(&reference(b), d, a, b)
            } else if a == c {
                b == d || ordered(&reference(a), d, b, a)
            } else {
                ordered(&reference(b), c, a, b)
            }
        }
    }
}

/// The direction at a vertex from which its arcs are counted.
pub(crate) fn reference(p: &Point) -> Point {
    p.ortho()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geo::sphere::from_lng_lat;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    /// Points on a coarse grid, so that many are the same or on one great circle.
    fn point(rng: &mut StdRng) -> Point {
        let number = |rng: &mut StdRng, most: i32| f64::from(rng.random_range(-most..=most));
        from_lng_lat(45.0 * number(rng, 4), 22.5 * number(rng, 3))
    }

    #[test]
    fn orientation_is_the_same_from_every_side() {
        let mut rng = StdRng::seed_from_u64(3);
        for _ in 0..5000 {
            let (a, b, c) = (point(&mut rng), point(&mut rng), point(&mut rng));
            let found = orientation(&a, &b, &c);
            assert_eq!(found, orientation(&b, &c, &a));
            assert_eq!(found, -orientation(&c, &b, &a));
            assert_eq!(found == 0, a == b || b == c || c == a);
        }
        let axis = |x, y, z| Point::from_coords(x, y, z);
        let (x, y, z) = (axis(1., 0., 0.), axis(0., 1., 0.), axis(0., 0., 1.));
        assert_eq!(orientation(&x, &y, &z), 1);
    }

    #[test]
    fn exact_and_fast_orientation_agree() {
        let mut rng = StdRng::seed_from_u64(4);
        let mut number = || rng.random_range(-1.0..1.0);
        for _ in 0..1000 {
            let [a, b, c] = [(); 3].map(|()| Point::from_coords(number(), number(), number()));
            let coord = |p: &Point| Coord3D {
                x: p.0.x,
                y: p.0.y,
                z: p.0.z,
            };
            let origin = Coord3D {
                x: 0.0,
                y: 0.0,
                z: 0.0,
            };
            let exact = sign(orient3d(coord(&a), coord(&b), coord(&c), origin));
            assert_eq!(orientation(&a, &b, &c), exact);
            let matrix = minor(a.0.x, a.0.y, b.0.x, b.0.y);
            assert_eq!(matrix, sign(a.0.x * b.0.y - a.0.y * b.0.x));
        }
    }

    #[test]
    fn a_closed_path_changes_side_an_even_number_of_times() {
        let mut rng = StdRng::seed_from_u64(5);
        for _ in 0..2000 {
            // A triangle, and a path around that need not be simple.
            let [a, b, c] = [(); 3].map(|()| point(&mut rng));
            let opposite = |p: &Point, q: &Point| (p.0 + q.0).norm() < 1e-9;
            if orientation(&a, &b, &c) == 0
                || opposite(&a, &b)
                || opposite(&b, &c)
                || opposite(&c, &a)
            {
                continue;
            }
            let path: Vec<Point> = (0..4).map(|_| point(&mut rng)).collect();
            let steps = || path.iter().zip(path.iter().cycle().skip(1));
            if steps().any(|(p, q)| opposite(p, q)) {
                continue;
            }
            let changes = steps().map(|(p, q)| {
                let sides = [(&a, &b), (&b, &c), (&c, &a)];
                sides
                    .iter()
                    .filter(|(u, v)| changes_side(p, q, u, v))
                    .count()
            });
            assert_eq!(changes.sum::<usize>() % 2, 0);
        }
    }
}
