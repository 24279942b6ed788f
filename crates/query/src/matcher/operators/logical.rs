//! `$and`, `$or`, `$nor`, `$not`, `$comment`, `$alwaysTrue` and `$alwaysFalse`.

use frond_bson::Value;

use super::super::Expr;
use super::super::parse::{self, Context, Field};
use super::{parse_document, parse_field, regex};
use frond_error::{Error, Result};

fn clauses(name: &str, context: Context<'_>, argument: Value<'_>) -> Result<Vec<Expr>> {
    let Value::Array(items) = argument else {
        return Err(Error::bad_value(format!("{name} must be an array")));
    };
    if items.is_empty() {
        return Err(Error::bad_value("$and/$or/$nor must be a nonempty array"));
    }
    items
        .values()
        .map(|item| match item {
            Value::Document(clause) => parse_document(clause, context),
            _ => Err(Error::bad_value(
                "$or/$and/$nor entries need to be full objects",
            )),
        })
        .collect()
}

pub(crate) fn parse_and(context: Context<'_>, argument: Value<'_>) -> Result<Option<Expr>> {
    Ok(Some(parse::all_of(clauses("$and", context, argument)?)))
}

pub(crate) fn parse_or(context: Context<'_>, argument: Value<'_>) -> Result<Option<Expr>> {
    let mut clauses = clauses("$or", context, argument)?;
    Ok(Some(if clauses.len() == 1 {
        clauses.remove(0)
    } else {
        Expr::Or(clauses)
    }))
}

pub(crate) fn parse_nor(context: Context<'_>, argument: Value<'_>) -> Result<Option<Expr>> {
    Ok(Some(Expr::Nor(clauses("$nor", context, argument)?)))
}

/// `{field: {$not: {…operators}}}` or `{field: {$not: /regex/}}`.
pub(crate) fn parse_not(field: &Field<'_>, argument: Value<'_>) -> Result<Option<Expr>> {
    match argument {
        argument if argument.is_regex() => Ok(Some(field.not(regex::compile(&argument)?))),
        Value::Document(operators) => {
            if operators.is_empty() {
                return Err(Error::bad_value("$not cannot be empty"));
            }
            let context = field.context.deeper()?;
            let mut conditions = Vec::new();
            parse_field(
                &Field {
                    operators,
                    context,
                    ..*field
                },
                &mut conditions,
            )?;
            Ok(Some(Expr::Not(Box::new(parse::all_of(conditions)))))
        }
        _ => Err(Error::bad_value("$not needs a regex or a document")),
    }
}

/// `$comment` has no effect on matching.
pub(crate) fn parse_comment(_: Context<'_>, _: Value<'_>) -> Result<Option<Expr>> {
    Ok(None)
}

pub(crate) fn parse_always_true(_: Context<'_>, argument: Value<'_>) -> Result<Option<Expr>> {
    must_be_one("$alwaysTrue", argument)?;
    Ok(None)
}

pub(crate) fn parse_always_false(_: Context<'_>, argument: Value<'_>) -> Result<Option<Expr>> {
    must_be_one("$alwaysFalse", argument)?;
    Ok(Some(Expr::False))
}

fn must_be_one(name: &str, argument: Value<'_>) -> Result<()> {
    match argument.as_i64_lossless() {
        Some(1) => Ok(()),
        _ => Err(Error::failed_to_parse(format!(
            "{name} must be an integer value of 1"
        ))),
    }
}
