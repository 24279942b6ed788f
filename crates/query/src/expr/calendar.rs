//! The proleptic Gregorian calendar over milliseconds since 1970.

use frond_bson::calendar::date_of_day;
pub(crate) use frond_bson::calendar::{DAY_MS, day_of_date as days, month_days};

/// A moment in calendar fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Civil {
    pub(crate) year: i64,
    /// 1 to 12.
    pub(crate) month: i64,
    /// 1 to 31.
    pub(crate) day: i64,
    pub(crate) hour: i64,
    pub(crate) minute: i64,
    pub(crate) second: i64,
    pub(crate) millisecond: i64,
}

impl Civil {
    /// The civil date of `ms`, milliseconds since 1970 in local time.
    pub(crate) fn at(ms: i64) -> Civil {
        let (year, month, day) = date_of_day(ms.div_euclid(DAY_MS));
        let in_day = ms.rem_euclid(DAY_MS);
        Civil {
            year,
            month,
            day,
            hour: in_day / 3_600_000,
            minute: in_day / 60_000 % 60,
            second: in_day / 1000 % 60,
            millisecond: in_day % 1000,
        }
    }

    /// Milliseconds since 1970. Parts may be out of their range and carry over, as
    /// `$dateFromParts` has it. `None` if the result does not fit.
    pub(crate) fn to_ms(self) -> Option<i64> {
        let months = self
            .year
            .checked_mul(12)?
            .checked_add(self.month.checked_sub(1)?)?;
        let (year, month) = (months.div_euclid(12), months.rem_euclid(12) + 1);
        if year.abs() > 300_000_000 {
            return None;
        }
        let days = days(year, month, 1).checked_add(self.day.checked_sub(1)?)?;
        let mut ms = days.checked_mul(DAY_MS)?;
        for (part, unit) in [
            (self.hour, 3_600_000),
            (self.minute, 60_000),
            (self.second, 1000),
            (self.millisecond, 1),
        ] {
            ms = ms.checked_add(part.checked_mul(unit)?)?;
        }
        Some(ms)
    }

    fn day_number(&self) -> i64 {
        days(self.year, self.month, self.day)
    }

    /// 1 to 366.
    pub(crate) fn day_of_year(&self) -> i64 {
        self.day_number() - days(self.year, 1, 1) + 1
    }

    /// 0 for Sunday to 6 for Saturday.
    pub(crate) fn weekday(&self) -> i64 {
        (self.day_number() + 4).rem_euclid(7)
    }

    /// 1 for Monday to 7 for Sunday.
    pub(crate) fn iso_weekday(&self) -> i64 {
        (self.weekday() + 6) % 7 + 1
    }

    /// 0 to 53: weeks begin on Sunday; days before the first Sunday are in week 0.
    pub(crate) fn week(&self) -> i64 {
        (self.day_of_year() + 6 - self.weekday()) / 7
    }

    /// The year and week of ISO 8601: weeks begin on Monday, the first has the year's first Thursday.
    pub(crate) fn iso_week(&self) -> (i64, i64) {
        let thursday = self.day_number() + 4 - self.iso_weekday();
        let at = Civil::at(thursday.saturating_mul(DAY_MS));
        (at.year, (at.day_of_year() - 1) / 7 + 1)
    }
}

/// Days from 1970 to a day of an ISO week; weeks and days out of range carry over.
pub(crate) fn iso_days(year: i64, week: i64, weekday: i64) -> Option<i64> {
    if year.abs() > 300_000_000 {
        return None;
    }
    // January 4th is always in week 1.
    let fourth = days(year, 1, 4);
    let monday = fourth - (fourth + 3).rem_euclid(7);
    let weeks = week.checked_sub(1)?.checked_mul(7)?;
    monday
        .checked_add(weeks)?
        .checked_add(weekday.checked_sub(1)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_dates_agree() {
        for day in (-1_000_000..1_000_000).step_by(97) {
            let civil = Civil::at(day * DAY_MS + 45_296_789);
            assert_eq!(days(civil.year, civil.month, civil.day), day);
            assert_eq!(
                (civil.hour, civil.minute, civil.second, civil.millisecond),
                (12, 34, 56, 789)
            );
            assert_eq!(civil.to_ms(), Some(day * DAY_MS + 45_296_789));
        }
    }

    #[test]
    fn known_dates() {
        // date -u -d @… for each
        for (ms, (year, month, day), weekday, day_of_year, week, iso) in [
            (0, (1970, 1, 1), 4, 1, 0, (1970, 1)),
            (951_782_400_000, (2000, 2, 29), 2, 60, 9, (2000, 9)),
            (1_230_768_000_000, (2009, 1, 1), 4, 1, 0, (2009, 1)),
            (1_262_304_000_000, (2010, 1, 1), 5, 1, 0, (2009, 53)),
            (1_419_984_000_000, (2014, 12, 31), 3, 365, 52, (2015, 1)),
            (-1, (1969, 12, 31), 3, 365, 52, (1970, 1)),
        ] {
            let civil = Civil::at(ms);
            assert_eq!((civil.year, civil.month, civil.day), (year, month, day));
            assert_eq!(civil.weekday(), weekday, "{ms}");
            assert_eq!(civil.day_of_year(), day_of_year, "{ms}");
            assert_eq!(civil.week(), week, "{ms}");
            assert_eq!(civil.iso_week(), iso, "{ms}");
            let (iso_year, iso_week) = iso;
            assert_eq!(
                iso_days(iso_year, iso_week, civil.iso_weekday()),
                Some(ms.div_euclid(DAY_MS))
            );
        }
    }
}
