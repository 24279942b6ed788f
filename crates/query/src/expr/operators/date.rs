//! Dates: their parts, and dates from parts.

use super::{Entry, Eval, Operator, custom, given, one};
use crate::expr::calendar::{Civil, DAY_MS, iso_days};
use crate::expr::node::Node;
use crate::expr::parse::{Named, Parser, optional, required};
use crate::expr::value::Val;
use crate::expr::zone::Zone;
use frond_bson::{DocBuf, Timestamp, Value};
use frond_error::{Error, Result};

pub(super) const OPERATORS: &[Entry] = &[
    part("$year", |a| one_part(a, |c| Value::Int32(c.year as i32))),
    part("$month", |a| one_part(a, |c| Value::Int32(c.month as i32))),
    part("$dayOfMonth", |a| {
        one_part(a, |c| Value::Int32(c.day as i32))
    }),
    part("$hour", |a| one_part(a, |c| Value::Int32(c.hour as i32))),
    part("$minute", |a| {
        one_part(a, |c| Value::Int32(c.minute as i32))
    }),
    part("$second", |a| {
        one_part(a, |c| Value::Int32(c.second as i32))
    }),
    part("$millisecond", |a| {
        one_part(a, |c| Value::Int32(c.millisecond as i32))
    }),
    part("$dayOfYear", |a| {
        one_part(a, |c| Value::Int32(c.day_of_year() as i32))
    }),
    part("$dayOfWeek", |a| {
        one_part(a, |c| Value::Int32(c.weekday() as i32 + 1))
    }),
    part("$isoDayOfWeek", |a| {
        one_part(a, |c| Value::Int32(c.iso_weekday() as i32))
    }),
    part("$week", |a| one_part(a, |c| Value::Int32(c.week() as i32))),
    part("$isoWeek", |a| {
        one_part(a, |c| Value::Int32(c.iso_week().1 as i32))
    }),
    part("$isoWeekYear", |a| {
        one_part(a, |c| Value::Int64(c.iso_week().0))
    }),
    given(
        "$dateToParts",
        &[required("date"), optional("timezone"), optional("iso8601")],
        to_parts,
    ),
    custom("$dateFromParts", parse_from_parts, Eval::Given(from_parts)),
    one("$tsSecond", |v| timestamp_part("$tsSecond", v, |t| t.time)),
    one("$tsIncrement", |v| {
        timestamp_part("$tsIncrement", v, |t| t.increment)
    }),
];

/// An operator on a date: the date itself, or `{date: .., timezone: ..}`.
const fn part(name: &'static str, f: for<'a> fn(&[Val<'a>]) -> Result<Val<'a>>) -> Entry {
    custom(name, parse_part, Eval::Given(f))
}

fn parse_part(
    parser: &mut Parser<'_>,
    operator: &'static Operator,
    argument: Value<'_>,
) -> Result<Node> {
    if let Value::Document(doc) = argument
        && !doc.first().is_some_and(|(name, _)| name.starts_with('$'))
    {
        for (name, _) in doc.iter() {
            if !matches!(name, "date" | "timezone") {
                return Err(Error::location(
                    40535,
                    format!("unrecognized option to {}: \"{name}\"", operator.name),
                ));
            }
        }
        if !doc.contains_key("date") {
            return Err(Error::location(
                40539,
                format!("missing 'date' argument to {}", operator.name),
            ));
        }
        const NAMES: &[Named] = &[required("date"), optional("timezone")];
        return parser.named(operator, NAMES, argument);
    }
    let argument = match argument {
        Value::Array(items) if items.count() != 1 => {
            return Err(Error::location(
                40536,
                format!(
                    "{} accepts exactly one argument if given an array, but was given {}",
                    operator.name,
                    items.count()
                ),
            ));
        }
        other => other,
    };
    match parser.positional(operator, 1, 1, argument)? {
        Node::Call(operator, mut nodes) => {
            nodes.push(Node::Absent);
            Ok(Node::Call(operator, nodes))
        }
        other => Ok(other),
    }
}

/// The moment that a value stands for, in milliseconds since 1970; `None` if it is null or missing.
pub(super) fn moment(value: &Val<'_>) -> Result<Option<i64>> {
    match value.get() {
        None | Some(Value::Null | Value::Undefined) => Ok(None),
        Some(Value::DateTime(ms)) => Ok(Some(ms)),
        Some(Value::Timestamp(t)) => Ok(Some(i64::from(t.time) * 1000)),
        Some(Value::ObjectId(id)) => Ok(Some(i64::from(id.seconds()) * 1000)),
        Some(other) => Err(Error::location(
            16006,
            format!("can't convert from BSON type {} to Date", other.type_name()),
        )),
    }
}

/// The time zone that a value names; `None` if it is null. A zone that was not given is UTC.
pub(super) fn zone(value: &Val<'_>) -> Result<Option<Zone>> {
    match value {
        Val::Missing => Ok(Some(Zone::UTC)),
        value if value.is_nullish() => Ok(None),
        value => match value.or_null() {
            Value::String(name) => Zone::parse(name).map(Some),
            other => Err(Error::location(
                40517,
                format!(
                    "timezone must evaluate to a string, found {}",
                    other.type_name()
                ),
            )),
        },
    }
}

/// `2024-01-31T12:00:00.000Z`; `None` for years that this has no room for.
pub(super) fn iso_text(ms: i64) -> Option<String> {
    let c = Civil::at(ms);
    (0..=9999).contains(&c.year).then(|| {
        format!(
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
            c.year, c.month, c.day, c.hour, c.minute, c.second, c.millisecond
        )
    })
}

fn one_part<'a>(
    values: &[Val<'a>],
    pick: for<'c> fn(&'c Civil) -> Value<'static>,
) -> Result<Val<'a>> {
    let [date, timezone] = values else {
        return Ok(Val::NULL);
    };
    let (Some(ms), Some(zone)) = (moment(date)?, zone(timezone)?) else {
        return Ok(Val::NULL);
    };
    Ok(Val::Ref(pick(&Civil::at(zone.local(ms)?))))
}

