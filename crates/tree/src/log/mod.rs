//! The write-ahead log: one frame per commit, written in groups and synced by one thread for all committers.
//!
//! A position in the log is the number of bytes of frames since the store was created, before compression.
//! The log is stored in segments: files named by the position of their first group.

mod group;
mod replay;
mod segment;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::disk::Disk;
use crate::error::PANICKED;
use crate::{Error, Result};
use group::{BUFFER_BYTES_MAX, PAYLOAD_BYTES_MAX};
pub(crate) use replay::{check_passed, oldest_position, replay};
use segment::SegmentWriter;

/// The log thread writes as soon as it has this many bytes.
const WRITE_BYTES: usize = 1 << 20;

/// A larger buffer is not kept for reuse.
const SPARE_BYTES_MAX: usize = BUFFER_BYTES_MAX + group::GROWTH_BYTES;

/// Large buffers are freed after this time without commits.
const KEPT_FOR: Duration = Duration::from_secs(1);

/// Without a log thread, the log is written with every commit of this number.
const INLINE_FRAMES: u64 = 16;

/// The open log.
pub(crate) struct Log {
    shared: Arc<Shared>,
    /// `None` while the log thread, if there is one, owns it.
    writer: Mutex<Option<SegmentWriter>>,
    is_inline: bool,
    thread: Mutex<Option<JoinHandle<()>>>,
    written: Arc<AtomicU64>,
}

struct Shared {
    state: Mutex<State>,
    /// Wakes the log thread.
    work: Condvar,
    /// Wakes committers that wait for space in the buffer or for a sync.
    progress: Condvar,
}

#[derive(Default)]
struct State {
    /// The frames that are not written yet, as a group, and the sequence number of the first operation.
    buffer: Vec<u8>,
    sequence: u64,
    /// Frames in it.
    frames: u64,
    /// Position after the last frame in `buffer`.
    end: u64,
    /// Everything before this position is durable.
    durable: u64,
    /// A committer waits until this position is durable.
    wanted: u64,
    /// Segments before this position can be deleted.
    keep_from: u64,
    /// Whether to start a new segment, so that the current one can be deleted when it is not needed any more.
    leave_segment: bool,
    failure: Option<String>,
    stop: bool,
}

