//! `$median`, `$percentile` of the numbers in an array.

use super::{Entry, Eval, Operator, custom};
use crate::bounded_sort::sort_by;
use crate::bounds;
use crate::expr::node::{Context, CustomOperator, Node};
use crate::expr::parse::Parser;
use crate::expr::value::Val;
use crate::options::{Options, Type};
use frond_bson::{ArrayBuf, Doc, OwnedValue, Value};
use frond_error::{Error, Result};

pub(super) const OPERATORS: &[Entry] = &[
    custom("$median", parse, Eval::Never),
    custom("$percentile", parse, Eval::Never),
];

#[derive(Debug)]
pub(crate) struct Percentiles {
    shares: Vec<f64>,
    /// One result in place of an array.
    single: bool,
}

impl Percentiles {
    /// Parses the argument. Returns the input, which is not parsed yet. `code` is the error for an argument other than a document.
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

    /// The percentiles of sorted numbers: the least number that is not below the given share of
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
                crate::display::computed(&value.or_null())
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

/// A value as a number for percentiles; NaN is ignored.
pub(crate) fn number(value: &Val<'_>) -> Option<f64> {
    let number = value.get().and_then(|value| value.as_f64());
    number.filter(|number| !number.is_nan())
}

fn parse(
    parser: &mut Parser<'_>,
    operator: &'static Operator,
    argument: Value<'_>,
) -> Result<Node> {
    let (input, percentiles) = Percentiles::parse(parser, operator.name, 7436200, argument)?;
    Ok(Node::Custom(Box::new(Percentile {
        input: parser.parse(input)?,
        percentiles,
    })))
}

#[derive(Debug)]
struct Percentile {
    input: Node,
    percentiles: Percentiles,
}

impl CustomOperator for Percentile {
    fn eval<'a>(&'a self, context: &Context<'a>) -> Result<Val<'a>> {
        let input = self.input.eval(context)?;
        let mut numbers: Vec<f64> = match input.as_array() {
            Some(array) => {
                let count = array.count();
                bounds::reserve_list::<f64>(count)?;
                let mut numbers = Vec::with_capacity(count);
                numbers.extend(array.values().filter_map(|value| number(&Val::Ref(value))));
                numbers
            }
            None => number(&input).into_iter().collect(),
        };
        sort_by(&mut numbers, |_| size_of::<f64>(), f64::total_cmp)?;
        Ok(Val::Owned(self.percentiles.of_sorted(&numbers)))
    }

    fn visit(&self, visit: &mut dyn FnMut(&Node)) {
        visit(&self.input);
    }
}
