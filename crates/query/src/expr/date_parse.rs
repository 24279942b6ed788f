//! Parsing dates: in common notations, or by a format.

use super::calendar::{Civil, DAY_MS, iso_days, month_days};
use super::zone::{Zone, offset};
use frond_error::{Error, ErrorCode, Result};

pub(crate) const MONTHS: [&str; 12] = [
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

const WEEKDAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

/// Abbreviations of zones that may stand in a text, with their offsets in hours.
const ABBREVIATIONS: [(&str, i64); 20] = [
    ("Z", 0),
    ("UTC", 0),
    ("GMT", 0),
    ("WET", 0),
    ("BST", 1),
    ("WEST", 1),
    ("CET", 1),
    ("CEST", 2),
    ("EET", 2),
    ("EEST", 3),
    ("MSK", 3),
    ("JST", 9),
    ("EST", -5),
    ("EDT", -4),
    ("CST", -6),
    ("CDT", -5),
    ("MST", -7),
    ("MDT", -6),
    ("PST", -8),
    ("PDT", -7),
];

/// A zone that stands in a text.
enum Written {
    /// `+0200`, in milliseconds.
    Offset(i64),
    /// `EST`: its offset and its name.
    Name(i64, &'static str),
}

struct Reader<'t> {
    whole: &'t str,
    rest: &'t str,
}

/// The parsed parts of a date. Parts that the text does not have are `None`.
#[derive(Default)]
struct Parts {
    year: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    iso_year: Option<i64>,
    iso_week: Option<i64>,
    iso_day: Option<i64>,
    hour: i64,
    minute: i64,
    second: i64,
    millisecond: i64,
    zone: Option<Written>,
}

/// Reads a date in one of the notations that people use: ISO 8601 and RFC 3339, `4 July 2024`,
/// `Jul 4, 2024 5:30 pm`, `7/4/2024`, `4.7.2024`, with a zone behind it or not. Text without a zone
/// is in `zone`; with one, `zone` has to be UTC.
///
/// Error 241 for anything else.
pub(crate) fn parse(text: &str, zone: &Zone) -> Result<i64> {
    let mut reader = Reader {
        whole: text,
        rest: text.trim(),
    };
    let mut parts = Parts::default();
    reader.weekday();
    if !reader.date(&mut parts) {
        let mut clock = Reader { ..reader };
        if clock.clock(&mut parts).is_some() && clock.rest.is_empty() {
            return Err(incomplete(text));
        }
        return Err(reader.unexpected("Unexpected character"));
    }
    let after_date = reader.rest;
    reader.rest = reader.rest.trim_start_matches([' ', ',']);
    let marked = reader.eat(&['T', 't']);
    if reader.rest.starts_with(|c: char| c.is_ascii_digit()) {
        reader
            .clock(&mut parts)
            .ok_or_else(|| reader.unexpected("Unexpected character"))?;
    } else if marked {
        reader.rest = after_date;
    }
    reader.rest = reader.rest.trim_start();
    if !reader.rest.is_empty() {
        parts.zone = Some(reader.zone()?);
    }
    if !reader.rest.is_empty() {
        return Err(reader.unexpected("Unexpected character"));
    }
    parts.finish(text, zone)
}

/// Reads a date by a format with the letters of `$dateFromString`.
///
/// Errors: 18535 and 18536 for the format, 241 for the text.
pub(crate) fn parse_by(text: &str, format: &str, zone: &Zone) -> Result<i64> {
    let mut reader = Reader {
        whole: text,
        rest: text,
    };
    let mut parts = Parts::default();
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        let specifier = if letter == '%' { letters.next() } else { None };
        if reader.rest.is_empty() {
            return Err(reader.unexpected("Not enough data available to satisfy format"));
        }
        match specifier {
            None | Some('%') => {
                if !reader.eat(&[letter]) {
                    return Err(reader.unexpected("The format separator does not match"));
                }
            }
            Some('z') => parts.zone = Some(reader.zone()?),
            Some('Z') => {
                let sign = if reader.eat(&['-']) { -1 } else { 1 };
                let _ = sign == 1 && reader.eat(&['+']);
                let minutes = reader.number(1, 4);
                let minutes = minutes
                    .ok_or_else(|| reader.unexpected("Invalid timezone offset in minutes"))?;
                parts.zone = Some(Written::Offset(sign * minutes * 60_000));
            }
            Some(letter) => {
                if !reader.part(letter, &mut parts) {
                    return Err(reader.unexpected(not_found(letter)));
                }
            }
        }
    }
    if !reader.rest.is_empty() {
        return Err(reader.unexpected("Trailing data"));
    }
    parts.finish(text, zone)
}

