//! `$cmp`, `$eq`, `$ne`, `$gt`, `$gte`, `$lt`, `$lte`: MongoDB's order across all types.

use super::{Entry, collated};
use crate::expr::value::Val;
use frond_bson::Collator;
use frond_error::Result;
use std::cmp::Ordering;

pub(super) const OPERATORS: &[Entry] = &[
    collated("$cmp", 2, 2, |v, c| Ok((ordering(v, c) as i32).into())),
    collated("$eq", 2, 2, |v, c| holds(v, c, Ordering::is_eq)),
    collated("$ne", 2, 2, |v, c| holds(v, c, Ordering::is_ne)),
    collated("$gt", 2, 2, |v, c| holds(v, c, Ordering::is_gt)),
    collated("$gte", 2, 2, |v, c| holds(v, c, Ordering::is_ge)),
    collated("$lt", 2, 2, |v, c| holds(v, c, Ordering::is_lt)),
    collated("$lte", 2, 2, |v, c| holds(v, c, Ordering::is_le)),
];

fn ordering(values: &[Val<'_>], collator: &Collator) -> Ordering {
    match values {
        [a, b] => order(a, b, collator),
        _ => Ordering::Equal,
    }
}

fn holds<'a>(
    values: &[Val<'_>],
    collator: &Collator,
    relation: fn(Ordering) -> bool,
) -> Result<Val<'a>> {
    Ok(relation(ordering(values, collator)).into())
}

/// The order of values; missing ones go before all others except `MinKey`.
pub(crate) fn order(a: &Val<'_>, b: &Val<'_>, collator: &Collator) -> Ordering {
    use frond_bson::Value::{MinKey, Undefined};
    match (a.get(), b.get()) {
        (Some(a), Some(b)) => collator.compare(&a, &b),
        (None, None | Some(Undefined)) | (Some(Undefined), None) => Ordering::Equal,
        (None, Some(MinKey)) => Ordering::Greater,
        (Some(MinKey), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Less,
        (Some(_), None) => Ordering::Greater,
    }
}
