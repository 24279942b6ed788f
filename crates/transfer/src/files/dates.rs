//! Dates by a layout, in the three notations that columns may have.

use frond_bson::calendar::{day_of_date, month_days};

use crate::error::{Error, Result};

/// A part of a layout.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Year,
    ShortYear,
    Month,
    MonthName,
    Day,
    Hour,
    Minute,
    Second,
    Millisecond,
    Zone,
    Text(char),
}

/// The layout of a date.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout(Vec<Part>);

/// The words of a notation, longer ones before their beginnings.
type Words = &'static [(&'static str, Part)];

const GO: Words = &[
    ("2006", Part::Year),
    ("06", Part::ShortYear),
    ("Jan", Part::MonthName),
    ("01", Part::Month),
    ("02", Part::Day),
    ("15", Part::Hour),
    ("04", Part::Minute),
    ("05", Part::Second),
    ("000", Part::Millisecond),
    ("Z07:00", Part::Zone),
    ("-07:00", Part::Zone),
    ("-0700", Part::Zone),
];

const MS: Words = &[
    ("yyyy", Part::Year),
    ("yy", Part::ShortYear),
    ("MMM", Part::MonthName),
    ("MM", Part::Month),
    ("dd", Part::Day),
    ("HH", Part::Hour),
    ("mm", Part::Minute),
    ("ss", Part::Second),
    ("fff", Part::Millisecond),
    ("zzz", Part::Zone),
];

const ORACLE: Words = &[
    ("YYYY", Part::Year),
    ("YY", Part::ShortYear),
    ("MON", Part::MonthName),
    ("MM", Part::Month),
    ("DD", Part::Day),
    ("HH24", Part::Hour),
    ("MI", Part::Minute),
    ("SS", Part::Second),
    ("FF3", Part::Millisecond),
    ("TZH:TZM", Part::Zone),
];

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];

impl Layout {
    /// A layout in the notation of a type: `date`, `date_go`, `date_ms` or `date_oracle`.
    pub fn parse(kind: &str, text: &str) -> Result<Layout> {
        let words = match kind {
            "date_ms" => MS,
            "date_oracle" => ORACLE,
            _ => GO,
        };
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            if let Some((word, part)) = words.iter().find(|(word, _)| rest.starts_with(word)) {
                parts.push(part.clone());
                rest = rest.get(word.len()..).unwrap_or_default();
                continue;
            }
            if c.is_ascii_alphanumeric() && c != 'T' && c != 'Z' {
                return Err(Error::Usage(format!(
                    "{kind}({text}): the layout is not understood from {rest:?} on"
                )));
            }
            parts.push(Part::Text(c));
            rest = rest.get(c.len_utf8()..).unwrap_or_default();
        }
        if parts.is_empty() {
            return Err(Error::Usage(format!(
                "{kind} needs a layout in its brackets"
            )));
        }
        Ok(Layout(parts))
    }

    /// The milliseconds since 1970 of a date in this layout.
    pub fn read(&self, text: &str) -> Option<i64> {
        let mut rest = text;
        let (mut year, mut month, mut day) = (1970_i64, 1_i64, 1_i64);
        let (mut hour, mut minute, mut second, mut millisecond, mut offset) = (0, 0, 0, 0, 0);
        for part in &self.0 {
            match part {
                Part::Year => year = digits(&mut rest, 4)?,
                Part::ShortYear => {
                    let short = digits(&mut rest, 2)?;
                    year = if short >= 69 {
                        1900 + short
                    } else {
                        2000 + short
                    };
                }
                Part::Month => month = digits(&mut rest, 2)?,
                Part::MonthName => {
                    let name = rest.get(..3)?.to_ascii_lowercase();
                    month =
                        i64::try_from(MONTHS.iter().position(|known| *known == name)?).ok()? + 1;
                    rest = rest.get(3..)?;
                }
                Part::Day => day = digits(&mut rest, 2)?,
                Part::Hour => hour = digits(&mut rest, 2)?,
                Part::Minute => minute = digits(&mut rest, 2)?,
                Part::Second => second = digits(&mut rest, 2)?,
                Part::Millisecond => millisecond = digits(&mut rest, 3)?,
                Part::Zone => offset = zone(&mut rest)?,
                Part::Text(c) => rest = rest.strip_prefix(*c)?,
            }
        }
        let fits = rest.is_empty()
            && (1..=12).contains(&month)
            && (1..=month_days(year, month)).contains(&day)
            && hour < 24
            && minute < 60
            && second < 60;
        let minutes = (day_of_date(year, month, day) * 24 + hour) * 60 + minute - offset;
        fits.then_some((minutes * 60 + second) * 1000 + millisecond)
    }
}

fn digits(rest: &mut &str, count: usize) -> Option<i64> {
    let text = rest.get(..count)?;
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    *rest = rest.get(count..)?;
    text.parse().ok()
}

/// Minutes east of Greenwich: `Z`, `+01:00` or `+0100`.
fn zone(rest: &mut &str) -> Option<i64> {
    if let Some(after) = rest.strip_prefix('Z') {
        *rest = after;
        return Some(0);
    }
    let sign = match rest.bytes().next()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    *rest = rest.get(1..)?;
    let hours = digits(rest, 2)?;
    *rest = rest.strip_prefix(':').unwrap_or(rest);
    Some(sign * (hours * 60 + digits(rest, 2)?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_three_notations() {
        for (kind, layout, text, expected) in [
            ("date_ms", "yyyy-MM-dd", "1970-01-02", Some(86_400_000)),
            (
                "date_ms",
                "yyyy-MM-dd HH:mm:ss.fff",
                "2000-02-29 12:30:15.250",
                Some(951_827_415_250),
            ),
            (
                "date_oracle",
                "YYYY/MM/DD HH24:MI:SS",
                "2001/03/01 00:00:00",
                Some(983_404_800_000),
            ),
            (
                "date_go",
                "2006-01-02T15:04:05Z07:00",
                "2001-03-01T01:00:00+01:00",
                Some(983_404_800_000),
            ),
            ("date", "02 Jan 06", "01 Mar 01", Some(983_404_800_000)),
            ("date", "2006-01-02", "1969-12-31", Some(-86_400_000)),
            ("date", "2006-01-02", "2001-02-29", None),
            ("date", "2006-01-02", "2001-02-2", None),
            ("date", "2006-01-02", "2001-02-21x", None),
        ] {
            assert_eq!(
                Layout::parse(kind, layout).unwrap().read(text),
                expected,
                "{layout} {text}"
            );
        }
        assert!(Layout::parse("date_ms", "qqq").is_err());
        assert!(Layout::parse("date", "").is_err());
    }
}