/// Fails for a format that has other letters than those `known` after its percent signs.
///
/// Errors 18535 and 18536.
pub(crate) fn check_format(format: &str, known: &str) -> Result<()> {
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            continue;
        }
        match letters.next() {
            None => {
                return Err(Error::location(
                    18535,
                    "Unmatched '%' at end of format string",
                ));
            }
            Some(letter) if !known.contains(letter) => {
                return Err(Error::location(
                    18536,
                    format!("Invalid format character '%{letter}' in format string"),
                ));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// The message for a text without the part that a letter of the format names.
fn not_found(letter: char) -> &'static str {
    match letter {
        'Y' => "A four digit year could not be found",
        'm' => "A two digit month could not be found",
        'd' => "A two digit day could not be found",
        'H' => "A two digit hour could not be found",
        'M' => "A two digit minute could not be found",
        'S' => "A two digit second could not be found",
        'L' => "A three digit millisecond could not be found",
        'j' => "A three digit day-of-year could not be found",
        'G' => "A four digit ISO year could not be found",
        'V' => "A two digit ISO week could not be found",
        'u' => "A single digit ISO day of week could not be found",
        _ => "A textual month could not be found",
    }
}

fn conversion_failure(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::ConversionFailure, message)
}

fn incomplete(text: &str) -> Error {
    conversion_failure(format!(
        "an incomplete date/time string has been found, with elements missing: \"{text}\""
    ))
}

impl<'t> Reader<'t> {
    /// The error for what comes next.
    fn unexpected(&self, why: &str) -> Error {
        let at = self.whole.len() - self.rest.len();
        let next = self.rest.chars().next().unwrap_or('\0');
        conversion_failure(format!(
            "Error parsing date string '{}'; {at}: {why} '{next}'",
            self.whole
        ))
    }

    fn eat(&mut self, letters: &[char]) -> bool {
        match self.rest.strip_prefix(letters) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn digits(&mut self, least: usize, most: usize) -> Option<&'t str> {
        let count = self
            .rest
            .bytes()
            .take(most)
            .take_while(u8::is_ascii_digit)
            .count();
        if count < least {
            return None;
        }
        let (number, rest) = self.rest.split_at(count);
        self.rest = rest;
        Some(number)
    }

    fn number(&mut self, least: usize, most: usize) -> Option<i64> {
        self.digits(least, most)?.parse().ok()
    }

    /// The number of digits that follow.
    fn digits_ahead(&self) -> usize {
        self.rest.bytes().take_while(u8::is_ascii_digit).count()
    }

    /// Reads milliseconds from a fraction of a second.
    fn fraction(&mut self, most: usize) -> Option<i64> {
        let all = self.digits(1, most)?;
        let three: String = all.chars().chain("000".chars()).take(3).collect();
        three.parse().ok()
    }

    /// Reads one of these names, whole or its first three letters. Returns its place.
    fn name(&mut self, names: &[&str], short: bool, long: bool) -> Option<usize> {
        let end = self
            .rest
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        let found = names.iter().position(|name| {
            (long && name.eq_ignore_ascii_case(word))
                || (short && name.get(..3).is_some_and(|s| s.eq_ignore_ascii_case(word)))
        })?;
        self.rest = rest;
        Some(found)
    }

    fn weekday(&mut self) {
        if self.name(&WEEKDAYS, true, true).is_some() {
            self.rest = self.rest.trim_start_matches(['.', ',', ' ']);
        }
    }

    fn month_name(&mut self) -> Option<i64> {
        let found = self.name(&MONTHS, true, true)?;
        self.eat(&['.']);
        Some(found as i64 + 1)
    }

