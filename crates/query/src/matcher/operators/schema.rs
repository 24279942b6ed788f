//! `$jsonSchema`.

use std::sync::Arc;

use frond_bson::Value;

use super::super::Expr;
use super::super::parse::Context;
use super::super::schema::Schema;
use frond_error::{Error, ErrorCode, Result};

pub(crate) fn parse(context: Context<'_>, argument: Value<'_>) -> Result<Option<Expr>> {
    if context.environment.is_none() {
        return Err(Error::new(
            ErrorCode::QueryFeatureNotAllowed,
            "$jsonSchema is not allowed in this context",
        ));
    }
    match argument {
        Value::Document(schema) => Ok(Some(Expr::Schema(Arc::new(Schema::parse(schema)?)))),
        _ => Err(Error::type_mismatch("$jsonSchema must be an object")),
    }
}
