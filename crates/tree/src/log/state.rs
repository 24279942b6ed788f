//! The state of an open log, and the work on it: of the log thread, or of committers where there is none.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::buffer::Buffer;
use super::frame::{Frame, Stamped};
use super::member_state::MemberState;
use super::recovered::Groups;
use super::segment::{Failure, SegmentWriter};
use crate::durable_stamp::DurableStamp;
use crate::fail_stop::{FailStop, step};
use crate::{Error, Result};

/// The state that the handle of a log and its thread share. The writer's lock is taken before that of the state.
pub(super) struct Shared {
    pub(super) writer: Mutex<SegmentWriter>,
    /// Committers write and sync, without a log thread.
    pub(super) is_inline: bool,
    /// Frames that a replay has left in the file of the buffers. There are no buffers before this is written. Locked under `writer`.
    recovered: Mutex<Option<LeftInBuffers>>,
    /// Whether there are buffers.
    pub(super) is_mapped: AtomicBool,
    pub(super) state: Mutex<State>,
    /// Wakes the log thread.
    pub(super) work: Condvar,
    /// Wakes committers that wait for space in the buffer or for a sync.
    pub(super) progress: Condvar,
    /// Whether a sync is wanted soon.
    pub(super) wants_sync: AtomicBool,
    /// Is notified of durable stamps.
    pub(super) stamps: Arc<DurableStamp>,
}

/// Groups of frames that are in the file of the buffers, and what begins a new epoch in it when they are in a segment.
pub(super) struct LeftInBuffers {
    pub(super) groups: Groups,
    pub(super) map: Box<dyn Fn() -> Result<Option<[Buffer; 2]>> + Send>,
}

#[derive(Default)]
pub(super) struct State {
    /// L5: the buffer that takes frames. The other one is in `free`, or in `unwritten` if it could not be written, or held by
    /// the writer while it is written. There are none where files cannot be mapped.
    pub(super) filling: Option<Buffer>,
    pub(super) free: Option<Buffer>,
    unwritten: Option<Buffer>,
    /// L1: the position after the last frame. Each frame begins where the one before ends.
    pub(super) end: u64,
    /// Checksum of its payload; 0 before the first frame.
    pub(super) last: u64,
    /// L2: everything before this position is durable. It only grows, and is not behind `end`.
    pub(super) durable: u64,
    /// The newest stamped commit, and the position after its frame, until the next write of the buffers.
    pub(super) stamped: Option<(u64, Stamped)>,
    /// L3: the newest ones at earlier writes, until they are durable; positions and stamps ascend.
    pub(super) written_stamps: VecDeque<(u64, Stamped)>,
    /// A committer waits until this position is durable.
    pub(super) wanted: u64,
    /// A committer waits until the other buffer takes frames, because its own does not fit into this one.
    pub(super) wants_room: bool,
    /// Segments before this position can be deleted, and those before the second one have been.
    pub(super) keep_from: u64,
    kept_from: u64,
    /// L6: readers of the log hold segments: by their numbers, the positions from which on. One that holds too much is removed.
    holds: BTreeMap<u64, u64>,
    next_hold: u64,
    /// A hold ends when it keeps more bytes of frames than this that are not needed otherwise.
    pub(super) hold_bytes_max: u64,
    /// L4: everything before this position is durable in segments.
    pub(super) readable: u64,
    /// Frames before this position may be missing: a crash lost them before they were durable, but a checkpoint had their effects.
    pub(super) replayed_from: u64,
    /// Whether to start a new segment, so that the current one can be deleted when it is not needed any more.
    pub(super) leave_segment: bool,
    /// Why commits are refused for now.
    pub(super) stall: Option<Stall>,
    /// Whether something failed that is tried again after a pause, or at once.
    pub(super) must_retry: bool,
    pub(super) retry_now: bool,
    pub(super) failure: Option<String>,
    /// Of a member of a replica set.
    pub(super) member: Option<Box<MemberState>>,
    /// Wakes tasks that wait for a sync.
    pub(super) wakers: Vec<Waker>,
    pub(super) stop: bool,
}

/// Why commits are refused for now.
#[derive(Clone)]
pub(super) struct Stall {
    /// Whether the log can be written still: the disk is full, but the reserve is not used up.
    pub(super) can_write: bool,
    disk_full: bool,
    reason: String,
}

impl Stall {
    pub(super) fn of(error: &Error, can_write: bool) -> Stall {
        Stall {
            can_write,
            disk_full: error.is_disk_full(),
            reason: error.to_string(),
        }
    }

