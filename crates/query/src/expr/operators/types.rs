//! `$type`, `$isNumber`.

use super::{Entry, one};
use crate::expr::value::Val;

pub(super) const OPERATORS: &[Entry] = &[
    one("$type", |value| Ok(Val::string(value.type_name()))),
    one("$isNumber", |value| {
        Ok(value.get().is_some_and(|v| v.is_number()).into())
    }),
];
