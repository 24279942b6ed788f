//! The proleptic Gregorian calendar, by Howard Hinnant's "chrono-compatible low-level date algorithms".
//!
//! This is not the calendar of the crate `jiff`, which knows the years -9999 to 9999: a date of BSON has 64 bits of milliseconds.
//! `jiff` serves where a moment is shown by the clock of a time zone.

/// Milliseconds of one day.
pub const DAY_MS: i64 = 86_400_000;

/// Year, month 1..=12 and day 1..=31 of a day counted from 1970-01-01.
pub fn date_of_day(day: i64) -> (i64, i64, i64) {
    let shifted = day + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// The day counted from 1970-01-01 of a date. Months are 1 to 12; any day is possible, and carries over.
pub fn day_of_date(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Days in a month of a year.
pub fn month_days(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_dates_belong_to_each_other() {
        for (day, date) in [
            (0, (1970, 1, 1)),
            (-1, (1969, 12, 31)),
            (11_016, (2000, 2, 29)),
            (11_017, (2000, 3, 1)),
            (-719_468, (0, 3, 1)),
            (-719_469, (0, 2, 29)),
            (2_932_897, (10_000, 1, 1)),
        ] {
            assert_eq!(date_of_day(day), date);
            assert_eq!(day_of_date(date.0, date.1, date.2), day);
        }
        // Four centuries and a year, by the lengths of the months.
        let mut day = day_of_date(1599, 1, 1);
        for (year, month) in (1599..2000).flat_map(|year| (1..=12).map(move |month| (year, month)))
        {
            assert_eq!(date_of_day(day), (year, month, 1));
            day += month_days(year, month);
        }
        assert_eq!(day, day_of_date(2000, 1, 1));
        assert_eq!(day_of_date(2001, 1, 400), day_of_date(2002, 2, 4));
    }
}
