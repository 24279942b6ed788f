//! The areas of `$geoWithin` and `$geoIntersects`.

use frond_bson::{Doc, DocBuf, Value};
use s2::point::Point;

use super::flat::{FlatBox, FlatPoint, FlatPolygon};
use super::parse::{Geometry, Parsed, flat_point, on_sphere};
use super::shape::Shape;
use super::sphere::TOLERANCE;
use crate::display;

/// The predicate of a geospatial query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Predicate {
    /// It lies in the area, whose border counts.
    Within,
    /// It has a point in common with the area.
    Intersects,
}

#[derive(Clone, Debug)]
pub(crate) enum Region {
    /// `$geometry`.
    Shape(Shape),
    /// `$centerSphere`: everything within an angle of a point.
    Cap {
        center: Point,
        at: FlatPoint,
        radius: f64,
    },
    /// `$box`.
    Box(FlatBox),
    /// `$center`.
    Circle { center: FlatPoint, radius: f64 },
    /// `$polygon`.
    Polygon(FlatPolygon),
}

/// A `$geoWithin` or a `$geoIntersects`.
#[derive(Clone, Debug)]
pub struct GeoQuery {
    predicate: Predicate,
    pub(crate) region: Region,
    /// The argument as it was written.
    argument: DocBuf,
}

impl GeoQuery {
    /// Reads the operator's argument. `operators` is the document around it, for messages.
    pub(crate) fn parse(
        predicate: Predicate,
        argument: &Value<'_>,
        operators: &Doc,
    ) -> Parsed<GeoQuery> {
        let Value::Document(argument) = argument else {
            return Err("geometry must be an object".to_owned());
        };
        let mut region = None;
        for (name, value) in argument.iter() {
            // Long without effect: results never repeat.
            if name != "$uniqueDocs" {
                region = Some(parse_region(name, &value, predicate)?);
            }
        }
        let Some((region, strict)) = region else {
            return Err("geo query doesn't have any geometry".to_owned());
        };
        let shown = || display::doc(operators);
        if predicate == Predicate::Within
            && matches!(&region, Region::Shape(shape) if shape.polygons.is_empty())
        {
            return Err(format!(
                "$within not supported with provided geometry: {}",
                shown()
            ));
        }
        if predicate == Predicate::Intersects && !region.is_spherical() && !strict {
            return Err(format!(
                "$geoIntersect not supported with provided geometry: {}",
                shown()
            ));
        }
        Ok(GeoQuery {
            predicate,
            region,
            argument: (*argument).to_owned(),
        })
    }

    /// Whether the query is on the sphere, not in the plane.
    pub fn is_spherical(&self) -> bool {
        self.region.is_spherical()
    }

    pub fn predicate(&self) -> Predicate {
        self.predicate
    }

    /// Whether all values that satisfy this query satisfy `outer`. Only where no rounding can make a difference: for the
    /// same area, and for a box in a box.
    pub fn lies_in(&self, outer: &GeoQuery) -> bool {
        if self.predicate != outer.predicate {
            return false;
        }
        match (&self.region, &outer.region) {
            (Region::Box(inner), Region::Box(area)) => {
                area.contains(&inner.low) && area.contains(&inner.high)
            }
            _ => self.argument == outer.argument,
        }
    }

    /// Whether a stored value satisfies the query. A value other than a geometry does not.
    pub(crate) fn matches(&self, value: &Value<'_>) -> bool {
        if !matches!(value, Value::Document(_) | Value::Array(_)) {
            return false;
        }
        let Ok(geometry) = Geometry::stored(value) else {
            return false;
        };
        !geometry.strict && self.matches_geometry(&geometry)
    }

    fn matches_geometry(&self, geometry: &Geometry) -> bool {
        let flat = |inside: &dyn Fn(&FlatPoint) -> bool| geometry.flat.as_ref().is_some_and(inside);
        let shape = geometry.shape.as_ref();
        match (&self.region, self.predicate) {
            (Region::Shape(area), Predicate::Within) => {
                shape.is_some_and(|shape| area.covers(shape))
            }
            (Region::Shape(area), Predicate::Intersects) => {
                shape.is_some_and(|shape| area.meets(shape))
            }
            (Region::Cap { center, radius, .. }, Predicate::Within) => {
                shape.is_some_and(|shape| shape.reach(center) <= radius + TOLERANCE)
            }
            (Region::Cap { center, radius, .. }, Predicate::Intersects) => {
                shape.is_some_and(|shape| shape.distance(center) <= radius + TOLERANCE)
            }
            (Region::Box(area), _) => flat(&|p| area.contains(p)),
            (Region::Circle { center, radius }, _) => {
                flat(&|p| center.compare_distance(p, *radius).is_le())
            }
            (Region::Polygon(area), _) => flat(&|p| area.contains(p)),
        }
    }
}

impl Region {
    fn is_spherical(&self) -> bool {
        matches!(self, Region::Shape(_) | Region::Cap { .. })
    }
}

/// Reads one area, and whether it is a polygon with a strict winding order.
fn parse_region(name: &str, value: &Value<'_>, predicate: Predicate) -> Parsed<(Region, bool)> {
    let (Value::Document(doc) | Value::Array(doc)) = value else {
        return Err(unknown(name, value));
    };
    let mut values = doc.values();
    let region = match name {
        "$geometry" => {
            let geometry = Geometry::queried(value)?;
            let Some(shape) = geometry.shape else {
                return Err(match predicate {
                    Predicate::Within => "$within not supported with provided geometry: ",
                    Predicate::Intersects => "$geoIntersect not supported with provided geometry: ",
                }
                .to_owned()
                    + &display::element(name, value));
            };
            return Ok((Region::Shape(shape), geometry.strict));
        }
        "$box" => {
            let (a, b) = (
                flat_point(values.next(), false)?,
                flat_point(values.next(), false)?,
            );
            Region::Box(FlatBox::new(a, b))
        }
        "$polygon" => {
            let corners: Parsed<Vec<FlatPoint>> =
                values.map(|value| flat_point(Some(value), false)).collect();
            let polygon = FlatPolygon::new(corners?);
            Region::Polygon(polygon.ok_or("Polygon must have at least 3 points")?)
        }
        "$center" | "$centerSphere" => {
            let at = flat_point(values.next(), false)?;
            let center = (name == "$centerSphere")
                .then(|| on_sphere(&at))
                .transpose()?;
            let radius = values
                .next()
                .filter(Value::is_number)
                .and_then(|value| value.as_f64())
                .filter(|radius| *radius >= 0.0)
                .ok_or("radius must be a non-negative number")?;
            if values.next().is_some() {
                return Err("Only 2 fields allowed for circular region".to_owned());
            }
            match center {
                Some(center) => Region::Cap { center, at, radius },
                None => Region::Circle { center: at, radius },
            }
        }
        _ => return Err(unknown(name, value)),
    };
    Ok((region, false))
}

fn unknown(name: &str, value: &Value<'_>) -> String {
    format!("unknown geo specifier: {}", display::element(name, value))
}
