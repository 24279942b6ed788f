//! Samples a load while connections insert: the trace, progress, and the end when the time is up.

use std::time::Duration;

use crate::harness::{Run, Target};
use crate::meter::{Meter, Percentiles};
use crate::progress::Progress;
use crate::report::Row;
use crate::system::Session;
use crate::threads::{wait_until, with_each};
use frond_client::Result;

/// A load that is sampled. Its meter counts from one sample to the next, also over several turns.
pub struct Sampler<'a> {
    pub run: &'a Run,
    /// Name of the workload in the trace.
    pub name: &'a str,
    pub target: &'a Target,
    /// The session that reads the server's status.
    pub watcher: &'a mut dyn Session,
    /// The progress bar that the user sees.
    pub progress: &'a mut Progress,
    /// The server's own time so far.
    pub own_time: &'a mut Duration,
    /// Documents that the progress counts besides those of the meter.
    pub others: u64,
    /// Where the lines of the trace are kept for a chart.
    pub rows: Option<&'a mut Vec<Row>>,
}

impl Sampler<'_> {
    /// Runs `work` with each connection on a thread of its own until all are done or `time_left` is over. The clock of
    /// the meter runs meanwhile. Returns the time that it took; the first error of a connection is that of all.
    pub fn drive<C: Send>(
        &mut self,
        connections: &mut [C],
        meter: &Meter,
        time_left: Duration,
        work: impl Fn(usize, &mut C) -> Result<()> + Sync,
    ) -> Result<Duration> {
        let before = meter.elapsed();
        meter.go_on();
        let watched = with_each(connections, meter, work, |all_done| {
            self.until(meter, time_left, all_done)
        });
        meter.pause();
        let elapsed = meter.elapsed().saturating_sub(before);
        *self.own_time += elapsed;
        watched?;
        match meter.take_error() {
            Some(error) => Err(error),
            None => Ok(elapsed),
        }
    }

    fn until(
        &mut self,
        meter: &Meter,
        time_left: Duration,
        all_done: &dyn Fn() -> bool,
    ) -> Result<()> {
        let every = self.run.options.every();
        let (started, counted) = (meter.elapsed(), meter.documents());
        let limit = started.saturating_add(time_left);
        let mut last = (started, counted);
        loop {
            let at = last.0 + every;
            let at = if meter.stopping() { at } else { at.min(limit) };
            let done = wait_until(meter, at, all_done);
            let interval = meter.take_interval();
            if interval.elapsed >= limit {
                meter.stop();
            }
            let seconds = interval.elapsed.saturating_sub(last.0).as_secs_f64();
            let per_s = (interval.documents - last.1) as f64 / seconds.max(1e-9);
            let own_time = *self.own_time + interval.elapsed.saturating_sub(started);
            let latency = Percentiles::from_latencies(&interval.latencies);
            let status = if done {
                None
            } else {
                self.watcher.status().ok()
            };
            let row = Row {
                elapsed_s: own_time.as_secs_f64(),
                count: interval.documents,
                per_s,
                p50_ms: latency.p50_ms,
                p99_ms: latency.p99_ms,
                max_ms: latency.max_ms,
                memory: status.map(|status| status.memory).unwrap_or_default(),
            };
            if interval.documents > last.1 || !done {
                self.run.trace.add(self.name, self.target.label(), &row)?;
                if let Some(rows) = &mut self.rows {
                    rows.push(row);
                }
            }
            let exit_speed = meter.speed_of_part(0.95, 1.0);
            self.progress.show(&row, self.others, exit_speed);
            last = (interval.elapsed, interval.documents);
            if done {
                return Ok(());
            }
        }
    }
}