    /// The effect of a reserve that could not be made. Without a file handle the log goes on: the current segment has
    /// one, and there is time until the next.
    pub(super) fn of_reserve(error: &Error) -> Option<Stall> {
        error.is_disk_full().then(|| Stall::of(error, true))
    }

    pub(super) fn error(&self) -> Error {
        Error::Stalled {
            disk_full: self.disk_full,
            reason: self.reason.clone(),
        }
    }
}

impl State {
    pub(super) fn check(&self) -> Result<()> {
        match &self.failure {
            Some(failure) => Err(Error::Closed(format!("the log failed: {failure}"))),
            None => Ok(()),
        }
    }

    /// Notes that a frame was appended.
    pub(super) fn note_appended(&mut self, frame: &Frame<'_>) {
        self.end += frame.len() as u64;
        self.last = frame.hash;
        assert!(
            self.durable < self.end,
            "L2: a frame is durable before it was appended"
        );
        if let Some(stamped) = frame.stamped {
            let before = self.stamped.map_or(0, |(_, before)| before.last);
            assert!(
                stamped.first > before,
                "L3: the stamps of frames do not ascend"
            );
            self.stamped = Some((self.end, stamped));
        }
    }

    /// The newest stamped commit that has become durable, or is committed by the replica set.
    pub(super) fn take_durable_stamp(&mut self) -> Option<Stamped> {
        let durable = match &self.member {
            Some(member) => member.committed_to,
            None => self.durable,
        };
        let are = |(position, _): &(u64, Stamped)| *position <= durable;
        let count = self.written_stamps.iter().take_while(|it| are(it)).count();
        let newest = self.written_stamps.drain(..count).next_back();
        newest.map(|(_, stamped)| stamped)
    }

    /// Segments before this position can be deleted.
    fn keep(&self) -> u64 {
        let held = self.holds.values().copied().min();
        held.map_or(self.keep_from, |held| held.min(self.keep_from))
    }

    /// Holds the segments from a position on. Returns the number of the hold.
    pub(super) fn hold(&mut self, position: u64) -> u64 {
        let number = self.next_hold;
        self.next_hold += 1;
        let before = self.holds.insert(number, position);
        assert!(before.is_none(), "L6: two holds have one number");
        number
    }

    /// Whether a hold was not ended.
    pub(super) fn is_held(&self, hold: u64) -> bool {
        self.holds.contains_key(&hold)
    }

    /// Lets a hold begin later, at `position`, or ends it.
    pub(super) fn release(&mut self, hold: u64, position: Option<u64>) {
        match (self.holds.get_mut(&hold), position) {
            (Some(held), Some(position)) => *held = position.max(*held),
            (Some(_), None) => {
                self.holds.remove(&hold);
            }
            (None, _) => {}
        }
    }

    /// Ends the holds that keep more bytes than `most`.
    pub(super) fn end_holds_over(&mut self, most: u64) {
        let keep_from = self.keep_from;
        // Consensus relies on the entries that it has not purged.
        let member = self.member.as_ref().map(|member| member.hold);
        self.holds
            .retain(|hold, held| Some(*hold) == member || keep_from.saturating_sub(*held) <= most);
    }

    /// Whether the log thread has work that does not need the log to be writable.
    pub(super) fn must_work(&self) -> bool {
        self.stop || self.retry_now || self.keep() > self.kept_from
    }

    /// Whether it has other work.
    pub(super) fn has_work(&self, write_bytes: usize) -> bool {
        if let Some(member) = &self.member {
            return member.has_jobs() || self.leave_segment;
        }
        let gathered = self.filling.as_ref().map_or(0, Buffer::len);
        self.wanted > self.durable
            || self.wants_room
            || gathered >= write_bytes
            || self.leave_segment
    }
}

impl Shared {
    pub(super) fn new(
        end: u64,
        writer: SegmentWriter,
        buffers: Option<[Buffer; 2]>,
        recovered: Option<LeftInBuffers>,
        stall: Option<Stall>,
        stamps: Arc<DurableStamp>,
        is_inline: bool,
    ) -> Shared {
        assert!(
            writer.durable <= end && writer.end() <= end,
            "L2: the segments have frames behind the end of the log"
        );
        let is_mapped = AtomicBool::new(buffers.is_some());
        let (filling, free) = match buffers {
            Some([filling, free]) => (Some(filling), Some(free)),
            None => (None, None),
        };
        let state = State {
            filling,
            free,
            end,
            durable: end,
            readable: writer.durable,
            hold_bytes_max: u64::MAX,
            must_retry: stall.is_some() || !writer.has_reserve(),
            stall,
            ..State::default()
        };
        Shared {
            writer: Mutex::new(writer),
            is_inline,
            recovered: Mutex::new(recovered),
            is_mapped,
            state: Mutex::new(state),
            work: Condvar::new(),
            progress: Condvar::new(),
            wants_sync: AtomicBool::new(false),
            stamps,
        }
    }

