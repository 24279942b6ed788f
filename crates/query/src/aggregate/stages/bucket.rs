//! `$bucket`: groups by ranges of a value.

use super::sort::Sort;
use super::{Stage, group};
use crate::aggregate::ParseContext;
use crate::display;
use frond_bson::{ArrayBuf, Collator, Doc, DocBuf, Value, canonical_class, doc};
use frond_error::{Error, Result};
use std::sync::Arc;

/// Desugars to `$group` by a `$switch` over the boundaries, and `$sort` by `_id`.
pub(super) fn parse(
    argument: Value<'_>,
    context: &ParseContext<'_>,
    out: &mut Vec<Stage>,
) -> Result<()> {
    let Value::Document(spec) = argument else {
        return Err(Error::location(
            40201,
            format!(
                "Argument to $bucket stage must be an object, but found type: {}.",
                argument.type_name()
            ),
        ));
    };
    let collator = context.environment.collator;
    let (mut by, mut boundaries, mut default, mut output) = (None, None, None, None);
    for (name, value) in spec.iter() {
        match (name, value) {
            ("groupBy", Value::String(path)) if path.starts_with('$') => by = Some(value),
            ("groupBy", Value::Document(_)) => by = Some(value),
            ("groupBy", _) => {
                return Err(Error::location(
                    40202,
                    format!(
                        "The $bucket 'groupBy' field must be defined as a $-prefixed path or an \
                         expression, but found: {}.",
                        display::value(&value)
                    ),
                ));
            }
            ("boundaries", Value::Array(array)) => boundaries = Some(check(array, collator)?),
            ("boundaries", _) => {
                return Err(Error::location(
                    40200,
                    format!(
                        "The $bucket 'boundaries' field must be an array, but found type: {}.",
                        value.type_name()
                    ),
                ));
            }
            ("default", _) => default = Some(constant(value)?),
            ("output", Value::Document(fields)) => output = Some(fields),
            ("output", _) => {
                return Err(Error::location(
                    40196,
                    format!(
                        "The $bucket 'output' field must be an object, but found type: {}.",
                        value.type_name()
                    ),
                ));
            }
            _ => {
                return Err(Error::location(
                    40197,
                    format!("Unrecognized option to $bucket: {name}."),
                ));
            }
        }
    }
    let (Some(by), Some(boundaries)) = (by, boundaries) else {
        return Err(Error::location(
            40198,
            "$bucket requires 'groupBy' and 'boundaries' to be specified.",
        ));
    };
    check_default(default, &boundaries, collator)?;
    let mut group = DocBuf::new();
    group.push("_id", &doc! {"$switch": switch(by, &boundaries, default)});
    match output {
        Some(fields) => group.push_all(fields),
        None => group.push("count", &doc! {"$sum": 1}),
    }
    group::parse(Value::Document(&group), context, out)?;
    out.push(Stage::Sort(Arc::new(Sort::new(doc! {"_id": 1}, collator)?)));
    Ok(())
}

/// A literal, in either notation.
fn constant(value: Value<'_>) -> Result<Value<'_>> {
    match value {
        Value::Document(spec) => match spec.first() {
            Some(("$literal" | "$const", literal)) => Ok(literal),
            Some((name, _)) if name.starts_with('$') => Err(not_constant(&value)),
            _ => Ok(value),
        },
        Value::String(text) if text.starts_with('$') => Err(not_constant(&value)),
        other => Ok(other),
    }
}

fn not_constant(value: &Value<'_>) -> Error {
    Error::location(
        40191,
        format!(
            "The $bucket 'boundaries' and 'default' must be constant values, but found: {}.",
            display::value(value)
        ),
    )
}

/// The boundaries: at least two, ascending, of one kind.
fn check<'v>(array: &'v Doc, collator: &Collator) -> Result<Vec<Value<'v>>> {
    let values: Vec<Value<'_>> = array.values().map(constant).collect::<Result<_>>()?;
    if values.len() < 2 {
        return Err(Error::location(
            40192,
            format!(
                "The $bucket 'boundaries' field must have at least 2 values, but found {} \
                 value(s).",
                values.len()
            ),
        ));
    }
    for (lower, upper) in values.iter().zip(values.iter().skip(1)) {
        if canonical_class(lower.type_code()) != canonical_class(upper.type_code()) {
            return Err(Error::location(
                40193,
                format!(
                    "All values in the the 'boundaries' option to $bucket must have the same \
                     type. Found conflicting types {} and {}.",
                    lower.type_name(),
                    upper.type_name()
                ),
            ));
        }
        if collator.compare(lower, upper).is_ge() {
            return Err(Error::location(
                40194,
                format!(
                    "The 'boundaries' option to $bucket must be sorted, but elements {} and {} \
                     are not in ascending order.",
                    display::value(lower),
                    display::value(upper)
                ),
            ));
        }
    }
    Ok(values)
}

fn check_default(
    default: Option<Value<'_>>,
    boundaries: &[Value<'_>],
    collator: &Collator,
) -> Result<()> {
    if let (Some(default), Some(first), Some(last)) =
        (default, boundaries.first(), boundaries.last())
        && collator.compare(&default, first).is_ge()
        && collator.compare(&default, last).is_lt()
    {
        return Err(Error::location(
            40199,
            "The $bucket 'default' field must be less than the lowest boundary or greater than or \
             equal to the highest boundary.",
        ));
    }
    Ok(())
}

fn literal(value: &Value<'_>) -> DocBuf {
    let mut literal = DocBuf::new();
    literal.push_value("$literal", value);
    literal
}

/// One branch for each pair of boundaries; its result is the lower one.
fn switch(by: Value<'_>, boundaries: &[Value<'_>], default: Option<Value<'_>>) -> DocBuf {
    let mut branches = ArrayBuf::new();
    for (lower, upper) in boundaries.iter().zip(boundaries.iter().skip(1)) {
        let (lower, upper) = (literal(lower), literal(upper));
        branches.push(&doc! {
            "case": {"$and": [{"$gte": [by, lower]}, {"$lt": [by, upper]}]},
            "then": lower
        });
    }
    let mut switch = DocBuf::new();
    switch.push("branches", &branches);
    if let Some(default) = default {
        switch.push("default", &literal(&default));
    }
    switch
}
