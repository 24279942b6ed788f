//! A disk with the keys of its store.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use frond_encryption::Ciphers;

use super::{Disk, DiskFile, DiskSpace, SharedMap};

/// A disk whose store is encrypted. It passes everything on; the engine encrypts what it writes, because only the engine knows where
/// a block begins and which one of those that were there it is.
pub struct EncryptedDisk {
    disk: Arc<dyn Disk>,
    ciphers: Arc<Ciphers>,
    key_store: Option<PathBuf>,
}

impl EncryptedDisk {
    /// A disk of a store that is encrypted with these ciphers. They are used for one open store only, or for one that is read only.
    pub fn new(disk: Arc<dyn Disk>, ciphers: Arc<Ciphers>) -> EncryptedDisk {
        EncryptedDisk {
            disk,
            ciphers,
            key_store: None,
        }
    }

    /// The same, with the file that copies of the store need to be opened, besides the master key.
    pub fn with_key_store(self, path: PathBuf) -> EncryptedDisk {
        EncryptedDisk {
            key_store: Some(path),
            ..self
        }
    }
}

impl Disk for EncryptedDisk {
    fn open(&self, name: &str, direct: bool) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.open(name, direct)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.disk.sync_directory()
    }

    fn space(&self) -> io::Result<Option<DiskSpace>> {
        self.disk.space()
    }

    fn unique_name(&self) -> [u8; 16] {
        self.disk.unique_name()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn maps_files(&self) -> bool {
        self.disk.maps_files()
    }

    fn map(&self, name: &str, offset: u64, bytes: usize) -> io::Result<Box<dyn SharedMap>> {
        self.disk.map(name, offset, bytes)
    }

    fn key_store(&self) -> io::Result<Vec<u8>> {
        (self.key_store.as_ref()).map_or(Ok(Vec::new()), std::fs::read)
    }

    fn ciphers(&self) -> Option<&Arc<Ciphers>> {
        Some(&self.ciphers)
    }
}
