//! Workloads that measure any server that speaks MongoDB's wire protocol.
//!
//! [`run`] is the command `frond bench`. It knows documents and the wire, and nothing about how
//! Frond is built, so that it measures other servers in the same way.
#![forbid(unsafe_code)]

mod client;
mod collection;
mod document;
mod error;
mod insert;
mod load;
mod machine;
mod manykeys;
mod meter;
mod monitor;
mod progress;
mod random;
mod report;
mod roundtrip;
mod signals;
mod statistics;
mod stream;
mod threads;
mod timeline;
mod uri;

use std::process::ExitCode;

pub use error::Error;
pub use insert::{MultikeyOptions, Options as InsertOptions};
pub use manykeys::Options as ManykeysOptions;
pub use roundtrip::Options as RoundtripOptions;

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
    /// Find documents by their `_id`, in turns with bare pings
    Roundtrip(RoundtripOptions),
}

/// Runs a workload to its end, with its progress and its report. The code is 0 when all was done,
/// 130 when the user stopped it, 1 on an error; a report of what was done is left in every case.
#[must_use]
pub fn run(command: Command) -> ExitCode {
    let result = match command {
        Command::Insert(options) => insert::run(&options),
        Command::Multikey(options) => insert::run(&options.into_insert()),
        Command::Manykeys(options) => manykeys::run(&options),
        Command::Roundtrip(options) => {
            signals::stop_on_signals().and_then(|stop| roundtrip::run(&options, &stop))
        }
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
