//! The settings of the workload with very many keys.

use clap::ValueEnum;

use crate::documents::manykeys::Schema;
use crate::harness::scale;
use crate::system::Defaults;
use frond_client::{Error, Result};

/// Documents of the original run.
const DOCUMENTS: u64 = 2000;
/// Updates of the original run.
const UPDATES: u64 = 10_000;

#[derive(Clone, Debug, clap::Args)]
pub struct Work {
    /// Collections: this name with _plain and _bucketed behind it
    #[arg(long, default_value = "w3", value_name = "NAME")]
    pub collection: String,

    /// Documents [default: 2000]
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub documents: Option<u64>,

    /// Documents and updates as a part of the original run's: 2,000 and 10,000
    #[arg(long, value_name = "PART", value_parser = scale, conflicts_with = "documents")]
    pub scale: Option<f64>,

    /// Keys of each document
    #[arg(long, default_value_t = 20_000, value_name = "N",
          value_parser = clap::value_parser!(u32).range(crate::documents::updates::KEYS as i64..=1_000_000))]
    pub keys: u32,

    /// All keys side by side, or each in a bucket named by two digits of its MD5
    #[arg(long, default_value = "both", value_name = "SCHEMA")]
    pub schema: Schemas,

    /// Values of the keys begin with random numbers instead of 0
    #[arg(long)]
    pub random_values: bool,

    /// Updates in a round [default: 10000]
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub updates: Option<u64>,

    /// Rounds of updates, each for every schema and write concern; servers take turns by rounds
    #[arg(long, default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub rounds: u64,

    /// Updates without acknowledgement, with it, or both [default: w in the URI, else both]
    #[arg(long, value_name = "0|1|both")]
    pub write_concern: Option<WriteConcerns>,

    /// Wait until each answered write is in the journal on disk (j: true)
    #[arg(long)]
    pub journal: bool,

    /// Connections that load and update at the same time
    #[arg(long, default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub connections: u16,

    /// Documents in one insert of the load
    #[arg(long, default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub batch: u32,

    /// Create no index on the fields that updates find documents by
    #[arg(long)]
    pub no_index: bool,

    /// Documents to read whole, and again by one key; 0 reads none
    #[arg(long, default_value_t = 300, value_name = "N",
          value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub reads: u64,

    /// Documents to compare with the expected ones at the end
    #[arg(long, default_value = "100", value_name = "N|all")]
    pub verify: Verify,

    /// Show the statistics of each second
    #[arg(long)]
    pub verbose: bool,
}

/// Which schemas a run measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Schemas {
    /// All keys side by side.
    Plain,
    /// Keys in buckets.
    Bucketed,
    /// One after the other.
    Both,
}

/// Which write concerns a run measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WriteConcerns {
    /// No acknowledgement.
    #[value(name = "0")]
    Zero,
    /// Each update waits for its answer.
    #[value(name = "1")]
    One,
    /// One after the other.
    Both,
}

/// Number of documents that are compared at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    All,
    /// This many, picked at random.
    Some(u64),
}

impl std::str::FromStr for Verify {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        if text == "all" {
            return Ok(Verify::All);
        }
        text.parse()
            .map(Verify::Some)
            .map_err(|_| "it must be a number, or all".to_owned())
    }
}

impl Work {
    pub fn documents(&self) -> u64 {
        self.documents.unwrap_or_else(|| self.scaled(DOCUMENTS))
    }

    pub fn updates(&self) -> u64 {
        self.updates.unwrap_or_else(|| self.scaled(UPDATES))
    }

    fn scaled(&self, original: u64) -> u64 {
        (original as f64 * self.scale.unwrap_or(1.0)).ceil() as u64
    }

    /// The schemas, in the order in which they are measured.
    pub fn schemas(&self) -> Vec<Schema> {
        match self.schema {
            Schemas::Plain => vec![Schema::Plain],
            Schemas::Bucketed => vec![Schema::Bucketed],
            Schemas::Both => vec![Schema::Plain, Schema::Bucketed],
        }
    }

    pub fn collection(&self, schema: Schema) -> String {
        format!("{}_{}", self.collection, schema.name())
    }

    /// Whether updates are acknowledged, in the order in which they are measured. `defaults` are those
    /// of the first server, since all must do the same.
    pub fn concerns(&self, defaults: &Defaults) -> Result<Vec<bool>> {
        let concerns = self.write_concern.unwrap_or(match defaults.write_concern {
            Some(0) => WriteConcerns::Zero,
            Some(_) => WriteConcerns::One,
            None => WriteConcerns::Both,
        });
        match concerns {
            WriteConcerns::Zero if self.journal || defaults.journal == Some(true) => {
                Err(Error::Settings(
                    "--journal waits for an answer, which --write-concern 0 does not get"
                        .to_owned(),
                ))
            }
            WriteConcerns::Zero => Ok(vec![false]),
            WriteConcerns::One => Ok(vec![true]),
            WriteConcerns::Both => Ok(vec![false, true]),
        }
    }

    /// The settings as they go into the report.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let yes_no = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
        let first = if self.random_values { "random" } else { "0" };
        let journal = if self.journal {
            "waited for by what is acknowledged"
        } else {
            "not waited for"
        };
        vec![
            ("documents", self.documents().to_string()),
            ("keys", self.keys.to_string()),
            ("values at first", first.to_owned()),
            ("updates in a round", self.updates().to_string()),
            ("rounds", self.rounds.to_string()),
            ("journal", journal.to_owned()),
            ("connections", self.connections.to_string()),
            ("documents in an insert", self.batch.to_string()),
            ("index", yes_no(!self.no_index)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::parse_work;

    fn parse(args: &[&str]) -> std::result::Result<Work, String> {
        parse_work(args)
    }

    #[test]
    fn both_of_both_unless_asked_for_less() {
        let silent = Defaults::default();
        let w0 = Defaults {
            write_concern: Some(0),
            ..Defaults::default()
        };
        for (args, defaults, names, acknowledged) in [
            (
                &[][..],
                &silent,
                &["w3_plain", "w3_bucketed"][..],
                &[false, true][..],
            ),
            (
                &["--schema", "plain", "--write-concern", "1"][..],
                &w0,
                &["w3_plain"][..],
                &[true][..],
            ),
            (
                &["--schema", "bucketed", "--collection", "x"][..],
                &w0,
                &["x_bucketed"][..],
                &[false][..],
            ),
        ] {
            let work = parse(args).unwrap();
            let schemas = work.schemas().into_iter();
            let found: Vec<String> = schemas.map(|schema| work.collection(schema)).collect();
            assert_eq!(found, names, "{args:?}");
            assert_eq!(work.concerns(defaults).unwrap(), acknowledged, "{args:?}");
        }
        assert_eq!(parse(&["--verify", "all"]).unwrap().verify, Verify::All);
        assert_eq!(parse(&["--verify", "7"]).unwrap().verify, Verify::Some(7));
    }

    #[test]
    fn scale_is_a_part_of_the_original() {
        for (args, documents, updates) in [
            (&[][..], 2000, 10_000),
            (&["--scale", "0.01"][..], 20, 100),
            (&["--scale", "0.0001", "--updates", "7"][..], 1, 7),
            (&["--documents", "9"][..], 9, 10_000),
        ] {
            let work = parse(args).unwrap();
            assert_eq!(
                (work.documents(), work.updates()),
                (documents, updates),
                "{args:?}"
            );
        }
    }
}
