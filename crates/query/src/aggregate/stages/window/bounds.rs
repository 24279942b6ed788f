//! The bounds of windows.

use super::Order;
use crate::expr::unit::Unit;
use crate::expr::zone::Zone;
use crate::expr::{Context, Parser};
use crate::number::Number;
use frond_bson::{Doc, OwnedValue, Value, compare};
use frond_error::{Error, Result};

/// The bounds of a window.
#[derive(Clone, Debug)]
pub(super) enum Bounds {
    /// By position: offsets from the current document.
    Documents { lower: End<i64>, upper: End<i64> },
    /// By the value of the sort field: offsets from that of the current document.
    Range {
        lower: End<OwnedValue>,
        upper: End<OwnedValue>,
        unit: Option<Unit>,
    },
}

/// One end of a window.
#[derive(Clone, Debug)]
pub(super) enum End<T> {
    Unbounded,
    At(T),
}

impl Bounds {
    pub(super) const ALL: Bounds = Bounds::Documents {
        lower: End::Unbounded,
        upper: End::Unbounded,
    };
    /// Everything up to the current document.
    pub(super) const UP_TO_CURRENT: Bounds = Bounds::Documents {
        lower: End::Unbounded,
        upper: End::At(0),
    };

    /// Whether documents never leave the window.
    pub(super) fn only_grows(&self) -> bool {
        match self {
            Bounds::Documents { lower, .. } => matches!(lower, End::Unbounded),
            Bounds::Range { lower, .. } => matches!(lower, End::Unbounded),
        }
    }

    /// Reads `{documents: [..]}` or `{range: [..], unit: ..}`.
    pub(super) fn parse(
        parser: &mut Parser<'_>,
        value: Value<'_>,
        order: Option<&Order>,
    ) -> Result<Bounds> {
        let Value::Document(spec) = value else {
            return Err(Error::failed_to_parse("'window' field must be an object"));
        };
        let (documents, range, unit) = (spec.get("documents"), spec.get("range"), spec.get("unit"));
        let fields = spec.count();
        match (documents, range) {
            (Some(_), Some(_)) => Err(Error::failed_to_parse(
                "Window bounds can specify either 'documents' or 'unit', not both.",
            )),
            (_, None) if unit.is_some() => Err(Error::failed_to_parse(
                "Window bounds can only specify 'unit' with range-based bounds.",
            )),
            (None, None) if fields == 0 => Ok(Bounds::ALL),
            (None, None) => Err(Error::failed_to_parse(
                "'window' field can only contain 'documents' as the only argument or 'range' with \
                 an optional 'unit' field",
            )),
            (Some(_), None) if fields > 1 => Err(Error::failed_to_parse(
                "'window' field that specifies documents cannot have other fields",
            )),
            (Some(ends), None) => parse_documents(parser, ends, order),
            (None, Some(ends)) => {
                if fields != 1 + usize::from(unit.is_some()) {
                    return Err(Error::failed_to_parse(
                        "'window' field that specifies range cannot have other fields besides \
                         'unit'",
                    ));
                }
                parse_range(parser, ends, unit, order)
            }
        }
    }
}

fn two<'v>(ends: Value<'v>) -> Result<(Value<'v>, Value<'v>)> {
    let values: Vec<Value<'v>> = match ends {
        Value::Array(array) => array.values().collect(),
        _ => Vec::new(),
    };
    match *values {
        [lower, upper] => Ok((lower, upper)),
        _ => Err(Error::failed_to_parse(format!(
            "Window bounds must be a 2-element array: {}",
            crate::display::value(&ends)
        ))),
    }
}

