//! The settings of the workload of Sysbench.

use std::time::Duration;

use crate::format::thousands;
use crate::harness::{number, scale};
use crate::system::Compression;
use frond_client::{Error, Result};

/// Documents of a collection of the original run.
const ORIGINAL: f64 = 10_000_000.0;
/// Documents of a collection when nothing is said.
const DOCUMENTS: u32 = 100_000;

/// The shortest slice of a level, for servers that take turns.
const SLICE_MIN: Duration = Duration::from_secs(2);

/// Settings of a run of Sysbench.
#[derive(Clone, Debug, clap::Args)]
pub struct Work {
    /// Documents in each collection [default: 100000]
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub documents: Option<u32>,

    /// Documents as a part of the original run's 10,000,000 in each collection
    #[arg(long, value_name = "PART", value_parser = scale, conflicts_with = "documents")]
    pub scale: Option<f64>,

    /// Collections: sbtest1, sbtest2 and so on
    #[arg(long, default_value_t = 16, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub collections: u32,

    /// Threads that run transactions, one number or several: each level runs for --seconds
    #[arg(long, default_value = "1,8,32", value_name = "LIST", value_delimiter = ',',
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Vec<u16>,

    /// Seconds of each level on each server
    #[arg(long, default_value_t = 60.0, value_name = "SECONDS", value_parser = |text: &str| number(text, 0.1..=1_000_000.0, " seconds"))]
    pub seconds: f64,

    /// Compressions to ask for, one or several of none, snappy, zlib and zstd. The collections are
    /// loaded with each; transactions run on the first [default: the server's own]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub compression: Vec<Compression>,

    /// Run transactions with each compression, not only with the first
    #[arg(long)]
    pub run_each: bool,

    /// Connections that load at the same time
    #[arg(long, default_value_t = 4, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub load_threads: u16,

    /// Documents in one insert of the load
    #[arg(long, default_value_t = 1000, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub batch: u32,
}

impl Work {
    pub fn check_settings(&self) -> Result<()> {
        let twice = |list: &[Compression]| {
            let mut rest = list.iter();
            std::iter::from_fn(|| rest.next().map(|first| rest.clone().any(|x| x == first)))
                .any(|again| again)
        };
        if twice(&self.compression) {
            return Err(Error::Settings("--compression names one twice".to_owned()));
        }
        if self.run_each && self.compression.len() < 2 {
            return Err(Error::Settings(
                "--run-each is for several of --compression".to_owned(),
            ));
        }
        Ok(())
    }

    /// The settings as they go into the report.
    pub fn settings(&self, turns: u32) -> Vec<(&'static str, String)> {
        let list = |items: Vec<String>| items.join(", ");
        let compressions = self.compressions();
        let (slices, slice) = self.slices(turns);
        vec![
            ("collections", self.collections.to_string()),
            ("documents in each", thousands(f64::from(self.documents()))),
            (
                "threads",
                list(self.threads.iter().map(u16::to_string).collect()),
            ),
            ("seconds of each level", format!("{}", self.seconds)),
            (
                "slices of a level",
                format!("{slices} of {:.1} s", slice.as_secs_f64()),
            ),
            (
                "compression",
                list(
                    compressions
                        .iter()
                        .map(|c| compression_name(*c).to_owned())
                        .collect(),
                ),
            ),
            ("connections of the load", self.load_threads.to_string()),
            ("documents in one insert", self.batch.to_string()),
        ]
    }

    pub fn documents(&self) -> u32 {
        let documents = match self.scale {
            Some(scale) => (ORIGINAL * scale).round() as u32,
            None => self.documents.unwrap_or(DOCUMENTS),
        };
        documents.clamp(1, i32::MAX as u32)
    }

    /// Compressions to load with; `None` is the server's own.
    pub fn compressions(&self) -> Vec<Option<Compression>> {
        if self.compression.is_empty() {
            return vec![None];
        }
        self.compression.iter().copied().map(Some).collect()
    }

    /// Number and length of the slices of a level. With `turns` turns a slice lasts two seconds or more.
    pub fn slices(&self, turns: u32) -> (u32, Duration) {
        let level = Duration::from_secs_f64(self.seconds);
        let most = (level.as_secs_f64() / SLICE_MIN.as_secs_f64())
            .floor()
            .max(1.0) as u32;
        let slices = turns.clamp(1, most);
        (slices, level / slices)
    }
}

pub fn compression_name(compression: Option<Compression>) -> &'static str {
    compression.map_or("the server's own", Compression::name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::parse_work;

    fn parse(args: &[&str]) -> std::result::Result<Work, String> {
        parse_work(args)
    }

    #[test]
    fn documents_come_from_the_scale_unless_they_are_named() {
        for (args, documents) in [
            (&[][..], 100_000),
            (&["--scale", "1"], 10_000_000),
            (&["--scale", "0.5"], 5_000_000),
            (&["--scale", "0.00000001"], 1),
            (&["--documents", "17"], 17),
        ] {
            assert_eq!(parse(args).unwrap().documents(), documents, "{args:?}");
        }
        let work = parse(&["--threads", "1,8,1024", "--compression", "none,zstd"]).unwrap();
        assert_eq!(work.threads, [1, 8, 1024]);
        let both = [Some(Compression::None), Some(Compression::Zstd)];
        assert_eq!(work.compressions(), both);
        assert_eq!(parse(&[]).unwrap().compressions(), [None]);
    }

    #[test]
    fn slices_are_as_many_as_turns_but_not_too_short() {
        for (seconds, turns, slices) in [
            ("60", 1, 1),
            ("60", 20, 20),
            ("60", 100, 30),
            ("5", 20, 2),
            ("1", 20, 1),
        ] {
            let work = parse(&["--seconds", seconds]).unwrap();
            let (count, each) = work.slices(turns);
            assert_eq!(count, slices, "{seconds} s, {turns} turns");
            let whole = each.as_secs_f64() * f64::from(count);
            assert!((whole - work.seconds).abs() < 1e-6);
        }
    }
}
