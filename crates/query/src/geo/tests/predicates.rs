//! Containment and intersection, on the sphere and in the plane.

use super::geo;
use crate::matcher::Filter;
use crate::testing::json;
use frond_bson::{DocBuf, doc};

fn matches(operator: &str, area: &DocBuf, stored: &DocBuf) -> bool {
    let filter = doc! {"g": doc! {operator: doc! {"$geometry": area}}};
    let filter = Filter::parse(&filter).unwrap();
    filter.matches(&doc! {"g": stored})
}

const SQUARE: &str = "Polygon [[[40, 5], [40, 6], [41, 6], [41, 5], [40, 5]]]";
const DONUT: &str = "Polygon [[[0, 0], [10, 0], [10, 10], [0, 10], [0, 0]], \
                     [[3, 3], [7, 3], [7, 7], [3, 7], [3, 3]]]";

#[test]
fn on_the_sphere() {
    // area, stored, within, intersects
    for (area, stored, within, intersects) in [
        (SQUARE, "Point [40.6, 5.4]", true, true),
        (SQUARE, "Point [40, 5]", true, true),
        (SQUARE, "Point [41, 6]", true, true),
        (SQUARE, "Point [40, 5.5]", true, true),
        (SQUARE, "Point [41.001, 6.001]", false, false),
        (SQUARE, "Point [40.5, 4.9999]", false, false),
        (SQUARE, "LineString [[40, 5], [41, 6]]", true, true),
        (SQUARE, "LineString [[40, 5.7], [40, 5]]", true, true),
        (SQUARE, "LineString [[40.5, 5.5], [42, 5.5]]", false, true),
        (SQUARE, "LineString [[39, 5.5], [42, 5.5]]", false, true),
        (SQUARE, "LineString [[39, 4], [42, 4]]", false, false),
        (SQUARE, SQUARE, true, true),
        (
            SQUARE,
            "Polygon [[[40.2, 5.2], [40.4, 5.2], [40.4, 5.4], [40.2, 5.2]]]",
            true,
            true,
        ),
        (
            SQUARE,
            "Polygon [[[40, 5], [40, 6], [40.5, 5.5], [40, 5]]]",
            true,
            true,
        ),
        (
            SQUARE,
            "Polygon [[[40.2, 5.2], [42, 5.2], [42, 5.4], [40.2, 5.2]]]",
            false,
            true,
        ),
        (
            SQUARE,
            "Polygon [[[39, 4], [42, 4], [42, 7], [39, 7], [39, 4]]]",
            false,
            true,
        ),
        (
            SQUARE,
            "Polygon [[[50, 4], [52, 4], [52, 7], [50, 4]]]",
            false,
            false,
        ),
        // Holes.
        (DONUT, "Point [5, 5]", false, false),
        (DONUT, "Point [1, 1]", true, true),
        (DONUT, "Point [3, 3]", true, true),
        (DONUT, "LineString [[4, 4], [6, 6]]", false, false),
        (DONUT, "LineString [[1, 5], [9, 5]]", false, true),
        (DONUT, "LineString [[1, 1], [9, 1]]", true, true),
        (
            DONUT,
            "Polygon [[[4, 4], [6, 4], [6, 6], [4, 4]]]",
            false,
            false,
        ),
        (
            DONUT,
            "Polygon [[[3, 3], [7, 3], [7, 7], [3, 7], [3, 3]]]",
            false,
            false,
        ),
        (
            DONUT,
            "Polygon [[[1, 1], [9, 1], [9, 9], [1, 9], [1, 1]]]",
            false,
            true,
        ),
        (
            DONUT,
            "Polygon [[[1, 1], [2, 1], [2, 9], [1, 9], [1, 1]]]",
            true,
            true,
        ),
        (DONUT, DONUT, true, true),
        // Several parts.
        (SQUARE, "MultiPoint [[40.5, 5.5], [40.6, 5.6]]", true, true),
        (SQUARE, "MultiPoint [[40.5, 5.5], [50, 5.6]]", false, true),
        (
            SQUARE,
            "MultiLineString [[[40.5, 5.5], [40.6, 5.6]], [[1, 1], [2, 2]]]",
            false,
            true,
        ),
        (
            SQUARE,
            "MultiPolygon [[[[40.2, 5.2], [40.4, 5.2], [40.4, 5.4], [40.2, 5.2]]]]",
            true,
            true,
        ),
        (
            "MultiPolygon [[[[0, 0], [1, 0], [1, 1], [0, 0]]], [[[5, 5], [6, 5], [6, 6], [5, 5]]]]",
            "Point [5.5, 5.2]",
            true,
            true,
        ),
        (
            "GeometryCollection [{type: \"Point\", coordinates: [1, 1]}, {type: \"Polygon\", \
             coordinates: [[[5, 5], [6, 5], [6, 6], [5, 5]]]}]",
            "Point [1, 1]",
            false,
            true,
        ),
        // Over the antimeridian.
        (
            "Polygon [[[179, 1], [-179, 1], [-179, -1], [179, -1], [179, 1]]]",
            "Point [180, 0]",
            true,
            true,
        ),
        (
            "Polygon [[[179, 1], [-179, 1], [-179, -1], [179, -1], [179, 1]]]",
            "Point [-180, 0.5]",
            true,
            true,
        ),
        (
            "Polygon [[[179, 1], [-179, 1], [-179, -1], [179, -1], [179, 1]]]",
            "Point [0, 0]",
            false,
            false,
        ),
        // The poles.
        (
            "Polygon [[[179, 89], [179, 90], [-179, 90], [-179, 89], [179, 89]]]",
            "Point [180, 90]",
            true,
            true,
        ),
        (
            "Polygon [[[0, -89], [0, -90], [179, -90], [179, -89], [0, -89]]]",
            "Point [0, -90]",
            true,
            true,
        ),
        (
            "Polygon [[[0, 80], [120, 80], [-120, 80], [0, 80]]]",
            "Point [77, 90]",
            true,
            true,
        ),
        // Sides are great circles: they bend towards the pole.
        (
            "Polygon [[[-30, 40], [30, 40], [30, 60], [-30, 60], [-30, 40]]]",
            "Point [0, 61]",
            true,
            true,
        ),
        (
            "Polygon [[[-30, 40], [30, 40], [30, 60], [-30, 60], [-30, 40]]]",
            "Point [0, 41]",
            false,
            false,
        ),
    ] {
        let (area_doc, stored_doc) = (geo(area), geo(stored));
        assert_eq!(
            matches("$geoWithin", &area_doc, &stored_doc),
            within,
            "{stored} in {area}"
        );
        assert_eq!(
            matches("$geoIntersects", &area_doc, &stored_doc),
            intersects,
            "{stored} and {area}"
        );
        // Having a point in common has no direction.
        assert_eq!(
            matches("$geoIntersects", &stored_doc, &area_doc),
            intersects,
            "{area} and {stored}"
        );
    }
}

