//! The settings of the workload on groups.

use crate::format::thousands;
use crate::harness::{WriteOptions, scale};

/// Documents at scale 1.
const DOCUMENTS: f64 = 10_000_000.0;
/// The part of them when nothing is said.
const SCALE: f64 = 0.1;

/// The settings of a run of aggregations.
#[derive(Clone, Debug, clap::Args)]
pub struct Work {
    /// Documents [default: 1000000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub documents: Option<u64>,

    /// Documents as a part of 10,000,000
    #[arg(long, value_name = "PART", value_parser = scale, conflicts_with = "documents")]
    pub scale: Option<f64>,

    /// The collection
    #[arg(long, default_value = "w6", value_name = "NAME")]
    pub collection: String,

    /// Connections and write concern of the load.
    #[command(flatten)]
    pub write: WriteOptions,

    /// Runs of each query
    #[arg(long, default_value_t = 5, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
}

impl Work {
    pub fn documents(&self) -> u64 {
        let scaled = (DOCUMENTS * self.scale.unwrap_or(SCALE)).round() as u64;
        self.documents.unwrap_or(scaled.max(1))
    }

    /// The settings as they go into the report.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        vec![
            ("documents", thousands(self.documents() as f64)),
            ("connections of the load", self.write.threads.to_string()),
            ("documents in one insert", self.write.batch.to_string()),
            ("rounds of the queries", self.rounds.to_string()),
        ]
    }
}
