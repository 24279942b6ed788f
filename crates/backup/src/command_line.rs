//! `frond backup`, `frond archive` and `frond restore`.

use std::fs::File;
use std::io::{self, BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use frond_client::Uri;
use frond_store::encryption::{KeySource, MasterKey, read_master_key};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::check::check;
use crate::description::Description;
use crate::error::{Error, Result};
use crate::moment::{Moment, stamp_text, time_text};
use crate::plan::Plan;
use crate::progress::{Meter, bytes};
use crate::repository::Repository;
use crate::restore::{Directory, Outcome, from_archive_file, from_repository};
use crate::take::{Source, to_archive_file, to_repository, to_stream};

const ARCHIVE_ENDING: &str = ".tar.zst";

fn uri_argument() -> Arg {
    Arg::new("uri")
        .long("uri")
        .value_name("URI")
        .default_value("mongodb://localhost:27017")
        .help("Connection string of the server")
}

fn quiet_argument() -> Arg {
    Arg::new("quiet")
        .long("quiet")
        .action(ArgAction::SetTrue)
        .help("Show no progress bar")
}

fn directory_argument() -> Arg {
    Arg::new("dir")
        .value_name("DIR")
        .required(true)
        .value_parser(value_parser!(PathBuf))
        .help("The repository")
}

/// The arguments of `frond backup`.
pub fn backup_command() -> Command {
    Command::new("backup")
        .about("Back up a running server")
        .long_about(
            "Copies the data of a running server, verified on the way, while clients go on. Into a directory, which then is a repository \
             with any number of backups, or into one file. An interrupted backup in a repository is continued by the next one.",
        )
        .args_conflicts_with_subcommands(true)
        .subcommand_negates_reqs(true)
        .arg(uri_argument())
        .arg(
            Arg::new("out")
                .long("out")
                .value_name("DIR|FILE.tar.zst|-")
                .required(true)
                .help("A repository, an archive file, or the standard output"),
        )
        .arg(
            Arg::new("incremental")
                .long("incremental")
                .action(ArgAction::SetTrue)
                .help("Copy only what is new since the newest backup of the repository; a full backup if there is none"),
        )
        .arg(
            Arg::new("rate")
                .long("rate")
                .value_name("MiB/s")
                .value_parser(value_parser!(f64))
                .help("Copy at most so many MiB of the data file per second"),
        )
        .arg(quiet_argument())
        .subcommand(
            Command::new("list")
                .about("List the backups of a repository")
                .arg(directory_argument())
                .arg(
                    Arg::new("json")
                        .long("json")
                        .action(ArgAction::SetTrue)
                        .help("Print one JSON document per backup"),
                ),
        )
        .subcommand(
            Command::new("verify")
                .about("Read a whole repository and compare its checksums")
                .arg(directory_argument())
                .arg(quiet_argument()),
        )
}

/// The arguments of `frond archive`.
pub fn archive_command() -> Command {
    Command::new("archive")
        .about("Archive the log of a running server as it is written")
        .long_about(
            "Copies the log of a running server into a repository until it is stopped by a signal, so that any moment can be restored. \
             Continues where it was stopped. Makes a backup by itself if the repository has none, or if the log that \
             it needs is not kept any more.",
        )
        .arg(uri_argument())
        .arg(
            Arg::new("out")
                .long("out")
                .value_name("DIR")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help("The repository"),
        )
        .arg(
            Arg::new("rate")
                .long("rate")
                .value_name("MiB/s")
                .value_parser(value_parser!(f64))
                .help("Of backups that it makes: copy at most so many MiB of the data file per second"),
        )
}

/// The arguments of `frond restore`.
pub fn restore_command() -> Command {
    Command::new("restore")
        .about("Restore a backup into a new data directory")
        .long_about(
            "Writes a new data directory from a backup and its parents, replays the log up to a moment, and verifies the result. \
             The exit code is 0 if it is sound.",
        )
        .arg(
            Arg::new("from")
                .long("from")
                .value_name("DIR|FILE.tar.zst|-")
                .required(true)
                .help("A repository, an archive file, or the standard input"),
        )
        .arg(
            Arg::new("dbpath")
                .long("dbpath")
                .value_name("DIR")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help("The new data directory, empty or missing"),
        )
        .arg(
            Arg::new("to")
                .long("to")
                .value_name("MOMENT")
                .value_parser(Moment::parse)
                .help(
                    "A time such as 2026-11-23T10:15:30Z, seconds since 1970, Timestamp(t, i) of the oplog, `backup` for the moment of \
                     the backup, or `end` for the end of the archived log, which is the default",
                ),
        )
        .arg(
            Arg::new("backup")
                .long("backup")
                .value_name("ID")
                .help("Begin with this backup instead of the newest one before the moment"),
        )
        .arg(
            Arg::new("noVerify")
                .long("noVerify")
                .action(ArgAction::SetTrue)
                .help("Do not verify the result"),
        )
        .arg(
            Arg::new("encryptionKeyFile")
                .long("encryptionKeyFile")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .conflicts_with("encryptionKeyCommand")
                .help("A file with the master key that an encrypted server had when it was backed up"),
        )
        .arg(
            Arg::new("encryptionKeyCommand")
                .long("encryptionKeyCommand")
                .value_name("COMMAND")
                .help("A command that prints this master key"),
        )
        .arg(quiet_argument())
}

/// Asks to stop on the first signal; a second one ends the process at once.
fn stop_on_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .map_err(|error| Error::Io("handling signals".to_owned(), error))?;
    }
    Ok(stop)
}

