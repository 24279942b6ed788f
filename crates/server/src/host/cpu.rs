//! The processor time of threads, for the figures of operations.
//!
//! To ask the system costs more than many an operation's look-up. So the time at which an operation begins is usually
//! derived from the last answer that its thread got; it is then off by a millisecond at most.

use std::cell::Cell;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The age up to which a reading is precise enough for the log, and for the profiler, which records short operations too.
const GOOD_FOR: Duration = Duration::from_millis(1);
const GOOD_FOR_PROFILER: Duration = Duration::from_micros(50);

thread_local! {
    static LAST: Cell<Option<(Instant, Duration)>> = const { Cell::new(None) };
}

/// The processor time of this thread.
pub fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The processor time of this thread at the end of an operation.
pub fn at_end() -> Duration {
    let time = thread_time();
    LAST.set(Some((Instant::now(), time)));
    time
}

/// The processor time of this thread at the beginning of an operation, in a database of this profiling level. It is off by
/// at most a millisecond, or 50 microseconds.
pub fn at_begin(now: Instant, level: u8) -> Duration {
    if let Some((at, time)) = LAST.get() {
        let since = now.saturating_duration_since(at);
        let good_for = if level > 0 {
            GOOD_FOR_PROFILER
        } else {
            GOOD_FOR
        };
        if since < good_for {
            return time + since;
        }
    }
    let time = thread_time();
    LAST.set(Some((now, time)));
    time
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_time_and_sleep_does_not() {
        let begin = at_begin(Instant::now(), 1);
        std::thread::sleep(Duration::from_millis(30));
        let slept = thread_time() - begin;
        assert!(slept < Duration::from_millis(20), "{slept:?}");
        // On a busy machine the thread may not run for long.
        let (until, worked) = (
            Instant::now() + crate::testing::PATIENCE,
            begin + Duration::from_millis(2),
        );
        while thread_time() <= worked && Instant::now() < until {}
        assert!(thread_time() > worked);
        let (exact, about) = (thread_time(), at_begin(Instant::now(), 0));
        assert!(about.saturating_sub(exact) <= 2 * GOOD_FOR);
    }
}
