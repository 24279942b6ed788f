//! The keys of a stored value in a geospatial index.

use frond_bson::{Doc, Value};

use super::cells::{self, Levels};
use super::flat::FlatPoint;
use super::grid::Grid;
use super::parse::{Geometry, Parsed};
use crate::display;
use frond_error::{Error, Result};

/// The keys of a value in a `2dsphere` index. Fails with the reason, without the document's name, if it
/// is not a geometry that can be indexed.
pub fn sphere_keys(value: &Value<'_>, levels: Levels) -> Parsed<Vec<i64>> {
    let geometry = Geometry::stored(value)?;
    if geometry.strict {
        return Err("can't index geometry with strict winding order".to_owned());
    }
    if geometry.shape.is_none() {
        return Err(format!(
            "can't project geometry into spherical CRS: {}",
            display::value(value)
        ));
    }
    Ok(cells::index_keys(&geometry, levels))
}

/// `Can't extract geo keys` (16755), with the reason.
#[cold]
pub fn cannot_extract(doc: &Doc, reason: &str) -> Error {
    Error::location(
        16755,
        format!("Can't extract geo keys: {}  {reason}", display::doc(doc)),
    )
}

/// Whether a `2dsphere` index takes a value for missing: null, undefined, and what is empty.
pub fn is_nothing(value: &Value<'_>) -> bool {
    match value {
        Value::Null | Value::Undefined => true,
        Value::Document(doc) | Value::Array(doc) => doc.is_empty(),
        _ => false,
    }
}

/// The keys of a value in a `2d` index: of one pair, or of an array or document of pairs. None for what
/// is neither a document nor an array.
///
/// Fails with 16804 for an element that is not a pair, 13026 for a pair without numbers, 13068 for one
/// number alone, 13027 for a point outside of the grid.
pub fn flat_keys(value: &Value<'_>, grid: &Grid) -> Result<Vec<u64>> {
    let (Value::Document(doc) | Value::Array(doc)) = value else {
        return Ok(Vec::new());
    };
    match doc.first() {
        None => Ok(Vec::new()),
        Some((_, first)) if first.is_number() => Ok(vec![pair_key(value, doc, grid)?]),
        Some(_) => {
            let mut keys = Vec::new();
            for item in doc.values() {
                let (Value::Document(pair) | Value::Array(pair)) = item else {
                    return Err(Error::location(
                        16804,
                        "location object expected, location array not in correct format",
                    ));
                };
                if !pair.is_empty() {
                    keys.push(pair_key(&item, pair, grid)?);
                }
            }
            Ok(keys)
        }
    }
}

fn pair_key(value: &Value<'_>, pair: &Doc, grid: &Grid) -> Result<u64> {
    let mut values = pair.values();
    let (Some(x), y) = (values.next(), values.next()) else {
        return Ok(0);
    };
    let Some(y) = y else {
        return Err(Error::location(13068, "geo field only has 1 element"));
    };
    let (Some(x), Some(y)) = (number(&x), number(&y)) else {
        return Err(Error::location(
            13026,
            format!(
                "geo values must be 'legacy coordinate pairs' for 2d indexes :: caused by :: {}",
                display::value(value)
            ),
        ));
    };
    let point = FlatPoint { x, y };
    if !grid.contains(&point) {
        return Err(Error::location(
            13027,
            format!(
                "point not in interval of [ {}, {} ] :: caused by :: {}",
                grid.min,
                grid.max,
                display::value(value)
            ),
        ));
    }
    Ok(grid.key(&point))
}

fn number(value: &Value<'_>) -> Option<f64> {
    value.as_f64().filter(|_| value.is_number())
}
