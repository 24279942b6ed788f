//! The settings of authorization.

use std::path::{Path, PathBuf};

use rustix::fs::{Mode, stat};

use super::table::{Kind, Setting, path, text};

/// Characters of base64 that a key file has.
const KEY_LENGTH: std::ops::RangeInclusive<usize> = 6..=1024;

/// Whether users need privileges.
#[derive(Clone, Debug, Default)]
pub struct SecuritySettings {
    /// Whether commands need privileges.
    pub authorization: bool,
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

/// Checks a key file: nobody but its owner may read it, and it has base64 characters.
fn check_key_file(path: &Path) -> Result<(), String> {
    let shown = path.display();
    let mode = stat(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
    let others = Mode::RWXG | Mode::RWXO;
    if Mode::from_raw_mode(mode.st_mode).intersects(others) {
        return Err(format!(
            "permissions on {shown} are too open: only its owner may have any (chmod 600)"
        ));
    }
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
    let text = zeroize::Zeroizing::new(text);
    let is_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=');
    let characters = text.chars().filter(|c| !c.is_ascii_whitespace());
    let mut count = 0;
    for character in characters {
        if !is_key(character) {
            return Err(format!("{shown} has a character that is not base64"));
        }
        count += 1;
    }
    match KEY_LENGTH.contains(&count) {
        true => Ok(()),
        false => Err(format!(
            "the key in {shown} has {count} characters; it must have {} to {}",
            KEY_LENGTH.start(),
            KEY_LENGTH.end()
        )),
    }
}