fn to_parts<'a>(values: &[Val<'a>]) -> Result<Val<'a>> {
    let [date, timezone, iso] = values else {
        return Ok(Val::NULL);
    };
    let Some(zone) = zone(timezone)? else {
        return Ok(Val::NULL);
    };
    let iso = match iso.get() {
        None => false,
        Some(Value::Null | Value::Undefined) => return Ok(Val::NULL),
        Some(Value::Bool(iso)) => iso,
        Some(other) => {
            return Err(Error::location(
                40521,
                format!(
                    "iso8601 must evaluate to a bool, found {}",
                    other.type_name()
                ),
            ));
        }
    };
    let Some(ms) = moment(date)? else {
        return Ok(Val::NULL);
    };
    let c = Civil::at(zone.local(ms)?);
    let mut parts = DocBuf::new();
    if iso {
        let (year, week) = c.iso_week();
        parts.push("isoWeekYear", year as i32);
        parts.push("isoWeek", week as i32);
        parts.push("isoDayOfWeek", c.iso_weekday() as i32);
    } else {
        parts.push("year", c.year as i32);
        parts.push("month", c.month as i32);
        parts.push("day", c.day as i32);
    }
    parts.push("hour", c.hour as i32);
    parts.push("minute", c.minute as i32);
    parts.push("second", c.second as i32);
    parts.push("millisecond", c.millisecond as i32);
    Ok(Val::doc(parts))
}

fn timestamp_part<'a>(
    operator: &str,
    value: Val<'a>,
    pick: fn(Timestamp) -> u32,
) -> Result<Val<'a>> {
    match value.get() {
        None | Some(Value::Null | Value::Undefined) => Ok(Val::NULL),
        Some(Value::Timestamp(timestamp)) => Ok(i64::from(pick(timestamp)).into()),
        Some(other) => Err(Error::location(
            5687301,
            format!(
                "Argument to {operator} must be a timestamp, but is {}",
                other.type_name()
            ),
        )),
    }
}

const FROM_PARTS: &[Named] = &[
    optional("year"),
    optional("month"),
    optional("day"),
    optional("isoWeekYear"),
    optional("isoWeek"),
    optional("isoDayOfWeek"),
    optional("hour"),
    optional("minute"),
    optional("second"),
    optional("millisecond"),
    optional("timezone"),
];

/// Bounds of the parts that are no year, second or millisecond.
const PART_RANGE: std::ops::RangeInclusive<i64> = -32_768..=32_767;

