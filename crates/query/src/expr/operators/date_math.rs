//! `$dateAdd`, `$dateSubtract`, `$dateDiff`, `$dateTrunc`.

use super::date::{local, moment, zone};
use super::{Operator, named};
use crate::error::{Error, Result};
use crate::expr::calendar::{Civil, DAY_MS, days, month_days};
use crate::expr::parse::{Named, optional, required};
use crate::expr::value::Val;
use frond_bson::Value;

pub(super) const OPERATORS: &[Operator] = &[
    named("$dateAdd", SHIFT, |a| shift("$dateAdd", a, 1)),
    named("$dateSubtract", SHIFT, |a| shift("$dateSubtract", a, -1)),
    named(
        "$dateDiff",
        &[
            required("startDate"),
            required("endDate"),
            required("unit"),
            optional("timezone"),
            optional("startOfWeek"),
        ],
        diff,
    ),
    named(
        "$dateTrunc",
        &[
            required("date"),
            required("unit"),
            optional("binSize"),
            optional("timezone"),
            optional("startOfWeek"),
        ],
        trunc,
    ),
];

const SHIFT: &[Named] = &[
    required("startDate"),
    required("unit"),
    required("amount"),
    optional("timezone"),
];

/// A unit of time: so many months or milliseconds.
#[derive(Clone, Copy, PartialEq)]
enum Unit {
    Months(i64),
    Week,
    Ms(i64),
}

fn unit(operator: &str, value: &Val<'_>) -> Result<Option<Unit>> {
    if value.is_nullish() {
        return Ok(None);
    }
    let Value::String(name) = value.or_null() else {
        return Err(Error::location(
            5439013,
            format!(
                "{operator} requires 'unit' to be a string, but got {}",
                value.type_name()
            ),
        ));
    };
    Ok(Some(match name {
        "year" => Unit::Months(12),
        "quarter" => Unit::Months(3),
        "month" => Unit::Months(1),
        "week" => Unit::Week,
        "day" => Unit::Ms(DAY_MS),
        "hour" => Unit::Ms(3_600_000),
        "minute" => Unit::Ms(60_000),
        "second" => Unit::Ms(1000),
        "millisecond" => Unit::Ms(1),
        _ => {
            return Err(Error::failed_to_parse(format!(
                "{operator} parameter 'unit' value parsing failed :: caused by :: unknown time \
                 unit value: {name}"
            )));
        }
    }))
}

/// The day that weeks begin on, 0 for Sunday; that if it was not given.
fn week_start(operator: &str, value: &Val<'_>, unit: Unit) -> Result<Option<i64>> {
    if unit != Unit::Week || value.is_missing() {
        return Ok(Some(0));
    }
    if value.is_nullish() {
        return Ok(None);
    }
    let Value::String(name) = value.or_null() else {
        return Err(Error::location(
            5439015,
            format!(
                "{operator} requires 'startOfWeek' to be a string, but got {}",
                value.type_name()
            ),
        ));
    };
    const NAMES: [&str; 7] = [
        "sunday",
        "monday",
        "tuesday",
        "wednesday",
        "thursday",
        "friday",
        "saturday",
    ];
    let name = name.to_ascii_lowercase();
    let day = NAMES
        .iter()
        .position(|day| *day == name || day.get(..3) == Some(&name));
    match day {
        Some(day) => Ok(Some(day as i64)),
        None => Err(Error::failed_to_parse(format!(
            "{operator} parameter 'startOfWeek' value parsing failed :: caused by :: unknown day \
             of week value: {name}"
        ))),
    }
}

fn overflow(operator: &str) -> Error {
    Error::new(
        crate::error::ErrorCode::DurationOverflow,
        format!("{operator} overflowed"),
    )
}

fn date_val<'a>(ms: i64) -> Val<'a> {
    Val::Ref(Value::DateTime(ms))
}

