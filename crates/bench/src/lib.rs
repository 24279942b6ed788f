//! Workloads that measure database systems side by side.
//!
//! [`run`] is the command `frond bench`. It knows documents and the wire, and nothing about how
//! Frond is built, so that it measures other servers in the same way. [`run_with`] adds systems that
//! speak something else.
#![forbid(unsafe_code)]

mod all;
mod client;
mod collection;
mod contest;
mod descriptors;
mod document;
mod error;
mod indexcost;
mod insert;
mod load;
mod machine;
mod manykeys;
mod meter;
mod mongodb;
mod monitor;
pub mod null;
mod progress;
mod random;
mod report;
mod roundtrip;
mod signals;
mod statistics;
mod stream;
mod sysbench;
pub mod system;
mod threads;
mod timeline;
pub mod uri;
mod watch;

use std::process::ExitCode;

pub use all::Options as AllOptions;
pub use collection::Collection;
pub use contest::Servers;
pub use error::{Error, Result};
pub use indexcost::Options as IndexcostOptions;
pub use insert::{MultikeyOptions, Options as InsertOptions};
pub use manykeys::Options as ManykeysOptions;
pub use manykeys::document::{Documents as ManykeysDocuments, Group, Schema};
pub use manykeys::updates::Update as ManykeysUpdate;
pub use monitor::{Figures, Status};
pub use null::Options as NullOptions;
pub use roundtrip::Options as RoundtripOptions;
pub use stream::Stream;
pub use sysbench::Options as SysbenchOptions;
pub use uri::Address;

use contest::Contest;
use report::Book;
use system::Scheme;

/// What `frond bench` can run.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Insert documents into a collection with secondary indexes, until they outgrow memory
    Insert(InsertOptions),
    /// The same with an array of strings in the first indexed field, so that each document makes
    /// an index entry for each string
    Multikey(MultikeyOptions),
    /// Update documents with thousands of keys, a few of them at a time
    Manykeys(ManykeysOptions),
    /// Run transactions of eighteen small operations by many threads, as Sysbench does
    Sysbench(SysbenchOptions),
    /// Insert documents without and with an index on their name, and find some by it
    Indexcost(IndexcostOptions),
    /// All of these, one after the other, in one report
    All(AllOptions),
    /// Find documents by their `_id`, in turns with bare pings
    Roundtrip(RoundtripOptions),
    /// Serve as the limit of client and loopback: take every message, store nothing, answer
    Null(NullOptions),
}

/// Runs a workload to its end, with its progress and its report. The code is 0 when all was done,
/// 130 when the user stopped it, 1 on an error; a report of what was done is left in every case.
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
        Command::Insert(options) => insertion(&options.servers, &options.work, &known),
        Command::Multikey(options) => {
            insertion(&options.servers, &options.work.into_work(), &known)
        }
        Command::All(options) => all::run(&options, &known),
        Command::Manykeys(options) => one(&options.servers, manykeys::NAME, &known, |contest| {
            manykeys::measure(contest, &options.work)
        }),
        Command::Sysbench(options) => one(&options.servers, "sysbench", &known, |contest| {
            sysbench::measure(contest, &options.work)
        }),
        Command::Indexcost(options) => one(&options.servers, "indexcost", &known, |contest| {
            indexcost::measure(contest, &options.work)
        }),
        Command::Roundtrip(options) => {
            signals::stop_on_signals().and_then(|stop| roundtrip::run(&options, &stop))
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

fn insertion(servers: &Servers, work: &insert::Work, schemes: &[&dyn Scheme]) -> Result<()> {
    one(servers, work.name(), schemes, |contest| {
        insert::measure(contest, work)
    })
}

/// A run of one workload, with its report.
fn one(
    servers: &Servers,
    workload: &str,
    schemes: &[&dyn Scheme],
    measure: impl FnOnce(&Contest) -> Result<(report::Chapter, Result<()>)>,
) -> Result<()> {
    let contest = Contest::open(servers, workload, schemes)?;
    let mut book = Book::new(&contest);
    let (chapter, result) = measure(&contest)?;
    book.chapters.push(chapter);
    let written = book.write(&contest.folder);
    print!("{}", book.to_text(&contest.folder));
    result.and(written)
}
