//! The write-ahead log: one frame per commit, written in groups and synced by one thread for all committers.
//!
//! A position in the log is the number of bytes of frames since the store was created, before compression.
//! The log is stored in segments: files named by the position of their first group. Frames that are not in a segment yet
//! are in the buffers, which are mapped from a file, so that a killed process loses none of them.
//!
//! The kernel keeps mapped pages when the process is killed, so a commit that was acknowledged without a sync is lost only with the
//! machine. That costs a checksum for each commit, and no system call. The frames have their final form, so that the log thread
//! compresses them from there. Where a mapping could not be written safely (Btrfs, ZFS and bcachefs allocate a block for each
//! write), or cannot be made, each commit writes to the segment, which is slower; `StoreStats::log_is_mapped` shows it.

mod buffer;
mod buffer_entry;
mod cut;
mod encrypting;
mod ending;
mod entries;
mod frame;
mod group;
mod member;
mod member_state;
mod pieces;
mod recovered;
mod replay;
mod scan;
mod sealed_buffer;
mod sealing;
mod segment;
mod segment_reader;
mod state;
mod tail;
#[cfg(test)]
mod tests;
mod units;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::thread::{JoinHandle, current};
use std::time::{Duration, Instant};

use frond_kv::{CLOSE_CALLED, Wait, WaitFor};
use parking_lot::Mutex;

use crate::disk::Disk;
use crate::durable_stamp::DurableStamp;
use crate::fail_stop::FailStop;
use crate::{Error, Result};
use buffer::Buffer;
pub(crate) use cut::{cut_damaged, was_cut};
pub use encrypting::encrypt_log;
pub(crate) use encrypting::is_encrypted;
pub use ending::RestorePoint;
pub(crate) use ending::end_at;
pub(crate) use entries::CommitPoint;
pub(crate) use frame::{Checksum, Frame, Stamped};
use group::{BUFFER_BYTES_MAX, PAYLOAD_BYTES_MAX};
pub use pieces::groups_after;
use recovered::Recovered;
pub(crate) use replay::{check_passed, oldest_position, replay, replay_giving_room, replay_member};
pub(crate) use segment::segment_name;
use segment::{Failure, SegmentWriter};
use state::{LeftInBuffers, Shared, Stall};
pub use tail::{LogPiece, LogTail};
pub(crate) use units::{Unit, place as unit_place, seal as seal_unit, units};

/// The log thread writes as soon as it has this many bytes, or a quarter of a smaller buffer.
const WRITE_BYTES: usize = 1 << 20;
const BUFFER_BYTES_MIN: usize = 64 << 10;
/// Without a log thread, the log is written with every commit of this number.
const INLINE_FRAMES: usize = 16;
/// The log thread waits so long before it tries again what failed; each time twice as long, up to the second one.
const RETRY_PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// The shortest time between two syncs that are requested.
const SYNC_PAUSE: Duration = Duration::from_millis(10);

pub(crate) struct Log {
    shared: Arc<Shared>,
    /// The log thread writes when it has this many bytes.
    write_bytes: usize,
    thread: Mutex<Option<JoinHandle<()>>>,
    written: Arc<AtomicU64>,
}

