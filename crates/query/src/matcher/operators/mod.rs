//! The query operators: one table, and a file for each family.
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

use frond_bson::Value;

use super::Expr;
use super::parse::{Context, Field};
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

/// Parses one operator of a field.
pub(crate) fn parse_field_operator(
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
pub(crate) fn parse_document_operator(
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
