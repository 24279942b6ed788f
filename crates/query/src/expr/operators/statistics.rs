//! `$sum`, `$avg`, `$min`, `$max` and deviations over the arguments, or over one array.

use super::{Arguments, Entry, collated, each_operand, many};
use crate::bounds;
use crate::expr::value::Val;
use crate::statistics::{Average, StdDev, Sum};
use frond_bson::{Collator, Value};
use frond_error::Result;
use std::cmp::Ordering;

pub(super) const OPERATORS: &[Entry] = &[
    many("$sum", 0, Arguments::MANY, |arguments| {
        let mut sum = Sum::default();
        each_operand(arguments, |v| {
            sum.add(&v);
        });
        Ok(sum.total().into())
    }),
    many("$avg", 0, Arguments::MANY, |arguments| {
        let mut average = Average::default();
        each_operand(arguments, |v| average.add(&v));
        Ok(average.result().map_or(Val::NULL, Val::from))
    }),
    collated("$min", 0, Arguments::MANY, |a, c| {
        extreme(a, Ordering::Less, c)
    }),
    collated("$max", 0, Arguments::MANY, |a, c| {
        extreme(a, Ordering::Greater, c)
    }),
    many("$stdDevPop", 0, Arguments::MANY, |a| {
        Ok(deviation(a).population().map_or(Val::NULL, Val::from))
    }),
    many("$stdDevSamp", 0, Arguments::MANY, |a| {
        Ok(deviation(a).sample().map_or(Val::NULL, Val::from))
    }),
];

fn deviation(arguments: &[Val<'_>]) -> StdDev {
    let mut deviation = StdDev::default();
    each_operand(arguments, |v| deviation.add(&v));
    deviation
}

fn extreme<'a>(arguments: &[Val<'a>], wanted: Ordering, collator: &Collator) -> Result<Val<'a>> {
    let mut best: Option<Value<'_>> = None;
    let mut outcome = Ok(());
    each_operand(arguments, |value| {
        if value.is_nullish() || outcome.is_err() {
            return;
        }
        let order = best.map(|best| bounds::compare(collator, &value, &best));
        match order.transpose() {
            Ok(Some(order)) if order != wanted => {}
            Ok(_) => best = Some(value),
            Err(failure) => outcome = Err(failure),
        }
    });
    outcome?;
    best.map_or(Ok(Val::NULL), Val::copy_of)
}
