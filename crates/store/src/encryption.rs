//! The encryption of a data directory: its key store, and disks with its keys.

use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

use frond_encryption::{Cipher, Ciphers, KeyStore, Purpose, SEAL_BYTES, StoreKeys};
pub use frond_encryption::{
    Error as EncryptionError, KEY_STORE_FILE, Key as MasterKey, KeySource, read_master_key,
};
use parking_lot::Mutex;

use frond_storage::error::Result;
use frond_storage::keyspace::EngineError;
use frond_storage::keyspace::disk::{Disk, EncryptedDisk, FsDisk};
use frond_storage::keyspace::encrypt_log;

/// The keys of an open store.
pub(crate) type OpenKeys = Arc<Mutex<KeyStore>>;

/// The numbers of the keys of an encrypted store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeysInfo {
    /// The number of the store key that new content is encrypted with.
    pub current: u32,
    /// The number of store keys.
    pub count: usize,
    /// The number of times that the key store was written.
    pub version: u64,
    /// Whether the store is being encrypted, so that readers accept unencrypted content.
    pub accepts_plain: bool,
}

pub(crate) fn refused(text: impl Into<String>) -> EngineError {
    EngineError::InvalidOption(text.into())
}

pub(crate) fn of_keys(error: &EncryptionError) -> EngineError {
    refused(error.to_string())
}

/// Opens the key store of a directory, or makes it in one that has no store. `None` if the directory is not encrypted.
///
/// # Errors
/// If the directory is encrypted and there is no master key, or the wrong one; if it has a store that is not encrypted and there is
/// one.
pub(crate) fn open_or_create(
    directory: &Path,
    master: Option<&MasterKey>,
) -> Result<Option<KeyStore>> {
    let Some(master) = master else {
        return open_existing(directory, None);
    };
    if exists(directory)? || has_store(directory)? {
        return open_existing(directory, Some(master));
    }
    let made = std::fs::create_dir_all(directory)
        .map_err(|error| refused(format!("creating {}: {error}", directory.display())));
    made?;
    let made = KeyStore::create(directory, master).map_err(|error| of_keys(&error))?;
    Ok(Some(made))
}

/// As [`open_or_create`], for a directory whose store is read.
pub(crate) fn open_existing(
    directory: &Path,
    master: Option<&MasterKey>,
) -> Result<Option<KeyStore>> {
    let shown = directory.display();
    match (exists(directory)?, master) {
        (true, Some(master)) => {
            let opened = KeyStore::read(directory, master).map_err(|error| of_keys(&error))?;
            Ok(Some(opened))
        }
        (true, None) => Err(refused(format!(
            "{shown} is encrypted: its master key is needed (--enableEncryption with --encryptionKeyFile or --encryptionKeyCommand)"
        ))
        .into()),
        (false, Some(_)) => Err(refused(format!(
            "{shown} has a store that is not encrypted, so there is no key store {KEY_STORE_FILE} in it; `frond encrypt` \
             prepares it to be encrypted"
        ))
        .into()),
        (false, None) => Ok(None),
    }
}

fn exists(directory: &Path) -> Result<bool> {
    let found = KeyStore::exists(directory).map_err(|error| of_keys(&error))?;
    Ok(found)
}

fn has_store(directory: &Path) -> Result<bool> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(refused(format!("{}: {error}", directory.display())).into()),
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.into_iter().any(|name| name.ends_with(".frond")))
}

/// The disk of a directory with its keys, for one open store.
pub(crate) fn with_keys(
    directory: &Path,
    disk: Arc<dyn Disk>,
    keys: Option<&Arc<StoreKeys>>,
) -> Result<Arc<dyn Disk>> {
    let Some(keys) = keys else {
        return Ok(disk);
    };
    let ciphers = Ciphers::new(keys).map_err(|error| of_keys(&error))?;
    let disk = EncryptedDisk::new(disk, Arc::new(ciphers));
    Ok(Arc::new(
        disk.with_key_store(directory.join(KEY_STORE_FILE)),
    ))
}

