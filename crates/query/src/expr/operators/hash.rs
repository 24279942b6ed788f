//! `$toHashedIndexKey`.

use frond_bson::Value;

use super::{Operator, one};
use crate::hash::hash64;

pub(super) const OPERATORS: &[Operator] = &[one("$toHashedIndexKey", |value| {
    // A missing field is hashed as null, as in a hashed index.
    Ok(Value::Int64(hash64(value.get().unwrap_or(Value::Null))).into())
})];
