//! `$expr`: an aggregation expression as a condition.

use std::sync::Arc;

use frond_bson::{Doc, Value};

use super::super::eval::State;
use super::super::parse::Context;
use super::super::{Comparison, Expr, Leaf, Op, Relation};
use crate::error::{Error, ErrorCode, Result};
use crate::expr;
use crate::paths::Path;

/// An aggregation expression that must be true of the document.
#[derive(Clone, Debug)]
pub struct Computed {
    expression: Arc<expr::Expr>,
    now_ms: i64,
}

impl Computed {
    /// The expression.
    pub fn expression(&self) -> &expr::Expr {
        &self.expression
    }

    /// Conditions on paths that hold wherever the expression is true, for finding an index.
    pub fn implied(&self) -> Vec<Leaf> {
        let mut found = Vec::new();
        (self.expression).equalities(&mut |path, value, collator| {
            let equal = Comparison::new(Relation::Eq, value.as_value(), collator);
            found.push(Leaf {
                path: Path::new(&path),
                op: Op::Compare(equal),
            });
        });
        found
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
    Ok(Some(Expr::Computed(Computed {
        expression,
        now_ms: environment.now_ms,
    })))
}
