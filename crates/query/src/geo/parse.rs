//! From BSON to shapes: GeoJSON and legacy pairs, with MongoDB's reasons for refusing one.

use frond_bson::{Doc, Value};
use s2::point::Point;

use super::edges::Edges;
use super::flat::FlatPoint;
use super::polygon::Polygon;
use super::ring::{Ring, Side};
use super::shape::Shape;
use super::sphere::{from_lng_lat, is_lng_lat};
use crate::display;

/// The reason why a value is not a geometry.
pub(crate) type Parsed<T> = Result<T, String>;

/// A geometry as it was written.
#[derive(Clone, Debug)]
pub struct Geometry {
    /// The numbers, if it is one point.
    pub(crate) flat: Option<FlatPoint>,
    /// The geometry on the sphere. `None` for a legacy pair that is not a longitude and latitude.
    pub(crate) shape: Option<Shape>,
    /// Whether it is a polygon whose winding order counts, which can be larger than a hemisphere.
    pub(crate) strict: bool,
}

impl Geometry {
    fn of_pair(pair: FlatPoint) -> Geometry {
        let on_sphere = is_lng_lat(pair.x, pair.y);
        Geometry {
            flat: Some(pair),
            shape: on_sphere.then(|| Shape::of_point(from_lng_lat(pair.x, pair.y))),
            strict: false,
        }
    }

    /// Reads what a document stores: GeoJSON, or a legacy pair that may have more behind it.
    pub(crate) fn stored(value: &Value<'_>) -> Parsed<Geometry> {
        let (Value::Document(doc) | Value::Array(doc)) = value else {
            return Err(format!(
                "geo element must be an array or object: {}",
                display::value(value)
            ));
        };
        if is_pair(value, doc) {
            return flat_point(Some(*value), true).map(Geometry::of_pair);
        }
        geojson(doc)
    }

    /// Reads the argument of `$geometry`: as [`Geometry::stored`], but a pair has two numbers.
    pub(crate) fn queried(value: &Value<'_>) -> Parsed<Geometry> {
        match value {
            Value::Document(doc) | Value::Array(doc) if is_pair(value, doc) => {
                flat_point(Some(*value), false).map(Geometry::of_pair)
            }
            Value::Document(doc) => geojson(doc),
            _ => Err("Point must be an array or object".to_owned()),
        }
    }
}

/// Whether a value is written as a legacy pair.
fn is_pair(value: &Value<'_>, doc: &Doc) -> bool {
    matches!(value, Value::Array(_)) || doc.first().is_some_and(|(_, first)| first.is_number())
}

