//! The moments at which requests are due.

use std::time::{Duration, Instant};

use crate::meter::Meter;

/// Longest sleep before the next look whether the run has ended.
const NAP: Duration = Duration::from_millis(20);

/// Requests at equal distances on one connection.
pub struct Pace {
    every: Duration,
    due: Instant,
}

impl Pace {
    /// The share of connection `number` of `connections`, which together send `per_s` requests a second. Their first requests are
    /// due one after the other, over the time between two requests of one connection.
    pub fn shared(per_s: f64, connections: u16, number: u64) -> Pace {
        let every = Duration::from_secs_f64((f64::from(connections) / per_s).min(3600.0));
        let part = number as f64 / f64::from(connections);
        Pace {
            every,
            due: Instant::now() + every.mul_f64(part),
        }
    }

    /// Waits until the next request is due, and returns when that is. `None` when the run ends before. One that is late by more
    /// than `most` moves all later ones.
    pub fn next(&mut self, meter: &Meter, most: Duration) -> Option<Instant> {
        loop {
            if meter.stopping() {
                return None;
            }
            let now = Instant::now();
            if now >= self.due {
                let earliest = now.checked_sub(most).unwrap_or(self.due);
                let due = self.due.max(earliest);
                self.due = due + self.every;
                return Some(due);
            }
            std::thread::sleep((self.due - now).min(NAP));
        }
    }

    /// The time between two requests.
    pub fn every(&self) -> Duration {
        self.every
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn requests_are_due_at_equal_distances_and_late_ones_move_the_others() {
        let meter = Meter::start(1, Arc::new(AtomicBool::new(false)));
        let mut pace = Pace::shared(2000.0, 2, 1);
        assert_eq!(pace.every(), Duration::from_millis(1));
        let first = pace.next(&meter, Duration::MAX).unwrap();
        let second = pace.next(&meter, Duration::MAX).unwrap();
        assert_eq!(second - first, pace.every());
        std::thread::sleep(Duration::from_millis(20));
        let late = pace.next(&meter, Duration::from_millis(2)).unwrap();
        assert!(late > second + pace.every());
        meter.stop();
        assert_eq!(pace.next(&meter, Duration::MAX), None);
    }
}
