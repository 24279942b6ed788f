//! Moves data between servers that speak MongoDB's wire protocol, and between servers and files.
#![forbid(unsafe_code)]

mod entries;
mod error;
mod files;
#[doc(hidden)]
pub mod fuzzing;
mod inventory;
mod migrate;
mod names;
mod node;
mod progress;
mod ranges;
mod schema;
mod stop;
mod users;
mod write;

use std::process::ExitCode;

use clap::{ArgMatches, Args, Command, FromArgMatches};

pub use error::{Error, Result};

/// A command with these options. The comment on their type, which becomes the description of the command, is for developers.
fn described<T: Args>(name: &'static str, about: &'static str) -> Command {
    T::augment_args(Command::new(name))
        .about(about)
        .long_about(None)
}

/// The command line of `frond migrate`.
#[must_use]
pub fn migrate_command() -> Command {
    described::<migrate::Options>(
        "migrate",
        "Copy another server's data, users and indexes, and follow its changes",
    )
}

/// Runs `frond migrate`.
#[must_use]
pub fn migrate(arguments: &ArgMatches) -> ExitCode {
    match migrate::Options::from_arg_matches(arguments) {
        Ok(options) => finished("migrate", migrate::run(&options)),
        Err(error) => error.exit(),
    }
}

/// The command line of `frond export`.
#[must_use]
pub fn export_command() -> Command {
    described::<files::ExportOptions>(
        "export",
        "Write documents to files of JSON, CSV or TSV, or as a BSON dump or archive",
    )
}

/// Runs `frond export`.
#[must_use]
pub fn export(arguments: &ArgMatches) -> ExitCode {
    match files::ExportOptions::from_arg_matches(arguments) {
        Ok(options) => finished("export", files::export(&options)),
        Err(error) => error.exit(),
    }
}

/// The command line of `frond import`.
#[must_use]
pub fn import_command() -> Command {
    described::<files::ImportOptions>(
        "import",
        "Read documents from files of JSON, CSV or TSV, or from a BSON dump or archive",
    )
}

/// Runs `frond import`.
#[must_use]
pub fn import(arguments: &ArgMatches) -> ExitCode {
    match files::ImportOptions::from_arg_matches(arguments) {
        Ok(options) => finished("import", files::import(&options)),
        Err(error) => error.exit(),
    }
}

/// Prints an error. 130 says that the user stopped it, 2 that the two sides differ or the target does not take all.
fn finished(name: &str, result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is_stopped() => {
            let more = if name == "migrate" {
                "; the same command goes on where it was"
            } else {
                ""
            };
            eprintln!("frond {name}: stopped{more}");
            ExitCode::from(130)
        }
        Err(error) => {
            eprintln!("frond {name}: {error}");
            match error {
                Error::Differs(_) | Error::Refused(_) => ExitCode::from(2),
                _ => ExitCode::FAILURE,
            }
        }
    }
}
