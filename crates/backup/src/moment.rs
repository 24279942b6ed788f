//! The moment that a restore asks for.

use frond_bson::{Timestamp, extjson};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The end of what the repository has.
    End,
    /// The moment of the backup itself.
    Backup,
    /// A time in milliseconds since 1970.
    Time(i64),
    /// A timestamp of the oplog: the writes up to it.
    Stamp(u64),
}

impl Moment {
    /// Reads `2026-11-23T10:15:30Z` (UTC if it names no zone), seconds since 1970 with a fraction, `Timestamp(t, i)`, `end` or `backup`.
    ///
    /// # Errors
    /// Names the accepted forms.
    pub fn parse(text: &str) -> Result<Moment, String> {
        let text = text.trim();
        match text {
            "end" => return Ok(Moment::End),
            "backup" => return Ok(Moment::Backup),
            _ => {}
        }
        let inner = text.strip_prefix("Timestamp(");
        if let Some(inner) = inner.and_then(|rest| rest.strip_suffix(')')) {
            let parts = inner.split_once(',');
            let parts = parts.map(|(t, i)| (t.trim().parse(), i.trim().parse()));
            if let Some((Ok(time), Ok(increment))) = parts {
                let stamp = Timestamp { time, increment };
                return Ok(Moment::Stamp(stamp.to_u64()));
            }
        } else if let Some(ms) = extjson::parse_millis(text) {
            return Ok(Moment::Time(ms));
        } else if let Ok(seconds) = text.parse::<f64>()
            && seconds.is_finite()
        {
            return Ok(Moment::Time((seconds * 1000.0) as i64));
        }
        Err(
            "expected a time such as 2026-11-23T10:15:30Z, seconds since 1970, Timestamp(t, i), `backup` or `end`"
                .to_owned(),
        )
    }
}

/// A time for people.
pub fn time_text(ms: i64) -> String {
    extjson::format_millis(ms)
}

/// A timestamp of the oplog for people.
pub fn stamp_text(stamp: u64) -> String {
    let stamp = Timestamp::from_u64(stamp);
    format!("Timestamp({}, {})", stamp.time, stamp.increment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read() {
        let cases = [
            ("1790000000", Some(Moment::Time(1_790_000_000_000))),
            ("1790000000.25", Some(Moment::Time(1_790_000_000_250))),
            ("1970-01-01T00:00:01Z", Some(Moment::Time(1000))),
            ("1970-01-01T01:00:01.5+01:00", Some(Moment::Time(1500))),
            ("Timestamp(1, 2)", Some(Moment::Stamp(1 << 32 | 2))),
            ("Timestamp(1,2)", Some(Moment::Stamp(1 << 32 | 2))),
            ("Timestamp(1)", None),
            ("backup", Some(Moment::Backup)),
            ("end", Some(Moment::End)),
            ("yesterday", None),
            ("nan", None),
        ];
        for (text, expected) in cases {
            assert_eq!(Moment::parse(text).ok(), expected, "{text}");
        }
        assert_eq!(stamp_text(1 << 32 | 2), "Timestamp(1, 2)");
    }
}
