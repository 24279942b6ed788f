//! The settings of encryption at rest.

use std::path::PathBuf;

use frond_store::encryption::{EncryptionError, KeySource, MasterKey, read_master_key};

/// Encryption of the data directory.
#[derive(Clone, Debug, Default)]
pub struct EncryptionSettings {
    /// Whether the data directory is encrypted.
    pub is_on: bool,
    /// A file with the master key.
    pub key_file: Option<PathBuf>,
    /// A command that prints it.
    pub key_command: Option<String>,
}

impl EncryptionSettings {
    /// Where the master key comes from, if the data directory is encrypted.
    pub fn source(&self) -> Option<KeySource> {
        if !self.is_on {
            return None;
        }
        let file = self.key_file.clone().map(KeySource::File);
        file.or_else(|| self.key_command.clone().map(KeySource::Command))
    }

    /// The master key, if the data directory is encrypted.
    ///
    /// # Errors
    /// If it cannot be had.
    pub fn master_key(&self) -> Result<Option<MasterKey>, EncryptionError> {
        self.source().as_ref().map(read_master_key).transpose()
    }
}