/// Encrypts files of the server that have documents, record by record.
///
/// A record is the length of its content (4, little-endian), a seal, and the encrypted content.
pub struct FileCipher(Cipher);

impl FileCipher {
    pub(crate) fn new(keys: &Arc<StoreKeys>) -> Result<FileCipher> {
        let cipher = Cipher::new(keys, Purpose::Files).map_err(|error| of_keys(&error));
        Ok(FileCipher(cipher?))
    }

    /// Writes a record. It is read with the same context.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write(&self, to: &mut impl Write, context: &[u8], content: &[u8]) -> io::Result<()> {
        let too_long = |_| io::ErrorKind::InvalidInput;
        let len = u32::try_from(content.len()).map_err(too_long)?;
        let mut content = content.to_vec();
        let seal = self.0.seal(context, &mut content);
        to.write_all(&len.to_le_bytes())?;
        to.write_all(&seal)?;
        to.write_all(&content)
    }

    /// Reads the next record; `None` at the end.
    ///
    /// # Errors
    /// Those of the reader, and `InvalidData` for what is not authentic.
    pub fn read(&self, from: &mut impl Read, context: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let mut len = [0; 4];
        match from.read(&mut len[..1])? {
            0 => return Ok(None),
            _ => from.read_exact(&mut len[1..])?,
        }
        let mut seal = [0; SEAL_BYTES];
        from.read_exact(&mut seal)?;
        let len = u64::from(u32::from_le_bytes(len));
        let mut content = Vec::new();
        if from.take(len).read_to_end(&mut content)? as u64 != len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let opened = self.0.open(&seal, context, &mut content);
        opened.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok(Some(content))
    }
}

/// A cipher for the files of a data directory that no server uses.
///
/// # Errors
/// If the directory is not encrypted, or the master key is wrong.
pub fn file_cipher(directory: &Path, master: &MasterKey) -> Result<FileCipher> {
    let keys = KeyStore::read(directory, master).map_err(|error| of_keys(&error))?;
    FileCipher::new(keys.keys())
}

/// Whether a directory has a key store.
pub fn is_encrypted(directory: &Path) -> bool {
    KeyStore::exists(directory).unwrap_or(false)
}

/// Fails unless the master key opens the key store of a directory, which a server may be using. Returns whether the directory is
/// being encrypted.
///
/// # Errors
/// If there is no key store, it is damaged, or the key is another one.
pub fn check_keys(directory: &Path, master: &MasterKey) -> Result<bool> {
    let read = KeyStore::read(directory, master).map_err(|error| of_keys(&error));
    Ok(read?.keys().accepts_plain())
}

/// Whether a directory has a store and no key store.
pub fn has_plain_store(directory: &Path) -> bool {
    !is_encrypted(directory) && has_store(directory).unwrap_or(false)
}

/// Prepares a directory for a server that encrypts it: makes a key store with which readers accept unencrypted content, and encrypts the
/// log. No server may use the directory meanwhile. A call that was interrupted can be repeated.
///
/// # Errors
/// If the directory is encrypted or has no store, the master key is another one than before, or something cannot be written.
pub fn begin_encryption(directory: &Path, master: &MasterKey) -> Result<()> {
    let shown = directory.display();
    if !has_store(directory)? {
        let text = "has no store; a server with --enableEncryption makes an encrypted one";
        return Err(refused(format!("{shown} {text}")).into());
    }
    let keys = if exists(directory)? {
        KeyStore::read(directory, master)
    } else {
        KeyStore::create_for_plain(directory, master)
    };
    let keys = keys.map_err(|error| of_keys(&error))?;
    if !keys.keys().accepts_plain() {
        return Err(refused(format!("{shown} is encrypted already")).into());
    }
    let files = Arc::new(FsDisk::new(directory.to_owned(), false));
    let disk = with_keys(directory, files, Some(keys.keys()))?;
    Ok(encrypt_log(&*disk)?)
}

