//! `$all`, `$elemMatch` and `$size`.

use frond_bson::{Collator, Doc, Value};

use super::super::eval;
use super::super::parse::{self, Context, Field};
use super::super::state::State;
use super::super::{Expr, Op, Relation};
use super::{
    comparison, integer, is_document_operator, is_field_operator, parse_document, parse_field,
    regex,
};
use crate::paths::Path;
use frond_error::{Error, Result};

/// The condition of an `$elemMatch`, which one element of an array must satisfy.
#[derive(Clone, Debug)]
pub enum ElemMatch {
    /// `{$elemMatch: {a: 1, b: {$gt: 2}}}`: the element is a document that passes this filter.
    Document(Expr),
    /// `{$elemMatch: {$gt: 2, $lt: 5}}`: the element satisfies all these conditions. The leaves have
    /// empty paths.
    Value(Expr),
}

impl ElemMatch {
    fn matches_item(&self, item: Value<'_>, state: &mut State) -> bool {
        match (self, item) {
            (ElemMatch::Document(filter), Value::Document(inner) | Value::Array(inner)) => {
                eval::matches_document(filter, inner, state)
            }
            (ElemMatch::Document(_), _) => false,
            (ElemMatch::Value(conditions), item) => eval::matches_value(conditions, item, state),
        }
    }

    /// Parses the argument of an `$elemMatch` that stands outside a filter, in a projection.
    pub fn parse(argument: Value<'_>, collator: &Collator) -> Result<ElemMatch> {
        elem_match(Context::without_expressions(collator), argument)
    }

    /// The index of the first element of an array that satisfies the condition.
    pub fn find(&self, items: &Doc) -> Result<Option<usize>> {
        let mut state = State::default();
        let index = self.first_match(items, &mut state);
        match state.error {
            Some(error) => Err(*error),
            None => Ok(index),
        }
    }

    pub(crate) fn first_match(&self, items: &Doc, state: &mut State) -> Option<usize> {
        items
            .values()
            .position(|item| !state.goes_on(1) || self.matches_item(item, state))
    }

    pub(crate) fn matches(&self, value: Option<Value<'_>>, state: &mut State) -> bool {
        match value {
            Some(Value::Array(items)) => self.first_match(items, state).is_some(),
            _ => false,
        }
    }
}

/// Parses the argument of `$elemMatch`, in a filter or a projection.
pub(crate) fn elem_match(context: Context<'_>, argument: Value<'_>) -> Result<ElemMatch> {
    let Value::Document(condition) = argument else {
        return Err(Error::bad_value("$elemMatch needs an Object"));
    };
    let context = context.element()?;
    let is_reference = ["$ref", "$id", "$db"]
        .iter()
        .any(|name| condition.contains_key(name));
    let about_value = condition.first().is_some_and(|(name, _)| {
        name.starts_with('$') && !is_document_operator(name) && !is_reference
    });
    if about_value {
        let field = Field {
            path: &Path::new(""),
            operators: condition,
            context,
        };
        let mut conditions = Vec::new();
        parse_field(&field, &mut conditions)?;
        return Ok(ElemMatch::Value(parse::all_of(conditions)));
    }
    if condition.contains_key("$where") {
        return Err(Error::bad_value(
            "$elemMatch cannot contain $where expression",
        ));
    }
    Ok(ElemMatch::Document(parse_document(condition, context)?))
}

pub(crate) fn parse_elem_match(field: &Field<'_>, argument: Value<'_>) -> Result<Option<Expr>> {
    let condition = elem_match(field.context, argument)?;
    Ok(Some(field.leaf(Op::ElemMatch(Box::new(condition)))))
}

/// `$all` is a conjunction: every listed value, pattern or `$elemMatch` must match.
pub(crate) fn parse_all(field: &Field<'_>, argument: Value<'_>) -> Result<Option<Expr>> {
    let Value::Array(items) = argument else {
        return Err(Error::bad_value("$all needs an array"));
    };
    if items.is_empty() {
        return Ok(Some(Expr::False));
    }
    let elem_match_of = |item: &Value<'_>| match item {
        Value::Document(doc) => doc.first().is_some_and(|(name, _)| name == "$elemMatch"),
        _ => false,
    };
    let conditions_are_elem_match = items
        .values()
        .next()
        .is_some_and(|item| elem_match_of(&item));
    let mut conditions = Vec::new();
    for item in items.values() {
        let op = match item {
            _ if conditions_are_elem_match != elem_match_of(&item) => {
                return Err(if conditions_are_elem_match {
                    Error::bad_value("$all/$elemMatch has to be consistent")
                } else {
                    Error::bad_value("no $ expressions in $all")
                });
            }
            Value::Document(doc) if conditions_are_elem_match => {
                let argument = doc.get("$elemMatch").unwrap_or(Value::Null);
                Op::ElemMatch(Box::new(elem_match(field.context, argument)?))
            }
            Value::Document(doc)
                if doc.first().is_some_and(|(name, _)| is_field_operator(name)) =>
            {
                return Err(Error::bad_value("no $ expressions in $all"));
            }
            item if item.is_regex() => regex::compile(&item)?,
            item => comparison::compare(Relation::Eq, item, field.context.collator)?,
        };
        conditions.push(field.leaf(op));
    }
    Ok(Some(parse::all_of(conditions)))
}

pub(crate) fn parse_size(field: &Field<'_>, argument: Value<'_>) -> Result<Option<Expr>> {
    let size = integer::non_negative_i32("$size", &argument)
        .map_err(|reason| Error::bad_value(format!("Failed to parse $size. {reason}")))?;
    Ok(Some(field.leaf(Op::Size(size))))
}

/// Whether the value is an array of this many elements.
pub(crate) fn has_size(value: Option<Value<'_>>, size: u32) -> bool {
    match value {
        Some(Value::Array(items)) => items.count() == size as usize,
        _ => false,
    }
}
