//! The keys of an open store.

use crate::encryption::{FileCipher, KeysInfo, MasterKey, of_keys, refused};
use crate::own_files::OwnFiles;
use crate::store::DocumentStore;
use frond_storage::error::Result;
use frond_storage::keyspace::Reencryption;

impl DocumentStore {
    /// A cipher for files of the server, if the store is encrypted.
    ///
    /// # Errors
    /// If the system gives no random numbers.
    pub fn file_cipher(&self) -> Result<Option<FileCipher>> {
        let keys = self.open_keys().map(|keys| keys.lock().keys().clone());
        keys.as_ref().map(FileCipher::new).transpose()
    }

    /// The keys of the store, if it is encrypted.
    pub fn keys(&self) -> Option<KeysInfo> {
        let keys = self.open_keys()?.lock();
        Some(KeysInfo {
            current: keys.keys().current(),
            count: keys.keys().count(),
            version: keys.version(),
            accepts_plain: keys.keys().accepts_plain(),
        })
    }

    /// Encrypts the store keys with a master key, durably. With `adds_key` there is a new store key, which what is written from now
    /// on is encrypted with.
    ///
    /// # Errors
    /// If the store is not encrypted, or the key store cannot be written: it has the old or the new master key then.
    pub fn rotate_master_key(&self, master: &MasterKey, adds_key: bool) -> Result<KeysInfo> {
        let keys = self.open_keys();
        let keys = keys.ok_or_else(|| refused("the store is not encrypted"))?;
        let rotated = keys.lock().rotate(master, adds_key);
        rotated.map_err(|error| of_keys(&error))?;
        self.keys()
            .ok_or_else(|| refused("the store is not encrypted").into())
    }

    /// Whether all of the log is encrypted, in a store that is being encrypted.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn is_log_encrypted(&self) -> Result<bool> {
        Ok(OwnFiles::new(self.engine()).require()?.is_log_encrypted()?)
    }

    /// Ends the encryption of a store whose data file and log are encrypted: from now on readers refuse unencrypted content.
    ///
    /// # Errors
    /// If the store is not encrypted, or the key store has another master key or cannot be written.
    pub fn finish_encryption(&self, master: &MasterKey) -> Result<()> {
        let keys = self.open_keys();
        let keys = keys.ok_or_else(|| refused("the store is not encrypted"))?;
        let finished = keys.lock().refuse_plain(master);
        Ok(finished.map_err(|error| of_keys(&error))?)
    }

    /// Encrypts everything in the data file with the current store key that has an older one or none, while others read and write.
    /// `goes_on` is called before each step, and ends the work by returning false.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn reencrypt(&self, goes_on: impl FnMut() -> bool) -> Result<Reencryption> {
        let files = OwnFiles::new(self.engine()).require()?;
        Ok(files.reencrypt(goes_on)?)
    }
}
