//! The master key and the key store of an encrypted data directory.

use std::path::Path;

use frond_store::encryption::{check_keys, has_plain_store, is_encrypted};

use super::finding::Finding;
use crate::settings::Settings;

const AREA: &str = "encryption";

/// Whether a server with these settings can open the keys of the directory.
pub fn encryption(settings: &Settings, db_path: &Path) -> Vec<Finding> {
    let has_keys = is_encrypted(db_path);
    if !settings.encryption.is_on {
        if !has_keys {
            return Vec::new();
        }
        return vec![Finding::problem(
            AREA,
            format!("{} is encrypted, and encryption is off", db_path.display()),
            "security.enableEncryption: true, with security.encryptionKeyFile or security.encryptionKeyCommand",
        )];
    }
    match settings.encryption.master_key() {
        Err(error) => vec![Finding::problem(
            AREA,
            error.to_string(),
            "correct it: the server does not start (docs/encryption.md)",
        )],
        Ok(Some(master)) if has_keys => match check_keys(db_path, &master) {
            Ok(false) => vec![Finding::good(AREA, "the master key opens the key store")],
            Ok(true) => vec![Finding::note(
                AREA,
                format!("{} is being encrypted", db_path.display()),
                "a running server goes on with that; serverStatus shows the end (docs/encryption.md)",
            )],
            Err(error) => vec![Finding::problem(
                AREA,
                error.message(),
                "give the master key that the directory was encrypted with, or the one after its last rotation",
            )],
        },
        Ok(_) if has_plain_store(db_path) => vec![Finding::problem(
            AREA,
            format!("{} has a store that is not encrypted", db_path.display()),
            "frond encrypt --dbpath DIR --encryptionKeyFile FILE, while the server is stopped",
        )],
        Ok(_) => vec![Finding::good(AREA, "the master key can be read")],
    }
}
