//! `$eq`, `$ne`, `$lt`, `$lte`, `$gt`, `$gte` and implicit equality.

use std::cmp::Ordering;

use frond_bson::{Collator, OwnedValue, Value, canonical_class};

use super::super::parse::Field;
use super::super::{Expr, Op};
use frond_error::{Error, Result};

/// Required order between a value and the operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// Equal: `$eq`.
    Eq,
    /// Less: `$lt`.
    Lt,
    /// Less or equal: `$lte`.
    Lte,
    /// Greater: `$gt`.
    Gt,
    /// Greater or equal: `$gte`.
    Gte,
}

impl Relation {
    fn holds(self, ordering: Ordering) -> bool {
        match self {
            Relation::Eq => ordering.is_eq(),
            Relation::Lt => ordering.is_lt(),
            Relation::Lte => ordering.is_le(),
            Relation::Gt => ordering.is_gt(),
            Relation::Gte => ordering.is_ge(),
        }
    }

    /// Whether the relation includes equality.
    pub fn includes_equal(self) -> bool {
        self.holds(Ordering::Equal)
    }
}

/// A comparison with a constant.
#[derive(Clone, Debug)]
pub struct Comparison {
    relation: Relation,
    operand: OwnedValue,
    collator: Collator,
}

impl Comparison {
    /// The comparison with a constant.
    pub(crate) fn new(relation: Relation, operand: Value<'_>, collator: &Collator) -> Comparison {
        Comparison {
            relation,
            operand: operand.to_owned(),
            collator: collator.clone(),
        }
    }

    pub fn relation(&self) -> Relation {
        self.relation
    }

    pub fn value(&self) -> Value<'_> {
        self.operand.as_value()
    }

    pub fn collator(&self) -> &Collator {
        &self.collator
    }

    /// Values of other types than the operand's do not match, with MongoDB's exceptions: null
    /// equals missing, though not undefined (as of MongoDB 8.0), and every other value is between MinKey
    /// and MaxKey. NaN equals NaN and is neither less nor greater than any number.
    pub(crate) fn matches(&self, value: Option<Value<'_>>) -> bool {
        let operand = self.operand.as_value();
        let is_missing = value.is_none();
        let value = value.unwrap_or(Value::Undefined);
        if canonical_class(value.type_code()) != canonical_class(operand.type_code()) {
            return match (value, operand) {
                (_, Value::Null) => is_missing && self.relation.includes_equal(),
                (_, Value::MinKey) => matches!(self.relation, Relation::Gt | Relation::Gte),
                (_, Value::MaxKey) => matches!(self.relation, Relation::Lt | Relation::Lte),
                _ => false,
            };
        }
        if value.is_nan() || operand.is_nan() {
            return value.is_nan() && operand.is_nan() && self.relation.includes_equal();
        }
        self.relation.holds(self.collator.compare(&value, &operand))
    }
}

/// The condition that a value compares so with `operand`.
pub(crate) fn compare(relation: Relation, operand: Value<'_>, collator: &Collator) -> Result<Op> {
    if matches!(operand, Value::Undefined) {
        return Err(Error::bad_value("cannot compare to undefined"));
    }
    Ok(Op::Compare(Comparison::new(relation, operand, collator)))
}

pub(crate) fn parse_eq(field: &Field<'_>, operand: Value<'_>) -> Result<Option<Expr>> {
    let op = compare(Relation::Eq, operand, field.context.collator)?;
    Ok(Some(field.leaf(op)))
}

pub(crate) fn parse_ne(field: &Field<'_>, operand: Value<'_>) -> Result<Option<Expr>> {
    if operand.is_regex() {
        return Err(Error::bad_value("Can't have regex as arg to $ne."));
    }
    let op = compare(Relation::Eq, operand, field.context.collator)?;
    Ok(Some(field.not(op)))
}

pub(crate) fn parse_lt(field: &Field<'_>, operand: Value<'_>) -> Result<Option<Expr>> {
    inequality(field, Relation::Lt, operand)
}

pub(crate) fn parse_lte(field: &Field<'_>, operand: Value<'_>) -> Result<Option<Expr>> {
    inequality(field, Relation::Lte, operand)
}

pub(crate) fn parse_gt(field: &Field<'_>, operand: Value<'_>) -> Result<Option<Expr>> {
    inequality(field, Relation::Gt, operand)
}

pub(crate) fn parse_gte(field: &Field<'_>, operand: Value<'_>) -> Result<Option<Expr>> {
    inequality(field, Relation::Gte, operand)
}

fn inequality(field: &Field<'_>, relation: Relation, operand: Value<'_>) -> Result<Option<Expr>> {
    if operand.is_regex() {
        return Err(Error::bad_value(format!(
            "Can't have RegEx as arg to predicate over field '{}'.",
            field.path
        )));
    }
    let op = compare(relation, operand, field.context.collator)?;
    Ok(Some(field.leaf(op)))
}
