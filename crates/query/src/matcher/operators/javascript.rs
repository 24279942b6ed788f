//! `$where`: a function of JavaScript as a condition.

use std::sync::Arc;

use frond_bson::Value;

use super::super::Expr;
use super::super::parse::Context;
use super::expr::Computed;
use crate::expr;
use crate::script::{NO_ENGINE, ScriptSource};
use frond_error::{Error, Result};

/// Reads a `$where`. It is an expression of the whole document, as `$expr` is.
pub(crate) fn parse_where(context: Context<'_>, argument: Value<'_>) -> Result<Option<Expr>> {
    if context.in_element {
        return Err(Error::bad_value(
            "$elemMatch cannot contain $where expression",
        ));
    }
    let refused = || Error::bad_value("$where is not allowed in this context");
    let environment = context.environment.ok_or_else(refused)?;
    if context.in_pipeline && !environment.internal {
        return Err(refused());
    }
    let (code, scope) = match argument {
        Value::String(code) | Value::JavaScript(code) => (code, None),
        Value::JavaScriptWithScope { code, scope } => (code, Some(scope.to_owned())),
        _ => return Err(Error::bad_value("$where got bad type")),
    };
    let script = environment.scripts.script(ScriptSource {
        code: code.to_owned(),
        scope,
        stored_functions: true,
    });
    let script = script.map_err(|error| {
        if error.code() == NO_ENGINE {
            // MongoDB has a code of its own for this place.
            Error::location(
                6108304,
                format!(
                    "no globalScriptEngine in $where parsing: {}",
                    error.message()
                ),
            )
        } else {
            error
        }
    })?;
    let condition = expr::Expr::of_condition(script);
    Ok(Some(Expr::Computed(Computed::new(
        Arc::new(condition),
        environment.now_ms,
    ))))
}
