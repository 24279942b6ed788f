//! Back-pressure: committers are slowed down a little, early, so that they are never stopped for long.
//!
//! Feeding a memtable to the trees takes about as long as filling the next one, but not evenly. While more than one
//! memtable waits, commits are let through at the speed at which memtables were fed lately, or more slowly the more of
//! them wait. (The idea is that of RocksDB's delayed writes, with the speed measured instead of guessed.)

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Without any delay up to this backlog, in memtables.
const BACKLOG_FREE: f64 = 1.2;
/// At this backlog commits go as fast as memtables are fed.
const BACKLOG_EVEN: f64 = 1.6;
/// The least share of the feeding speed that commits get.
const SHARE_MIN: f64 = 0.25;
/// Shorter delays are saved up: a thread cannot sleep for less.
const DELAY_MIN: Duration = Duration::from_micros(80);
/// No single commit waits longer than this.
const DELAY_MAX: Duration = Duration::from_millis(20);
/// Weight of the last feed in the average speed.
const WEIGHT: f64 = 0.15;

/// How fast memtables are fed.
#[derive(Default)]
pub(crate) struct FeedSpeed {
    /// Bytes of memtables in a second, or 0 while nothing is known.
    average: AtomicU64,
    started: Mutex<Option<Instant>>,
}

impl FeedSpeed {
    /// Called when a feed begins.
    pub(crate) fn begin(&self) {
        *self.started.lock() = Some(Instant::now());
    }

    /// Called when a memtable of `bytes` bytes is fed and durable.
    pub(crate) fn end(&self, bytes: usize) {
        let Some(started) = self.started.lock().take() else {
            return;
        };
        let speed = bytes as f64 / started.elapsed().as_secs_f64().max(1e-6);
        let before = self.average.load(Ordering::Relaxed) as f64;
        let average = match before {
            0.0 => speed,
            // The mean of the durations, not of the speeds: short feeds must not hide a long one.
            before => 1.0 / (WEIGHT / speed + (1.0 - WEIGHT) / before),
        };
        self.average.store(average as u64, Ordering::Relaxed);
    }

    /// Bytes in a second, and the share of the running feed that should be done by now. `bytes` is the size of a memtable.
    fn now(&self, bytes: usize, now: Instant) -> Option<(f64, f64)> {
        let average = self.average.load(Ordering::Relaxed) as f64;
        if average == 0.0 {
            return None;
        }
        let elapsed = self.started.lock().map_or(0.0, |started| {
            now.saturating_duration_since(started).as_secs_f64()
        });
        let share = elapsed * average / bytes as f64;
        // A feed that takes longer than usual says that the speed is lower than usual.
        Some((average / share.max(1.0), share.min(0.9)))
    }
}

/// What committers owe; protected by the commit lock.
pub(crate) struct Pace {
    /// When all commits so far would be through at the speed they are allowed.
    free_at: Instant,
}

impl Pace {
    pub(crate) fn new() -> Pace {
        Pace {
            free_at: Instant::now(),
        }
    }

    /// How long the committer of `bytes` bytes should wait. `waiting` is the number of full memtables,
    /// `fill` the filled share of the active one, `memtable_bytes` its size.
    pub(crate) fn delay(
        &mut self,
        speed: &FeedSpeed,
        bytes: usize,
        waiting: usize,
        fill: f64,
        memtable_bytes: usize,
    ) -> Duration {
        let now = Instant::now();
        let Some((speed, fed)) = speed.now(memtable_bytes, now) else {
            return Duration::ZERO;
        };
        let Some(share) = share(waiting as f64 + fill - fed) else {
            return Duration::ZERO;
        };
        let cost = Duration::from_secs_f64(bytes as f64 / (speed * share)).min(DELAY_MAX);
        self.free_at = self.free_at.max(now) + cost;
        let delay = self.free_at - now;
        match delay < DELAY_MIN {
            true => Duration::ZERO,
            false => delay.min(DELAY_MAX),
        }
    }
}

/// The share of the feeding speed that commits get; `None` is no limit.
fn share(backlog: f64) -> Option<f64> {
    if backlog <= BACKLOG_FREE {
        return None;
    }
    let slope = (2.0 - 1.0) / (BACKLOG_EVEN - BACKLOG_FREE);
    Some((2.0 - slope * (backlog - BACKLOG_FREE)).max(SHARE_MIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_slow_down_with_the_backlog() {
        assert_eq!(share(0.0), None);
        assert_eq!(share(1.2), None);
        assert!((share(1.6).unwrap() - 1.0).abs() < 1e-9);
        assert!(share(1.3).unwrap() > share(1.4).unwrap());
        assert_eq!(share(3.0), Some(SHARE_MIN));
    }

    #[test]
    fn short_delays_are_saved_up() {
        let speed = FeedSpeed::default();
        let mut pace = Pace::new();
        let unknown = pace.delay(&speed, 1 << 20, 2, 1.0, 32 << 20);
        assert_eq!(unknown, Duration::ZERO);
        speed.average.store(100 << 20, Ordering::Relaxed);
        assert_eq!(pace.delay(&speed, 1000, 1, 0.1, 32 << 20), Duration::ZERO);
        // 100 bytes at a quarter of 100 MiB/s are 4 microseconds; nobody waits for these before there are many.
        let total: Duration = (0..10_000)
            .map(|_| pace.delay(&speed, 100, 2, 0.9, 32 << 20))
            .filter(|delay| !delay.is_zero())
            .inspect(|delay| assert!(*delay >= DELAY_MIN && *delay <= DELAY_MAX))
            .sum();
        assert!(total > Duration::from_millis(1));
        assert!(pace.delay(&speed, 1 << 30, 2, 0.9, 32 << 20) <= DELAY_MAX);
    }
}
