//! Documents: merging them, and fields whose names are computed or unusual.

use super::fields::Fields;
use super::{Arguments, Entry, Eval, Operator, custom, each_operand, many, named};
use crate::bounds;
use crate::expr::node::Node;
use crate::expr::parse::{Parser, required};
use crate::expr::value::Val;
use frond_bson::{Doc, DocBuf, RawElement, Value};
use frond_error::{Error, Result};

pub(super) const OPERATORS: &[Entry] = &[
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
    let mut fields = Fields::new();
    let mut outcome = Ok(());
    each_operand(values, |value| {
        if outcome.is_ok() {
            outcome = add_fields(&mut fields, value);
        }
    });
    outcome?;
    Ok(Val::doc(doc_of(&fields)?))
}

fn add_fields<'v>(fields: &mut Fields<'v, RawElement<'v>>, value: Value<'v>) -> Result<()> {
    let Some(doc) = merge_input(value)? else {
        return Ok(());
    };
    for element in doc.iter_raw() {
        bounds::work_on(element.as_bytes().len())?;
        fields.set(element.name(), element)?;
    }
    Ok(())
}

fn doc_of(fields: &Fields<'_, RawElement<'_>>) -> Result<DocBuf> {
    let mut doc = DocBuf::new();
    for (_, element) in fields.iter() {
        bounds::push_element(&mut doc, element)?;
    }
    Ok(doc)
}

/// The document of an input of `$mergeObjects`; `None` for null and missing values.
pub(crate) fn merge_input(value: Value<'_>) -> Result<Option<&Doc>> {
    match value {
        Value::Document(doc) => Ok(Some(doc)),
        Value::Null | Value::Undefined => Ok(None),
        _ => Err(Error::location(
            40400,
            format!(
                "$mergeObjects requires object inputs, but input {} is of type {}",
                crate::display::computed(&value),
                value.type_name()
            ),
        )),
    }
}

/// The fields of both; those of `over` win and keep the place that `base` gave them.
///
/// # Errors
/// Those of the bounds of the evaluation.
pub(crate) fn merge(base: &Doc, over: &Doc) -> Result<DocBuf> {
    let mut fields = Fields::new();
    add_fields(&mut fields, Value::Document(base))?;
    add_fields(&mut fields, Value::Document(over))?;
    doc_of(&fields)
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
    match input.get() {
        Some(Value::Document(doc)) => {
            bounds::work_on(doc.len_bytes())?;
            doc.get(name).map_or(Ok(Val::Missing), Val::copy_of)
        }
        Some(Value::Null | Value::Undefined) => Ok(Val::NULL),
        None | Some(_) => Ok(Val::Missing),
    }
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
    let bytes = doc.len_bytes() + value.map_or(0, |value| value.len_bytes() + name.len() + 2);
    bounds::reserve_value(bytes)?;
    let mut changed = DocBuf::with_capacity(bytes);
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
    Ok(Val::doc(changed))
}
