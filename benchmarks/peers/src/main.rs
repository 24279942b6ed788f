//! The workloads of `frond bench` with one more kind of server: PostgreSQL, by `--uri postgres://…`.

mod client;
mod json;
mod session;
mod table;
mod uri;

use std::process::ExitCode;

use clap::Parser;
use frond_bench::Command;

/// The workloads of `frond bench`, on PostgreSQL (postgres://) too.
#[derive(Parser)]
#[command(name = "frond-bench-peers", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    frond_bench::run_with(arguments.command, &[&session::Postgres])
}
