//! The functions over windows, parsed from `{$sum: "$x", window: {..}}`.

use super::Order;
use super::bounds::Bounds;
use crate::accumulators::{self, Plan};
use crate::expr::unit::Unit;
use crate::expr::{Context, FieldPath, Node, Parser};
use frond_bson::{Decimal128, Doc, OwnedValue, Value};
use frond_error::{Error, Result};

#[derive(Debug)]
pub(super) enum Function {
    /// An accumulator of `$group`.
    Accumulator(&'static str, Plan),
    /// `$covariancePop` and `$covarianceSamp` of a pair.
    Covariance { input: Node, sample: bool },
    /// The number of the document in its partition, or its rank.
    Rank(Rank),
    /// The value of another document at an offset.
    Shift {
        output: Node,
        by: i64,
        default: OwnedValue,
    },
    /// The rate of change of a value between the ends of the window.
    Derivative { input: Node, unit_ms: Option<i64> },
    /// The area below the values of the window.
    Integral { input: Node, unit_ms: Option<i64> },
    /// An exponential moving average.
    ExpMovingAvg { input: Node, alpha: Decimal128 },
    /// Gaps filled by linear interpolation.
    LinearFill(Node),
    /// Gaps filled by the last value before them.
    Locf(Node),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rank {
    /// Every document has its own number.
    Number,
    /// Equal documents have the same rank, with gaps after them.
    Sparse,
    /// Equal documents have the same rank, without gaps.
    Dense,
}

impl Function {
    /// Calls `found` with the paths that the function reads.
    pub(super) fn reads(&self, found: &mut dyn FnMut(String)) {
        if let Function::Accumulator(_, plan) = self
            && let accumulators::Start::Sorted(_) = plan.start
        {
            found(String::new());
        }
        if let Some(input) = self.input() {
            input.fields(&mut |path| found(path.dotted()));
        }
    }

    /// The expression over each document, if there is one.
    pub(super) fn input(&self) -> Option<&Node> {
        match self {
            Function::Accumulator(_, plan) => Some(&plan.input),
            Function::Covariance { input, .. }
            | Function::Derivative { input, .. }
            | Function::Integral { input, .. }
            | Function::ExpMovingAvg { input, .. }
            | Function::LinearFill(input)
            | Function::Locf(input)
            | Function::Shift { output: input, .. } => Some(input),
            Function::Rank(_) => None,
        }
    }
}

/// Accumulators of `$group` that windows have too.
const ACCUMULATORS: &[&str] = &[
    "$addToSet",
    "$avg",
    "$bottom",
    "$bottomN",
    "$count",
    "$first",
    "$firstN",
    "$last",
    "$lastN",
    "$max",
    "$maxN",
    "$median",
    "$min",
    "$minN",
    "$percentile",
    "$push",
    "$stdDevPop",
    "$stdDevSamp",
    "$sum",
    "$top",
    "$topN",
];

/// Functions that only windows have.
const OTHERS: &[&str] = &[
    "$covariancePop",
    "$covarianceSamp",
    "$denseRank",
    "$derivative",
    "$documentNumber",
    "$expMovingAvg",
    "$integral",
    "$linearFill",
    "$locf",
    "$rank",
    "$shift",
];

/// The names of all functions.
pub(crate) fn names() -> Vec<&'static str> {
    ACCUMULATORS.iter().chain(OTHERS).copied().collect()
}

fn is_function(name: &str) -> bool {
    ACCUMULATORS.contains(&name) || OTHERS.contains(&name)
}

/// Reads the specification of one field.
pub(super) fn parse(
    parser: &mut Parser<'_>,
    spec: &Doc,
    order: Option<&Order>,
) -> Result<(Function, Bounds)> {
    let Some((name, argument)) = spec.iter().find(|(name, _)| name.starts_with('$')) else {
        let first = spec
            .first()
            .map_or(String::new(), |(name, _)| format!(", {name}"));
        return Err(Error::failed_to_parse(format!(
            "Expected a $-prefixed window function{first}"
        )));
    };
    let Some(name) = ACCUMULATORS
        .iter()
        .chain(OTHERS)
        .find(|known| **known == name)
    else {
        return Err(Error::failed_to_parse(format!(
            "Unrecognized window function, {name}"
        )));
    };
    let rank = match *name {
        "$rank" => Some(Rank::Sparse),
        "$denseRank" => Some(Rank::Dense),
        "$documentNumber" => Some(Rank::Number),
        _ => None,
    };
    if let Some(rank) = rank {
        return parse_rank(name, rank, spec, argument, order);
    }
    for (other, _) in spec.iter() {
        if other != *name && is_function(other) {
            return Err(Error::failed_to_parse(
                "Cannot specify two functions in window function spec",
            ));
        }
        if other != *name && other != "window" {
            return Err(Error::failed_to_parse(format!(
                "Window function found an unknown argument: {other}"
            )));
        }
    }
    let window = spec.get("window");
    let without_window = || {
        if window.is_some() {
            return Err(Error::failed_to_parse(format!(
                "'window' field is not allowed in {name}"
            )));
        }
        Ok(Bounds::UP_TO_CURRENT)
    };
    let function = match *name {
        "$shift" => {
            let function = parse_shift(parser, argument, order)?;
            return Ok((function, without_window()?));
        }
        "$expMovingAvg" => {
            let function = parse_moving_average(parser, argument, order)?;
            return Ok((function, without_window()?));
        }
        "$locf" => return Ok((Function::Locf(parser.parse(argument)?), without_window()?)),
        "$linearFill" => {
            let input = parser.parse(argument)?;
            let bounds = without_window()?;
            if order.is_none_or(|order| order.only.is_none()) {
                return Err(Error::location(
                    605001,
                    "$linearFill must be specified with a top level sortBy expression with \
                     exactly one element",
                ));
            }
            return Ok((Function::LinearFill(input), bounds));
        }
        "$covariancePop" | "$covarianceSamp" => Function::Covariance {
            input: parser.parse(argument)?,
            sample: *name == "$covarianceSamp",
        },
        "$derivative" | "$integral" => {
            if window.is_none() && *name == "$derivative" {
                // Checked last, so that other errors come first.
                parse_with_unit(parser, name, argument, order)?;
                return Err(Error::failed_to_parse(
                    "$derivative requires explicit window bounds",
                ));
            }
            let (input, unit_ms) = parse_with_unit(parser, name, argument, order)?;
            if *name == "$derivative" {
                Function::Derivative { input, unit_ms }
            } else {
                Function::Integral { input, unit_ms }
            }
        }
        name => {
            let operator = accumulators::find(name)
                .ok_or_else(|| Error::internal(format!("{name} is no accumulator")))?;
            Function::Accumulator(
                operator.name,
                (operator.parse)(parser, operator.name, argument)?,
            )
        }
    };
    let bounds = match window {
        Some(window) => Bounds::parse(parser, window, order)?,
        None => Bounds::ALL,
    };
    Ok((function, bounds))
}

fn parse_rank(
    name: &str,
    rank: Rank,
    spec: &Doc,
    argument: Value<'_>,
    order: Option<&Order>,
) -> Result<(Function, Bounds)> {
    if spec.count() != 1 {
        return Err(Error::location(
            5371601,
            "Rank style window functions take no other arguments",
        ));
    }
    if !matches!(argument, Value::Document(doc) if doc.is_empty()) {
        return Err(Error::location(
            5371603,
            format!("{name} must be specified with '{{}}' as the value"),
        ));
    }
    // A document's number needs an order, of any number of fields.
    let ordered = match rank {
        Rank::Number => order.is_some(),
        _ => order.is_some_and(|order| order.only.is_some()),
    };
    if !ordered {
        return Err(Error::location(
            5371602,
            format!(
                "{name} must be specified with a top level sortBy expression with exactly one \
                 element"
            ),
        ));
    }
    Ok((Function::Rank(rank), Bounds::UP_TO_CURRENT))
}

fn parse_shift(
    parser: &mut Parser<'_>,
    argument: Value<'_>,
    order: Option<&Order>,
) -> Result<Function> {
    let Value::Document(spec) = argument else {
        return Err(Error::failed_to_parse(format!(
            "Argument to $shift must be an object, but found {}",
            argument.type_name()
        )));
    };
    if order.is_none() {
        return Err(Error::failed_to_parse("'$shift' requires a sortBy"));
    }
    let (mut output, mut by, mut default) = (None, None, OwnedValue::Null);
    for (name, value) in spec.iter() {
        match name {
            "output" => output = Some(parser.parse(value)?),
            "by" => {
                let whole = value.as_i64_lossless();
                let whole = whole.filter(|number| i32::try_from(*number).is_ok());
                by = Some(whole.ok_or_else(|| {
                    Error::failed_to_parse(format!(
                        "'$shift:by' field must be an integer, but found {}",
                        crate::display::value(&value)
                    ))
                })?);
            }
            "default" => {
                let node = parser.parse(value)?;
                let mut constant = true;
                node.fields(&mut |_| constant = false);
                if !constant {
                    return Err(Error::failed_to_parse(
                        "'$shift:default' expression must yield a constant value.",
                    ));
                }
                let value = node.evaluate(&Context::new(Doc::empty(), 0))?;
                default = value.into_value().unwrap_or(OwnedValue::Null);
            }
            _ => {
                return Err(Error::failed_to_parse(format!(
                    "Unknown argument in $shift: {name}"
                )));
            }
        }
    }
    let output =
        output.ok_or_else(|| Error::failed_to_parse("$shift requires an 'output' expression."))?;
    let by =
        by.ok_or_else(|| Error::failed_to_parse("$shift requires 'by' as an integer value."))?;
    Ok(Function::Shift {
        output,
        by,
        default,
    })
}

fn parse_moving_average(
    parser: &mut Parser<'_>,
    argument: Value<'_>,
    order: Option<&Order>,
) -> Result<Function> {
    let Value::Document(spec) = argument else {
        return Err(Error::failed_to_parse(
            "$expMovingAvg must have exactly one argument that is an object",
        ));
    };
    let fields = "$expMovingAvg sub object must have exactly two fields: An 'input' field, and \
                  either an 'N' field or an 'alpha' field";
    let (n, alpha) = (spec.get("N"), spec.get("alpha"));
    let Some(input) = spec.get("input").filter(|_| spec.count() == 2) else {
        return Err(Error::failed_to_parse(fields));
    };
    if order.is_none() {
        return Err(Error::failed_to_parse(
            "$expMovingAvg requires an explicit 'sortBy'",
        ));
    }
    let input = parser.parse(input)?;
    let alpha = match (n, alpha) {
        (Some(n), _) => {
            let whole = n.as_i64_lossless().ok_or_else(|| {
                Error::failed_to_parse(format!(
                    "'N' field must be an integer, but found  {}. To use a non-integer, use the \
                     'alpha' argument instead",
                    crate::display::value(&n)
                ))
            })?;
            if whole <= 0 {
                return Err(Error::failed_to_parse(format!(
                    "'N' must be greater than zero. Got {whole}"
                )));
            }
            Decimal128::from(2) / (Decimal128::from(whole) + Decimal128::from(1))
        }
        (_, Some(alpha)) => {
            let is_share = match alpha {
                Value::Decimal128(share) => {
                    let one = Decimal128::from(1);
                    share.compare(Decimal128::ZERO).is_gt() && share.compare(one).is_lt()
                }
                number => {
                    let share = number.as_f64();
                    let share =
                        share.ok_or_else(|| Error::failed_to_parse("'alpha' must be a number"))?;
                    share > 0.0 && share < 1.0
                }
            };
            if !is_share {
                return Err(Error::failed_to_parse(format!(
                    "'alpha' must be between 0 and 1 (exclusive), found {}",
                    crate::display::value(&alpha)
                )));
            }
            super::sliding::decimal(&alpha)
        }
        _ => return Err(Error::failed_to_parse(fields)),
    };
    Ok(Function::ExpMovingAvg { input, alpha })
}

/// `{input: .., unit: ..}`: the input and the milliseconds of the unit.
fn parse_with_unit(
    parser: &mut Parser<'_>,
    name: &str,
    argument: Value<'_>,
    order: Option<&Order>,
) -> Result<(Node, Option<i64>)> {
    match order {
        None => {
            return Err(Error::failed_to_parse(format!("{name} requires a sortBy")));
        }
        Some(order) if order.only.is_none() => {
            return Err(Error::failed_to_parse(format!(
                "{name} requires a non-compound sortBy"
            )));
        }
        Some(_) => {}
    }
    let Value::Document(spec) = argument else {
        return Err(Error::failed_to_parse(format!(
            "{name} expects an object, but got a {}: {}",
            argument.type_name(),
            crate::display::element(name, &argument)
        )));
    };
    let (mut input, mut unit_ms) = (None, None);
    for (field, value) in spec.iter() {
        match (field, value) {
            ("input", value) => input = Some(parser.parse(value)?),
            ("unit", Value::String(text)) => {
                let unit = Unit::named(text).ok_or_else(|| {
                    Error::failed_to_parse(format!("unknown time unit value: {text}"))
                })?;
                unit_ms =
                    Some(unit.millis().ok_or_else(|| {
                        Error::location(5490710, "unit must be 'week' or smaller")
                    })?);
            }
            ("unit", other) => {
                return Err(Error::failed_to_parse(format!(
                    "unit' must be a string, but got {}",
                    other.type_name()
                )));
            }
            _ => {
                return Err(Error::failed_to_parse(format!(
                    "{name} got unexpected argument: {field}"
                )));
            }
        }
    }
    let input = input
        .ok_or_else(|| Error::failed_to_parse(format!("{name} requires an 'input' expression")))?;
    Ok((input, unit_ms))
}

/// The value that documents are sorted by.
pub(super) fn sort_value<'a>(order: &'a FieldPath, doc: &'a Doc) -> Value<'a> {
    match order.value_of(doc) {
        Ok(crate::expr::Val::Ref(value)) => value,
        // Arrays on the way are mapped to new arrays, which no function takes.
        _ => Value::Null,
    }
}
