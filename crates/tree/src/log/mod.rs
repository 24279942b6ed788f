//! The write-ahead log: one frame per commit, written and synced by one thread for all committers.
//!
//! A position in the log is the number of bytes written since the store was created. The log
//! lies in segments, files named by the position of their first frame.

mod frame;
mod replay;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::disk::{Disk, DiskFile};
use crate::{Error, Result};
pub(crate) use frame::checksum_payload;
pub(crate) use replay::replay;

/// A new segment is started when one has this many bytes.
const SEGMENT_BYTES: u64 = 64 << 20;
/// Committers wait while this many bytes are not handed to the system.
const BUFFER_BYTES_MAX: usize = 8 << 20;
/// The log thread writes at the latest when it has this many bytes.
const WRITE_BYTES: usize = 1 << 20;

/// The open log.
pub(crate) struct Log {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    state: Mutex<State>,
    /// Wakes the log thread.
    work: Condvar,
    /// Wakes committers that wait for room or for a sync.
    progress: Condvar,
}

#[derive(Default)]
struct State {
    /// Frames that are not written yet.
    buffer: Vec<u8>,
    /// Position behind the last frame in `buffer`.
    end: u64,
    /// Everything before this position is handed to the system, or durable.
    written: u64,
    durable: u64,
    /// Somebody waits for this position to be durable.
    wanted: u64,
    /// Segments older than this position can go.
    keep_from: u64,
    failure: Option<String>,
    stop: bool,
}