fn end<T>(
    parser: &mut Parser<'_>,
    value: Value<'_>,
    current: T,
    read: impl FnOnce(Value<'_>) -> Result<T>,
) -> Result<End<T>> {
    match value {
        Value::String("unbounded") => Ok(End::Unbounded),
        Value::String("current") => Ok(End::At(current)),
        Value::String(_) => Err(Error::failed_to_parse(
            "Window bounds must be 'unbounded', 'current', or a number.",
        )),
        other => {
            let node = parser.parse(other)?;
            let mut constant = true;
            node.fields(&mut |_| constant = false);
            if !constant {
                return Err(Error::failed_to_parse(
                    "Window bounds expression must be a constant.",
                ));
            }
            let value = node.evaluate(&Context::new(Doc::empty(), 0))?;
            read(value.or_null()).map(End::At)
        }
    }
}

fn reversed(lower: &Value<'_>, upper: &Value<'_>) -> Error {
    Error::location(
        5339900,
        format!(
            "Lower bound must not exceed upper bound: [{}, {}]",
            crate::display::value(lower),
            crate::display::value(upper)
        ),
    )
}

fn parse_documents(
    parser: &mut Parser<'_>,
    ends: Value<'_>,
    order: Option<&Order>,
) -> Result<Bounds> {
    let (lower, upper) = two(ends)?;
    let whole = |value: Value<'_>| {
        value
            .as_i64_lossless()
            .filter(|number| i32::try_from(*number).is_ok())
            .ok_or_else(|| {
                Error::failed_to_parse("Numeric document-based bounds must be an integer")
            })
    };
    let lower = end(parser, lower, 0, whole)?;
    let upper = end(parser, upper, 0, whole)?;
    if let (End::At(lower), End::At(upper)) = (&lower, &upper)
        && lower > upper
    {
        return Err(reversed(&Value::Int64(*lower), &Value::Int64(*upper)));
    }
    if order.is_none() && !matches!((&lower, &upper), (End::Unbounded, End::Unbounded)) {
        return Err(Error::location(
            5339901,
            "Document-based bounds require a sortBy",
        ));
    }
    Ok(Bounds::Documents { lower, upper })
}

fn parse_range(
    parser: &mut Parser<'_>,
    ends: Value<'_>,
    unit: Option<Value<'_>>,
    order: Option<&Order>,
) -> Result<Bounds> {
    let (lower, upper) = two(ends)?;
    let unit =
        match unit {
            None => None,
            Some(Value::String(name)) => Some(Unit::named(name).ok_or_else(|| {
                Error::failed_to_parse(format!("unknown time unit value: {name}"))
            })?),
            Some(_) => return Err(Error::failed_to_parse("'unit' must be a string")),
        };
    let number = |value: Value<'_>| match unit {
        Some(_) if value.as_i64_lossless().is_none() => Err(Error::failed_to_parse(
            "With 'unit', range-based bounds must be an integer",
        )),
        None if !value.is_number() => Err(Error::failed_to_parse(
            "Range-based bounds expression must be a number",
        )),
        _ => Ok(value.to_owned()),
    };
    let lower = end(parser, lower, OwnedValue::Int32(0), number)?;
    let upper = end(parser, upper, OwnedValue::Int32(0), number)?;
    if let (End::At(lower), End::At(upper)) = (&lower, &upper)
        && compare(&lower.as_value(), &upper.as_value()).is_gt()
    {
        return Err(reversed(&lower.as_value(), &upper.as_value()));
    }
    let Some(order) = order.filter(|order| order.only.is_some()) else {
        return Err(Error::location(
            5339902,
            "Range-based bounds require sortBy a single field",
        ));
    };
    if !order.ascending {
        return Err(Error::location(
            8947401,
            "Range-based bounds require an ascending sortBy",
        ));
    }
    Ok(Bounds::Range { lower, upper, unit })
}

/// The value that is `by` above another one. Errors for values that ranges are not made of.
pub(super) fn shifted(
    value: &Value<'_>,
    by: &OwnedValue,
    unit: Option<Unit>,
) -> Result<OwnedValue> {
    match (value, unit) {
        (Value::DateTime(ms), Some(unit)) => {
            let amount = by.as_value().as_i64_lossless().unwrap_or(0);
            Ok(OwnedValue::DateTime(unit.add(*ms, amount, &Zone::UTC)?))
        }
        (other, Some(_)) => Err(Error::location(
            5429513,
            format!(
                "Invalid range: Expected the sortBy field to be a Date, but it was {}",
                other.type_name()
            ),
        )),
        (Value::DateTime(_), None) => Err(Error::location(
            5429413,
            "For windows that involve date or time ranges, a unit must be provided.",
        )),
        (number, None) => match (
            Number::from_value(number),
            Number::from_value(&by.as_value()),
        ) {
            (Some(number), Some(by)) => Ok(Value::from(number.add(by)).to_owned()),
            _ => Err(Error::location(
                5429414,
                format!(
                    "Invalid range: Expected the sortBy field to be a number, but it was {}",
                    number.type_name()
                ),
            )),
        },
    }
}
