//! Write throttling: committers are delayed early and briefly, so that they never stop for long.
//!
//! Flushing a memtable takes about as long as filling the next one, but not evenly. While more than one memtable waits,
//! commits are admitted at the recent flush rate, and at a lower rate the more memtables wait. (RocksDB delays writes
//! in the same way; here the rate is measured instead of guessed.)
//!
//! Flushed memtables that snapshots keep in memory are a backlog, too. Slower commits leave time to detach the snapshots.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Without any delay up to this backlog, in memtables.
const BACKLOG_FREE: f64 = 1.2;
/// At this backlog commits are admitted at the flush rate.
const BACKLOG_EVEN: f64 = 1.6;
/// The least share of the flush rate that commits get.
const SHARE_MIN: f64 = 0.25;
/// Shorter delays accumulate. A thread cannot sleep for less than about 80 microseconds, and with many such delays one commit of
/// a thousand would be late.
const DELAY_MIN: Duration = Duration::from_millis(1);
/// No single commit waits longer than this.
const DELAY_MAX: Duration = Duration::from_millis(20);
/// While snapshots keep twice the memtables that they may, commits get this share of the flush rate ...
const KEPT_SHARE_MIN: f64 = 0.0625;
/// ... and none waits longer than this.
const KEPT_DELAY_MAX: Duration = Duration::from_secs(1);
/// Weight of the last flush in the average rate.
const WEIGHT: f64 = 0.15;

/// The rate at which memtables are flushed.
#[derive(Default)]
pub(crate) struct FlushRate {
    /// Bytes of memtables in a second, or 0 while nothing is known.
    average: AtomicU64,
    started: Mutex<Option<Instant>>,
}

impl FlushRate {
    /// Called when a flush begins.
    pub(crate) fn begin(&self) {
        *self.started.lock() = Some(Instant::now());
    }

    /// Called when a memtable of `bytes` bytes is flushed and durable.
    pub(crate) fn end(&self, bytes: usize) {
        let Some(started) = self.started.lock().take() else {
            return;
        };
        let rate = bytes as f64 / started.elapsed().as_secs_f64().max(1e-6);
        let before = self.average.load(Ordering::Relaxed) as f64;
        let average = match before {
            0.0 => rate,
            // The mean of the durations, not of the rates: short flushes must not hide a long one.
            before => 1.0 / (WEIGHT / rate + (1.0 - WEIGHT) / before),
        };
        self.average.store(average as u64, Ordering::Relaxed);
    }

    /// Bytes per second, and the share of the running flush that should be done by now. `bytes` is the size of a memtable.
    fn now(&self, bytes: usize, now: Instant) -> Option<(f64, f64)> {
        let average = self.average.load(Ordering::Relaxed) as f64;
        if average == 0.0 {
            return None;
        }
        let elapsed = self.started.lock().map_or(0.0, |started| {
            now.saturating_duration_since(started).as_secs_f64()
        });
        let share = elapsed * average / bytes as f64;
        // A flush that takes longer than usual means that the rate is lower than usual.
        Some((average / share.max(1.0), share.min(0.9)))
    }
}

/// The memtables that are not flushed yet, or that are and still take memory.
pub(crate) struct Backlog {
    /// The number of full ones.
    pub(crate) waiting: usize,
    /// The filled share of the active one.
    pub(crate) fill: f64,
    /// Its size in bytes.
    pub(crate) memtable_bytes: usize,
    /// The bytes that snapshots keep, as a multiple of what they may.
    pub(crate) kept: f64,
}

/// The delay that committers have accumulated; protected by the commit lock.
pub(crate) struct WriteThrottle {
    /// When all commits so far would be finished at the admitted rate.
    free_at: Instant,
}

impl WriteThrottle {
    pub(crate) fn new() -> WriteThrottle {
        WriteThrottle {
            free_at: Instant::now(),
        }
    }

