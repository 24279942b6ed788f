//! The settings of the workload on reads beside a writer.

use std::time::Duration;

use crate::documents::insertion::INDEXED_FIELDS;
use crate::format::thousands;
use crate::harness::{WriteOptions, number, scale};
use crate::system::{Definition, Index};

/// Documents at scale 1.
const DOCUMENTS: f64 = 100_000_000.0;
/// The part of them when nothing is said.
const SCALE: f64 = 0.04;

/// The settings of a run with reads beside a writer.
#[derive(Clone, Debug, clap::Args)]
pub struct Work {
    /// Collection of the documents
    #[arg(long, default_value = "w10", value_name = "NAME")]
    pub collection: String,

    /// Documents that are inserted before the reads [default: 4000000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000_000))]
    pub documents: Option<u64>,

    /// Documents as a part of 100,000,000
    #[arg(long, value_name = "PART", value_parser = scale, conflicts_with = "documents")]
    pub scale: Option<f64>,

    /// Connections that find, by turns one document by its _id and ten in the order of an index
    #[arg(long, default_value_t = 16, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub readers: u16,

    /// Finds per second of all connections together; 0 sets no limit
    #[arg(long, default_value_t = 0.0, value_name = "N", value_parser = |text: &str| number(text, 0.0..=1e9, ""))]
    pub read_rate: f64,

    /// The writer's speed as a part of the full speed, that of the second half of the load; 1 and more is no limit
    #[arg(long, default_value_t = 0.5, value_name = "PART", value_parser = |text: &str| number(text, 0.001..=10.0, ""))]
    pub pace: f64,

    /// The writer's speed in documents a second, instead of a part of the full speed
    #[arg(long, value_name = "N", value_parser = |text: &str| number(text, 1.0..=1e9, ""), conflicts_with = "pace")]
    pub write_rate: Option<f64>,

    /// Rounds of reads, each without the writer and then beside it
    #[arg(long, default_value_t = 3, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,

    /// Seconds of each half of a round
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS", value_parser = |text: &str| number(text, 0.1..=1e6, " seconds"))]
    pub seconds: f64,

    /// Connections and write concern.
    #[command(flatten)]
    pub write: WriteOptions,

    /// Secondary indexes: the first N of URI, name, origin, creation
    #[arg(long, default_value_t = 4, value_name = "N",
          value_parser = clap::value_parser!(u8).range(0..=INDEXED_FIELDS.len() as i64))]
    pub indexes: u8,
}

impl Work {
    pub fn documents(&self) -> u64 {
        let scaled = (DOCUMENTS * self.scale.unwrap_or(SCALE)).round() as u64;
        self.documents.unwrap_or(scaled.max(1))
    }

    /// The time of each half of a round.
    pub fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    /// The rate of all writers together during the reads, in documents per second; `None` sets no limit.
    pub fn writes_per_s(&self, full_speed: Option<f64>) -> Option<f64> {
        if let Some(rate) = self.write_rate {
            return Some(rate);
        }
        full_speed
            .filter(|_| self.pace < 1.0)
            .map(|speed| speed * self.pace)
    }

    /// Fields that get an index.
    pub fn indexed_fields(&self) -> &'static [&'static str] {
        let count = usize::from(self.indexes);
        INDEXED_FIELDS.get(..count).unwrap_or(&INDEXED_FIELDS)
    }

    pub fn definition(&self) -> Definition {
        let fields = self.indexed_fields().iter();
        let indexes: Vec<Index> = fields
            .map(|field| Index::on(std::slice::from_ref(field)))
            .collect();
        Definition::with_indexes(&indexes)
    }

    /// The settings as they go into the report.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let writer = match self.write_rate {
            Some(rate) => format!("{} documents/s", thousands(rate)),
            None if self.pace >= 1.0 => "as fast as it can".to_owned(),
            None => format!("{} of the full speed", self.pace),
        };
        let reads = if self.read_rate > 0.0 {
            format!("{} finds/s together", thousands(self.read_rate))
        } else {
            "as fast as they can".to_owned()
        };
        vec![
            (
                "documents before the reads",
                thousands(self.documents() as f64),
            ),
            ("indexes", self.indexed_fields().join(", ")),
            ("threads that read", self.readers.to_string()),
            ("reads", reads),
            ("threads that write", self.write.threads.to_string()),
            ("writer", writer),
            ("documents in an insert", self.write.batch.to_string()),
            ("rounds", self.rounds.to_string()),
            ("seconds of each half of a round", self.seconds.to_string()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::parse_work;

    #[test]
    fn the_writer_has_a_part_of_the_full_speed_or_a_speed_of_its_own() {
        for (args, documents, per_s) in [
            (&[][..], 4_000_000, Some(50_000.0)),
            (&["--pace", "0.2", "--documents", "7"], 7, Some(20_000.0)),
            (&["--pace", "1", "--scale", "0.5"], 50_000_000, None),
            (&["--write-rate", "30"], 4_000_000, Some(30.0)),
        ] {
            let work: Work = parse_work(args).unwrap();
            assert_eq!(work.documents(), documents);
            assert_eq!(work.writes_per_s(Some(100_000.0)), per_s, "{args:?}");
        }
        for args in [
            &["--readers", "0"][..],
            &["--rounds", "0"],
            &["--pace", "0"],
            &["--pace", "0.5", "--write-rate", "3"],
            &["--documents", "5", "--scale", "1"],
        ] {
            assert!(parse_work::<Work>(args).is_err(), "{args:?}");
        }
    }
}
