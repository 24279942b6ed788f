//! From a filter document to a tree of conditions, by the table of the query operators. Each family of operators has a file.
//!
//! To add an operator, write its parser in a file here and add its line to a table below.

pub(crate) mod array;
pub(crate) mod bits;
pub(crate) mod comparison;
pub(crate) mod element;
pub(crate) mod expr;
pub(crate) mod geo;
pub(crate) mod integer;
pub(crate) mod javascript;
pub(crate) mod logical;
pub(crate) mod membership;
pub(crate) mod modulo;
pub(crate) mod regex;
pub(crate) mod sample_rate;
pub(crate) mod schema;
pub(crate) mod text;
pub(crate) mod type_set;

use frond_bson::{Doc, Value};

use super::parse::{Context, Field, all_of, is_db_ref_field, operators_of};
use super::{Expr, Leaf, Relation};
use crate::paths::Path;
use frond_error::{Error, Result};

/// Parses the argument of an operator on a field. `None` if the operator adds no condition.
type FieldParser = fn(&Field<'_>, Value<'_>) -> Result<Option<Expr>>;

/// Parses the argument of an operator in the place of a field.
type DocumentParser = fn(Context<'_>, Value<'_>) -> Result<Option<Expr>>;

/// Operators inside a field's document: `{field: {$op: argument}}`.
const FIELD_OPERATORS: &[(&str, FieldParser)] = &[
    ("$all", array::parse_all),
    ("$bitsAllClear", bits::parse_all_clear),
    ("$bitsAllSet", bits::parse_all_set),
    ("$bitsAnyClear", bits::parse_any_clear),
    ("$bitsAnySet", bits::parse_any_set),
    ("$elemMatch", array::parse_elem_match),
    ("$eq", comparison::parse_eq),
    ("$exists", element::parse_exists),
    ("$geoIntersects", geo::parse_intersects),
    ("$geoNear", geo::parse_near),
    ("$geoWithin", geo::parse_within),
    ("$gt", comparison::parse_gt),
    ("$gte", comparison::parse_gte),
    ("$in", membership::parse_in),
    ("$lt", comparison::parse_lt),
    ("$lte", comparison::parse_lte),
    ("$maxDistance", geo::parse_max_distance),
    ("$minDistance", geo::parse_min_distance),
    ("$mod", modulo::parse),
    ("$ne", comparison::parse_ne),
    ("$near", geo::parse_near),
    ("$nearSphere", geo::parse_near),
    ("$nin", membership::parse_nin),
    ("$not", logical::parse_not),
    ("$options", regex::parse_options),
    ("$regex", regex::parse_regex),
    ("$size", array::parse_size),
    ("$type", type_set::parse),
    ("$within", geo::parse_within),
];

/// Operators in the place of a field: `{$op: argument}`.
const DOCUMENT_OPERATORS: &[(&str, DocumentParser)] = &[
    ("$alwaysFalse", logical::parse_always_false),
    ("$alwaysTrue", logical::parse_always_true),
    ("$and", logical::parse_and),
    ("$comment", logical::parse_comment),
    ("$expr", expr::parse),
    ("$jsonSchema", schema::parse),
    ("$nor", logical::parse_nor),
    ("$or", logical::parse_or),
    ("$sampleRate", sample_rate::parse),
    ("$text", text::parse),
    ("$where", javascript::parse_where),
];

fn lookup<P: Copy>(table: &[(&str, P)], name: &str) -> Option<P> {
    table
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, parser)| *parser)
}

/// Whether `name` is an operator that can stand on a field.
pub(crate) fn is_field_operator(name: &str) -> bool {
    lookup(FIELD_OPERATORS, name).is_some()
}

/// Whether `name` is an operator that can stand in the place of a field.
pub(crate) fn is_document_operator(name: &str) -> bool {
    lookup(DOCUMENT_OPERATORS, name).is_some()
}

/// Parses a document of conditions on fields and of logical operators.
pub(crate) fn parse_document(filter: &Doc, context: Context<'_>) -> Result<Expr> {
    let context = context.deeper()?;
    let mut conditions = Vec::with_capacity(filter.count());
    for (name, value) in filter.iter() {
        if name.starts_with('$') {
            if is_db_ref_field(name) {
                conditions.push(implicit(Path::new(name), value, context)?);
            } else {
                conditions.extend(parse_document_operator(name, value, context)?);
            }
            continue;
        }
        let path = Path::new(name);
        match operators_of(&value) {
            Some(operators) => {
                let field = Field {
                    path: &path,
                    operators,
                    context,
                };
                parse_field(&field, &mut conditions)?;
            }
            None => conditions.push(implicit(path, value, context)?),
        }
    }
    Ok(all_of(conditions))
}

/// Parses the operators of one field into conditions that must all hold.
pub(crate) fn parse_field(field: &Field<'_>, conditions: &mut Vec<Expr>) -> Result<()> {
    if let Some(near) = geo::parse_near_field(field)? {
        conditions.push(near);
        return Ok(());
    }
    for (name, value) in field.operators.iter() {
        conditions.extend(parse_field_operator(name, value, field)?);
    }
    Ok(())
}

/// `field: value` without an operator: equality, or a match of a regular expression.
fn implicit(path: Path, value: Value<'_>, context: Context<'_>) -> Result<Expr> {
    let op = match value {
        value if value.is_regex() => regex::compile(&value)?,
        value => comparison::compare(Relation::Eq, value, context.collator)?,
    };
    Ok(Expr::Leaf(Leaf { path, op }))
}

/// Parses one operator of a field.
fn parse_field_operator(
    name: &str,
    argument: Value<'_>,
    field: &Field<'_>,
) -> Result<Option<Expr>> {
    if let Some(parser) = lookup(FIELD_OPERATORS, name) {
        return parser(field, argument);
    }
    if name == "$where" {
        return Err(Error::bad_value("$where cannot be applied to a field"));
    }
    Err(Error::bad_value(format!("unknown operator: {name}")))
}

/// Parses one operator in the place of a field.
fn parse_document_operator(
    name: &str,
    argument: Value<'_>,
    context: Context<'_>,
) -> Result<Option<Expr>> {
    if let Some(parser) = lookup(DOCUMENT_OPERATORS, name) {
        return parser(context, argument);
    }
    Err(Error::bad_value(format!(
        "unknown top level operator: {name}. If you have a field name that starts with a '$' \
         symbol, consider using $getField or $setField."
    )))
}

/// The names of the query operators.
pub(crate) fn names() -> Vec<&'static str> {
    let field = FIELD_OPERATORS.iter().map(|(name, _)| *name);
    field
        .chain(DOCUMENT_OPERATORS.iter().map(|(name, _)| *name))
        .collect()
}
