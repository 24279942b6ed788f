//! A disk in memory without faults. It cannot map files and does not report its free space.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frond_tree::disk::{Disk, DiskFile};

type Bytes = Arc<Mutex<Vec<u8>>>;

/// The largest file. A damaged store must not make a larger one.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// A directory of files.
#[derive(Clone, Default)]
pub struct MemoryDisk(Arc<Mutex<BTreeMap<String, Bytes>>>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MemoryDisk {
    /// A disk with these files.
    pub fn with(files: &BTreeMap<String, Vec<u8>>) -> MemoryDisk {
        let files = files.iter();
        let files = files.map(|(name, bytes)| (name.clone(), Arc::new(Mutex::new(bytes.clone()))));
        MemoryDisk(Arc::new(Mutex::new(files.collect())))
    }

    /// The content of a file; nothing if there is none.
    pub fn bytes(&self, name: &str) -> Vec<u8> {
        let file = lock(&self.0).get(name).cloned();
        file.map(|file| lock(&file).clone()).unwrap_or_default()
    }
}

impl Disk for MemoryDisk {
    fn open(&self, name: &str, _direct: bool) -> io::Result<Arc<dyn DiskFile>> {
        let bytes = lock(&self.0).entry(name.to_owned()).or_default().clone();
        Ok(Arc::new(File(bytes)))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(lock(&self.0).keys().cloned().collect())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let removed = lock(&self.0).remove(name);
        removed
            .map(drop)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync_directory(&self) -> io::Result<()> {
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = lock(&self.0);
        let bytes = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), bytes);
        Ok(())
    }
}

struct File(Bytes);

fn range(offset: u64, len: usize) -> io::Result<std::ops::Range<usize>> {
    match offset.checked_add(len as u64) {
        Some(end) if end <= FILE_BYTES_MAX => Ok(offset as usize..end as usize),
        _ => Err(io::ErrorKind::FileTooLarge.into()),
    }
}

impl DiskFile for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let bytes = lock(&self.0);
        let end = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let range = range(offset, buffer.len()).map_err(|_| end())?;
        buffer.copy_from_slice(bytes.get(range).ok_or_else(end)?);
        Ok(())
    }

    fn write_at(&self, new: &[u8], offset: u64) -> io::Result<()> {
        let mut bytes = lock(&self.0);
        let range = range(offset, new.len())?;
        if bytes.len() < range.end {
            bytes.resize(range.end, 0);
        }
        bytes[range].copy_from_slice(new);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(lock(&self.0).len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let len = range(len, 0)?.start;
        lock(&self.0).resize(len, 0);
        Ok(())
    }
}
