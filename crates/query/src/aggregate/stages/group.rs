//! `$group`, and the stages that are short for it: `$count`, `$sortByCount`.

use super::Stage;
use super::sort::Sort;
use crate::accumulators::{self, Plan};
use crate::aggregate::ParseContext;
pub(crate) use crate::aggregate::groups::Group;
use crate::expr::Parser;
use frond_bson::{Doc, Value, doc};
use frond_error::{Error, Result};
use std::sync::Arc;

pub(super) fn parse(
    argument: Value<'_>,
    context: &ParseContext<'_>,
    out: &mut Vec<Stage>,
) -> Result<()> {
    let Value::Document(spec) = argument else {
        return Err(Error::location(
            15947,
            "a group's fields must be specified in an object",
        ));
    };
    out.push(Stage::Group(Arc::new(parse_group(spec, context)?)));
    Ok(())
}

/// Reads the `_id` and the fields of a group.
pub(super) fn parse_group(spec: &Doc, context: &ParseContext<'_>) -> Result<Group> {
    let mut parser = Parser::new(&context.environment);
    let mut id = None;
    let mut fields: Vec<(Box<str>, Plan)> = Vec::new();
    let mut counts = true;
    for (name, value) in spec.iter() {
        if name == "_id" {
            if id.is_some() {
                return Err(Error::location(
                    15948,
                    "a group's _id may only be specified once",
                ));
            }
            id = Some(parser.parse(value)?);
            continue;
        }
        if fields.iter().any(|(other, _)| **other == *name) {
            return Err(Error::location(
                16406,
                format!("duplicate field name specified in $group: {name}"),
            ));
        }
        counts &= value.as_doc().is_some_and(is_count);
        fields.push((name.into(), parse_field(&mut parser, name, value)?));
    }
    let id =
        id.ok_or_else(|| Error::location(15955, "a group specification must include an _id"))?;
    let collator = context.environment.collator.clone();
    Ok(Group::new(id, collator, fields, counts))
}

fn is_count(accumulator: &Doc) -> bool {
    match accumulator.first() {
        Some(("$sum", Value::Int32(1))) => true,
        Some(("$count", Value::Document(none))) => none.is_empty(),
        _ => false,
    }
}

fn parse_field(parser: &mut Parser<'_>, name: &str, value: Value<'_>) -> Result<Plan> {
    if name.contains('.') {
        return Err(Error::location(
            40235,
            format!("The field name '{name}' cannot contain '.'"),
        ));
    }
    if name.starts_with('$') {
        return Err(Error::location(
            40236,
            format!("The field name '{name}' cannot be an operator name"),
        ));
    }
    let Value::Document(spec) = value else {
        return Err(Error::location(
            40234,
            format!("The field '{name}' must be an accumulator object"),
        ));
    };
    let mut operators = spec.iter();
    let Some((operator, argument)) = operators.next() else {
        return Err(Error::location(
            40234,
            format!("The field '{name}' must be an accumulator object"),
        ));
    };
    if operators.next().is_some() {
        return Err(Error::location(
            40238,
            format!("The field '{name}' must specify one accumulator"),
        ));
    }
    let Some(known) = accumulators::find(operator) else {
        return Err(Error::location(
            15952,
            format!("unknown group operator '{operator}'"),
        ));
    };
    if matches!(argument, Value::Array(_)) && takes_one(operator) {
        return Err(Error::location(
            40237,
            format!("The {operator} accumulator is a unary operator"),
        ));
    }
    (known.parse)(parser, known.name, argument)
}

/// Whether a list of arguments is refused; `$push: [..]` makes an array instead.
fn takes_one(operator: &str) -> bool {
    matches!(
        operator,
        "$sum"
            | "$avg"
            | "$min"
            | "$max"
            | "$stdDevPop"
            | "$stdDevSamp"
            | "$first"
            | "$last"
            | "$addToSet"
            | "$mergeObjects"
            | "$push"
    )
}

/// `{$count: "name"}` is `$group` with a sum of ones, without its `_id`.
pub(super) fn parse_count(
    argument: Value<'_>,
    context: &ParseContext<'_>,
    out: &mut Vec<Stage>,
) -> Result<()> {
    let Value::String(name) = argument else {
        return Err(Error::location(
            40156,
            "the count field must be a non-empty string",
        ));
    };
    let problem = match name {
        "" => Some((40157, "the count field must be a non-empty string")),
        "_id" => Some((9039800, "the count field cannot be '_id'")),
        name if name.starts_with('$') => {
            Some((40158, "the count field cannot be a $-prefixed path"))
        }
        name if name.contains('\0') => Some((40159, "the count field cannot contain a null byte")),
        name if name.contains('.') => Some((40160, "the count field cannot contain '.'")),
        _ => None,
    };
    if let Some((code, message)) = problem {
        return Err(Error::location(code, message));
    }
    let mut group = doc! {"_id": null};
    group.push_doc(name, |sum| sum.push("$sum", 1));
    parse(Value::Document(&group), context, out)?;
    super::transform::project(Value::Document(&doc! {"_id": 0}), context, out)
}

/// `{$sortByCount: <expression>}` groups by it, counts and sorts by the count.
pub(super) fn parse_sort_by_count(
    argument: Value<'_>,
    context: &ParseContext<'_>,
    out: &mut Vec<Stage>,
) -> Result<()> {
    match argument {
        Value::Document(spec) => {
            if !spec.first().is_some_and(|(name, _)| name.starts_with('$')) {
                return Err(Error::location(
                    40147,
                    "the sortByCount field must be defined as a $-prefixed path or an expression \
                     inside an object",
                ));
            }
        }
        Value::String(path) if path.starts_with('$') => {}
        Value::String(_) => {
            return Err(Error::location(
                40148,
                "the sortByCount field must be defined as a $-prefixed path or an expression \
                 inside an object",
            ));
        }
        _ => {
            return Err(Error::location(
                40149,
                "the sortByCount field must be specified as a string or as an object",
            ));
        }
    }
    let group = doc! {"_id": argument, "count": {"$sum": 1}};
    parse(Value::Document(&group), context, out)?;
    let sort = Sort::new(doc! {"count": -1}, context.environment.collator)?;
    out.push(Stage::Sort(Arc::new(sort)));
    Ok(())
}
