//! Pauses between attempts.

use std::time::Duration;

/// Pauses that double up to a bound. Each is between half of its length and all of it, so that callers that failed together do not
/// come back together.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    next: Duration,
    max: Duration,
}

impl Backoff {
    pub(crate) const fn new(first: Duration, max: Duration) -> Backoff {
        Backoff { next: first, max }
    }

    /// The length of the next one, which raises that of the one after it.
    pub(crate) fn pause(&mut self) -> Duration {
        self.pause_with(rand::random())
    }

    /// Returns the next pause for a given random number from 0 to 1.
    fn pause_with(&mut self, random: f64) -> Duration {
        let longest = self.next.min(self.max);
        self.next = longest * 2;
        longest.mul_f64(0.5 + random.clamp(0.0, 1.0) / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound_and_differ() {
        let ms = Duration::from_millis;
        let mut longest = Backoff::new(ms(5), ms(30));
        let mut shortest = longest.clone();
        for (low, high) in [
            (2_500, 5),
            (5_000, 10),
            (10_000, 20),
            (15_000, 30),
            (15_000, 30),
        ] {
            assert_eq!(longest.pause_with(1.0), ms(high));
            assert_eq!(shortest.pause_with(0.0), Duration::from_micros(low));
        }
        for _ in 0..100 {
            let pause = longest.pause();
            assert!(ms(15) <= pause && pause <= ms(30), "{pause:?}");
        }
    }
}
