//! Aggregation expressions: `{$add: ["$price", "$fee"]}`.
//!
//! [`Expr::parse`] reads an expression once; [`Expr::eval`] evaluates it over raw documents. Every
//! operator is one function in a file of [`operators`] and one line in its table.

mod calendar;
mod node;
pub(crate) mod operators;
mod parse;
mod value;

#[cfg(test)]
mod tests;

pub use node::Context;
pub use value::Val;

pub(crate) use node::{FieldPath, Node, check_bytes};
pub(crate) use operators::reference;
pub(crate) use parse::{Parser, check_variable_name, field_path};

use crate::error::Result;
use frond_bson::{Doc, OwnedValue, Value};

/// A parsed expression.
#[derive(Debug)]
pub struct Expr {
    node: Node,
}

impl Expr {
    /// Reads an expression. `variables` are the values of a command's `let`, by name.
    ///
    /// # Errors
    /// MongoDB's codes for what is wrong: 168 for an unknown operator, 16020 for a wrong number of
    /// arguments, 17276 for an undefined variable, and so on.
    pub fn parse(value: &Value<'_>, variables: Option<&Doc>) -> Result<Expr> {
        let node = Parser::new(variables).parse(*value)?;
        Ok(Expr { node })
    }

    /// Evaluates the expression. The result borrows from the document and the expression where it
    /// can.
    ///
    /// # Errors
    /// Those of the operators, for operands of wrong types or values.
    pub fn eval<'a>(&'a self, context: &Context<'a>) -> Result<Val<'a>> {
        self.node.eval(context)
    }

    /// Evaluates the expression over one document; `None` if the result is missing. `now_ms` is
    /// `$$NOW` in milliseconds since 1970.
    ///
    /// # Errors
    /// As [`Expr::eval`].
    pub fn eval_owned(&self, root: &Doc, now_ms: i64) -> Result<Option<OwnedValue>> {
        Ok(self.eval(&Context::new(root, now_ms))?.into_value())
    }

    /// Whether the expression is true of a document, as `$expr` asks.
    ///
    /// # Errors
    /// As [`Expr::eval`].
    pub fn is_true(&self, root: &Doc, now_ms: i64) -> Result<bool> {
        Ok(self.eval(&Context::new(root, now_ms))?.truthy())
    }

    /// The literal value, if the expression is one.
    pub fn as_constant(&self) -> Option<Value<'_>> {
        parse::constant(&self.node).map(OwnedValue::as_value)
    }

    /// The dotted path, if the expression is just a field: `"$a.b"` gives `a.b`.
    pub fn as_field(&self) -> Option<String> {
        match &self.node {
            Node::Root(path) if !path.0.is_empty() => Some(path.dotted()),
            _ => None,
        }
    }

    /// Calls `found` with every dotted path of the document that the expression reads; the empty
    /// path is the whole document.
    pub fn fields(&self, mut found: impl FnMut(String)) {
        self.node.fields(&mut |path| found(path.dotted()));
    }
}
