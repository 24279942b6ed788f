//! Dates as text: `$dateToString`, `$dateFromString`.

use super::date::{local, moment, offset, zone};
use super::{Arguments, Operator, lazy};
use crate::error::{Error, ErrorCode, Result};
use crate::expr::calendar::{Civil, iso_days, month_days};
use crate::expr::node::{Context, Node};
use crate::expr::parse::{optional, required};
use crate::expr::value::Val;
use frond_bson::Value;
use std::fmt::Write;

pub(super) const OPERATORS: &[Operator] = &[
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

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

fn to_string<'a>(nodes: &'a [Node], context: &Context<'a>) -> Result<Val<'a>> {
    let [date, format, timezone, on_null] = nodes else {
        return Ok(Val::NULL);
    };
    let given_zone = timezone.eval(context)?;
    let format_value = format.eval(context)?;
    let offset = zone(&given_zone)?;
    let moment = moment(&date.eval(context)?)?;
    let format = match format_value.get() {
        None if given_zone.is_missing() || offset == Some(0) => "%Y-%m-%dT%H:%M:%S.%LZ",
        None => "%Y-%m-%dT%H:%M:%S.%L",
        Some(Value::Null | Value::Undefined) => return Ok(Val::NULL),
        Some(Value::String(format)) => format,
        Some(other) => {
            return Err(Error::location(
                18533,
                format!(
                    "$dateToString requires that 'format' be a string, found: {} with value {}",
                    other.type_name(),
                    crate::display::value(&other)
                ),
            ));
        }
    };
    let Some(moment) = moment else {
        return if on_null.is_absent() {
            Ok(Val::NULL)
        } else {
            on_null.eval(context)
        };
    };
    let Some(offset) = offset else {
        return Ok(Val::NULL);
    };
    write(format, local(moment, offset)?, offset).map(Val::string)
}

/// Writes local time by a format.
fn write(format: &str, ms: i64, offset: i64) -> Result<String> {
    let c = Civil::at(ms);
    if !(0..=9999).contains(&c.year) {
        return Err(Error::location(
            18537,
            format!(
                "$dateToString is only defined on year 0-9999, tried to use year {}",
                c.year
            ),
        ));
    }
    let mut out = String::new();
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
            Some(other) => {
                return Err(Error::location(
                    18536,
                    format!("Invalid format character '%{other}' in format string"),
                ));
            }
            None => {
                return Err(Error::location(
                    18535,
                    "Unmatched '%' at end of format string",
                ));
            }
        };
    }
    Ok(out)
}

fn month_name(month: i64) -> &'static str {
    let at = usize::try_from(month - 1).unwrap_or(0);
    MONTHS.get(at).copied().unwrap_or_default()
}

fn from_string<'a>(nodes: &'a [Node], context: &Context<'a>) -> Result<Val<'a>> {
    let [text, format, timezone, on_error, on_null] = nodes else {
        return Ok(Val::NULL);
    };
    let text = text.eval(context)?;
    if text.is_nullish() {
        return if on_null.is_absent() {
            Ok(Val::NULL)
        } else {
            on_null.eval(context)
        };
    }
    let format = format.eval(context)?;
    let Some(zone) = (match timezone.eval(context)? {
        Val::Missing => Some(None),
        given => zone(&given)?.map(Some),
    }) else {
        return Ok(Val::NULL);
    };
    let parsed = match (text.or_null(), format.get()) {
        (_, Some(Value::Null | Value::Undefined)) => return Ok(Val::NULL),
        (Value::String(text), None) => parse_iso(text, zone),
        (Value::String(text), Some(Value::String(format))) => parse_format(text, format, zone),
        (Value::String(_), Some(other)) => {
            return Err(Error::location(
                40684,
                format!(
                    "$dateFromString requires that 'format' be a string, found: {} with value {}",
                    other.type_name(),
                    crate::display::value(&other)
                ),
            ));
        }
        (other, _) => Err(Error::new(
            ErrorCode::ConversionFailure,
            format!(
                "$dateFromString requires that 'dateString' be a string, found: {} with value {}",
                other.type_name(),
                crate::display::value(&other)
            ),
        )),
    };
    match parsed {
        Ok(ms) => Ok(Val::Ref(Value::DateTime(ms))),
        Err(_) if !on_error.is_absent() => on_error.eval(context),
        Err(error) => Err(error),
    }
}

