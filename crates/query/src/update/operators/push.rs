//! `$push`, with `$each`, `$position`, `$sort` and `$slice`.

use super::{Argument, Change, Modifier, Operator, Placed, Target};
use crate::display;
use crate::raw;
use frond_bson::{ArrayBuf, Collator, Doc, OwnedValue, Value};
use frond_error::{Error, Result};
use std::cmp::Ordering;

/// `{$push: {<path>: <value> | {$each: [..], $position: n, $sort: .., $slice: n}}}`.
pub(super) const PUSH: Operator = Operator {
    name: "$push",
    parse,
};

fn parse<'a>(argument: &Argument<'a>) -> Result<Placed<'a>> {
    let spec = match argument.value {
        Value::Document(spec) if spec.contains_key("$each") => spec,
        value => {
            return argument.here(Push {
                values: vec![value.into()],
                ..Push::default()
            });
        }
    };
    let mut push = Push {
        collator: argument.collator.clone(),
        ..Push::default()
    };
    for (name, value) in spec.iter() {
        match (name, value) {
            ("$each", Value::Array(each)) => {
                push.values = each.values().map(OwnedValue::from).collect();
            }
            ("$each", other) => {
                return Err(Error::bad_value(format!(
                    "The argument to $each in $push must be an array but it was of type: {}",
                    other.type_name()
                )));
            }
            ("$slice", value) => {
                push.slice = Some(value.as_i64_lossless().ok_or_else(|| {
                    Error::bad_value(format!(
                        "The value for $slice must be an integer value but was given type: {}",
                        value.type_name()
                    ))
                })?);
            }
            ("$position", value) => {
                push.position = Some(value.as_i64_lossless().ok_or_else(|| {
                    Error::bad_value(format!(
                        "The value for $position must be an integer value, not of type: {}",
                        value.type_name()
                    ))
                })?);
            }
            ("$sort", value) => push.sort = Some(parse_sort(value)?),
            _ => {
                return Err(Error::bad_value(format!(
                    "Unrecognized clause in $push: {}",
                    display::element(name, &value)
                )));
            }
        }
    }
    argument.here(push)
}

/// The order of `$sort`: by the elements themselves, or by some of their fields.
#[derive(Debug)]
enum Sort {
    Whole { descending: bool },
    Fields(Vec<(String, bool)>),
}

/// Whether 1 or -1 is written; other values are refused.
fn is_descending(value: &Value<'_>) -> Option<bool> {
    match value.as_f64() {
        Some(1.0) => Some(false),
        Some(-1.0) => Some(true),
        _ => None,
    }
}

fn parse_sort(value: Value<'_>) -> Result<Sort> {
    let fields = match value {
        Value::Document(fields) => fields,
        value if value.is_number() => {
            let descending = is_descending(&value).ok_or_else(|| {
                Error::bad_value("The $sort element value must be either 1 or -1")
            })?;
            return Ok(Sort::Whole { descending });
        }
        _ => {
            return Err(Error::bad_value(
                "The $sort is invalid: use 1/-1 to sort the whole element, or {field:1/-1} to \
                 sort embedded fields",
            ));
        }
    };
    let mut parsed = Vec::new();
    for (path, direction) in fields.iter() {
        if path.is_empty() {
            return Err(Error::bad_value("The $sort field cannot be empty"));
        }
        if path.split('.').any(str::is_empty) {
            return Err(Error::bad_value(format!(
                "The $sort field is a dotted field but has an empty part: {path}"
            )));
        }
        let descending = is_descending(&direction)
            .ok_or_else(|| Error::bad_value("The $sort element value must be either 1 or -1"))?;
        parsed.push((path.to_owned(), descending));
    }
    if parsed.is_empty() {
        return Err(Error::bad_value(
            "The $sort pattern is empty when it should be a set of fields.",
        ));
    }
    Ok(Sort::Fields(parsed))
}

impl Sort {
    fn compare(&self, a: &Value<'_>, b: &Value<'_>, collator: &Collator) -> Ordering {
        let directed = |order: Ordering, descending: bool| {
            if descending { order.reverse() } else { order }
        };
        match self {
            Sort::Whole { descending } => directed(collator.compare(a, b), *descending),
            Sort::Fields(fields) => (fields.iter())
                .map(|(path, descending)| {
                    let order = collator.compare(&field(a, path), &field(b, path));
                    directed(order, *descending)
                })
                .find(|order| order.is_ne())
                .unwrap_or(Ordering::Equal),
        }
    }
}

/// What an element is sorted by; null if it has no such field.
fn field<'a>(element: &Value<'a>, path: &str) -> Value<'a> {
    match element {
        Value::Document(doc) => frond_bson::path::get_path(doc, path).unwrap_or(Value::Null),
        _ => Value::Null,
    }
}

#[derive(Debug, Default)]
struct Push {
    values: Vec<OwnedValue>,
    position: Option<i64>,
    sort: Option<Sort>,
    /// How `sort` compares strings.
    collator: Collator,
    slice: Option<i64>,
}

impl Push {
    /// The elements that result, for the clauses that do more than append.
    fn arrange<'a>(&'a self, present: &'a Doc) -> Vec<Value<'a>> {
        let mut values: Vec<Value<'a>> = present.values().collect();
        let at = match self.position {
            None => values.len(),
            Some(at) if at >= 0 => usize::try_from(at).unwrap_or(usize::MAX).min(values.len()),
            Some(from_end) => values.len().saturating_sub(magnitude(from_end)),
        };
        values.splice(at..at, self.values.iter().map(OwnedValue::as_value));
        if let Some(sort) = &self.sort {
            values.sort_by(|a, b| sort.compare(a, b, &self.collator));
        }
        match self.slice {
            None => {}
            Some(first) if first >= 0 => values.truncate(magnitude(first)),
            Some(last) => {
                values.drain(..values.len().saturating_sub(magnitude(last)));
            }
        }
        values
    }
}

fn magnitude(number: i64) -> usize {
    usize::try_from(number.unsigned_abs()).unwrap_or(usize::MAX)
}

impl Modifier for Push {
    fn appends(&self) -> bool {
        true
    }

    fn modify<'a>(&'a self, target: &Target<'a>) -> Result<Change<'a>> {
        let present = match target.value {
            None => Doc::empty(),
            Some(Value::Array(array)) => array,
            Some(other) => {
                return Err(Error::bad_value(format!(
                    "The field '{}' must be an array but is of type {} in document {}",
                    target.path,
                    other.type_name(),
                    display::id(target.scope.root)
                )));
            }
        };
        let appends = self.position.is_none() && self.sort.is_none() && self.slice.is_none();
        if appends {
            let values = self.values.iter().map(OwnedValue::as_value);
            return Ok(Change::Array(raw::extended(present, values)));
        }
        let array: ArrayBuf = self.arrange(present).into_iter().collect();
        Ok(Change::Array(array.into_docbuf()))
    }
}