fn type_name(value: Option<&Value<'_>>) -> &'static str {
    value.map_or("missing", Value::type_name)
}

/// Two numbers in an array or a document; more may follow if `more` says so.
pub(crate) fn flat_point(value: Option<Value<'_>>, more: bool) -> Parsed<FlatPoint> {
    let Some(Value::Document(doc) | Value::Array(doc)) = value else {
        return Err(format!(
            "Point must be an array or object, instead got type {}",
            type_name(value.as_ref())
        ));
    };
    let mut values = doc.values();
    let mut number = || {
        let value = values.next();
        value
            .filter(Value::is_number)
            .and_then(|value| value.as_f64())
            .ok_or_else(|| {
                format!(
                    "Point must only contain numeric elements, instead got type {}",
                    type_name(value.as_ref())
                )
            })
    };
    let (x, y) = (number()?, number()?);
    if !more && values.next().is_some() {
        return Err("Point must only contain two numeric elements".to_owned());
    }
    if !x.is_finite() || !y.is_finite() {
        return Err("Point coordinates must be finite numbers".to_owned());
    }
    Ok(FlatPoint { x, y })
}

/// A pair as a point of the sphere.
pub(crate) fn on_sphere(pair: &FlatPoint) -> Parsed<Point> {
    if !is_lng_lat(pair.x, pair.y) {
        return Err(format!(
            "longitude/latitude is out of bounds, lng: {} lat: {}",
            pair.x, pair.y
        ));
    }
    Ok(from_lng_lat(pair.x, pair.y))
}

fn geojson(doc: &Doc) -> Parsed<Geometry> {
    let Some(kind) = doc.path("type").as_ref().and_then(Value::as_str) else {
        return Err(unknown(doc));
    };
    let (flat, shape, strict) = if kind == "GeometryCollection" {
        (None, collection(doc)?, false)
    } else {
        single(kind, doc)?
    };
    Ok(Geometry {
        flat,
        shape: Some(shape),
        strict,
    })
}

fn unknown(doc: &Doc) -> String {
    format!("unknown GeoJSON type: {}", display::doc(doc))
}

type Single = (Option<FlatPoint>, Shape, bool);

/// Everything but a collection.
fn single(kind: &str, doc: &Doc) -> Parsed<Single> {
    let coordinates = || doc.get("coordinates");
    let shape = match kind {
        "Point" => {
            reference_system(doc, false)?;
            let pair = flat_point(coordinates(), true)?;
            return Ok((Some(pair), Shape::of_point(on_sphere(&pair)?), false));
        }
        "LineString" => {
            reference_system(doc, false)?;
            Shape {
                lines: vec![line(coordinates())?],
                ..Shape::default()
            }
        }
        "Polygon" => {
            if reference_system(doc, true)? {
                return Ok((None, Shape::of_polygon(big_polygon(coordinates())?), true));
            }
            Shape::of_polygon(polygon(coordinates())?)
        }
        "MultiPoint" => {
            reference_system(doc, false)?;
            let points = points(coordinates())?;
            if points.is_empty() {
                return Err("MultiPoint coordinates must have at least 1 element".to_owned());
            }
            Shape {
                points,
                ..Shape::default()
            }
        }
        "MultiLineString" => {
            reference_system(doc, false)?;
            Shape {
                lines: several(kind, coordinates(), line)?,
                ..Shape::default()
            }
        }
        "MultiPolygon" => {
            reference_system(doc, false)?;
            Shape {
                polygons: several(kind, coordinates(), polygon)?,
                ..Shape::default()
            }
        }
        _ => return Err(unknown(doc)),
    };
    Ok((None, shape, false))
}

fn several<T>(
    kind: &str,
    coordinates: Option<Value<'_>>,
    read: fn(Option<Value<'_>>) -> Parsed<T>,
) -> Parsed<Vec<T>> {
    let Some(Value::Array(items)) = coordinates else {
        return Err(format!(
            "{kind} coordinates must be an array, instead got type {}",
            type_name(coordinates.as_ref())
        ));
    };
    if items.is_empty() {
        return Err(format!("{kind} coordinates must have at least 1 element"));
    }
    items.values().map(|item| read(Some(item))).collect()
}

fn collection(doc: &Doc) -> Parsed<Shape> {
    let geometries = doc.get("geometries");
    let Some(Value::Array(items)) = geometries else {
        return Err(format!(
            "GeometryCollection geometries must be an array, instead got type {}",
            type_name(geometries.as_ref())
        ));
    };
    if items.is_empty() {
        return Err("GeometryCollection geometries must have at least 1 element".to_owned());
    }
    let mut all = Shape::default();
    for (i, item) in items.values().enumerate() {
        let Value::Document(inner) = item else {
            return Err(format!(
                "Element {i} of \"geometries\" must be an object, instead got type {}: {}",
                item.type_name(),
                display::value(&item)
            ));
        };
        let kind = inner.path("type");
        match kind.as_ref().and_then(Value::as_str) {
            Some("GeometryCollection") => {
                return Err(format!(
                    "GeometryCollections cannot be nested: {}",
                    display::value(&item)
                ));
            }
            Some(kind) => all.add(single(kind, inner)?.1),
            None => return Err(format!("Unknown GeoJSON type: {}", display::value(&item))),
        }
    }
    Ok(all)
}

/// Reads `crs`: whether the winding order counts.
fn reference_system(doc: &Doc, may_be_strict: bool) -> Parsed<bool> {
    let Some(system) = doc.get("crs") else {
        return Ok(false);
    };
    let Value::Document(system) = system else {
        return Err(format!(
            "GeoJSON CRS must be an object, instead got type {}",
            system.type_name()
        ));
    };
    if system.get_str("type") != Some("name") {
        return Err("GeoJSON CRS must have field \"type\": \"name\"".to_owned());
    }
    let properties = system.get("properties");
    let Some(Value::Document(properties)) = properties else {
        return Err(format!(
            "CRS must have field \"properties\" which is an object, instead got type {}",
            type_name(properties.as_ref())
        ));
    };
    let name = properties.get("name");
    let Some(Value::String(name)) = name else {
        return Err(format!(
            "In CRS, \"properties.name\" must be a string, instead got type {}",
            type_name(name.as_ref())
        ));
    };
    match name {
        "urn:ogc:def:crs:OGC:1.3:CRS84" | "EPSG:4326" => Ok(false),
        "urn:x-mongodb:crs:strictwinding:EPSG:4326" if may_be_strict => Ok(true),
        "urn:x-mongodb:crs:strictwinding:EPSG:4326" => {
            Err("Strict winding order is only supported by polygon".to_owned())
        }
        _ => Err(format!("Unknown CRS name: {name}")),
    }
}

/// An array of coordinates; each may have more than two numbers, as an altitude.
fn points(value: Option<Value<'_>>) -> Parsed<Vec<Point>> {
    let Some(Value::Array(items)) = value else {
        return Err(format!(
            "GeoJSON coordinates must be an array of coordinates, instead got type {}",
            type_name(value.as_ref())
        ));
    };
    let point = |item: Value<'_>| match item {
        Value::Array(_) => on_sphere(&flat_point(Some(item), true)?),
        _ => Err(format!(
            "GeoJSON coordinates must be an array, instead got type {}",
            item.type_name()
        )),
    };
    items.values().map(point).collect()
}

fn line(value: Option<Value<'_>>) -> Parsed<Edges> {
    let shown = || value.as_ref().map_or_else(String::new, display::value);
    let mut vertices = points(value)?;
    vertices.dedup();
    if vertices.len() < 2 {
        return Err(format!(
            "GeoJSON LineString must have at least 2 vertices: {}",
            shown()
        ));
    }
    for (i, pair) in vertices.windows(2).enumerate() {
        if let [a, b] = pair
            && (a.0 + b.0).norm() == 0.0
        {
            return Err(format!(
                "GeoJSON LineString is not valid: Vertices {i} and {} are antipodal {}",
                i + 1,
                shown()
            ));
        }
    }
    Ok(Edges::new(vertices, false))
}

fn ring(value: Value<'_>, side: Side) -> Parsed<Ring> {
    let shown = || display::value(&value);
    let mut vertices = points(Some(value))?;
    if vertices.is_empty() {
        return Err(format!("Loop has no vertices: {}", shown()));
    }
    if vertices.first() != vertices.last() {
        return Err(format!(
            "Loop is not closed, first vertex does not equal last vertex: {}",
            shown()
        ));
    }
    vertices.dedup();
    vertices.pop();
    if vertices.len() < 3 {
        return Err(format!(
            "Loop must have at least 3 different vertices, {} unique vertices were provided: {}",
            vertices.len(),
            shown()
        ));
    }
    Ring::new(vertices, side).map_err(|why| format!("Loop is not valid: {} {why}", shown()))
}

fn polygon(value: Option<Value<'_>>) -> Parsed<Polygon> {
    let Some(Value::Array(rings)) = value else {
        return Err(format!(
            "Polygon coordinates must be an array, instead got type {}",
            type_name(value.as_ref())
        ));
    };
    let shown = || display::value(&Value::Array(rings));
    let mut values = rings.values();
    let Some(first) = values.next() else {
        return Err("Polygon has no loops.".to_owned());
    };
    let mut polygon = Polygon::of_ring(ring(first, Side::Smaller)?);
    for value in values {
        let hole = ring(value, Side::Smaller)?;
        if !polygon.holds(&hole) {
            return Err(format!(
                "Secondary loops not contained by first exterior loop - secondary loops must be \
                 holes: {} first loop: {}",
                display::value(&value),
                display::value(&first)
            ));
        }
        polygon
            .add_hole(hole)
            .map_err(|why| format!("{why}: {}", shown()))?;
    }
    Ok(polygon)
}

/// A polygon whose inside is to the left of its only ring, however large that is.
fn big_polygon(value: Option<Value<'_>>) -> Parsed<Polygon> {
    let Some(Value::Array(rings)) = value else {
        return Err(format!(
            "Coordinates of polygon must be an array, instead got type {}",
            type_name(value.as_ref())
        ));
    };
    let mut values = rings.values();
    match (values.next(), values.next()) {
        (Some(only), None) => ring(only, Side::Left).map(Polygon::of_ring),
        _ => Err(format!(
            "Only one simple loop is allowed in a big polygon, instead provided {} loops: {}",
            rings.count(),
            display::value(&Value::Array(rings))
        )),
    }
}
