//! A part of a file in the memory of all processes that map it. One of the crate's modules with `unsafe`.

use std::fs::File;
use std::io;
use std::ptr::{NonNull, null_mut};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::SharedMap;

/// A shared mapping of a part of a file.
pub(super) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping owns its pages, like a boxed slice: they stay mapped until it is dropped, on whatever thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `len` bytes of a file from `offset` on, a multiple of the page size. The file must have these bytes, and
    /// keep them: an access behind the end of the file, or to a block that the file system cannot allocate, ends the
    /// process.
    pub(super) fn new(file: &File, offset: u64, len: usize) -> io::Result<Mapping> {
        let end = offset.checked_add(len as u64);
        if len == 0 || end.is_none_or(|end| file.metadata().map_or(0, |it| it.len()) < end) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping; no address is asked for, so it replaces nothing.
        let base = unsafe { mmap(null_mut(), len, access, MapFlags::SHARED, file, offset)? };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { base, len })
    }
}

impl SharedMap for Mapping {
    fn bytes(&self) -> &[u8] {
        // SAFETY: `new` mapped `len` readable bytes at `base`, which stay mapped as long as `self`. Only `write` changes
        // them, which borrows `self` exclusively: one process at a time has a store open, and it maps each part of the file
        // once.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        // SAFETY: as in `bytes`; the mapping is writable, and `self` is borrowed exclusively.
        let all = unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) };
        all[offset..offset + bytes.len()].copy_from_slice(bytes);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this very length, and no borrow of the bytes outlives `self`.
        // It cannot fail for a whole mapping.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, vec![7; 3 * 4096]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let mut mapping = Mapping::new(&file, 4096, 4096).unwrap();
        mapping.write(10, b"frame");
        drop(file);
        let mut expected = vec![7; 3 * 4096];
        expected[4096 + 10..4096 + 15].copy_from_slice(b"frame");
        assert_eq!(mapping.bytes(), &expected[4096..8192]);
        assert_eq!(std::fs::read(&path).unwrap(), expected);
        let file = File::options().read(true).write(true).open(&path).unwrap();
        assert!(Mapping::new(&file, 8192, 8192).is_err(), "behind the end");
        assert!(Mapping::new(&file, 0, 0).is_err());
    }
}
