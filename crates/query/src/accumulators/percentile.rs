//! `$median`, `$percentile`.

use super::{Accumulator, Operator, Plan, Start};
use crate::expr::{Context, Parser, Percentiles, Val, percentile_number};
use frond_bson::{OwnedValue, Value};
use frond_error::Result;
use std::sync::Arc;

pub(super) const OPERATORS: &[Operator] = &[
    Operator {
        name: "$median",
        parse: plan,
    },
    Operator {
        name: "$percentile",
        parse: plan,
    },
];

fn plan(parser: &mut Parser<'_>, name: &'static str, argument: Value<'_>) -> Result<Plan> {
    let code = if name == "$median" { 7436100 } else { 7429703 };
    let (input, percentiles) = Percentiles::parse(parser, name, code, argument)?;
    Ok(Plan {
        input: parser.parse(input)?,
        start: Start::Percentiles(Arc::new(percentiles)),
    })
}

/// All numbers of a group.
pub(super) struct Numbers {
    percentiles: Arc<Percentiles>,
    numbers: Vec<f64>,
}

impl Numbers {
    pub(super) fn new(percentiles: Arc<Percentiles>) -> Numbers {
        Numbers {
            percentiles,
            numbers: Vec::new(),
        }
    }
}

impl Accumulator for Numbers {
    fn add(&mut self, value: &Val<'_>, _context: &Context<'_>) -> Result<usize> {
        let Some(number) = percentile_number(value) else {
            return Ok(0);
        };
        self.numbers.push(number);
        Ok(size_of::<f64>())
    }

    fn result(&self) -> Result<Option<OwnedValue>> {
        let mut sorted = self.numbers.clone();
        sorted.sort_by(f64::total_cmp);
        Ok(Some(self.percentiles.of_sorted(&sorted)))
    }
}