    /// Writes what the buffers have, syncs if it `must_sync`, deletes old segments, and makes the reserve.
    pub(super) fn work(&self, must_sync: bool) -> Result<()> {
        let mut writer = self.writer.lock();
        let (keep_from, leave_segment) = {
            let mut state = self.state.lock();
            state.check()?;
            state.retry_now = false;
            (state.keep(), state.leave_segment)
        };
        // During the work no field of the state holds the buffer that is written, and it is not known whether a sync
        // happened.
        let guard = FailStop::begin("writing the log");
        // First, because it makes room.
        writer.delete_before(keep_from);
        let is_member = self.state.lock().member.is_some();
        let result = if is_member {
            self.write_entries(&mut writer)
        } else {
            self.write_buffers(&mut writer)
        };
        let result = result.and_then(|()| {
            step("a group of the log is written");
            if must_sync || (is_member && writer.durable < writer.end()) {
                writer.sync()?;
                step("the log is synced");
            }
            if leave_segment {
                writer.leave_segment()?;
            }
            Ok(())
        });
        let reserved = match &result {
            Ok(()) => writer.make_reserve(),
            Err(_) => Ok(()),
        };
        let mut state = self.state.lock();
        assert!(
            writer.durable <= state.end,
            "L2: the segments have frames that were not appended"
        );
        assert!(
            writer.durable >= state.readable,
            "L4: less is durable in segments than before"
        );
        state.kept_from = keep_from;
        state.leave_segment &= !leave_segment || result.is_err();
        // Frames that a replay has left in the buffers are durable there.
        state.durable = state.durable.max(writer.durable);
        assert!(
            !must_sync || result.is_err() || state.durable >= writer.end(),
            "L2: a sync has left frames that are not durable"
        );
        state.readable = match &state.member {
            Some(member) => state.readable.max(member.committed_to.min(writer.durable)),
            None => writer.durable,
        };
        // A committer that waits for its sync finds its stamps durable.
        if let Some(stamped) = state.take_durable_stamp() {
            self.stamps.note_synced(stamped.sequence, stamped.last);
        }
        state.must_retry = result.is_err() || reserved.is_err();
        state.stall = match (&result, &reserved) {
            (Err(failure), _) => Some(Stall::of(failure.error(), false)),
            (Ok(()), Err(error)) => Stall::of_reserve(error),
            (Ok(()), Ok(())) => None,
        };
        if let Err(Failure::Final(error)) = &result {
            state.failure = Some(error.to_string());
        }
        let failure = state.failure.clone();
        if failure.is_some() {
            state.wake_for_group(self.is_inline);
        }
        let done = match state.member.as_deref_mut() {
            Some(member) if failure.is_some() => member.take_done(),
            Some(member) if result.is_ok() => member.take_unsynced(),
            _ => Vec::new(),
        };
        guard.finish();
        let outcome = state.check().and_then(|()| match (&state.stall, result) {
            (Some(stall), Err(_)) => Err(stall.error()),
            _ => Ok(()),
        });
        self.report(state);
        drop(writer);
        for done in done {
            done(match &failure {
                None => Ok(()),
                Some(failure) => Err(Error::Closed(format!("the log failed: {failure}"))),
            });
        }
        outcome
    }

    /// Waits until everything before `position` is durable.
    ///
    /// # Errors
    /// [`Error::Stalled`] if the log cannot be written for now. What was appended is durable later then.
    pub(super) fn wait_durable(&self, position: u64) -> Result<()> {
        if self.is_inline {
            if self.state.lock().durable < position {
                self.work(true)?;
            }
            let state = self.state.lock();
            return match &state.member {
                Some(_) if state.durable < position => Err(busy()),
                _ => Ok(()),
            };
        }
        let mut state = self.state.lock();
        while !self.is_durable(&mut state, position)? {
            self.progress.wait(&mut state);
        }
        Ok(())
    }

    /// Whether everything before `position` is durable; requests a sync otherwise.
    pub(super) fn is_durable(&self, state: &mut State, position: u64) -> Result<bool> {
        if state.durable >= position {
            return Ok(true);
        }
        if state.wanted < position {
            state.wanted = position;
            self.work.notify_one();
            state.wake_for_group(self.is_inline);
        }
        state.check()?;
        if let Some(member) = &state.member
            && position > member.entries.end()
            && (!member.is_leading || state.stop)
        {
            return Err(Error::NotLeading);
        }
        match state.stall.as_ref().filter(|stall| !stall.can_write) {
            Some(stall) => Err(stall.error()),
            None => Ok(false),
        }
    }