#[test]
fn areas_that_share_only_a_part_of_their_borders_do_not_intersect() {
    let square = |x: i32, y: i32, size: i32| {
        let (right, top) = (x + size, y + size);
        format!("[[{x}, {y}], [{right}, {y}], [{right}, {top}], [{x}, {top}], [{x}, {y}]]")
    };
    let polygon = |rings: &[String]| format!("Polygon [{}]", rings.join(", "));
    let middle = polygon(&[square(20, 20, 10)]);
    let donut = polygon(&[square(20, 20, 10), square(23, 23, 4)]);
    let hourglass = polygon(&[
        "[[20, 20], [30, 20], [30, 30], [20, 30], [20, 20]]".to_owned(),
        // It touches its shell in one corner.
        "[[20, 20], [25, 22], [22, 25], [20, 20]]".to_owned(),
    ]);
    for (area, other, expected) in [
        // An edge.
        (&middle, polygon(&[square(30, 20, 10)]), false),
        (&middle, polygon(&[square(10, 20, 10)]), false),
        (&middle, polygon(&[square(20, 30, 10)]), false),
        (&middle, polygon(&[square(20, 10, 10)]), false),
        // A corner.
        (&middle, polygon(&[square(30, 30, 10)]), false),
        (&middle, polygon(&[square(10, 10, 10)]), false),
        (&middle, polygon(&[square(30, 10, 10)]), false),
        // A part of an edge.
        (&middle, polygon(&[square(30, 23, 4)]), false),
        (&middle, polygon(&[square(16, 22, 4)]), false),
        (&middle, polygon(&[square(30, 15, 20)]), false),
        (
            &middle,
            "Polygon [[[30, 25], [35, 24], [35, 26], [30, 25]]]".to_owned(),
            false,
        ),
        (
            &middle,
            "Polygon [[[30, 25], [25, 24], [25, 26], [30, 25]]]".to_owned(),
            true,
        ),
        (&middle, polygon(&[square(26, 22, 4)]), true),
        // An edge or a corner, and a part inside.
        (&middle, polygon(&[square(20, 20, 5)]), true),
        (&middle, polygon(&[square(20, 20, 20)]), true),
        (&middle, polygon(&[square(20, 20, 10)]), true),
        (
            &middle,
            "Polygon [[[20, 20], [30, 30], [20, 30], [20, 20]]]".to_owned(),
            true,
        ),
        (
            &middle,
            "Polygon [[[20, 20], [30, 30], [40, 20], [20, 20]]]".to_owned(),
            true,
        ),
        (
            &middle,
            "Polygon [[[30, 20], [40, 20], [29, 25], [30, 20]]]".to_owned(),
            true,
        ),
        (
            &middle,
            "Polygon [[[30, 30], [30, 20], [35, 25], [30, 30]]]".to_owned(),
            false,
        ),
        // All corners are common.
        (
            &middle,
            "Polygon [[[20, 20], [30, 20], [20, 30], [20, 20]]]".to_owned(),
            true,
        ),
        // The hole.
        (&donut, polygon(&[square(23, 23, 4)]), false),
        (&donut, polygon(&[square(24, 24, 2)]), false),
        (&donut, polygon(&[square(22, 22, 6)]), true),
        (&donut, polygon(&[square(23, 23, 5)]), true),
        (&donut, polygon(&[square(30, 23, 4)]), false),
        (
            &donut,
            polygon(&[square(23, 23, 4), square(24, 24, 1)]),
            false,
        ),
        (
            &donut,
            polygon(&[square(10, 10, 30), square(20, 20, 10)]),
            false,
        ),
        (
            &donut,
            polygon(&[square(10, 10, 30), square(21, 21, 8)]),
            true,
        ),
        (
            &hourglass,
            "Polygon [[[20, 20], [25, 22], [22, 25], [20, 20]]]".to_owned(),
            false,
        ),
        (
            &hourglass,
            "Polygon [[[20, 20], [24, 22], [22, 24], [20, 20]]]".to_owned(),
            false,
        ),
        (
            &hourglass,
            "Polygon [[[20, 20], [25, 22], [24, 20], [20, 20]]]".to_owned(),
            true,
        ),
        (&hourglass, polygon(&[square(10, 10, 10)]), false),
        // Several parts.
        (
            &middle,
            format!(
                "MultiPolygon [[{}], [{}]]",
                square(30, 20, 10),
                square(30, 30, 10)
            ),
            false,
        ),
        (
            &middle,
            format!(
                "MultiPolygon [[{}], [{}]]",
                square(30, 20, 10),
                square(25, 25, 10)
            ),
            true,
        ),
    ] {
        for (a, b) in [(area, &other), (&other, area)] {
            assert_eq!(
                matches("$geoIntersects", &geo(a), &geo(b)),
                expected,
                "{a} and {b}"
            );
        }
    }
}

