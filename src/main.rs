//! The `frond` binary: one command line over the server and the benchmarks.
#![forbid(unsafe_code)]

mod allocator;
mod manual;

use std::process::ExitCode;

use clap::{Command, FromArgMatches, Subcommand};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Commands whose files are for every user of the machine: reports of benchmarks and manual pages. The server has a setting of its own.
const PUBLIC_FILES: &[&str] = &["bench", "completions", "manual", "serve"];

fn command_line() -> Command {
    Command::new("frond")
        .version(env!("CARGO_PKG_VERSION"))
        .about("A document database that speaks MongoDB's wire protocol over Fractal Tree indexes")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(frond_server::command_line())
        .subcommand(frond_server::offline::verify_command())
        .subcommand(frond_server::offline::salvage_command())
        .subcommand(frond_server::offline_keys::encrypt_command())
        .subcommand(frond_server::offline_keys::rotate_command())
        .subcommand(frond_server::offline_keys::decrypt_command())
        .subcommand(frond_transfer::migrate_command())
        .subcommand(frond_transfer::export_command())
        .subcommand(frond_transfer::import_command())
        .subcommand(frond_backup::backup_command())
        .subcommand(frond_backup::archive_command())
        .subcommand(frond_backup::restore_command())
        .subcommand(
            frond_bench::Command::augment_subcommands(Command::new("bench"))
                .about("Measure a server")
                .subcommand_required(true)
                .arg_required_else_help(true),
        )
        .subcommand(frond_server::doctor::command_line())
        .subcommand(manual::completions_command())
        .subcommand(manual::manual_command())
}

fn main() -> ExitCode {
    if let Some(code) = frond_server::run_as_worker() {
        return code;
    }
    let arguments = command_line().get_matches();
    if let Some((name, _)) = arguments.subcommand()
        && !PUBLIC_FILES.contains(&name)
    {
        frond_files::only_for_owner();
    }
    match arguments.subcommand() {
        Some(("serve", arguments)) => {
            allocator::return_memory_early();
            let workers = frond_server::worker_program(allocator::WORKER_SETTINGS);
            frond_server::run(arguments, Some(workers))
        }
        Some(("verify", arguments)) => frond_server::offline::verify(arguments),
        Some(("salvage", arguments)) => frond_server::offline::salvage(arguments),
        Some(("decrypt", arguments)) => frond_server::offline_keys::decrypt(arguments),
        Some(("encrypt", arguments)) => frond_server::offline_keys::encrypt(arguments),
        Some(("rotate-master-key", arguments)) => frond_server::offline_keys::rotate(arguments),
        Some(("export", arguments)) => frond_transfer::export(arguments),
        Some(("import", arguments)) => frond_transfer::import(arguments),
        Some(("migrate", arguments)) => frond_transfer::migrate(arguments),
        Some(("backup", arguments)) => frond_backup::backup(arguments),
        Some(("archive", arguments)) => frond_backup::archive(arguments),
        Some(("restore", arguments)) => frond_backup::restore(arguments),
        Some(("bench", arguments)) => match frond_bench::Command::from_arg_matches(arguments) {
            Ok(command) => frond_bench::run(command),
            Err(error) => error.exit(),
        },
        Some(("doctor", arguments)) => frond_server::doctor::run(arguments),
        Some(("completions", arguments)) => manual::completions(arguments, command_line()),
        Some(("manual", arguments)) => manual::manual(arguments, command_line()),
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

    #[test]
    fn only_commands_that_exist_write_public_files() {
        let command_line = super::command_line();
        for name in super::PUBLIC_FILES {
            assert!(command_line.find_subcommand(name).is_some(), "{name}");
        }
    }

    #[test]
    fn the_argument_of_workers_is_no_command() {
        let program = frond_server::worker_program(super::allocator::WORKER_SETTINGS);
        let help = super::command_line().render_long_help().to_string();
        for argument in program.arguments {
            let argument = argument.to_string_lossy();
            assert!(super::command_line().find_subcommand(&*argument).is_none());
            assert!(!help.contains(&*argument), "{help}");
        }
    }

    #[test]
    fn every_command_says_what_it_does() {
        fn check(command: &clap::Command) {
            for command in command.get_subcommands() {
                let name = command.get_name();
                let about = command.get_about().map(ToString::to_string);
                let about = about.unwrap_or_default();
                assert!(!about.is_empty(), "{name} has no description");
                assert!(!about.contains("Options of"), "{name}: {about}");
                assert!(!about.ends_with('.'), "{name}: {about}");
                check(command);
            }
        }
        check(&super::command_line());
    }
}
