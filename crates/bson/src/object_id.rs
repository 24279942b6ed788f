//! The 12-byte unique identifier of documents.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::str::FromStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::hex::{unhex_array, write_hex};

/// Four bytes of seconds, five bytes chosen once per process, three bytes of a counter, all big-endian.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub [u8; 12]);

/// The error for a text that is not 24 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseObjectIdError;

impl fmt::Display for ParseObjectIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an ObjectId is 24 hexadecimal digits")
    }
}

impl std::error::Error for ParseObjectIdError {}

struct Process {
    random: [u8; 5],
    counter: AtomicU32,
}

/// The random part of this process. `RandomState` is seeded by the operating system.
fn process() -> &'static Process {
    static PROCESS: OnceLock<Process> = OnceLock::new();
    PROCESS.get_or_init(|| {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| d.as_nanos());
        let seed = RandomState::new().hash_one((now, std::process::id()));
        let start = RandomState::new().hash_one(seed) as u32;
        let [a, b, c, d, e, ..] = seed.to_be_bytes();
        Process {
            random: [a, b, c, d, e],
            counter: AtomicU32::new(start & 0x00FF_FFFF),
        }
    })
}

impl ObjectId {
    /// A new identifier of the current second.
    #[allow(clippy::new_without_default)] // Default is the all-zero id, on purpose.
    pub fn new() -> Self {
        let seconds = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| d.as_secs());
        let process = process();
        let count = process.counter.fetch_add(1, Ordering::Relaxed);
        let [t0, t1, t2, t3] = (seconds as u32).to_be_bytes();
        let [r0, r1, r2, r3, r4] = process.random;
        let [_, c0, c1, c2] = count.to_be_bytes();
        Self([t0, t1, t2, t3, r0, r1, r2, r3, r4, c0, c1, c2])
    }

    pub fn bytes(&self) -> [u8; 12] {
        self.0
    }

    /// The time of creation, in seconds since the epoch.
    pub fn seconds(&self) -> u32 {
        let [a, b, c, d, ..] = self.0;
        u32::from_be_bytes([a, b, c, d])
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl FromStr for ObjectId {
    type Err = ParseObjectIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        unhex_array(text).map(Self).ok_or(ParseObjectIdError)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn parses_and_prints_hex() {
        let cases = [
            ("507f1f77bcf86cd799439011", Some("507f1f77bcf86cd799439011")),
            ("507F1F77BCF86CD799439011", Some("507f1f77bcf86cd799439011")),
            ("507f1f77bcf86cd79943901", None),
            ("507f1f77bcf86cd7994390111", None),
            ("507f1f77bcf86cd79943901g", None),
            ("+07f1f77bcf86cd799439011", None),
            ("é507f1f77bcf86cd7994390", None),
            ("", None),
        ];
        for (text, expected) in cases {
            let got = text.parse::<ObjectId>().ok().map(|id| id.to_string());
            assert_eq!(got.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn new_ids_differ_and_carry_the_time() {
        let ids: Vec<ObjectId> = (0..1000).map(|_| ObjectId::new()).collect();
        let distinct: std::collections::HashSet<_> = ids.iter().collect();
        assert_eq!(distinct.len(), ids.len());
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs();
        assert!(now.abs_diff(u64::from(ids[0].seconds())) < 60);
        assert_eq!(ids[0].0[4..9], ids[999].0[4..9]);
    }
}
