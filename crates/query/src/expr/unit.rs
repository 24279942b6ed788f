//! Units of time: adding them to dates, counting and truncating, in a time zone.
//!
//! Days and longer units follow the calendar and the clocks of the zone; hours and shorter ones are
//! always equally long.

use super::calendar::{Civil, DAY_MS, days, month_days};
use super::zone::Zone;
use frond_error::{Error, ErrorCode, Result};

/// A unit of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Unit {
    pub(crate) name: &'static str,
    length: Length,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Length {
    Months(i64),
    Days(i64),
    Ms(i64),
}

const UNITS: [Unit; 9] = [
    unit("year", Length::Months(12)),
    unit("quarter", Length::Months(3)),
    unit("month", Length::Months(1)),
    unit("week", Length::Days(7)),
    unit("day", Length::Days(1)),
    unit("hour", Length::Ms(3_600_000)),
    unit("minute", Length::Ms(60_000)),
    unit("second", Length::Ms(1000)),
    unit("millisecond", Length::Ms(1)),
];

const fn unit(name: &'static str, length: Length) -> Unit {
    Unit { name, length }
}

/// Bins of days and longer units have at most this many.
const BIN_SIZE_MAX: i64 = 100_000_000_000;

impl Unit {
    /// The unit with this name.
    pub(crate) fn named(name: &str) -> Option<Unit> {
        UNITS.into_iter().find(|unit| unit.name == name)
    }

    /// The length of the unit in milliseconds, if it has always the same but for changes of clocks.
    pub(crate) fn millis(self) -> Option<i64> {
        match self.length {
            Length::Ms(ms) => Some(ms),
            Length::Days(days) => Some(days * DAY_MS),
            Length::Months(_) => None,
        }
    }

    /// Adds a number of units to a date; the result is the last day of a month that is
    /// too short.
    ///
    /// Errors: 5976500 for an amount that no date can be moved by, 5166406 and 159 beyond the ends
    /// of time.
    pub(crate) fn add(self, ms: i64, amount: i64, zone: &Zone) -> Result<i64> {
        if let Length::Ms(1) = self.length {
            return ms.checked_add(amount).ok_or_else(|| {
                Error::new(
                    ErrorCode::DurationOverflow,
                    format!("Overflow casting from a lower-precision duration to a higher-precision duration: {amount}ms"),
                )
            });
        }
        if !self.is_amount(amount) {
            return Err(Error::location(
                5976500,
                format!(
                    "invalid dateAdd 'amount' parameter value: {amount} {}",
                    self.name
                ),
            ));
        }
        let moved = match self.length {
            Length::Ms(unit) => amount.checked_mul(unit).and_then(|by| ms.checked_add(by)),
            Length::Days(unit) => zone.local(ms).ok().and_then(|local| {
                let by = amount.checked_mul(unit * DAY_MS)?;
                zone.to_utc(local.checked_add(by)?)
            }),
            Length::Months(unit) => zone.local(ms).ok().and_then(|local| {
                let here = Civil::at(local);
                let months = here.year.checked_mul(12)?.checked_add(here.month - 1)?;
                let months = months.checked_add(amount.checked_mul(unit)?)?;
                let (year, month) = (months.div_euclid(12), months.rem_euclid(12) + 1);
                let moved = Civil {
                    year,
                    month,
                    day: here.day.min(month_days(year, month)),
                    ..here
                };
                zone.to_utc(moved.to_ms()?)
            }),
        };
        moved.ok_or_else(|| Error::location(5166406, "dateAdd overflowed"))
    }

    /// Whether this many units roughly fit into the range of dates.
    fn is_amount(self, amount: i64) -> bool {
        const MAX_DAYS: i64 = (u64::MAX / DAY_MS as u64) as i64 + 1;
        const MAX_MONTHS: i64 = (MAX_DAYS / 365 + 1) * 12;
        let most = match self.length {
            Length::Months(unit) => MAX_MONTHS / unit,
            Length::Days(unit) => MAX_DAYS / unit,
            Length::Ms(unit) => MAX_DAYS.saturating_mul(DAY_MS / unit),
        };
        amount.unsigned_abs() < most.unsigned_abs()
    }

    /// The number of unit boundaries between two dates. Weeks begin on `week`, 0 for Sunday.
    ///
    /// Error 5166308 if the difference does not fit.
    pub(crate) fn difference(self, start: i64, end: i64, zone: &Zone, week: i64) -> Result<i64> {
        let overflow = || Error::location(5166308, "dateDiff overflowed");
        let (from, to) = (zone.local(start)?, zone.local(end)?);
        let units = match self.length {
            Length::Ms(1) => end.checked_sub(start),
            Length::Ms(unit) => {
                // Clocks that were changed between make no difference.
                let changed = (zone.offset_at(start) - zone.offset_at(end)) / unit;
                let local = to.div_euclid(unit) - from.div_euclid(unit);
                local.checked_add(changed)
            }
            Length::Days(1) => Some(to.div_euclid(DAY_MS) - from.div_euclid(DAY_MS)),
            Length::Days(_) => Some(week_number(to, week) - week_number(from, week)),
            Length::Months(unit) => {
                let number = |local: i64| {
                    let civil = Civil::at(local);
                    (civil.year * 12 + civil.month - 1).div_euclid(unit)
                };
                Some(number(to) - number(from))
            }
        };
        units.ok_or_else(overflow)
    }

