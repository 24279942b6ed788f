//! One measured phase, as it is kept in a line of JSON.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::error::{During, Error, Result};

/// The measurements of one phase of one engine.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Record {
    pub engine: String,
    /// `limited` or `memory`.
    pub mode: String,
    /// The scenario of the child process, such as `main`.
    pub scenario: String,
    /// The measured phase, such as `load`.
    pub phase: String,
    pub threads: usize,
    /// Which repetition of the whole.
    pub round: usize,
    /// Figures by name; the name ends with the unit.
    pub values: BTreeMap<String, f64>,
    /// Remarks, such as settings or why a phase was cut short.
    pub notes: Vec<String>,
    /// Work done in each second, for a curve.
    pub seconds: Vec<u64>,
}

impl Record {
    pub fn set(&mut self, name: &str, value: f64) {
        self.values.insert(name.to_owned(), value);
    }

    /// Notes the latencies of a histogram of nanoseconds, in microseconds.
    pub fn set_latencies(&mut self, latencies: &Latencies) {
        let micros = |quantile| latencies.value_at_quantile(quantile) as f64 / 1000.0;
        self.set("p50_us", micros(0.5));
        self.set("p99_us", micros(0.99));
        self.set("p999_us", micros(0.999));
        self.set("max_us", latencies.max() as f64 / 1000.0);
    }

    /// Appends this record to a file of JSON lines.
    pub fn append(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string(self).during("encoding a record")?;
        let failed = || Error::file(format!("writing {}", path.display()));
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .map_err(failed())?;
        writeln!(file, "{text}").map_err(failed())
    }

    pub fn read_all(path: &Path) -> Result<Vec<Record>> {
        let failed = || Error::file(format!("reading {}", path.display()));
        let file = File::open(path).map_err(failed())?;
        let mut records = Vec::new();
        for line in BufReader::new(file).lines() {
            let line = line.map_err(failed())?;
            let record = serde_json::from_str(&line)
                .map_err(|error| Error::Settings(format!("{}: {error}", path.display())))?;
            records.push(record);
        }
        Ok(records)
    }
}

/// Latencies in nanoseconds with three significant digits.
pub type Latencies = Histogram<u64>;

/// An hour; longer latencies are counted as this.
const LATENCY_MAX_NS: u64 = 3_600_000_000_000;

pub fn latencies() -> Latencies {
    Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3)
        .expect("these bounds are within those of the library")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_as_they_were_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("records.jsonl");
        let mut histogram = latencies();
        for micros in 1..=1000 {
            histogram.saturating_record(micros * 1000);
        }
        let mut record = Record {
            engine: "tree".to_owned(),
            seconds: vec![1, 2],
            ..Record::default()
        };
        record.set_latencies(&histogram);
        for (name, expected) in [("p50_us", 500.0), ("p99_us", 990.0), ("max_us", 1000.0)] {
            let off = (record.values[name] - expected) / expected;
            assert!(off.abs() < 0.002, "{name}: {off}");
        }
        record.append(&path).unwrap();
        record.append(&path).unwrap();
        assert_eq!(Record::read_all(&path).unwrap(), [record.clone(), record]);
    }
}
