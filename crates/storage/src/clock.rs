//! The time of day, and new timestamps.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use frond_bson::Timestamp;

/// Milliseconds since 1970.
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as i64)
}

/// The next timestamp: the second, and a number that makes it unique in this process.
pub fn next_timestamp() -> Timestamp {
    static COUNTER: AtomicU32 = AtomicU32::new(1);
    Timestamp {
        time: u32::try_from(now_ms() / 1000).unwrap_or(u32::MAX),
        increment: COUNTER.fetch_add(1, Ordering::Relaxed),
    }
}