/// Encrypts the store keys of a directory that no server uses with another master key.
///
/// # Errors
/// If the directory is not encrypted, the old key is wrong, or the key store cannot be written.
pub fn rotate_offline(
    directory: &Path,
    old: &MasterKey,
    new: &MasterKey,
    adds_key: bool,
) -> Result<()> {
    let mut keys = KeyStore::open(directory, old).map_err(|error| of_keys(&error))?;
    let rotated = keys.rotate(new, adds_key).map_err(|error| of_keys(&error));
    Ok(rotated?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn key(byte: u8) -> MasterKey {
        MasterKey::new([byte; 32])
    }

    #[test]
    fn records_of_a_file_are_read_with_its_keys_and_context() {
        let keys = StoreKeys::single(key(1));
        let mut file = Vec::new();
        let cipher = FileCipher::new(&keys).unwrap();
        for content in [&b"secret one"[..], b"", b"secret two"] {
            cipher.write(&mut file, b"here", content).unwrap();
        }
        assert!(!file.windows(6).any(|part| part == b"secret"));
        let read = |keys: &Arc<StoreKeys>, context: &[u8], mut file: &[u8]| {
            let cipher = FileCipher::new(keys).unwrap();
            let mut found = Vec::new();
            while let Some(content) = cipher.read(&mut file, context)? {
                found.push(content);
            }
            Ok::<_, io::Error>(found)
        };
        let whole = read(&keys, b"here", &file).unwrap();
        assert_eq!(whole, [&b"secret one"[..], b"", b"secret two"]);
        assert!(read(&keys, b"there", &file).is_err());
        assert!(read(&StoreKeys::single(key(2)), b"here", &file).is_err());
        assert!(read(&keys, b"here", &file[..file.len() - 1]).is_err());
        let last = file.len() - 1;
        file[last] ^= 1;
        assert!(read(&keys, b"here", &file).is_err());
    }

    #[test]
    fn a_directory_is_encrypted_from_its_beginning_or_on_request() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        assert!(open_or_create(&path, None).unwrap().is_none());
        let made = open_or_create(&path, Some(&key(1))).unwrap().unwrap();
        let again = open_or_create(&path, Some(&key(1))).unwrap().unwrap();
        assert_eq!(made.name(), again.name());
        let message = |result: Result<Option<KeyStore>>| result.unwrap_err().to_string();
        let without = message(open_or_create(&path, None));
        assert!(without.contains("is encrypted"), "{without}");
        let wrong = message(open_or_create(&path, Some(&key(2))));
        assert!(wrong.contains("master key is not the one"), "{wrong}");

        let plain = directory.path().join("plain");
        std::fs::create_dir(&plain).unwrap();
        std::fs::write(plain.join("data.frond"), "").unwrap();
        assert!(open_or_create(&plain, None).unwrap().is_none());
        let refused = message(open_or_create(&plain, Some(&key(1))));
        assert!(refused.contains("frond encrypt"), "{refused}");
        assert!(!plain.join(KEY_STORE_FILE).exists());
        let message = |result: Result<()>| result.unwrap_err().to_string();
        let none = message(begin_encryption(&directory.path().join("none"), &key(1)));
        assert!(none.contains("has no store"), "{none}");
        // A call with the same key can be repeated.
        begin_encryption(&plain, &key(1)).unwrap();
        begin_encryption(&plain, &key(1)).unwrap();
        let wrong = message(begin_encryption(&plain, &key(2)));
        assert!(wrong.contains("master key is not the one"), "{wrong}");
        let mut keys = open_or_create(&plain, Some(&key(1))).unwrap().unwrap();
        assert!(keys.keys().accepts_plain());
        keys.refuse_plain(&key(1)).unwrap();
        let again = message(begin_encryption(&plain, &key(1)));
        assert!(again.contains("is encrypted already"), "{again}");
    }
}
