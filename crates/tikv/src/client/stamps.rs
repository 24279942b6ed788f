//! Stamps of commits: BSON timestamps made of timestamps of PD.
//!
//! A timestamp of PD is a time in milliseconds and a number below 2^18. A stamp has 32 bits for the second and 31 for the rest,
//! since MongoDB's counters are signed: 10 for the millisecond, 11 for the number, and 10 for the position of the key within its
//! commit. PD raises the millisecond only every `tso-update-physical-interval`; a commit whose number is too large for a stamp
//! waits for that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use frond_kv::Result;
use parking_lot::Mutex;
use tikv::TimestampExt;

use crate::client::connection::{Connection, PHYSICAL_SHIFT};

/// The most stamps that a commit may take.
pub(crate) const STAMPS_MAX: u32 = 1 << POSITION_BITS;

const POSITION_BITS: u32 = 10;
const NUMBER_BITS: u32 = 11;

/// The first stamp of a commit with this timestamp. `None` if PD has given out too many timestamps in the millisecond: then
/// another one is needed.
pub(crate) fn first(timestamp: u64) -> Option<u64> {
    let (ms, number) = (
        timestamp >> PHYSICAL_SHIFT,
        timestamp & ((1 << PHYSICAL_SHIFT) - 1),
    );
    if number >> NUMBER_BITS != 0 {
        return None;
    }
    let rest = (ms % 1000) << (NUMBER_BITS + POSITION_BITS) | number << POSITION_BITS;
    Some((ms / 1000) << 32 | rest)
}

/// The first stamp that commits with timestamps from this one on may take.
pub(crate) fn bound(timestamp: u64) -> u64 {
    let ms = timestamp >> PHYSICAL_SHIFT;
    let number = timestamp & ((1 << PHYSICAL_SHIFT) - 1);
    let number = number.min((1 << NUMBER_BITS) - 1);
    (ms / 1000) << 32 | (ms % 1000) << (NUMBER_BITS + POSITION_BITS) | number << POSITION_BITS
}

/// A stamp for the snapshot with a timestamp, from which that is found again. `None` as for [`first`].
pub(crate) fn of_snapshot(timestamp: u64) -> Option<u64> {
    Some(first(timestamp)? | u64::from(STAMPS_MAX - 1))
}

/// The timestamp of a stamp of [`of_snapshot`]. `None` for others.
pub(crate) fn snapshot_of(stamp: u64) -> Option<u64> {
    let (seconds, rest) = (stamp >> 32, stamp & 0xffff_ffff);
    let ms = rest >> (NUMBER_BITS + POSITION_BITS);
    let number = (rest >> POSITION_BITS) & ((1 << NUMBER_BITS) - 1);
    let is_last = rest & u64::from(STAMPS_MAX - 1) == u64::from(STAMPS_MAX - 1);
    (is_last && ms < 1000).then_some((seconds * 1000 + ms) << PHYSICAL_SHIFT | number)
}

/// The commits with stamps that are under way on this server, each with a timestamp that its stamps are not below.
///
/// A commit becomes visible some time after it got its stamps. So a reader in the order of stamps must not go past those of a
/// commit that may still come.
#[derive(Default)]
pub(crate) struct InFlight {
    begun: Mutex<BTreeMap<u64, usize>>,
    /// Readers may have gone up to here: no commit may take a stamp of a timestamp that is not above.
    settled: AtomicU64,
}

impl InFlight {
    /// A timestamp that those under way, and those to come, do not have a lower one than.
    pub(crate) fn oldest(&self, connection: &Connection) -> u64 {
        let begun = self.begun.lock();
        let first = begun.first_key_value().map(|(at, _)| *at);
        first.unwrap_or_else(|| connection.last_timestamp())
    }
}

/// A commit that is under way, or a snapshot.
pub(crate) struct InFlightEntry {
    among: Arc<InFlight>,
    at: u64,
}

impl InFlightEntry {
    /// Registers a commit. It gets its timestamp later, so that this is a lower one.
    pub(crate) fn begin(among: &Arc<InFlight>, connection: &Connection) -> InFlightEntry {
        let mut begun = among.begun.lock();
        let at = connection.last_timestamp();
        *begun.entry(at).or_default() += 1;
        InFlightEntry {
            among: among.clone(),
            at,
        }
    }
}

impl InFlightEntry {
    /// Registers a commit that takes its stamps of a timestamp that it has already. `None` if that is too old.
    pub(crate) fn begin_at(among: &Arc<InFlight>, at: u64) -> Option<InFlightEntry> {
        let mut begun = among.begun.lock();
        if at <= among.settled.load(Ordering::SeqCst) {
            return None;
        }
        *begun.entry(at).or_default() += 1;
        Some(InFlightEntry {
            among: among.clone(),
            at,
        })
    }
}

