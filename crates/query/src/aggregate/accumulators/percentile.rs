//! `$median`, `$percentile`.

use super::{Accumulator, Operator, Plan, Start};
use crate::aggregate::options::{Options, Type};
use crate::error::{Error, Result};
use crate::expr::{Context, Parser, Val};
use frond_bson::{ArrayBuf, Doc, OwnedValue, Value};
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

/// Which percentiles are wanted.
#[derive(Debug)]
pub(crate) struct Percentiles {
    shares: Vec<f64>,
    /// One result in place of an array.
    single: bool,
}

fn plan(parser: &mut Parser<'_>, name: &'static str, argument: Value<'_>) -> Result<Plan> {
    let code = if name == "$median" { 7436100 } else { 7429703 };
    let (input, percentiles) = Percentiles::parse(parser, name, code, argument)?;
    Ok(Plan {
        input: parser.parse(input)?,
        start: Start::Percentiles(Arc::new(percentiles)),
    })
}

impl Percentiles {
    /// Reads the argument. Gives the input, which is not parsed yet. `code` is for what is no document.
    pub(crate) fn parse<'v>(
        parser: &mut Parser<'_>,
        name: &'static str,
        code: i32,
        argument: Value<'v>,
    ) -> Result<(Value<'v>, Percentiles)> {
        let Value::Document(spec) = argument else {
            return Err(Error::location(
                code,
                format!(
                    "specification must be an object; found {name}: {}",
                    crate::display::value(&argument)
                ),
            ));
        };
        let single = name == "$median";
        let options = Options::new(name, spec);
        options.only(if single {
            &["input", "method"]
        } else {
            &["p", "input", "method"]
        })?;
        let input = options.required("input", Type::Any)?;
        let method = options.required("method", Type::String)?;
        if method.as_str() != Some("approximate") {
            return Err(Error::bad_value(
                "Currently only 'approximate' can be used as percentile 'method'.",
            ));
        }
        let shares = if single {
            vec![0.5]
        } else {
            shares(parser, options.required("p", Type::Any)?)?
        };
        Ok((input, Percentiles { shares, single }))
    }

    /// The percentiles of numbers in order: those that are at least as great as the wanted share of
    /// all numbers.
    pub(crate) fn of_sorted(&self, sorted: &[f64]) -> OwnedValue {
        let at = |share: &f64| {
            let rank = (share * sorted.len() as f64).ceil() as usize;
            let last = sorted.len().checked_sub(1)?;
            sorted.get(rank.saturating_sub(1).min(last)).copied()
        };
        let value = |share: &f64| at(share).map_or(OwnedValue::Null, OwnedValue::Double);
        if self.single {
            return self.shares.first().map_or(OwnedValue::Null, value);
        }
        let all: Vec<OwnedValue> = self.shares.iter().map(value).collect();
        all.iter().collect::<ArrayBuf>().into()
    }
}

/// The numbers of `p`, which have to be constants.
fn shares(parser: &mut Parser<'_>, p: Value<'_>) -> Result<Vec<f64>> {
    let node = parser.parse(p)?;
    let mut constant = true;
    node.fields(&mut |_| constant = false);
    if !constant {
        return Err(Error::location(
            7750300,
            format!(
                "The $percentile 'p' field must be an array of constant values, but found value: {}.",
                crate::display::value(&p)
            ),
        ));
    }
    let value = node.eval(&Context::new(Doc::empty(), 0))?;
    let array = value.as_array().filter(|array| !array.is_empty());
    let array = array.ok_or_else(|| {
        Error::location(
            7750301,
            format!(
                "The $percentile 'p' field must be an array of numbers from [0.0, 1.0] range, but \
                 found: {}.",
                crate::display::value(&value.or_null())
            ),
        )
    })?;
    let share = |value: Value<'_>| {
        let Some(share) = value.as_f64() else {
            return Err(Error::location(
                7750302,
                format!(
                    "The $percentile 'p' field must be an array of numbers from [0.0, 1.0] range, \
                     but found: {}.",
                    crate::display::value(&value)
                ),
            ));
        };
        if (0.0..=1.0).contains(&share) {
            return Ok(share);
        }
        Err(Error::location(
            7750303,
            format!(
                "The $percentile 'p' field must be an array of numbers from [0.0, 1.0] range, but \
                 found: {share}."
            ),
        ))
    };
    array.values().map(share).collect()
}

/// The number that takes part in percentiles.
pub(crate) fn number(value: &Val<'_>) -> Option<f64> {
    let number = value.get().and_then(|value| value.as_f64());
    number.filter(|number| !number.is_nan())
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
        let Some(number) = number(value) else {
            return Ok(0);
        };
        self.numbers.push(number);
        Ok(size_of::<f64>())
    }

    fn result(&self) -> Option<OwnedValue> {
        let mut sorted = self.numbers.clone();
        sorted.sort_by(f64::total_cmp);
        Some(self.percentiles.of_sorted(&sorted))
    }
}