impl Log {
    /// Opens the log for appending at `end`, in a new segment.
    pub(crate) fn open(disk: Arc<dyn Disk>, end: u64, interval: Duration) -> Result<Log> {
        let state = State {
            end,
            written: end,
            durable: end,
            ..State::default()
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            work: Condvar::new(),
            progress: Condvar::new(),
        });
        let mut writer = SegmentWriter::open(disk, end)?;
        let for_thread = shared.clone();
        let thread = std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || {
                let work = AssertUnwindSafe(|| run(&for_thread, &mut writer, interval));
                // A panic here would leave committers waiting for ever.
                if catch_unwind(work).is_err() {
                    for_thread.state.lock().failure = Some("a defect of the engine".to_owned());
                    for_thread.progress.notify_all();
                }
            })
            .map_err(Error::io("starting the log thread"))?;
        Ok(Log {
            shared,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Appends a frame and returns the position behind it. Called in the order of sequence numbers.
    pub(crate) fn append(&self, payload: &[u8], checksum: u64, sequence: u64) -> Result<u64> {
        let mut state = self.shared.state.lock();
        while state.buffer.len() > BUFFER_BYTES_MAX && state.failure.is_none() {
            self.shared.work.notify_one();
            self.shared.progress.wait(&mut state);
        }
        state.check()?;
        let position = state.end;
        let was_empty = state.buffer.is_empty();
        state.end += frame::append(&mut state.buffer, position, payload, checksum, sequence) as u64;
        if was_empty || state.buffer.len() >= WRITE_BYTES {
            self.shared.work.notify_one();
        }
        Ok(state.end)
    }

    /// The position behind the last frame.
    pub(crate) fn end(&self) -> u64 {
        self.shared.state.lock().end
    }

    /// Waits until everything before `position` is durable.
    pub(crate) fn wait_durable(&self, position: u64) -> Result<()> {
        let mut state = self.shared.state.lock();
        if state.durable < position && state.wanted < position {
            state.wanted = position;
            self.shared.work.notify_one();
        }
        while state.durable < position {
            state.check()?;
            self.shared.progress.wait(&mut state);
        }
        Ok(())
    }

    /// Allows segments that end at or before `position` to be deleted.
    pub(crate) fn release_before(&self, position: u64) {
        let mut state = self.shared.state.lock();
        state.keep_from = state.keep_from.max(position);
        self.shared.work.notify_one();
    }

    /// Writes and syncs what is left, and ends the thread.
    pub(crate) fn close(&self) -> Result<()> {
        let end = self.end();
        let synced = self.wait_durable(end);
        self.shared.state.lock().stop = true;
        self.shared.work.notify_one();
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
        synced
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let _ = self.close();
    }
}

impl State {
    fn check(&self) -> Result<()> {
        match &self.failure {
            Some(failure) => Err(Error::Closed(format!("the log failed: {failure}"))),
            None => Ok(()),
        }
    }
}

/// The log thread: gathers frames, writes them with one call, syncs on request and at each interval.
fn run(shared: &Shared, writer: &mut SegmentWriter, interval: Duration) {
    let mut next_sync = Instant::now() + interval;
    let mut spare = Vec::new();
    loop {
        let mut state = shared.state.lock();
        while !state.stop
            && state.wanted <= state.durable
            && state.buffer.len() < WRITE_BYTES
            && state.keep_from <= writer.kept_from
        {
            let is_dirty = state.end > state.durable;
            if is_dirty && Instant::now() >= next_sync {
                break;
            }
            if is_dirty {
                shared.work.wait_until(&mut state, next_sync);
            } else {
                shared.work.wait(&mut state);
                next_sync = Instant::now() + interval;
            }
        }
        let frames = std::mem::replace(&mut state.buffer, std::mem::take(&mut spare));
        let must_sync = state.wanted > state.durable || state.stop || Instant::now() >= next_sync;
        let (end, stop, keep_from) = (state.end, state.stop, state.keep_from);
        drop(state);

        let result = writer.write(&frames).and_then(|()| {
            if must_sync {
                next_sync = Instant::now() + interval;
                writer.sync()?;
            }
            writer.delete_before(keep_from)
        });
        spare = frames;
        spare.clear();
        if spare.capacity() > 4 * WRITE_BYTES {
            spare = Vec::new();
        }

        let mut state = shared.state.lock();
        match result {
            Ok(()) => {
                state.written = end;
                if must_sync {
                    state.durable = end;
                }
            }
            Err(error) => state.failure = Some(error.to_string()),
        }
        shared.progress.notify_all();
        if stop || state.failure.is_some() {
            return;
        }
    }
}

/// The name of the segment that starts at a position.
fn segment_name(start: u64) -> String {
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
fn segments(disk: &dyn Disk) -> Result<Vec<u64>> {
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

/// Writes frames to segments.
struct SegmentWriter {
    disk: Arc<dyn Disk>,
    file: Arc<dyn DiskFile>,
    /// Position of the current segment's first byte, and of the end.
    start: u64,
    end: u64,
    kept_from: u64,
}

impl SegmentWriter {
    fn open(disk: Arc<dyn Disk>, start: u64) -> Result<SegmentWriter> {
        let file = open_segment(&*disk, start)?;
        file.set_len(0)
            .map_err(Error::io("emptying a segment of the log"))?;
        Ok(SegmentWriter {
            disk,
            file,
            start,
            end: start,
            kept_from: 0,
        })
    }

    fn write(&mut self, frames: &[u8]) -> Result<()> {
        if frames.is_empty() {
            return Ok(());
        }
        if self.end - self.start >= SEGMENT_BYTES {
            // What a segment holds is durable before the next one exists, so only the last
            // segment may end in a torn frame.
            self.sync()?;
            self.file = open_segment(&*self.disk, self.end)?;
            self.start = self.end;
        }
        let context = || format!("writing {} bytes to the log", frames.len());
        self.file
            .write_at(frames, self.end - self.start)
            .map_err(Error::io(context()))?;
        self.end += frames.len() as u64;
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.file.sync().map_err(Error::io("syncing the log"))
    }

    fn delete_before(&mut self, position: u64) -> Result<()> {
        if position <= self.kept_from {
            return Ok(());
        }
        let starts = segments(&*self.disk)?;
        for pair in starts.windows(2) {
            if pair[1] <= position && pair[0] != self.start {
                let name = segment_name(pair[0]);
                self.disk
                    .remove(&name)
                    .map_err(Error::io(format!("deleting {name}")))?;
            }
        }
        self.kept_from = position;
        Ok(())
    }
}

fn open_segment(disk: &dyn Disk, start: u64) -> Result<Arc<dyn DiskFile>> {
    let name = segment_name(start);
    let file = disk
        .open(&name, false)
        .map_err(Error::io(format!("opening {name}")))?;
    disk.sync_directory()
        .map_err(Error::io("syncing the store's directory"))?;
    Ok(file)
}
