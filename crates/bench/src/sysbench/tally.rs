//! The shared counters of one thread level, over all of its slices.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::kind::{KINDS, Kind, OPERATIONS};
use super::transaction::{Races, Timings};
use crate::meter::{Latencies, Meter, Percentiles, latencies, record};
use crate::system::Compression;

/// Shared by the threads of a level. The meter counts transactions.
pub struct Tally {
    pub compression: Option<Compression>,
    pub threads: u16,
    pub meter: Meter,
    state: Mutex<State>,
}

struct State {
    kinds: [Latencies; KINDS.len()],
    races: Races,
    elapsed: Duration,
}

#[derive(Clone, Debug)]
pub struct Level {
    /// The compression that was asked for.
    pub compression: Option<Compression>,
    pub threads: u16,
    pub transactions: u64,
    /// Working time of a thread, on average.
    pub elapsed: Duration,
    /// Latencies of each kind, in the order of [`KINDS`].
    pub kinds: [Percentiles; KINDS.len()],
    pub whole: Percentiles,
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

    pub fn kind(&self, kind: Kind) -> Percentiles {
        self.kinds.get(kind.index()).copied().unwrap_or_default()
    }
}

impl Tally {
    pub fn new(compression: Option<Compression>, threads: u16, stop: &Arc<AtomicBool>) -> Tally {
        // The curve over all transactions is not wanted, and their number is not known.
        let meter = Meter::start(u64::MAX, Arc::clone(stop));
        meter.pause();
        Tally {
            compression,
            threads,
            meter,
            state: Mutex::new(State {
                kinds: std::array::from_fn(|_| latencies()),
                races: Races::default(),
                elapsed: Duration::ZERO,
            }),
        }
    }

    pub fn count(&self, timings: &Timings) {
        self.meter.batch(1, timings.whole);
        let mut state = self.state();
        for (kind, time) in timings.operations {
            if let Some(latencies) = state.kinds.get_mut(kind.index()) {
                record(latencies, time);
            }
        }
        state.races.add(&timings.races);
    }

    /// Adds the time of a slice: the working time of its threads, on average.
    pub fn slice(&self, elapsed: Duration) {
        self.state().elapsed += elapsed;
    }

    pub fn level(&self) -> Level {
        let (state, outcome) = (self.state(), self.meter.end());
        Level {
            compression: self.compression,
            threads: self.threads,
            transactions: outcome.documents,
            elapsed: state.elapsed,
            kinds: state.kinds.each_ref().map(Percentiles::from_latencies),
            whole: Percentiles::from_latencies(&outcome.latencies),
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

    #[test]
    fn kinds_are_counted_apart_and_slices_add_up() {
        let tally = Tally::new(None, 1, &Arc::default());
        assert_eq!(tally.level().transactions_per_s(), None);
        let second = Duration::from_secs(1);
        let mut operations = [(Kind::Point, second); OPERATIONS];
        for (slot, kind) in operations[POINTS..].iter_mut().zip(&KINDS[1..]) {
            *slot = (*kind, second * (1 + kind.index() as u32));
        }
        for slice in 0..2 {
            for _ in 0..50 {
                tally.count(&Timings {
                    operations,
                    whole: second * 100,
                    races: Races([slice, 0, 0, 0, 1]),
                });
            }
            tally.slice(Duration::from_millis(2000 + 50 * slice));
        }
        let level = tally.level();
        assert_eq!(level.transactions, 100);
        let rate = level.transactions_per_s().unwrap();
        assert!((rate - 100.0 / 4.05).abs() < 1e-9, "{rate}");
        assert!((level.operations_per_s().unwrap() - rate * 18.0).abs() < 1e-9);
        for (kind, s) in [(Kind::Point, 1.0), (Kind::Range, 2.0), (Kind::Insert, 9.0)] {
            let got = level.kind(kind).p95_ms / 1e3;
            assert!((got - s).abs() < s * 0.002, "{}: {got}", kind.name());
        }
        assert!((99.9..100.1).contains(&(level.whole.max_ms / 1e3)));
        assert_eq!(level.races.0, [50, 0, 0, 0, 100]);
    }
}
