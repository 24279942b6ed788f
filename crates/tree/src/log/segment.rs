//! Segments: the files of the log, named by the position of their first group.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::entries::GroupPlace;
use super::frame::Frame;
use super::group::{self, Place, SealedEntry};
use super::sealing;
use crate::bytes::Writer;
use crate::disk::{Disk, DiskFile};
use crate::{Error, Result};

/// The upper limit of the segment size, in bytes.
const SEGMENT_BYTES_MAX: u64 = 64 << 20;
/// A compressed group's buffer is not kept when it is larger than this.
const PACKED_BYTES_MAX: usize = 4 << 20;
/// The file that becomes the next segment. It is empty and open, and has blocks.
const RESERVE_FILE: &str = "log-reserve.frond";
/// The most bytes that have room in it.
const RESERVE_BYTES_MAX: u64 = 8 << 20;

/// The name of the segment that starts at a position.
pub(crate) fn segment_name(start: u64) -> String {
    format!("log-{start:016x}.frond")
}

/// The start of the segment with this name.
pub(super) fn segment_start(name: &str) -> Option<u64> {
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

/// Opens a segment, if there is one that starts there.
pub(super) fn open_existing(disk: &dyn Disk, start: u64) -> Result<Option<Arc<dyn DiskFile>>> {
    if !segments(disk)?.contains(&start) {
        return Ok(None);
    }
    let name = segment_name(start);
    let file = disk.open(&name, false);
    file.map(Some).map_err(Error::io(format!("opening {name}")))
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

/// Why the log could not be written.
#[derive(Debug)]
pub(super) enum Failure {
    /// Nothing is lost, and the call may succeed later.
    Retryable(Error),
    /// A sync failed. The system may have dropped what it could not write, so another sync would prove nothing.
    Final(Error),
}

impl Failure {
    pub(super) fn error(&self) -> &Error {
        match self {
            Failure::Retryable(error) | Failure::Final(error) => error,
        }
    }

    pub(super) fn into_error(self) -> Error {
        match self {
            Failure::Retryable(error) | Failure::Final(error) => error,
        }
    }
}

fn retryable(context: impl Into<String>) -> impl FnOnce(io::Error) -> Failure {
    let error = Error::io(context);
    move |source| Failure::Retryable(error(source))
}

/// Writes groups to segments.
pub(super) struct SegmentWriter {
    disk: Arc<dyn Disk>,
    /// The current segment. `None` if the next group begins one: everything before is durable then.
    file: Option<Arc<dyn DiskFile>>,
    /// G1: position of the current segment's first group, at `end` or before.
    start: u64,
    /// Bytes in the current segment.
    len: u64,
    /// G2: whether a failed write may have left bytes behind them. They are removed before a segment is left.
    has_tail: bool,
    /// Position of the next group.
    end: u64,
    /// A new segment is started when one has this many bytes.
    segment_bytes: u64,
    /// G3: everything before this position is durable. It only grows, and is not behind `end`.
    pub(super) durable: u64,
    /// Position up to which segments were deleted.
    kept_from: u64,
    /// A group while it is compressed, and while it is encrypted.
    packed: Vec<u8>,
    sealed: Vec<u8>,
    /// Bytes written since the log was opened.
    written: Arc<AtomicU64>,
    /// [`RESERVE_FILE`], and how much room it gets. With it the next segment needs neither room nor a file handle.
    reserve: Option<Arc<dyn DiskFile>>,
    reserve_bytes: u64,
}

impl SegmentWriter {
    /// Will start a segment at `start`; everything before is durable.
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        start: u64,
        segment_bytes: usize,
        written: Arc<AtomicU64>,
    ) -> SegmentWriter {
        let segment_bytes = (segment_bytes as u64).min(SEGMENT_BYTES_MAX);
        SegmentWriter {
            disk,
            file: None,
            start,
            len: 0,
            has_tail: false,
            end: start,
            segment_bytes,
            durable: start,
            kept_from: 0,
            packed: Vec::new(),
            sealed: Vec::new(),
            written,
            reserve: None,
            reserve_bytes: segment_bytes.min(RESERVE_BYTES_MAX),
        }
    }

    /// Continues in a segment whose groups have `len` bytes and end at `end`, all of it durable.
    pub(super) fn resume(&mut self, file: Arc<dyn DiskFile>, start: u64, len: u64) {
        assert!(
            start <= self.end && self.file.is_none(),
            "G1: a segment begins behind the end of the log"
        );
        (self.file, self.start, self.len) = (Some(file), start, len);
    }

    /// Changes what [`SegmentWriter::new`] was given.
    pub(super) fn set_options(&mut self, segment_bytes: usize, written: Arc<AtomicU64>) {
        self.segment_bytes = (segment_bytes as u64).min(SEGMENT_BYTES_MAX);
        self.reserve_bytes = self.segment_bytes.min(RESERVE_BYTES_MAX);
        self.written = written;
    }

    /// Starts the segment of [`SegmentWriter::new`].
    pub(super) fn begin(&mut self) -> Result<(), Failure> {
        self.begin_segment().map(drop)
    }

    /// Writes frames, whose first operation has the number `sequence`, as one group. On a full disk the reserve is used.
    pub(super) fn write(&mut self, frames: &[u8], sequence: u64) -> Result<(), Failure> {
        if frames.is_empty() {
            return Ok(());
        }
        let mut packed = std::mem::take(&mut self.packed);
        let whole = group::seal(frames, &mut packed, self.place(sequence));
        let written = self.append(&[whole], true);
        if packed.len() <= PACKED_BYTES_MAX {
            self.packed = packed;
        }
        written?;
        assert!(
            !self.has_tail,
            "G2: bytes of a failed write stay in a group"
        );
        self.end += frames.len() as u64;
        Ok(())
    }

    /// Writes a frame as one group, or leaves nothing of it. On a full disk the reserve is used if the frame may do that.
    pub(super) fn write_frame(
        &mut self,
        frame: &Frame<'_>,
        may_use_reserve: bool,
    ) -> Result<(), Failure> {
        let bytes = frame.len();
        let place = self.place(frame.sequence);
        let parts = frame.parts();
        let written = if group::is_compressed(bytes) || bytes <= PACKED_BYTES_MAX {
            let mut frames = Vec::with_capacity(bytes);
            frames.put_u32(frame.payload_len() as u32);
            for part in parts {
                frames.extend_from_slice(part);
            }
            let mut packed = Vec::new();
            let whole = group::seal(&frames, &mut packed, place);
            self.append(&[whole], may_use_reserve)
        } else {
            let header = group::seal_large(frame, place);
            self.append(&[&header, parts[0], parts[1]], may_use_reserve)
        };
        if let Err(Failure::Retryable(error)) = written {
            // The caller gets an error for the commit, so a replay must not find it.
            self.cut_tail()
                .map_err(|failure| Failure::Final(failure.into_error()))?;
            return Err(Failure::Retryable(error));
        }
        written?;
        assert!(
            !self.has_tail,
            "G2: bytes of a failed write stay in a frame"
        );
        self.end += bytes as u64;
        Ok(())
    }

    /// Writes a whole group that is an entry of the replicated log. Returns where it is.
    pub(super) fn write_entry(&mut self, entry: &SealedEntry) -> Result<GroupPlace, Failure> {
        self.check_end(entry.header.position)?;
        let header = entry.header_with(self.durable);
        let body = &entry.bytes[header.len()..];
        let bytes = self.append(&[&header, body], true)?;
        assert!(
            !self.has_tail,
            "G2: bytes of a failed write stay in an entry"
        );
        self.end = entry.header.end();
        Ok(GroupPlace {
            segment: self.start,
            offset: self.len - bytes,
            bytes,
        })
    }

    /// Removes all groups from `position` on, durably. The group there is at `place`; without a place nothing is there.
    pub(super) fn truncate(
        &mut self,
        position: u64,
        place: Option<GroupPlace>,
    ) -> Result<(), Failure> {
        self.cut_tail()?;
        if let Some(place) = place {
            let context = || retryable("removing a part of the log");
            let starts = segments(&*self.disk).map_err(Failure::Retryable)?;
            for later in starts.into_iter().rev().filter(|at| *at > place.segment) {
                self.disk.remove(&segment_name(later)).map_err(context())?;
            }
            self.disk.sync_directory().map_err(context())?;
            if self.start != place.segment || self.file.is_none() {
                let file = open_existing(&*self.disk, place.segment).map_err(Failure::Retryable)?;
                (self.file, self.start) = (file, place.segment);
            }
            if let Some(file) = &self.file {
                file.set_len(place.offset).map_err(context())?;
            }
            self.len = place.offset;
        }
        assert!(
            self.start <= position && position <= self.end,
            "G1: the log is cut behind its end"
        );
        self.end = position;
        self.durable = self.durable.min(position);
        self.sync()
    }

    /// Position of the next group.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// The disk that has the segments.
    pub(super) fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// Fails unless the next frame is the one at `position`: a frame that was lost on the way must not go unnoticed.
    pub(super) fn check_end(&self, position: u64) -> Result<(), Failure> {
        if position == self.end {
            return Ok(());
        }
        let end = self.end;
        let text = format!("the log ends at {end}, and its next frame begins at {position}");
        Err(Failure::Final(Error::Closed(text)))
    }

    fn place(&self, sequence: u64) -> Place {
        assert!(
            self.durable <= self.end,
            "G3: a group says that later ones are durable"
        );
        assert!(sequence > 0, "G5: a group has no number");
        Place {
            position: self.end,
            durable: self.durable,
            sequence,
        }
    }

    /// Writes the parts of a group to the current segment, or to a new one, encrypted if the store is. Returns the bytes written.
    fn append(&mut self, parts: &[&[u8]], may_use_reserve: bool) -> Result<u64, Failure> {
        let Some(ciphers) = self.disk.ciphers().cloned() else {
            self.append_stored(parts, may_use_reserve)?;
            return Ok(parts.iter().map(|part| part.len() as u64).sum());
        };
        let mut sealed = std::mem::take(&mut self.sealed);
        sealing::seal(&ciphers, parts, &mut sealed).expect("it begins with a header");
        let written = self.append_stored(&[&sealed], may_use_reserve);
        let bytes = sealed.len() as u64;
        if sealed.capacity() <= PACKED_BYTES_MAX {
            self.sealed = sealed;
        }
        written.map(|()| bytes)
    }

    fn append_stored(&mut self, parts: &[&[u8]], may_use_reserve: bool) -> Result<(), Failure> {
        let file = match &self.file {
            Some(file) if self.len < self.segment_bytes => Arc::clone(file),
            _ => self.begin_segment()?,
        };
        match self.write_parts(&*file, parts) {
            Err(failure)
                if failure.error().is_disk_full() && may_use_reserve && self.reserve.is_some() =>
            {
                let file = self.begin_segment()?;
                self.write_parts(&*file, parts)
            }
            written => written,
        }
    }

    fn write_parts(&mut self, file: &dyn DiskFile, parts: &[&[u8]]) -> Result<(), Failure> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let mut at = self.len;
        self.has_tail = true;
        for part in parts.iter().filter(|part| !part.is_empty()) {
            file.write_at(part, at)
                .map_err(retryable(format!("writing {bytes} bytes to the log")))?;
            at += part.len() as u64;
        }
        assert!(
            at - self.len == bytes as u64,
            "G2: a group was written in part"
        );
        self.has_tail = false;
        self.len = at;
        self.written.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Removes what a failed write has left, durably.
    fn cut_tail(&mut self) -> Result<(), Failure> {
        if let Some(file) = self.file.clone().filter(|_| self.has_tail) {
            file.set_len(self.len)
                .map_err(retryable("truncating a segment of the log"))?;
            self.sync()?;
            self.has_tail = false;
        }
        Ok(())
    }

    /// Frees what is allocated behind the end of the current segment. It only costs space if that fails.
    pub(super) fn trim(&self) {
        if let Some(file) = self.file.as_ref().filter(|_| self.len < self.reserve_bytes) {
            let _ = file.set_len(self.len);
        }
    }

    /// Starts a segment at the end of the log. A segment is durable before the next one is created, so only the last
    /// segment may end in a torn group.
    fn begin_segment(&mut self) -> Result<Arc<dyn DiskFile>, Failure> {
        self.cut_tail()?;
        self.trim();
        self.sync()?;
        assert!(
            !self.has_tail && self.durable == self.end,
            "G3: a segment is left before it is durable"
        );
        assert!(
            self.end > self.start || self.len == 0,
            "G1: two segments begin at one position"
        );
        self.file = None;
        // From here on a replay may find the new segment, so the next group must be written to it.
        let name = segment_name(self.end);
        let file = match self.take_reserve(&name)? {
            Some(file) => file,
            None => (self.disk)
                .open(&name, false)
                .map_err(retryable(format!("opening {name}")))?,
        };
        let emptied = file.len().and_then(|len| match len {
            0 => Ok(()),
            _ => file.set_len(0),
        });
        emptied.map_err(retryable(format!("emptying {name}")))?;
        if let Err(error) = self.disk.sync_directory() {
            // The next try creates the file again, so that the system has that to make durable again.
            let _ = self.disk.remove(&name);
            return Err(retryable("syncing the store's directory")(error));
        }
        self.file = Some(Arc::clone(&file));
        (self.start, self.len, self.has_tail) = (self.end, 0, false);
        Ok(file)
    }

    /// Gives the reserve the name of a segment.
    fn take_reserve(&mut self, name: &str) -> Result<Option<Arc<dyn DiskFile>>, Failure> {
        let Some(file) = self.reserve.take() else {
            return Ok(None);
        };
        match self.disk.rename(RESERVE_FILE, name) {
            Ok(()) => Ok(Some(file)),
            // It is made again.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => {
                self.reserve = Some(file);
                Err(retryable(format!("renaming {RESERVE_FILE}"))(error))
            }
        }
    }

    /// Whether there is a reserve.
    pub(super) fn has_reserve(&self) -> bool {
        self.reserve.is_some()
    }

    /// Makes the reserve, if there is none.
    pub(super) fn make_reserve(&mut self) -> Result<()> {
        if self.reserve.is_some() {
            return Ok(());
        }
        let context = || Error::io(format!("allocating {RESERVE_FILE}"));
        let mut file = self.disk.open(RESERVE_FILE, false).map_err(context())?;
        if file.len().map_err(context())? > 0 {
            self.disk.remove(RESERVE_FILE).map_err(context())?;
            file = self.disk.open(RESERVE_FILE, false).map_err(context())?;
        }
        match file.allocate(self.reserve_bytes) {
            // The file handle alone is worth keeping.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {}
            Err(error) => {
                // Others need the room that was allocated.
                let _ = self.disk.remove(RESERVE_FILE);
                return Err(context()(error));
            }
            Ok(()) => {}
        }
        self.reserve = Some(file);
        Ok(())
    }

    /// Makes all that was written durable.
    pub(super) fn sync(&mut self) -> Result<(), Failure> {
        if let Some(file) = &self.file {
            let context = Error::io("syncing the log");
            file.sync()
                .map_err(|error| Failure::Final(context(error)))?;
        }
        assert!(
            self.durable <= self.end,
            "G3: the end of the log moves back"
        );
        self.durable = self.end;
        Ok(())
    }

    /// Starts a new segment if nothing in the current one is needed, so that it can be deleted too.
    pub(super) fn leave_segment(&mut self) -> Result<(), Failure> {
        if self.kept_from < self.end || self.len == 0 || self.file.is_none() {
            return Ok(());
        }
        self.begin_segment()?;
        self.delete();
        Ok(())
    }

    /// Deletes the segments that end at or before `position`, which a reader of the log may move back. One that cannot be
    /// deleted only costs space, and the next call retries.
    pub(super) fn delete_before(&mut self, position: u64) {
        if position != self.kept_from {
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
