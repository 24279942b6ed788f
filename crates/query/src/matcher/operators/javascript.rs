//! `$where`: this server has no JavaScript. The error is that of a mongod with JavaScript disabled.

use frond_bson::Value;

use super::super::Expr;
use super::super::parse::Context;
use frond_error::{Error, Result};

/// The code of a `$where` without an engine for JavaScript.
pub(crate) const NO_ENGINE: i32 = 6_108_304;

pub(crate) fn parse_where(context: Context<'_>, argument: Value<'_>) -> Result<Option<Expr>> {
    if context.in_element {
        return Err(Error::bad_value(
            "$elemMatch cannot contain $where expression",
        ));
    }
    if context.environment.is_none() {
        return Err(Error::bad_value("$where is not allowed in this context"));
    }
    match argument {
        Value::String(_) | Value::JavaScript(_) | Value::JavaScriptWithScope { .. } => {
            Err(Error::location(
                NO_ENGINE,
                "no globalScriptEngine in $where parsing: this server has no server-side JavaScript; \
                 use $expr with aggregation operators in its place",
            ))
        }
        _ => Err(Error::bad_value("$where got bad type")),
    }
}