    /// The start of the bin of `size` units that a date is in. Bins are counted from 2000-01-01 in
    /// the zone, those of weeks from the first day of a week since then.
    ///
    /// Errors: 5439002 and others beyond the ends of time, 5439006 for a size that is too large.
    pub(crate) fn truncate(self, ms: i64, size: i64, zone: &Zone, week: i64) -> Result<i64> {
        let overflow = |code| Error::location(code, "dateTrunc overflowed");
        let midnight = days(2000, 1, 1) * DAY_MS;
        let mut reference = midnight - zone.offset_at(midnight);
        if let Length::Ms(unit) = self.length {
            let bin = unit.checked_mul(size).ok_or_else(|| overflow(5439002))?;
            let since = ms.checked_sub(reference).ok_or_else(|| overflow(5439000))?;
            return ms
                .checked_sub(since.rem_euclid(bin))
                .ok_or_else(|| overflow(5439001));
        }
        if size > BIN_SIZE_MAX {
            return Err(Error::location(
                5439006,
                "dateTrunc unsupported binSize value",
            ));
        }
        if let Length::Days(7) = self.length {
            // 2000-01-01 was a Saturday.
            reference += (week + 1) % 7 * DAY_MS;
        }
        let units = self.difference(reference, ms, zone, week)?;
        let bins = units
            .checked_sub(units.rem_euclid(size))
            .ok_or_else(|| overflow(5439004))?;
        self.add(reference, bins, zone)
    }
}

