//! `$set` and `$setOnInsert`.

use super::{Change, Modifier, Operator, Scope, Target};
use frond_bson::OwnedValue;
use frond_error::Result;

/// `{$set: {<path>: <value>}}`.
pub(super) const SET: Operator = Operator {
    name: "$set",
    parse: |argument| {
        argument.here(Set {
            value: argument.value.into(),
            only_on_insert: false,
        })
    },
};

/// `{$setOnInsert: {<path>: <value>}}`: like `$set`, when an upsert inserts.
pub(super) const SET_ON_INSERT: Operator = Operator {
    name: "$setOnInsert",
    parse: |argument| {
        argument.here(Set {
            value: argument.value.into(),
            only_on_insert: true,
        })
    },
};

#[derive(Debug)]
struct Set {
    value: OwnedValue,
    only_on_insert: bool,
}

impl Modifier for Set {
    fn modify<'a>(&'a self, target: &Target<'a>) -> Result<Change<'a>> {
        if !self.creates(target.scope) {
            return Ok(Change::Keep);
        }
        Ok(Change::Value(self.value.as_value()))
    }

    fn creates(&self, scope: &Scope<'_>) -> bool {
        !self.only_on_insert || scope.context.is_upsert_insert
    }
}
