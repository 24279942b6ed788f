//! The interface to storage: one small trait, so that tests can simulate a disk.

mod aligned;
mod fs;
mod overlay;
mod spare_handles;

use std::io;
use std::sync::Arc;

pub use aligned::{ALIGNMENT, AlignedBuf};
pub use fs::FsDisk;
pub use overlay::OverlayDisk;

/// A directory of files.
pub trait Disk: Send + Sync {
    /// Opens a file for reading and writing, creating it when it is missing. A `direct` file is
    /// only read and written with aligned buffers, offsets and lengths.
    fn open(&self, name: &str, direct: bool) -> io::Result<Arc<dyn DiskFile>>;
    /// The names of all files.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Deletes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes creations and deletions durable.
    fn sync_directory(&self) -> io::Result<()>;
    /// The room of the file system that holds the files; `None` if that is not known.
    fn space(&self) -> io::Result<Option<DiskSpace>> {
        Ok(None)
    }
}

/// The size of a file system, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskSpace {
    /// All of it.
    pub total: u64,
    /// What this process may still use.
    pub available: u64,
}

/// Bytes that [`DiskFile::allocate`] writes at once where the system cannot allocate without writing.
const ZEROS: usize = 64 << 10;

/// One file.
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
    /// Punches a hole: the bytes are not needed any more, and may read as zeros and take no space. An error says that they
    /// take it still.
    fn punch_hole(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Takes room for the first `len` bytes. They read as zeros where nothing was written.
    fn allocate(&self, len: u64) -> io::Result<()> {
        write_zeros(self, len)
    }
}

/// Takes room at the end of a file by writing.
fn write_zeros(file: &(impl DiskFile + ?Sized), len: u64) -> io::Result<()> {
    let mut zeros = AlignedBuf::with_capacity(ZEROS);
    zeros.resize(ZEROS);
    let mut offset = file.len()?;
    while offset < len {
        let part = (len - offset).min(ZEROS as u64);
        file.write_at(&zeros[..part as usize], offset)?;
        offset += part;
    }
    Ok(())
}
