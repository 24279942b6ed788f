//! `$near`, `$nearSphere` and `$geoNear`: a point, and how far from it.

use frond_bson::{Doc, Value};
use s2::point::Point;
use std::ops::ControlFlow;

use super::flat::FlatPoint;
use super::parse::{Geometry, Parsed, flat_point};
use super::sphere::{EARTH_RADIUS_METRES, from_lng_lat, is_lng_lat};
use crate::display;
use crate::paths::{LeafArrays, Path, walk};
use frond_error::{Error, Result};

/// A point, and the minimum and maximum distance of the results, the nearest first.
#[derive(Clone, Debug)]
pub struct Near {
    /// The numbers as they were written.
    pub(crate) at: FlatPoint,
    /// The point on the sphere, if distances are those on the sphere.
    pub(crate) center: Option<Point>,
    /// Whether the point was GeoJSON: then distances are in metres, and a `2d` index does not serve.
    geojson: bool,
    /// The least distance, in the unit of [`Near::distance`].
    min: f64,
    max: f64,
}

/// The nearest point at a path.
#[derive(Clone, Copy, Debug)]
pub struct Nearest<'a> {
    /// The distance: metres for a GeoJSON point, radians for a legacy pair on the sphere, and the
    /// numbers' own unit in the plane.
    pub distance: f64,
    /// The geometry that is nearest, as the document has it.
    pub location: Value<'a>,
    /// Whether the distance is within the bounds.
    pub is_wanted: bool,
}

/// The names of the `$near` operators.
pub(crate) fn is_near(name: &str) -> bool {
    matches!(name, "$near" | "$nearSphere" | "$geoNear")
}

impl Near {
    /// A query for what is near a point, which is a legacy pair or GeoJSON. Fails with 17444 if a pair
    /// is not a longitude and latitude and the distances are those on the sphere, with 2 if it is no
    /// point.
    pub fn new(point: &Value<'_>, on_sphere: bool, min: f64, max: f64) -> Result<Near> {
        let (at, geojson) = query_point(point).map_err(Error::bad_value)?;
        Near::at(at, geojson, on_sphere, min, max)
    }

    fn at(at: FlatPoint, geojson: bool, on_sphere: bool, min: f64, max: f64) -> Result<Near> {
        if on_sphere && !is_lng_lat(at.x, at.y) {
            return Err(Error::location(
                17444,
                "Legacy point is out of bounds for spherical query",
            ));
        }
        Ok(Near {
            at,
            center: (on_sphere || geojson).then(|| from_lng_lat(at.x, at.y)),
            geojson,
            min,
            max,
        })
    }

    /// Reads the operators of a field, the first of which is `$near`, `$nearSphere` or `$geoNear`.
    pub(crate) fn parse(operators: &Doc) -> Result<Near> {
        match parse_legacy(operators)? {
            Some(near) => Ok(near),
            None => parse_new(operators),
        }
    }

    /// Whether distances are those on the sphere.
    pub fn is_spherical(&self) -> bool {
        self.center.is_some()
    }

    /// Whether an index of kind `2d` serves.
    pub fn fits_2d(&self) -> bool {
        !self.geojson
    }

    /// The least and the greatest distance wanted, in the unit of [`Near::unit`].
    pub fn range(&self) -> (f64, f64) {
        let unit = self.unit();
        let farthest = match self.center {
            Some(_) => std::f64::consts::PI,
            None => f64::INFINITY,
        };
        (self.min / unit, (self.max / unit).min(farthest))
    }

    /// Length of one radian (on the sphere) or one unit (in the plane) in the distances of results.
    pub fn unit(&self) -> f64 {
        if self.geojson {
            EARTH_RADIUS_METRES
        } else {
            1.0
        }
    }

    /// The distance of the document's geometry at `path`; of several the nearest. `None` if there is none.
    pub fn nearest<'a>(&self, doc: &'a Doc, path: &Path) -> Option<Nearest<'a>> {
        let mut best: Option<Nearest<'a>> = None;
        let mut look = |value: Value<'a>| {
            if let Some(found) = self.measured(value)
                && best.is_none_or(|best| found.distance < best.distance)
            {
                best = Some(found);
            }
        };
        let _ = walk(doc, path, LeafArrays::Whole, &mut |value, _| {
            match value {
                Some(Value::Array(items))
                    if items.first().is_some_and(|(_, first)| !first.is_number()) =>
                {
                    items.values().for_each(&mut look);
                }
                Some(value) => look(value),
                None => {}
            }
            ControlFlow::<()>::Continue(())
        });
        best
    }

    fn measured<'a>(&self, location: Value<'a>) -> Option<Nearest<'a>> {
        if !matches!(location, Value::Document(_) | Value::Array(_)) {
            return None;
        }
        let geometry = Geometry::stored(&location).ok();
        let geometry = geometry.filter(|found| !found.strict)?;
        let (distance, is_wanted) = match &self.center {
            Some(center) => {
                let distance = geometry.shape?.distance(center) * self.unit();
                (distance, (self.min..=self.max).contains(&distance))
            }
            None => {
                let at = geometry.flat?;
                let wanted = self.at.compare_distance(&at, self.min).is_ge()
                    && self.at.compare_distance(&at, self.max).is_le();
                (at.distance(&self.at), wanted)
            }
        };
        Some(Nearest {
            distance,
            location,
            is_wanted,
        })
    }
}

