//! `frond verify` and `frond salvage`, on a data directory that no server uses.

use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Arg, ArgMatches, Command, value_parser};
use frond_store::offline::{
    DirectoryReport, Masters, Problem, Progress, SalvageReport, SalvagedCollection,
};

use crate::host::lock_file::LockFile;
use crate::offline_keys::{KEY, OUT_KEY};

/// Problems of one kind that are printed; the rest are only counted.
const SHOWN_MAX: usize = 200;
/// Time between two lines of progress.
const PROGRESS: Duration = Duration::from_millis(500);

fn directory(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .value_name("DIR")
        .required(true)
        .value_parser(value_parser!(PathBuf))
        .help(help)
}

/// The arguments of `frond verify`.
pub fn verify_command() -> Command {
    Command::new("verify")
        .about("Check the files of a stopped server")
        .long_about(
            "Reads the last checkpoint and the log, and checks checksums, order, bounds, filters and block \
             addresses. Then compares every index and counter with its collection. Changes nothing. The exit code \
             is 0 for a sound store and 1 otherwise.",
        )
        .arg(directory("dbpath", "Directory of the data files"))
        .args(KEY.arguments())
}

/// The arguments of `frond salvage`.
pub fn salvage_command() -> Command {
    Command::new("salvage")
        .about("Build a new data directory from the readable parts of a damaged one")
        .long_about(
            "Copies all readable documents into a new directory and rebuilds their indexes. Reports what is lost: \
             where an older part of the files had to be used, older values come back, also of deleted documents. \
             The damaged directory is not changed. With other master keys for the two directories this encrypts a data directory, \
             decrypts it, or replaces all of its store keys. The exit code is 0 if nothing was lost and 1 otherwise.",
        )
        .arg(directory("dbpath", "Directory of the damaged data files"))
        .arg(directory("out", "Directory for the new files, empty or missing"))
        .args(KEY.arguments())
        .args(OUT_KEY.arguments())
}

fn path<'a>(arguments: &'a ArgMatches, name: &str) -> &'a Path {
    let path = arguments.get_one::<PathBuf>(name);
    path.map_or(Path::new(""), PathBuf::as_path)
}

/// Shows the progress on a terminal.
struct Meter {
    last: Instant,
    shown: bool,
}

impl Meter {
    fn new() -> Meter {
        Meter {
            last: Instant::now(),
            shown: false,
        }
    }

    fn show(&mut self, progress: Progress) {
        if self.last.elapsed() < PROGRESS || !std::io::stderr().is_terminal() {
            return;
        }
        (self.last, self.shown) = (Instant::now(), true);
        let Progress {
            done_bytes,
            total_bytes,
        } = progress;
        let (done, total) = (size(done_bytes), size(total_bytes));
        let _ = write!(std::io::stderr(), "\r{done} of at most {total}   ");
    }

    fn end(&self) {
        if self.shown {
            eprintln!();
        }
    }
}

/// Formats a number of bytes.
fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["bytes", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            return match unit {
                "bytes" => format!("{bytes} bytes"),
                _ => format!("{value:.1} {unit}"),
            };
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

fn fail(name: &str, error: impl Display) -> ExitCode {
    eprintln!("frond {name}: {error}");
    ExitCode::FAILURE
}

/// Runs `frond verify`.
#[must_use]
pub fn verify(arguments: &ArgMatches) -> ExitCode {
    let path = path(arguments, "dbpath");
    let _lock = match LockFile::hold(path) {
        Ok(lock) => lock,
        Err(error) => return fail("verify", error),
    };
    let mut meter = Meter::new();
    let master = match KEY.read(arguments) {
        Ok(master) => master,
        Err(error) => return fail("verify", error),
    };
    let mut show = |progress| meter.show(progress);
    let report = frond_store::offline::verify_with(path, master.as_ref(), &mut show);
    meter.end();
    match report {
        Ok(report) => {
            print!("{}", verified(&report));
            exit_code(report.problems() == 0)
        }
        Err(error) => fail("verify", error),
    }
}

fn exit_code(good: bool) -> ExitCode {
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Runs `frond salvage`.
#[must_use]
pub fn salvage(arguments: &ArgMatches) -> ExitCode {
    let (from, to) = (path(arguments, "dbpath"), path(arguments, "out"));
    let _lock = match LockFile::hold(from) {
        Ok(lock) => lock,
        Err(error) => return fail("salvage", error),
    };
    let mut meter = Meter::new();
    let (source, target) = match (KEY.read(arguments), OUT_KEY.read(arguments)) {
        (Ok(source), Ok(target)) => (source, target),
        (Err(error), _) | (_, Err(error)) => return fail("salvage", error),
    };
    let masters = Masters {
        from: source.as_ref(),
        to: target.as_ref(),
    };
    let mut show = |progress| meter.show(progress);
    let report = frond_store::offline::salvage_with(from, to, masters, &mut show);
    meter.end();
    match report {
        Ok(report) => {
            print!("{}", salvaged(&report));
            exit_code(report.is_whole())
        }
        Err(error) => fail("salvage", error),
    }
}

/// Lines of a report.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn push(&mut self, line: impl Display) {
        self.0.push_str(&line.to_string());
        self.0.push('\n');
    }

    /// Adds a line for each of the first items, and the number of further ones.
    fn list(&mut self, what: &str, things: impl ExactSizeIterator<Item = impl Display>) {
        let more = things.len().saturating_sub(SHOWN_MAX);
        for thing in things.take(SHOWN_MAX) {
            self.push(format_args!("{what}: {thing}"));
        }
        if more > 0 {
            self.push(format_args!("{what}: and {more} more"));
        }
    }
}

