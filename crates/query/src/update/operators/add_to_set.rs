//! `$addToSet`.

use super::{Argument, Change, Modifier, Operator, Placed, Target};
use crate::bounded_sort::{dedup_by, sort_by};
use crate::bounds;
use crate::display;
use crate::raw;
use frond_bson::{Collator, Doc, OwnedValue, Value};
use frond_error::{Error, Result};

/// `{$addToSet: {<path>: <value> | {$each: [<value>, ..]}}}`.
pub(super) const ADD_TO_SET: Operator = Operator {
    name: "$addToSet",
    parse,
};

fn parse<'a>(argument: &Argument<'a>) -> Result<Placed<'a>> {
    let mut values: Vec<Value<'_>> = Vec::new();
    match argument.value {
        Value::Document(spec) if spec.first().is_some_and(|(name, _)| name == "$each") => {
            for (name, value) in spec.iter() {
                match (name, value) {
                    ("$each", Value::Array(each)) => {
                        values = distinct(each, argument.collator)?;
                    }
                    ("$each", other) => {
                        return Err(Error::type_mismatch(format!(
                            "The argument to $each in $addToSet must be an array but it was of \
                             type {}",
                            other.type_name()
                        )));
                    }
                    _ => {
                        return Err(Error::bad_value(format!(
                            "Found unexpected fields after $each in $addToSet: {}",
                            display::doc(spec)
                        )));
                    }
                }
            }
        }
        value => values.push(value),
    }
    argument.here(AddToSet {
        collator: argument.collator.clone(),
        values: values.into_iter().map(OwnedValue::from).collect(),
    })
}

/// The elements of an array in their order, the first of equal ones.
fn distinct<'a>(array: &'a Doc, collator: &Collator) -> Result<Vec<Value<'a>>> {
    let mut values: Vec<(usize, Value<'_>)> = array.values().enumerate().collect();
    let bytes = |(_, value): &(usize, Value<'_>)| value.len_bytes();
    sort_by(&mut values, bytes, |a, b| collator.compare(&a.1, &b.1))?;
    dedup_by(&mut values, |a, b| bounds::compare(collator, &a.1, &b.1))?;
    values.sort_unstable_by_key(|(at, _)| *at);
    Ok(values.into_iter().map(|(_, value)| value).collect())
}

#[derive(Debug)]
struct AddToSet {
    collator: Collator,
    values: Vec<OwnedValue>,
}

impl Modifier for AddToSet {
    fn appends(&self) -> bool {
        true
    }

    fn modify<'a>(&'a self, target: &Target<'a>) -> Result<Change<'a>> {
        let present = match target.value {
            None => None,
            Some(Value::Array(array)) => Some(array),
            Some(other) => {
                return Err(Error::bad_value(format!(
                    "Cannot apply $addToSet to non-array field. Field named '{}' has non-array \
                     type {}",
                    target.name,
                    other.type_name()
                )));
            }
        };
        let mut missing: Vec<Value<'_>> = self.values.iter().map(OwnedValue::as_value).collect();
        if let Some(array) = present {
            for value in array.values() {
                if missing.is_empty() {
                    break;
                }
                let longest = missing.iter().map(Value::len_bytes).max().unwrap_or(0);
                for _ in &missing {
                    bounds::work_on(longest.max(value.len_bytes()))?;
                }
                missing.retain(|v| self.collator.compare(v, &value).is_ne());
            }
            if missing.is_empty() {
                return Ok(Change::Keep);
            }
        }
        let array = raw::extended(present.unwrap_or(Doc::empty()), missing.into_iter());
        Ok(Change::Array(array))
    }
}
