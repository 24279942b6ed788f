//! Dates as ISO 8601 text in UTC, by the proleptic Gregorian calendar.

use std::fmt::Write;

use crate::calendar::{DAY_MS, date_of_day, day_of_date};

/// `2012-12-24T12:15:30.501Z`; without the fraction when the milliseconds are zero.
pub fn format_millis(ms: i64) -> String {
    let (year, month, day) = date_of_day(ms.div_euclid(DAY_MS));
    let rest = ms.rem_euclid(DAY_MS);
    let (hour, minute, second, milli) = (
        rest / 3_600_000,
        rest / 60_000 % 60,
        rest / 1000 % 60,
        rest % 1000,
    );
    let mut out = String::with_capacity(24);
    let sign = if year < 0 { "-" } else { "" };
    let year = year.abs();
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        "{sign}{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}"
    );
    if milli != 0 {
        let _ = write!(out, ".{milli:03}");
    }
    out.push('Z');
    out
}

/// Reads `YYYY-MM-DD`, optionally `THH:MM[:SS[.fraction]]` and a zone `Z`, `+HH:MM`, `+HHMM` or `+HH`, as
/// milliseconds since 1970. Without a zone it is UTC. Digits beyond milliseconds are cut.
pub fn parse_millis(text: &str) -> Option<i64> {
    let mut r = Reader {
        rest: text.as_bytes(),
    };
    let year = r.digits(4)?;
    r.expect(b'-')?;
    let month = r.digits(2)?;
    r.expect(b'-')?;
    let day = r.digits(2)?;
    let (mut seconds, mut millis) = (0, 0);
    if r.take(b'T') || r.take(b't') || r.take(b' ') {
        let hour = r.digits(2)?;
        r.expect(b':')?;
        let minute = r.digits(2)?;
        let second = if r.take(b':') { r.digits(2)? } else { 0 };
        if hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        seconds = hour * 3600 + minute * 60 + second;
        if r.take(b'.') {
            millis = r.fraction()?;
        }
        seconds -= r.zone()?;
    }
    let date = (year, month, day);
    let days = day_of_date(year, month, day);
    if !r.rest.is_empty() || date_of_day(days) != date {
        return None;
    }
    Some(days * DAY_MS + seconds * 1000 + millis)
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn digit(&mut self) -> Option<i64> {
        let (&c, rest) = self.rest.split_first()?;
        if !c.is_ascii_digit() {
            return None;
        }
        self.rest = rest;
        Some(i64::from(c - b'0'))
    }

    fn digits(&mut self, count: usize) -> Option<i64> {
        let mut n = 0;
        for _ in 0..count {
            n = n * 10 + self.digit()?;
        }
        Some(n)
    }

    fn take(&mut self, c: u8) -> bool {
        match self.rest.split_first() {
            Some((&first, rest)) if first == c => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    fn expect(&mut self, c: u8) -> Option<()> {
        self.take(c).then_some(())
    }

    /// Milliseconds of the digits after the point.
    fn fraction(&mut self) -> Option<i64> {
        let mut unit = 100;
        let mut ms = self.digit()? * unit;
        while let Some(digit) = self.digit() {
            unit /= 10;
            ms += digit * unit;
        }
        Some(ms)
    }

    /// Seconds east of UTC.
    fn zone(&mut self) -> Option<i64> {
        if self.rest.is_empty() || self.take(b'Z') || self.take(b'z') {
            return Some(0);
        }
        let sign = if self.take(b'+') {
            1
        } else {
            self.expect(b'-')?;
            -1
        };
        let hours = self.digits(2)?;
        let minutes = if self.take(b':') || !self.rest.is_empty() {
            self.digits(2)?
        } else {
            0
        };
        (hours < 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_and_parses() {
        let cases = [
            (0, "1970-01-01T00:00:00Z"),
            (1, "1970-01-01T00:00:00.001Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (1_356_351_330_501, "2012-12-24T12:15:30.501Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
            (-62_135_596_800_000, "0001-01-01T00:00:00Z"),
        ];
        for (ms, text) in cases {
            assert_eq!(format_millis(ms), text);
            assert_eq!(parse_millis(text), Some(ms), "{text}");
        }
        // Formatting any number of milliseconds must not overflow.
        assert!(format_millis(i64::MAX).ends_with('Z') && format_millis(i64::MIN).starts_with('-'));
    }

    #[test]
    fn parses_variants() {
        let cases = [
            ("2012-12-24", Some(1_356_307_200_000)),
            ("2012-12-24T12:15Z", Some(1_356_351_300_000)),
            ("2012-12-24T12:15:30.5019Z", Some(1_356_351_330_501)),
            (
                "2012-12-24T12:15:30.501+01:30",
                Some(1_356_351_330_501 - 5_400_000),
            ),
            (
                "2012-12-24T12:15:30.501-0200",
                Some(1_356_351_330_501 + 7_200_000),
            ),
            (
                "2012-12-24T12:15:30.501+02",
                Some(1_356_351_330_501 - 7_200_000),
            ),
            ("2012-02-30T00:00:00Z", None),
            ("2013-02-29", None),
            ("2012-13-01", None),
            ("2012-12-24T24:00:00Z", None),
            ("2012-12-24T12:60:00Z", None),
            ("2012-12-24T12:15:30.Z", None),
            ("2012-12-24T12:15:30Zx", None),
            ("12-12-24", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_millis(text), expected, "{text}");
        }
    }
}
