//! `$text`.

use frond_bson::Value;

use super::super::parse::Context;
use super::super::{Expr, Text};
use crate::text::TextQuery;
use frond_error::{Error, Result};

pub(crate) fn parse(context: Context<'_>, argument: Value<'_>) -> Result<Option<Expr>> {
    if context.in_element {
        return Err(Error::bad_value(
            "$text can only be applied to the top-level document",
        ));
    }
    if context.environment.is_none() {
        return Err(Error::bad_value("$text is not allowed in this context"));
    }
    Ok(Some(Expr::Text(Text::Unbound(TextQuery::parse(argument)?))))
}

/// Checks that `$text` occurs once, and not under a `$nor`.
pub(crate) fn check(root: &Expr) -> Result<()> {
    fn count(expr: &Expr, in_nor: bool) -> Result<usize> {
        match expr {
            Expr::And(all) | Expr::Or(all) => all.iter().map(|one| count(one, in_nor)).sum(),
            Expr::Nor(all) => all.iter().map(|one| count(one, true)).sum(),
            Expr::Not(inner) => count(inner, in_nor),
            Expr::Text(_) if in_nor => Err(Error::bad_value("text expression not allowed in nor")),
            Expr::Text(_) => Ok(1),
            _ => Ok(0),
        }
    }
    // Too many are reported first.
    match count(root, false) {
        Ok(0 | 1) => Ok(()),
        Ok(_) => Err(Error::bad_value("Too many text expressions")),
        Err(error) => Err(error),
    }
}