    /// Reads a date. False, with nothing read, if there is none.
    fn date(&mut self, parts: &mut Parts) -> bool {
        let start = self.rest;
        let found = self.any_date(parts).is_some();
        if !found {
            self.rest = start;
        }
        found
    }

    fn any_date(&mut self, parts: &mut Parts) -> Option<()> {
        const BETWEEN: [char; 5] = [' ', '-', '.', '/', ','];
        if let Some(month) = self.month_name() {
            // July 4, 2024
            self.rest = self.rest.trim_start_matches(BETWEEN);
            let day = self.number(1, 2)?;
            self.ordinal();
            let gap = self.rest.trim_start_matches(BETWEEN);
            if gap.len() == self.rest.len() {
                return None;
            }
            self.rest = gap;
            let year = self.number(4, 4)?;
            parts.set_date(year, month, day);
            return Some(());
        }
        match self.digits_ahead() {
            4 => {
                let year = self.number(4, 4)?;
                if self.eat(&['W', 'w']) {
                    return self.iso_week(year, parts);
                }
                if !self.eat(&['-', '/', '.']) {
                    return None;
                }
                if self.eat(&['W', 'w']) {
                    return self.iso_week(year, parts);
                }
                if self.digits_ahead() == 3 {
                    parts.year = Some(year);
                    parts.day_of_year = self.number(3, 3);
                    return Some(());
                }
                let month = match self.month_name() {
                    Some(month) => month,
                    None => self.number(1, 2)?,
                };
                let day = if self.eat(&['-', '/', '.']) {
                    self.number(1, 2)?
                } else {
                    1
                };
                parts.set_date(year, month, day);
            }
            7 => {
                parts.year = self.number(4, 4);
                parts.day_of_year = self.number(3, 3);
            }
            8 => {
                let (year, month) = (self.number(4, 4)?, self.number(2, 2)?);
                parts.set_date(year, month, self.number(2, 2)?);
            }
            1 | 2 => {
                let first = self.number(1, 2)?;
                let american = self.rest.starts_with('/');
                self.ordinal();
                let gap = self.rest.trim_start_matches(BETWEEN);
                let dotted = self.rest.starts_with(['-', '.']);
                self.rest = gap;
                if let Some(month) = self.month_name() {
                    // 4 July 2024
                    self.rest = self.rest.trim_start_matches(BETWEEN);
                    parts.set_date(self.number(4, 4)?, month, first);
                } else if american || dotted {
                    let second = self.number(1, 2)?;
                    if !self.eat(&['/', '-', '.']) {
                        return None;
                    }
                    let year = self.number(4, 4)?;
                    let (month, day) = if american {
                        (first, second)
                    } else {
                        (second, first)
                    };
                    parts.set_date(year, month, day);
                } else {
                    return None;
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// `1st`, `2nd`, `3rd`, `4th`.
    fn ordinal(&mut self) {
        for ending in ["st", "nd", "rd", "th"] {
            if let Some(head) = self.rest.get(..2)
                && head.eq_ignore_ascii_case(ending)
            {
                self.rest = self.rest.get(2..).unwrap_or_default();
                return;
            }
        }
    }

    fn iso_week(&mut self, year: i64, parts: &mut Parts) -> Option<()> {
        parts.iso_year = Some(year);
        parts.iso_week = Some(self.number(2, 2)?);
        self.eat(&['-']);
        parts.iso_day = self.number(1, 1);
        Some(())
    }

    /// `12:30`, `12:30:15.250`, `123015`, `5 pm`.
    fn clock(&mut self, parts: &mut Parts) -> Option<()> {
        if matches!(self.digits_ahead(), 4 | 6) {
            parts.hour = self.number(2, 2)?;
            parts.minute = self.number(2, 2)?;
            if self.digits_ahead() >= 2 {
                parts.second = self.number(2, 2)?;
            }
        } else {
            parts.hour = self.number(1, 2)?;
            if self.eat(&[':']) {
                parts.minute = self.number(1, 2)?;
                if self.eat(&[':']) {
                    parts.second = self.number(1, 2)?;
                }
            }
        }
        if self.rest.starts_with(['.', ',', ':'])
            && self
                .rest
                .get(1..)
                .is_some_and(|t| t.starts_with(|c: char| c.is_ascii_digit()))
        {
            self.eat(&['.', ',', ':']);
            parts.millisecond = self.fraction(9)?;
            self.digits(0, usize::MAX);
        }
        let before = self.rest;
        self.rest = self.rest.trim_start();
        let late = match self.rest.get(..1) {
            Some("a" | "A") => false,
            Some("p" | "P") => true,
            _ => {
                self.rest = before;
                return Some(());
            }
        };
        self.rest = self.rest.get(1..).unwrap_or_default();
        self.eat(&['.']);
        if !self.eat(&['m', 'M']) {
            self.rest = before;
            return Some(());
        }
        self.eat(&['.']);
        if !(1..=12).contains(&parts.hour) {
            return None;
        }
        parts.hour = parts.hour % 12 + if late { 12 } else { 0 };
        Some(())
    }

    /// Reads a zone: an offset, or the abbreviation of one. Names of places are refused.
    fn zone(&mut self) -> Result<Written> {
        let start = self.rest;
        let is_part =
            |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | ':' | '/' | '_');
        let end = start.find(|c| !is_part(c)).unwrap_or(start.len());
        let (word, rest) = start.split_at(end);
        let signed = word.strip_prefix("GMT").or(word.strip_prefix("UTC"));
        let signed = signed.filter(|t| !t.is_empty()).unwrap_or(word);
        let found = match offset(signed).or_else(|| short_offset(signed)) {
            Some(offset) => Some(Written::Offset(offset)),
            None => ABBREVIATIONS
                .iter()
                .find(|(name, _)| name.eq_ignore_ascii_case(word))
                .map(|(name, hours)| Written::Name(hours * 3_600_000, name)),
        };
        if let Some(found) = found {
            self.rest = rest;
            return Ok(found);
        }
        if word.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return Err(self.unexpected(
                "passing a time zone identifier as part of the string is not allowed",
            ));
        }
        Err(self.unexpected("Unexpected character"))
    }

    /// Reads what a letter of a format stands for.
    fn part(&mut self, letter: char, parts: &mut Parts) -> bool {
        let mut set = |slot: &mut Option<i64>, least, most| {
            *slot = self.number(least, most);
            slot.is_some()
        };
        match letter {
            'Y' => set(&mut parts.year, 4, 4),
            'm' => set(&mut parts.month, 1, 2),
            'd' => set(&mut parts.day, 1, 2),
            'j' => set(&mut parts.day_of_year, 1, 3),
            'G' => set(&mut parts.iso_year, 4, 4),
            'V' => set(&mut parts.iso_week, 1, 2),
            'u' => set(&mut parts.iso_day, 1, 1),
            'H' => self.number(1, 2).map(|n| parts.hour = n).is_some(),
            'M' => self.number(1, 2).map(|n| parts.minute = n).is_some(),
            'S' => self.number(1, 2).map(|n| parts.second = n).is_some(),
            'L' => self.fraction(3).map(|n| parts.millisecond = n).is_some(),
            'b' | 'B' => {
                let found = self.name(&MONTHS, true, true);
                parts.month = found.map(|at| at as i64 + 1);
                found.is_some()
            }
            _ => false,
        }
    }
}

/// `+2` or `+2:00`, which only texts may have.
fn short_offset(text: &str) -> Option<i64> {
    let (sign, rest) = text.split_at_checked(1)?;
    let (hours, minutes) = rest.split_once(':').unwrap_or((rest, "00"));
    (hours.len() == 1).then(|| offset(&format!("{sign}0{hours}:{minutes}")))?
}

impl Parts {
    fn set_date(&mut self, year: i64, month: i64, day: i64) {
        (self.year, self.month, self.day) = (Some(year), Some(month), Some(day));
    }

    /// Checks the parts of a date and makes a moment of them.
    fn finish(self, text: &str, zone: &Zone) -> Result<i64> {
        let invalid = |why: &str| {
            conversion_failure(format!(
                "Error parsing date string '{text}'; {}: {why} '{}'",
                text.len().saturating_sub(1),
                text.chars().next_back().unwrap_or('\0')
            ))
        };
        let by_week = self.iso_year.is_some() || self.iso_week.is_some() || self.iso_day.is_some();
        if by_week && (self.year.is_some() || self.month.is_some() || self.day.is_some()) {
            return Err(invalid(
                "Mixing of ISO dates with natural dates is not allowed",
            ));
        }
        let days = if by_week {
            let year = self.iso_year.ok_or_else(|| incomplete(text))?;
            let (week, day) = (self.iso_week.unwrap_or(1), self.iso_day.unwrap_or(1));
            if !(1..=53).contains(&week) || !(0..=7).contains(&day) {
                return Err(invalid("The parsed date was invalid"));
            }
            iso_days(year, week, day)
        } else {
            let year = self.year.ok_or_else(|| incomplete(text))?;
            let (month, day) = match self.day_of_year {
                Some(day) if self.month.is_none() && self.day.is_none() => {
                    let length = 337 + month_days(year, 2);
                    if !(1..=length).contains(&day) {
                        return Err(invalid("The parsed date was invalid"));
                    }
                    (1, day)
                }
                _ => {
                    let month = self.month.ok_or_else(|| incomplete(text))?;
                    let day = self.day.ok_or_else(|| incomplete(text))?;
                    if !(1..=12).contains(&month) || !(1..=month_days(year, month)).contains(&day) {
                        return Err(invalid("The parsed date was invalid"));
                    }
                    (month, day)
                }
            };
            Some(super::calendar::days(year, month, 1) + day - 1)
        };
        let midnight = self.hour == 24 && self.minute == 0 && self.second == 0;
        let is_time = (0..24).contains(&self.hour) && (0..60).contains(&self.minute);
        if !(midnight || (is_time && (0..60).contains(&self.second))) {
            return Err(invalid("The parsed time was invalid"));
        }
        let clock = Civil {
            year: 1970,
            month: 1,
            day: 1,
            hour: self.hour,
            minute: self.minute,
            second: self.second,
            millisecond: self.millisecond,
        };
        let local = days
            .and_then(|days| days.checked_mul(DAY_MS))
            .and_then(|ms| ms.checked_add(clock.to_ms()?));
        let moment = match self.zone {
            None => local.and_then(|local| zone.to_utc(local)),
            Some(written) => {
                let offset = match written {
                    Written::Offset(_) if !zone.is_utc() => {
                        return Err(conversion_failure(
                            "you cannot pass in a date/time string with GMT offset together with \
                             a timezone argument",
                        ));
                    }
                    Written::Name(_, name) if !zone.is_utc() => {
                        return Err(conversion_failure(format!(
                            "you cannot pass in a date/time string with time zone information \
                             ('{name}') together with a timezone argument"
                        )));
                    }
                    Written::Offset(offset) | Written::Name(offset, _) => offset,
                };
                local.and_then(|local| local.checked_sub(offset))
            }
        };
        moment.ok_or_else(|| invalid("The parsed date was invalid"))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn dates_as_people_write_them() {
        for (text, expected) in [
            ("2024-07-04", "2024-07-04T00:00:00Z"),
            ("2024-07-04T05", "2024-07-04T05:00:00Z"),
            ("2024-07-04T05:06", "2024-07-04T05:06:00Z"),
            ("2024-07-04 05:06:07.89", "2024-07-04T05:06:07.890Z"),
            ("2024-07-04T05:06:07.890123Z", "2024-07-04T05:06:07.890Z"),
            ("2024-07-04T05:06:07+02:00", "2024-07-04T03:06:07Z"),
            ("2024-07-04T05:06:07 -0330", "2024-07-04T08:36:07Z"),
            ("2024-07-04 05:06 GMT+2", "2024-07-04T03:06:00Z"),
            ("2024-07-04 05:06 EST", "2024-07-04T10:06:00Z"),
            ("20240704T050607Z", "2024-07-04T05:06:07Z"),
            ("2024/7/4", "2024-07-04T00:00:00Z"),
            ("7/4/2024", "2024-07-04T00:00:00Z"),
            ("4.7.2024", "2024-07-04T00:00:00Z"),
            ("04-07-2024 12:00", "2024-07-04T12:00:00Z"),
            ("Jul 4, 2024", "2024-07-04T00:00:00Z"),
            ("July 4th, 2024 5:30 pm", "2024-07-04T17:30:00Z"),
            ("4 July 2024 12am", "2024-07-04T00:00:00Z"),
            ("Thu, 04 Jul 2024 05:06:07 +0200", "2024-07-04T03:06:07Z"),
            ("04-Jul-2024", "2024-07-04T00:00:00Z"),
            ("2024-W27-4", "2024-07-04T00:00:00Z"),
            ("2024-186", "2024-07-04T00:00:00Z"),
            ("2024-07-04T24:00:00", "2024-07-05T00:00:00Z"),
        ] {
            let expected = expected.parse::<jiff::Timestamp>().unwrap();
            let found = parse(text, &Zone::UTC).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(found, expected.as_millisecond(), "{text}");
        }
    }

    #[test]
    fn what_is_no_date() {
        for (text, part) in [
            ("", "Unexpected character"),
            ("never", "0: Unexpected character 'n'"),
            ("now", "Unexpected"),
            ("12:30", "an incomplete date/time string"),
            ("2024-02-30", "The parsed date was invalid"),
            ("2024-13-01", "The parsed date was invalid"),
            ("2024-01-01T25:00", "The parsed time was invalid"),
            ("2024-01-01T12:60", "The parsed time was invalid"),
            (
                "2024-01-01T12:00 Europe/Berlin",
                "passing a time zone identifier",
            ),
            ("2024-01-01T12:00Z 5", "Unexpected character"),
            ("2024-367", "The parsed date was invalid"),
        ] {
            let error = parse(text, &Zone::UTC).unwrap_err();
            assert_eq!(error.code(), ErrorCode::ConversionFailure, "{text}");
            assert!(error.message().contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn zones_of_texts_and_arguments() {
        let berlin = Zone::parse("Europe/Berlin").unwrap();
        let winter = parse("2024-01-01T12:00", &berlin).unwrap();
        let summer = parse("2024-07-01T12:00", &berlin).unwrap();
        assert_eq!((winter / 3_600_000 % 24, summer / 3_600_000 % 24), (11, 10));
        let error = parse("2024-01-01T12:00+01", &berlin).unwrap_err();
        assert!(error.message().contains("GMT offset together"), "{error}");
        let error = parse("2024-01-01T12:00Z", &berlin).unwrap_err();
        assert!(error.message().contains("('Z') together"), "{error}");
        let by = |text, format| parse_by(text, format, &berlin);
        assert_eq!(by("1.7.2024 12h", "%d.%m.%Y %Hh").unwrap(), summer);
        assert!(by("2024-07-01 +0100", "%Y-%m-%d %z").is_err());
    }

    #[test]
    fn formats() {
        for (text, format, part) in [
            ("2024-07", "%Y-%m", "an incomplete date/time string"),
            ("12:30", "%H:%M", "an incomplete date/time string"),
            (
                "24-07-01",
                "%Y-%m-%d",
                "0: A four digit year could not be found '2'",
            ),
            ("2024-07-01x", "%Y-%m-%d", "10: Trailing data 'x'"),
            ("2024-07", "%Y-%m-%d", "Not enough data available"),
            (
                "2024/07/01",
                "%Y-%m-%d",
                "4: The format separator does not match '/'",
            ),
            (
                "2024 Foo 1",
                "%Y %b %d",
                "A textual month could not be found",
            ),
            ("2024 2024 1 1", "%G %Y %m %d", "Mixing of ISO dates"),
        ] {
            let error = parse_by(text, format, &Zone::UTC).unwrap_err();
            assert_eq!(error.code(), ErrorCode::ConversionFailure, "{text}");
            assert!(error.message().contains(part), "{text}: {error}");
        }
        assert_eq!(
            check_format("%Y%%", "Y%").map_err(|e| e.code().code()),
            Ok(())
        );
        for (format, code) in [("%Q", 18536), ("a%", 18535)] {
            assert_eq!(check_format(format, "Y%").unwrap_err().code().code(), code);
        }
    }
}