/// The report of a verification.
fn verified(report: &DirectoryReport) -> String {
    let engine = &report.engine;
    let mut lines = Lines::default();
    lines.push(format_args!(
        "checkpoint {}: {} trees, {} nodes, {} runs, {} pages, {} entries",
        engine.checkpoint, engine.trees, engine.nodes, engine.runs, engine.pages, engine.entries
    ));
    lines.push(format_args!(
        "data file: {}, of which {} are free; log: {} commits to replay",
        size(engine.file_bytes),
        size(engine.free_bytes),
        engine.log_frames
    ));
    if engine.leaked_bytes > 0 {
        lines.push(format_args!(
            "of the free space, {} were in use for reads or index builds when the server ended; the next start frees them",
            size(engine.leaked_bytes)
        ));
    }
    if engine.log_torn_bytes > 0 {
        lines.push(format_args!(
            "the log ends with {} of an incomplete write; the next start drops them",
            size(engine.log_torn_bytes)
        ));
    }
    if engine.log_lost_bytes > 0 {
        lines.push(format_args!(
            "the log has {} of damage from before the checkpoint; they are not needed",
            size(engine.log_lost_bytes)
        ));
    }
    lines.list("problem", engine.problems.iter().map(Problem::to_string));
    for (ns, found) in &report.collections {
        let entries: u64 = found.indexes.iter().map(|index| index.keys).sum();
        let (documents, indexes) = (found.documents, found.indexes.len());
        lines.push(format_args!(
            "{ns}: {documents} documents, {entries} entries in {indexes} indexes"
        ));
        let wrong = found.errors.iter().map(|error| format!("{ns}: {error}"));
        lines.list("problem", wrong);
    }
    lines.list("problem", report.errors.iter());
    lines.push(match report.problems() {
        0 => "sound".to_owned(),
        1 => "1 problem".to_owned(),
        count => format!("{count} problems"),
    });
    lines.0
}

/// The report of a salvage.
fn salvaged(report: &SalvageReport) -> String {
    let engine = &report.engine;
    let mut lines = Lines::default();
    lines.list("problem", engine.problems.iter().map(Problem::to_string));
    if engine.checkpoint == 0 {
        lines.push("no checkpoint could be read: only the log was salvaged");
    } else if engine.is_older_checkpoint {
        lines.push("a newer checkpoint could not be read: changes after the older one may be lost");
    }
    if engine.lost_tree_pages > 0 {
        let pages = engine.lost_tree_pages;
        lines.push(format_args!(
            "lost: {pages} pages of the index of trees, up to 256 trees each"
        ));
    }
    let of_documents: usize = report.collections.iter().map(|one| one.lost.len()).sum();
    for collection in &report.collections {
        let SalvagedCollection {
            ns,
            documents,
            indexes,
            ..
        } = collection;
        lines.push(format_args!(
            "{ns}: {documents} documents, {indexes} indexes built"
        ));
        if collection.dropped > 0 {
            let dropped = collection.dropped;
            lines.push(format_args!("lost: {ns}: {dropped} invalid documents"));
        }
        lines.list(
            "lost",
            collection.lost.iter().map(|lost| format!("{ns}: {lost}")),
        );
    }
    let elsewhere = engine.lost.len().saturating_sub(of_documents);
    if elsewhere > 0 {
        lines.push(format_args!(
            "{elsewhere} further ranges were lost, of indexes, which are rebuilt, or of the catalog"
        ));
    }
    lines.list("note", report.errors.iter());
    lines.push(format_args!(
        "{} messages of trees and {} commits of the log were recovered",
        engine.messages, engine.log_frames
    ));
    lines.push(if report.is_whole() {
        "everything was salvaged"
    } else {
        "not everything was salvaged"
    });
    lines.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_for_people() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1536, "1.5 KiB"),
            (5 << 20, "5.0 MiB"),
            (3 << 40, "3.0 TiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn long_lists_are_cut() {
        let mut lines = Lines::default();
        lines.list(
            "problem",
            (0..SHOWN_MAX + 5).map(|number| number.to_string()),
        );
        assert_eq!(lines.0.lines().count(), SHOWN_MAX + 1);
        assert!(lines.0.ends_with("problem: and 5 more\n"));
    }
}
