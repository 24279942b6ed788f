//! The data file: extents of blocks.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

pub use crate::block::DATA_FILE;
use crate::block::{BlockForm, Place};
pub(crate) use crate::block::{check_block, check_payload, corrupt, decode_checked, payload_bytes};
use crate::disk::{ALIGNMENT, AlignedBuf, Disk, DiskFile};
use crate::fail_stop::{FailStop, step};
use crate::space::{Extent, Space};
use crate::{Error, Result};

/// The most bytes of one write; a multiple of the alignment.
const WRITE_BYTES: usize = 1 << 20;
/// Most buffers that are kept for the next write.
const SPARE_WRITE_BUFFERS_MAX: usize = 2;

/// Larger buffers than this are not kept for the next read of a thread.
const SPARE_BYTES_MAX: usize = 256 << 10;

/// The number of other extents that are tried after one that cannot be written.
pub(crate) const OTHER_EXTENTS: usize = 2;

/// Smaller free ranges are not returned to the file system.
const PUNCH_BYTES_MIN: u64 = 64 << 10;

/// The most bytes that are freed at a time. While a file system frees space of a file, it blocks direct reads of that file: for half
/// a second if it frees some hundred megabytes and also discards them on the device.
const FREED_BYTES_MAX: u64 = 16 << 20;

thread_local! {
    static SPARE_BUFFER: Cell<AlignedBuf> = Cell::default();
    static READS: Cell<u64> = const { Cell::new(0) };
}

/// Reads of the device by this thread.
pub(crate) fn reads_of_thread() -> u64 {
    READS.get()
}

/// The open data file and its allocator.
///
/// S7: writes are aligned and stay inside of their extent, or inside of the slot of a superblock.
pub(crate) struct DataFile {
    file: Arc<dyn DiskFile>,
    /// The form of the blocks.
    pub(crate) form: BlockForm,
    pub(crate) space: Arc<Space>,
    reads: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    /// Buffers for reuse: the system has to zero newly allocated memory each time.
    write_buffers: Mutex<Vec<AlignedBuf>>,
    /// Extents that could not be written, kept so that nothing else is written there.
    unwritable: Mutex<Vec<Arc<Extent>>>,
    /// Whether the last hole could be punched.
    can_punch: AtomicBool,
    /// Why no more writes are allowed.
    failure: OnceLock<String>,
}

impl DataFile {
    /// The data file of a disk.
    pub(crate) fn new(disk: &dyn Disk, file: Arc<dyn DiskFile>) -> DataFile {
        let form = BlockForm::new(disk.ciphers());
        let space = if form.is_encrypted() {
            Space::with_unique_births(disk.unique_name())
        } else {
            Space::new()
        };
        DataFile {
            file,
            form,
            space,
            reads: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            write_buffers: Mutex::default(),
            unwritable: Mutex::default(),
            can_punch: AtomicBool::new(true),
            failure: OnceLock::new(),
        }
    }

    /// Reads, reads' bytes and written bytes since the store was opened.
    pub(crate) fn io_stats(&self) -> (u64, u64, u64) {
        let figure = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (
            figure(&self.reads),
            figure(&self.read_bytes),
            figure(&self.written_bytes),
        )
    }

    /// Reads at least `offset..offset + len` into `buffer`; the range starts at the returned index.
    pub(crate) fn read(&self, offset: u64, len: usize, buffer: &mut AlignedBuf) -> Result<usize> {
        let start = offset / ALIGNMENT as u64 * ALIGNMENT as u64;
        let skip = (offset - start) as usize;
        let aligned = (skip + len).next_multiple_of(ALIGNMENT);
        buffer.resize(aligned);
        self.reads.fetch_add(1, Ordering::Relaxed);
        READS.set(READS.get() + 1);
        self.read_bytes.fetch_add(aligned as u64, Ordering::Relaxed);
        self.file
            .read_at(&mut buffer[..aligned], start)
            .map_err(|source| Error::Unreadable {
                file: DATA_FILE.to_owned(),
                offset,
                bytes: len,
                source,
            })?;
        Ok(skip)
    }

    /// Whether a block of an encrypted store has an older store key or is unencrypted.
    pub(crate) fn has_old_form(&self, place: Place) -> Result<bool> {
        if !self.form.is_encrypted() {
            return Ok(false);
        }
        // An unencrypted block at the end of the file may be shorter than the head of an encrypted one.
        let room = (self.space).with_end(|end| end.saturating_sub(place.offset));
        let wanted = self.form.head_bytes().min(room as usize);
        let mut buffer = AlignedBuf::default();
        let at = self.read(place.offset, wanted, &mut buffer)?;
        self.form.is_old(&buffer[at..], place.offset)
    }

