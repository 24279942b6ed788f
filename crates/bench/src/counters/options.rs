//! The settings of the workload on counters.

use std::time::Duration;

use crate::format::thousands;
use crate::harness::{number, scale};

/// Counters at scale 1.
const COUNTERS: f64 = 100_000_000.0;
/// The part of them when nothing is said.
const SCALE: f64 = 0.01;

/// The settings of a run of counters.
#[derive(Clone, Debug, clap::Args)]
pub struct Work {
    /// Collection of the counters
    #[arg(long, default_value = "w8", value_name = "NAME")]
    pub collection: String,

    /// Counters [default: 1000000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000_000))]
    pub documents: Option<u64>,

    /// Counters as a part of 100,000,000
    #[arg(long, value_name = "PART", value_parser = scale, conflicts_with = "documents")]
    pub scale: Option<f64>,

    /// The part of the counters that is there before the additions begin; the others are made by upserts
    #[arg(long, default_value_t = 0.9, value_name = "PART", value_parser = |text: &str| number(text, 0.0..=1.0, ""))]
    pub preload: f64,

    /// Updates that read nothing: the option fastUpdates of Frond's collections. Other servers do ordinary ones
    #[arg(long)]
    pub fast_updates: bool,

    /// Connections that add at the same time
    #[arg(long, default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: u16,

    /// Additions in one request of the first part; the second part sends single ones
    #[arg(long, default_value_t = 1000, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub batch: u32,

    /// Connections that read counters and check their values
    #[arg(long, default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u16).range(0..=1024))]
    pub readers: u16,

    /// Seconds of the batches
    #[arg(long, default_value_t = 30.0, value_name = "SECONDS", value_parser = |text: &str| number(text, 0.1..=1e6, " seconds"))]
    pub seconds: f64,

    /// Seconds of the single additions
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS", value_parser = |text: &str| number(text, 0.0..=1e6, " seconds"))]
    pub single_seconds: f64,

    /// Counters whose value is compared at the end, besides the sum of all
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    pub compare: u64,

    /// Do not add up all counters at the end, which reads the whole collection
    #[arg(long)]
    pub skip_sum: bool,
}

impl Work {
    pub fn counters(&self) -> u64 {
        let scaled = (COUNTERS * self.scale.unwrap_or(SCALE)).round() as u64;
        self.documents.unwrap_or(scaled.max(1))
    }

    /// Whether a counter is there before the additions begin.
    pub fn is_preloaded(&self, key: u64) -> bool {
        // Some of every hundred, so that new counters lie between old ones.
        ((key % 100) as f64) < self.preload * 100.0
    }

    /// The time of a part: of batches, or of single additions.
    pub fn time(&self, batches: bool) -> Duration {
        Duration::from_secs_f64(if batches {
            self.seconds
        } else {
            self.single_seconds
        })
    }

    /// The settings as they go into the report.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        vec![
            ("counters", thousands(self.counters() as f64)),
            ("part that is there before", self.preload.to_string()),
            (
                "fast updates",
                if self.fast_updates { "on Frond" } else { "no" }.to_owned(),
            ),
            ("threads", self.threads.to_string()),
            ("threads that read", self.readers.to_string()),
            ("additions in a batch", self.batch.to_string()),
            ("seconds of batches", self.seconds.to_string()),
            (
                "seconds of single additions",
                self.single_seconds.to_string(),
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::parse_work;

    #[test]
    fn a_part_of_the_counters_is_there_before() {
        for (args, counters, preloaded) in [
            (&[][..], 1_000_000, 90),
            (&["--scale", "0.5"], 50_000_000, 90),
            (&["--documents", "7", "--preload", "0"], 7, 0),
            (&["--preload", "1"], 1_000_000, 100),
        ] {
            let work: Work = parse_work(args).unwrap();
            assert_eq!(work.counters(), counters);
            let there = (0..100).filter(|key| work.is_preloaded(*key)).count();
            assert_eq!(there, preloaded);
        }
        for args in [
            &["--documents", "0"][..],
            &["--preload", "1.1"],
            &["--batch", "0"],
            &["--documents", "5", "--scale", "1"],
        ] {
            assert!(parse_work::<Work>(args).is_err(), "{args:?}");
        }
    }
}