fn bad_date(text: &str, why: &str) -> Error {
    Error::new(
        ErrorCode::ConversionFailure,
        format!("Error parsing date string '{text}'; {why}"),
    )
}

/// Reads digits from the front of a text.
fn digits<'t>(text: &mut &'t str, least: usize, most: usize) -> Option<&'t str> {
    let count = text
        .bytes()
        .take(most)
        .take_while(u8::is_ascii_digit)
        .count();
    if count < least {
        return None;
    }
    let (number, rest) = text.split_at(count);
    *text = rest;
    Some(number)
}

fn number(text: &mut &str, least: usize, most: usize) -> Option<i64> {
    digits(text, least, most)?.parse().ok()
}

fn eat(text: &mut &str, letters: &[char]) -> bool {
    match text.strip_prefix(letters) {
        Some(rest) => {
            *text = rest;
            true
        }
        None => false,
    }
}

/// Reads milliseconds from a fraction of a second of any length.
fn fraction(text: &mut &str) -> Option<i64> {
    let all = digits(text, 1, 9)?;
    let three: String = all.chars().chain("000".chars()).take(3).collect();
    three.parse().ok()
}

/// Reads a zone at the end of a date: nothing, `Z`, `UTC`, `GMT`, or an offset.
fn zone_suffix(text: &str) -> Option<Option<i64>> {
    match text.trim() {
        "" => Some(None),
        name => offset(&name.to_ascii_uppercase()).ok().map(Some),
    }
}

/// Reads `2024-01-31`, `2024-01-31T12:30`, `2024-01-31 12:30:15.250 +0200` and so on, as ISO 8601
/// and RFC 3339 write dates. Text without a zone is in `zone`, UTC if there is none.
pub(crate) fn parse_iso(text: &str, zone: Option<i64>) -> Result<i64> {
    let bad = || bad_date(text, "expected a date such as 2024-01-31T12:30:15.250Z");
    let mut rest = text.trim();
    let date = |rest: &mut &str| {
        let year = number(rest, 4, 4)?;
        if eat(rest, &['-', '/']) {
            let month = number(rest, 1, 2)?;
            let day = if eat(rest, &['-', '/']) {
                number(rest, 1, 2)?
            } else {
                1
            };
            return Some((year, month, day));
        }
        if rest.starts_with(|c: char| c.is_ascii_digit()) {
            return Some((year, number(rest, 2, 2)?, number(rest, 2, 2)?));
        }
        None
    };
    let (year, month, day) = date(&mut rest).ok_or_else(bad)?;
    let mut civil = Civil {
        year,
        month,
        day,
        hour: 0,
        minute: 0,
        second: 0,
        millisecond: 0,
    };
    let after = rest.strip_prefix(['T', 't', ' ']);
    if let Some(after) = after.filter(|t| t.starts_with(|c: char| c.is_ascii_digit())) {
        rest = after;
        let clock = |rest: &mut &str, civil: &mut Civil| {
            civil.hour = number(rest, 1, 2)?;
            if eat(rest, &[':']) {
                civil.minute = number(rest, 2, 2)?;
                if eat(rest, &[':']) {
                    civil.second = number(rest, 2, 2)?;
                    if eat(rest, &['.', ',']) {
                        civil.millisecond = fraction(rest)?;
                    }
                }
            }
            Some(())
        };
        clock(&mut rest, &mut civil).ok_or_else(bad)?;
    }
    let written = zone_suffix(rest).ok_or_else(bad)?;
    if written.is_some() && zone.is_some() {
        return Err(bad_date(
            text,
            "you cannot pass in a date/time string with GMT offset together with a timezone \
             argument",
        ));
    }
    finish(text, civil, written.or(zone).unwrap_or(0))
}

/// Checks the parts of a date and makes a moment of them.
fn finish(text: &str, civil: Civil, offset: i64) -> Result<i64> {
    let valid = (1..=12).contains(&civil.month)
        && (1..=month_days(civil.year, civil.month)).contains(&civil.day)
        && (0..24).contains(&civil.hour)
        && (0..60).contains(&civil.minute)
        && (0..60).contains(&civil.second);
    if !valid {
        return Err(bad_date(text, "a part of it is out of range"));
    }
    civil
        .to_ms()
        .and_then(|ms| ms.checked_sub(offset))
        .ok_or_else(|| bad_date(text, "out of the range of dates"))
}