fn shift<'a>(operator: &str, values: &[Val<'a>], sign: i64) -> Result<Val<'a>> {
    let [start, by, amount, timezone] = values else {
        return Ok(Val::NULL);
    };
    if amount.is_nullish() {
        return Ok(Val::NULL);
    }
    let (Some(start), Some(unit), Some(offset)) =
        (moment(start)?, unit(operator, by)?, zone(timezone)?)
    else {
        return Ok(Val::NULL);
    };
    let Some(amount) = amount.get().and_then(|v| v.as_i64_lossless()) else {
        return Err(Error::location(
            5166405,
            format!("{operator} expects integer amount of time units"),
        ));
    };
    let shifted = || {
        let amount = amount.checked_mul(sign)?;
        let ms = |unit: i64| start.checked_add(amount.checked_mul(unit)?);
        match unit {
            Unit::Ms(unit) => ms(unit),
            Unit::Week => ms(7 * DAY_MS),
            Unit::Months(months) => {
                let here = Civil::at(start.checked_add(offset)?);
                let months = amount.checked_mul(months)?;
                let total = here.year.checked_mul(12)?.checked_add(here.month - 1)?;
                let total = total.checked_add(months)?;
                let (year, month) = (total.div_euclid(12), total.rem_euclid(12) + 1);
                let moved = Civil {
                    year,
                    month,
                    // The last day where the month is shorter.
                    day: here.day.min(month_days(year, month)),
                    ..here
                };
                moved.to_ms()?.checked_sub(offset)
            }
        }
    };
    shifted().map(date_val).ok_or_else(|| overflow(operator))
}

fn diff<'a>(values: &[Val<'a>]) -> Result<Val<'a>> {
    let [start, end, by, timezone, week] = values else {
        return Ok(Val::NULL);
    };
    let (Some(start), Some(end), Some(unit), Some(offset)) = (
        moment(start)?,
        moment(end)?,
        unit("$dateDiff", by)?,
        zone(timezone)?,
    ) else {
        return Ok(Val::NULL);
    };
    let Some(week) = week_start("$dateDiff", week, unit)? else {
        return Ok(Val::NULL);
    };
    let index = |ms: i64| Ok::<i64, Error>(bin_index(local(ms, offset)?, unit, week));
    match index(end)?.checked_sub(index(start)?) {
        Some(units) => Ok(units.into()),
        None => Err(overflow("$dateDiff")),
    }
}

/// The number of the unit that local time is in, counted from any fixed one.
fn bin_index(local: i64, unit: Unit, week: i64) -> i64 {
    match unit {
        Unit::Ms(unit) => local.div_euclid(unit),
        // 1970-01-01 was a Thursday.
        Unit::Week => (local.div_euclid(DAY_MS) + 4 - week).div_euclid(7),
        Unit::Months(months) => {
            let c = Civil::at(local);
            (c.year * 12 + c.month - 1).div_euclid(months)
        }
    }
}

fn trunc<'a>(values: &[Val<'a>]) -> Result<Val<'a>> {
    let [date, by, size, timezone, week] = values else {
        return Ok(Val::NULL);
    };
    let size = match size {
        Val::Missing => 1,
        size if size.is_nullish() => return Ok(Val::NULL),
        size => match size.get().and_then(|v| v.as_i64_lossless()) {
            Some(size) if size > 0 => size,
            _ => {
                return Err(Error::location(
                    5439017,
                    format!(
                        "$dateTrunc requires 'binSize' to be a 64-bit integer greater than 0, but \
                         got value {}",
                        crate::display::value(&size.or_null())
                    ),
                ));
            }
        },
    };
    let (Some(ms), Some(unit), Some(offset)) =
        (moment(date)?, unit("$dateTrunc", by)?, zone(timezone)?)
    else {
        return Ok(Val::NULL);
    };
    let Some(week) = week_start("$dateTrunc", week, unit)? else {
        return Ok(Val::NULL);
    };
    let here = local(ms, offset)?;
    // Bins are counted from 2000-01-01, weeks from the first day of a week since then.
    let start = || {
        let reference = days(2000, 1, 1) * DAY_MS;
        let in_ms = |reference: i64, unit: i64| {
            let bin = unit.checked_mul(size)?;
            let since = here.checked_sub(reference)?;
            here.checked_sub(since.rem_euclid(bin))
        };
        match unit {
            Unit::Ms(unit) => in_ms(reference, unit),
            Unit::Week => {
                // 2000-01-01 was a Saturday.
                let first = reference + (week + 1) % 7 * DAY_MS;
                in_ms(first, 7 * DAY_MS)
            }
            Unit::Months(months) => {
                let c = Civil::at(here);
                let bin = months.checked_mul(size)?;
                let since = (c.year - 2000) * 12 + c.month - 1;
                let first = since - since.rem_euclid(bin);
                let civil = Civil {
                    year: 2000,
                    month: 1 + first,
                    day: 1,
                    hour: 0,
                    minute: 0,
                    second: 0,
                    millisecond: 0,
                };
                civil.to_ms()
            }
        }
    };
    let truncated = start().and_then(|ms| ms.checked_sub(offset));
    truncated
        .map(date_val)
        .ok_or_else(|| overflow("$dateTrunc"))
}
