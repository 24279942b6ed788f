//! The data file: extents of checksummed blocks.
//!
//! A block is a header of 16 bytes and a payload: XXH3-64 of all that follows, seeded with the
//! block's offset in the file, so that a misdirected write is detected too (8 bytes, little-endian),
//! length of the uncompressed payload (4), codec (1), three zeros, payload.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::disk::{ALIGNMENT, AlignedBuf, Disk, DiskFile};
use crate::fail_stop::{FailStop, step};
use crate::sealed::{BlockForm, Place};
use crate::space::{Extent, Space};
use crate::{Compression, Error, Result, compress};

/// Name of the data file.
pub const DATA_FILE: &str = "data.frond";
/// Size of a block's header in bytes.
pub(crate) const BLOCK_HEADER_BYTES: usize = 16;
/// The most bytes of one write; a multiple of the alignment.
const WRITE_BYTES: usize = 1 << 20;
/// The largest uncompressed payload: a page with the largest key and value, with room to spare.
const PAYLOAD_BYTES_MAX: usize = 1 << 30;

/// Most buffers that are kept for the next write.
const SPARE_WRITE_BUFFERS_MAX: usize = 2;

/// Larger buffers than this are not kept for the next read of a thread.
const SPARE_BYTES_MAX: usize = 256 << 10;

/// The number of other extents that are tried after one that cannot be written.
pub(crate) const OTHER_EXTENTS: usize = 2;

/// Smaller free ranges are not returned to the file system.
const PUNCH_BYTES_MIN: u64 = 64 << 10;

thread_local! {
    static SPARE_BUFFER: Cell<AlignedBuf> = Cell::default();
    static SPARE_PAYLOAD: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
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

    fn punch_from(&self, least: u64) {
        self.space.visit_free(least, |offset, len| {
            let punched = self.file.punch_hole(offset, len).is_ok();
            self.can_punch.store(punched, Ordering::Relaxed);
        });
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
        let len = self.len()?;
        // Others may allocate and write at any time, but not beyond `end` while it is held.
        self.space.with_end(|end| {
            if len > end && len - end >= least(len) {
                self.file
                    .set_len(end)
                    .map_err(Error::io(format!("truncating {DATA_FILE} to {end}")))?;
            }
            Ok(())
        })
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

/// The error for a damaged block of the data file.
pub(crate) fn corrupt(offset: u64, what: &'static str) -> Error {
    Error::Corrupt {
        file: DATA_FILE.to_owned(),
        offset,
        what,
    }
}

/// Fails for a payload that could not be read again.
pub(crate) fn check_payload(what: &'static str, payload: &[u8]) -> Result<()> {
    if payload.len() <= PAYLOAD_BYTES_MAX {
        return Ok(());
    }
    Err(Error::TooLarge {
        what,
        bytes: payload.len(),
        limit: PAYLOAD_BYTES_MAX,
    })
}

pub(crate) fn check_payload_bytes(payload: &[u8]) {
    assert!(
        payload.len() <= PAYLOAD_BYTES_MAX,
        "S8: a block is larger than what can be read again"
    );
}

/// Writes the checksum of a block for `offset`.
pub(crate) fn seal_block(block: &mut [u8], offset: u64) {
    let (checksum, rest) = block.split_at_mut(8);
    checksum.copy_from_slice(&xxh3_64_with_seed(rest, offset).to_le_bytes());
}

/// Checks the checksum of a block at `offset`.
pub(crate) fn check_block(block: &[u8], offset: u64) -> Result<()> {
    let sum = |rest| xxh3_64_with_seed(rest, offset).to_le_bytes();
    match block.split_at_checked(8) {
        Some((checksum, rest)) if checksum == sum(rest) => Ok(()),
        _ => Err(corrupt(offset, "the checksum of a block does not match")),
    }
}

/// Calls `visit` with the payload of a block that is not encrypted, and whose checksum was checked when it was read.
pub(crate) fn decode_checked<T>(
    block: &[u8],
    offset: u64,
    visit: impl FnOnce(&[u8]) -> T,
) -> Result<T> {
    let damaged = |what| corrupt(offset, what);
    let Some((header, stored)) = block.split_at_checked(BLOCK_HEADER_BYTES) else {
        return Err(damaged("a block is shorter than its header"));
    };
    let fields = &header[8..];
    let len = u32::from_le_bytes([fields[0], fields[1], fields[2], fields[3]]) as usize;
    if len > PAYLOAD_BYTES_MAX {
        return Err(damaged("the size of a block is impossible"));
    }
    let codec = Compression::from_code(fields[4]).ok_or(damaged("a block has an unknown codec"))?;
    if codec == Compression::None && len == stored.len() {
        return Ok(visit(stored));
    }
    let mut payload = SPARE_PAYLOAD.take();
    let result = match compress::decompress(codec, stored, len, &mut payload) {
        Some(()) => Ok(visit(&payload)),
        None => Err(damaged("a block does not decompress")),
    };
    if payload.len() <= SPARE_BYTES_MAX {
        SPARE_PAYLOAD.set(payload);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_of_a_block_is_noticed() {
        for codec in [Compression::None, Compression::Zstd, Compression::Lz4] {
            let payload = b"all that is stored carries a checksum ".repeat(4);
            let mut block = Vec::new();
            BlockForm::default().push(&mut block, codec, &payload);
            seal_block(&mut block, 8192);
            let form = BlockForm::default();
            let decode =
                |block: &[u8], offset| form.decode(block, Place::new(offset, 0), <[u8]>::to_vec);
            assert_eq!(decode(&block, 8192).unwrap(), payload);
            assert!(decode(&block, 4096).is_err(), "a block at the wrong place");
            for bit in 0..block.len() * 8 {
                block[bit / 8] ^= 1 << (bit % 8);
                assert!(decode(&block, 8192).is_err(), "bit {bit}");
                block[bit / 8] ^= 1 << (bit % 8);
            }
        }
        let short = BlockForm::default().decode(&[1, 2, 3], Place::new(0, 0), |_| ());
        assert!(short.is_err());
    }
}
