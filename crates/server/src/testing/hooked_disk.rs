//! A disk on which a test decides what precedes the writes and the syncs of files.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use frond_store::disk::{Disk, DiskFile, FsDisk, SharedMap};

/// Called with the name of the file. It may wait, or return an error in place of the write or sync.
type Hook = Arc<dyn Fn(&str) -> io::Result<()> + Send + Sync>;

/// A disk with hooks.
pub struct HookedDisk {
    below: FsDisk,
    before_write: Hook,
    before_sync: Hook,
}

struct HookedFile {
    below: Arc<dyn DiskFile>,
    name: String,
    before_write: Hook,
    before_sync: Hook,
}

impl HookedDisk {
    /// A directory with hooks.
    pub fn new(
        directory: PathBuf,
        before_write: impl Fn(&str) -> io::Result<()> + Send + Sync + 'static,
        before_sync: impl Fn(&str) -> io::Result<()> + Send + Sync + 'static,
    ) -> Arc<HookedDisk> {
        Arc::new(HookedDisk {
            below: FsDisk::new(directory, false),
            before_write: Arc::new(before_write),
            before_sync: Arc::new(before_sync),
        })
    }
}

impl Disk for HookedDisk {
    fn open(&self, name: &str, direct: bool) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(HookedFile {
            below: self.below.open(name, direct)?,
            name: name.to_owned(),
            before_write: self.before_write.clone(),
            before_sync: self.before_sync.clone(),
        }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.below.list()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.below.remove(name)
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.below.sync_directory()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.below.rename(from, to)
    }

    fn map(&self, name: &str, offset: u64, bytes: usize) -> io::Result<Box<dyn SharedMap>> {
        self.below.map(name, offset, bytes)
    }
}

impl DiskFile for HookedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.below.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        (self.before_write)(&self.name)?;
        self.below.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        (self.before_sync)(&self.name)?;
        self.below.sync()
    }

    fn len(&self) -> io::Result<u64> {
        self.below.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.below.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.below.allocate(len)
    }
}
