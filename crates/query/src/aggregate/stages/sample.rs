//! `$sample`: some documents, chosen at random.

use super::Stage;
use crate::aggregate::ParseContext;
use crate::aggregate::exec::{Blocking, ExecContext, Fault, Memory, Source};
use crate::error::{Error, Result};
use frond_bson::{DocBuf, Value};

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

pub(super) fn open<E: Fault>(size: u64, input: Source<E>, context: &ExecContext<E>) -> Source<E> {
    let mut memory = Memory::new("$sample", context.memory_bytes_max);
    let mut random = Random(context.seed);
    Box::new(Blocking::new(input, move |mut input: Source<E>| {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let mut kept: Vec<DocBuf> = Vec::new();
        let mut seen: u64 = 0;
        // Reservoir sampling (Vitter's algorithm R): each document stays with the same chance.
        while let Some(doc) = input.next()? {
            seen += 1;
            if kept.len() < size {
                memory.add(doc.len_bytes())?;
                kept.push(doc);
                continue;
            }
            let at = usize::try_from(random.below(seen)).unwrap_or(usize::MAX);
            if let Some(slot) = kept.get_mut(at) {
                memory.sub(slot.len_bytes());
                memory.add(doc.len_bytes())?;
                *slot = doc;
            }
        }
        // The reservoir is partly in input order.
        for at in (1..kept.len()).rev() {
            let other = usize::try_from(random.below(at as u64 + 1)).unwrap_or(at);
            kept.swap(at, other);
        }
        Ok(kept)
    }))
}

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not zero.
    fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }
}
