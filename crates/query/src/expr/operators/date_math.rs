//! `$dateAdd`, `$dateSubtract`, `$dateDiff`, `$dateTrunc`.

use super::date::zone;
use super::{Entry, given};
use crate::expr::parse::{Named, optional, required};
use crate::expr::unit::Unit;
use crate::expr::value::Val;
use frond_bson::Value;
use frond_error::{Error, Result};

pub(super) const OPERATORS: &[Entry] = &[
    given("$dateAdd", SHIFT, |a| shift("$dateAdd", a, 1)),
    given("$dateSubtract", SHIFT, |a| shift("$dateSubtract", a, -1)),
    given(
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
    given(
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

fn unit(operator: &str, value: &Val<'_>) -> Result<Option<Unit>> {
    if value.is_nullish() {
        return Ok(None);
    }
    let Value::String(name) = value.or_null() else {
        return Err(if SHIFTS.contains(&operator) {
            Error::location(
                5166404,
                format!("{operator} expects string defining the time unit"),
            )
        } else {
            Error::location(
                5439013,
                format!(
                    "{operator} requires 'unit' to be a string, but got {}",
                    value.type_name()
                ),
            )
        });
    };
    let unit = Unit::named(name);
    unit.map(Some).ok_or_else(|| {
        let unknown = Error::failed_to_parse(format!("unknown time unit value: {name}"));
        if SHIFTS.contains(&operator) {
            unknown
        } else {
            unknown.context(format!("{operator} parameter 'unit' value parsing failed"))
        }
    })
}

/// The operators that move a date.
const SHIFTS: [&str; 2] = ["$dateAdd", "$dateSubtract"];

/// The moment of an argument, in milliseconds since 1970; `None` if it is null.
fn moment(value: &Val<'_>, wrong: impl FnOnce() -> (i32, String)) -> Result<Option<i64>> {
    super::date::moment(value).map_err(|_| {
        let (code, message) = wrong();
        Error::location(code, message)
    })
}

/// The day that weeks begin on, 0 for Sunday; that if it was not given.
fn week_start(operator: &str, value: &Val<'_>, unit: Unit) -> Result<Option<i64>> {
    if unit.name != "week" || value.is_missing() {
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
        None => Err(Error::location(
            5439016,
            format!(
                "{operator} parameter 'startOfWeek' value cannot be recognized as a day of a week: {}",
                value.or_null().as_str().unwrap_or_default()
            ),
        )),
    }
}

fn date_val<'a>(ms: i64) -> Val<'a> {
    Val::Ref(Value::DateTime(ms))
}

fn shift<'a>(operator: &str, values: &[Val<'a>], sign: i64) -> Result<Val<'a>> {
    let [start, by, amount, timezone] = values else {
        return Ok(Val::NULL);
    };
    if start.is_nullish() || by.is_nullish() || amount.is_nullish() {
        return Ok(Val::NULL);
    }
    let start = moment(start, || {
        let message = format!("{operator} requires startDate to be convertible to a date");
        (5166403, message)
    })?;
    let (Some(start), Some(unit)) = (start, unit(operator, by)?) else {
        return Ok(Val::NULL);
    };
    let Some(amount) = amount.get().and_then(|v| v.as_i64_lossless()) else {
        return Err(Error::location(
            5166405,
            format!("{operator} expects integer amount of time units"),
        ));
    };
    let Some(zone) = zone(timezone)? else {
        return Ok(Val::NULL);
    };
    let amount = amount.checked_mul(sign).ok_or_else(|| {
        Error::location(
            6045000,
            format!("invalid {operator} 'amount' parameter value: {amount}"),
        )
    })?;
    unit.add(start, amount, &zone).map(date_val)
}

fn diff<'a>(values: &[Val<'a>]) -> Result<Val<'a>> {
    let [start, end, by, timezone, week] = values else {
        return Ok(Val::NULL);
    };
    if [start, end, by].iter().any(|value| value.is_nullish()) {
        return Ok(Val::NULL);
    }
    let date = |value: &Val<'_>, name: &str| {
        moment(value, || {
            let found = value.type_name();
            let message = format!("$dateDiff requires '{name}' to be a date, but got {found}");
            (5166307, message)
        })
    };
    let (Some(start), Some(end), Some(unit), Some(zone)) = (
        date(start, "startDate")?,
        date(end, "endDate")?,
        unit("$dateDiff", by)?,
        zone(timezone)?,
    ) else {
        return Ok(Val::NULL);
    };
    let Some(week) = week_start("$dateDiff", week, unit)? else {
        return Ok(Val::NULL);
    };
    unit.difference(start, end, &zone, week).map(Val::from)
}

fn trunc<'a>(values: &[Val<'a>]) -> Result<Val<'a>> {
    let [date, by, size, timezone, week] = values else {
        return Ok(Val::NULL);
    };
    if date.is_nullish() || by.is_nullish() {
        return Ok(Val::NULL);
    }
    let size = match size {
        Val::Missing => 1,
        size if size.is_nullish() => return Ok(Val::NULL),
        size => match size.get().and_then(|v| v.as_i64_lossless()) {
            Some(size) if size > 0 => size,
            Some(size) => {
                return Err(Error::location(
                    5439018,
                    format!(
                        "$dateTrunc requires 'binSize' to be greater than 0, but got value {size}"
                    ),
                ));
            }
            None => {
                return Err(Error::location(
                    5439017,
                    format!(
                        "$dateTrunc requires 'binSize' to be a 64-bit integer, but got value '{}' \
                         of type {}",
                        crate::display::computed(&size.or_null()),
                        size.type_name()
                    ),
                ));
            }
        },
    };
    let moment = moment(date, || {
        let found = date.type_name();
        let message = format!("$dateTrunc requires 'date' to be a date, but got {found}");
        (5439012, message)
    })?;
    let (Some(ms), Some(unit), Some(zone)) = (moment, unit("$dateTrunc", by)?, zone(timezone)?)
    else {
        return Ok(Val::NULL);
    };
    let Some(week) = week_start("$dateTrunc", week, unit)? else {
        return Ok(Val::NULL);
    };
    unit.truncate(ms, size, &zone, week).map(date_val)
}
