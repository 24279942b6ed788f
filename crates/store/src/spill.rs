//! Temporary files of queries, in a folder of their own in the data directory.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use frond_encryption::{Cipher, Key, Purpose, SEAL_BYTES, StoreKeys};
use frond_query::spill::{SpillFile, SpillSpace};

/// A folder of temporary files.
///
/// An open file is unlinked at once, so that nothing remains of it after the process ends,
/// even by a crash. In an encrypted store the blocks are encrypted, because they may reach the disk before: with a key that this
/// process alone has.
pub struct SpillFolder {
    path: PathBuf,
    next: AtomicU64,
    cipher: Option<Arc<Cipher>>,
}

impl std::fmt::Debug for SpillFolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SpillFolder")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl SpillFolder {
    /// The folder at `path`. Files of an earlier run are deleted. The folder is created on first
    /// use.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn open(path: &Path, encrypts: bool) -> io::Result<SpillFolder> {
        match std::fs::remove_dir_all(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let cipher = || {
            let keys = StoreKeys::single(Key::random()?);
            Cipher::new(&keys, Purpose::Temporary).map(Arc::new)
        };
        let cipher = encrypts.then(cipher).transpose();
        Ok(SpillFolder {
            path: path.to_owned(),
            next: AtomicU64::new(0),
            cipher: cipher.map_err(io::Error::other)?,
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
        Ok(Box::new(Blocks {
            file,
            number,
            end: 0,
            cipher: self.cipher.clone(),
        }))
    }
}

/// A file of compressed blocks, each preceded by its length, and by its seal if it is encrypted.
struct Blocks {
    file: File,
    number: u64,
    end: u64,
    cipher: Option<Arc<Cipher>>,
}

impl Blocks {
    /// The place of a block, which is authenticated with it: its file and its offset.
    fn context(&self, at: u64) -> [u8; 16] {
        let mut context = [0; 16];
        context[..8].copy_from_slice(&self.number.to_le_bytes());
        context[8..].copy_from_slice(&at.to_le_bytes());
        context
    }
}

impl SpillFile for Blocks {
    fn append(&mut self, block: &[u8]) -> io::Result<u64> {
        let at = self.end;
        let mut packed = lz4_flex::block::compress_prepend_size(block);
        if let Some(cipher) = &self.cipher {
            let seal = cipher.seal(&self.context(at), &mut packed);
            packed.extend_from_slice(&seal);
        }
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
        if let Some(cipher) = &self.cipher {
            let (content, seal) = packed
                .split_last_chunk_mut::<SEAL_BYTES>()
                .ok_or(io::ErrorKind::InvalidData)?;
            let opened = cipher.open(seal, &self.context(at), content);
            opened.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            packed.truncate(packed.len() - SEAL_BYTES);
        }
        lz4_flex::block::decompress_size_prepended(&packed)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_encrypted_file_has_nothing_of_its_blocks() {
        let directory = tempfile::tempdir().unwrap();
        let cipher = Cipher::new(
            &StoreKeys::single(Key::random().unwrap()),
            Purpose::Temporary,
        );
        let cipher = Some(Arc::new(cipher.unwrap()));
        for (cipher, is_encrypted) in [(None, false), (cipher, true)] {
            let path = directory.path().join(format!("{is_encrypted}"));
            let mut options = OpenOptions::new();
            let file = options.read(true).write(true).create_new(true).open(&path);
            let mut blocks = Blocks {
                file: file.unwrap(),
                number: 7,
                end: 0,
                cipher,
            };
            let places = [b"secret one", b"secret two"].map(|block| blocks.append(block).unwrap());
            let mut bytes = std::fs::read(&path).unwrap();
            let has_plain = bytes.windows(6).any(|part| part == b"secret");
            assert_eq!(has_plain, !is_encrypted);
            assert_eq!(blocks.read(places[1]).unwrap(), b"secret two");
            // Two blocks of one length change places.
            let (first, second) = bytes.split_at_mut(places[1] as usize);
            first.swap_with_slice(second);
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(blocks.read(places[0]).is_err(), is_encrypted);
        }
    }

    #[test]
    fn files_hold_blocks_and_leave_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("_tmp");
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("left"), "by a crash").unwrap();
        for encrypts in [false, true] {
            check(&SpillFolder::open(&path, encrypts).unwrap(), &path);
        }
    }

    fn check(folder: &SpillFolder, path: &Path) {
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
        assert_eq!(std::fs::read_dir(path).unwrap().count(), 0);
        std::fs::remove_dir(path).unwrap();
    }
}
