//! `$cmp`, `$eq`, `$ne`, `$gt`, `$gte`, `$lt`, `$lte`: MongoDB's order across all types.

use super::{Operator, two};
use crate::expr::value::Val;
use frond_bson::compare;
use std::cmp::Ordering;

pub(super) const OPERATORS: &[Operator] = &[
    two("$cmp", |a, b| Ok((order(&a, &b) as i32).into())),
    two("$eq", |a, b| Ok(order(&a, &b).is_eq().into())),
    two("$ne", |a, b| Ok(order(&a, &b).is_ne().into())),
    two("$gt", |a, b| Ok(order(&a, &b).is_gt().into())),
    two("$gte", |a, b| Ok(order(&a, &b).is_ge().into())),
    two("$lt", |a, b| Ok(order(&a, &b).is_lt().into())),
    two("$lte", |a, b| Ok(order(&a, &b).is_le().into())),
];

/// The order of values; missing ones go before all others except `MinKey`.
pub(crate) fn order(a: &Val<'_>, b: &Val<'_>) -> Ordering {
    use frond_bson::Value::MinKey;
    match (a.get(), b.get()) {
        (Some(a), Some(b)) => compare(&a, &b),
        (None, None) => Ordering::Equal,
        (None, Some(MinKey)) => Ordering::Greater,
        (Some(MinKey), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Less,
        (Some(_), None) => Ordering::Greater,
    }
}
