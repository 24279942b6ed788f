//! Temporary files of queries, in a folder of their own in the data directory.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use frond_query::spill::{SpillFile, SpillSpace};

/// A folder of temporary files.
///
/// An open file is unlinked at once, so that nothing remains of it after the process ends,
/// even by a crash.
#[derive(Debug)]
pub struct SpillFolder {
    path: PathBuf,
    next: AtomicU64,
}

impl SpillFolder {
    /// The folder at `path`. Files of an earlier run are deleted. The folder is created on first
    /// use.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn open(path: &Path) -> io::Result<SpillFolder> {
        match std::fs::remove_dir_all(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        Ok(SpillFolder {
            path: path.to_owned(),
            next: AtomicU64::new(0),
        })
    }
}

impl SpillSpace for SpillFolder {
    fn create(&self) -> io::Result<Box<dyn SpillFile>> {
        std::fs::create_dir_all(&self.path)?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = self.path.join(format!("extsort-{number}"));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)?;
        std::fs::remove_file(&path)?;
        Ok(Box::new(Blocks { file, end: 0 }))
    }
}

/// A file of compressed blocks, each preceded by its length.
struct Blocks {
    file: File,
    end: u64,
}

impl SpillFile for Blocks {
    fn append(&mut self, block: &[u8]) -> io::Result<u64> {
        let at = self.end;
        let packed = lz4_flex::block::compress_prepend_size(block);
        let length = u32::try_from(packed.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        self.file.write_all_at(&length.to_le_bytes(), at)?;
        self.file.write_all_at(&packed, at + 4)?;
        self.end = at + 4 + u64::from(length);
        Ok(at)
    }

    fn read(&mut self, at: u64) -> io::Result<Vec<u8>> {
        let mut length = [0; 4];
        self.file.read_exact_at(&mut length, at)?;
        let mut packed = vec![0; u32::from_le_bytes(length) as usize];
        self.file.read_exact_at(&mut packed, at + 4)?;
        lz4_flex::block::decompress_size_prepended(&packed)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn files_hold_blocks_and_leave_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("_tmp");
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("left"), "by a crash").unwrap();
        let folder = SpillFolder::open(&path).unwrap();
        assert!(!path.exists());
        let (mut one, mut two) = (folder.create().unwrap(), folder.create().unwrap());
        let blocks: Vec<Vec<u8>> = (0..20u8).map(|n| vec![n; 1000 * usize::from(n)]).collect();
        let places: Vec<u64> = blocks.iter().map(|b| one.append(b).unwrap()).collect();
        assert_eq!(two.append(b"x").unwrap(), 0);
        for (block, place) in blocks.iter().zip(places).rev() {
            assert_eq!(one.read(place).unwrap(), *block);
        }
        assert_eq!(two.read(0).unwrap(), b"x");
        assert!(two.read(7).is_err());
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
    }
}
