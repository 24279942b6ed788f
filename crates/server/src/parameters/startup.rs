//! The settings of a start: from the command line, from the configuration file, and whether they fit together.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::parameter::{Need, Parameter};
use super::table::all;
use super::{command_line, file, yaml};
use crate::settings::EncryptionSettings;
use crate::settings::{
    OplogMode, PASSWORD_PLACEHOLDER, SettingValue, Settings, SettingsError, TikvSettings, TlsMode,
    TlsSettings,
};

/// The values that the operator sets, by the keys of their parameters.
type Values = BTreeMap<Cow<'static, str>, (&'static Parameter, SettingValue)>;

/// Settings from parsed arguments of [`super::command_line`], and from the configuration file that they name.
///
/// # Errors
/// A setting is unknown, invalid or not supported, or settings do not fit together.
pub fn read(arguments: &clap::ArgMatches) -> Result<Settings, SettingsError> {
    command_line::check_replaced(arguments)?;
    let mut values = Values::new();
    let mut warnings = Vec::new();
    let config_file = arguments.get_one::<String>("config").map(PathBuf::from);
    if let Some(path) = &config_file {
        add_file(path, &mut values, &mut warnings)?;
    }
    add_command_line(arguments, &mut values, &mut warnings)?;
    let settings = from_values(values)?;
    Ok(Settings {
        config_file,
        warnings,
        arguments: command_line::redacted_arguments(),
        ..settings
    })
}

fn add_file(
    path: &Path,
    values: &mut Values,
    warnings: &mut Vec<String>,
) -> Result<(), SettingsError> {
    let (text, is_private) = read_file(path).map_err(|error| {
        SettingsError(format!(
            "cannot read the configuration file {}: {error}",
            path.display()
        ))
    })?;
    let found = file::parse(&text)
        .map_err(|error| SettingsError(format!("{}: {error}", path.display())))?;
    for (parameter, value) in found {
        if matches!(value, SettingValue::Secret(_)) && !is_private {
            warnings.push(format!(
                "{} is in the configuration file {}, which others than its owner may read; change that with \
                 chmod 600",
                parameter.key(),
                path.display()
            ));
        }
        values.insert(parameter.key(), (parameter, value));
    }
    Ok(())
}

/// The text of a configuration file, and whether only its owner may read it.
fn read_file(path: &Path) -> io::Result<(Zeroizing<String>, bool)> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    let is_private = !metadata.is_file() || metadata.mode() & 0o077 == 0;
    // The string does not grow while the file is read, so no part of a password is left behind. The reader of YAML refuses a longer
    // file with an error that says that it is too long.
    let limit = yaml::BYTES_MAX as u64 + 1;
    let capacity = metadata.len().min(limit) as usize + 1;
    let mut text = Zeroizing::new(String::with_capacity(capacity));
    file.take(limit).read_to_string(&mut text)?;
    Ok((text, is_private))
}

fn add_command_line(
    arguments: &clap::ArgMatches,
    values: &mut Values,
    warnings: &mut Vec<String>,
) -> Result<(), SettingsError> {
    let mut options = BTreeMap::new();
    for parameter in all() {
        let Some(value) = command_line::value(parameter, arguments)? else {
            continue;
        };
        if let Some(other) = options.insert(parameter.key(), parameter.option) {
            return Err(SettingsError(format!(
                "--{other} and --{} cannot both be given",
                parameter.option
            )));
        }
        if matches!(value, SettingValue::Secret(_)) {
            warnings.push(format!(
                "--{} is on the command line, which all users of this machine can see; set {} in a configuration \
                 file that only its owner can read",
                parameter.option,
                parameter.key()
            ));
        }
        values.insert(parameter.key(), (parameter, value));
    }
    let parameters = arguments.get_many::<String>("setParameter");
    for text in parameters.into_iter().flatten() {
        let (parameter, value) = command_line::start_parameter(text)?;
        values.insert(parameter.key(), (parameter, value));
    }
    Ok(())
}

/// Applies the values in the order of the table, in which a parameter that depends on another one comes after it.
fn from_values(values: Values) -> Result<Settings, SettingsError> {
    let mut settings = Settings::default();
    let mut values: Vec<_> = values.into_values().collect();
    values.sort_by_key(|(parameter, _)| all().position(|other| std::ptr::eq(other, *parameter)));
    for (parameter, value) in values {
        if let Some(apply) = parameter.apply {
            apply(&mut settings, &value)
                .map_err(|why| SettingsError(format!("{}: {why}", parameter.label())))?;
        }
        let value = match value {
            SettingValue::Secret(_) => SettingValue::Text(PASSWORD_PLACEHOLDER.to_owned()),
            value => value,
        };
        let key = parameter.key().into_owned();
        settings.explicit.insert(key, value);
    }
    check(&settings)?;
    Ok(settings)
}

/// Checks that the settings fit together.
fn check(settings: &Settings) -> Result<(), SettingsError> {
    check_tls(settings)?;
    check_cluster_auth(settings)?;
    check_tikv(settings)?;
    (settings.audit.check(|key| settings.is_explicit(key))).map_err(SettingsError)?;
    check_encryption(settings)?;
    let refused = |text: &str| Err(SettingsError(text.to_owned()));
    if settings.log_append && settings.log_path.is_none() {
        return refused("systemLog.logAppend needs a log file: set systemLog.path");
    }
    if settings.replica_set.is_some() && !settings.journal {
        return refused(
            "a member of a replica set needs the journal: remove --nojournal (storage.journal.enabled: false), or --replSet \
             (replication.replSetName)",
        );
    }
    if settings.oplog == OplogMode::On && !settings.journal {
        return refused(
            "the oplog needs the journal: remove --nojournal (storage.journal.enabled: false), or --oplog \
             (replication.oplog)",
        );
    }
    Ok(())
}

