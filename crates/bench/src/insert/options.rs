//! The settings of the insertion workload.

use std::path::PathBuf;
use std::time::Duration;

use crate::collection::Collection;
use crate::document::INDEXED_FIELDS;
use crate::error::{Error, Result};
use crate::uri::Uri;

/// Command line of `frond bench multikey`.
#[derive(Clone, Debug, clap::Args)]
pub struct MultikeyOptions {
    /// Strings in the array URI
    #[arg(long, default_value_t = 100, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub elements: u32,

    /// Everything else.
    #[command(flatten)]
    pub insert: Options,
}

impl MultikeyOptions {
    /// The settings of the insertion workload with arrays.
    #[must_use]
    pub fn into_insert(self) -> Options {
        Options {
            elements: self.elements,
            ..self.insert
        }
    }
}

/// Command line of `frond bench insert`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Server to load: mongodb://host[:port]/[database][?options]
    #[arg(long, default_value = "mongodb://127.0.0.1:27017/", value_name = "URI")]
    pub uri: String,

    /// Database [default: the one in the URI, else frond_bench]
    #[arg(long, value_name = "NAME")]
    pub db: Option<String>,

    /// Collection [default: w1, or w2 with arrays]
    #[arg(long, value_name = "NAME")]
    pub collection: Option<String>,

    /// Documents to insert
    #[arg(long, default_value_t = 1_000_000, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub documents: u64,

    /// Connections that insert at the same time
    #[arg(long, default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: u16,

    /// Documents in one insert
    #[arg(long, default_value_t = 1000, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub batch: u32,

    /// Wait until each batch is in the journal on disk (j: true)
    #[arg(long)]
    pub journal: bool,

    /// 1 waits for the server's answer to each batch, 0 does not [default: w in the URI, else 1]
    #[arg(long, value_name = "0|1", value_parser = clap::value_parser!(u8).range(0..=1))]
    pub write_concern: Option<u8>,

    /// Secondary indexes: the first N of URI, name, origin, creation
    #[arg(long, default_value_t = 4, value_name = "N",
          value_parser = clap::value_parser!(u8).range(0..=INDEXED_FIELDS.len() as i64))]
    pub indexes: u8,

    /// Seed of the documents: the same seed makes the same documents, `_id`s too
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,

    /// Seconds between two lines of the trace
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS", value_parser = report_every)]
    pub report_every: f64,

    /// Folder for the report [default: frond-bench-insert-DATE-TIME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// Drop the collection first
    #[arg(long, conflicts_with = "keep")]
    pub drop: bool,

    /// Insert into the collection as it is, with what it holds
    #[arg(long)]
    pub keep: bool,

    /// Show no progress, only the result
    #[arg(long)]
    pub quiet: bool,

    /// Strings in the array `URI`; 0 makes it one string.
    #[arg(skip)]
    pub elements: u32,
}

/// Parses `--report-every`.
pub fn report_every(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.05..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("it must be from 0.05 to 3600 seconds".to_owned()),
    }
}

/// The settings of a run, with every default settled.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the server is.
    pub uri: Uri,
    /// Where the documents go.
    pub collection: Collection,
    /// False is w: 0.
    pub acknowledged: bool,
    /// True is j: true.
    pub journal: bool,
    /// Between two lines of the trace.
    pub report_every: Duration,
}

impl Options {
    /// Settles defaults, and refuses settings that cannot go together.
    pub fn plan(&self) -> Result<Plan> {
        let uri: Uri = self.uri.parse()?;
        let acknowledged = self.write_concern.or(uri.write_concern).unwrap_or(1) == 1;
        let journal = self.journal || uri.journal.unwrap_or(false);
        if journal && !acknowledged {
            return Err(Error::Settings(
                "--journal waits for an answer, which --write-concern 0 does not get".to_owned(),
            ));
        }
        let collection = self.collection.clone().unwrap_or_else(|| {
            let workload = if self.elements == 0 { "w1" } else { "w2" };
            workload.to_owned()
        });
        Ok(Plan {
            collection: Collection::new(&uri, self.db.as_deref(), &collection)?,
            acknowledged,
            journal,
            report_every: Duration::from_secs_f64(self.report_every),
            uri,
        })
    }

    /// Entries that a document has in all indexes, the one on `_id` not counted.
    #[must_use]
    pub fn index_entries(&self) -> u64 {
        let of_the_first = u64::from(self.elements.max(1));
        match u64::from(self.indexes) {
            0 => 0,
            indexes => of_the_first + indexes - 1,
        }
    }

    /// Fields that get an index.
    #[must_use]
    pub fn indexed_fields(&self) -> &'static [&'static str] {
        INDEXED_FIELDS
            .get(..usize::from(self.indexes))
            .unwrap_or(&INDEXED_FIELDS)
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
    fn the_command_line_wins_over_the_uri() {
        for (args, database, acknowledged, journal) in [
            (&[][..], "frond_bench", true, false),
            (&["--uri", "mongodb://h/x?w=0"][..], "x", false, false),
            (
                &[
                    "--uri",
                    "mongodb://h/x?w=0",
                    "--write-concern",
                    "1",
                    "--db",
                    "y",
                ][..],
                "y",
                true,
                false,
            ),
            (
                &["--uri", "mongodb://h/?journal=true"][..],
                "frond_bench",
                true,
                true,
            ),
            (&["--journal"][..], "frond_bench", true, true),
        ] {
            let plan = parse(args).unwrap().plan().unwrap();
            assert_eq!(plan.collection.database, database, "{args:?}");
            assert_eq!(plan.acknowledged, acknowledged, "{args:?}");
            assert_eq!(plan.journal, journal, "{args:?}");
        }
    }

    #[test]
    fn settings_that_cannot_work_are_refused() {
        for (args, part) in [
            (&["--documents", "0"][..], "documents"),
            (&["--indexes", "5"][..], "indexes"),
            (&["--batch", "0"][..], "batch"),
            (&["--threads", "0"][..], "threads"),
            (&["--write-concern", "2"][..], "write-concern"),
            (&["--report-every", "0"][..], "report-every"),
            (&["--drop", "--keep"][..], "--keep"),
            (&["--journal", "--write-concern", "0"][..], "--journal"),
            (&["--collection", "a$b"][..], "--collection"),
            (&["--db", "a.b"][..], "--db"),
            (&["--uri", "localhost"][..], "mongodb://"),
        ] {
            let error = match parse(args) {
                Err(error) => error,
                Ok(options) => options.plan().unwrap_err().to_string(),
            };
            assert!(error.contains(part), "{args:?}: {error}");
        }
        let two = parse(&["--indexes", "2"]).unwrap();
        assert_eq!(two.indexed_fields(), ["URI", "name"]);
        assert_eq!(two.index_entries(), 2);
        let arrays = Options {
            elements: 100,
            ..two
        };
        assert_eq!(arrays.index_entries(), 101);
        assert_eq!(arrays.plan().unwrap().collection.name, "w2");
    }
}
