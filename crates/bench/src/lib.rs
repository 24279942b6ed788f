//! Workloads that measure database systems side by side.
//!
//! [`run`] is the command `frond bench`. It knows documents and the wire, and nothing about how
//! Frond is built, so that it measures other servers in the same way. [`run_with`] adds systems that
//! speak something else.
#![forbid(unsafe_code)]

mod all;
mod counters;
mod csv_file;
mod descriptors;
mod documents;
mod everyday;
mod format;
mod groups;
mod harness;
mod indexcost;
mod insert;
mod load;
mod logins;
mod machine;
mod manykeys;
mod meter;
mod mixed;
mod mongodb;
pub mod null;
mod operations;
mod progress;
mod random;
mod report;
mod rolling;
mod roundtrip;
mod sampler;
mod signals;
mod statistics;
mod sysbench;
pub mod system;
mod threads;
mod timeline;

use std::process::ExitCode;

pub use all::Options as AllOptions;
pub use documents::manykeys::{Documents as ManykeysDocuments, Group, Schema};
pub use documents::updates::Update as ManykeysUpdate;
pub use frond_client::{Address, Collection, Error, Result, Stream, uri};
pub use harness::{CommonOptions, Options, parent_process};
pub use logins::Options as LoginsOptions;
pub use null::Options as NullOptions;
pub use operations::Options as OperationsOptions;
pub use roundtrip::Options as RoundtripOptions;
pub use system::{MemoryUsage, Status};

use harness::{Run, Workload};
use system::Scheme;

/// The subcommands of `frond bench`.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Insert documents into a collection with secondary indexes, until they outgrow memory
    Insert(Options<insert::Work>),
    /// The same with an array of strings in the first indexed field, so that each document makes
    /// an index entry for each string
    Multikey(Options<insert::MultikeyWork>),
    /// Update documents with thousands of keys, a few of them at a time
    Manykeys(Options<manykeys::Work>),
    /// Run transactions of eighteen small operations by many threads, as Sysbench does
    Sysbench(Options<sysbench::Work>),
    /// Insert documents without and with an index on their name, and find some by it
    Indexcost(Options<indexcost::Work>),
    /// Group small documents by a field, all of them and a part, and find some without an index
    Groups(Options<groups::Work>),
    /// Insert documents that expire, for several retention periods
    Rolling(Options<rolling::Work>),
    /// Add 1 to random counters, which are made if they are not there, and read some meanwhile
    Counters(Options<counters::Work>),
    /// Run everyday operations on small documents one after the other: counts, finds, aggregations and writes
    Everyday(Options<everyday::Work>),
    /// Find documents larger than memory by many connections, without a writer and beside one
    Mixed(Options<mixed::Work>),
    /// All of these, one after the other, in one report
    All(AllOptions),
    /// Find documents by their `_id`, in turns with bare pings
    Roundtrip(RoundtripOptions),
    /// Send requests of one kind again and again, for a profiler of the server
    Operations(OperationsOptions),
    /// Connect and log in, again and again or many at once, beside a client that finds documents
    Logins(LoginsOptions),
    /// Serve as the limit of client and loopback: accept every message, store nothing, answer
    Null(NullOptions),
}

/// Runs a workload to its end, with its progress and its report. The code is 0 when all was done,
/// 130 when the user stopped it, 1 on an error; the report is written in every case.
#[must_use]
pub fn run(command: Command) -> ExitCode {
    run_with(command, &[])
}

/// The same, with systems of other kinds than MongoDB's.
#[must_use]
pub fn run_with(command: Command, schemes: &[&dyn Scheme]) -> ExitCode {
    let mut known: Vec<&dyn Scheme> = vec![&mongodb::MongoDb];
    known.extend(schemes);
    descriptors::allow_many();
    let result = match command {
        Command::Insert(options) => measure(&options.common, &options.work, &known),
        Command::Multikey(options) => measure(&options.common, &options.work.into_work(), &known),
        Command::Manykeys(options) => measure(&options.common, &options.work, &known),
        Command::Sysbench(options) => measure(&options.common, &options.work, &known),
        Command::Indexcost(options) => measure(&options.common, &options.work, &known),
        Command::Groups(options) => measure(&options.common, &options.work, &known),
        Command::Rolling(options) => measure(&options.common, &options.work, &known),
        Command::Counters(options) => measure(&options.common, &options.work, &known),
        Command::Everyday(options) => measure(&options.common, &options.work, &known),
        Command::Mixed(options) => measure(&options.common, &options.work, &known),
        Command::All(options) => all::run(&options, &known),
        Command::Roundtrip(options) => {
            signals::stop_on_signals().and_then(|stop| roundtrip::run(&options, &stop))
        }
        Command::Operations(options) => {
            signals::stop_on_signals().and_then(|stop| operations::run(&options, &stop))
        }
        Command::Logins(options) => {
            signals::stop_on_signals().and_then(|stop| logins::run(&options, &stop))
        }
        Command::Null(options) => null::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Error::Stopped) => {
            eprintln!("frond bench: stopped before the end");
            ExitCode::from(130)
        }
        Err(error) => {
            eprintln!("frond bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs one workload and writes its report.
fn measure(common: &CommonOptions, workload: &dyn Workload, schemes: &[&dyn Scheme]) -> Result<()> {
    workload.check()?;
    let run = Run::open(common, workload.name(), schemes)?;
    let mut report = run.report();
    let (section, result) = workload.measure(&run)?;
    report.sections.push(section);
    let written = report.write(&run.folder);
    print!("{}", report.to_text(&run.folder));
    result.and(written)
}
