//! Documents: merging them, and fields whose names are computed or unusual.

use super::{Arguments, Eval, Operator, custom, each_operand, many, named};
use crate::expr::node::{Node, check_bytes};
use crate::expr::parse::{Parser, required};
use crate::expr::value::Val;
use frond_bson::{Doc, DocBuf, Value};
use frond_error::{Error, Result};

pub(super) const OPERATORS: &[Operator] = &[
    many("$mergeObjects", 0, Arguments::MANY, merge_objects),
    custom("$getField", parse_get_field, Eval::Many(get_field)),
    named(
        "$setField",
        &[required("field"), required("input"), required("value")],
        |a| set_field("$setField", a),
    ),
    named(
        "$unsetField",
        &[required("field"), required("input")],
        |a| set_field("$unsetField", a),
    ),
];

fn merge_objects<'a>(values: &[Val<'a>]) -> Result<Val<'a>> {
    let mut merged = Ok(DocBuf::new());
    each_operand(values, |value| {
        if let Ok(base) = &merged {
            merged = merged_with(base, value);
        }
    });
    merged.map(Val::doc)
}

fn merged_with(base: &Doc, value: Value<'_>) -> Result<DocBuf> {
    let value = Val::Ref(value);
    let merged = match merge_input(&value)? {
        Some(doc) => merge(base, doc),
        None => base.to_owned(),
    };
    check_bytes(merged.len_bytes())?;
    Ok(merged)
}

/// The document of an input of `$mergeObjects`; `None` for null and missing values.
pub(crate) fn merge_input<'v>(value: &'v Val<'_>) -> Result<Option<&'v Doc>> {
    if value.is_nullish() {
        return Ok(None);
    }
    match value.as_doc() {
        Some(doc) => Ok(Some(doc)),
        None => Err(Error::location(
            40400,
            format!(
                "$mergeObjects requires object inputs, but input {} is of type {}",
                crate::display::computed(&value.or_null()),
                value.type_name()
            ),
        )),
    }
}

/// The fields of both; those of `over` win and keep the place that `base` gave them.
pub(crate) fn merge(base: &Doc, over: &Doc) -> DocBuf {
    if base.is_empty() {
        return over.to_owned();
    }
    let mut merged = DocBuf::with_capacity(base.len_bytes() + over.len_bytes());
    for element in base.iter_raw() {
        merged.push_raw(&over.get_raw(element.name()).unwrap_or(element));
    }
    for element in over.iter_raw() {
        if base.get_raw(element.name()).is_none() {
            merged.push_raw(&element);
        }
    }
    merged
}

/// `{$getField: "name"}` is short for `{$getField: {field: "name", input: "$$CURRENT"}}`.
fn parse_get_field(
    parser: &mut Parser<'_>,
    operator: &'static Operator,
    argument: Value<'_>,
) -> Result<Node> {
    let whole = Node::Root(Default::default());
    let (field, input) = match argument {
        Value::Document(doc) if !doc.first().is_some_and(|(n, _)| n.starts_with('$')) => {
            for (name, _) in doc.iter() {
                if !matches!(name, "field" | "input") {
                    return Err(Error::location(
                        3041701,
                        format!("$getField found an unknown argument: {name}"),
                    ));
                }
            }
            let field = doc.get("field").ok_or_else(|| {
                Error::location(3041702, "$getField requires 'field' to be specified")
            })?;
            let input = doc.get("input").ok_or_else(|| {
                Error::location(3041703, "$getField requires 'input' to be specified")
            })?;
            (field, parser.parse(input)?)
        }
        field => (field, whole),
    };
    let field = parser.parse(field)?;
    if let Node::Constant(value) = &field
        && !value.as_value().is_string()
    {
        return Err(Error::location(
            5654602,
            format!(
                "$getField requires 'field' to evaluate to a constant String, but got {}",
                value.as_value().type_name()
            ),
        ));
    }
    Ok(Node::Call(operator, vec![field, input]))
}

fn get_field<'a>(values: &[Val<'a>]) -> Result<Val<'a>> {
    let [field, input] = values else {
        return Ok(Val::Missing);
    };
    let Value::String(name) = field.or_null() else {
        // Names of fields are UTF-8.
        if field.or_null().is_string() {
            return Ok(Val::Missing);
        }
        return Err(Error::location(
            3041704,
            format!(
                "$getField requires 'field' to evaluate to type String, but got {}",
                field.type_name()
            ),
        ));
    };
    Ok(match input.get() {
        Some(Value::Document(doc)) => match doc.get(name) {
            Some(value) => Val::Owned(value.to_owned()),
            None => Val::Missing,
        },
        None => Val::Missing,
        Some(Value::Null | Value::Undefined) => Val::NULL,
        Some(_) => Val::Missing,
    })
}

/// The operator would name a field with text that is not UTF-8.
pub(super) fn invalid_field_name(operator: &str) -> Error {
    Error::bad_value(format!(
        "{operator} requires the names of fields to be valid UTF-8"
    ))
}

/// `$unsetField` has no value; a missing value removes the field.
fn set_field<'a>(operator: &str, values: &[Val<'a>]) -> Result<Val<'a>> {
    let (field, input, value) = match values {
        [field, input, value] => (field, input, value.get()),
        [field, input] => (field, input, None),
        _ => return Ok(Val::NULL),
    };
    let Value::String(name) = field.or_null() else {
        if field.or_null().is_string() {
            return Err(invalid_field_name(operator));
        }
        return Err(Error::location(
            4161107,
            format!(
                "{operator} requires 'field' to evaluate to a string, but got {}",
                field.type_name()
            ),
        ));
    };
    if input.is_nullish() {
        return Ok(Val::NULL);
    }
    let Some(doc) = input.as_doc() else {
        return Err(Error::location(
            4161105,
            format!(
                "{operator} requires 'input' to evaluate to type Object, but got {}",
                input.type_name()
            ),
        ));
    };
    let mut changed = DocBuf::with_capacity(doc.len_bytes());
    let mut written = false;
    for element in doc.iter_raw() {
        match value {
            Some(value) if element.name() == name => {
                changed.push_value(name, &value);
                written = true;
            }
            None if element.name() == name => {}
            _ => changed.push_raw(&element),
        }
    }
    if let Some(value) = value.filter(|_| !written) {
        changed.push_value(name, &value);
    }
    check_bytes(changed.len_bytes())?;
    Ok(Val::doc(changed))
}
