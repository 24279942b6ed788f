//! `$sample`: some documents, chosen at random.

use super::Stage;
use crate::aggregate::ParseContext;
use crate::aggregate::exec::{Deferred, ExecContext, Fault, InOrder, Source};
use crate::random::Random;
use crate::spill::Sorter;
use frond_bson::Value;
use frond_error::{Error, Result};

pub(super) fn parse(
    argument: Value<'_>,
    _context: &ParseContext<'_>,
    out: &mut Vec<Stage>,
) -> Result<()> {
    let Value::Document(spec) = argument else {
        return Err(Error::location(
            28745,
            "the $sample stage specification must be an object",
        ));
    };
    let mut size = None;
    for (name, value) in spec.iter() {
        if name != "size" {
            return Err(Error::location(
                28748,
                format!("unrecognized option to $sample: {name}"),
            ));
        }
        let Some(number) = value.as_f64() else {
            return Err(Error::location(
                28746,
                "size argument to $sample must be a number",
            ));
        };
        if number < 1.0 {
            return Err(Error::location(
                28747,
                "size argument to $sample must be a positive integer",
            ));
        }
        size = Some(number as u64);
    }
    let size = size.ok_or_else(|| Error::location(28749, "$sample stage must specify a size"))?;
    out.push(Stage::Sample(size));
    Ok(())
}

/// The documents in the order of random numbers, as many as are wanted.
pub(super) fn open<E: Fault>(size: u64, input: Source<E>, context: &ExecContext<E>) -> Source<E> {
    let budget = context.budget("$sample", context.limits.sort);
    let random = Random::seeded(context.seed);
    Box::new(Deferred::new(input, move |mut input: Source<E>| {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let mut sorter = Sorter::new(budget, Some(size));
        while let Some(doc) = input.next()? {
            let key = random.next().to_be_bytes();
            if sorter.wants(&key) {
                sorter.push(key.to_vec(), doc)?;
            }
        }
        drop(input);
        Ok(Box::new(InOrder::new(sorter.finish()?)) as Source<E>)
    }))
}
