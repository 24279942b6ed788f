//! Points and arcs on the unit sphere.
//!
//! Arcs are the shorter ones of great circles ("geodesic edges").

use s2::point::Point;

use super::exact::{Crossing, crossing};

/// The radius that turns angles into metres, as MongoDB has it.
pub const EARTH_RADIUS_METRES: f64 = 6_378_100.0;

/// Angles below this count as none: about the size of a leaf cell of S2, 6 mm on the ground. So
/// borders belong to an area, as they do in MongoDB, which tests leaf cells.
pub(crate) const TOLERANCE: f64 = 1e-9;

/// Whether the numbers are a longitude and a latitude in degrees.
pub(crate) fn is_lng_lat(lng: f64, lat: f64) -> bool {
    lng.abs() <= 180.0 && lat.abs() <= 90.0
}

/// The point with this longitude and latitude in degrees.
pub(crate) fn from_lng_lat(lng: f64, lat: f64) -> Point {
    let (lng, lat) = (lng.to_radians(), lat.to_radians());
    Point::from_coords(lat.cos() * lng.cos(), lat.cos() * lng.sin(), lat.sin())
}

/// Longitude and latitude in degrees.
pub(crate) fn to_lng_lat(p: &Point) -> (f64, f64) {
    let v = p.0;
    let lat = v.z.atan2(v.x.hypot(v.y));
    (v.y.atan2(v.x).to_degrees(), lat.to_degrees())
}

/// The angle between two points, in radians.
pub(crate) fn angle(a: &Point, b: &Point) -> f64 {
    a.0.cross(&b.0).norm().atan2(a.0.dot(&b.0))
}

/// The other end of the axis.
pub(crate) fn antipode(p: &Point) -> Point {
    Point(p.0 * -1.0)
}

/// The point half way along an arc.
pub(crate) fn middle(a: &Point, b: &Point) -> Point {
    let sum = a.0 + b.0;
    Point::from_coords(sum.x, sum.y, sum.z)
}

/// `p`, moved by a small `angle` in a direction at right angles to it.
pub(crate) fn moved(p: &Point, direction: &Point, angle: f64) -> Point {
    let v = p.0 * angle.cos() + direction.0.normalize() * angle.sin();
    Point::from_coords(v.x, v.y, v.z)
}

/// The angle from a point to the nearest point of an arc.
pub(crate) fn arc_distance(p: &Point, a: &Point, b: &Point) -> f64 {
    // `Point::cross` is stable for neighbours and never zero.
    let normal = a.cross(b).0;
    let ends = angle(p, a).min(angle(p, b));
    if a == b {
        return ends;
    }
    let above = normal.cross(&a.0).dot(&p.0) > 0.0 && b.0.cross(&normal).dot(&p.0) > 0.0;
    if !above {
        return ends;
    }
    (p.0.dot(&normal).abs() / normal.norm()).min(1.0).asin()
}

/// Whether two arcs cross in points that are no ends.
pub(crate) fn arcs_cross(a: &Point, b: &Point, c: &Point, d: &Point) -> bool {
    crossing(a, b, c, d) == Crossing::Inside
}

/// Whether two arcs have a point in common, within the tolerance.
pub(crate) fn arcs_meet(a: &Point, b: &Point, c: &Point, d: &Point) -> bool {
    arcs_cross(a, b, c, d)
        || arc_distance(a, c, d) <= TOLERANCE
        || arc_distance(b, c, d) <= TOLERANCE
        || arc_distance(c, a, b) <= TOLERANCE
        || arc_distance(d, a, b) <= TOLERANCE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(lng: f64, lat: f64) -> Point {
        from_lng_lat(lng, lat)
    }

    #[test]
    fn angles_are_those_of_great_circles() {
        for (a, b, degrees) in [
            (at(0.0, 0.0), at(90.0, 0.0), 90.0),
            (at(179.0, 0.0), at(-179.0, 0.0), 2.0),
            (at(0.0, 90.0), at(77.0, -90.0), 180.0),
            (at(10.0, 89.0), at(-170.0, 89.0), 2.0),
            (at(5.0, 5.0), at(5.0, 5.0), 0.0),
        ] {
            assert!((angle(&a, &b).to_degrees() - degrees).abs() < 1e-9);
        }
    }

    #[test]
    fn the_nearest_point_of_an_arc_is_inside_or_an_end() {
        for (p, a, b, degrees) in [
            (at(5.0, 1.0), at(0.0, 0.0), at(10.0, 0.0), 1.0),
            (at(-2.0, 0.0), at(0.0, 0.0), at(10.0, 0.0), 2.0),
            (at(12.0, 0.0), at(0.0, 0.0), at(10.0, 0.0), 2.0),
            (at(5.0, 0.0), at(0.0, 0.0), at(10.0, 0.0), 0.0),
            (at(180.0, 0.0), at(170.0, 0.0), at(-170.0, 0.0), 0.0),
            (at(3.0, 0.0), at(1.0, 0.0), at(1.0, 0.0), 2.0),
            // On the far side of the circle the ends are nearest.
            (at(-175.0, 0.0), at(0.0, 0.0), at(10.0, 0.0), 175.0),
        ] {
            let found = arc_distance(&p, &a, &b).to_degrees();
            assert!((found - degrees).abs() < 1e-9, "{found} {degrees}");
        }
    }

    #[test]
    fn arcs_meet_in_crossings_and_ends() {
        let (a, b) = (at(0.0, 0.0), at(10.0, 0.0));
        assert!(arcs_meet(&a, &b, &at(5.0, -1.0), &at(5.0, 1.0)));
        assert!(arcs_meet(&a, &b, &at(5.0, 0.0), &at(5.0, 1.0)));
        assert!(arcs_meet(&a, &b, &at(10.0, 0.0), &at(5.0, 1.0)));
        assert!(!arcs_meet(&a, &b, &at(5.0, 0.1), &at(5.0, 1.0)));
    }

    #[test]
    fn degrees_survive_the_way_there_and_back() {
        for (lng, lat) in [(12.5, 41.9), (-170.0, -80.0), (0.0, 0.0), (179.9, 89.0)] {
            let (lng2, lat2) = to_lng_lat(&at(lng, lat));
            assert!((lng - lng2).abs() < 1e-9 && (lat - lat2).abs() < 1e-9);
        }
    }
}
