//! `$regex`, `$options` and regular expressions in the place of values.

use frond_bson::Value;

use super::super::parse::Field;
use super::super::state::State;
use super::super::{Expr, Op};
use crate::pattern::{Failure, Pattern};
use frond_error::{Error, Result};

/// Whether a value is a string that contains a match, or the pattern's expression itself. A string that is not
/// UTF-8 contains none, as in MongoDB.
#[inline]
pub(crate) fn matches(pattern: &Pattern, value: Option<Value<'_>>, state: &mut State) -> bool {
    match value {
        Some(Value::String(text) | Value::Symbol(text)) => {
            if !state.goes_on(text.len() / 64) {
                return false;
            }
            match pattern.test(text) {
                Ok(matches) => matches,
                Err(Failure::Interrupted(error)) => {
                    state.interrupt(error);
                    false
                }
                Err(failure) => {
                    state.fail(Pattern::failed(failure));
                    false
                }
            }
        }
        Some(Value::Regex {
            pattern: source,
            options,
        }) => source == pattern.source() && options == pattern.options(),
        _ => false,
    }
}

/// The condition that a value matches a regular expression.
pub(crate) fn compile(pattern: &Value<'_>) -> Result<Op> {
    Ok(Op::Regex(Box::new(Pattern::from_value(pattern)?)))
}

/// `{$regex: "pattern", $options: "i"}` or `{$regex: /pattern/i}`.
pub(crate) fn parse_regex(field: &Field<'_>, argument: Value<'_>) -> Result<Option<Expr>> {
    let options = match field.operators.get("$options") {
        Some(Value::String(options)) => Some(options),
        Some(_) => return Err(Error::bad_value("$options has to be a string")),
        None => None,
    };
    let pattern = match argument {
        Value::String(pattern) => Pattern::new(pattern, options.unwrap_or_default())?,
        Value::Regex { options: own, .. } if options.is_some() && !own.is_empty() => {
            return Err(Error::location(
                51075,
                "options set in both $regex and $options",
            ));
        }
        Value::Regex {
            pattern,
            options: own,
        } => Pattern::new(pattern, options.unwrap_or(own))?,
        Value::NotUtf8(_) if argument.is_string() || argument.is_regex() => {
            Pattern::from_value(&argument)?
        }
        _ => return Err(Error::bad_value("$regex has to be a string")),
    };
    Ok(Some(field.leaf(Op::Regex(Box::new(pattern)))))
}

/// `$options` is read by `$regex`; alone it is an error.
pub(crate) fn parse_options(field: &Field<'_>, _: Value<'_>) -> Result<Option<Expr>> {
    if field.operators.contains_key("$regex") {
        Ok(None)
    } else {
        Err(Error::bad_value("$options needs a $regex"))
    }
}
