//! Options that the workloads share.

use std::path::PathBuf;
use std::time::Duration;

/// The server when no `--uri` is given.
const LOCAL: &str = "mongodb://127.0.0.1:27017/";

/// Command line of a workload.
#[derive(Clone, Debug, clap::Args)]
pub struct Options<W: clap::Args> {
    /// The options that all workloads share.
    #[command(flatten)]
    pub common: CommonOptions,

    /// The settings of this one.
    #[command(flatten)]
    pub work: W,
}

/// The settings of a workload on a command line with these options.
#[cfg(test)]
pub fn parse_work<W: clap::Args>(args: &[&str]) -> std::result::Result<W, String> {
    use clap::FromArgMatches;
    let command = <Options<W> as clap::Args>::augment_args(clap::Command::new("bench"));
    command
        .try_get_matches_from(std::iter::once("bench").chain(args.iter().copied()))
        .and_then(|matches| Options::from_arg_matches(&matches))
        .map(|options| options.work)
        .map_err(|error| error.to_string())
}

/// Options of workloads that insert with any write concern.
#[derive(Clone, Debug, clap::Args)]
pub struct WriteOptions {
    /// Connections that insert at the same time
    #[arg(long, default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: u16,

    /// Documents in one insert
    #[arg(long, default_value_t = 1000, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub batch: u32,

    /// Wait until each insert is in the journal on disk (j: true)
    #[arg(long)]
    pub journal: bool,

    /// Wait until a majority of the replica set has each insert (w: "majority")
    #[arg(long, conflicts_with = "write_concern")]
    pub majority: bool,

    /// 1 waits for the server's answer to each insert, 0 does not [default: w in the URI, else 1 for
    /// insert and multikey, 0 for indexcost]
    #[arg(long, value_name = "0|1", value_parser = clap::value_parser!(u8).range(0..=1))]
    pub write_concern: Option<u8>,
}

/// Options of every workload.
#[derive(Clone, Debug, clap::Args)]
pub struct CommonOptions {
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

    /// Stop the processes of the other servers (SIGSTOP) while one has its turn, so that their background work neither disturbs it
    /// nor goes on for free. They must run on this machine, and this program may stop them. If it is killed, they stay stopped
    #[arg(long)]
    pub pause: bool,

    /// End a workload on a server after this many minutes of its own time
    #[arg(long, value_name = "MINUTES", value_parser = |text: &str| above_zero(text, 100_000.0, " minutes"))]
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

    /// Longest wait in seconds for idle compaction, which ends when a server has written nothing for
    /// two seconds, before sizes and bytes written are read [default: 10, manykeys 60]
    #[arg(long, alias = "settle", value_name = "SECONDS", value_parser = |text: &str| number(text, 0.0..=3600.0, " seconds"))]
    pub compaction_wait: Option<f64>,

    /// Seconds between two lines of the trace
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS", value_parser = |text: &str| number(text, 0.05..=3600.0, " seconds"))]
    pub report_every: f64,

    /// Folder for the report [default: frond-bench-WORKLOAD-DATE-TIME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// Show no progress, only the result
    #[arg(long)]
    pub quiet: bool,
}

impl CommonOptions {
    pub fn uris(&self) -> Vec<String> {
        if self.uri.is_empty() {
            return vec![LOCAL.to_owned()];
        }
        self.uri.clone()
    }

    /// Between two lines of the trace.
    pub fn every(&self) -> Duration {
        Duration::from_secs_f64(self.report_every)
    }
}

/// Reads a number of a range.
pub fn number(
    text: &str,
    range: std::ops::RangeInclusive<f64>,
    unit: &str,
) -> std::result::Result<f64, String> {
    let (low, high) = range.into_inner();
    let read = text.parse::<f64>().ok();
    read.filter(|number| (low..=high).contains(number))
        .ok_or_else(|| format!("it must be from {low} to {high}{unit}"))
}

/// Reads a number above 0, up to `high`.
fn above_zero(text: &str, high: f64, unit: &str) -> std::result::Result<f64, String> {
    let read = text.parse::<f64>().ok();
    read.filter(|number| *number > 0.0 && *number <= high)
        .ok_or_else(|| format!("it must be above 0 and at most {high}{unit}"))
}

pub fn scale(text: &str) -> std::result::Result<f64, String> {
    above_zero(text, 100.0, "")
}