fn text<'a>(arguments: &'a ArgMatches, name: &str) -> &'a str {
    arguments.get_one::<String>(name).map_or("", String::as_str)
}

fn path<'a>(arguments: &'a ArgMatches, name: &str) -> &'a Path {
    let path = arguments.get_one::<PathBuf>(name);
    path.map_or(Path::new(""), PathBuf::as_path)
}

fn meter(arguments: &ArgMatches) -> Meter {
    Meter::new(arguments.get_flag("quiet"))
}

fn source(arguments: &ArgMatches) -> Result<Source> {
    let uri: Uri = text(arguments, "uri").parse()?;
    let rate = match arguments.get_one::<f64>("rate") {
        None => None,
        Some(rate) if rate.is_finite() && *rate > 0.0 => Some(((rate * 1_048_576.0) as u64).max(1)),
        Some(_) => {
            let text = "--rate must be a positive number of MiB per second";
            return Err(Error::Refused(text.to_owned()));
        }
    };
    Ok(Source {
        uri,
        stop: stop_on_signals()?,
        rate,
    })
}

fn exit(name: &str, result: Result<bool>) -> ExitCode {
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("frond {name}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs `frond backup`.
#[must_use]
pub fn backup(arguments: &ArgMatches) -> ExitCode {
    let result = match arguments.subcommand() {
        Some(("list", arguments)) => list(arguments),
        Some(("verify", arguments)) => verify(arguments),
        _ => take(arguments),
    };
    exit("backup", result)
}

fn take(arguments: &ArgMatches) -> Result<bool> {
    let source = source(arguments)?;
    let mut meter = meter(arguments);
    let out = text(arguments, "out");
    let is_incremental = arguments.get_flag("incremental");
    let is_file = out == "-" || out.ends_with(ARCHIVE_ENDING);
    if is_incremental && is_file {
        return Err(Error::Refused(
            "--incremental needs a repository: an archive file has one full backup".to_owned(),
        ));
    }
    let begun = std::time::Instant::now();
    let backup = match out {
        "-" if io::stdout().is_terminal() => {
            let text = "the standard output is a terminal; redirect it, or name a file";
            return Err(Error::Refused(text.to_owned()));
        }
        "-" => to_stream(&source, io::stdout(), &mut meter)?,
        _ if is_file => to_archive_file(&source, Path::new(out), &mut meter)?,
        _ => {
            let repository = Repository::create(Path::new(out))?;
            to_repository(&source, &repository, is_incremental, &mut meter)?
        }
    };
    let seconds = begun.elapsed().as_secs_f64();
    let speed = backup.copied_bytes as f64 / 1e6 / seconds.max(0.001);
    let kind = if backup.parent.is_some() {
        "incremental"
    } else {
        "full"
    };
    eprintln!(
        "made the {kind} backup {} of {}: copied {} of {} in {seconds:.1} s ({speed:.0} MB/s)",
        backup.id,
        time_text(backup.mark.time),
        bytes(backup.copied_bytes),
        bytes(backup.extent_bytes),
    );
    Ok(true)
}

fn list(arguments: &ArgMatches) -> Result<bool> {
    let repository = Repository::open(path(arguments, "dir"))?;
    let mut out = io::stdout().lock();
    let mut print = |line: String| {
        let written = writeln!(out, "{line}");
        written.map_err(Error::io("writing", Path::new("the output")))
    };
    let all = repository.list()?;
    if arguments.get_flag("json") {
        for backup in &all {
            let text = backup.to_json();
            print(text.lines().next().unwrap_or_default().to_owned())?;
        }
        return Ok(true);
    }
    for backup in &all {
        print(line_of(backup))?;
    }
    for (id, _) in repository.partials()? {
        print(format!("{id}  incomplete; the next backup continues it"))?;
    }
    for store in repository.archived_stores()? {
        let log = crate::log_store::files_of(&repository.log_folder(&store))?;
        print(format!("log of the store {store}: {} files", log.len()))?;
    }
    Ok(true)
}

fn line_of(backup: &Description) -> String {
    let mut line = format!(
        "{}  {}  {:>11}",
        backup.id,
        time_text(backup.mark.time),
        bytes(backup.stored_bytes()),
    );
    match &backup.parent {
        None => line.push_str("  full"),
        Some(parent) => line.push_str(&format!("  incremental, needs {parent}")),
    }
    if let Some(stamp) = backup.mark.stamp {
        line.push_str(&format!("  {}", stamp_text(stamp)));
    }
    line
}

fn verify(arguments: &ArgMatches) -> Result<bool> {
    let repository = Repository::open(path(arguments, "dir"))?;
    let stop = stop_on_signals()?;
    let findings = check(&repository, &stop, &mut meter(arguments))?;
    for problem in &findings.problems {
        println!("{problem}");
    }
    println!(
        "{} backups with {}, and {} of archived log: {}",
        findings.backups,
        bytes(findings.bytes),
        bytes(findings.log_bytes),
        match findings.problems.len() {
            0 => "sound".to_owned(),
            1 => "1 problem".to_owned(),
            more => format!("{more} problems"),
        }
    );
    Ok(findings.problems.is_empty())
}

/// Runs `frond archive`.
#[must_use]
pub fn archive(arguments: &ArgMatches) -> ExitCode {
    let run = || {
        let repository = Repository::create(path(arguments, "out"))?;
        crate::archive::run(&source(arguments)?, &repository)?;
        Ok(true)
    };
    exit("archive", run())
}

/// Runs `frond restore`.
#[must_use]
pub fn restore(arguments: &ArgMatches) -> ExitCode {
    exit("restore", restored(arguments))
}

/// The master key of the backup, if one is given.
fn master_key(arguments: &ArgMatches) -> Result<Option<MasterKey>> {
    let file = arguments.get_one::<PathBuf>("encryptionKeyFile").cloned();
    let command = arguments.get_one::<String>("encryptionKeyCommand").cloned();
    let source = file
        .map(KeySource::File)
        .or_else(|| command.map(KeySource::Command));
    let read = source.as_ref().map(read_master_key).transpose();
    read.map_err(|error| Error::Refused(error.to_string()))
}

fn restored(arguments: &ArgMatches) -> Result<bool> {
    let master = master_key(arguments)?;
    let stop = stop_on_signals()?;
    let mut meter = meter(arguments);
    let from = text(arguments, "from");
    let dbpath = path(arguments, "dbpath");
    let into = Directory {
        path: dbpath,
        master: master.as_ref(),
    };
    let moment = arguments.get_one::<Moment>("to").copied();
    let is_file = from == "-" || from.ends_with(ARCHIVE_ENDING);
    let is_other = !matches!(moment, None | Some(Moment::Backup | Moment::End));
    if is_file && (is_other || arguments.contains_id("backup")) {
        return Err(Error::Refused(
            "an archive file has one backup and no further log: leave --to and --backup out"
                .to_owned(),
        ));
    }
    let outcome = match from {
        "-" => from_archive_file(io::stdin(), Path::new("the input"), into, &stop, &mut meter)?,
        _ if is_file => {
            let path = Path::new(from);
            let file = File::open(path).map_err(Error::io("opening", path))?;
            let input = BufReader::with_capacity(1 << 20, file);
            from_archive_file(input, path, into, &stop, &mut meter)?
        }
        _ => {
            let repository = Repository::open(Path::new(from))?;
            let id = arguments.get_one::<String>("backup").map(String::as_str);
            let plan = Plan::make(&repository, moment.unwrap_or(Moment::End), id)?;
            from_repository(&repository, &plan, into, &stop, &mut meter)?
        }
    };
    report(&outcome, dbpath);
    if arguments.get_flag("noVerify") {
        Ok(true)
    } else {
        verified(into, &mut meter)
    }
}

fn report(outcome: &Outcome, dbpath: &Path) {
    println!(
        "restored the backup {} into {}, with everything up to {}{}",
        outcome.backup.id,
        dbpath.display(),
        time_text(outcome.mark.time),
        match outcome.restored.last_stamp {
            Some(stamp) => format!(", {}", stamp_text(stamp)),
            None => String::new(),
        }
    );
    match outcome.restored.loading.len() {
        0 => {}
        trees => println!(
            "{trees} indexes were built within the replayed part of the log; the server builds them when it starts, and does not use \
             them before"
        ),
    }
}

/// Verifies the restored directory.
fn verified(directory: Directory<'_>, meter: &mut Meter) -> Result<bool> {
    let mut done = 0;
    let mut show = |progress: frond_store::offline::Progress| {
        if done == 0 {
            meter.begin(progress.total_bytes);
        }
        meter.advance(progress.done_bytes.saturating_sub(done));
        done = progress.done_bytes;
    };
    let Directory { path, master } = directory;
    let report = frond_store::offline::verify_with(path, master, &mut show);
    meter.end();
    let report = report?;
    let problems = report.problems();
    if problems == 0 {
        println!("verified: {} collections, sound", report.collections.len());
        return Ok(true);
    }
    for problem in &report.engine.problems {
        println!("{problem}");
    }
    for (ns, report) in &report.collections {
        for error in &report.errors {
            println!("{ns}: {error}");
        }
    }
    for error in &report.errors {
        println!("{error}");
    }
    println!("verified: {problems} problems");
    Ok(false)
}
