//! Invalid geometries, with the messages that refuse them.

use frond_bson::{Value, doc};

use super::geo;
use crate::geo::grid::Grid;
use crate::geo::{Geometry, Near, flat_keys};
use crate::matcher::Filter;
use crate::paths::Path;
use crate::testing::json;

#[test]
fn wrong_geometries_are_refused_with_the_reason() {
    for (text, reason) in [
        (
            "Point \"hello\"",
            "Point must be an array or object, instead got type string",
        ),
        (
            "Point [\"hello\", 5]",
            "Point must only contain numeric elements, instead got type string",
        ),
        (
            "Point [5]",
            "Point must only contain numeric elements, instead got type missing",
        ),
        (
            "Point [200, 0]",
            "longitude/latitude is out of bounds, lng: 200 lat: 0",
        ),
        (
            "Point [0, -90.5]",
            "longitude/latitude is out of bounds, lng: 0 lat: -90.5",
        ),
        (
            "LineString [5, 5]",
            "GeoJSON coordinates must be an array, instead got type int",
        ),
        (
            "LineString 5",
            "GeoJSON coordinates must be an array of coordinates, instead got type int",
        ),
        (
            "LineString [[1, 1], [1, 1]]",
            "GeoJSON LineString must have at least 2 vertices: [ [",
        ),
        (
            "Polygon [[[0, 0], [1, 2], [2, 3]]]",
            "Loop is not closed, first vertex does not equal last vertex: [ [ 0, 0 ]",
        ),
        (
            "Polygon \"hi\"",
            "Polygon coordinates must be an array, instead got type string",
        ),
        ("Polygon []", "Polygon has no loops."),
        (
            "Polygon [[[0, 0], [1, 2], [0, 0]]]",
            "Loop must have at least 3 different vertices, 2 unique vertices were provided:",
        ),
        (
            "Polygon [[[0, 0], [0, 1], [1, 1], [-2, -1], [0, 0]]]",
            "Loop is not valid: [ [ 0, 0 ], [ 0, 1 ], [ 1, 1 ], [ -2, -1 ], [ 0, 0 ] ] Edges 0 and 2 cross",
        ),
        (
            "Polygon [[[9, 9], [9, 11], [11, 11], [11, 9], [9, 9]], [[0, 0], [0, 1], [1, 1], [0, 0]]]",
            "Secondary loops not contained by first exterior loop - secondary loops must be holes: [ [",
        ),
        (
            "Polygon [[[0, 0], [9, 0], [9, 9], [0, 9], [0, 0]], [[1, 1], [5, 1], [5, 5], [1, 5], [1, 1]], \
             [[2, 2], [3, 2], [3, 3], [2, 2]]]",
            "Polygon interior loops cannot be nested: [",
        ),
        (
            "Polygon [[[0, 0], [9, 0], [9, 9], [0, 9], [0, 0]], [[1, 1], [5, 1], [5, 5], [1, 5], [1, 1]], \
             [[4, 4], [8, 4], [8, 8], [4, 8], [4, 4]]]",
            "Polygon isn't valid: Loop 1 crosses loop 2: [",
        ),
        (
            "MultiPoint []",
            "MultiPoint coordinates must have at least 1 element",
        ),
        (
            "MultiPolygon \"\"",
            "MultiPolygon coordinates must be an array, instead got type string",
        ),
        (
            "MultiLineString []",
            "MultiLineString coordinates must have at least 1 element",
        ),
        (
            "GeometryCollection [{type: \"Point\", coordinates: [0, 0]}, 5]",
            "Element 1 of \"geometries\" must be an object, instead got type int: 5",
        ),
        (
            "GeometryCollection [{type: \"GeometryCollection\", geometries: []}]",
            "GeometryCollections cannot be nested:",
        ),
        (
            "Circle [1, 1]",
            "unknown GeoJSON type: { type: \"Circle\", coordinates: [ 1, 1 ] }",
        ),
    ] {
        let shape = geo(text);
        let error = Geometry::stored(&Value::Document(&shape)).unwrap_err();
        assert!(error.starts_with(reason), "{text}: {error}");
    }
    let infinite = doc! {"type": "Point", "coordinates": [f64::INFINITY, 5.0]};
    let error = Geometry::stored(&Value::Document(&infinite)).unwrap_err();
    assert_eq!(error, "Point coordinates must be finite numbers");
}