/// The number of a week, counted from any fixed one. 1970-01-01 was a Thursday.
fn week_number(local: i64, week: i64) -> i64 {
    (local.div_euclid(DAY_MS) + 4 - week).div_euclid(7)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Moments as text, so that cases can be read.
    fn at(text: &str) -> i64 {
        text.parse::<jiff::Timestamp>().unwrap().as_millisecond()
    }

    fn named(unit: &str, zone: &str) -> (Unit, Zone) {
        (Unit::named(unit).unwrap(), Zone::parse(zone).unwrap())
    }

    #[test]
    fn adding_follows_the_clocks_of_the_zone() {
        for (start, unit, amount, zone, end) in [
            (
                "2024-01-31T12:00:00Z",
                "month",
                1,
                "UTC",
                "2024-02-29T12:00:00Z",
            ),
            (
                "2024-03-31T12:00:00Z",
                "month",
                -1,
                "UTC",
                "2024-02-29T12:00:00Z",
            ),
            (
                "2024-02-29T12:00:00Z",
                "year",
                1,
                "UTC",
                "2025-02-28T12:00:00Z",
            ),
            (
                "2024-11-30T00:00:00Z",
                "quarter",
                1,
                "UTC",
                "2025-02-28T00:00:00Z",
            ),
            // New York changed its clocks on 2020-11-01 at 06:00Z.
            (
                "2020-10-31T16:00:00Z",
                "day",
                1,
                "America/New_York",
                "2020-11-01T17:00:00Z",
            ),
            (
                "2020-10-31T16:00:00Z",
                "hour",
                24,
                "America/New_York",
                "2020-11-01T16:00:00Z",
            ),
            (
                "2020-10-31T16:00:00Z",
                "day",
                1,
                "UTC",
                "2020-11-01T16:00:00Z",
            ),
            (
                "2020-10-25T16:00:00Z",
                "week",
                1,
                "America/New_York",
                "2020-11-01T17:00:00Z",
            ),
            // The 31st in Berlin, the 30th in UTC.
            (
                "2024-05-30T23:00:00Z",
                "month",
                1,
                "Europe/Berlin",
                "2024-06-29T23:00:00Z",
            ),
            // 02:30 is skipped.
            (
                "2024-03-30T01:30:00Z",
                "day",
                1,
                "Europe/Berlin",
                "2024-03-31T01:30:00Z",
            ),
        ] {
            let (unit, zone) = named(unit, zone);
            let moved = unit.add(at(start), amount, &zone).unwrap();
            assert_eq!(moved, at(end), "{start} {unit:?} {amount}");
        }
        let utc = Zone::UTC;
        for (unit, ms, amount, code) in [
            ("year", 0, i64::MAX, 5976500),
            ("hour", 0, i64::MIN, 5976500),
            ("day", i64::MAX, 1, 5166406),
            ("millisecond", i64::MAX, 1, 159),
        ] {
            let error = Unit::named(unit)
                .unwrap()
                .add(ms, amount, &utc)
                .unwrap_err();
            assert_eq!(error.code().code(), code, "{unit}");
        }
    }

    #[test]
    fn counting_units() {
        for (start, end, unit, zone, week, count) in [
            (
                "2024-02-29T23:59:59Z",
                "2024-03-01T00:00:00Z",
                "day",
                "UTC",
                0,
                1,
            ),
            (
                "2024-02-29T23:59:59Z",
                "2024-03-01T00:00:00Z",
                "month",
                "UTC",
                0,
                1,
            ),
            (
                "2024-02-29T22:59:59Z",
                "2024-02-29T23:00:00Z",
                "day",
                "Europe/Berlin",
                0,
                1,
            ),
            // Saturday to Sunday, to Monday.
            (
                "2024-03-02T00:00:00Z",
                "2024-03-03T00:00:00Z",
                "week",
                "UTC",
                0,
                1,
            ),
            (
                "2024-03-02T00:00:00Z",
                "2024-03-03T00:00:00Z",
                "week",
                "UTC",
                1,
                0,
            ),
            // 23 hours pass in the day in which clocks go forward.
            (
                "2024-03-30T23:00:00Z",
                "2024-03-31T22:00:00Z",
                "hour",
                "Europe/Berlin",
                0,
                23,
            ),
            (
                "2024-03-30T23:00:00Z",
                "2024-03-31T22:00:00Z",
                "day",
                "Europe/Berlin",
                0,
                1,
            ),
            (
                "2024-01-01T00:20:00Z",
                "2024-01-01T00:40:00Z",
                "hour",
                "+05:30",
                0,
                1,
            ),
            (
                "2024-01-01T00:00:00.999Z",
                "2024-01-01T00:00:01Z",
                "second",
                "UTC",
                0,
                1,
            ),
            (
                "2024-03-01T00:00:00Z",
                "2023-12-31T00:00:00Z",
                "quarter",
                "UTC",
                0,
                -1,
            ),
        ] {
            let (unit, zone) = named(unit, zone);
            let found = unit.difference(at(start), at(end), &zone, week).unwrap();
            assert_eq!(found, count, "{start} {end} {unit:?}");
        }
        let ms = Unit::named("millisecond").unwrap();
        let error = ms.difference(i64::MIN, 1, &Zone::UTC, 0).unwrap_err();
        assert_eq!(error.code().code(), 5166308);
    }

    #[test]
    fn truncating() {
        for (date, unit, size, zone, week, start) in [
            (
                "2024-03-31T12:34:56Z",
                "day",
                1,
                "Europe/Berlin",
                0,
                "2024-03-30T23:00:00Z",
            ),
            (
                "2024-04-01T12:34:56Z",
                "day",
                1,
                "Europe/Berlin",
                0,
                "2024-03-31T22:00:00Z",
            ),
            (
                "2024-07-01T12:34:56Z",
                "month",
                1,
                "America/New_York",
                0,
                "2024-07-01T04:00:00Z",
            ),
            (
                "2024-07-01T12:34:56Z",
                "year",
                1,
                "America/New_York",
                0,
                "2024-01-01T05:00:00Z",
            ),
            (
                "2024-07-01T12:34:56Z",
                "week",
                1,
                "America/New_York",
                1,
                "2024-07-01T04:00:00Z",
            ),
            (
                "2024-06-30T12:34:56Z",
                "week",
                1,
                "America/New_York",
                1,
                "2024-06-24T04:00:00Z",
            ),
            (
                "2024-07-01T12:34:56Z",
                "hour",
                12,
                "UTC",
                0,
                "2024-07-01T12:00:00Z",
            ),
            (
                "2024-07-01T12:34:56Z",
                "hour",
                1,
                "+05:30",
                0,
                "2024-07-01T12:30:00Z",
            ),
            (
                "1999-12-31T12:34:56Z",
                "day",
                2,
                "UTC",
                0,
                "1999-12-30T00:00:00Z",
            ),
            (
                "2024-07-01T12:34:56Z",
                "quarter",
                2,
                "UTC",
                0,
                "2024-07-01T00:00:00Z",
            ),
        ] {
            let (unit, zone) = named(unit, zone);
            let found = unit.truncate(at(date), size, &zone, week).unwrap();
            assert_eq!(found, at(start), "{date} {unit:?}");
        }
        for (unit, size, ms, code) in [
            ("hour", i64::MAX, 0, 5439002),
            ("second", 1, i64::MIN, 5439000),
            ("day", i64::MAX, 0, 5439006),
        ] {
            let unit = Unit::named(unit).unwrap();
            let error = unit.truncate(ms, size, &Zone::UTC, 0).unwrap_err();
            assert_eq!(error.code().code(), code, "{unit:?}");
        }
    }
}
