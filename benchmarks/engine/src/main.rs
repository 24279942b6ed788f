//! One workload on Frond's engine and on four others. See `benchmarks/README.md`.

mod engine;
mod error;
mod messages;
mod phase;
mod record;
mod report;
mod scenario;
mod usage;
mod workload;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, ValueEnum};
use mimalloc::MiMalloc;

use crate::engine::{Kind, Setup};
use crate::error::{Error, Result};
use crate::messages::Messages;
use crate::phase::{Bench, Limits};
use crate::record::Record;
use crate::scenario::Scenario;

/// The allocator that Frond ships with.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// One workload on Frond's engine and on four others.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
enum Command {
    /// Measure one engine in one scenario, in this process
    Measure(Measure),
    /// Measure update messages on segments of documents with very many fields, in Frond's engine alone
    Messages(Messages),
    /// Turn the records of many measurements into tables and a chart
    Report(Report),
}

/// How memory compares with the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Memory is far smaller. The memory cgroup is the caller's to set up.
    Limited,
    /// Everything fits into the cache.
    Memory,
}

#[derive(Args)]
struct Measure {
    #[arg(long)]
    engine: Kind,
    #[arg(long)]
    mode: Mode,
    #[arg(long)]
    scenario: Scenario,
    /// Folder for the store's files; made, and removed at the end
    #[arg(long)]
    folder: PathBuf,
    /// File of JSON lines that gets the records
    #[arg(long)]
    records: PathBuf,
    #[arg(long, default_value_t = 2_000_000)]
    documents: u64,
    /// Threads that load
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Threads that read, one number for each repetition
    #[arg(long, value_delimiter = ',', default_value = "1")]
    read_threads: Vec<usize>,
    /// Memory for the engine's caches and write buffers [default: 256 when limited, otherwise 8192]
    #[arg(long)]
    cache_mib: Option<u64>,
    /// Length of each timed phase
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Longest time for a load, a deletion or a round of replacements
    #[arg(long, default_value_t = 1200.0)]
    write_seconds: f64,
    /// Longest time for a full scan
    #[arg(long, default_value_t = 120.0)]
    full_scan_seconds: f64,
    /// Longest wait for idle compaction
    #[arg(long, alias = "settle-seconds", default_value_t = 120.0)]
    compaction_seconds: f64,
    /// Size of a block of RocksDB in KiB
    #[arg(long, default_value_t = 16)]
    rocksdb_block_kib: usize,
    /// Which repetition of the whole this is
    #[arg(long, default_value_t = 1)]
    round: usize,
}

#[derive(Args)]
struct Report {
    /// File of JSON lines
    #[arg(long)]
    records: PathBuf,
    /// Folder for summary.md, the chart and the curves
    #[arg(long)]
    out: PathBuf,
    /// A line about the run, such as the commit; may be given more than once
    #[arg(long)]
    note: Vec<String>,
}

fn main() -> ExitCode {
    let result = match Command::parse() {
        Command::Measure(options) => measure(&options),
        Command::Messages(options) => messages::run(&options),
        Command::Report(options) => report::write(&options.records, &options.out, &options.note),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("frond-bench-engine: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The name of a value in options and reports.
fn value_name(value: &impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

fn measure(options: &Measure) -> Result<()> {
    let positive = |seconds: f64, name| {
        Duration::try_from_secs_f64(seconds)
            .map_err(|_| Error::Settings(format!("{name} is {seconds}; it must be 0 or more")))
    };
    if options.documents < 1000 || options.threads == 0 || options.read_threads.contains(&0) {
        let text = "at least 1000 documents and one thread are needed".to_owned();
        return Err(Error::Settings(text));
    }
    let limited = options.mode == Mode::Limited;
    let cache_mib = options
        .cache_mib
        .unwrap_or(if limited { 256 } else { 8192 });
    let limits = Limits {
        documents: options.documents,
        phase: positive(options.seconds, "--seconds")?,
        write: positive(options.write_seconds, "--write-seconds")?,
        full_scan: positive(options.full_scan_seconds, "--full-scan-seconds")?,
        compaction: positive(options.compaction_seconds, "--compaction-seconds")?,
        warm_up: !limited,
    };
    let template = Record {
        engine: value_name(&options.engine),
        mode: value_name(&options.mode),
        scenario: value_name(&options.scenario),
        round: options.round,
        ..Record::default()
    };
    let folder = &options.folder;
    fs::create_dir(folder).map_err(Error::file(format!("making {}", folder.display())))?;
    let setup = Setup {
        folder: folder.clone(),
        cache_bytes: cache_mib << 20,
        limited,
        rocksdb_block_bytes: options.rocksdb_block_kib << 10,
    };
    let store = engine::open(options.engine, &setup)?;
    let mut bench = Bench::new(
        store,
        limits,
        folder.clone(),
        options.records.clone(),
        template,
    );
    let result = scenario::run(
        &mut bench,
        options.scenario,
        options.threads,
        &options.read_threads,
    );
    let closed = bench.engine.close();
    // The records are safe; a folder that stays is the caller's to remove.
    let _ = fs::remove_dir_all(folder);
    result.and(closed)
}
