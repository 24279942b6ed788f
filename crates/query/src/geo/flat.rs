//! Shapes in the plane: `$box`, `$center` and `$polygon`, with the numbers of legacy pairs.

use std::cmp::Ordering;

/// A point in the plane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlatPoint {
    pub x: f64,
    pub y: f64,
}

impl FlatPoint {
    /// The distance between two points.
    pub fn distance(&self, other: &FlatPoint) -> f64 {
        let (x, y) = (self.x - other.x, self.y - other.y);
        if x == 0.0 {
            y.abs()
        } else if y == 0.0 {
            x.abs()
        } else {
            let distance = (x * x + y * y).sqrt();
            // Squares overflow long before distances do.
            if distance.is_finite() {
                distance
            } else {
                x.hypot(y)
            }
        }
    }

    /// Compares the distance between two points with a radius. Points on one axis are compared along it, as MongoDB
    /// does: 51.9999 + 0.0001 is not above 52, while 52 - 51.9999 is above 0.0001.
    pub(crate) fn compare_distance(&self, other: &FlatPoint, radius: f64) -> Ordering {
        // The numbers of points are finite.
        let compare = |a: f64, b: f64| a.partial_cmp(&b).unwrap_or(Ordering::Equal);
        let along = |a: f64, b: f64| compare(a.max(b), a.min(b) + radius);
        if self.x == other.x {
            along(self.y, other.y)
        } else if self.y == other.y {
            along(self.x, other.x)
        } else {
            compare(self.distance(other), radius)
        }
    }
}

/// A rectangle with its border.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlatBox {
    pub(crate) low: FlatPoint,
    pub(crate) high: FlatPoint,
}

impl FlatBox {
    /// The box with these two opposite corners.
    pub fn new(a: FlatPoint, b: FlatPoint) -> FlatBox {
        FlatBox {
            low: FlatPoint {
                x: a.x.min(b.x),
                y: a.y.min(b.y),
            },
            high: FlatPoint {
                x: a.x.max(b.x),
                y: a.y.max(b.y),
            },
        }
    }

    pub(crate) fn contains(&self, p: &FlatPoint) -> bool {
        (self.low.x..=self.high.x).contains(&p.x) && (self.low.y..=self.high.y).contains(&p.y)
    }

    pub(crate) fn holds(&self, other: &FlatBox) -> bool {
        self.contains(&other.low) && self.contains(&other.high)
    }

    pub(crate) fn meets(&self, other: &FlatBox) -> bool {
        self.low.x <= other.high.x
            && other.low.x <= self.high.x
            && self.low.y <= other.high.y
            && other.low.y <= self.high.y
    }

    /// The least and the greatest distance from a point.
    pub(crate) fn distances(&self, p: &FlatPoint) -> (f64, f64) {
        let gap = |low: f64, high: f64, at: f64| (low - at).max(at - high).max(0.0);
        let far = |low: f64, high: f64, at: f64| (at - low).abs().max((high - at).abs());
        let (x, y) = ((self.low.x, self.high.x), (self.low.y, self.high.y));
        (
            gap(x.0, x.1, p.x).hypot(gap(y.0, y.1, p.y)),
            far(x.0, x.1, p.x).hypot(far(y.0, y.1, p.y)),
        )
    }
}

/// The corners of a polygon.
#[derive(Clone, Debug)]
pub struct FlatPolygon {
    corners: Vec<FlatPoint>,
    bounds: FlatBox,
}

impl FlatPolygon {
    /// The polygon with these corners. `None` if there are fewer than three.
    pub fn new(corners: Vec<FlatPoint>) -> Option<FlatPolygon> {
        let [first, rest @ ..] = corners.as_slice() else {
            return None;
        };
        if rest.len() < 2 {
            return None;
        }
        let bounds = rest
            .iter()
            .fold(FlatBox::new(*first, *first), |all, p| FlatBox {
                low: FlatBox::new(all.low, *p).low,
                high: FlatBox::new(all.high, *p).high,
            });
        Some(FlatPolygon { corners, bounds })
    }

    pub(crate) fn bounds(&self) -> &FlatBox {
        &self.bounds
    }

    /// The sides: from each corner to the next, and from the last to the first.
    fn sides(&self) -> impl Iterator<Item = (FlatPoint, FlatPoint)> {
        let next = self.corners.iter().cycle().skip(1);
        self.corners.iter().copied().zip(next.copied())
    }

    /// Whether a point is inside: a ray from it crosses the sides an odd number of times. Corners and
    /// sides along an axis belong to the area; of other sides only those on its right.
    pub(crate) fn contains(&self, p: &FlatPoint) -> bool {
        if !self.bounds.contains(p) {
            return false;
        }
        let mut odd = false;
        for (a, b) in self.sides() {
            let along_axis = a.x == b.x || a.y == b.y;
            if (along_axis && FlatBox::new(a, b).contains(p)) || *p == a {
                return true;
            }
            let crosses_height = p.y > a.y.min(b.y) && p.y <= a.y.max(b.y);
            if crosses_height && p.x <= (p.y - a.y) * (b.x - a.x) / (b.y - a.y) + a.x {
                odd = !odd;
            }
        }
        odd
    }

