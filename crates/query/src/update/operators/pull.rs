//! `$pull` and `$pullAll`.

use super::{Argument, Change, Modifier, Operator, Placed, Scope, Target};
use crate::bounds;
use crate::matcher::Filter;
use frond_bson::{ArrayBuf, Collator, Doc, DocBuf, OwnedValue, Value};
use frond_error::{Error, Result};
use std::fmt;

/// `{$pull: {<path>: <value> | <condition>}}`: removes the elements that equal or match.
pub(super) const PULL: Operator = Operator {
    name: "$pull",
    parse: parse_pull,
};

/// `{$pullAll: {<path>: [<value>, ..]}}`: removes the elements that equal one of the values.
pub(super) const PULL_ALL: Operator = Operator {
    name: "$pullAll",
    parse: parse_pull_all,
};

/// The field that stands for the element in a condition on the element itself.
const ELEMENT: &str = "element";

/// Conditions that are about a document's fields although their name begins with `$`.
const DOCUMENT_CONDITIONS: [&str; 9] = [
    "$and",
    "$or",
    "$nor",
    "$expr",
    "$where",
    "$text",
    "$comment",
    "$jsonSchema",
    "$sampleRate",
];

fn parse_pull<'a>(argument: &Argument<'a>) -> Result<Placed<'a>> {
    let parse = |filter: &Doc| Filter::parse_collated(filter, argument.collator);
    let condition = match argument.value {
        Value::Document(spec) => match spec.first() {
            Some((name, _)) if name.starts_with('$') && !DOCUMENT_CONDITIONS.contains(&name) => {
                let mut wrapped = DocBuf::new();
                wrapped.push(ELEMENT, spec);
                Condition::Element(parse(&wrapped)?)
            }
            _ => Condition::Fields(parse(spec)?),
        },
        value if value.is_regex() => {
            let mut wrapped = DocBuf::new();
            wrapped.push(ELEMENT, value);
            Condition::Element(parse(&wrapped)?)
        }
        value => Condition::Equals(vec![value.into()], argument.collator.clone()),
    };
    argument.here(Pull {
        name: "$pull",
        condition,
    })
}

fn parse_pull_all<'a>(argument: &Argument<'a>) -> Result<Placed<'a>> {
    let Value::Array(values) = argument.value else {
        return Err(Error::bad_value(format!(
            "$pullAll requires an array argument but was given a {}",
            argument.value.type_name()
        )));
    };
    argument.here(Pull {
        name: "$pullAll",
        condition: Condition::Equals(
            values.values().map(OwnedValue::from).collect(),
            argument.collator.clone(),
        ),
    })
}

/// Which elements are removed.
enum Condition {
    /// Those equal to one of the values.
    Equals(Vec<OwnedValue>, Collator),
    /// Documents whose fields match.
    Fields(Filter),
    /// Elements that match as the value of [`ELEMENT`].
    Element(Filter),
}

impl Condition {
    fn takes(&self, value: &Value<'_>) -> Result<bool> {
        match self {
            Condition::Equals(values, collator) => {
                for one in values {
                    if bounds::compare(collator, &one.as_value(), value)?.is_eq() {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Condition::Fields(filter) => match value {
                Value::Document(doc) => filter.try_matches(doc),
                _ => Ok(false),
            },
            Condition::Element(filter) => {
                let mut wrapped = DocBuf::new();
                wrapped.push_value(ELEMENT, value);
                filter.try_matches(&wrapped)
            }
        }
    }
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Condition::Equals(..) => "Equals",
            Condition::Fields(_) => "Fields",
            Condition::Element(_) => "Element",
        })
    }
}

#[derive(Debug)]
struct Pull {
    name: &'static str,
    condition: Condition,
}

impl Modifier for Pull {
    fn modify<'a>(&'a self, target: &Target<'a>) -> Result<Change<'a>> {
        let array: &Doc = match target.value {
            None => return Ok(Change::Keep),
            Some(Value::Array(array)) => array,
            Some(_) => {
                return Err(Error::bad_value(format!(
                    "Cannot apply {} to a non-array value",
                    self.name
                )));
            }
        };
        // Mostly no element is removed; then no array is built.
        let mut kept: Option<ArrayBuf> = None;
        for (at, value) in array.values().enumerate() {
            match (self.condition.takes(&value)?, &mut kept) {
                (true, None) => kept = Some(array.values().take(at).collect()),
                (false, Some(kept)) => kept.push_value(&value),
                (true, Some(_)) | (false, None) => {}
            }
        }
        Ok(kept.map_or(Change::Keep, |kept| Change::Array(kept.into_docbuf())))
    }

    fn creates(&self, _scope: &Scope<'_>) -> bool {
        false
    }

    fn needs_way(&self) -> bool {
        true
    }
}