#[test]
fn lines_that_only_touch_an_area_do_not_intersect() {
    let square = "Polygon [[[20, 20], [30, 20], [30, 30], [20, 30], [20, 20]]]";
    for (line, intersects, within) in [
        // From outside to a corner, and past it.
        ("[[10, 10], [20, 20]]", false, false),
        ("[[20, 20], [10, 10]]", false, false),
        ("[[10, 21], [20, 20], [21, 10]]", false, false),
        // From inside to a corner.
        ("[[25, 25], [20, 20]]", true, true),
        ("[[20, 20], [30, 30]]", true, true),
        ("[[10, 10], [20, 20], [25, 25]]", true, false),
        // Along an edge: with the area to the left, and to the right.
        ("[[20, 20], [30, 20]]", true, true),
        ("[[30, 20], [20, 20]]", false, false),
        ("[[20, 20], [30, 20], [30, 30]]", true, true),
        ("[[30, 30], [30, 20], [20, 20]]", false, false),
        ("[[30, 20], [20, 20], [25, 25]]", true, false),
        ("[[30, 28], [30, 22]]", false, false),
        ("[[30, 22], [30, 28]]", true, true),
        ("[[30, 35], [30, 15]]", false, false),
        // From outside to an edge.
        ("[[40, 24], [30, 25]]", false, false),
        ("[[30, 25], [25, 24]]", true, true),
        // Through it.
        ("[[10, 25], [40, 25]]", true, false),
        ("[[22, 22], [24, 28]]", true, true),
    ] {
        let line = geo(&format!("LineString {line}"));
        let square = geo(square);
        assert_eq!(
            matches("$geoIntersects", &square, &line),
            intersects,
            "{line:?}"
        );
        assert_eq!(
            matches("$geoIntersects", &line, &square),
            intersects,
            "{line:?}"
        );
        assert_eq!(matches("$geoWithin", &square, &line), within, "{line:?}");
    }
    // In a hole the area is on the other side.
    for (line, intersects) in [
        ("[[3, 3], [7, 3]]", false),
        ("[[7, 3], [3, 3]]", true),
        ("[[3, 3], [7, 7]]", false),
        ("[[5, 5], [7, 7]]", false),
        ("[[7, 7], [9, 9]]", true),
    ] {
        let line = geo(&format!("LineString {line}"));
        assert_eq!(
            matches("$geoIntersects", &geo(DONUT), &line),
            intersects,
            "{line:?}"
        );
    }
}

