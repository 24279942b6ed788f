//! The results of one target.

use std::time::Duration;

use crate::documents::manykeys::Schema;
use crate::meter::{Outcome, Percentiles};
use crate::statistics::Row;
use crate::system::Status;

/// Bytes written per document or update, if the server reports them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Written {
    pub log: Option<f64>,
    pub data: Option<f64>,
}

impl Written {
    /// Between two moments, for each of `count`.
    pub fn between(before: &Status, after: &Status, count: u64) -> Written {
        let each = |before: Option<f64>, after: Option<f64>| {
            (count > 0).then_some((after? - before?) / count as f64)
        };
        Written {
            log: each(before.log_bytes, after.log_bytes),
            data: each(before.data_bytes, after.data_bytes),
        }
    }
}

pub struct Loaded {
    pub schema: Schema,
    pub documents: u64,
    pub bytes: u64,
    /// From the first insert to the last answer.
    pub elapsed_s: f64,
    /// Documents a second in the last 5%.
    pub exit_per_s: Option<f64>,
    pub latency: Percentiles,
    pub written: Written,
}

impl Loaded {
    /// From the outcome of a meter; `each` is the length of a document.
    pub fn new(schema: Schema, outcome: &Outcome, each: usize) -> Self {
        Loaded {
            schema,
            documents: outcome.documents,
            bytes: outcome.documents * each as u64,
            elapsed_s: outcome.elapsed.as_secs_f64(),
            exit_per_s: outcome.timeline.speed_of_part(0.95, 1.0),
            latency: Percentiles::from_latencies(&outcome.latencies),
            written: Written::default(),
        }
    }

    pub fn documents_per_s(&self) -> f64 {
        self.documents as f64 / self.elapsed_s.max(1e-9)
    }

    /// Millions of bytes of documents a second.
    pub fn mb_per_s(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.elapsed_s.max(1e-9)
    }
}

#[derive(Clone, Debug)]
pub struct Round {
    /// Updates that the server applied.
    pub updates: u64,
    /// From the first one sent to the last one applied.
    pub elapsed: Duration,
    pub latency: Option<Percentiles>,
    /// Speeds within it: (part of the updates, updates a second).
    pub speeds: Vec<(f64, f64)>,
}

impl Round {
    pub fn per_s(&self) -> f64 {
        self.updates as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// All rounds of updates of a schema and write concern.
#[derive(Clone)]
pub struct Updated {
    pub schema: Schema,
    /// False is w: 0.
    pub acknowledged: bool,
    pub rounds: Vec<Round>,
    pub written: Written,
}

impl Updated {
    pub fn updates(&self) -> u64 {
        self.rounds.iter().map(|round| round.updates).sum()
    }

    /// Updates a second over all rounds; `None` if no round came to its end.
    pub fn updates_per_s(&self) -> Option<f64> {
        let elapsed_s: f64 = self.rounds.iter().map(|r| r.elapsed.as_secs_f64()).sum();
        (self.updates() > 0).then(|| self.updates() as f64 / elapsed_s.max(1e-9))
    }

    /// The slowest and the fastest round, if there are several.
    pub fn extremes(&self) -> Option<(f64, f64)> {
        let mut speeds: Vec<f64> = self.rounds.iter().map(Round::per_s).collect();
        speeds.sort_by(f64::total_cmp);
        match speeds.as_slice() {
            [low, .., high] => Some((*low, *high)),
            _ => None,
        }
    }

    /// The round in the middle by its median latency.
    pub fn latency(&self) -> Option<Percentiles> {
        let mut all: Vec<Percentiles> = self.rounds.iter().filter_map(|r| r.latency).collect();
        all.sort_by(|a, b| a.p50_ms.total_cmp(&b.p50_ms));
        all.get(all.len() / 2).copied()
    }
}

/// Finds by `_id`.
pub struct Read {
    pub schema: Schema,
    /// At which point of the run.
    pub when: &'static str,
    /// The whole document, or one key of it.
    pub whole: bool,
    /// Of all of them.
    pub latency: Percentiles,
    /// Bytes of a document found, on average.
    pub bytes: u64,
}

/// All results of a target.
#[derive(Default)]
pub struct Results {
    pub loads: Vec<Loaded>,
    /// By write concern and schema.
    pub updates: Vec<Updated>,
    /// By time and schema.
    pub reads: Vec<Read>,
    /// Documents compared, all of them right.
    pub verified: Vec<(Schema, u64)>,
    pub statistics: Vec<Row>,
}

impl Results {
    pub fn load(&self, schema: Schema) -> Option<&Loaded> {
        self.loads.iter().find(|loaded| loaded.schema == schema)
    }

    /// Updates of a schema and write concern.
    pub fn updated(&self, schema: Schema, acknowledged: bool) -> Option<&Updated> {
        self.updates
            .iter()
            .find(|updated| updated.schema == schema && updated.acknowledged == acknowledged)
    }

    pub fn read(&self, schema: Schema, when: &str, whole: bool) -> Option<&Read> {
        self.reads
            .iter()
            .find(|read| (read.schema, read.when, read.whole) == (schema, when, whole))
    }

    /// Updates a second on the plain schema for each on the bucketed one.
    pub fn ratio(&self, acknowledged: bool) -> Option<f64> {
        let speed = |schema| self.updated(schema, acknowledged)?.updates_per_s();
        Some(speed(Schema::Plain)? / speed(Schema::Bucketed)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(updates: u64, seconds: f64) -> Round {
        Round {
            updates,
            elapsed: Duration::from_secs_f64(seconds),
            latency: None,
            speeds: Vec::new(),
        }
    }

    #[test]
    fn rounds_are_added_up() {
        let updated = |schema, rounds| Updated {
            schema,
            acknowledged: true,
            rounds,
            written: Written::default(),
        };
        let plain = updated(Schema::Plain, vec![round(100, 1.0), round(300, 1.0)]);
        assert_eq!(plain.updates(), 400);
        assert_eq!(plain.updates_per_s(), Some(200.0));
        assert_eq!(plain.extremes(), Some((100.0, 300.0)));
        let bucketed = updated(Schema::Bucketed, vec![round(100, 0.25)]);
        assert_eq!(bucketed.extremes(), None);
        let mut results = Results::default();
        assert_eq!(results.ratio(true), None);
        results.updates = vec![plain, bucketed];
        assert_eq!(results.ratio(true), Some(0.5));
        assert_eq!(results.ratio(false), None);
        assert_eq!(updated(Schema::Plain, vec![]).updates_per_s(), None);
    }

    #[test]
    fn bytes_are_shared_out() {
        let status = |log, data| Status {
            log_bytes: log,
            data_bytes: data,
            ..Status::default()
        };
        let before = status(Some(100.0), None);
        let after = status(Some(300.0), Some(5.0));
        let written = Written::between(&before, &after, 4);
        assert_eq!((written.log, written.data), (Some(50.0), None));
        assert_eq!(Written::between(&before, &after, 0), Written::default());
    }
}