#[test]
fn reference_systems() {
    let with = |system: &str| {
        let shape = json(&format!(
            "{{type: \"Point\", coordinates: [1, 2], crs: {system}}}"
        ));
        Geometry::stored(&Value::Document(&shape)).map(|_| ())
    };
    let named = |name: &str| {
        with(&format!(
            "{{type: \"name\", properties: {{name: \"{name}\"}}}}"
        ))
    };
    assert_eq!(named("EPSG:4326"), Ok(()));
    assert_eq!(named("urn:ogc:def:crs:OGC:1.3:CRS84"), Ok(()));
    for (error, reason) in [
        (named("EPSG:2000"), "Unknown CRS name: EPSG:2000"),
        (
            named("urn:x-mongodb:crs:strictwinding:EPSG:4326"),
            "Strict winding order is only supported by polygon",
        ),
        (with("5"), "GeoJSON CRS must be an object"),
        (with("{}"), "GeoJSON CRS must have field \"type\": \"name\""),
        (
            with("{type: \"name\"}"),
            "CRS must have field \"properties\" which is an object, instead got type missing",
        ),
        (
            with("{type: \"name\", properties: {}}"),
            "In CRS, \"properties.name\" must be a string, instead got type missing",
        ),
    ] {
        assert!(error.clone().unwrap_err().starts_with(reason), "{error:?}");
    }
}

#[test]
fn wrong_queries_are_refused() {
    for (filter, code, part) in [
        ("{g: {$geoWithin: 5}}", 2, "geometry must be an object"),
        (
            "{g: {$geoWithin: {}}}",
            2,
            "geo query doesn't have any geometry",
        ),
        (
            "{g: {$geoWithin: {$foo: [1, 2]}}}",
            2,
            "unknown geo specifier: $foo: [ 1, 2 ]",
        ),
        (
            "{g: {$geoWithin: {$box: [[0, 0], [1, 1]]}, $exists: true}}",
            2,
            "can't parse extra field: $exists: true",
        ),
        (
            "{g: {$geoWithin: {$geometry: {type: \"Point\", coordinates: [0, 0]}}}}",
            2,
            "$within not supported with provided geometry: {",
        ),
        (
            "{g: {$geoIntersects: {$box: [[0, 0], [1, 1]]}}}",
            2,
            "$geoIntersect not supported with provided geometry: {",
        ),
        (
            "{g: {$geoWithin: {$box: [[0, 0]]}}}",
            2,
            "Point must be an array or object",
        ),
        (
            "{g: {$geoWithin: {$polygon: [[0, 0], [1, 1]]}}}",
            2,
            "at least 3 points",
        ),
        (
            "{g: {$geoWithin: {$center: [[0, 0], -1]}}}",
            2,
            "radius must be a non-negative number",
        ),
        (
            "{g: {$geoWithin: {$center: [[0, 0], 1, 2]}}}",
            2,
            "Only 2 fields allowed",
        ),
        (
            "{g: {$geoWithin: {$centerSphere: [[181, 0], 1]}}}",
            2,
            "out of bounds",
        ),
        ("{g: {$near: 5}}", 2, "near must be first in: { $near: 5 }"),
        (
            "{g: {$maxDistance: 5, $near: [0, 0]}}",
            2,
            "unknown operator: $maxDistance",
        ),
        (
            "{g: {$exists: true, $near: [0, 0]}}",
            2,
            "near must be first in:",
        ),
        (
            "{g: {$near: [0, 0], $exists: true}}",
            34413,
            "invalid argument in geo near query: $exists",
        ),
        (
            "{g: {$near: [0, 0, -1]}}",
            18522,
            "max distance must be non-negative",
        ),
        (
            "{g: {$near: [0, 0], $minDistance: \"x\"}}",
            16893,
            "$minDistance must be a number",
        ),
        (
            "{g: {$near: [0, 0], $minDistance: -1}}",
            16894,
            "$minDistance must be non-negative",
        ),
        (
            "{g: {$near: [0, 0], $maxDistance: {}}}",
            16895,
            "$maxDistance must be a number",
        ),
        (
            "{g: {$near: [0, 0], $maxDistance: -1}}",
            16896,
            "$maxDistance must be non-negative",
        ),
        (
            "{g: {$nearSphere: [179, -91]}}",
            17444,
            "Legacy point is out of bounds",
        ),
        (
            "{g: {$near: {$geometry: [1, 2]}}}",
            16681,
            "$near requires geojson point, given",
        ),
        (
            "{g: {$near: {$maxDistance: 1}}}",
            2,
            "$geometry is required for geo near query",
        ),
        (
            "{g: {$near: {$foo: 1}}}",
            2,
            "invalid argument in geo near query: $foo",
        ),
        (
            "{g: {$near: {$geometry: {type: \"Point\", coordinates: [0, 0]}}, $maxDistance: 1}}",
            2,
            "geo near accepts just one argument when querying for a GeoJSON point. Extra field found: \
             $maxDistance: 1",
        ),
        (
            "{g: {$near: {$geometry: {type: \"Point\", coordinates: [0, 0]}, $maxDistance: -1}}}",
            16900,
            "$maxDistance must be non-negative",
        ),
        (
            "{$or: [{g: {$near: [0, 0]}}, {a: 1}]}",
            2,
            "geoNear must be top-level expr",
        ),
        (
            "{$nor: [{g: {$near: [0, 0]}}]}",
            2,
            "geoNear must be top-level expr",
        ),
        (
            "{g: {$not: {$near: [0, 0]}}}",
            2,
            "geoNear must be top-level expr",
        ),
        (
            "{g: {$elemMatch: {h: {$near: [0, 0]}}}}",
            2,
            "geoNear must be top-level expr",
        ),
        (
            "{g: {$near: [0, 0]}, h: {$near: [0, 0]}}",
            2,
            "Too many geoNear expressions",
        ),
    ] {
        let error = Filter::parse_with(&json(filter), &Default::default()).unwrap_err();
        assert_eq!(error.code().code(), code, "{filter}: {error}");
        assert!(error.message().contains(part), "{filter}: {error}");
    }
    let near = json("{a: 1, g: {$near: [0, 0]}}");
    assert!(
        Filter::parse_with(&near, &Default::default())
            .unwrap()
            .near()
            .is_some()
    );
    for error in [
        Filter::parse(&near).unwrap_err(),
        Filter::parse_in_pipeline(&near, &Default::default()).unwrap_err(),
    ] {
        assert_eq!(error.code().code(), 5626500);
        assert!(
            error
                .message()
                .starts_with("$geoNear, $near, and $nearSphere are not allowed in this context")
        );
    }
}

