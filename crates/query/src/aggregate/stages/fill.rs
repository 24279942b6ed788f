//! `$fill`: values where fields are null or missing.

use super::Stage;
use super::transform;
use super::window;
use crate::aggregate::ParseContext;
use crate::options::{Options, Type};
use frond_bson::{ArrayBuf, Doc, DocBuf, Value};
use frond_error::{Error, Result};

/// Desugars to `$setWindowFields` for fields filled from neighbours, and `$addFields` for the rest.
pub(super) fn parse(
    argument: Value<'_>,
    context: &ParseContext<'_>,
    out: &mut Vec<Stage>,
) -> Result<()> {
    let Value::Document(spec) = argument else {
        return Err(Error::failed_to_parse(format!(
            "The $fill stage specification must be an object, found {}",
            argument.type_name()
        )));
    };
    let options = Options::new("$fill", spec);
    options.only(&["sortBy", "partitionBy", "partitionByFields", "output"])?;
    let output = options.required("output", Type::Object)?;
    let output = output.as_doc().unwrap_or(Doc::empty());
    if output.is_empty() {
        return Err(Error::location(
            6050203,
            "The output field in '$fill' must contain an object with at least one element",
        ));
    }
    let (mut by_neighbours, mut by_value) = (DocBuf::new(), DocBuf::new());
    for (name, value) in output.iter() {
        output_field(name, value, &mut by_neighbours, &mut by_value)?;
    }
    if !by_neighbours.is_empty() {
        let mut window = DocBuf::new();
        if let Some(sort) = options.optional("sortBy", Type::Object)? {
            window.push("sortBy", sort);
        }
        if let Some(by) = partition(&options)? {
            window.push_value("partitionBy", &by.as_value());
        }
        window.push("output", &by_neighbours);
        window::parse(Value::Document(&window), context, out)?;
    }
    if !by_value.is_empty() {
        transform::add_fields("$addFields", Value::Document(&by_value), context, out)?;
    }
    Ok(())
}

/// The expression whose value separates partitions.
fn partition(options: &Options<'_>) -> Result<Option<frond_bson::OwnedValue>> {
    let by = options.optional("partitionBy", Type::Any)?;
    let fields = options.strings("partitionByFields")?;
    match by {
        Some(_)
            if options
                .optional("partitionByFields", Type::Array)?
                .is_some() =>
        {
            Err(Error::location(
                6050204,
                "Maximum one of 'partitionBy' and 'partitionByFields can be specified in '$fill'",
            ))
        }
        Some(by @ (Value::String(_) | Value::Document(_))) => Ok(Some(by.to_owned())),
        Some(other) => Err(Error::type_mismatch(format!(
            "BSON field '$fill.partitionBy' is the wrong type '{}', expected types '[string, \
             object]'",
            other.type_name()
        ))),
        None if fields.is_empty() => Ok(None),
        None => {
            let mut by = ArrayBuf::new();
            for field in fields {
                crate::paths::check_field_path(field)?;
                by.push(format!("${field}").as_str());
            }
            // An array would be refused, so it is held in a document.
            let mut whole = DocBuf::new();
            whole.push("fields", &by);
            Ok(Some(whole.into()))
        }
    }
}

fn output_field(
    name: &str,
    value: Value<'_>,
    by_neighbours: &mut DocBuf,
    by_value: &mut DocBuf,
) -> Result<()> {
    let Value::Document(spec) = value else {
        return Err(Error::location(
            6050200,
            "Each fill output specification must be an object with exactly one field",
        ));
    };
    let options = Options::new("$fill", spec);
    options.only(&["method", "value"])?;
    let method = options.optional("method", Type::String)?;
    let path = format!("${name}");
    match (method.as_ref().and_then(Value::as_str), spec.get("value")) {
        (Some(_), Some(_)) => Err(Error::location(
            6050201,
            "Each fill output specification must have exactly one of 'method' or 'value' fields, \
             not both",
        )),
        (Some(method), None) => {
            let operator = match method {
                "locf" => "$locf",
                "linear" => "$linearFill",
                _ => {
                    return Err(Error::location(
                        6050202,
                        "Method must be either locf or linear",
                    ));
                }
            };
            by_neighbours.push_doc(name, |field| field.push(operator, path.as_str()));
            Ok(())
        }
        (None, Some(value)) => {
            let mut pair = ArrayBuf::new();
            pair.push(path.as_str());
            pair.push_value(&value);
            by_value.push_doc(name, |field| field.push("$ifNull", &pair));
            Ok(())
        }
        (None, None) => Err(Error::location(
            6050200,
            "Each fill output specification must be an object with exactly one field",
        )),
    }
}
