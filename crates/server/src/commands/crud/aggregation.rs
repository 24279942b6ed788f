//! A parsed `aggregate`, which the command itself, `explain` and the streams over pipelines share.

use frond_bson::{Doc, Value};
use frond_error::{Error, ErrorCode, Result};
use frond_store::{AggregateRequest, Durability, Namespace};

use super::find::hint;
use crate::arguments::Arguments;
use crate::commands::support::write::bypass_validation;
use crate::context::Context;

/// A parsed `aggregate` command.
pub struct Aggregation<'a> {
    /// The collection; none for `aggregate: 1`.
    pub namespace: Option<Namespace>,
    /// The request to the store.
    pub request: AggregateRequest<'a>,
}

/// Reads the fields, except those that all commands share. `variables` are the values of `let`.
pub fn parse<'a>(
    cx: &Context<'_>,
    args: &Arguments<'a>,
    variables: Option<&'a Doc>,
) -> Result<Aggregation<'a>> {
    let namespace = match args.get("aggregate") {
        Some(number) if number.is_number() => {
            if number.as_f64() != Some(1.0) {
                return Err(Error::new(
                    ErrorCode::FailedToParse,
                    "Invalid command format: the 'aggregate' field must specify a collection \
                     name or 1",
                ));
            }
            None
        }
        value => {
            let namespace = cx.namespace_of(&value.unwrap_or(Value::Null))?;
            cx.check_uuid(&namespace)?;
            Some(namespace)
        }
    };
    Ok(Aggregation {
        namespace,
        request: AggregateRequest {
            pipeline: args
                .array("pipeline")?
                .ok_or_else(|| args.missing("pipeline"))?,
            hint: hint(args)?,
            variables,
            durability: Durability::Logged,
            bypass_validation: bypass_validation(args)?,
            allow_disk_use: args.bool("allowDiskUse")?,
            collation: args.collation()?,
        },
    })
}

/// The namespace of a cursor over a collection, or over none.
pub fn name_of(cx: &Context<'_>, namespace: Option<&Namespace>) -> String {
    match namespace {
        Some(namespace) => namespace.as_str().to_string(),
        None => format!("{}.$cmd.aggregate", cx.db),
    }
}
