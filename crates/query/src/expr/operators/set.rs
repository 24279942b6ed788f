//! Sets: arrays compared without order and repetition.

use super::{Arguments, Entry, collated, one};
use crate::bounded_sort::{dedup_by, sort_by, sort_values};
use crate::bounds;
use crate::expr::value::Val;
use frond_bson::{Collator, Value};
use frond_error::{Error, Result};
use std::cmp::Ordering;

pub(super) const OPERATORS: &[Entry] = &[
    collated("$setUnion", 0, Arguments::MANY, union),
    collated("$setIntersection", 0, Arguments::MANY, intersection),
    collated("$setDifference", 2, 2, difference),
    collated("$setEquals", 2, Arguments::MANY, equals),
    collated("$setIsSubset", 2, 2, is_subset),
    one("$allElementsTrue", |v| {
        Ok(elements_of("$allElementsTrue", 17040, &v)?
            .iter()
            .all(Value::truthy)
            .into())
    }),
    one("$anyElementTrue", |v| {
        Ok(elements_of("$anyElementTrue", 17041, &v)?
            .iter()
            .any(Value::truthy)
            .into())
    }),
];

/// The elements in order, each once.
fn sorted<'v>(mut values: Vec<Value<'v>>, collator: &Collator) -> Result<Vec<Value<'v>>> {
    sort_values(&mut values, |a, b| collator.compare(a, b))?;
    dedup_by(&mut values, |a, b| bounds::compare(collator, a, b))?;
    Ok(values)
}

fn has(sorted: &[Value<'_>], value: &Value<'_>, collator: &Collator) -> Result<bool> {
    let (mut from, mut to) = (0, sorted.len());
    while let Some(middle) = sorted
        .get(from..to)
        .and_then(|part| part.get(part.len() / 2))
    {
        match bounds::compare(collator, middle, value)? {
            Ordering::Equal => return Ok(true),
            Ordering::Less => from += (to - from) / 2 + 1,
            Ordering::Greater => to = from + (to - from) / 2,
        }
    }
    Ok(false)
}

fn elements_of<'v>(operator: &str, code: i32, value: &'v Val<'_>) -> Result<Vec<Value<'v>>> {
    match value.as_array() {
        Some(array) => bounds::elements_of(array),
        None => Err(Error::location(
            code,
            format!(
                "{operator}'s argument must be an array, but is {}",
                value.type_name()
            ),
        )),
    }
}

/// As [`elements_of`], with the message of the operators on several arrays.
fn operand<'v>(operator: &str, code: i32, value: &'v Val<'_>) -> Result<Vec<Value<'v>>> {
    match value.as_array() {
        Some(array) => bounds::elements_of(array),
        None => Err(Error::location(
            code,
            format!(
                "All operands of {operator} must be arrays. One argument is of type: {}",
                value.type_name()
            ),
        )),
    }
}

fn union<'a>(values: &[Val<'a>], collator: &Collator) -> Result<Val<'a>> {
    let mut all = Vec::new();
    for value in values {
        if value.is_nullish() {
            return Ok(Val::NULL);
        }
        let more = operand("$setUnion", 17043, value)?;
        if all.is_empty() {
            all = more;
        } else {
            // The list may double.
            bounds::reserve_list::<[Value<'_>; 2]>(more.len())?;
            all.extend(more);
        }
    }
    Ok(Val::array(bounds::array_of(sorted(all, collator)?)?))
}

fn intersection<'a>(values: &[Val<'a>], collator: &Collator) -> Result<Val<'a>> {
    let mut common: Option<Vec<Value<'_>>> = None;
    for value in values {
        if value.is_nullish() {
            return Ok(Val::NULL);
        }
        let next = sorted(operand("$setIntersection", 17047, value)?, collator)?;
        common = Some(match common {
            None => next,
            Some(before) => {
                let mut both = Vec::with_capacity(before.len().min(next.len()));
                for value in before {
                    if has(&next, &value, collator)? {
                        both.push(value);
                    }
                }
                both
            }
        });
    }
    Ok(Val::array(bounds::array_of(common.unwrap_or_default())?))
}

fn difference<'a>(values: &[Val<'a>], collator: &Collator) -> Result<Val<'a>> {
    let [a, b] = values else {
        return Ok(Val::NULL);
    };
    if a.is_nullish() || b.is_nullish() {
        return Ok(Val::NULL);
    }
    let part = |value: &'_ Val<'_>, code: i32, which: &str| match value.as_array() {
        Some(_) => Ok(()),
        None => Err(Error::location(
            code,
            format!(
                "both operands of $setDifference must be arrays. {which} argument is of type: {}",
                value.type_name()
            ),
        )),
    };
    part(a, 17048, "First")?;
    part(b, 17049, "Second")?;
    let excluded = sorted(operand("$setDifference", 17049, b)?, collator)?;
    let elements = operand("$setDifference", 17048, a)?;
    bounds::reserve_list::<(usize, Value<'_>)>(elements.len())?;
    let mut left: Vec<(usize, Value<'_>)> = Vec::with_capacity(elements.len());
    for (at, value) in elements.into_iter().enumerate() {
        if !has(&excluded, &value, collator)? {
            left.push((at, value));
        }
    }
    // Of equal ones the first stays, and they keep the order of the first array.
    let bytes = |(_, value): &(usize, Value<'_>)| value.len_bytes();
    sort_by(&mut left, bytes, |a, b| collator.compare(&a.1, &b.1))?;
    dedup_by(&mut left, |a, b| bounds::compare(collator, &a.1, &b.1))?;
    left.sort_unstable_by_key(|(at, _)| *at);
    let left = left.into_iter().map(|(_, value)| value);
    Ok(Val::array(bounds::array_of(left)?))
}

fn equals<'a>(values: &[Val<'a>], collator: &Collator) -> Result<Val<'a>> {
    let mut first: Option<Vec<Value<'_>>> = None;
    let mut equal = true;
    for value in values {
        let next = sorted(operand("$setEquals", 17044, value)?, collator)?;
        match &first {
            None => first = Some(next),
            Some(first) => {
                equal &= first.len() == next.len();
                for (a, b) in first.iter().zip(&next) {
                    equal = equal && bounds::compare(collator, a, b)?.is_eq();
                }
            }
        }
    }
    Ok(equal.into())
}

fn is_subset<'a>(values: &[Val<'a>], collator: &Collator) -> Result<Val<'a>> {
    let [a, b] = values else {
        return Ok(Val::NULL);
    };
    let part = operand("$setIsSubset", 17046, a)?;
    let whole = sorted(operand("$setIsSubset", 17042, b)?, collator)?;
    for value in &part {
        if !has(&whole, value, collator)? {
            return Ok(false.into());
        }
    }
    Ok(true.into())
}
