//! The settings of authorization.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::Secret;

/// Characters of base64 that a key file has.
const KEY_LENGTH: std::ops::RangeInclusive<usize> = 6..=1024;

/// The largest key file: some keys and white space.
const KEY_FILE_BYTES_MAX: usize = 64 << 10;

/// The logins of members of a replica set to each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClusterAuthMode {
    #[default]
    KeyFile,
    /// By the key; certificates are accepted, too.
    SendKeyFile,
    /// By the certificate; keys are accepted, too.
    SendX509,
    X509,
}

impl ClusterAuthMode {
    /// The mode with this word of the configuration.
    pub fn named(name: &str) -> Option<ClusterAuthMode> {
        Some(match name {
            "keyFile" => ClusterAuthMode::KeyFile,
            "sendKeyFile" => ClusterAuthMode::SendKeyFile,
            "sendX509" => ClusterAuthMode::SendX509,
            "x509" => ClusterAuthMode::X509,
            _ => return None,
        })
    }

    /// Whether another member may log in by a key.
    pub fn accepts_keys(self) -> bool {
        self != ClusterAuthMode::X509
    }

    /// Whether another member may log in by its certificate.
    pub fn accepts_certificates(self) -> bool {
        self != ClusterAuthMode::KeyFile
    }

    /// Whether this member logs in by its certificate.
    pub fn shows_certificate(self) -> bool {
        matches!(self, ClusterAuthMode::SendX509 | ClusterAuthMode::X509)
    }
}

/// Authorization, logins between members, and secrecy of the log.
#[derive(Clone, Debug, Default)]
pub struct SecuritySettings {
    /// Whether commands need privileges.
    pub authorization: bool,
    /// Whether the log shows no data of clients.
    pub redacts_log: bool,
    /// The file with the keys of the replica set.
    pub key_file: Option<PathBuf>,
    /// Its keys, without white space. There are several while a key is being replaced.
    pub keys: Vec<Secret>,
    /// See [`ClusterAuthMode`].
    pub cluster_auth: ClusterAuthMode,
}

/// Reads a key file: only its owner may read it, and it has a key, or a list of keys while the key is being replaced.
///
/// # Errors
/// If it cannot be read, others than its owner may, or it has something else than keys.
pub fn read_key_file(path: &Path) -> Result<Vec<Secret>, String> {
    let shown = path.display();
    let failed = |error: io::Error| format!("cannot read {shown}: {error}");
    let file = File::open(path).map_err(failed)?;
    // These are the permissions of the open file, so it cannot be exchanged between the check and the use.
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
    let read = |text: &str| read_key(text).map_err(|why| format!("{shown}: {why}"));
    if !text.trim_start().starts_with("- ") {
        return Ok(vec![read(&text)?]);
    }
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let keys = lines.map(|line| {
        let key = line
            .strip_prefix("- ")
            .ok_or_else(|| format!("{shown}: each line of a list of keys begins with '- '"))?;
        read(unquoted(key.trim()))
    });
    keys.collect()
}

/// The text of a YAML string that may be quoted.
fn unquoted(text: &str) -> &str {
    let inside = |quote| text.strip_prefix(quote)?.strip_suffix(quote);
    inside('"').or_else(|| inside('\'')).unwrap_or(text)
}

/// Checks one key, and removes the white space in it.
fn read_key(text: &str) -> Result<Secret, String> {
    let is_base64 = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=');
    let mut key = Zeroizing::new(String::with_capacity(text.len()));
    for character in text.chars().filter(|c| !c.is_ascii_whitespace()) {
        if !is_base64(character) {
            return Err("the key has a character that is not base64".to_owned());
        }
        key.push(character);
    }
    if KEY_LENGTH.contains(&key.len()) {
        return Ok(Secret::new(&key));
    }
    Err(format!(
        "the key has {} characters; it must have {} to {}",
        key.len(),
        KEY_LENGTH.start(),
        KEY_LENGTH.end()
    ))
}