    /// Writes bytes at the start of an extent, padded with zeros.
    pub(crate) fn write(&self, extent: &Extent, bytes: &[u8]) -> Result<()> {
        assert!(
            bytes.len() as u64 <= extent.len,
            "S7: a write is larger than its extent"
        );
        let spare = self.write_buffers.lock().pop();
        let mut buffer = spare
            .unwrap_or_else(|| AlignedBuf::with_capacity(WRITE_BYTES.min(extent.len as usize)));
        let mut offset = extent.offset;
        for chunk in bytes.chunks(WRITE_BYTES) {
            buffer.clear();
            buffer.extend_from_slice(chunk);
            buffer.pad();
            self.write_raw(&buffer, offset)?;
            offset += buffer.len() as u64;
        }
        assert!(
            offset <= extent.offset + extent.len,
            "S7: a write ends behind its extent"
        );
        let mut spare = self.write_buffers.lock();
        if spare.len() < SPARE_WRITE_BUFFERS_MAX {
            spare.push(buffer);
        }
        Ok(())
    }

    /// Completes blocks for the extent that they get, and writes them. `starts` are their starts in `blocks`. References to them have
    /// the birth `birth`, or that of the extent. An extent that cannot be written is not handed out again if another one can.
    pub(crate) fn write_new(
        &self,
        blocks: &mut [u8],
        starts: &[usize],
        birth: Option<u64>,
    ) -> Result<Arc<Extent>> {
        let mut failed = Vec::new();
        loop {
            let extent = self.space.allocate(blocks.len());
            let place = Place::new(extent.offset, birth.unwrap_or(extent.birth));
            let mut end = blocks.len();
            for start in starts.iter().rev() {
                self.form
                    .seal(&mut blocks[*start..end], place.plus(*start as u64));
                end = *start;
            }
            match self.write(&extent, blocks) {
                Ok(()) => {
                    self.set_aside(failed);
                    return Ok(extent);
                }
                Err(error) if error.is_bad_place() && failed.len() < OTHER_EXTENTS => {
                    failed.push(extent);
                    let mut end = blocks.len();
                    for start in starts.iter().rev() {
                        self.form
                            .unseal(&mut blocks[*start..end], place.plus(*start as u64))?;
                        end = *start;
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Keeps extents that could not be written, so that nothing else is written there until the store is closed.
    pub(crate) fn set_aside(&self, mut extents: Vec<Arc<Extent>>) {
        if !extents.is_empty() {
            // The next open may try them again.
            self.space.note_leaks();
            self.unwritable.lock().append(&mut extents);
        }
    }

    /// Writes aligned bytes. The write may be retried, there or elsewhere.
    pub(crate) fn write_raw(&self, bytes: &AlignedBuf, offset: u64) -> Result<()> {
        assert!(
            offset.is_multiple_of(ALIGNMENT as u64) && bytes.len().is_multiple_of(ALIGNMENT),
            "S7: a write is not aligned"
        );
        self.check_writable()?;
        self.written_bytes
            .fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.file.write_at(bytes, offset).map_err(|error| {
            let context = format!("writing {} bytes of {DATA_FILE} at {offset}", bytes.len());
            Error::io(context)(error)
        })
    }

    /// Makes all writes durable. A failure is permanent: the system may have dropped the data that it could not
    /// write, and would report the next sync as a success.
    pub(crate) fn sync(&self) -> Result<()> {
        self.check_writable()?;
        let guard = FailStop::begin("syncing the data file");
        let synced = self.file.sync();
        step("the data file is synced");
        let result = synced.map_err(|error| {
            let _ = self.failure.set(format!("syncing {DATA_FILE}: {error}"));
            Error::io(format!("syncing {DATA_FILE}"))(error)
        });
        guard.finish();
        result
    }

    /// Why no more writes are allowed, if so.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    fn check_writable(&self) -> Result<()> {
        match self.failure.get() {
            Some(failure) => Err(Error::Closed(failure.clone())),
            None => Ok(()),
        }
    }

    pub(crate) fn len(&self) -> Result<u64> {
        self.file
            .len()
            .map_err(Error::io(format!("getting the length of {DATA_FILE}")))
    }

    /// Returns free space inside the file to the file system by punching holes. Failures only cost space, so they are
    /// no errors.
    pub(crate) fn punch_free(&self) {
        self.punch_from(PUNCH_BYTES_MIN);
    }

    /// Clears all free space, by holes or, where the file system has none, by zeros.
    pub(crate) fn clear_free(&self) -> Result<()> {
        let mut zeros = AlignedBuf::with_capacity(WRITE_BYTES);
        zeros.resize(WRITE_BYTES);
        let mut result = Ok(());
        self.space.visit_free(ALIGNMENT as u64, |offset, len| {
            if result.is_err() || self.punch(offset, len).is_ok() {
                return;
            }
            let mut at = offset;
            while at < offset + len && result.is_ok() {
                let part = zeros.len().min((offset + len - at) as usize);
                let written = self.file.write_at(&zeros[..part], at);
                result = written.map_err(Error::io(format!("clearing {DATA_FILE} at {at}")));
                at += part as u64;
            }
        });
        result
    }

    fn punch_from(&self, least: u64) {
        self.space.visit_free(least, |offset, len| {
            let punched = self.punch(offset, len).is_ok();
            self.can_punch.store(punched, Ordering::Relaxed);
        });
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        let end = offset + len;
        let mut starts = (offset..end).step_by(FREED_BYTES_MAX as usize);
        starts.try_for_each(|at| self.file.punch_hole(at, FREED_BYTES_MAX.min(end - at)))
    }

    /// Whether free space inside the file returns to the file system, as far as is known.
    pub(crate) fn can_punch(&self) -> bool {
        self.can_punch.load(Ordering::Relaxed)
    }

    /// Truncates the file when at least an eighth of it (and 16 MiB) is unused at its end.
    pub(crate) fn cut(&self) -> Result<()> {
        self.cut_from(|len| (len / 8).max(16 << 20))
    }

    /// Returns all that is free to the file system, also at the end of the file.
    pub(crate) fn return_free(&self) -> Result<()> {
        self.punch_from(ALIGNMENT as u64);
        self.cut_from(|_| 1)
    }

    /// Truncates the file when at least so many bytes are unused at its end, depending on its length.
    fn cut_from(&self, least: impl Fn(u64) -> u64) -> Result<()> {
        let mut least = least(self.len()?);
        // Others may allocate and write at any time, but not beyond `end` while it is held.
        while self.space.with_end(|end| self.cut_step(end, least))? {
            least = 1;
        }
        Ok(())
    }

    /// Truncates the file by one step if it has at least `least` bytes beyond `end`. Returns whether it did.
    fn cut_step(&self, end: u64, least: u64) -> Result<bool> {
        let len = self.len()?;
        if len.saturating_sub(end) < least {
            return Ok(false);
        }
        let to = end.max(len.saturating_sub(FREED_BYTES_MAX));
        let cut = self.file.set_len(to);
        cut.map_err(Error::io(format!("truncating {DATA_FILE} to {to}")))?;
        Ok(true)
    }

    /// Reads the block at `place` of `len` bytes and calls `visit` with its payload.
    pub(crate) fn read_block<T>(
        &self,
        place: Place,
        len: usize,
        visit: impl FnOnce(&[u8]) -> T,
    ) -> Result<T> {
        self.read_stored(place.offset, len, |block| {
            self.form.decode(block, place, visit)
        })
    }

    /// Reads `len` bytes at `offset` and calls `visit` with them, which nothing has checked.
    pub(crate) fn read_stored<T>(
        &self,
        offset: u64,
        len: usize,
        visit: impl FnOnce(&[u8]) -> Result<T>,
    ) -> Result<T> {
        let mut buffer = SPARE_BUFFER.take();
        let result = self
            .read(offset, len, &mut buffer)
            .and_then(|skip| visit(&buffer[skip..skip + len]));
        if buffer.len() <= SPARE_BYTES_MAX {
            SPARE_BUFFER.set(buffer);
        }
        result
    }
}

/// The length of the extent of a block that has one of its own.
pub(crate) fn block_extent(len: u32) -> u64 {
    u64::from(len).next_multiple_of(ALIGNMENT as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::FsDisk;

    /// A file that only has a length, and records how much of it is freed at a time.
    #[derive(Default)]
    struct FreedFile {
        len: AtomicU64,
        cut: Mutex<Vec<u64>>,
        holes: Mutex<Vec<(u64, u64)>>,
    }

    impl DiskFile for FreedFile {
        fn read_at(&self, _buffer: &mut [u8], _offset: u64) -> io::Result<()> {
            Ok(())
        }

        fn write_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<()> {
            Ok(())
        }

        fn sync(&self) -> io::Result<()> {
            Ok(())
        }

        fn len(&self) -> io::Result<u64> {
            Ok(self.len.load(Ordering::Relaxed))
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            let before = self.len.swap(len, Ordering::Relaxed);
            self.cut.lock().push(before - len);
            Ok(())
        }

        fn punch_hole(&self, offset: u64, len: u64) -> io::Result<()> {
            self.holes.lock().push((offset, len));
            Ok(())
        }
    }

    /// Reads waited for half a second while several hundred megabytes were cut off.
    #[test]
    fn space_returns_to_the_file_system_in_small_parts() {
        const M: u64 = 1 << 20;
        let directory = tempfile::tempdir().unwrap();
        let disk = FsDisk::new(directory.path().to_owned(), false);
        let file = Arc::new(FreedFile::default());
        let data = DataFile::new(&disk, file.clone());
        let start = data.space.allocate(M as usize);
        let inner = data.space.allocate(40 * M as usize);
        let last = data.space.allocate(M as usize);
        let tail = data.space.allocate(100 * M as usize);
        let (inner_at, end) = (inner.offset, tail.offset);
        file.len.store(end + 100 * M, Ordering::Relaxed);
        drop((inner, tail));
        for generation in 1..3 {
            data.space.checkpoint_captured(&[]);
            data.space.checkpoint_durable(generation);
        }
        data.punch_free();
        let holes = [(0, 16), (16, 16), (32, 8)].map(|(at, len)| (inner_at + at * M, len * M));
        assert_eq!(*file.holes.lock(), holes);
        data.cut().unwrap();
        assert_eq!(
            *file.cut.lock(),
            [16, 16, 16, 16, 16, 16, 4].map(|len| len * M)
        );
        assert_eq!(file.len().unwrap(), end);
        drop((start, last));
    }
}
