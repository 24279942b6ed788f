//! Time zones: offsets from UTC, and the zones of the IANA database, which is built in.

use frond_error::{Error, Result};
use jiff::Timestamp;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};

#[derive(Clone, Debug)]
pub(crate) enum Zone {
    /// A fixed offset from UTC in milliseconds.
    Fixed(i64),
    /// A zone of the IANA database.
    Iana(TimeZone),
}

impl Zone {
    /// The zone that is used where none is given.
    pub(crate) const UTC: Zone = Zone::Fixed(0);

    /// Reads `Europe/Berlin`, `UTC`, `+02`, `-0530` or `+05:30`.
    ///
    /// Error 40485 for anything else.
    pub(crate) fn parse(name: &str) -> Result<Zone> {
        if let Some(offset) = offset(name) {
            return Ok(Zone::Fixed(offset));
        }
        Zone::iana(name).ok_or_else(|| {
            Error::location(
                40485,
                format!("unrecognized time zone identifier: \"{name}\""),
            )
        })
    }

    /// The zone of the database with exactly this name.
    fn iana(name: &str) -> Option<Zone> {
        if matches!(name, "UTC" | "GMT" | "Etc/UTC" | "Etc/GMT") {
            return Some(Zone::UTC);
        }
        let zone = jiff::tz::db().get(name).ok()?;
        (zone.iana_name() == Some(name)).then_some(Zone::Iana(zone))
    }

    /// Whether this is UTC itself.
    pub(crate) fn is_utc(&self) -> bool {
        matches!(self, Zone::Fixed(0))
    }

    /// Offset of local time from UTC at an instant, in milliseconds.
    pub(crate) fn offset_at(&self, ms: i64) -> i64 {
        match self {
            Zone::Fixed(offset) => *offset,
            Zone::Iana(zone) => millis(zone.to_offset(timestamp(ms))),
        }
    }

    /// Local time at an instant, in milliseconds as if it were UTC. Error 15 at the ends of time.
    pub(crate) fn local(&self, ms: i64) -> Result<i64> {
        ms.checked_add(self.offset_at(ms))
            .ok_or_else(|| Error::overflow("date overflow"))
    }

    /// The moment at which a clock there shows `local`; `None` at the ends of time. A time that is
    /// skipped when clocks go forward counts by the offset before; of a time that comes twice, the
    /// first counts.
    pub(crate) fn to_utc(&self, local: i64) -> Option<i64> {
        let offset = match self {
            Zone::Fixed(offset) => *offset,
            Zone::Iana(zone) => {
                let civil = Offset::UTC.to_datetime(timestamp(local));
                millis(match zone.to_ambiguous_timestamp(civil).offset() {
                    AmbiguousOffset::Unambiguous { offset } => offset,
                    AmbiguousOffset::Gap { before, .. } | AmbiguousOffset::Fold { before, .. } => {
                        before
                    }
                })
            }
        };
        local.checked_sub(offset)
    }
}

/// The nearest moment that the database knows of: years -9999 to 9999.
fn timestamp(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(ms).unwrap_or(if ms < 0 {
        Timestamp::MIN
    } else {
        Timestamp::MAX
    })
}

fn millis(offset: Offset) -> i64 {
    i64::from(offset.seconds()) * 1000
}

/// Reads `+02`, `-0530` or `+05:30`, in milliseconds.
pub(crate) fn offset(text: &str) -> Option<i64> {
    let (sign, digits) = match text.as_bytes() {
        [b'+', digits @ ..] => (1, digits),
        [b'-', digits @ ..] => (-1, digits),
        _ => return None,
    };
    let (hours, minutes) = match digits {
        [a, b] => ([*a, *b], [b'0', b'0']),
        [a, b, c, d] | [a, b, b':', c, d] => ([*a, *b], [*c, *d]),
        _ => return None,
    };
    let number = |[a, b]: [u8; 2]| {
        (a.is_ascii_digit() && b.is_ascii_digit())
            .then(|| i64::from(a - b'0') * 10 + i64::from(b - b'0'))
    };
    Some(sign * (number(hours)? * 60 + number(minutes)?) * 60_000)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    #[test]
    fn names_and_offsets() {
        for (text, hours) in [
            ("+02", 2.0),
            ("-0530", -5.5),
            ("+05:45", 5.75),
            ("UTC", 0.0),
        ] {
            let zone = Zone::parse(text).unwrap();
            assert_eq!(zone.offset_at(0) as f64, hours * HOUR as f64, "{text}");
        }
        for bad in [
            "",
            "+2",
            "+2:00",
            "02",
            "+0a",
            "Mars",
            "europe/berlin",
            "+02:0",
            "+020",
        ] {
            assert_eq!(Zone::parse(bad).unwrap_err().code().code(), 40485, "{bad}");
        }
    }

    #[test]
    fn clocks_change() {
        let berlin = Zone::parse("Europe/Berlin").unwrap();
        // 2024-03-31T01:00:00Z and 2024-10-27T01:00:00Z.
        let (spring, autumn) = (1_711_846_800_000, 1_729_990_800_000);
        assert_eq!(berlin.offset_at(spring - 1), HOUR);
        assert_eq!(berlin.offset_at(spring), 2 * HOUR);
        assert_eq!(berlin.offset_at(autumn), HOUR);
        // 02:30 is skipped in spring and comes twice in autumn.
        assert_eq!(
            berlin.to_utc(spring + HOUR + HOUR / 2),
            Some(spring + HOUR / 2)
        );
        assert_eq!(
            berlin.to_utc(autumn + HOUR + HOUR / 2),
            Some(autumn - HOUR / 2)
        );
        assert_eq!(berlin.local(spring).unwrap(), spring + 2 * HOUR);
        // Beyond the database the nearest offset holds.
        assert_eq!(berlin.offset_at(i64::MAX), HOUR);
        assert!(berlin.local(i64::MAX).is_err());
    }
}
