//! Segments: the files of the log, named by the position of their first group.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::group;
use crate::disk::{Disk, DiskFile};
use crate::{Error, Result};

/// The upper limit of the segment size, in bytes.
const SEGMENT_BYTES_MAX: u64 = 64 << 20;
/// A compressed group's buffer is not kept when it is larger than this.
const PACKED_BYTES_MAX: usize = 4 << 20;

/// The name of the segment that starts at a position.
pub(super) fn segment_name(start: u64) -> String {
    format!("log-{start:016x}.frond")
}

/// The start of the segment with this name.
fn segment_start(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("log-")?.strip_suffix(".frond")?;
    if digits.len() != 16 {
        return None;
    }
    u64::from_str_radix(digits, 16).ok()
}

/// The segments of a disk, oldest first.
pub(super) fn segments(disk: &dyn Disk) -> Result<Vec<u64>> {
    let names = disk
        .list()
        .map_err(Error::io("listing the log's segments"))?;
    let mut starts: Vec<u64> = names
        .iter()
        .filter_map(|name| segment_start(name))
        .collect();
    starts.sort_unstable();
    Ok(starts)
}

pub(super) fn open_segment(disk: &dyn Disk, start: u64) -> Result<Arc<dyn DiskFile>> {
    let name = segment_name(start);
    let file = disk
        .open(&name, false)
        .map_err(Error::io(format!("opening {name}")))?;
    disk.sync_directory()
        .map_err(Error::io("syncing the store's directory"))?;
    Ok(file)
}

/// Writes groups to segments.
pub(super) struct SegmentWriter {
    disk: Arc<dyn Disk>,
    file: Arc<dyn DiskFile>,
    /// Position of the current segment's first group.
    start: u64,
    /// Bytes in the current segment.
    len: u64,
    /// Position of the next group.
    end: u64,
    /// A new segment is started when one has this many bytes.
    segment_bytes: u64,
    /// Everything before this position is durable.
    durable: u64,
    /// Position up to which segments were deleted.
    pub(super) kept_from: u64,
    /// A group while it is compressed.
    packed: Vec<u8>,
    /// Bytes written since the log was opened.
    written: Arc<AtomicU64>,
}

impl SegmentWriter {
    /// Starts a segment at `start`; everything before is durable.
    pub(super) fn open(
        disk: Arc<dyn Disk>,
        start: u64,
        segment_bytes: usize,
        written: Arc<AtomicU64>,
    ) -> Result<SegmentWriter> {
        let file = open_segment(&*disk, start)?;
        file.set_len(0)
            .map_err(Error::io("emptying a segment of the log"))?;
        Ok(SegmentWriter {
            disk,
            file,
            start,
            len: 0,
            end: start,
            segment_bytes: (segment_bytes as u64).min(SEGMENT_BYTES_MAX),
            durable: start,
            kept_from: 0,
            packed: Vec::new(),
            written,
        })
    }

    /// Writes a buffer of frames, whose first operation has the number `sequence`, as one group.
    pub(super) fn write(&mut self, buffer: &mut [u8], sequence: u64) -> Result<()> {
        if buffer.is_empty() {
            return Ok(());
        }
        if self.len >= self.segment_bytes {
            // A segment is durable before the next one is created, so only the last
            // segment may end in a torn group.
            self.sync()?;
            self.file = open_segment(&*self.disk, self.end)?;
            (self.start, self.len) = (self.end, 0);
        }
        let bytes = (buffer.len() - group::HEADER_BYTES) as u64;
        let whole = group::seal(buffer, &mut self.packed, self.end, self.durable, sequence);
        let context = || format!("writing {} bytes to the log", whole.len());
        self.file
            .write_at(whole, self.len)
            .map_err(Error::io(context()))?;
        self.written
            .fetch_add(whole.len() as u64, Ordering::Relaxed);
        self.len += whole.len() as u64;
        self.end += bytes;
        if self.packed.len() > PACKED_BYTES_MAX {
            self.packed = Vec::new();
        }
        Ok(())
    }

    /// Makes all that was written durable.
    pub(super) fn sync(&mut self) -> Result<()> {
        self.file.sync().map_err(Error::io("syncing the log"))?;
        self.durable = self.end;
        Ok(())
    }

    /// Starts a new segment if nothing in the current one is needed, so that it can be deleted too.
    pub(super) fn leave_segment(&mut self) {
        if self.kept_from < self.end || self.len == 0 {
            return;
        }
        match open_segment(&*self.disk, self.end) {
            Ok(file) => {
                self.file = file;
                (self.start, self.len) = (self.end, 0);
                self.delete();
            }
            // The new file may exist. A replay would read it, so the next group must be written to it.
            Err(_) => self.len = u64::MAX,
        }
    }

    /// Deletes the segments that end at or before `position`. One that cannot be deleted only costs space,
    /// and the next call retries.
    pub(super) fn delete_before(&mut self, position: u64) {
        if position > self.kept_from {
            self.kept_from = position;
            self.delete();
        }
    }

    fn delete(&self) {
        for pair in segments(&*self.disk).unwrap_or_default().windows(2) {
            if pair[1] <= self.kept_from && pair[0] != self.start {
                let _ = self.disk.remove(&segment_name(pair[0]));
            }
        }
    }
}