impl Log {
    /// Opens the log for appending where a replay ended, in a new segment of about `segment_bytes`; a buffer has about
    /// `buffer_bytes`. The log is synced at each `interval`; without one there is no log thread, and committers write and
    /// sync. What a replay found is durable.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        mut recovered: Recovered,
        interval: Option<Duration>,
        segment_bytes: usize,
        buffer_bytes: usize,
        stamps: Arc<DurableStamp>,
    ) -> Result<Log> {
        let half = buffer_bytes.clamp(BUFFER_BYTES_MIN, BUFFER_BYTES_MAX);
        let written = Arc::default();
        let (replayed_from, end) = (recovered.from, recovered.end);
        let member = recovered.member.take();
        let half = half.next_multiple_of(4096);
        let map_file = {
            let disk = Arc::clone(&disk);
            move || map_buffers(&*disk, half)
        };
        let shared = match recovered.unwritten {
            None if member.is_some() => {
                let mut writer = recovered.writer.unwrap_or_else(|| {
                    SegmentWriter::new(disk.clone(), end, segment_bytes, Arc::clone(&written))
                });
                writer.set_options(segment_bytes, Arc::clone(&written));
                let reserved = writer.make_reserve();
                let stall = reserved.err().and_then(|error| Stall::of_reserve(&error));
                Shared::new(end, writer, None, None, stall, stamps, interval.is_none())
            }
            None => {
                let buffers = map_file()?;
                let mut writer = SegmentWriter::new(disk, end, segment_bytes, Arc::clone(&written));
                let stall = begin(&mut writer)?;
                Shared::new(
                    end,
                    writer,
                    buffers,
                    None,
                    stall,
                    stamps,
                    interval.is_none(),
                )
            }
            Some(left) => {
                let (writer, groups, error) = left.into_parts(segment_bytes, &written);
                let map = Box::new(map_file.clone());
                let left = Some(LeftInBuffers { groups, map });
                let stall = Some(Stall::of(&error, false));
                Shared::new(end, writer, None, left, stall, stamps, interval.is_none())
            }
        };
        shared.state.lock().replayed_from = replayed_from;
        if let Some(member) = member {
            let map = move || {
                let mapped = map_file()?;
                Ok(mapped.unwrap_or_else(|| [half, half].map(Buffer::in_memory)))
            };
            shared.begin_member(member, Arc::new(map));
        }
        let shared = Arc::new(shared);
        let write_bytes = WRITE_BYTES.min(half / 4);
        let Some(interval) = interval else {
            return Ok(Log {
                shared,
                write_bytes,
                thread: Mutex::new(None),
                written,
            });
        };
        let for_thread = shared.clone();
        let thread = std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || {
                // Committers wait for this thread.
                let guard = FailStop::begin("writing the log");
                run(&for_thread, interval, write_bytes);
                guard.finish();
            })
            .map_err(Error::io("starting the log thread"))?;
        Ok(Log {
            shared,
            write_bytes,
            thread: Mutex::new(Some(thread)),
            written,
        })
    }

    /// Appends a frame and returns the position after it. Called in the order of sequence numbers. A frame that
    /// `may_use_reserve` frees space: it is taken on a full disk too, as long as the log's reserve lasts.
    ///
    /// # Errors
    /// After an error nothing was appended. [`Error::Stalled`] if the log cannot be written for now.
    pub(crate) fn append(&self, frame: &Frame<'_>, may_use_reserve: bool) -> Result<u64> {
        if frame.payload_len() > PAYLOAD_BYTES_MAX {
            return Err(Error::TooLarge {
                what: "write set",
                bytes: frame.payload_len(),
                limit: PAYLOAD_BYTES_MAX,
            });
        }
        if self.shared.is_inline && self.shared.state.lock().stall.is_some() {
            // There is no thread that tries again.
            let _ = self.shared.work(false);
        }
        let mut state = self.shared.state.lock();
        loop {
            state.check()?;
            if state.stop {
                return Err(Error::Closed(CLOSE_CALLED.to_owned()));
            }
            state.check_leading()?;
            if let Some(stall) = &state.stall
                && !may_use_reserve
            {
                return Err(stall.error());
            }
            let buffer = state.filling.as_mut();
            let Some(buffer) = buffer.filter(|buffer| buffer.could_hold(frame)) else {
                let is_member = state.member.is_some();
                drop(state);
                return if is_member {
                    self.shared.append_large(frame)
                } else {
                    self.shared.append_to_segment(frame, may_use_reserve)
                };
            };
            if buffer.has_room(frame) {
                break;
            }
            if let Some(stall) = state.stall.as_ref().filter(|stall| !stall.can_write) {
                return Err(stall.error());
            }
            if state.member.is_some() {
                if self.shared.is_inline {
                    return Err(state::busy());
                }
                state.wants_room = true;
                state.wake_for_group(false);
                Wait::begin(WaitFor::Log)?.on(&self.shared.progress, &mut state)?;
            } else if self.shared.is_inline {
                drop(state);
                // The next round meets a failure.
                let _ = self.shared.work(false);
                state = self.shared.state.lock();
            } else {
                // The frames in the buffer may be fewer than the log thread waits for.
                state.wants_room = true;
                self.shared.work.notify_one();
                Wait::begin(WaitFor::Log)?.on(&self.shared.progress, &mut state)?;
            }
        }
        let (position, previous) = (state.end, state.last);
        let Some(buffer) = &mut state.filling else {
            return Err(Error::Closed("the log has no buffer".to_owned()));
        };
        let was_empty = buffer.is_empty();
        buffer.push(frame, position, previous);
        let (bytes, frames) = (buffer.len(), buffer.count());
        state.note_appended(frame);
        let end = state.end;
        if state.member.is_some() {
            state.wake_for_group(self.shared.is_inline);
            if was_empty && !self.shared.is_inline {
                // It waits for the interval between syncs.
                self.shared.work.notify_one();
            }
            return Ok(end);
        }
        drop(state);
        if self.shared.is_inline {
            if bytes >= self.write_bytes || frames >= INLINE_FRAMES {
                // The frame is in the buffer, so this commit continues; the next one gets the error.
                let _ = self.shared.work(false);
            }
        } else if was_empty || bytes >= self.write_bytes {
            self.shared.work.notify_one();
        }
        Ok(end)
    }

    /// The position after the last frame.
    pub(crate) fn end(&self) -> u64 {
        self.shared.state.lock().end
    }

    /// Bytes written to segments since the log was opened.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Whether frames that are not in a segment yet are in a file. Otherwise each commit writes to the segment.
    pub(crate) fn is_mapped(&self) -> bool {
        self.shared.is_mapped.load(Ordering::Relaxed)
    }

    /// Waits until everything before `position` is durable.
    ///
    /// # Errors
    /// [`Error::Stalled`] if the log cannot be written for now. What was appended is durable later then.
    pub(crate) fn wait_durable(&self, position: u64) -> Result<()> {
        self.shared.wait_durable(position)
    }

    /// As [`Log::wait_durable`], for a task: it is woken when it is to ask again.
    ///
    /// # Errors
    /// As [`Log::wait_durable`].
    pub(crate) fn poll_durable(&self, position: u64, waker: &Waker) -> Poll<Result<()>> {
        if self.shared.is_inline {
            return Poll::Ready(self.wait_durable(position));
        }
        let mut state = self.shared.state.lock();
        if self.shared.is_durable(&mut state, position)? {
            return Poll::Ready(Ok(()));
        }
        state.wakers.push(waker.clone());
        Poll::Pending
    }

    /// Requests a sync soon, and does not wait for it. Without a log thread it syncs at once.
    pub(crate) fn request_sync(&self) {
        if self.shared.is_inline {
            // The state has the failure.
            let _ = self.shared.work(true);
            return;
        }
        // Mostly another thread has requested it already.
        let wants_sync = &self.shared.wants_sync;
        if !wants_sync.load(Ordering::Acquire) && !wants_sync.swap(true, Ordering::AcqRel) {
            // The log thread either sees it or waits already.
            drop(self.shared.state.lock());
            self.shared.work.notify_one();
        }
    }

    /// Allows segments that end at or before `position` to be deleted.
    pub(crate) fn release_before(&self, position: u64) {
        let mut state = self.shared.state.lock();
        state.keep_from = state.keep_from.max(position);
        let most = state.hold_bytes_max;
        state.end_holds_over(most);
        drop(state);
        self.after_request();
    }

    /// Sets how many bytes of frames a reader of the log may keep that the store does not need any more.
    pub(crate) fn limit_holds(&self, bytes: u64) {
        self.shared.state.lock().hold_bytes_max = bytes;
    }

    /// Ends the holds of readers that keep what the store does not need any more.
    pub(crate) fn end_holds(&self) {
        self.shared.state.lock().end_holds_over(0);
        self.after_request();
    }

    /// A reader of the log from a position on, or from its end on.
    ///
    /// # Errors
    /// [`Error::LogGone`] if the log from there on was deleted, [`Error::InvalidOption`] if it ends before.
    pub(crate) fn tail(&self, from: Option<u64>) -> Result<LogTail> {
        LogTail::new(&self.shared, from)
    }

    /// Deletes the current segment too, if it is not needed any more.
    pub(crate) fn leave_segment(&self) {
        self.shared.state.lock().leave_segment = true;
        self.after_request();
    }

    /// Writes at once what could not be written before: there may be room or file handles again.
    pub(crate) fn retry_now(&self) {
        self.shared.state.lock().retry_now = true;
        self.after_request();
    }

    fn after_request(&self) {
        self.shared.work.notify_one();
        if self.shared.is_inline {
            // The next commit gets a failure.
            let _ = self.shared.work(false);
        }
    }

    /// Writes and syncs the rest, and ends the thread.
    pub(crate) fn close(&self) -> Result<()> {
        let is_member = {
            let mut state = self.shared.state.lock();
            state.stop = true;
            self.shared.progress.notify_all();
            state.member.is_some()
        };
        self.shared.work.notify_one();
        // A callback of a durable entry may hold the last handle of the store; the thread that calls it ends by itself.
        let thread = self.thread.lock().take();
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != current().id()) {
            let _ = thread.join();
        }
        if is_member {
            return self.shared.close_member();
        }
        // The thread has made everything durable, or knows why not.
        self.wait_durable(self.end())
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let _ = self.close();
    }
}