#[test]
fn lines_and_points_meet() {
    let line = "LineString [[0, 0], [1, 0]]";
    for (other, expected) in [
        ("LineString [[0.5, 0.5], [0.5, -0.5]]", true),
        ("LineString [[0, 0.5], [0, -0.5]]", true),
        ("LineString [[-0.1, 0.5], [-0.1, -0.5]]", false),
        ("LineString [[-0.5, 0], [0.5, 0]]", true),
        ("LineString [[0, 0], [1, 0]]", true),
        // As in MongoDB: a line inside of another without a vertex in common does not meet it.
        ("LineString [[0.1, 0], [0.9, 0]]", false),
        (
            "Polygon [[[0.4, -0.1], [0.4, 0.1], [0.6, 0.1], [0.6, -0.1], [0.4, -0.1]]]",
            true,
        ),
        ("Point [0.3, 0]", true),
        ("Point [0.3, 0.0001]", false),
    ] {
        assert_eq!(
            matches("$geoIntersects", &geo(line), &geo(other)),
            expected,
            "{other}"
        );
    }
    let point = geo("Point [10, 10]");
    assert!(matches("$geoIntersects", &point, &geo("Point [10, 10]")));
    assert!(!matches("$geoIntersects", &point, &geo("Point [12, 12]")));
}

#[test]
fn caps_and_planar_areas() {
    for (area, stored, expected) in [
        ("{$centerSphere: [[0, 0], 0.1]}", "{g: [5.7, 0]}", true),
        ("{$centerSphere: [[0, 0], 0.1]}", "{g: [5.8, 0]}", false),
        ("{$centerSphere: [[180, 0], 0.1]}", "{g: [-175, 1]}", true),
        ("{$centerSphere: [[0, 90], 0.1]}", "{g: [77, 85]}", true),
        ("{$centerSphere: [[0, 0], 4]}", "{g: [180, 0]}", true),
        ("{$centerSphere: [[0, 0], 0.1]}", "{g: [200, 0]}", false),
        (
            "{$centerSphere: [[0, 0], 0.1]}",
            "{g: {type: \"LineString\", coordinates: [[0, 0], [1, 1]]}}",
            true,
        ),
        (
            "{$centerSphere: [[0, 0], 0.1]}",
            "{g: {type: \"LineString\", coordinates: [[0, 0], [10, 1]]}}",
            false,
        ),
        (
            "{$centerSphere: [[0, 0], 1.7]}",
            "{g: {type: \"Polygon\", coordinates: [[[-9, -9], [9, -9], [9, 9], [-9, 9], [-9, -9]]]}}",
            true,
        ),
        // In the plane numbers need not be degrees.
        ("{$box: [[0, 0], [300, 5]]}", "{g: [299, 5]}", true),
        ("{$box: [[0, 0], [300, 5]]}", "{g: {x: 1, y: 6}}", false),
        (
            "{$box: [[0, 0], [3, 5]]}",
            "{g: {type: \"Point\", coordinates: [1, 2]}}",
            true,
        ),
        (
            "{$box: [[0, 0], [3, 5]]}",
            "{g: {type: \"LineString\", coordinates: [[1, 2], [2, 2]]}}",
            false,
        ),
        ("{$center: [[0, 0], 5]}", "{g: [3, 4]}", true),
        ("{$center: [[0, 0], 5]}", "{g: [3, 4.1]}", false),
        ("{$polygon: [[0, 0], [3, 6], [6, 0]]}", "{g: [3, 2]}", true),
        (
            "{$polygon: [[0, 0], [3, 6], [6, 0]]}",
            "{g: {lng: 0, lat: 1, z: 5}}",
            false,
        ),
        (
            "{$polygon: {a: {x: 0, y: 0}, b: [3, 6], c: [6, 0]}}",
            "{g: [3, 2]}",
            true,
        ),
        // Arrays of points: one is enough. Other values match nothing.
        ("{$box: [[0, 0], [3, 5]]}", "{g: [[9, 9], [1, 1]]}", true),
        ("{$box: [[0, 0], [3, 5]]}", "{g: [[9, 9], [8, 8]]}", false),
        ("{$box: [[0, 0], [3, 5]]}", "{g: \"x\"}", false),
        ("{$box: [[0, 0], [3, 5]]}", "{h: [1, 1]}", false),
    ] {
        for operator in ["$geoWithin", "$within"] {
            let filter = json(&format!("{{g: {{{operator}: {area}}}}}"));
            let filter = Filter::parse(&filter).unwrap();
            assert_eq!(
                filter.matches(&json(stored)),
                expected,
                "{stored} in {area}"
            );
        }
    }
}