    /// Wakes those who wait for a sync, or for room in the buffer.
    pub(super) fn report(&self, mut state: MutexGuard<'_, State>) {
        let wakers = std::mem::take(&mut state.wakers);
        self.progress.notify_all();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Writes what a replay has left in the buffers, and begins to use them.
    fn write_recovered(&self, writer: &mut SegmentWriter) -> Result<(), Failure> {
        let mut recovered = self.recovered.lock();
        let Some(left) = &mut *recovered else {
            return Ok(());
        };
        left.groups.write(writer)?;
        // Only now: the frames of the old epoch are not needed any more.
        if let Some([filling, free]) = (left.map)().map_err(Failure::Retryable)? {
            let mut state = self.state.lock();
            (state.filling, state.free) = (Some(filling), Some(free));
            self.is_mapped.store(true, Ordering::Relaxed);
        }
        *recovered = None;
        Ok(())
    }

    /// Writes the frames that are in the buffers now.
    fn write_buffers(&self, writer: &mut SegmentWriter) -> Result<(), Failure> {
        self.write_recovered(writer)?;
        let unwritten = self.state.lock().unwritten.take();
        if let Some(buffer) = unwritten {
            self.write_buffer(writer, buffer)?;
        }
        let mut state = self.state.lock();
        if let Some(newest) = state.stamped.take() {
            let before = state.written_stamps.back();
            assert!(
                before.is_none_or(|before| before.0 < newest.0 && before.1.last < newest.1.first),
                "L3: the stamps of writes do not ascend"
            );
            state.written_stamps.push_back(newest);
        }
        if state.filling.as_ref().is_none_or(Buffer::is_empty) {
            return Ok(());
        }
        assert!(
            state.unwritten.is_none(),
            "L5: later frames are written before earlier ones"
        );
        let free = state.free.take();
        let full = std::mem::replace(&mut state.filling, free);
        state.wants_room = false;
        // There is room again.
        self.progress.notify_all();
        drop(state);
        full.map_or(Ok(()), |full| self.write_buffer(writer, full))
    }

    fn write_buffer(&self, writer: &mut SegmentWriter, mut buffer: Buffer) -> Result<(), Failure> {
        let written = writer
            .check_end(buffer.position)
            .and_then(|()| writer.write(buffer.frames(), buffer.sequence));
        let mut state = self.state.lock();
        match written {
            Ok(()) => {
                assert!(
                    writer.end() == buffer.end(),
                    "L1: a segment ends elsewhere than the buffer that was written to it"
                );
                assert!(state.free.is_none(), "L5: there are three buffers");
                buffer.clear();
                state.free = Some(buffer);
            }
            Err(_) => {
                assert!(
                    state.unwritten.is_none(),
                    "L5: two buffers could not be written"
                );
                state.unwritten = Some(buffer);
            }
        }
        written
    }

    /// Appends a frame that no buffer can hold: it is in the segment when this returns, and so is everything before.
    pub(super) fn append_to_segment(
        &self,
        frame: &Frame<'_>,
        may_use_reserve: bool,
    ) -> Result<u64> {
        let mut writer = self.writer.lock();
        let position = {
            let state = self.state.lock();
            state.check()?;
            state.end
        };
        let guard = FailStop::begin("writing the log");
        let written = self
            .write_buffers(&mut writer)
            .and_then(|()| writer.check_end(position))
            .and_then(|()| writer.write_frame(frame, may_use_reserve));
        guard.finish();
        let mut state = self.state.lock();
        if let Err(failure) = written {
            let can_write = !may_use_reserve && writer.has_reserve();
            let stall = Stall::of(failure.error(), can_write);
            let error = stall.error();
            state.must_retry = true;
            match failure {
                Failure::Final(error) => state.failure = Some(error.to_string()),
                Failure::Retryable(_) => state.stall = Some(stall),
            }
            self.work.notify_one();
            let checked = state.check();
            self.report(state);
            return checked.and(Err(error));
        }
        state.note_appended(frame);
        assert!(
            writer.end() == state.end,
            "L1: a frame in a segment ends elsewhere than the log"
        );
        // The log thread syncs it at the next interval.
        self.work.notify_one();
        Ok(state.end)
    }
}

/// The error of a commit for which the buffers have no room before consensus has seen what they have.
pub(super) fn busy() -> Error {
    Stall::of(
        &Error::failed("the buffers of the log wait for the replica set"),
        true,
    )
    .error()
}
