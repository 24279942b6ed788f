//! Sets: arrays compared without order and repetition.

use super::{Arguments, Operator, collated, one};
use crate::expr::value::Val;
use frond_bson::{ArrayBuf, Collator, Value};
use frond_error::{Error, Result};

pub(super) const OPERATORS: &[Operator] = &[
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
fn sorted<'v>(mut values: Vec<Value<'v>>, collator: &Collator) -> Vec<Value<'v>> {
    values.sort_by(|a, b| collator.compare(a, b));
    values.dedup_by(|a, b| collator.compare(a, b).is_eq());
    values
}

fn has(sorted: &[Value<'_>], value: &Value<'_>, collator: &Collator) -> bool {
    (sorted.binary_search_by(|v| collator.compare(v, value))).is_ok()
}

fn elements_of<'v>(operator: &str, code: i32, value: &'v Val<'_>) -> Result<Vec<Value<'v>>> {
    match value.as_array() {
        Some(array) => Ok(array.values().collect()),
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
        Some(array) => Ok(array.values().collect()),
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
        all.extend(operand("$setUnion", 17043, value)?);
    }
    Ok(Val::array(sorted(all, collator).into_iter().collect()))
}

fn intersection<'a>(values: &[Val<'a>], collator: &Collator) -> Result<Val<'a>> {
    let mut common: Option<Vec<Value<'_>>> = None;
    for value in values {
        if value.is_nullish() {
            return Ok(Val::NULL);
        }
        let next = sorted(operand("$setIntersection", 17047, value)?, collator);
        common = Some(match common {
            None => next,
            Some(mut before) => {
                before.retain(|v| has(&next, v, collator));
                before
            }
        });
    }
    Ok(Val::array(common.unwrap_or_default().into_iter().collect()))
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
    let excluded = sorted(operand("$setDifference", 17049, b)?, collator);
    let mut seen: Vec<Value<'_>> = Vec::new();
    let mut left = ArrayBuf::new();
    // The first array keeps its order.
    for value in operand("$setDifference", 17048, a)? {
        if has(&excluded, &value, collator) {
            continue;
        }
        if let Err(at) = seen.binary_search_by(|v| collator.compare(v, &value)) {
            seen.insert(at, value);
            left.push_value(&value);
        }
    }
    Ok(Val::array(left))
}

fn equals<'a>(values: &[Val<'a>], collator: &Collator) -> Result<Val<'a>> {
    let mut first: Option<Vec<Value<'_>>> = None;
    let mut equal = true;
    for value in values {
        let next = sorted(operand("$setEquals", 17044, value)?, collator);
        match &first {
            None => first = Some(next),
            Some(first) => {
                equal &= first.len() == next.len()
                    && (first.iter().zip(&next)).all(|(a, b)| collator.compare(a, b).is_eq());
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
    let whole = sorted(operand("$setIsSubset", 17042, b)?, collator);
    Ok(part.iter().all(|v| has(&whole, v, collator)).into())
}
