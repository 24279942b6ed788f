//! The settings of authorization.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::table::{Kind, Setting, path, switch, text};

/// Characters of base64 that a key file has.
const KEY_LENGTH: std::ops::RangeInclusive<usize> = 6..=1024;

/// The largest key file: some keys and white space.
const KEY_FILE_BYTES_MAX: usize = 64 << 10;

/// Whether users need privileges.
#[derive(Clone, Debug, Default)]
pub struct SecuritySettings {
    /// Whether commands need privileges.
    pub authorization: bool,
    /// Whether the log shows no data of clients.
    pub redacts_log: bool,
    /// The file with the key of the replica set.
    pub key_file: Option<PathBuf>,
}

/// `security.authorization`
pub const AUTHORIZATION: Setting = Setting {
    flag: "",
    key: "security.authorization",
    aliases: &[],
    kind: Kind::Choice(&["enabled", "disabled"]),
    help: "Whether clients must log in and need privileges (default disabled)",
    apply: |s, v| {
        s.security.authorization = text(v)? == "enabled";
        Ok(())
    },
};

/// `--redactClientLogData`
pub const REDACT: Setting = Setting {
    flag: "redactClientLogData",
    key: "security.redactClientLogData",
    aliases: &["setParameter.redactClientLogData"],
    kind: Kind::Switch(true),
    help: "Show no values of clients' commands and errors in the log",
    apply: |s, v| switch(v).map(|on| s.security.redacts_log = on),
};

/// `--auth`
pub const AUTH: Setting = Setting {
    flag: "auth",
    key: "security.authorization",
    aliases: &[],
    kind: Kind::Word("enabled"),
    help: "Let clients log in, and do what the privileges of their users allow",
    apply: AUTHORIZATION.apply,
};

/// `--noauth`
pub const NO_AUTH: Setting = Setting {
    flag: "noauth",
    key: "security.authorization",
    aliases: &[],
    kind: Kind::Word("disabled"),
    help: "Let clients do everything without a login (default)",
    apply: AUTHORIZATION.apply,
};

/// `security.keyFile`
pub const KEY_FILE: Setting = Setting {
    flag: "keyFile",
    key: "security.keyFile",
    aliases: &[],
    kind: Kind::Text("FILE"),
    help: "A file with the key of the replica set; turns authorization on",
    apply: |s, v| {
        let path = path(v)?;
        check_key_file(&path)?;
        s.security.key_file = Some(path);
        // As in mongod, also where authorization is disabled.
        s.security.authorization = true;
        Ok(())
    },
};

/// `security.clusterAuthMode`
pub const CLUSTER_AUTH_MODE: Setting = Setting {
    flag: "clusterAuthMode",
    key: "security.clusterAuthMode",
    aliases: &[],
    kind: Kind::Text("MODE"),
    help: "Only keyFile: there are no other members",
    apply: |_, v| match text(v)? {
        "keyFile" => Ok(()),
        mode @ ("sendKeyFile" | "sendX509" | "x509") => Err(format!(
            "'{mode}' is not supported: a replica set has one member here, which authenticates to no other; use keyFile"
        )),
        other => Err(format!("must be keyFile, not '{other}'")),
    },
};

/// Checks a key file: nobody but its owner may read it, and it has a key, or a list of keys while the key is being replaced.
fn check_key_file(path: &Path) -> Result<(), String> {
    let shown = path.display();
    let failed = |error: io::Error| format!("cannot read {shown}: {error}");
    let file = File::open(path).map_err(failed)?;
    // The file that was opened is looked at, so it cannot be exchanged between the check and the use.
    let mode = file.metadata().map_err(failed)?.mode();
    if mode & 0o077 != 0 {
        return Err(format!(
            "permissions on {shown} are too open: only its owner may have any (chmod 600)"
        ));
    }
    let mut text = Zeroizing::new(String::with_capacity(KEY_FILE_BYTES_MAX + 1));
    file.take(KEY_FILE_BYTES_MAX as u64 + 1)
        .read_to_string(&mut text)
        .map_err(failed)?;
    if text.len() > KEY_FILE_BYTES_MAX {
        return Err(format!("{shown} has more than {KEY_FILE_BYTES_MAX} bytes"));
    }
    if !text.trim_start().starts_with("- ") {
        return check_key(&text).map_err(|why| format!("{shown}: {why}"));
    }
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let key = line
            .strip_prefix("- ")
            .ok_or_else(|| format!("{shown}: each line of a list of keys begins with '- '"))?;
        check_key(unquoted(key.trim())).map_err(|why| format!("{shown}: {why}"))?;
    }
    Ok(())
}

/// The text of a YAML string that may be quoted.
fn unquoted(text: &str) -> &str {
    let inside = |quote| text.strip_prefix(quote)?.strip_suffix(quote);
    inside('"').or_else(|| inside('\'')).unwrap_or(text)
}

/// Checks one key. White space in it does not count.
fn check_key(key: &str) -> Result<(), String> {
    let is_base64 = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=');
    let mut count = 0;
    for character in key.chars().filter(|c| !c.is_ascii_whitespace()) {
        if !is_base64(character) {
            return Err("the key has a character that is not base64".to_owned());
        }
        count += 1;
    }
    match KEY_LENGTH.contains(&count) {
        true => Ok(()),
        false => Err(format!(
            "the key has {count} characters; it must have {} to {}",
            KEY_LENGTH.start(),
            KEY_LENGTH.end()
        )),
    }
}