/// The parameters that the operator sets and whose need is chosen, with their values.
fn explicit_with(
    settings: &Settings,
    chosen: impl Fn(Need) -> bool,
) -> impl Iterator<Item = (&'static Parameter, &SettingValue)> {
    let needing = all().filter(move |parameter| parameter.needs.is_some_and(&chosen));
    needing.filter_map(|parameter| {
        let value = settings.explicit.get(&*parameter.key())?;
        Some((parameter, value))
    })
}

/// Checks that members have all that the mode of their logins needs.
fn check_cluster_auth(settings: &Settings) -> Result<(), SettingsError> {
    let mode = settings.security.cluster_auth;
    if mode.accepts_certificates() && settings.tls.mode == TlsMode::Disabled {
        return Err(SettingsError(
            "this --clusterAuthMode (security.clusterAuthMode) needs TLS: set --tlsMode (net.tls.mode) to preferTLS or \
             requireTLS"
                .into(),
        ));
    }
    if mode.shows_certificate() && settings.tls.mode == TlsMode::Allow {
        return Err(SettingsError(
            "cannot have x.509 cluster authentication in allowTLS mode: set --tlsMode (net.tls.mode) to preferTLS or \
             requireTLS"
                .into(),
        ));
    }
    let needs_key = mode.accepts_keys() && settings.is_explicit("security.clusterAuthMode");
    if needs_key && mode.accepts_certificates() && settings.security.keys.is_empty() {
        return Err(SettingsError(
            "this --clusterAuthMode (security.clusterAuthMode) needs --keyFile (security.keyFile)"
                .into(),
        ));
    }
    Ok(())
}

/// Checks that there is one master key if the data directory is encrypted, and none if it is not.
fn check_encryption(settings: &Settings) -> Result<(), SettingsError> {
    let refused = |text: &str| Err(SettingsError(text.to_owned()));
    let EncryptionSettings {
        is_on,
        key_file,
        key_command,
    } = &settings.encryption;
    match (is_on, key_file, key_command) {
        (true, _, _) if settings.tikv.is_on => refused(
            "security.enableEncryption has no meaning with the storage engine tikv, whose data is not in files of this server; TiKV \
             has its own encryption at rest",
        ),
        (true, None, None) => refused(
            "--enableEncryption (security.enableEncryption) needs the master key: set --encryptionKeyFile \
             (security.encryptionKeyFile) or --encryptionKeyCommand (security.encryptionKeyCommand)",
        ),
        (_, Some(_), Some(_)) => refused(
            "--encryptionKeyFile (security.encryptionKeyFile) and --encryptionKeyCommand (security.encryptionKeyCommand) cannot \
             both be given",
        ),
        (false, Some(_), _) | (false, _, Some(_)) => refused(
            "a master key needs --enableEncryption (security.enableEncryption: true), without which nothing is encrypted",
        ),
        _ => Ok(()),
    }
}

fn check_tls(settings: &Settings) -> Result<(), SettingsError> {
    let TlsSettings {
        mode,
        certificate_key_file,
        ca_file,
        ..
    } = &settings.tls;
    if *mode == TlsMode::Disabled {
        let mut needing = explicit_with(settings, |need| need == Need::Tls);
        return match needing.find(|(_, value)| **value != SettingValue::Switch(false)) {
            None => Ok(()),
            Some((parameter, _)) => Err(SettingsError(format!(
                "{} needs TLS: set --tlsMode (net.tls.mode) to allowTLS, preferTLS or requireTLS",
                parameter.label()
            ))),
        };
    }
    if certificate_key_file.is_none() {
        return Err(SettingsError(
            "need --tlsCertificateKeyFile (net.tls.certificateKeyFile) when TLS is enabled".into(),
        ));
    }
    if ca_file.is_none() {
        return Err(SettingsError(
            "The use of TLS without specifying a chain of trust is no longer supported: give the certificates of the \
             authorities that clients are checked with, by --tlsCAFile (net.tls.CAFile)"
                .into(),
        ));
    }
    Ok(())
}

fn check_tikv(settings: &Settings) -> Result<(), SettingsError> {
    let refused = |text: String| Err(SettingsError(text));
    let TikvSettings {
        is_on,
        pd,
        ca_file,
        cert_file,
        key_file,
        ..
    } = &settings.tikv;
    if !is_on {
        return match explicit_with(settings, |need| need == Need::Tikv).next() {
            None => Ok(()),
            Some((parameter, _)) => refused(format!(
                "{} needs the storage engine tikv: set --storageEngine tikv (storage.engine)",
                parameter.label()
            )),
        };
    }
    if pd.is_empty() {
        return refused(
            "the storage engine tikv needs the addresses of PD: --pd HOST:PORT,… (storage.tikv.pd)"
                .into(),
        );
    }
    let files = [ca_file, cert_file, key_file];
    let named = files.iter().filter(|file| file.is_some()).count();
    if named != 0 && named != files.len() {
        return refused(
            "TLS to the cluster needs all three of --tikvCAFile (storage.tikv.CAFile), --tikvCertFile \
             (storage.tikv.certFile) and --tikvKeyFile (storage.tikv.keyFile)"
                .into(),
        );
    }
    let needing = explicit_with(settings, |need| matches!(need, Need::DataFiles(_))).next();
    match needing.map(|(parameter, _)| (parameter, parameter.needs)) {
        Some((parameter, Some(Need::DataFiles(why)))) => refused(format!(
            "{} has no meaning with the storage engine tikv: {why}",
            parameter.key()
        )),
        _ => Ok(()),
    }
}
