//! A disk whose changes stay in memory, so that a store can be opened without a change to its files.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{ALIGNMENT, AlignedBuf, Disk, DiskFile};

/// A disk over another one that is only read. Writes stay in memory and are lost with the last handle.
pub struct OverlayDisk {
    below: Arc<dyn Disk>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    files: BTreeMap<String, Arc<OverlayFile>>,
    removed: BTreeSet<String>,
}

struct OverlayFile {
    below: Option<Arc<dyn DiskFile>>,
    content: Mutex<Content>,
}

/// The differences from the file below.
struct Content {
    len: u64,
    /// The file below counts up to here.
    below_len: u64,
    /// Blocks that were written, by their number.
    blocks: BTreeMap<u64, Box<[u8]>>,
}

impl OverlayDisk {
    /// An overlay without writes yet.
    pub fn new(below: Arc<dyn Disk>) -> OverlayDisk {
        OverlayDisk {
            below,
            state: Mutex::default(),
        }
    }

    /// The number of bytes of the files below that were truncated.
    pub(crate) fn cut_bytes(&self) -> u64 {
        let state = self.state.lock();
        let cut = |file: &Arc<OverlayFile>| {
            let len = file.below.as_ref().and_then(|below| below.len().ok());
            len.unwrap_or(0) - file.content.lock().below_len
        };
        state.files.values().map(cut).sum()
    }
}

impl Disk for OverlayDisk {
    fn open(&self, name: &str, direct: bool) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state.lock();
        if let Some(file) = state.files.get(name) {
            return Ok(file.clone());
        }
        let is_below =
            !state.removed.contains(name) && self.below.list()?.iter().any(|n| n == name);
        let below = if is_below {
            Some(self.below.open(name, direct)?)
        } else {
            None
        };
        let len = below.as_ref().map_or(Ok(0), |file| file.len())?;
        let content = Content {
            len,
            below_len: len,
            blocks: BTreeMap::new(),
        };
        let file = Arc::new(OverlayFile {
            below,
            content: Mutex::new(content),
        });
        state.files.insert(name.to_owned(), file.clone());
        Ok(file)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let state = self.state.lock();
        let mut names: BTreeSet<String> = self.below.list()?.into_iter().collect();
        names.retain(|name| !state.removed.contains(name));
        names.extend(state.files.keys().cloned());
        Ok(names.into_iter().collect())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        if !self.list()?.iter().any(|n| n == name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut state = self.state.lock();
        state.files.remove(name);
        state.removed.insert(name.to_owned());
        Ok(())
    }

    fn sync_directory(&self) -> io::Result<()> {
        Ok(())
    }

