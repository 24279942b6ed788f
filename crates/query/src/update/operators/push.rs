//! `$push`, with `$each`, `$position`, `$sort` and `$slice`.

use super::{Argument, Change, Modifier, Operator, Placed, Target};
use crate::bounds;
use crate::display;
use crate::element_order::ElementOrder;
use crate::raw;
use frond_bson::{ArrayBuf, Collator, Doc, OwnedValue, Value};
use frond_error::{Error, Result};

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
            ("$sort", value) => {
                let order = ElementOrder::parse(value);
                push.sort = Some(order.map_err(|fault| Error::bad_value(fault.message()))?);
            }
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

#[derive(Debug, Default)]
struct Push {
    values: Vec<OwnedValue>,
    position: Option<i64>,
    sort: Option<ElementOrder>,
    collator: Collator,
    slice: Option<i64>,
}

impl Push {
    /// The elements that result, for the clauses that do more than append.
    fn arrange<'a>(&'a self, present: &'a Doc) -> Result<Vec<Value<'a>>> {
        let mut values: Vec<Value<'a>> = present.values().collect();
        let at = match self.position {
            None => values.len(),
            Some(at) if at >= 0 => usize::try_from(at).unwrap_or(usize::MAX).min(values.len()),
            Some(from_end) => values.len().saturating_sub(magnitude(from_end)),
        };
        values.splice(at..at, self.values.iter().map(OwnedValue::as_value));
        if let Some(sort) = &self.sort {
            sort.sort(&mut values, &self.collator)?;
        }
        match self.slice {
            None => {}
            Some(first) if first >= 0 => values.truncate(magnitude(first)),
            Some(last) => {
                values.drain(..values.len().saturating_sub(magnitude(last)));
            }
        }
        Ok(values)
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
        let arranged = bounds::releasing(|| self.arrange(present))?;
        let array: ArrayBuf = arranged.into_iter().collect();
        Ok(Change::Array(array.into_docbuf()))
    }
}
