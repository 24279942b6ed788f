//! The settings of authorization.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

/// Characters of base64 that a key file has.
const KEY_LENGTH: std::ops::RangeInclusive<usize> = 6..=1024;

/// The largest key file: some keys and white space.
const KEY_FILE_BYTES_MAX: usize = 64 << 10;

/// Authorization, and secrecy of the log.
#[derive(Clone, Debug, Default)]
pub struct SecuritySettings {
    /// Whether commands need privileges.
    pub authorization: bool,
    /// Whether the log shows no data of clients.
    pub redacts_log: bool,
    /// The file with the key of the replica set.
    pub key_file: Option<PathBuf>,
}

/// Checks a key file: only its owner may read it, and it has a key, or a list of keys while the key is being replaced.
pub fn check_key_file(path: &Path) -> Result<(), String> {
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
    if KEY_LENGTH.contains(&count) {
        return Ok(());
    }
    Err(format!(
        "the key has {count} characters; it must have {} to {}",
        KEY_LENGTH.start(),
        KEY_LENGTH.end()
    ))
}
