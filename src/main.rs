//! The `frond` binary: one command line over the server and the benchmarks.
#![forbid(unsafe_code)]

mod allocator;

use std::process::ExitCode;

use clap::{Command, FromArgMatches, Subcommand};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn command_line() -> Command {
    Command::new("frond")
        .version(env!("CARGO_PKG_VERSION"))
        .about("A document database that speaks MongoDB's wire protocol over Fractal Tree indexes")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(frond_server::command_line())
        .subcommand(frond_server::offline::verify_command())
        .subcommand(frond_server::offline::salvage_command())
        .subcommand(frond_backup::backup_command())
        .subcommand(frond_backup::archive_command())
        .subcommand(frond_backup::restore_command())
        .subcommand(frond_bench::Command::augment_subcommands(
            Command::new("bench")
                .about("Measure a server")
                .subcommand_required(true)
                .arg_required_else_help(true),
        ))
}

fn main() -> ExitCode {
    let arguments = command_line().get_matches();
    match arguments.subcommand() {
        Some(("serve", arguments)) => {
            allocator::return_memory_early();
            frond_server::run(arguments)
        }
        Some(("verify", arguments)) => frond_server::offline::verify(arguments),
        Some(("salvage", arguments)) => frond_server::offline::salvage(arguments),
        Some(("backup", arguments)) => frond_backup::backup(arguments),
        Some(("archive", arguments)) => frond_backup::archive(arguments),
        Some(("restore", arguments)) => frond_backup::restore(arguments),
        Some(("bench", arguments)) => match frond_bench::Command::from_arg_matches(arguments) {
            Ok(command) => frond_bench::run(command),
            Err(error) => error.exit(),
        },
        // clap accepts no other subcommand.
        _ => ExitCode::FAILURE,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_sound() {
        super::command_line().debug_assert();
    }
}
