//! `$currentDate`.

use super::{Argument, Change, Modifier, Operator, Placed, Target};
use crate::display;
use frond_bson::Value;
use frond_error::{Error, Result};

/// `{$currentDate: {<path>: true | {$type: "date" | "timestamp"}}}`.
pub(super) const CURRENT_DATE: Operator = Operator {
    name: "$currentDate",
    parse,
};

fn parse<'a>(argument: &Argument<'a>) -> Result<Placed<'a>> {
    let bad_type = || {
        Error::bad_value(
            "The '$type' string field is required to be 'date' or 'timestamp': \
             {$currentDate: {field : {$type: 'date'}}}",
        )
    };
    let mut as_timestamp = false;
    match argument.value {
        Value::Bool(_) => {}
        Value::Document(options) => {
            let mut found = false;
            for (name, value) in options.iter() {
                if name != "$type" {
                    return Err(Error::bad_value(format!(
                        "Unrecognized $currentDate option: {name}"
                    )));
                }
                found = true;
                as_timestamp = match value {
                    Value::String("date") => false,
                    Value::String("timestamp") => true,
                    _ => return Err(bad_type()),
                };
            }
            if !found {
                return Err(bad_type());
            }
        }
        other => {
            return Err(Error::bad_value(format!(
                "{} is not valid type for $currentDate. Please use a boolean ('true') or a $type \
                 expression ({{$type: 'timestamp/date'}}): {}",
                other.type_name(),
                display::element(argument.path, &other)
            )));
        }
    }
    argument.here(CurrentDate { as_timestamp })
}

#[derive(Debug)]
struct CurrentDate {
    as_timestamp: bool,
}

impl Modifier for CurrentDate {
    fn modify<'a>(&'a self, target: &Target<'a>) -> Result<Change<'a>> {
        let context = target.scope.context;
        Ok(Change::Value(if self.as_timestamp {
            Value::Timestamp(context.timestamp)
        } else {
            Value::DateTime(context.now_ms)
        }))
    }
}