fn parse_from_parts(
    parser: &mut Parser<'_>,
    operator: &'static Operator,
    argument: Value<'_>,
) -> Result<Node> {
    if let Value::Document(doc) = argument {
        let has = |names: &[&str]| names.iter().any(|name| doc.contains_key(name));
        if has(&["year"]) {
            if has(&["isoWeekYear", "isoWeek", "isoDayOfWeek"]) {
                return Err(mixed());
            }
        } else if has(&["isoWeekYear"]) {
            if has(&["month", "day"]) {
                return Err(mixed());
            }
        } else {
            // Unknown names are reported first.
            parser.named(operator, FROM_PARTS, argument)?;
            return Err(Error::location(
                40516,
                "$dateFromParts requires either 'year' or 'isoWeekYear' to be present",
            ));
        }
    }
    parser.named(operator, FROM_PARTS, argument)
}

fn mixed() -> Error {
    Error::location(
        40489,
        "$dateFromParts does not allow mixing natural dates with ISO dates",
    )
}

fn from_parts<'a>(values: &[Val<'a>]) -> Result<Val<'a>> {
    let [
        year,
        month,
        day,
        iso_year,
        iso_week,
        iso_day,
        hour,
        minute,
        second,
        millisecond,
        timezone,
    ] = values
    else {
        return Ok(Val::NULL);
    };
    // Some(None) stands for a part that is null.
    let number = |value: &Val<'_>, name: &str, default: i64| match value.get() {
        None => Ok(Some(default)),
        Some(Value::Null | Value::Undefined) => Ok(None),
        Some(v) => v.as_i64_lossless().map(Some).ok_or_else(|| {
            Error::location(
                40515,
                format!(
                    "'{name}' must evaluate to an integer, found {} with value {}",
                    v.type_name(),
                    crate::display::computed(&v)
                ),
            )
        }),
    };
    let by_week = year.is_missing();
    // Parts beyond these bounds would overflow on the way.
    let bounded = |value: &Val<'_>, name: &str, default: i64| {
        let part = number(value, name, default)?;
        match part {
            Some(part) if !PART_RANGE.contains(&part) => Err(Error::location(
                31034,
                format!(
                    "'{name}' must evaluate to a value in the range [{}, {}]; value {part} is not \
                     in range",
                    PART_RANGE.start(),
                    PART_RANGE.end()
                ),
            )),
            part => Ok(part),
        }
    };
    let (hour, minute) = (bounded(hour, "hour", 0)?, bounded(minute, "minute", 0)?);
    let (second, millisecond) = (
        number(second, "second", 0)?,
        number(millisecond, "millisecond", 0)?,
    );
    let zone = zone(timezone)?;
    let (year_name, range_code) = if by_week {
        ("isoWeekYear", 31095)
    } else {
        ("year", 40523)
    };
    let parts = [
        number(if by_week { iso_year } else { year }, year_name, 1970)?,
        if by_week {
            bounded(iso_week, "isoWeek", 1)?
        } else {
            bounded(month, "month", 1)?
        },
        if by_week {
            bounded(iso_day, "isoDayOfWeek", 1)?
        } else {
            bounded(day, "day", 1)?
        },
        hour,
        minute,
        second,
        millisecond,
    ];
    let [
        Some(year),
        Some(month),
        Some(day),
        Some(hour),
        Some(minute),
        Some(second),
        Some(millisecond),
    ] = parts
    else {
        return Ok(Val::NULL);
    };
    let Some(zone) = zone else {
        return Ok(Val::NULL);
    };
    if !(1..=9999).contains(&year) {
        return Err(Error::location(
            range_code,
            format!(
                "'{year_name}' must evaluate to an integer in the range 1 to 9999, found {year}"
            ),
        ));
    }
    let clock = Civil {
        year: if by_week { 1970 } else { year },
        month: if by_week { 1 } else { month },
        day: if by_week { 1 } else { day },
        hour,
        minute,
        second,
        millisecond,
    };
    let ms = if by_week {
        let days = iso_days(year, month, day).and_then(|days| days.checked_mul(DAY_MS));
        days.zip(clock.to_ms())
            .and_then(|(days, ms)| days.checked_add(ms))
    } else {
        clock.to_ms()
    };
    match ms.and_then(|ms| zone.to_utc(ms)) {
        Some(ms) => Ok(Val::Ref(Value::DateTime(ms))),
        None => Err(Error::new(
            frond_error::ErrorCode::DurationOverflow,
            "$dateFromParts overflows the range of dates",
        )),
    }
}
