//! The settings of the workload with very many keys.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;

use super::document::Schema;
use crate::collection::Collection;
use crate::error::{Error, Result};
use crate::uri::Uri;

/// Command line of `frond bench manykeys`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Server to load: mongodb://host[:port]/[database][?options]
    #[arg(long, default_value = "mongodb://127.0.0.1:27017/", value_name = "URI")]
    pub uri: String,

    /// Database [default: the one in the URI, else frond_bench]
    #[arg(long, value_name = "NAME")]
    pub db: Option<String>,

    /// Collections: this name with _plain and _bucketed behind it
    #[arg(long, default_value = "w3", value_name = "NAME")]
    pub collection: String,

    /// Documents
    #[arg(long, default_value_t = 2000, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub documents: u64,

    /// Keys of each document
    #[arg(long, default_value_t = 20_000, value_name = "N",
          value_parser = clap::value_parser!(u32).range(super::updates::KEYS as i64..=1_000_000))]
    pub keys: u32,

    /// All keys side by side, or each in a bucket named by two digits of its MD5
    #[arg(long, default_value = "both", value_name = "SCHEMA")]
    pub schema: Schemas,

    /// Values of the keys begin with random numbers instead of 0
    #[arg(long)]
    pub random_values: bool,

    /// Updates in a round
    #[arg(long, default_value_t = 10_000, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub updates: u64,

    /// Rounds of updates, each for every schema and write concern
    #[arg(long, default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub rounds: u64,

    /// Updates that nobody answers, answered ones, or both [default: w in the URI, else both]
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

    /// Make no index for what the updates find documents by
    #[arg(long)]
    pub no_index: bool,

    /// Documents to read whole, and again by one key; 0 reads none
    #[arg(long, default_value_t = 300, value_name = "N",
          value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub reads: u64,

    /// Documents to compare with what they must hold at the end
    #[arg(long, default_value = "100", value_name = "N|all")]
    pub verify: Verify,

    /// Longest wait for the server to come to rest before and after bytes written are counted
    #[arg(long, default_value_t = 60.0, value_name = "SECONDS", value_parser = settle)]
    pub settle: f64,

    /// Seed of documents and updates
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,

    /// Seconds between two lines of the statistics
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS",
          value_parser = crate::contest::report_every)]
    pub report_every: f64,

    /// Folder for the report [default: frond-bench-manykeys-DATE-TIME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// Drop the collections first
    #[arg(long)]
    pub drop: bool,

    /// Show the statistics of each second
    #[arg(long, conflicts_with = "quiet")]
    pub verbose: bool,

    /// Show no progress, only the result
    #[arg(long)]
    pub quiet: bool,
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
    /// Fire and forget.
    #[value(name = "0")]
    Zero,
    /// Each update waits for its answer.
    #[value(name = "1")]
    One,
    /// One after the other.
    Both,
}

/// How many documents are compared at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// Every one.
    All,
    /// So many, picked at random.
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

fn settle(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("it must be from 0 to 86400 seconds".to_owned()),
    }
}

/// The settings of a run, with every default settled.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the server is.
    pub uri: Uri,
    /// The schemas, and where their documents go.
    pub schemas: Vec<(Schema, Collection)>,
    /// False is w: 0; in this order.
    pub acknowledged: Vec<bool>,
    /// True is j: true, for what is acknowledged.
    pub journal: bool,
    /// Longest wait for rest.
    pub settle: Duration,
    /// Between two lines of the statistics.
    pub report_every: Duration,
}