    fn ciphers(&self) -> Option<&Arc<frond_encryption::Ciphers>> {
        self.below.ciphers()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        if !self.list()?.iter().any(|name| name == from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.open(from, false)?;
        let mut state = self.state.lock();
        if let Some(file) = state.files.remove(from) {
            state.files.insert(to.to_owned(), file);
        }
        state.removed.insert(from.to_owned());
        Ok(())
    }
}

impl OverlayFile {
    /// The current content of a block.
    fn block(&self, content: &Content, number: u64) -> io::Result<AlignedBuf> {
        let mut block = AlignedBuf::with_capacity(ALIGNMENT);
        if let Some(bytes) = content.blocks.get(&number) {
            block.extend_from_slice(bytes);
            return Ok(block);
        }
        let start = number * ALIGNMENT as u64;
        let len = content
            .below_len
            .saturating_sub(start)
            .min(ALIGNMENT as u64);
        block.resize(len as usize);
        if let Some(below) = self.below.as_ref().filter(|_| len > 0) {
            below.read_at(&mut block, start)?;
        }
        block.resize(ALIGNMENT);
        Ok(block)
    }
}

/// The blocks that a range touches: number, range in the block, range in the caller's bytes.
fn touched(
    offset: u64,
    len: usize,
) -> impl Iterator<Item = (u64, std::ops::Range<usize>, std::ops::Range<usize>)> {
    let unit = ALIGNMENT as u64;
    let end = offset + len as u64;
    (offset / unit..end.div_ceil(unit)).map(move |number| {
        let start = (number * unit).max(offset);
        let stop = ((number + 1) * unit).min(end);
        let inside = (start - number * unit) as usize..(stop - number * unit) as usize;
        (
            number,
            inside,
            (start - offset) as usize..(stop - offset) as usize,
        )
    })
}

impl DiskFile for OverlayFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let content = self.content.lock();
        let end = offset + buffer.len() as u64;
        if end > content.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let unit = ALIGNMENT as u64;
        let mut written = content.blocks.range(offset / unit..end.div_ceil(unit));
        if let Some(below) = &self.below
            && end <= content.below_len
            && written.next().is_none()
        {
            drop(content);
            return below.read_at(buffer, offset);
        }
        for (number, inside, outside) in touched(offset, buffer.len()) {
            buffer[outside].copy_from_slice(&self.block(&content, number)?[inside]);
        }
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut content = self.content.lock();
        for (number, inside, outside) in touched(offset, bytes.len()) {
            let mut block = self.block(&content, number)?;
            block[inside].copy_from_slice(&bytes[outside]);
            content.blocks.insert(number, (*block).into());
        }
        content.len = content.len.max(offset + bytes.len() as u64);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.content.lock().len)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut content = self.content.lock();
        let first_gone = len.div_ceil(ALIGNMENT as u64);
        content.blocks.split_off(&first_gone);
        if let Some(last) = content.blocks.get_mut(&(len / ALIGNMENT as u64)) {
            last[(len % ALIGNMENT as u64) as usize..].fill(0);
        }
        content.below_len = content.below_len.min(len);
        content.len = len;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    use super::*;
    use crate::disk::FsDisk;

    #[test]
    fn shows_changes_and_leaves_the_files_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let mut model: Vec<u8> = (0..20_000u32).map(|i| i as u8).collect();
        std::fs::write(&path, &model).unwrap();
        let below = Arc::new(FsDisk::read_only(directory.path().to_owned()));
        assert!(below.open("other", false).is_err());
        let disk = OverlayDisk::new(below);
        let file = disk.open("file", false).unwrap();
        let mut random = SmallRng::seed_from_u64(1);
        let mut below_of = |limit: usize| random.random_range(0..limit.max(1));
        for step in 0..2000 {
            let (at, len) = (below_of(30_000), below_of(9000));
            match step % 5 {
                0 => {
                    file.set_len(at as u64).unwrap();
                    model.resize(at, 0);
                }
                1 | 2 => {
                    file.write_at(&vec![step as u8; len], at as u64).unwrap();
                    model.resize(model.len().max(at + len), 0);
                    model[at..at + len].fill(step as u8);
                }
                _ => {
                    let mut bytes = vec![0; len];
                    let read = file.read_at(&mut bytes, at as u64);
                    assert_eq!(read.is_ok(), at + len <= model.len());
                    if read.is_ok() {
                        assert_eq!(bytes, model[at..at + len]);
                    }
                }
            }
            assert_eq!(file.len().unwrap(), model.len() as u64);
        }
        disk.open("new", false).unwrap().write_at(b"x", 0).unwrap();
        assert_eq!(disk.list().unwrap(), ["file", "new"]);
        disk.rename("file", "moved").unwrap();
        assert_eq!(disk.list().unwrap(), ["moved", "new"]);
        let moved = disk.open("moved", false).unwrap();
        assert_eq!(moved.len().unwrap(), model.len() as u64);
        disk.remove("moved").unwrap();
        assert_eq!(disk.list().unwrap(), ["new"]);
        assert!(disk.remove("file").is_err() && disk.rename("file", "other").is_err());
        assert_eq!(disk.open("file", false).unwrap().len().unwrap(), 0);
        let untouched: Vec<u8> = (0..20_000u32).map(|i| i as u8).collect();
        assert_eq!(std::fs::read(&path).unwrap(), untouched);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
