//! The rate of a copy.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Limits bytes per second. The limit may be changed at any time; 0 is none.
#[derive(Clone, Debug, Default)]
pub struct Rate {
    bytes_per_second: Arc<AtomicU64>,
    /// Before this nothing more may be copied.
    next: Option<Instant>,
}

impl Rate {
    pub fn new(bytes_per_second: u64) -> Rate {
        Rate::shared(Arc::new(AtomicU64::new(bytes_per_second)))
    }

    /// A limit that others can change.
    pub fn shared(bytes_per_second: Arc<AtomicU64>) -> Rate {
        Rate {
            bytes_per_second,
            next: None,
        }
    }

    /// The time to wait before the next bytes.
    pub fn wait(&self, now: Instant) -> Option<Duration> {
        let next = self.next?;
        let is_limited = self.bytes_per_second.load(Ordering::Relaxed) > 0;
        (is_limited && next > now).then(|| next - now)
    }

    /// Counts bytes that were copied.
    pub fn spend(&mut self, bytes: usize, now: Instant) {
        let limit = self.bytes_per_second.load(Ordering::Relaxed);
        self.next = None;
        if limit > 0 {
            let seconds = (bytes as f64 / limit as f64).min(3600.0);
            self.next = now.checked_add(Duration::from_secs_f64(seconds));
        }
    }

    /// The most bytes that are copied at once: those of a quarter of a second, if there is a limit.
    pub fn piece(&self, most: usize) -> usize {
        const LEAST: usize = 16 << 10;
        match self.bytes_per_second.load(Ordering::Relaxed) {
            0 => most,
            limit => usize::try_from(limit / 4)
                .unwrap_or(most)
                .clamp(LEAST.min(most), most),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_makes_copies_wait() {
        let now = Instant::now();
        let mut free = Rate::default();
        free.spend(1 << 40, now);
        assert_eq!(free.wait(now), None);
        assert_eq!(free.piece(4 << 20), 4 << 20);
        let mut rate = Rate::new(1 << 20);
        assert_eq!(rate.wait(now), None);
        assert_eq!(rate.piece(4 << 20), 256 << 10);
        rate.spend(256 << 10, now);
        assert_eq!(rate.wait(now), Some(Duration::from_millis(250)));
        assert_eq!(rate.wait(now + Duration::from_millis(250)), None);
        // A limit that is lifted ends the wait.
        rate.bytes_per_second.store(0, Ordering::Relaxed);
        assert_eq!(rate.wait(now), None);
    }
}
