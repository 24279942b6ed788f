//! `$exists`.

use frond_bson::Value;

use super::super::parse::Field;
use super::super::{Expr, Op};
use frond_error::Result;

/// `$exists` with any true value (a number but zero, a string, …) or false.
pub(crate) fn parse_exists(field: &Field<'_>, argument: Value<'_>) -> Result<Option<Expr>> {
    let exists = argument.truthy();
    Ok(Some(if exists {
        field.leaf(Op::Exists)
    } else {
        field.not(Op::Exists)
    }))
}