    /// The time that the committer of `bytes` bytes should wait.
    pub(crate) fn delay(&mut self, rate: &FlushRate, bytes: usize, backlog: &Backlog) -> Duration {
        let now = Instant::now();
        let Some((rate, flushed)) = rate.now(backlog.memtable_bytes, now) else {
            return Duration::ZERO;
        };
        let kept = kept_share(backlog.kept);
        let share = match backlog.waiting {
            0 => None,
            waiting => share(waiting as f64 + backlog.fill - flushed),
        };
        let (share, longest) = match (share, kept) {
            (None, None) => return Duration::ZERO,
            (Some(share), None) => (share, DELAY_MAX),
            (share, Some(kept)) => (share.map_or(kept, |share| share.min(kept)), KEPT_DELAY_MAX),
        };
        let cost = Duration::from_secs_f64(bytes as f64 / (rate * share)).min(longest);
        // The delays of others before do not add up to more than one may wait.
        self.free_at = (self.free_at.max(now) + cost).min(now + 2 * KEPT_DELAY_MAX);
        let delay = self.free_at - now;
        if delay < DELAY_MIN {
            Duration::ZERO
        } else {
            delay.min(longest)
        }
    }
}

/// The share of the flush rate that commits get; `None` is no limit.
fn share(backlog: f64) -> Option<f64> {
    if backlog <= BACKLOG_FREE {
        return None;
    }
    let slope = (2.0 - 1.0) / (BACKLOG_EVEN - BACKLOG_FREE);
    Some((2.0 - slope * (backlog - BACKLOG_FREE)).max(SHARE_MIN))
}

/// The share of the flush rate that commits get while snapshots keep this multiple of what they may; `None` is no limit.
fn kept_share(kept: f64) -> Option<f64> {
    (kept > 1.0).then(|| (2.0 - kept).clamp(KEPT_SHARE_MIN, 1.0))
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
    fn short_delays_accumulate() {
        let rate = FlushRate::default();
        let mut throttle = WriteThrottle::new();
        let backlog = |waiting: usize, fill: f64| Backlog {
            waiting,
            fill,
            memtable_bytes: 32 << 20,
            kept: 0.0,
        };
        let unknown = throttle.delay(&rate, 1 << 20, &backlog(2, 1.0));
        assert_eq!(unknown, Duration::ZERO);
        rate.average.store(100 << 20, Ordering::Relaxed);
        assert_eq!(
            throttle.delay(&rate, 1000, &backlog(1, 0.1)),
            Duration::ZERO
        );
        // 100 bytes at a quarter of 100 MiB/s are 4 microseconds; no commit waits before they add up.
        let total: Duration = (0..10_000)
            .map(|_| throttle.delay(&rate, 100, &backlog(2, 0.9)))
            .filter(|delay| !delay.is_zero())
            .inspect(|delay| assert!(*delay >= DELAY_MIN && *delay <= DELAY_MAX))
            .sum();
        assert!(total > Duration::from_millis(1));
        assert!(throttle.delay(&rate, 1 << 30, &backlog(2, 0.9)) <= DELAY_MAX);
    }

    /// Writers filled memtables faster than snapshots were detached from them, so the memory for them grew without a limit.
    #[test]
    fn commits_slow_down_while_snapshots_keep_too_many_memtables() {
        assert_eq!(kept_share(1.0), None);
        assert_eq!(kept_share(1.5), Some(0.5));
        assert_eq!(kept_share(9.0), Some(KEPT_SHARE_MIN));
        let rate = FlushRate::default();
        rate.average.store(64 << 20, Ordering::Relaxed);
        let mut throttle = WriteThrottle::new();
        let backlog = |kept: f64| Backlog {
            waiting: 0,
            fill: 0.1,
            memtable_bytes: 4 << 20,
            kept,
        };
        assert_eq!(
            throttle.delay(&rate, 1 << 20, &backlog(0.9)),
            Duration::ZERO
        );
        // A sixteenth of 64 MiB in a second.
        let delay = throttle.delay(&rate, 1 << 20, &backlog(2.0));
        assert!(
            delay > Duration::from_millis(200) && delay <= Duration::from_millis(250),
            "{delay:?}"
        );
        let longest = (0..20).map(|_| throttle.delay(&rate, 16 << 20, &backlog(3.0)));
        assert_eq!(longest.max(), Some(KEPT_DELAY_MAX));
    }
}