/// Begins a new epoch of the buffers. Without them the log goes on, and says why.
fn map_buffers(disk: &dyn Disk, half: usize) -> Result<Option<[buffer::Buffer; 2]>> {
    let opened = buffer::open(disk, half)?;
    if let Err(error) = &opened
        && disk.maps_files()
    {
        eprintln!("each commit writes to the log's file, which is slower: {error}");
    }
    Ok(opened.ok())
}

/// Begins the first segment, with a reserve. If the disk has no room for them, returns the stall that makes commits fail until it has.
fn begin(writer: &mut SegmentWriter) -> Result<Option<Stall>> {
    let reserved = writer.make_reserve();
    match (writer.begin(), reserved) {
        (Err(Failure::Retryable(error)), _) if error.is_passing() => {
            Ok(Some(Stall::of(&error, false)))
        }
        (Err(failure), _) => Err(failure.into_error()),
        (Ok(()), _) => {
            let reserved = writer.make_reserve();
            Ok(reserved.err().and_then(|error| Stall::of_reserve(&error)))
        }
    }
}

/// The log thread: gathers frames, writes them with one call, syncs on request and at each interval. Tries again what
/// could not be written.
fn run(shared: &Shared, interval: Duration, write_bytes: usize) {
    let mut next_sync = Instant::now() + interval;
    // The earliest time for a requested sync.
    let mut sync_from = Instant::now();
    let mut pause = RETRY_PAUSES.0;
    let mut retry_at = Instant::now() + pause;
    loop {
        let mut state = shared.state.lock();
        loop {
            let is_blocked = state.stall.as_ref().is_some_and(|stall| !stall.can_write);
            if state.must_work() || (!is_blocked && state.has_work(write_bytes)) {
                break;
            }
            let is_dirty = !is_blocked && state.end > state.durable;
            if state.end <= state.durable {
                // A committer appends its frame before it requests a sync.
                shared.wants_sync.store(false, Ordering::Release);
            } else if is_dirty && shared.wants_sync.load(Ordering::Acquire) {
                next_sync = next_sync.min(sync_from);
            }
            let deadline = match (is_dirty, state.must_retry) {
                (false, false) => None,
                (true, false) => Some(next_sync),
                (false, true) => Some(retry_at),
                (true, true) => Some(next_sync.min(retry_at)),
            };
            match deadline {
                Some(deadline) if Instant::now() >= deadline => break,
                Some(deadline) => {
                    shared.work.wait_until(&mut state, deadline);
                }
                None => {
                    shared.work.wait(&mut state);
                    next_sync = Instant::now() + interval;
                }
            }
        }
        let stop = state.stop;
        let is_due = Instant::now() >= next_sync;
        if is_due && let Some(member) = state.member.as_deref_mut() {
            member.group_due = true;
            state.wake_for_group(false);
        }
        let must_sync = state.wanted > state.durable || stop || is_due;
        drop(state);
        if must_sync {
            // Frames that are appended from here on may need another one.
            shared.wants_sync.store(false, Ordering::Release);
        }
        if is_due {
            next_sync = Instant::now() + interval;
        }
        // The state has the failure.
        let _ = shared.work(must_sync);
        if must_sync {
            sync_from = Instant::now() + SYNC_PAUSE;
        }
        shared.stamps.notify();
        let state = shared.state.lock();
        if stop || state.check().is_err() {
            return;
        }
        if state.must_retry {
            retry_at = Instant::now() + pause;
            pause = (pause * 2).min(RETRY_PAUSES.1);
        } else {
            pause = RETRY_PAUSES.0;
        }
    }
}