impl Options {
    /// Settles defaults, and refuses settings that cannot go together.
    pub fn plan(&self) -> Result<Plan> {
        let uri: Uri = self.uri.parse()?;
        let concerns = self.write_concern.unwrap_or(match uri.write_concern {
            Some(0) => WriteConcerns::Zero,
            Some(_) => WriteConcerns::One,
            None => WriteConcerns::Both,
        });
        let acknowledged = match concerns {
            WriteConcerns::Zero => vec![false],
            WriteConcerns::One => vec![true],
            WriteConcerns::Both => vec![false, true],
        };
        let journal = self.journal || uri.journal.unwrap_or(false);
        if journal && concerns == WriteConcerns::Zero {
            return Err(Error::Settings(
                "--journal waits for an answer, which --write-concern 0 does not get".to_owned(),
            ));
        }
        let schemas = match self.schema {
            Schemas::Plain => vec![Schema::Plain],
            Schemas::Bucketed => vec![Schema::Bucketed],
            Schemas::Both => vec![Schema::Plain, Schema::Bucketed],
        };
        let schemas = schemas
            .into_iter()
            .map(|schema| {
                let name = format!("{}_{}", self.collection, schema.name());
                Ok((
                    schema,
                    Collection::new(&uri.database_or(self.db.as_deref()), &name)?,
                ))
            })
            .collect::<Result<_>>()?;
        Ok(Plan {
            schemas,
            acknowledged,
            journal,
            settle: Duration::from_secs_f64(self.settle),
            report_every: Duration::from_secs_f64(self.report_every),
            uri,
        })
    }

    /// The settings as they go into the report.
    #[must_use]
    pub fn pairs(&self, plan: &Plan) -> Vec<(&'static str, String)> {
        let yes_no = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
        let names: Vec<String> = plan.schemas.iter().map(|(_, c)| c.to_string()).collect();
        let first = if self.random_values { "random" } else { "0" };
        vec![
            ("uri", self.uri.clone()),
            ("collections", names.join(", ")),
            ("documents", self.documents.to_string()),
            ("keys", self.keys.to_string()),
            ("values at first", first.to_owned()),
            ("updates", self.updates.to_string()),
            ("rounds", self.rounds.to_string()),
            ("journal", yes_no(plan.journal)),
            ("connections", self.connections.to_string()),
            ("documents in an insert", self.batch.to_string()),
            ("index", yes_no(!self.no_index)),
            ("seed", self.seed.to_string()),
        ]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        options: Options,
    }

    fn parse(args: &[&str]) -> std::result::Result<Options, String> {
        let args = std::iter::once("bench").chain(args.iter().copied());
        Cli::try_parse_from(args)
            .map(|cli| cli.options)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn both_of_both_unless_asked_for_less() {
        for (args, names, acknowledged) in [
            (
                &[][..],
                &["w3_plain", "w3_bucketed"][..],
                &[false, true][..],
            ),
            (
                &["--schema", "plain", "--write-concern", "1"][..],
                &["w3_plain"][..],
                &[true][..],
            ),
            (
                &[
                    "--schema",
                    "bucketed",
                    "--collection",
                    "x",
                    "--uri",
                    "mongodb://h/?w=0",
                ][..],
                &["x_bucketed"][..],
                &[false][..],
            ),
        ] {
            let plan = parse(args).unwrap().plan().unwrap();
            let found: Vec<&str> = plan.schemas.iter().map(|(_, c)| c.name.as_str()).collect();
            assert_eq!(found, names, "{args:?}");
            assert_eq!(plan.acknowledged, acknowledged, "{args:?}");
        }
        assert_eq!(parse(&["--verify", "all"]).unwrap().verify, Verify::All);
        assert_eq!(parse(&["--verify", "7"]).unwrap().verify, Verify::Some(7));
    }

    #[test]
    fn settings_that_cannot_work_are_refused() {
        for (args, part) in [
            (&["--documents", "0"][..], "documents"),
            (&["--keys", "4"][..], "keys"),
            (&["--schema", "hashed"][..], "schema"),
            (&["--write-concern", "2"][..], "write-concern"),
            (&["--verify", "some"][..], "verify"),
            (&["--settle=-1"][..], "settle"),
            (&["--connections", "0"][..], "connections"),
            (&["--quiet", "--verbose"][..], "--quiet"),
            (&["--journal", "--write-concern", "0"][..], "--journal"),
            (&["--collection", "a$b"][..], "--collection"),
            (&["--db", "a.b"][..], "--db"),
        ] {
            let error = match parse(args) {
                Err(error) => error,
                Ok(options) => options.plan().unwrap_err().to_string(),
            };
            assert!(error.contains(part), "{args:?}: {error}");
        }
    }
}
