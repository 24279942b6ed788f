//! `$geoWithin`, `$within`, `$geoIntersects`, `$near`, `$nearSphere` and `$geoNear`.

use std::sync::Arc;

use frond_bson::Value;

use super::super::parse::Field;
use super::super::{ElemMatch, Expr, Leaf, Op};
use crate::display;
use crate::geo::{GeoQuery, Near, Predicate, is_near};
use frond_error::{Error, Result};

pub(crate) fn parse_within(field: &Field<'_>, argument: Value<'_>) -> Result<Option<Expr>> {
    parse(field, Predicate::Within, &argument)
}

pub(crate) fn parse_intersects(field: &Field<'_>, argument: Value<'_>) -> Result<Option<Expr>> {
    parse(field, Predicate::Intersects, &argument)
}

fn parse(field: &Field<'_>, predicate: Predicate, argument: &Value<'_>) -> Result<Option<Expr>> {
    // The operator must be the only one.
    if let Some((name, value)) = field.operators.iter().nth(1) {
        return Err(Error::bad_value(format!(
            "can't parse extra field: {}",
            display::element(name, &value)
        )));
    }
    let query = GeoQuery::parse(predicate, argument, field.operators).map_err(Error::bad_value)?;
    Ok(Some(field.leaf(Op::Geo(Arc::new(query)))))
}

/// A field whose first operator asks for what is near: its other operators are its parameters.
pub(crate) fn parse_near_field(field: &Field<'_>) -> Result<Option<Expr>> {
    match field.operators.first() {
        Some((name, Value::Document(_) | Value::Array(_))) if is_near(name) => {
            let near = Near::parse(field.operators)?;
            Ok(Some(field.leaf(Op::Near(Arc::new(near)))))
        }
        _ => Ok(None),
    }
}

/// Wherever else the operator stands.
pub(crate) fn parse_near(field: &Field<'_>, _: Value<'_>) -> Result<Option<Expr>> {
    Err(Error::bad_value(format!(
        "near must be first in: {}",
        display::doc(field.operators)
    )))
}

pub(crate) fn parse_max_distance(_: &Field<'_>, _: Value<'_>) -> Result<Option<Expr>> {
    Err(Error::bad_value("unknown operator: $maxDistance"))
}

pub(crate) fn parse_min_distance(_: &Field<'_>, _: Value<'_>) -> Result<Option<Expr>> {
    Err(Error::bad_value("unknown operator: $minDistance"))
}

/// The condition on what is near, at the top of a filter.
pub(crate) fn near_of(expr: &Expr) -> Option<&Leaf> {
    match expr {
        Expr::Leaf(leaf) if matches!(leaf.op, Op::Near(_)) => Some(leaf),
        Expr::And(children) => children.iter().find_map(|child| match child {
            Expr::Leaf(leaf) if matches!(leaf.op, Op::Near(_)) => Some(leaf),
            _ => None,
        }),
        _ => None,
    }
}

/// The number of `$near` conditions of a filter.
fn count(expr: &Expr) -> usize {
    match expr {
        Expr::And(children) | Expr::Or(children) | Expr::Nor(children) => {
            children.iter().map(count).sum()
        }
        Expr::Not(child) => count(child),
        Expr::Leaf(leaf) => match &leaf.op {
            Op::Near(_) => 1,
            Op::ElemMatch(inner) => match &**inner {
                ElemMatch::Document(inner) | ElemMatch::Value(inner) => count(inner),
            },
            _ => 0,
        },
        _ => 0,
    }
}

/// Documents come in the order of distance, so a query can have only one `$near`, and only at its top level.
pub(crate) fn check_query(root: &Expr) -> Result<()> {
    match count(root) {
        0 => Ok(()),
        1 if near_of(root).is_some() => Ok(()),
        1 => Err(Error::bad_value("geoNear must be top-level expr")),
        _ => Err(Error::bad_value("Too many geoNear expressions")),
    }
}

/// Refuses the operators where documents have no order of their own.
pub(crate) fn check_no_near(root: &Expr) -> Result<()> {
    if count(root) == 0 {
        return Ok(());
    }
    Err(Error::location(
        5626500,
        "$geoNear, $near, and $nearSphere are not allowed in this context, as these operators \
         require sorting geospatial data. If you do not need sort, consider using $geoWithin \
         instead. Check out https://dochub.mongodb.org/core/near-sort-operation and \
         https://dochub.mongodb.org/core/nearSphere-sort-operationfor more details.",
    ))
}