impl InFlightEntry {
    /// Registers something that needs a timestamp which was given out before.
    pub(crate) fn needing(among: &Arc<InFlight>, at: u64) -> InFlightEntry {
        *among.begun.lock().entry(at).or_default() += 1;
        InFlightEntry {
            among: among.clone(),
            at,
        }
    }
}

impl Drop for InFlightEntry {
    fn drop(&mut self) {
        let mut begun = self.among.begun.lock();
        if let Some(count) = begun.get_mut(&self.at) {
            *count -= 1;
            if *count == 0 {
                begun.remove(&self.at);
            }
        }
    }
}

/// A timestamp so that no commit of this server takes a stamp below it any more, and all that have are visible.
pub(crate) fn settled(in_flight: &InFlight, connection: &Connection) -> Result<u64> {
    // A commit that registers after this has a later timestamp.
    let now = connection.timestamp()?.version();
    let begun = in_flight.begun.lock();
    let settled = begun.first_key_value().map_or(now, |(at, _)| now.min(*at));
    in_flight.settled.fetch_max(settled, Ordering::SeqCst);
    Ok(settled)
}

/// Is notified of the stamps that readers may rely on.
type Listener = Arc<dyn Fn(u64) + Send + Sync>;

/// Combines the bound of this server with those of the others.
type Combine = Arc<dyn Fn(u64) -> Option<u64> + Send + Sync>;

/// The last stamp that readers may rely on.
#[derive(Default)]
pub(crate) struct DurableStamp {
    stamp: AtomicU64,
    listener: Mutex<Option<Listener>>,
    combine: Mutex<Option<Combine>>,
}

impl DurableStamp {
    pub(crate) fn get(&self) -> u64 {
        self.stamp.load(Ordering::Acquire)
    }

    pub(crate) fn set_listener(&self, listener: Listener) {
        *self.listener.lock() = Some(listener);
    }

    pub(crate) fn set_combine(&self, combine: Combine) {
        *self.combine.lock() = Some(combine);
    }

    /// Raises it to what is settled on this server, and on the others.
    pub(crate) fn raise(&self, in_flight: &InFlight, connection: &Connection) -> Result<()> {
        let own = bound(settled(in_flight, connection)?);
        let combine = self.combine.lock().clone();
        let all = match combine {
            Some(combine) => combine(own),
            None => Some(own),
        };
        if let Some(stamp) = all.and_then(|bound| bound.checked_sub(1))
            && self.stamp.fetch_max(stamp, Ordering::AcqRel) < stamp
        {
            let listener = self.listener.lock().clone();
            if let Some(listener) = listener {
                listener(stamp);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_takes_no_stamp_that_readers_have_passed() {
        let in_flight = Arc::new(InFlight::default());
        in_flight.settled.store(100, Ordering::SeqCst);
        assert!(InFlightEntry::begin_at(&in_flight, 100).is_none());
        let entry = InFlightEntry::begin_at(&in_flight, 101).unwrap();
        assert_eq!(in_flight.begun.lock().first_key_value(), Some((&101, &1)));
        drop(entry);
        assert!(in_flight.begun.lock().is_empty());
    }

    #[test]
    fn stamps_are_in_the_order_of_timestamps() {
        let at = |ms: u64, number: u64| ms << PHYSICAL_SHIFT | number;
        let order = [
            at(999, 2047),
            at(1000, 0),
            at(1000, 1),
            at(1001, 0),
            at(1_999, 2047),
            at(2_000, 0),
        ];
        let stamps: Vec<u64> = order.iter().map(|at| first(*at).unwrap()).collect();
        for pair in stamps.windows(2) {
            assert!(pair[0] + u64::from(STAMPS_MAX) <= pair[1]);
        }
        assert_eq!(stamps[1], 1 << 32);
        assert!(
            stamps
                .iter()
                .all(|stamp| (stamp & 0xffff_ffff) <= i32::MAX as u64)
        );
        assert_eq!(first(at(1000, 1 << NUMBER_BITS)), None);
        for timestamp in order {
            assert_eq!(
                snapshot_of(of_snapshot(timestamp).unwrap()),
                Some(timestamp)
            );
            assert_eq!(snapshot_of(first(timestamp).unwrap()), None);
        }
        assert!(bound(at(1000, 1 << 17)) < first(at(1001, 0)).unwrap());
    }
}
