//! `$geoNear`: documents near a point, the nearest first, with their distances.
//!
//! The collection returns them in order, see `Pipeline::split_front`; the stage adds the distances.

use super::Stage;
use super::unwind::with_value;
use crate::aggregate::ParseContext;
use crate::aggregate::exec::{DocSource, Fault, Source};
use crate::display;
use crate::geo::Near;
use crate::matcher::Filter;
use crate::meta::Metadata;
use crate::paths::{Path, check_field_path};
use frond_bson::{ArrayBuf, Doc, DocBuf, Value, doc};
use frond_error::{Error, Result};
use std::sync::Arc;

/// `{$geoNear: {near: .., distanceField: .., …}}`.
#[derive(Clone, Debug)]
pub(crate) struct GeoNear {
    near: Near,
    /// The equivalent query operator, for `explain`.
    operator: DocBuf,
    distance_field: Vec<Box<str>>,
    locations_field: Option<Vec<Box<str>>>,
    multiplier: f64,
    query: Option<(DocBuf, Filter)>,
    /// The path of the geometries. Without it the collection's only geospatial index decides.
    pub(crate) key: Option<Path>,
}

fn field(name: &str) -> Result<Vec<Box<str>>> {
    check_field_path(name)?;
    Ok(name.split('.').map(Into::into).collect())
}

fn number(name: &str, value: &Value<'_>) -> Result<f64> {
    let Some(number) = value.as_f64().filter(|_| value.is_number()) else {
        return Err(Error::type_mismatch(format!("{name} must be a number")));
    };
    if number >= 0.0 {
        Ok(number)
    } else {
        Err(Error::bad_value(format!("{name} must be nonnegative")))
    }
}

/// Options of older versions, with the code and the message that refuse them.
const REFUSED: [(&str, i32, &str); 4] = [
    (
        "collation",
        40227,
        "$geoNear does not accept the 'collation' parameter. Instead, specify a collation for \
             the entire aggregation command.",
    ),
    (
        "limit",
        50858,
        "$geoNear no longer supports the 'limit' parameter. Use a $limit stage instead.",
    ),
    (
        "num",
        50857,
        "$geoNear no longer supports the 'num' parameter. Use a $limit stage instead.",
    ),
    (
        "start",
        50856,
        "$geoNear no longer supports the 'start' argument.",
    ),
];

/// The options besides the point and the field of the distance.
struct Options {
    min: Option<f64>,
    max: Option<f64>,
    multiplier: f64,
    on_sphere: bool,
    query: Option<(DocBuf, Filter)>,
    locations_field: Option<Vec<Box<str>>>,
    key: Option<Path>,
}

impl Options {
    fn read(options: &Doc, context: &ParseContext<'_>) -> Result<Options> {
        let mut read = Options {
            min: None,
            max: None,
            multiplier: 1.0,
            on_sphere: false,
            query: None,
            locations_field: None,
            key: None,
        };
        for (name, value) in options.iter() {
            read.option(name, value, context)?;
        }
        Ok(read)
    }

    fn option(&mut self, name: &str, value: Value<'_>, context: &ParseContext<'_>) -> Result<()> {
        match (name, value) {
            ("near" | "distanceField" | "uniqueDocs", _) => {}
            ("minDistance", value) => self.min = Some(number(name, &value)?),
            ("maxDistance", value) => self.max = Some(number(name, &value)?),
            ("distanceMultiplier", value) => self.multiplier = number(name, &value)?,
            ("spherical", value) => self.on_sphere = value.truthy(),
            ("query", Value::Document(filter)) => {
                let parsed = Filter::parse_in_pipeline(filter, &context.environment)?;
                self.query = Some((filter.to_owned(), parsed));
            }
            ("query", _) => return Err(Error::type_mismatch("query must be an object")),
            ("includeLocs", Value::String(name)) => self.locations_field = Some(field(name)?),
            ("includeLocs", _) => {
                return Err(Error::location(
                    16607,
                    "$geoNear requires that 'includeLocs' option is a String",
                ));
            }
            ("key", Value::String("")) => {
                return Err(Error::bad_value(
                    "$geoNear parameter 'key' cannot be the empty string",
                ));
            }
            ("key", Value::String(path)) => {
                check_field_path(path)?;
                self.key = Some(Path::new(path));
            }
            ("key", other) => {
                return Err(Error::type_mismatch(format!(
                    "$geoNear parameter 'key' must be of type string but found type: {}",
                    other.type_name()
                )));
            }
            _ => {
                return Err(Error::bad_value(format!(
                    "Unknown argument to $geoNear: {name}"
                )));
            }
        }
        Ok(())
    }
}

