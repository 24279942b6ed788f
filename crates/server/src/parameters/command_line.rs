//! The command line of `frond serve`.

use clap::{Arg, ArgAction, ArgMatches, Command};

use super::kind::Kind;
use super::parameter::Parameter;
use super::replaced::REPLACED;
use super::table::{all, by_start_name};
use crate::settings::{SettingValue, SettingsError, without_secrets};

/// The options of `frond serve`.
pub fn command_line() -> Command {
    let command = Command::new("serve")
        .about("Start the database server")
        .arg(
            Arg::new("config")
                .long("config")
                .short('f')
                .value_name("FILE")
                .help("Configuration file in mongod's YAML format"),
        )
        .arg(
            Arg::new("setParameter")
                .long("setParameter")
                .value_name("NAME=VALUE")
                .action(ArgAction::Append)
                .help("Set a server parameter, like setParameter.NAME in the file"),
        );
    let replaced = REPLACED.iter().map(|old| {
        let argument = Arg::new(old.option).long(old.option);
        argument.num_args(0..=1).hide(true)
    });
    command.args(all().filter_map(argument)).args(replaced)
}

/// Refuses options that this version does not have any more.
pub fn check_replaced(arguments: &ArgMatches) -> Result<(), SettingsError> {
    match (REPLACED.iter()).find(|old| arguments.contains_id(old.option)) {
        Some(old) => Err(SettingsError(format!("--{}: {}", old.option, old.instead))),
        None => Ok(()),
    }
}

fn argument(parameter: &'static Parameter) -> Option<Arg> {
    if parameter.option.is_empty() {
        return None;
    }
    let argument = Arg::new(parameter.option)
        .long(parameter.option)
        .aliases(parameter.option_aliases.iter().copied())
        .help(parameter.help());
    Some(match parameter.kind {
        Kind::Switch(_) | Kind::Word(_) => argument.action(ArgAction::SetTrue),
        Kind::Text(name) | Kind::Secret(name) | Kind::List(name) => argument.value_name(name),
        Kind::Integer(..) | Kind::Number(..) => {
            argument.value_name("N").allow_negative_numbers(true)
        }
        // `--oplog` alone switches it on, as the flags of mongod that need no value.
        Kind::Choice(words) if words.contains(&"on") => argument
            .value_name("WORD")
            .num_args(0..=1)
            .default_missing_value("on"),
        Kind::Choice(_) | Kind::Document | Kind::ReadOnly => argument.value_name("WORD"),
    })
}

/// The value of a parameter on the command line.
pub fn value(
    parameter: &Parameter,
    arguments: &ArgMatches,
) -> Result<Option<SettingValue>, SettingsError> {
    if parameter.option.is_empty() {
        return Ok(None);
    }
    if let Kind::Switch(value) = parameter.kind {
        let is_present = arguments.get_flag(parameter.option);
        return Ok(is_present.then_some(SettingValue::Switch(value)));
    }
    if let Kind::Word(word) = parameter.kind {
        let is_present = arguments.get_flag(parameter.option);
        return Ok(is_present.then(|| SettingValue::Text(word.to_owned())));
    }
    arguments
        .get_one::<String>(parameter.option)
        .map(|value| parameter.kind.parse(value))
        .transpose()
        .map_err(|why| SettingsError(format!("--{} {why}", parameter.option)))
}

/// Reads `NAME=VALUE`, the argument of `--setParameter`.
pub fn start_parameter(text: &str) -> Result<(&'static Parameter, SettingValue), SettingsError> {
    let (name, value) = text.split_once('=').ok_or_else(|| {
        SettingsError(format!(
            "--setParameter {text} must have the form NAME=VALUE"
        ))
    })?;
    let parameter = by_start_name(name)
        .ok_or_else(|| SettingsError(format!("--setParameter: unknown parameter '{name}'")))?;
    let value = (parameter.kind.parse(value))
        .map_err(|why| SettingsError(format!("--setParameter {name} {why}")))?;
    Ok((parameter, value))
}

/// The arguments of the process, without passwords.
pub fn redacted_arguments() -> Vec<String> {
    let secrets = all().filter(|parameter| matches!(parameter.kind, Kind::Secret(_)));
    let options: Vec<&str> = secrets
        .flat_map(|parameter| std::iter::once(&parameter.option).chain(parameter.option_aliases))
        .copied()
        .collect();
    without_secrets(std::env::args().collect(), &options)
}