    /// Whether a side may pass through a box.
    pub(crate) fn sides_meet(&self, cell: &FlatBox) -> bool {
        self.sides().any(|(a, b)| segment_meets(a, b, cell))
    }
}

/// Whether a straight line between two points has a point in common with a box.
fn segment_meets(a: FlatPoint, b: FlatPoint, cell: &FlatBox) -> bool {
    if !cell.meets(&FlatBox::new(a, b)) {
        return false;
    }
    // The corners of the box are not all on one side of the line.
    let side = |x: f64, y: f64| (b.x - a.x) * (y - a.y) - (b.y - a.y) * (x - a.x);
    let sides = [
        side(cell.low.x, cell.low.y),
        side(cell.low.x, cell.high.y),
        side(cell.high.x, cell.low.y),
        side(cell.high.x, cell.high.y),
    ];
    !(sides.iter().all(|side| *side > 0.0) || sides.iter().all(|side| *side < 0.0))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn p(x: f64, y: f64) -> FlatPoint {
        FlatPoint { x, y }
    }

    #[test]
    fn boxes_have_their_borders() {
        let area = FlatBox::new(p(10., 0.), p(0., 5.));
        for (point, inside) in [
            (p(0., 0.), true),
            (p(10., 5.), true),
            (p(5., 5.), true),
            (p(5., 5.1), false),
            (p(-0.1, 3.), false),
        ] {
            assert_eq!(area.contains(&point), inside);
        }
        assert_eq!(area.distances(&p(13., 9.)), (5., 13f64.hypot(9.)));
        assert_eq!(area.distances(&p(1., 1.)).0, 0.);
    }

    /// Issue 13: what is compared along an axis is not rounded twice.
    #[test]
    fn distances_along_an_axis_are_compared_along_it() {
        use Ordering::{Equal, Greater, Less};
        for (a, b, radius, expected) in [
            (p(5., 52.), p(5., 52. + 0.0001), 0.0001, Equal),
            (p(5., 52.), p(5., 52. - 0.0001), 0.0001, Equal),
            (p(5., 52.), p(5.0001, 52.), 0.0001, Equal),
            (p(5., 52.), p(4.9999, 52.), 0.0001, Equal),
            (p(5., 52.), p(5., 52.00011), 0.0001, Greater),
            (p(5., 52.), p(5., 51.99991), 0.0001, Less),
            (p(0., 0.), p(3., 4.), 5., Equal),
            (p(0., 0.), p(3., 4.), 4.999, Greater),
            (p(1., 1.), p(1., 1.), 0., Equal),
            (p(0., 1.), p(-0., 1.), 0., Equal),
            (p(1., 0.), p(1., -0.), 0., Equal),
            (p(0., 0.), p(3e200, 4e200), f64::MAX, Less),
            (p(1., 1.), p(1., 1.), 1., Less),
        ] {
            assert_eq!(
                a.compare_distance(&b, radius),
                expected,
                "{a:?} {b:?} {radius}"
            );
            assert_eq!(
                b.compare_distance(&a, radius),
                expected,
                "{b:?} {a:?} {radius}"
            );
        }
    }

    #[test]
    fn polygons_have_corners_and_straight_sides() {
        let triangle = FlatPolygon::new(vec![p(0., 0.), p(4., 4.), p(8., 0.)]).unwrap();
        for (point, inside) in [
            (p(4., 1.), true),
            (p(0., 0.), true),
            (p(4., 4.), true),
            (p(3., 0.), true),
            // The side to the right belongs to it, the one to the left does not.
            (p(6., 2.), true),
            (p(2., 2.), false),
            (p(1.9, 2.), false),
            (p(4., -0.1), false),
            (p(9., 0.), false),
        ] {
            assert_eq!(triangle.contains(&point), inside, "{point:?}");
        }
        assert!(FlatPolygon::new(vec![p(0., 0.), p(1., 1.)]).is_none());
    }

    #[test]
    fn sides_pass_through_boxes() {
        let (a, b) = (p(0., 0.), p(10., 10.));
        assert!(segment_meets(a, b, &FlatBox::new(p(4., 4.), p(6., 6.))));
        assert!(segment_meets(a, b, &FlatBox::new(p(4., 5.), p(6., 6.))));
        assert!(!segment_meets(a, b, &FlatBox::new(p(7., 1.), p(9., 3.))));
        assert!(!segment_meets(
            a,
            b,
            &FlatBox::new(p(11., 11.), p(12., 12.))
        ));
    }
}