/// A legacy pair or a GeoJSON point, and whether it is the latter.
fn query_point(value: &Value<'_>) -> Parsed<(FlatPoint, bool)> {
    let (Value::Document(doc) | Value::Array(doc)) = value else {
        return Err(format!(
            "Point must be an array or object, instead got type {}",
            value.type_name()
        ));
    };
    let is_pair =
        matches!(value, Value::Array(_)) || doc.first().is_some_and(|(_, first)| first.is_number());
    if is_pair {
        return Ok((flat_point(Some(*value), false)?, false));
    }
    let at = flat_point(doc.get("coordinates"), true)?;
    super::parse::on_sphere(&at)?;
    Ok((at, true))
}

fn number(value: &Value<'_>, name: &str, codes: (i32, i32)) -> Result<f64> {
    let Some(number) = value.as_f64().filter(|_| value.is_number()) else {
        return Err(Error::location(codes.0, format!("{name} must be a number")));
    };
    if number >= 0.0 {
        Ok(number)
    } else {
        Err(Error::location(
            codes.1,
            format!("{name} must be non-negative"),
        ))
    }
}

/// `{$near: <point>, $minDistance: .., $maxDistance: ..}`, or with the greatest distance as a third
/// number. `None` if it is not written in this way.
fn parse_legacy(operators: &Doc) -> Result<Option<Near>> {
    let (mut point, mut on_sphere) = (None, false);
    let (mut min, mut max) = (0.0, f64::MAX);
    for (name, value) in operators.iter() {
        match name {
            _ if is_near(name) => {
                let (Value::Document(inner) | Value::Array(inner)) = value else {
                    return Ok(None);
                };
                on_sphere = name == "$nearSphere";
                point = query_point(&value).ok();
                if point.is_none()
                    && let Some((at, farthest)) = three_numbers(inner)
                {
                    if farthest.is_nan() || farthest < 0.0 {
                        return Err(Error::location(18522, "max distance must be non-negative"));
                    }
                    (point, max) = (Some((at, false)), farthest);
                }
            }
            "$minDistance" => min = number(&value, name, (16893, 16894))?,
            "$maxDistance" => max = number(&value, name, (16895, 16896))?,
            "$uniqueDocs" => {}
            _ => {
                return Err(Error::location(
                    34413,
                    format!("invalid argument in geo near query: {name}"),
                ));
            }
        }
    }
    point
        .map(|(at, geojson)| Near::at(at, geojson, on_sphere, min, max))
        .transpose()
}

fn three_numbers(doc: &Doc) -> Option<(FlatPoint, f64)> {
    let mut values = doc
        .values()
        .map(|value| value.as_f64().filter(|_| value.is_number()));
    let (x, y, farthest) = (values.next()??, values.next()??, values.next()??);
    (values.next().is_none() && x.is_finite() && y.is_finite())
        .then_some((FlatPoint { x, y }, farthest))
}

/// `{$near: {$geometry: <point>, $minDistance: .., $maxDistance: ..}}`.
fn parse_new(operators: &Doc) -> Result<Near> {
    let mut all = operators.iter();
    let Some((name, argument)) = all.next() else {
        return Err(Error::bad_value("empty geo near query object"));
    };
    if let Some((extra, value)) = all.next() {
        return Err(Error::bad_value(format!(
            "geo near accepts just one argument when querying for a GeoJSON point. Extra field \
             found: {}",
            display::element(extra, &value)
        )));
    }
    let (Value::Document(argument) | Value::Array(argument)) = argument else {
        return Err(Error::bad_value("geo near query argument is not an object"));
    };
    let mut point = None;
    let (mut min, mut max) = (0.0, f64::MAX);
    for (field, value) in argument.iter() {
        match field {
            "$geometry" => {
                let (Value::Document(shown) | Value::Array(shown)) = value else {
                    continue;
                };
                let shown = || display::doc(shown);
                let (at, geojson) = query_point(&value).map_err(|why| {
                    Error::bad_value(format!(
                        "invalid point in geo near query $geometry argument: {}  {why}",
                        shown()
                    ))
                })?;
                if !geojson {
                    return Err(Error::location(
                        16681,
                        format!("$near requires geojson point, given {}", shown()),
                    ));
                }
                point = Some(at);
            }
            "$minDistance" => min = number(&value, field, (16897, 16898))?,
            "$maxDistance" => max = number(&value, field, (16899, 16900))?,
            _ => {
                return Err(Error::bad_value(format!(
                    "invalid argument in geo near query: {field}"
                )));
            }
        }
    }
    let Some(at) = point else {
        return Err(Error::bad_value("$geometry is required for geo near query"));
    };
    Near::at(at, true, name == "$nearSphere", min, max)
}
