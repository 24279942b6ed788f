//! The time of day.

/// Milliseconds since 1970, as in BSON dates.
pub fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}
