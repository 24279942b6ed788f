//! Whom to measure, and what every workload has to know.

use std::path::PathBuf;
use std::time::Duration;

/// Where a server is when nobody says.
const LOCAL: &str = "mongodb://127.0.0.1:27017/";

/// Options of every workload.
#[derive(Clone, Debug, clap::Args)]
pub struct Servers {
    /// Server to measure: mongodb://host[:port]/[database][?options]. Given several times, the
    /// servers take turns in one run [default: mongodb://127.0.0.1:27017/]
    #[arg(long, value_name = "URI")]
    pub uri: Vec<String>,

    /// Measure a server beside them that stores nothing, as the limit of client and loopback
    #[arg(long)]
    pub null: bool,

    /// Turns that each server takes [default: 20 if there are several, else 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub turns: Option<u32>,

    /// End a workload on a server after so many minutes of its own time
    #[arg(long, value_name = "MINUTES", value_parser = minutes)]
    pub minutes: Option<f64>,

    /// Database [default: the one in the URI, else frond_bench]
    #[arg(long, value_name = "NAME")]
    pub db: Option<String>,

    /// Drop the collections of the workload first
    #[arg(long)]
    pub drop: bool,

    /// Seed of the documents: the same seed makes the same documents, `_id`s too
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,

    /// Seconds to wait at most until a server has written everything, before sizes and bytes written
    /// are read [default: 10, manykeys 60]
    #[arg(long, value_name = "SECONDS", value_parser = settle)]
    pub settle: Option<f64>,

    /// Seconds between two lines of the trace
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS", value_parser = report_every)]
    pub report_every: f64,

    /// Folder for the report [default: frond-bench-WORKLOAD-DATE-TIME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// Show no progress, only the result
    #[arg(long)]
    pub quiet: bool,
}

impl Servers {
    /// The connection strings.
    #[must_use]
    pub fn uris(&self) -> Vec<String> {
        if self.uri.is_empty() {
            return vec![LOCAL.to_owned()];
        }
        self.uri.clone()
    }

    /// The longest wait for a server at rest.
    #[must_use]
    pub fn longest_settle(&self) -> Duration {
        self.longest_settle_or(10.0)
    }

    /// The same for a workload with a default of its own, in seconds.
    #[must_use]
    pub fn longest_settle_or(&self, seconds: f64) -> Duration {
        Duration::from_secs_f64(self.settle.unwrap_or(seconds))
    }

    /// Between two lines of the trace.
    #[must_use]
    pub fn every(&self) -> Duration {
        Duration::from_secs_f64(self.report_every)
    }
}

/// Parses `--scale`.
pub fn scale(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(scale) if scale > 0.0 && scale <= 100.0 => Ok(scale),
        _ => Err("it must be above 0 and at most 100".to_owned()),
    }
}

/// Parses `--minutes`.
pub fn minutes(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(minutes) if minutes > 0.0 && minutes <= 100_000.0 => Ok(minutes),
        _ => Err("it must be above 0 and at most 100000 minutes".to_owned()),
    }
}

fn settle(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("it must be from 0 to 3600 seconds".to_owned()),
    }
}

/// Parses `--report-every`.
fn report_every(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.05..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("it must be from 0.05 to 3600 seconds".to_owned()),
    }
}
