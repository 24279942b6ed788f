//! `frond doctor`: what keeps a server from starting, from keeping its data, or from being fast, on this machine and with this
//! configuration.

mod directory;
mod disk;
mod encryption;
mod finding;
mod host;
mod replica_set;
mod speed;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use self::disk::FileSystemSpace;
use self::finding::{Finding, Level, Report, size};
use self::host::{ClockWatch, Host};
use self::replica_set::Way;
use crate::observability::startup_warnings::file_system_of;
use crate::parameters;
use crate::settings::{Settings, SettingsError};

/// The test of the speed leaves at least so much room.
const SPARE_BYTES: u64 = 256 << 20;

/// The arguments of `frond doctor`.
pub fn command_line() -> Command {
    Command::new("doctor")
        .about("Check the machine and the configuration, with advice")
        .long_about(
            "Checks limits of processes, the kernel's settings, memory, the clock, the file system of the data directory and \
             its free space, the speed of the disk, the configuration file, the ports, and who uses the data directory. \
             Of a running member of a replica set also whether the others answer, their clocks and versions, and the votes. \
             Changes nothing: the test of the speed writes 64 MiB to a file without a name, which is removed. A server may be \
             running meanwhile. The exit code is 0 without problems and 1 otherwise; with --strict warnings count, too.",
        )
        .arg(
            Arg::new("config")
                .long("config")
                .short('f')
                .value_name("FILE")
                .help("The configuration file of the server"),
        )
        .arg(
            Arg::new("dbpath")
                .long("dbpath")
                .value_name("DIR")
                .value_parser(value_parser!(PathBuf))
                .help("Directory of the data files (default: that of the configuration)"),
        )
        .arg(
            Arg::new("uri")
                .long("uri")
                .value_name("URI")
                .help("Also check the replica set of the server at this address, with this login (default: that of the configuration)"),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print one JSON document"),
        )
        .arg(
            Arg::new("strict")
                .long("strict")
                .action(ArgAction::SetTrue)
                .help("Exit with 1 also for warnings"),
        )
        .arg(
            Arg::new("skipSpeed")
                .long("skipSpeed")
                .action(ArgAction::SetTrue)
                .help("Do not test the speed of the disk"),
        )
}

/// Runs `frond doctor`.
#[must_use]
pub fn run(arguments: &ArgMatches) -> ExitCode {
    let config = arguments.get_one::<String>("config");
    let given = arguments.get_one::<PathBuf>("dbpath");
    let settings = read_settings(config.map(String::as_str));
    let uri = arguments.get_one::<String>("uri");
    let of_set = check_set(&settings, uri.map(String::as_str));
    let mut report = examine(
        &Host::real(),
        settings,
        given.map(PathBuf::as_path),
        !arguments.get_flag("skipSpeed"),
    );
    report.extend(of_set);
    if arguments.get_flag("json") {
        println!("{}", report.to_json())
    } else {
        print!("{}", report.to_text())
    }
    let warnings = if arguments.get_flag("strict") {
        report.count(Level::Warning)
    } else {
        0
    };
    match report.count(Level::Problem) + warnings {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// The settings of a server that is started with this configuration file.
fn read_settings(config: Option<&str>) -> Result<Settings, SettingsError> {
    let mut arguments = vec!["serve"];
    arguments.extend(config.map(|_| "--config"));
    arguments.extend(config);
    let parsed = parameters::command_line()
        .try_get_matches_from(arguments)
        .map_err(|error| SettingsError(error.to_string()))?;
    parameters::read(&parsed)
}

/// The findings about the replica set, if the server is a member of one.
fn check_set(settings: &Result<Settings, SettingsError>, uri: Option<&str>) -> Vec<Finding> {
    match (uri, settings) {
        (Some(uri), _) => replica_set::check(&Way::Uri(uri)),
        (None, Ok(settings)) if settings.replica_set.is_some() => {
            replica_set::check(&Way::Member(settings))
        }
        (None, _) => Vec::new(),
    }
}

fn examine(
    host: &Host,
    settings: Result<Settings, SettingsError>,
    db_path: Option<&Path>,
    with_speed: bool,
) -> Report {
    let watch = ClockWatch::start();
    let mut report = Report::default();
    report.extend(directory::configuration(&settings));
    let is_usable = settings.is_ok();
    // With a configuration that cannot be used, the machine is checked all the same.
    let settings = settings.unwrap_or_default();
    let path = db_path.unwrap_or(&settings.db_path);
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let (found, user) = directory::directory(path);
    let pid = match user {
        directory::User::Server(pid) => pid,
        directory::User::Nobody => None,
    };
    report.extend(found);
    if is_usable {
        report.extend(directory::ports(&settings, user));
        report.extend(encryption::encryption(&settings, path));
    }
    report.extend(host::limits(host, pid));
    report.extend(host::kernel(host));
    report.extend(host::memory(host, settings.cache_bytes));
    report.extend(disk::file_system(host, path, file_system_of(path)));
    let space = FileSystemSpace::of_directory(path);
    if let Some(space) = space {
        report.extend(disk::free_space(space, settings.disk_reserve_bytes));
    }
    if with_speed && let Some(space) = space {
        report.extend(disk_speed(path, space, settings.disk_reserve_bytes));
    }
    report.extend(host::clock(host, host::timedatectl().as_deref()));
    report.extend(watch.end(directory::newest_file(path)));
    report
}

fn disk_speed(path: &Path, space: FileSystemSpace, reserve: Option<u64>) -> Vec<Finding> {
    const AREA: &str = "disk speed";
    let reserve = reserve.unwrap_or_else(|| frond_store::default_disk_reserve(space.total));
    let needed = reserve + speed::FILE_BYTES + SPARE_BYTES;
    if space.available < needed {
        let what = format!("not tested: that needs {} of free space", size(needed));
        return vec![Finding::note(AREA, what, "")];
    }
    match speed::measure(path) {
        Ok(speed) => disk::speed(&speed),
        Err(error) => vec![Finding::note(AREA, format!("not tested: {error}"), "")],
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_arguments_are_sound() {
        command_line().debug_assert();
    }

    #[test]
    fn a_whole_report() {
        let temporary = tempfile::tempdir().unwrap();
        let config = temporary.path().join("frond.conf");
        let data = temporary.path().join("data");
        std::fs::create_dir(&data).unwrap();
        let text = format!("storage:\n  dbPath: {}\nnet:\n  port: 0\n", data.display());
        std::fs::write(&config, text).unwrap();
        let settings = read_settings(config.to_str());
        let report = examine(&Host::real(), settings, None, false).to_text();
        assert!(report.contains("data directory: no data yet"), "{report}");
        assert!(report.contains("limits: open files"), "{report}");

        std::fs::write(&config, "net:\n  prot: 1\n").unwrap();
        let settings = read_settings(config.to_str());
        let report = examine(&Host::at(temporary.path()), settings, Some(&data), false);
        assert_eq!(report.count(Level::Problem), 1);
        assert!(report.to_text().contains("unknown option 'net.prot'"));
    }
}
