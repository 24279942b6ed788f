//! The manual pages and the completions of shells, made from the tables of the command line and of the settings.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::Shell;
use roff::{Inline, Roff, bold, italic, line_break, roman};

const NAME: &str = "frond";
/// The configuration file that packages install.
const CONFIG_FILE: &str = "/etc/frond.conf";

/// The arguments of `frond completions`.
pub fn completions_command() -> Command {
    Command::new("completions")
        .about("Print the completions of the command line for a shell")
        .arg(
            Arg::new("shell")
                .value_name("SHELL")
                .required(true)
                .value_parser(value_parser!(Shell))
                .help("The shell that reads them"),
        )
}

/// The arguments of `frond manual`, which scripts that make packages call.
pub fn manual_command() -> Command {
    Command::new("manual")
        .about("Write the manual pages")
        .hide(true)
        .arg(
            Arg::new("out")
                .long("out")
                .value_name("DIR")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help("Directory for the pages, which is made if it is missing"),
        )
}

/// Runs `frond completions`.
pub fn completions(arguments: &ArgMatches, mut command: Command) -> ExitCode {
    if let Some(shell) = arguments.get_one::<Shell>("shell") {
        let mut text = Vec::new();
        clap_complete::generate(*shell, &mut command, NAME, &mut text);
        if let Err(error) = io::stdout().write_all(&text) {
            eprintln!("frond completions: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Runs `frond manual`.
pub fn manual(arguments: &ArgMatches, command: Command) -> ExitCode {
    let directory = arguments.get_one::<PathBuf>("out");
    let directory = directory.map_or(Path::new("."), PathBuf::as_path);
    match write_pages(command, directory) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("frond manual: {}: {error}", directory.display());
            ExitCode::FAILURE
        }
    }
}

/// One page for each subcommand, and one for the configuration file.
fn write_pages(command: Command, directory: &Path) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    let command = command.disable_help_subcommand(true);
    clap_mangen::generate_to(command, directory)?;
    std::fs::write(directory.join("frond.conf.5"), config_page())
}

/// The page on the configuration file.
fn config_page() -> String {
    let mut page = Roff::new();
    let source = concat!("frond ", env!("CARGO_PKG_VERSION"));
    page.control("TH", ["frond.conf", "5", "", source, "File formats"]);
    page.control("SH", ["NAME"]);
    page.text([roman("frond.conf - configuration file of the Frond server")]);
    page.control("SH", ["DESCRIPTION"]);
    paragraph(
        &mut page,
        "The server reads the file that --config names, in the format of mongod.conf: YAML, either nested or with dotted \
         keys. Options on the command line override the file. An unknown key is an error that names it, and the \
         server does not start.",
    );
    page.text([
        roman("The service of the package reads "),
        bold(CONFIG_FILE),
        roman(". After a change check the file with "),
        bold(format!("frond doctor --config {CONFIG_FILE}")),
        roman(" and restart the service."),
    ]);
    page.control("SH", ["EXAMPLE"]);
    page.control("EX", []);
    for line in EXAMPLE.lines() {
        page.text([roman(line)]);
    }
    page.control("EE", []);
    page.control("SH", ["KEYS"]);
    for setting in frond_server::reference::settings() {
        let Some((key, aliases)) = setting.keys.split_first() else {
            continue;
        };
        let mut text: Vec<Inline> = vec![
            roman(setting.help),
            roman(". "),
            line_break(),
            roman("Values: "),
            italic(setting.values),
            roman("."),
        ];
        if !setting.long_help.is_empty() {
            text.push(roman(format!(" {}", setting.long_help)));
        }
        if !aliases.is_empty() {
            text.push(roman(format!(" Also as {}.", aliases.join(", "))));
        }
        if !setting.flag.is_empty() {
            text.push(roman(" On the command line: "));
            text.push(bold(setting.flag.replace('…', "VALUE")));
            text.push(roman("."));
        }
        page.control("TP", []);
        page.text([bold(key.as_ref())]);
        page.text(text);
    }
    page.control("SH", ["SEE ALSO"]);
    page.text([
        bold("frond-serve"),
        roman("(1), "),
        bold("frond-doctor"),
        roman("(1)"),
    ]);
    page.render()
}

fn paragraph(page: &mut Roff, text: &str) {
    page.text([roman(text)]);
    page.control("PP", []);
}

const EXAMPLE: &str = "\
storage:
  dbPath: /var/lib/frond
net:
  port: 27017
  bindIp: 127.0.0.1
systemLog:
  destination: file
  path: /var/log/frond/frond.log
  logAppend: true
  logRotate: reopen
security:
  authorization: enabled";

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn there_is_a_page_for_each_subcommand_and_for_the_file() {
        let directory = tempfile::tempdir().unwrap();
        write_pages(crate::command_line(), directory.path()).unwrap();
        for name in crate::command_line().get_subcommands() {
            let page = directory
                .path()
                .join(format!("frond-{}.1", name.get_name()));
            assert_eq!(page.exists(), !name.is_hide_set(), "{page:?}");
        }
        assert!(directory.path().join("frond.1").exists());
        let page = std::fs::read_to_string(directory.path().join("frond.conf.5")).unwrap();
        for setting in frond_server::reference::settings() {
            let key = setting.keys[0].replace('-', "\\-");
            assert!(page.contains(&format!("\\fB{key}\\fR")), "{key}");
        }
    }

    #[test]
    fn every_shell_has_completions() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut crate::command_line(), NAME, &mut text);
            let text = String::from_utf8(text).unwrap();
            assert!(text.contains("diskReserveMB"), "{shell}");
        }
    }
}
