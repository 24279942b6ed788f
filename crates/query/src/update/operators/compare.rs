//! `$min` and `$max`.

use super::{Change, Modifier, Operator, Target};
use frond_bson::{Collator, OwnedValue};
use frond_error::Result;
use std::cmp::Ordering;

/// `{$min: {<path>: <value>}}`: sets the value if it is less in the order of all types.
pub(super) const MIN: Operator = Operator {
    name: "$min",
    parse: |argument| {
        argument.here(Compare {
            value: argument.value.into(),
            collator: argument.collator.clone(),
            replaces: Ordering::Less,
        })
    },
};

/// `{$max: {<path>: <value>}}`: sets the value if it is greater in the order of all types.
pub(super) const MAX: Operator = Operator {
    name: "$max",
    parse: |argument| {
        argument.here(Compare {
            value: argument.value.into(),
            collator: argument.collator.clone(),
            replaces: Ordering::Greater,
        })
    },
};

#[derive(Debug)]
struct Compare {
    value: OwnedValue,
    collator: Collator,
    /// The order of `value` relative to the present value for which it replaces that one.
    replaces: Ordering,
}

impl Modifier for Compare {
    fn modify<'a>(&'a self, target: &Target<'a>) -> Result<Change<'a>> {
        let value = self.value.as_value();
        match target.value {
            Some(present) if self.collator.compare(&value, &present) != self.replaces => {
                Ok(Change::Keep)
            }
            _ => Ok(Change::Value(value)),
        }
    }
}
