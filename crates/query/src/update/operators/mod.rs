//! The update operators: one file each, and the table that names them.

mod add_to_set;
mod arithmetic;
mod bit;
mod compare;
mod current_date;
mod pop;
mod pull;
mod push;
mod rename;
mod set;
mod unset;

use super::ApplyContext;
use crate::number::Number;
use frond_bson::{Collator, Doc, DocBuf, Value};
use frond_error::Result;
use std::fmt::Debug;
use std::sync::Arc;

/// One update operator: its name and how its argument becomes modifiers.
pub(crate) struct Operator {
    pub(crate) name: &'static str,
    /// Reads `{<name>: {<path>: <value>}}`.
    pub(crate) parse: for<'a> fn(&Argument<'a>) -> Result<Placed<'a>>,
}

/// Every update operator, by name.
pub(crate) const OPERATORS: &[&Operator] = &[
    &add_to_set::ADD_TO_SET,
    &arithmetic::INC,
    &arithmetic::MUL,
    &bit::BIT,
    &compare::MAX,
    &compare::MIN,
    &current_date::CURRENT_DATE,
    &pop::POP,
    &pull::PULL,
    &pull::PULL_ALL,
    &push::PUSH,
    &rename::RENAME,
    &set::SET,
    &set::SET_ON_INSERT,
    &unset::UNSET,
];

/// The operator with this name.
pub(crate) fn find(name: &str) -> Option<&'static Operator> {
    OPERATORS.iter().find(|o| o.name == name).copied()
}

/// `{<operator>: {<path>: <value>}}`.
pub(crate) struct Argument<'a> {
    pub(crate) path: &'a str,
    pub(crate) value: Value<'a>,
    /// Collator of the operators that compare values.
    pub(crate) collator: &'a Collator,
}

/// Modifiers, one or two, and the paths they work on.
pub(crate) type Placed<'a> = [Option<(&'a str, Arc<dyn Modifier>)>; 2];

impl<'a> Argument<'a> {
    /// The usual result of `parse`: one modifier at the path that the user wrote.
    fn here(&self, modifier: impl Modifier + 'static) -> Result<Placed<'a>> {
        Ok([Some((self.path, Arc::new(modifier))), None])
    }
}

/// Transformation of the value at a path.
pub(crate) trait Modifier: Debug + Send + Sync {
    /// The change to a field; `target.value` is `None` where it is missing.
    fn modify<'a>(&'a self, target: &Target<'a>) -> Result<Change<'a>>;

    /// Whether a missing field, and the documents that lead to it, would be created.
    fn creates(&self, _scope: &Scope<'_>) -> bool {
        true
    }

    /// Whether it is an error if a scalar is in the way of a missing field, although the field would
    /// not be created.
    fn needs_way(&self) -> bool {
        false
    }

    /// The amount that `$inc` adds.
    fn increment(&self) -> Option<Number> {
        None
    }

    /// Whether it adds elements to an array.
    fn appends(&self) -> bool {
        false
    }
}

/// The document that an update is applied to, before any change.
#[derive(Debug)]
pub(crate) struct Scope<'a> {
    pub(crate) root: &'a Doc,
    pub(crate) context: &'a ApplyContext,
}

/// The field that a modifier works on.
#[derive(Debug)]
pub(crate) struct Target<'a> {
    pub(crate) scope: &'a Scope<'a>,
    /// The path as the user wrote it.
    pub(crate) path: &'a str,
    /// The name of the field itself.
    pub(crate) name: &'a str,
    pub(crate) value: Option<Value<'a>>,
}

/// The result of an operator for a field. Writing the value that it already has counts as no change.
#[derive(Debug)]
pub(crate) enum Change<'a> {
    /// The field stays as it is, even if missing.
    Keep,
    /// The field is removed; an array element becomes null.
    Remove,
    /// The field gets this value.
    Value(Value<'a>),
    /// The field becomes an array that the modifier built.
    Array(DocBuf),
}

/// The names of the update operators.
pub(crate) fn names() -> Vec<&'static str> {
    OPERATORS.iter().map(|operator| operator.name).collect()
}