/// A filter with a polygon whose inside is to the left of its ring.
fn strict(operator: &str, ring: &str) -> DocBuf {
    let system =
        "{type: \"name\", properties: {name: \"urn:x-mongodb:crs:strictwinding:EPSG:4326\"}}";
    json(&format!(
        "{{g: {{{operator}: {{$geometry: {{type: \"Polygon\", coordinates: [{ring}], crs: {system}}}}}}}}}"
    ))
}

#[test]
fn big_polygons_intersect_what_is_not_all_in_their_gap() {
    let filter = Filter::parse(&strict(
        "$geoIntersects",
        "[[20, 20], [20, 30], [30, 30], [30, 20], [20, 20]]",
    ));
    let filter = filter.unwrap();
    for (stored, expected) in [
        (
            "Polygon [[[20, 20], [30, 20], [30, 30], [20, 30], [20, 20]]]",
            false,
        ),
        ("Polygon [[[20, 20], [25, 20], [25, 25], [20, 20]]]", true),
        ("Polygon [[[22, 22], [25, 22], [25, 25], [22, 22]]]", false),
        ("Polygon [[[20, 20], [30, 30], [20, 30], [20, 20]]]", false),
        (
            "Polygon [[[30, 20], [40, 20], [40, 30], [30, 30], [30, 20]]]",
            true,
        ),
        ("Polygon [[[25, 25], [40, 20], [40, 30], [25, 25]]]", true),
        ("Polygon [[[50, 50], [51, 50], [51, 51], [50, 50]]]", true),
        ("LineString [[22, 22], [28, 28]]", false),
        ("LineString [[20, 20], [30, 30]]", false),
        ("LineString [[22, 22], [40, 40]]", true),
        ("LineString [[50, 22], [60, 40]]", true),
    ] {
        assert_eq!(
            filter.matches(&doc! {"g": geo(stored)}),
            expected,
            "{stored}"
        );
    }
}

#[test]
fn big_polygons_have_their_inside_to_the_left() {
    let small = Filter::parse(&strict(
        "$geoWithin",
        "[[-10, -10], [10, -10], [10, 10], [-10, 10], [-10, -10]]",
    ));
    let large = Filter::parse(&strict(
        "$geoWithin",
        "[[-10, -10], [-10, 10], [10, 10], [10, -10], [-10, -10]]",
    ));
    let (small, large) = (small.unwrap(), large.unwrap());
    for (stored, in_small) in [
        ("{g: [0, 0]}", true),
        ("{g: [50, 50]}", false),
        ("{g: [180, 0]}", false),
        (
            "{g: {type: \"LineString\", coordinates: [[1, 1], [2, 2]]}}",
            true,
        ),
        (
            "{g: {type: \"LineString\", coordinates: [[20, 1], [30, 2]]}}",
            false,
        ),
    ] {
        assert_eq!(small.matches(&json(stored)), in_small, "{stored}");
        assert_eq!(large.matches(&json(stored)), !in_small, "{stored}");
    }
}
