//! The interface to storage: one small trait, so that tests can simulate a disk.

mod aligned;
mod encrypted;
mod fs;
mod mapping;
mod overlay;
mod spare_handles;

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;

use frond_encryption::Ciphers;

pub use aligned::{ALIGNMENT, AlignedBuf};
pub use encrypted::EncryptedDisk;
pub use fs::FsDisk;
pub use overlay::OverlayDisk;

/// A directory of files.
pub trait Disk: Send + Sync {
    /// Opens a file for reading and writing, creating it when it is missing. A `direct` file is
    /// only read and written with aligned buffers, offsets and lengths.
    fn open(&self, name: &str, direct: bool) -> io::Result<Arc<dyn DiskFile>>;
    /// The names of all files.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Deletes a file of the store.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes creations, deletions and new names durable.
    fn sync_directory(&self) -> io::Result<()>;
    /// The room of the file system that holds the files; `None` if that is not known.
    fn space(&self) -> io::Result<Option<DiskSpace>> {
        Ok(None)
    }
    /// A name that no other call gets, on any machine. A simulated disk gives names that follow from its seed.
    fn unique_name(&self) -> [u8; 16] {
        // The keys of the standard library's hash maps come from the system's source of random numbers.
        let random = || {
            RandomState::new()
                .hash_one(std::process::id())
                .to_le_bytes()
        };
        let mut name = [0; 16];
        name[..8].copy_from_slice(&random());
        name[8..].copy_from_slice(&random());
        name
    }
    /// Renames a file. A disk without this says [`io::ErrorKind::Unsupported`].
    fn rename(&self, _from: &str, _to: &str) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Whether the disk can map files at all. A log on one that cannot writes each commit to its file.
    fn maps_files(&self) -> bool {
        false
    }
    /// Maps `bytes` bytes of a file from `offset` on, both multiples of 4096. The file must have these bytes, written and
    /// synced, so that its blocks are allocated. [`io::ErrorKind::Unsupported`] if the disk cannot map files, or cannot
    /// promise that writes to a mapping find room.
    fn map(&self, _name: &str, _offset: u64, _bytes: usize) -> io::Result<Box<dyn SharedMap>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// The file that the keys of the store are read from, for copies; nothing for a store that is not encrypted.
    fn key_store(&self) -> io::Result<Vec<u8>> {
        Ok(Vec::new())
    }
    /// The ciphers of the store, if it is encrypted.
    fn ciphers(&self) -> Option<&Arc<Ciphers>> {
        None
    }
}

/// A part of a file in memory. What is written to it is in the file at once, and stays there when the process is
/// killed. It is durable after the next sync of the file; before that a crash of the machine may keep any part of it.
pub trait SharedMap: Send {
    /// The mapped bytes of the file.
    fn bytes(&self) -> &[u8];
    /// Replaces the bytes from `offset` on.
    fn write(&mut self, offset: usize, bytes: &[u8]);
}

/// The size of a file system, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskSpace {
    /// The size of the file system in bytes.
    pub total: u64,
    /// Bytes that this process may still use.
    pub available: u64,
}

/// A file of a disk, open for reading and writing.
pub trait DiskFile: Send + Sync {
    /// Fills `buffer` from `offset`; the end of the file before that is an error.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes all of `bytes` at `offset`. Durable only after `sync`.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Makes all earlier writes durable.
    fn sync(&self) -> io::Result<()>;
    /// The length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file is empty.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Truncates or extends the file.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Allocates room for the first `len` bytes, so that later writes of them need no more. The length stays.
    fn allocate(&self, _len: u64) -> io::Result<()> {
        Ok(())
    }
    /// The bytes of the file's blocks; `None` if that is not known. A file with holes has fewer than its length.
    fn allocated(&self) -> io::Result<Option<u64>> {
        Ok(None)
    }
    /// Punches a hole: the bytes are not needed any more, and may read as zeros and take no space. An error says that they
    /// take it still.
    fn punch_hole(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
