//! The history of the server's figures: one sample a second for some minutes in memory, and one in ten seconds for days in small files.

mod file;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;

use parking_lot::Mutex;

use file::Files;

/// Samples that are kept in memory: ten minutes.
const RECENT_MAX: usize = 600;

/// Time between two samples that are written to the files.
const COARSE_MS: i64 = 10_000;

/// The kind of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It grows while the server runs: what matters is the difference between two samples.
    Counter,
    /// It rises and falls.
    Gauge,
}

/// A figure of each sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    pub name: &'static str,
    pub kind: Kind,
}

/// The figures of one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Milliseconds since 1970.
    pub time_ms: i64,
    /// A value for each figure.
    pub values: Vec<u64>,
}

/// The samples of a server.
pub struct History {
    metrics: Vec<Metric>,
    directory: PathBuf,
    recent: Mutex<VecDeque<Sample>>,
    /// Locked while a sample is written, which may take long on a busy disk. Readers need no lock.
    files: Mutex<Files>,
}

impl History {
    /// The history in a directory, which is made with the first sample that is written there.
    pub fn new(directory: PathBuf, metrics: Vec<Metric>) -> History {
        let files = Files::new(directory.clone(), &metrics);
        History {
            metrics,
            directory,
            recent: Mutex::default(),
            files: Mutex::new(files),
        }
    }

    /// The figures of a sample, in their order.
    pub fn metrics(&self) -> &[Metric] {
        &self.metrics
    }

    /// Adds a sample.
    ///
    /// # Errors
    /// If it cannot be written to the files. It is kept in memory all the same, and the next one is tried again.
    pub fn add(&self, sample: Sample) -> io::Result<()> {
        let mut recent = self.recent.lock();
        if (recent.back()).is_some_and(|last| sample.time_ms < last.time_ms) {
            recent.clear();
        }
        if recent.len() >= RECENT_MAX {
            recent.pop_front();
        }
        recent.push_back(sample.clone());
        drop(recent);
        let mut files = self.files.lock();
        let due = files.last_ms().saturating_add(COARSE_MS);
        // After the clock was set back, samples continue at the new time.
        if sample.time_ms >= due || sample.time_ms < files.last_ms() {
            files.write(&sample)
        } else {
            Ok(())
        }
    }

    pub fn newest(&self) -> Option<Sample> {
        self.recent.lock().back().cloned()
    }

    /// The samples after one time and up to another, the oldest first: at most `points`, at even distances, each the last one of its
    /// interval. Older ones are read from the files.
    pub fn between(&self, after_ms: i64, until_ms: i64, points: usize) -> Vec<Sample> {
        let span = until_ms.saturating_sub(after_ms).max(1);
        let points = i64::try_from(points).unwrap_or(i64::MAX).max(1);
        let step = span.saturating_add(points - 1) / points;
        let mut thin = Thin {
            after_ms,
            until_ms,
            step: step.max(1),
            kept: Vec::new(),
        };
        let first_recent = self
            .recent
            .lock()
            .front()
            .map_or(i64::MAX, |one| one.time_ms);
        if after_ms < first_recent {
            for path in file::list(&self.directory) {
                file::read(&path, &self.metrics, after_ms, &mut |sample| {
                    if sample.time_ms < first_recent {
                        thin.add(sample);
                    }
                });
            }
        }
        for sample in self.recent.lock().iter() {
            thin.add(sample.clone());
        }
        thin.kept
    }
}

/// Keeps the last sample of each interval.
struct Thin {
    after_ms: i64,
    until_ms: i64,
    step: i64,
    kept: Vec<Sample>,
}

impl Thin {
    fn add(&mut self, sample: Sample) {
        if sample.time_ms <= self.after_ms || sample.time_ms > self.until_ms {
            return;
        }
        let interval = |time: i64| (time - self.after_ms - 1) / self.step;
        match self.kept.last_mut() {
            // A clock that was set back.
            Some(last) if sample.time_ms <= last.time_ms => {}
            Some(last) if interval(last.time_ms) == interval(sample.time_ms) => *last = sample,
            _ => self.kept.push(sample),
        }
    }
}
