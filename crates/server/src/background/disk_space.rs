//! Logs when the disk becomes full, and when it is not any more.

use std::sync::Arc;
use std::time::{Duration, Instant};

use frond_bson::doc;
use frond_store::DiskSpace;

use super::every;
use crate::observability::log::Component;
use crate::state::Server;

/// The interval of the checks.
const PERIOD: Duration = Duration::from_millis(250);
/// The time for which there must be room before that is logged: while a disk becomes full, the state alternates.
const CALM: Duration = Duration::from_secs(5);

/// Watches the state until the server stops.
pub async fn watch_disk_space(server: Arc<Server>) {
    // In a cluster the machines that hold the data watch their disks.
    if server.store.disk_space().is_none() {
        return;
    }
    let mut watch = Watch::default();
    let mut look = || {
        if let Some(now) = server.store.disk_space()
            && let Some(transition) = watch.transition(&now, Instant::now())
        {
            log_transition(&server, transition, &now);
        }
    };
    look();
    every(&server, PERIOD, look).await;
}

/// A log line about the free space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transition {
    Low,
    Enough,
}

/// The state that the last log line reported.
#[derive(Default)]
struct Watch {
    is_low: bool,
    times_low: u64,
    /// Since when there is room, if the lack of it was reported.
    enough_since: Option<Instant>,
}

impl Watch {
    fn transition(&mut self, now: &DiskSpace, at: Instant) -> Option<Transition> {
        let was_low = now.times_low > self.times_low;
        self.times_low = now.times_low;
        if was_low || now.low_since.is_some() {
            self.enough_since = None;
            return (!std::mem::replace(&mut self.is_low, true)).then_some(Transition::Low);
        }
        if !self.is_low || at.duration_since(*self.enough_since.get_or_insert(at)) < CALM {
            return None;
        }
        self.is_low = false;
        Some(Transition::Enough)
    }
}

fn log_transition(server: &Server, transition: Transition, now: &DiskSpace) {
    let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let attributes = doc! {
        "availableBytes": bytes(now.available_bytes),
        "reserveBytes": bytes(now.reserve_bytes),
        "totalBytes": bytes(now.total_bytes),
        "refusedWrites": bytes(now.refused),
    };
    match transition {
        Transition::Low => server.log.warning(
            Component::Storage,
            9_100_003,
            "DiskSpaceMonitor",
            "The disk is nearly full: writes get OutOfDiskSpace until there is room again; reads, deletes and drops go on",
            &attributes,
        ),
        Transition::Enough => server.log.info(
            Component::Storage,
            9_100_004,
            "DiskSpaceMonitor",
            "The disk has room again: writes are accepted",
            &attributes,
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn a_state_that_alternates_is_told_once() {
        let mut watch = Watch::default();
        let start = Instant::now();
        let mut told = Vec::new();
        for step in 0..60u32 {
            let is_low = step < 20 && step % 2 == 0;
            let now = DiskSpace {
                low_since: is_low.then(SystemTime::now),
                times_low: u64::from(step.min(20).div_ceil(2)),
                ..DiskSpace::default()
            };
            told.extend(watch.transition(&now, start + PERIOD * step));
        }
        assert_eq!(told, [Transition::Low, Transition::Enough]);
    }

    #[test]
    fn a_short_shortage_between_two_looks_is_told() {
        let mut watch = Watch::default();
        let now = DiskSpace {
            times_low: 1,
            ..DiskSpace::default()
        };
        let start = Instant::now();
        assert_eq!(watch.transition(&now, start), Some(Transition::Low));
        assert_eq!(watch.transition(&now, start + PERIOD), None);
        assert_eq!(watch.transition(&now, start + PERIOD * 2), None);
        assert_eq!(
            watch.transition(&now, start + PERIOD + CALM),
            Some(Transition::Enough)
        );
    }
}