#[test]
fn distances_have_the_unit_of_the_query() {
    let near = |filter: &str| -> Near {
        let filter = Filter::parse_with(&json(filter), &Default::default()).unwrap();
        let near = filter.near().unwrap().1;
        (**near).clone()
    };
    let degree = std::f64::consts::PI / 180.0;
    let metres = degree * 6_378_100.0;
    for (filter, stored, expected) in [
        ("{g: {$near: [0, 0]}}", "{g: [3, 4]}", Some(5.0)),
        (
            "{g: {$near: [0, 0]}}",
            "{g: {type: \"Point\", coordinates: [3, 4]}}",
            Some(5.0),
        ),
        ("{g: {$nearSphere: [0, 0]}}", "{g: [1, 0]}", Some(degree)),
        (
            "{g: {$near: {$geometry: {type: \"Point\", coordinates: [0, 0]}}}}",
            "{g: [0, 1]}",
            Some(metres),
        ),
        (
            "{g: {$nearSphere: {type: \"Point\", coordinates: [0, 0]}, $maxDistance: 1}}",
            "{g: [0, 1]}",
            Some(metres),
        ),
        // The nearest of several.
        (
            "{g: {$near: [0, 0]}}",
            "{g: [[9, 9], [3, 4], [5, 5]]}",
            Some(5.0),
        ),
        (
            "{\"a.g\": {$near: [0, 0]}}",
            "{a: [{g: [9, 9]}, {g: [3, 4]}]}",
            Some(5.0),
        ),
        (
            "{g: {$nearSphere: [0, 0]}}",
            "{g: {type: \"LineString\", coordinates: [[-5, 2], [-5, -2]]}}",
            Some(5.0 * degree),
        ),
        (
            "{g: {$nearSphere: [0, 0]}}",
            "{g: {type: \"Polygon\", coordinates: [[[-1, -1], [1, -1], [0, 1], [-1, -1]]]}}",
            Some(0.0),
        ),
        ("{g: {$nearSphere: [0, 0]}}", "{g: [200, 0]}", None),
        ("{g: {$near: [0, 0]}}", "{g: 5}", None),
        ("{g: {$near: [0, 0]}}", "{}", None),
    ] {
        let doc = json(stored);
        let path = filter.split(['{', ':']).nth(1).unwrap().trim_matches('"');
        let found = near(filter).nearest(&doc, &Path::new(path));
        match (found, expected) {
            (Some(found), Some(expected)) => {
                assert!(
                    (found.distance - expected).abs() < expected * 1e-9 + 1e-9,
                    "{stored}"
                );
            }
            (found, expected) => assert_eq!(found.is_some(), expected.is_some(), "{stored}"),
        }
    }
    // A third number is the greatest distance.
    assert_eq!(near("{g: {$near: [0, 0, 7]}}").range(), (0.0, 7.0));
}

#[test]
fn keys_of_pairs() {
    let grid = Grid::default();
    let keys = |text: &str| {
        let doc = json(text);
        flat_keys(&doc.get("g").unwrap(), &grid).map(|keys| keys.len())
    };
    assert_eq!(keys("{g: [1, 2]}"), Ok(1));
    assert_eq!(keys("{g: {x: 180, y: -180}}"), Ok(1));
    assert_eq!(keys("{g: [[1, 2], {x: 3, y: 4}, []]}"), Ok(2));
    assert_eq!(keys("{g: {home: [1, 2], work: [3, 4]}}"), Ok(2));
    assert_eq!(keys("{g: 5}"), Ok(0));
    assert_eq!(keys("{g: []}"), Ok(0));
    for (text, code) in [
        ("{g: [181, 0]}", 13027),
        ("{g: [1]}", 13068),
        ("{g: [1, \"x\"]}", 13026),
        ("{g: {type: \"Point\", coordinates: [1, 2]}}", 16804),
        ("{g: [[\"a\", 2]]}", 13026),
    ] {
        assert_eq!(keys(text).unwrap_err().code().code(), code, "{text}");
    }
}
