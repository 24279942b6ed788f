//! The shared counters of one thread level, over all of its slices.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::kind::{KINDS, Kind, OPERATIONS};
use super::transaction::{Races, Timings};
use crate::meter::{Latencies, Percentiles, latencies, record};

/// Shared by the threads of a level.
pub struct Tally {
    state: Mutex<State>,
}

struct State {
    transactions: u64,
    kinds: [Latencies; KINDS.len()],
    whole: Latencies,
    interval: Latencies,
    races: Races,
    elapsed: Duration,
}

/// The interval since the last sample.
pub struct Interval {
    pub transactions: u64,
    pub latency: Percentiles,
}

/// The results of a level.
#[derive(Clone, Debug)]
pub struct Level {
    pub transactions: u64,
    /// Working time of a thread, on average.
    pub elapsed: Duration,
    /// Latencies of each kind, in the order of [`KINDS`].
    pub kinds: [Percentiles; KINDS.len()],
    pub whole: Percentiles,
    /// Conflicts between threads.
    pub races: Races,
}

impl Level {
    pub fn transactions_per_s(&self) -> Option<f64> {
        let seconds = self.elapsed.as_secs_f64();
        (seconds > 0.0).then(|| self.transactions as f64 / seconds)
    }

    pub fn operations_per_s(&self) -> Option<f64> {
        Some(self.transactions_per_s()? * OPERATIONS as f64)
    }

    /// Latencies of a kind.
    pub fn kind(&self, kind: Kind) -> Percentiles {
        self.kinds.get(kind.index()).copied().unwrap_or_default()
    }
}

impl Tally {
    pub fn new() -> Tally {
        Tally {
            state: Mutex::new(State {
                transactions: 0,
                kinds: std::array::from_fn(|_| latencies()),
                whole: latencies(),
                interval: latencies(),
                races: Races::default(),
                elapsed: Duration::ZERO,
            }),
        }
    }

    pub fn count(&self, timings: &Timings) {
        let mut state = self.state();
        state.transactions += 1;
        for (kind, micros) in timings.operations {
            if let Some(latencies) = state.kinds.get_mut(kind.index()) {
                record(latencies, micros);
            }
        }
        record(&mut state.whole, timings.whole);
        record(&mut state.interval, timings.whole);
        state.races.add(&timings.races);
    }

    /// Adds the time of a slice: the working time of its threads, on average.
    pub fn slice(&self, elapsed: Duration) {
        self.state().elapsed += elapsed;
    }

    /// Takes the counts since the last call.
    pub fn take_interval(&self) -> Interval {
        let mut state = self.state();
        let interval = std::mem::replace(&mut state.interval, latencies());
        drop(state);
        Interval {
            transactions: interval.len(),
            latency: Percentiles::from_latencies(&interval),
        }
    }

    pub fn transactions(&self) -> u64 {
        self.state().transactions
    }

    /// The results so far.
    pub fn level(&self) -> Level {
        let state = self.state();
        Level {
            transactions: state.transactions,
            elapsed: state.elapsed,
            kinds: std::array::from_fn(|index| {
                state
                    .kinds
                    .get(index)
                    .map(Percentiles::from_latencies)
                    .unwrap_or_default()
            }),
            whole: Percentiles::from_latencies(&state.whole),
            races: state.races,
        }
    }

    /// A thread that panicked leaves numbers that are still good to report.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sysbench::kind::POINTS;

    fn timings(micros: u64, lookups: u64) -> Timings {
        let mut operations = [(Kind::Point, micros); OPERATIONS];
        for (slot, kind) in operations[POINTS..].iter_mut().zip(&KINDS[1..]) {
            *slot = (*kind, micros * (1 + kind.index() as u64));
        }
        Timings {
            operations,
            whole: micros * 100,
            races: Races {
                lookups,
                ..Races::default()
            },
        }
    }

    #[test]
    fn kinds_are_counted_apart_and_slices_add_up() {
        let tally = Tally::new();
        assert_eq!(tally.level().transactions_per_s(), None);
        for n in 0..100 {
            tally.count(&timings(1000, u64::from(n == 5)));
        }
        assert_eq!(tally.take_interval().transactions, 100);
        assert_eq!(tally.take_interval().transactions, 0);
        tally.slice(Duration::from_secs(2));
        tally.count(&timings(1000, 2));
        tally.slice(Duration::from_millis(2050));
        let interval = tally.take_interval();
        assert_eq!(interval.transactions, 1);
        assert!((99.9..100.1).contains(&interval.latency.p50_ms));
        let level = tally.level();
        assert_eq!((level.transactions, tally.transactions()), (101, 101));
        let rate = level.transactions_per_s().unwrap();
        assert!((rate - 101.0 / 4.05).abs() < 1e-9, "{rate}");
        assert!((level.operations_per_s().unwrap() - rate * 18.0).abs() < 1e-9);
        for (kind, ms) in [(Kind::Point, 1.0), (Kind::Range, 2.0), (Kind::Insert, 9.0)] {
            let got = level.kind(kind).p95_ms;
            assert!((got - ms).abs() < ms * 0.002, "{}: {got}", kind.name());
        }
        assert!((99.9..100.1).contains(&level.whole.max_ms));
        assert_eq!(level.races.lookups, 3);
    }
}
