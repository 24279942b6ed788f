//! `$in` and `$nin`.

use frond_bson::{Collator, OwnedValue, Value};

use super::super::parse::{Field, operators_of};
use super::super::state::State;
use super::super::{Expr, Op};
use super::regex;
use crate::pattern::Pattern;
use frond_error::{Error, Result};

/// The values and regular expressions of an `$in`.
#[derive(Clone, Debug)]
pub struct InSet {
    /// Sorted by MongoDB's order and the collator, without repetition.
    values: Vec<OwnedValue>,
    patterns: Vec<Pattern>,
    has_null: bool,
    collator: Collator,
}

impl InSet {
    /// The values in MongoDB's order, each once.
    pub fn values(&self) -> &[OwnedValue] {
        &self.values
    }

    /// The regular expressions, as listed.
    pub fn patterns(&self) -> &[Pattern] {
        &self.patterns
    }

    pub fn collator(&self) -> &Collator {
        &self.collator
    }

    /// Whether null is listed: then missing fields match.
    pub fn has_null(&self) -> bool {
        self.has_null
    }

    pub(crate) fn matches(&self, value: Option<Value<'_>>, state: &mut State) -> bool {
        let Some(value) = value else {
            return self.has_null;
        };
        self.values
            .binary_search_by(|known| self.collator.compare(&known.as_value(), &value))
            .is_ok()
            || self
                .patterns
                .iter()
                .any(|pattern| regex::matches(pattern, Some(value), state))
    }
}

fn parse_set(name: &str, argument: Value<'_>, collator: &Collator) -> Result<Op> {
    let Value::Array(items) = argument else {
        return Err(Error::bad_value(format!("{name} needs an array")));
    };
    let mut set = InSet {
        values: Vec::new(),
        patterns: Vec::new(),
        has_null: false,
        collator: collator.clone(),
    };
    for item in items.values() {
        match item {
            item if item.is_regex() => set.patterns.push(Pattern::from_value(&item)?),
            Value::Undefined => return Err(Error::bad_value("cannot compare to undefined")),
            _ if operators_of(&item).is_some() => {
                return Err(Error::bad_value("cannot nest $ under $in"));
            }
            _ => {
                set.has_null |= matches!(item, Value::Null);
                set.values.push(item.to_owned());
            }
        }
    }
    set.values
        .sort_by(|a, b| collator.compare(&a.as_value(), &b.as_value()));
    set.values
        .dedup_by(|a, b| collator.compare(&a.as_value(), &b.as_value()).is_eq());
    Ok(Op::In(set))
}

pub(crate) fn parse_in(field: &Field<'_>, argument: Value<'_>) -> Result<Option<Expr>> {
    Ok(Some(field.leaf(parse_set(
        "$in",
        argument,
        field.context.collator,
    )?)))
}

pub(crate) fn parse_nin(field: &Field<'_>, argument: Value<'_>) -> Result<Option<Expr>> {
    Ok(Some(field.not(parse_set(
        "$nin",
        argument,
        field.context.collator,
    )?)))
}
