//! Dates as text: `$dateToString`, `$dateFromString`.

use super::date::{moment, zone};
use super::{Arguments, Entry, lazy};
use crate::bounds;
use crate::expr::calendar::Civil;
use crate::expr::date_parse::{MONTHS, check_format, parse, parse_by};
use crate::expr::node::{Context, Node};
use crate::expr::parse::{optional, required};
use crate::expr::value::Val;
use frond_bson::Value;
use frond_error::{Error, ErrorCode, Result};
use std::fmt::Write;

pub(super) const OPERATORS: &[Entry] = &[
    lazy(
        "$dateToString",
        Arguments::Named(&[
            required("date"),
            optional("format"),
            optional("timezone"),
            optional("onNull"),
        ]),
        to_string,
    ),
    lazy(
        "$dateFromString",
        Arguments::Named(&[
            required("dateString"),
            optional("format"),
            optional("timezone"),
            optional("onError"),
            optional("onNull"),
        ]),
        from_string,
    ),
];

/// Letters of the formats of `$dateToString`.
const WRITTEN: &str = "YmdHMSLjwuUVGBbZz%";
/// Letters of the formats of `$dateFromString`.
const READ: &str = "YmdHMSLjuVGBbZz%";

/// The format, checked; `None` if it is null, an empty one if there is none.
fn checked_format<'v>(
    operator: &str,
    code: i32,
    value: &'v Val<'_>,
    letters: &str,
) -> Result<Option<&'v str>> {
    match value.get() {
        None => Ok(Some("")),
        Some(Value::Null | Value::Undefined) => Ok(None),
        Some(Value::String(format)) => {
            check_format(format, letters)?;
            Ok(Some(format))
        }
        Some(other) => Err(Error::location(
            code,
            format!(
                "{operator} requires that 'format' be a string, found: {} with value {}",
                other.type_name(),
                crate::display::computed(&other)
            ),
        )),
    }
}

fn to_string<'a>(nodes: &'a [Node], context: &Context<'a>) -> Result<Val<'a>> {
    let [date, format_node, timezone, on_null] = nodes else {
        return Ok(Val::NULL);
    };
    let date = date.eval(context)?;
    let format_value = format_node.eval_given(context)?;
    let format = checked_format("$dateToString", 18533, &format_value, WRITTEN)?;
    let zone = zone(&timezone.eval_given(context)?)?;
    if date.is_nullish() {
        return if on_null.is_absent() {
            Ok(Val::NULL)
        } else {
            on_null.eval(context)
        };
    }
    // Null arguments go before dates that are none.
    let (Some(format), Some(zone)) = (format, zone) else {
        return Ok(Val::NULL);
    };
    let Some(moment) = moment(&date)? else {
        return Ok(Val::NULL);
    };
    let format = match format {
        _ if !format_node.is_absent() => format,
        _ if zone.is_utc() => "%Y-%m-%dT%H:%M:%S.%LZ",
        _ => "%Y-%m-%dT%H:%M:%S.%L",
    };
    write(format, zone.local(moment)?, zone.offset_at(moment)).map(Val::string)
}

/// Writes local time by a format.
fn write(format: &str, ms: i64, offset: i64) -> Result<String> {
    let c = Civil::at(ms);
    if !(0..=9999).contains(&c.year) {
        return Err(Error::location(
            18537,
            format!(
                "Could not convert date to string: date component was outside the supported range \
                 of 0-9999: {}",
                c.year
            ),
        ));
    }
    // A letter and its sign become nine characters at most.
    let bytes = 5 * format.len();
    bounds::reserve_value(bytes)?;
    let mut out = String::with_capacity(bytes);
    let mut chars = format.chars();
    while let Some(letter) = chars.next() {
        if letter != '%' {
            out.push(letter);
            continue;
        }
        // Writing to a String cannot fail.
        let _ = match chars.next() {
            Some('%') => write!(out, "%"),
            Some('Y') => write!(out, "{:04}", c.year),
            Some('m') => write!(out, "{:02}", c.month),
            Some('d') => write!(out, "{:02}", c.day),
            Some('H') => write!(out, "{:02}", c.hour),
            Some('M') => write!(out, "{:02}", c.minute),
            Some('S') => write!(out, "{:02}", c.second),
            Some('L') => write!(out, "{:03}", c.millisecond),
            Some('j') => write!(out, "{:03}", c.day_of_year()),
            Some('w') => write!(out, "{}", c.weekday() + 1),
            Some('u') => write!(out, "{}", c.iso_weekday()),
            Some('U') => write!(out, "{:02}", c.week()),
            Some('V') => write!(out, "{:02}", c.iso_week().1),
            Some('G') => write!(out, "{:04}", c.iso_week().0),
            Some('B') => write!(out, "{}", month_name(c.month)),
            Some('b') => write!(out, "{}", month_name(c.month).get(..3).unwrap_or_default()),
            Some('Z') => write!(out, "{}", offset / 60_000),
            Some('z') => {
                let minutes = (offset / 60_000).abs();
                let sign = if offset < 0 { '-' } else { '+' };
                write!(out, "{sign}{:02}{:02}", minutes / 60, minutes % 60)
            }
            // Formats are checked before.
            _ => Ok(()),
        };
    }
    Ok(out)
}

fn month_name(month: i64) -> &'static str {
    let at = usize::try_from(month - 1).unwrap_or(0);
    MONTHS.get(at).copied().unwrap_or_default()
}

fn from_string<'a>(nodes: &'a [Node], context: &Context<'a>) -> Result<Val<'a>> {
    let [text, format_node, timezone, on_error, on_null] = nodes else {
        return Ok(Val::NULL);
    };
    let text = text.eval(context)?;
    let format_value = format_node.eval_given(context)?;
    let format = checked_format("$dateFromString", 40684, &format_value, READ)?;
    let zone = zone(&timezone.eval_given(context)?)?;
    if text.is_nullish() {
        return if on_null.is_absent() {
            Ok(Val::NULL)
        } else {
            on_null.eval(context)
        };
    }
    let value = text.or_null();
    bounds::reserve(3 * value.len_bytes())?;
    let characters = value.characters().filter(|_| value.is_string());
    let parsed = match (characters, zone, format) {
        (Some(_), None, _) | (Some(_), _, None) => return Ok(Val::NULL),
        (Some(text), Some(zone), Some(format)) => {
            if format_node.is_absent() {
                parse(&text, &zone)
            } else {
                parse_by(&text, format, &zone)
            }
        }
        (None, ..) => Err(Error::new(
            ErrorCode::ConversionFailure,
            format!(
                "$dateFromString requires that 'dateString' be a string, found: {} with value {}",
                value.type_name(),
                crate::display::computed(&value)
            ),
        )),
    };
    match parsed {
        Ok(ms) => Ok(Val::Ref(Value::DateTime(ms))),
        Err(_) if !on_error.is_absent() => on_error.eval(context),
        Err(error) => Err(error),
    }
}