pub(super) fn parse(
    argument: Value<'_>,
    context: &ParseContext<'_>,
    out: &mut Vec<Stage>,
) -> Result<()> {
    let Value::Document(spec) = argument else {
        return Err(Error::location(
            10065,
            "invalid parameter: expected an object ($geoNear)",
        ));
    };
    for (name, code, message) in REFUSED {
        if spec.contains_key(name) {
            return Err(Error::location(code, message));
        }
    }
    let Some(point) = spec.get("near") else {
        return Err(Error::location(
            5860400,
            "$geoNear requires a 'near' argument",
        ));
    };
    let Some(Value::String(distance_field)) = spec.get("distanceField") else {
        return Err(Error::location(
            16606,
            "$geoNear requires a 'distanceField' option as a String",
        ));
    };
    let options = Options::read(spec, context)?;
    let point = variable(&point, context).unwrap_or(point);
    if !matches!(point, Value::Document(_) | Value::Array(_)) {
        return Err(Error::location(
            5860401,
            format!(
                "$geoNear requires constant expression for near argument, which has to be a point: {}",
                display::value(&point)
            ),
        ));
    }
    let near = Near::new(
        &point,
        options.on_sphere,
        options.min.unwrap_or(0.0),
        options.max.unwrap_or(f64::MAX),
    )?;
    let mut operator = DocBuf::new();
    operator.push(
        if options.on_sphere {
            "$nearSphere"
        } else {
            "$near"
        },
        point,
    );
    for (name, limit) in [("$minDistance", options.min), ("$maxDistance", options.max)] {
        if let Some(limit) = limit {
            operator.push(name, limit);
        }
    }
    out.push(Stage::GeoNear(Arc::new(GeoNear {
        near,
        operator,
        distance_field: field(distance_field)?,
        locations_field: options.locations_field,
        multiplier: options.multiplier,
        query: options.query,
        key: options.key,
    })));
    Ok(())
}

/// The value of a variable of `let`, as the point can be one.
fn variable<'a>(point: &Value<'_>, context: &ParseContext<'a>) -> Option<Value<'a>> {
    let name = point.as_str()?.strip_prefix("$$")?;
    context.environment.variables?.get(name)
}

impl GeoNear {
    /// The query that finds the documents, and how it is written. `None` while the path is not known.
    pub(crate) fn front(&self) -> Option<(Filter, DocBuf)> {
        let path = self.key.as_ref()?.as_str();
        let near = Filter::of_near(path, self.near.clone());
        let spec = doc! {path: &self.operator};
        Some(match &self.query {
            None => (near, spec),
            Some((written, filter)) => {
                let both: ArrayBuf = [&spec, written].into_iter().collect();
                (Filter::all_of([&near, filter]), doc! {"$and": &both})
            }
        })
    }

    fn apply(&self, doc: DocBuf) -> DocBuf {
        let nearest = self
            .key
            .as_ref()
            .and_then(|path| self.near.nearest(&doc, path));
        let Some(nearest) = nearest else {
            return doc;
        };
        let distance = Value::Double(nearest.distance * self.multiplier);
        let measured = with_value(&doc, &self.distance_field, Some(distance));
        match &self.locations_field {
            Some(field) => with_value(&measured, field, Some(nearest.location)),
            None => measured,
        }
    }
}

pub(super) fn open<E: Fault>(stage: &Arc<GeoNear>, input: Source<E>) -> Source<E> {
    Box::new(Measuring {
        stage: stage.clone(),
        input,
    })
}

struct Measuring<E> {
    stage: Arc<GeoNear>,
    input: Source<E>,
}

impl<E: Fault> DocSource<E> for Measuring<E> {
    fn next(&mut self) -> Result<Option<DocBuf>, E> {
        let doc = self.input.next()?;
        Ok(doc.map(|doc| self.stage.apply(doc)))
    }

    fn meta(&self) -> Option<&Metadata> {
        self.input.meta()
    }
}