/// Reads a date by a format with the letters of `$dateToString`.
fn parse_format(text: &str, format: &str, zone: Option<i64>) -> Result<i64> {
    let mut civil = Civil {
        year: 1970,
        month: 1,
        day: 1,
        hour: 0,
        minute: 0,
        second: 0,
        millisecond: 0,
    };
    let (mut iso_year, mut iso_week, mut iso_day) = (None, None, None);
    let mut day_of_year = None;
    let mut written = None;
    let mut rest = text;
    let mut letters = format.chars();
    let bad = || bad_date(text, &format!("it does not have the format '{format}'"));
    while let Some(letter) = letters.next() {
        if letter != '%' {
            rest = rest.strip_prefix(letter).ok_or_else(bad)?;
            continue;
        }
        let rest = &mut rest;
        let done = match letters.next() {
            Some('%') => eat(rest, &['%']),
            Some('Y') => number(rest, 4, 4).map(|n| civil.year = n).is_some(),
            Some('m') => number(rest, 1, 2).map(|n| civil.month = n).is_some(),
            Some('d') => number(rest, 1, 2).map(|n| civil.day = n).is_some(),
            Some('H') => number(rest, 1, 2).map(|n| civil.hour = n).is_some(),
            Some('M') => number(rest, 1, 2).map(|n| civil.minute = n).is_some(),
            Some('S') => number(rest, 1, 2).map(|n| civil.second = n).is_some(),
            Some('L') => fraction(rest).map(|n| civil.millisecond = n).is_some(),
            Some('j') => number(rest, 1, 3).map(|n| day_of_year = Some(n)).is_some(),
            Some('G') => number(rest, 4, 4).map(|n| iso_year = Some(n)).is_some(),
            Some('V') => number(rest, 1, 2).map(|n| iso_week = Some(n)).is_some(),
            Some('u') => number(rest, 1, 1).map(|n| iso_day = Some(n)).is_some(),
            Some('b') => month(rest, 3).map(|n| civil.month = n).is_some(),
            Some('B') => month(rest, usize::MAX).map(|n| civil.month = n).is_some(),
            Some('z') => zone_prefix(rest).map(|n| written = Some(n)).is_some(),
            Some('Z') => {
                let negative = eat(rest, &['-']);
                let _ = !negative && eat(rest, &['+']);
                number(rest, 1, 4)
                    .map(|n| written = Some(if negative { -n } else { n } * 60_000))
                    .is_some()
            }
            Some(other) => {
                return Err(Error::location(
                    18536,
                    format!("Invalid format character '%{other}' in format string"),
                ));
            }
            None => {
                return Err(Error::location(
                    18535,
                    "Unmatched '%' at end of format string",
                ));
            }
        };
        if !done {
            return Err(bad());
        }
    }
    if !rest.is_empty() {
        return Err(bad_date(text, "trailing data"));
    }
    if written.is_some() && zone.is_some() {
        return Err(bad_date(
            text,
            "you cannot pass in a date/time string with time zone information together with a \
             timezone argument",
        ));
    }
    let offset = written.or(zone).unwrap_or(0);
    if let Some(day) = day_of_year {
        civil.month = 1;
        civil.day = day;
        let ms = civil.to_ms().and_then(|ms| ms.checked_sub(offset));
        return ms.ok_or_else(|| bad_date(text, "out of the range of dates"));
    }
    if let Some(year) = iso_year {
        let days = iso_days(year, iso_week.unwrap_or(1), iso_day.unwrap_or(1));
        let date = days.map(|days| Civil::at(days.saturating_mul(super::super::calendar::DAY_MS)));
        if let Some(date) = date {
            (civil.year, civil.month, civil.day) = (date.year, date.month, date.day);
        }
    }
    finish(text, civil, offset)
}

fn month(text: &mut &str, length: usize) -> Option<i64> {
    for (at, name) in MONTHS.iter().enumerate() {
        let name = name.get(..length.min(name.len())).unwrap_or(name);
        if let Some(head) = text.get(..name.len())
            && head.eq_ignore_ascii_case(name)
        {
            *text = text.get(name.len()..).unwrap_or_default();
            return Some(at as i64 + 1);
        }
    }
    None
}

/// Reads an offset in the middle of a text.
fn zone_prefix(text: &mut &str) -> Option<i64> {
    let is_zone = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | ':' | '/');
    let end = text.find(|c| !is_zone(c)).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let found = offset(name).ok()?;
    *text = rest;
    Some(found)
}
