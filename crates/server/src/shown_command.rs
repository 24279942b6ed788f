//! Commands as others see them: without secrets, and not too long.

use frond_bson::{Doc, DocBuf};

/// Replaces a secret in shown commands, as in mongod.
pub const REDACTED: &str = "xxx";

/// Bytes of a command in the log, and in a `currentOp` that truncates.
pub const COMMAND_BYTES_SHOWN: usize = 1024;

/// A command with `"xxx"` in place of the values of some fields.
pub fn without_secrets(body: &Doc, secrets: &[&str]) -> DocBuf {
    let mut shown = DocBuf::new();
    for (name, value) in body.iter() {
        if secrets.contains(&name) {
            shown.push(name, REDACTED)
        } else {
            shown.push(name, value)
        }
    }
    shown
}

/// A command, reduced to its short fields if it is long.
pub fn short_command(body: &Doc) -> DocBuf {
    if body.len_bytes() <= COMMAND_BYTES_SHOWN {
        return body.to_owned();
    }
    let mut short = DocBuf::new();
    let mut room = COMMAND_BYTES_SHOWN;
    for (name, value) in body.iter() {
        let bytes = name.len() + 2 + value.len_bytes();
        if bytes <= room.min(256) {
            short.push(name, value);
            room -= bytes;
        }
    }
    short.push("$truncated", true);
    short
}
