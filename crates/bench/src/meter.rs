//! Measurements of the threads of a run: documents in, latencies, the first error.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::timeline::Timeline;
use frond_client::Error;

/// Latencies in microseconds with three significant digits.
pub type Latencies = Histogram<u64>;

/// An empty histogram, which grows as needed.
pub fn latencies() -> Latencies {
    Histogram::new(3).expect("three significant digits are within the library's bounds")
}

/// Adds a latency. The histogram grows to take it; only one that no histogram can hold is cut.
pub fn record(latencies: &mut Latencies, time: Duration) {
    let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    if latencies.record(micros).is_err() {
        latencies.saturating_record(micros);
    }
}

/// The speed; `None` if nothing was done, or in no time.
pub fn rate(count: u64, elapsed: Duration) -> Option<f64> {
    let seconds = elapsed.as_secs_f64();
    (seconds > 0.0 && count > 0).then(|| count as f64 / seconds)
}

/// The middle one, or the mean of the middle two.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.len().checked_sub(1)? / 2, values.len() / 2);
    Some((values.get(low)? + values.get(high)?) / 2.0)
}

pub fn milliseconds(time: &Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Shared by the threads of one run.
pub struct Meter {
    documents: AtomicU64,
    /// The user's wish, which ends all.
    stop: Arc<AtomicBool>,
    /// This run's own end.
    ended: AtomicBool,
    state: Mutex<State>,
}

struct State {
    clock: Clock,
    timeline: Timeline,
    interval: Latencies,
    whole: Latencies,
    error: Option<Error>,
}

/// A clock that can stand still, while another server has its turn.
#[derive(Clone, Copy)]
struct Clock {
    before: Duration,
    since: Option<Instant>,
    /// When the last thread was done.
    worked: Option<Duration>,
}

impl Clock {
    fn elapsed(&self) -> Duration {
        self.before + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

/// The interval since the last sample.
pub struct Interval {
    /// Since the start of the run.
    pub elapsed: Duration,
    /// Documents in since the start of the run.
    pub documents: u64,
    /// Latencies of the batches that ended in this interval.
    pub latencies: Latencies,
}

pub struct Outcome {
    /// From the first batch to the last answer.
    pub elapsed: Duration,
    /// Documents that the server took.
    pub documents: u64,
    pub timeline: Timeline,
    pub latencies: Latencies,
}

impl Meter {
    /// Starts the clock of a run of `total` documents. Setting `stop` ends the run.
    pub fn start(total: u64, stop: Arc<AtomicBool>) -> Self {
        Meter {
            documents: AtomicU64::new(0),
            stop,
            ended: AtomicBool::new(false),
            state: Mutex::new(State {
                clock: Clock {
                    before: Duration::ZERO,
                    since: Some(Instant::now()),
                    worked: None,
                },
                timeline: Timeline::new(total),
                interval: latencies(),
                whole: latencies(),
                error: None,
            }),
        }
    }

    /// Notes that a thread has done its part.
    pub fn worked(&self) {
        let mut state = self.state();
        state.clock.worked = Some(state.clock.elapsed());
    }

    /// Stops the clock until [`Meter::go_on`]: at the moment when the last thread was done, if any
    /// was, and not when that was noticed.
    pub fn pause(&self) {
        let mut state = self.state();
        let now = state.clock.elapsed();
        state.clock = Clock {
            before: state.clock.worked.unwrap_or(now),
            since: None,
            worked: None,
        };
    }

    /// Lets the clock run again, and threads that [`Meter::stop`] ended.
    pub fn go_on(&self) {
        self.ended.store(false, Ordering::Relaxed);
        let mut state = self.state();
        state.clock.since.get_or_insert_with(Instant::now);
    }

    /// Counts a batch that the server took.
    pub fn batch(&self, documents: u64, latency: Duration) {
        let mut state = self.state();
        let total = self.documents.fetch_add(documents, Ordering::Relaxed) + documents;
        let elapsed = state.clock.elapsed();
        state.timeline.note(elapsed, total);
        record(&mut state.interval, latency);
        record(&mut state.whole, latency);
    }

    /// Ends the run with an error; the first one is kept.
    pub fn fail(&self, error: Error) {
        self.stop();
        let mut state = self.state();
        if state.error.is_none() && !matches!(error, Error::Stopped) {
            state.error = Some(error);
        }
    }

    /// Asks the threads of this run to end.
    pub fn stop(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// Whether the threads should end.
    pub fn stopping(&self) -> bool {
        self.ended.load(Ordering::Relaxed) || self.stop.load(Ordering::Relaxed)
    }

    /// Since the start of the run, but for pauses.
    pub fn elapsed(&self) -> Duration {
        self.state().clock.elapsed()
    }

    /// Documents in so far.
    pub fn documents(&self) -> u64 {
        self.documents.load(Ordering::Relaxed)
    }

    /// Takes the latencies since the last call.
    pub fn take_interval(&self) -> Interval {
        let mut state = self.state();
        Interval {
            elapsed: state.clock.elapsed(),
            documents: self.documents(),
            latencies: std::mem::replace(&mut state.interval, latencies()),
        }
    }

    /// Speed over a part of the documents so far, in documents per second.
    pub fn speed_of_part(&self, from: f64, to: f64) -> Option<f64> {
        self.state().timeline.speed_of_part(from, to)
    }

    /// Takes the error that ended the run early.
    pub fn take_error(&self) -> Option<Error> {
        self.state().error.take()
    }

    /// The outcome so far. An error that was not taken is lost.
    pub fn end(&self) -> Outcome {
        let documents = self.documents();
        let state = self.state();
        let elapsed = state.clock.elapsed();
        let mut timeline = state.timeline.clone();
        timeline.end(elapsed, documents);
        Outcome {
            elapsed,
            documents,
            timeline,
            latencies: state.whole.clone(),
        }
    }

    /// A thread that panicked leaves numbers that are still good to report.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Percentiles {
    /// Half were faster, in milliseconds.
    pub p50_ms: f64,
    /// 95 of 100 were faster.
    pub p95_ms: f64,
    /// 99 of 100 were faster.
    pub p99_ms: f64,
    /// 999 of 1000 were faster.
    pub p999_ms: f64,
    pub max_ms: f64,
}

/// A percentile: its name, and how it is read.
pub type Percentile = (&'static str, fn(&Percentiles) -> f64);

pub const P50: Percentile = ("p50", |l| l.p50_ms);
pub const P95: Percentile = ("p95", |l| l.p95_ms);
pub const P99: Percentile = ("p99", |l| l.p99_ms);
pub const P999: Percentile = ("p99.9", |l| l.p999_ms);
pub const MAX: Percentile = ("max", |l| l.max_ms);

impl Percentiles {
    /// Reads them off a histogram of microseconds; zeros if it is empty.
    pub fn from_latencies(latencies: &Latencies) -> Self {
        let at = |quantile| latencies.value_at_quantile(quantile) as f64 / 1000.0;
        Percentiles {
            p50_ms: at(0.50),
            p95_ms: at(0.95),
            p99_ms: at(0.99),
            p999_ms: at(0.999),
            max_ms: latencies.max() as f64 / 1000.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_rates() {
        for (values, expected) in [
            (vec![], None),
            (vec![3.0], Some(3.0)),
            (vec![4.0, 1.0], Some(2.5)),
            (vec![9.0, 1.0, 2.0], Some(2.0)),
            (vec![4.0, 1.0, 2.0, 3.0], Some(2.5)),
        ] {
            assert_eq!(median(values), expected);
        }
        let second = Duration::from_secs(1);
        assert_eq!(rate(3, second / 2), Some(6.0));
        assert_eq!((rate(0, second), rate(3, Duration::ZERO)), (None, None));
    }

    #[test]
    fn percentiles_of_known_latencies() {
        let mut histogram = latencies();
        assert_eq!(
            Percentiles::from_latencies(&histogram),
            Percentiles::default()
        );
        for ms in 1..=1000_u64 {
            histogram.record(ms * 1000).unwrap();
        }
        let got = Percentiles::from_latencies(&histogram);
        for (value, expected) in [
            (got.p50_ms, 500.0),
            (got.p95_ms, 950.0),
            (got.p99_ms, 990.0),
            (got.p999_ms, 999.0),
            (got.max_ms, 1000.0),
        ] {
            let off: f64 = (value - expected) / expected;
            assert!(off.abs() < 0.002, "{value} for {expected}");
        }
    }

    #[test]
    fn a_meter_adds_up_and_keeps_the_first_error() {
        let meter = Meter::start(100, Arc::new(AtomicBool::new(false)));
        meter.batch(40, Duration::from_millis(2));
        let first = meter.take_interval();
        assert_eq!((first.documents, first.latencies.len()), (40, 1));
        meter.batch(60, Duration::from_millis(4));
        let second = meter.take_interval();
        assert_eq!((second.documents, second.latencies.len()), (100, 1));
        let interval = Percentiles::from_latencies(&second.latencies);
        assert!((3.99..4.01).contains(&interval.p50_ms), "{interval:?}");
        assert!(!meter.stopping());
        meter.fail(Error::Settings("first".to_owned()));
        meter.fail(Error::Settings("second".to_owned()));
        assert!(meter.stopping());
        assert_eq!(meter.take_error().unwrap().to_string(), "first");
        let outcome = meter.end();
        assert_eq!(outcome.documents, 100);
        assert_eq!(outcome.latencies.len(), 2);
        let percentiles = Percentiles::from_latencies(&outcome.latencies);
        assert!(
            (1.99..2.01).contains(&percentiles.p50_ms),
            "{percentiles:?}"
        );
        assert!(
            (3.99..4.01).contains(&percentiles.max_ms),
            "{percentiles:?}"
        );
        assert!(outcome.timeline.speed_of_part(0.0, 1.0).unwrap() > 0.0);
    }

    #[test]
    fn a_clock_that_pauses_stands_still() {
        let meter = Meter::start(1, Arc::new(AtomicBool::new(false)));
        meter.pause();
        let at = meter.elapsed();
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(meter.elapsed(), at);
        meter.pause();
        assert_eq!(meter.elapsed(), at);
        meter.go_on();
        std::thread::sleep(Duration::from_millis(5));
        assert!(meter.elapsed() >= at + Duration::from_millis(5));
    }

    #[test]
    fn a_clock_stops_when_the_last_thread_is_done() {
        let meter = Meter::start(100, Arc::new(AtomicBool::new(false)));
        meter.worked();
        let noticed = meter.elapsed();
        std::thread::sleep(Duration::from_millis(2));
        meter.pause();
        let first = meter.elapsed();
        assert!(first <= noticed);
        meter.go_on();
        std::thread::sleep(Duration::from_millis(2));
        meter.pause();
        assert!(meter.elapsed() > first, "what was noted held for one pause");
    }
}
