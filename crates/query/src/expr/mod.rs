//! Aggregation expressions: `{$add: ["$price", "$fee"]}`.
//!
//! [`Expr::parse`] reads an expression once; [`Expr::eval`] evaluates it over raw documents. Every
//! operator is one function in a file of [`operators`] and one line in its table.

mod calendar;
pub(crate) mod date_parse;
mod node;
pub(crate) mod operators;
mod parse;
pub(crate) mod unit;
mod value;
pub(crate) mod zone;

#[cfg(test)]
mod tests;

pub use node::Context;
pub use value::Val;

pub(crate) use node::{FieldPath, Frame, Node};
pub(crate) use operators::percentile::{Percentiles, number as percentile_number};
pub(crate) use parse::{MISSING, Parser, check_variable_name, field_path, unknown};

use crate::bounds;
use crate::environment::Environment;
use crate::meta::MetaFields;
use crate::script::Script;
use frond_bson::{Collator, Doc, DocBuf, OwnedValue, Value};
use frond_error::{Error, Result};
use std::sync::Arc;

/// The values of a command's `let`: each expression is evaluated once, without a document, and may
/// use the variables before it. A missing value is held as `undefined`, which a variable gives back
/// as missing. Of the surroundings they see the times and the collator.
///
/// # Errors
/// Those of [`Expr::parse`] and [`Expr::eval`]; 9 for names that a user may not give; 4890500 for
/// an expression that reads the document.
pub fn evaluate_variables(variables: &Doc, surroundings: &Environment<'_>) -> Result<DocBuf> {
    let now_ms = surroundings.now_ms;
    let mut values = DocBuf::new();
    for (name, value) in variables.iter() {
        check_variable_name(name)?;
        let environment = Environment {
            variables: Some(&values),
            now_ms,
            cluster_time: surroundings.cluster_time,
            collator: surroundings.collator,
            ..Environment::default()
        };
        let expression = Expr::parse(&value, &environment)?;
        let mut reads_document = false;
        expression.fields(|_| reads_document = true);
        if reads_document {
            return Err(Error::location(
                4_890_500,
                "Command let Expression tried to access a field, but this is not allowed because \
                 Command let Expressions run before the query examines any documents.",
            ));
        }
        let value = expression.eval_owned(Doc::empty(), now_ms)?;
        let value = value.as_ref().map_or(MISSING, OwnedValue::as_value);
        values.push_value(name, &value);
        bounds::check_bytes(values.len_bytes())?;
    }
    Ok(values)
}

#[derive(Debug)]
pub struct Expr {
    node: Node,
}

impl Expr {
    /// Reads an expression with the variables and the collator of its surroundings.
    ///
    /// # Errors
    /// MongoDB's codes for what is wrong: 168 for an unknown operator, 16020 for a wrong number of
    /// arguments, 17276 for an undefined variable, and so on.
    pub fn parse(value: &Value<'_>, environment: &Environment<'_>) -> Result<Expr> {
        let node = bounds::parsing(|| Parser::new(environment).parse(*value))?;
        Ok(Expr { node })
    }

    /// The condition of a `$where`: what a function of JavaScript says of the document.
    pub(crate) fn of_condition(script: Arc<dyn Script>) -> Expr {
        Expr {
            node: operators::condition(script),
        }
    }

    /// Evaluates the expression. The result borrows from the document and the expression where it
    /// can.
    ///
    /// # Errors
    /// Those of the operators, for operands of wrong types or values.
    pub fn eval<'a>(&'a self, context: &Context<'a>) -> Result<Val<'a>> {
        self.node.evaluate(context)
    }

    /// As [`Expr::eval`], as a part of a larger value: the bytes stay reserved.
    pub(crate) fn eval_part<'a>(&'a self, context: &Context<'a>) -> Result<Val<'a>> {
        self.node.eval_part(context)
    }

    /// Evaluates the expression over one document; `None` if the result is missing. `now_ms` is
    /// `$$NOW` in milliseconds since 1970.
    ///
    /// # Errors
    /// As [`Expr::eval`].
    pub fn eval_owned(&self, root: &Doc, now_ms: i64) -> Result<Option<OwnedValue>> {
        Ok(self.eval(&Context::new(root, now_ms))?.into_value())
    }

    /// Whether the expression is true of a document, as `$expr` requires.
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

    /// Calls `found` for each comparison of a field with a constant that holds wherever the expression is true: the
    /// path, the operator that says how the field compares with the constant, the constant, and the collator.
    pub(crate) fn comparisons<'a>(
        &'a self,
        found: &mut dyn FnMut(String, &'static str, &'a OwnedValue, &'a Collator),
    ) {
        comparisons(&self.node, found);
    }

    /// The metadata that the expression reads with `$meta`.
    pub fn meta(&self) -> MetaFields {
        self.node.meta()
    }

    /// Calls `found` with every dotted path of the document that the expression reads; the empty
    /// path is the whole document.
    pub fn fields(&self, mut found: impl FnMut(String)) {
        self.node.fields(&mut |path| found(path.dotted()));
    }
}

fn comparisons<'a>(
    node: &'a Node,
    found: &mut dyn FnMut(String, &'static str, &'a OwnedValue, &'a Collator),
) {
    match node {
        Node::Call(operator, arguments) if operator.name == "$and" => {
            arguments.iter().for_each(|one| comparisons(one, found));
        }
        Node::Collated(operator, arguments, collator) => {
            let (relation, flipped) = match operator.name {
                "$eq" => ("$eq", "$eq"),
                "$lt" => ("$lt", "$gt"),
                "$lte" => ("$lte", "$gte"),
                "$gt" => ("$gt", "$lt"),
                "$gte" => ("$gte", "$lte"),
                _ => return,
            };
            let (path, relation, value) = match arguments.as_slice() {
                [Node::Root(path), Node::Constant(value)] => (path, relation, value),
                [Node::Constant(value), Node::Root(path)] => (path, flipped, value),
                _ => return,
            };
            let is_array = matches!(value.as_value(), Value::Array(_) | Value::Undefined);
            if !path.0.is_empty() && !is_array {
                found(path.dotted(), relation, value, collator);
            }
        }
        _ => {}
    }
}