impl Log {
    /// Opens the log for appending at `end`, in a new segment of about `segment_bytes`. It is synced at each
    /// `interval`; without one there is no log thread, and committers write and sync.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        end: u64,
        interval: Option<Duration>,
        segment_bytes: usize,
    ) -> Result<Log> {
        let state = State {
            end,
            durable: end,
            ..State::default()
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            work: Condvar::new(),
            progress: Condvar::new(),
        });
        let written = Arc::default();
        let mut writer = SegmentWriter::open(disk, end, segment_bytes, Arc::clone(&written))?;
        let Some(interval) = interval else {
            return Ok(Log {
                shared,
                writer: Mutex::new(Some(writer)),
                is_inline: true,
                thread: Mutex::new(None),
                written,
            });
        };
        let for_thread = shared.clone();
        let thread = std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || {
                let work = AssertUnwindSafe(|| run(&for_thread, &mut writer, interval));
                // A panic here would leave committers waiting for ever.
                if catch_unwind(work).is_err() {
                    for_thread.state.lock().failure = Some(PANICKED.to_owned());
                    for_thread.progress.notify_all();
                }
            })
            .map_err(Error::io("starting the log thread"))?;
        Ok(Log {
            shared,
            writer: Mutex::new(None),
            is_inline: false,
            thread: Mutex::new(Some(thread)),
            written,
        })
    }

    /// Appends a frame and returns the position after it. Called in the order of sequence numbers. A frame that
    /// `may_use_reserve` frees space: it is taken on a full disk too, as long as the log's reserve lasts.
    ///
    /// # Errors
    /// After an error nothing was appended. [`Error::Stalled`] if the log cannot be written for now.
    pub(crate) fn append(
        &self,
        payload: &[u8],
        sequence: u64,
        _may_use_reserve: bool,
    ) -> Result<u64> {
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Err(Error::TooLarge {
                what: "write set",
                bytes: payload.len(),
                limit: PAYLOAD_BYTES_MAX,
            });
        }
        let mut state = self.shared.state.lock();
        while !self.is_inline && state.buffer.len() > BUFFER_BYTES_MAX && state.failure.is_none() {
            self.shared.work.notify_one();
            self.shared.progress.wait(&mut state);
        }
        state.check()?;
        if state.stop {
            return Err(Error::Closed("close was called".to_owned()));
        }
        let was_empty = state.buffer.is_empty();
        if was_empty {
            state.sequence = sequence;
        }
        state.end += group::push_frame(&mut state.buffer, payload) as u64;
        state.frames += 1;
        let end = state.end;
        let is_due = state.buffer.len() >= WRITE_BYTES || state.frames >= INLINE_FRAMES;
        if !self.is_inline && (was_empty || state.buffer.len() >= WRITE_BYTES) {
            self.shared.work.notify_one();
        }
        drop(state);
        if self.is_inline && is_due {
            // The frame is in the buffer, so this commit continues; the next one gets the error.
            let _ = self.write_inline(false);
        }
        Ok(end)
    }

    /// Writes the buffer, syncs and deletes old segments, in place of the log thread.
    fn write_inline(&self, must_sync: bool) -> Result<()> {
        let mut slot = self.writer.lock();
        let Some(writer) = &mut *slot else {
            return Ok(());
        };
        let mut state = self.shared.state.lock();
        state.check()?;
        let mut buffer = std::mem::take(&mut state.buffer);
        state.frames = 0;
        let (end, keep_from, sequence) = (state.end, state.keep_from, state.sequence);
        let leave_segment = std::mem::take(&mut state.leave_segment);
        drop(state);
        let mut result = writer.write(&mut buffer, sequence);
        if result.is_ok() && must_sync {
            result = writer.sync();
        }
        if result.is_ok() {
            writer.delete_before(keep_from);
            if leave_segment {
                writer.leave_segment();
            }
        }
        let mut state = self.shared.state.lock();
        match &result {
            Ok(()) if must_sync => state.durable = end,
            Ok(()) => {}
            Err(error) => state.failure = Some(error.to_string()),
        }
        result
    }

    /// The position after the last frame.
    pub(crate) fn end(&self) -> u64 {
        self.shared.state.lock().end
    }

    /// Bytes written to segments since the log was opened.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Waits until everything before `position` is durable.
    pub(crate) fn wait_durable(&self, position: u64) -> Result<()> {
        if self.is_inline {
            if self.shared.state.lock().durable < position {
                self.write_inline(true)?;
            }
            return Ok(());
        }
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
        drop(state);
        self.shared.work.notify_one();
        if self.is_inline {
            // The next commit gets a failure.
            let _ = self.write_inline(false);
        }
    }

    /// Deletes the current segment too, if it is not needed any more.
    pub(crate) fn leave_segment(&self) {
        self.shared.state.lock().leave_segment = true;
        self.shared.work.notify_one();
        if self.is_inline {
            let _ = self.write_inline(false);
        }
    }

    /// Tells the log that there may be room or file handles again: it writes at once what it could not write before.
    #[allow(dead_code, reason = "nothing frees space for the log yet")]
    pub(crate) fn retry_now(&self) {
        self.shared.work.notify_one();
    }

    /// Writes and syncs the rest, and ends the thread.
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
            && !state.leave_segment
        {
            let is_dirty = state.end > state.durable;
            if is_dirty && Instant::now() >= next_sync {
                break;
            }
            if is_dirty {
                shared.work.wait_until(&mut state, next_sync);
            } else if spare.capacity().max(state.buffer.capacity()) > WRITE_BYTES {
                let waited = shared.work.wait_for(&mut state, KEPT_FOR);
                if waited.timed_out() && state.buffer.is_empty() {
                    // There were no commits for a while, so large buffers are freed.
                    (spare, state.buffer) = (Vec::new(), Vec::new());
                }
                next_sync = Instant::now() + interval;
            } else {
                shared.work.wait(&mut state);
                next_sync = Instant::now() + interval;
            }
        }
        let mut buffer = std::mem::replace(&mut state.buffer, std::mem::take(&mut spare));
        let must_sync = state.wanted > state.durable || state.stop || Instant::now() >= next_sync;
        let (end, stop, keep_from) = (state.end, state.stop, state.keep_from);
        let leave_segment = std::mem::take(&mut state.leave_segment);
        let sequence = state.sequence;
        drop(state);

        let result = writer.write(&mut buffer, sequence).and_then(|()| {
            if must_sync {
                next_sync = Instant::now() + interval;
                writer.sync()?;
            }
            writer.delete_before(keep_from);
            if leave_segment {
                writer.leave_segment();
            }
            Ok(())
        });
        spare = buffer;
        spare.clear();
        if spare.capacity() > SPARE_BYTES_MAX {
            spare = Vec::new();
        }

        let mut state = shared.state.lock();
        match result {
            Ok(()) => {
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
