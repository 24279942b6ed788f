//! `$expr`: an aggregation expression as a condition.

use std::sync::Arc;

use frond_bson::{Collator, Doc, OwnedValue, Value};

use super::super::parse::Context;
use super::super::state::State;
use super::super::{Expr, Relation};
use crate::expr;
use frond_error::{Error, ErrorCode, Result};

/// An aggregation expression that must be true of the document.
#[derive(Clone, Debug)]
pub struct Computed {
    expression: Arc<expr::Expr>,
    now_ms: i64,
}

impl Computed {
    pub(crate) fn new(expression: Arc<expr::Expr>, now_ms: i64) -> Computed {
        Computed { expression, now_ms }
    }

    pub fn expression(&self) -> &expr::Expr {
        &self.expression
    }

    /// Calls `found` for each comparison of a field with a constant that holds wherever the expression is true, for
    /// finding an index. Values of all types compare here, and an array as a whole.
    pub fn comparisons<'a>(
        &'a self,
        mut found: impl FnMut(String, Relation, &'a OwnedValue, &'a Collator),
    ) {
        (self.expression).comparisons(&mut |path, operator, value, collator| {
            let relation = match operator {
                "$lt" => Relation::Lt,
                "$lte" => Relation::Lte,
                "$gt" => Relation::Gt,
                "$gte" => Relation::Gte,
                "$eq" => Relation::Eq,
                _ => return,
            };
            found(path, relation, value, collator);
        });
    }

    pub(crate) fn matches(&self, doc: &Doc, state: &mut State) -> bool {
        self.expression
            .is_true(doc, self.now_ms)
            .unwrap_or_else(|error| {
                state.fail(error);
                false
            })
    }
}

pub(crate) fn parse(context: Context<'_>, argument: Value<'_>) -> Result<Option<Expr>> {
    let Some(environment) = context.environment else {
        return Err(Error::new(
            ErrorCode::QueryFeatureNotAllowed,
            "$expr is not allowed in this context",
        ));
    };
    if context.in_element {
        return Err(Error::bad_value(
            "$expr can only be applied to the top-level document",
        ));
    }
    let expression = Arc::new(expr::Expr::parse(&argument, environment)?);
    Ok(Some(Expr::Computed(Computed::new(
        expression,
        environment.now_ms,
    ))))
}
