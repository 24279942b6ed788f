//! `$toHashedIndexKey`.

use frond_bson::Value;

use super::{Entry, one};
use crate::hash::hash64;

pub(super) const OPERATORS: &[Entry] = &[one("$toHashedIndexKey", |value| {
    // A missing field is hashed as null, as in a hashed index.
    Ok(Value::Int64(hash64(value.get().unwrap_or(Value::Null))).into())
})];
