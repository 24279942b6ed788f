//! The internal timestamp of replication and sharding.

/// Seconds since the epoch and a counter within the second; not the type for dates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 UTC.
    pub time: u32,
    /// Ordinal within the second.
    pub increment: u32,
}

impl Timestamp {
    /// From the 64 bits that BSON stores: the time in the high half.
    pub fn from_u64(bits: u64) -> Self {
        Self {
            time: (bits >> 32) as u32,
            increment: bits as u32,
        }
    }

    /// The 64 bits that BSON stores.
    pub fn to_u64(self) -> u64 {
        (u64::from(self.time) << 32) | u64::from(self.increment)
    }
}
