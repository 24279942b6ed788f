//! The settings of the workload of everyday operations.

use crate::format::thousands;
use crate::harness::{WriteOptions, scale};

/// Documents at scale 1.
const DOCUMENTS: f64 = 1_000_000.0;

/// The settings of a run of everyday operations.
#[derive(Clone, Debug, clap::Args)]
pub struct Work {
    /// Documents [default: 1000000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1000..=100_000_000))]
    pub documents: Option<u64>,

    /// Documents as a part of 1,000,000
    #[arg(long, value_name = "PART", value_parser = scale, conflicts_with = "documents")]
    pub scale: Option<f64>,

    /// The collection; that of the documents that it refers to has _other behind its name
    #[arg(long, default_value = "w9", value_name = "NAME")]
    pub collection: String,

    /// Connections and write concern of the load.
    #[command(flatten)]
    pub write: WriteOptions,

    /// Rounds of all operations
    #[arg(long, default_value_t = 7, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,

    /// Requests of each operation on one document in a round
    #[arg(long, default_value_t = 500, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub repeats: u32,
}

impl Work {
    pub fn documents(&self) -> u64 {
        let scaled = (DOCUMENTS * self.scale.unwrap_or(1.0)).round() as u64;
        self.documents.unwrap_or(scaled.max(1000))
    }

    /// The settings as they go into the report.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        vec![
            ("documents", thousands(self.documents() as f64)),
            ("connections of the load", self.write.threads.to_string()),
            ("documents in one insert", self.write.batch.to_string()),
            ("rounds of the operations", self.rounds.to_string()),
            (
                "requests of an operation on one document in a round",
                self.repeats.to_string(),
            ),
        ]
    }
}
