//! The log of a member of a replica set: the frames of each group are an entry of the replicated log.
//!
//! `frond_kv::MemberLog` has the model. The difference to the log of a single server is who decides when a group is made: there
//! the log thread takes what has gathered, here consensus has to give the group an identifier first.
//! ```text
//! leader:    commits fill a buffer → poll_group is ready → seal(id) → log thread: group, write, sync → done
//! follower:  append(entry) → log thread: write, sync → done
//! ```
//! - `seal` and `append` put a job into a queue, and the log thread does the jobs in their order. So one sync covers all that have
//!   gathered meanwhile, and consensus never waits for the disk.
//! - A job that cannot be done stays in the queue; the log thread tries again, as it does with the buffers of a single server.
//! - Frames that are in no entry yet are in the mapped buffers, which survive a kill of the process. After a restart they are not
//!   visible: this member may find that another one leads. If it leads itself, they are in its first entry, otherwise they are discarded.
//! - Readers of the log ([`super::LogTail`]) and of stamps get what is committed, because the rest may be replaced.
//!
//! N1 is in `entries.rs`. N2: what is committed is never truncated. N3: frames that are in no entry exist only while this member
//! leads, or from then until it is opened again. N4: entries are written to segments in their order.

mod jobs;

use std::task::{Context, Poll};

use frond_kv::operation::{first_stamp, is_sound, numbers_of};
use frond_kv::{Done, EntryId, LogEntry, LogState, Wait, WaitFor};

use super::buffer::{self, Buffer};
use super::entries::CommitPoint;
use super::frame::FRAME_HEADER_BYTES;
use super::frame::Frame;
use super::group::{NOTE_BYTES_MAX, SealedEntry, payloads};
use super::member_state::{Job, Large, MapBuffers, MemberState};
use super::recovered::RecoveredMember;
use super::segment::{Failure, open_existing, segment_name};
use super::segment_reader::Segment;
use super::state::{Shared, State, busy};
use super::{INLINE_FRAMES, Log, WRITE_BYTES};
use crate::{Error, Result};

/// Bytes of entries that one look for old ones reads, so that they are applied meanwhile.
const AGED_BYTES: usize = 4 << 20;

impl State {
    /// Whether there are frames in no entry.
    fn has_frames(&self, member: &MemberState) -> bool {
        member.left.is_some()
            || member.large.is_some()
            || self
                .filling
                .as_ref()
                .is_some_and(|buffer| !buffer.is_empty())
    }

    /// Whether frames should become an entry now.
    fn group_is_ready(&self, is_inline: bool) -> bool {
        let Some(member) = self.member.as_ref().filter(|member| member.is_leading) else {
            return false;
        };
        if self.failure.is_some() {
            // Consensus finds out when it makes an entry.
            return !member.is_failure_known;
        }
        if member.group_asked || !self.has_frames(member) {
            return false;
        }
        let (bytes, frames) = (self.filling.as_ref()).map_or((0, 0), |it| (it.len(), it.count()));
        self.wanted > member.entries.end()
            || self.wants_room
            || member.group_due
            || member.large.is_some()
            || bytes >= WRITE_BYTES
            || (is_inline && frames >= INLINE_FRAMES)
    }

    /// Wakes the task that waits for a group, if one is ready.
    pub(super) fn wake_for_group(&mut self, is_inline: bool) {
        if self.group_is_ready(is_inline)
            && let Some(waker) = self.member.as_mut().and_then(|member| member.waker.take())
        {
            waker.wake();
        }
    }

    /// Fails while this is a member that does not lead.
    pub(super) fn check_leading(&self) -> Result<()> {
        match &self.member {
            Some(member) if !member.is_leading => Err(Error::NotLeading),
            _ => Ok(()),
        }
    }

    fn member_mut(&mut self) -> Result<&mut MemberState> {
        self.member.as_deref_mut().ok_or_else(not_a_member)
    }
}

fn not_a_member() -> Error {
    Error::failed("this store is not a member of a replica set")
}

fn bad_entry(id: EntryId, why: &str) -> Error {
    let EntryId { term, index } = id;
    Error::InvalidOption(format!("entry {index} of term {term} {why}"))
}

impl Log {
    /// See [`frond_kv::MemberLog::state`]. Everything up to the position `applied` is in the trees.
    pub(crate) fn member_state(&self, applied: u64) -> LogState {
        let state = self.shared.state.lock();
        let Some(member) = &state.member else {
            return LogState::default();
        };
        let in_trees = member.entries.ending_by(applied);
        let applied = in_trees
            .min(member.committed)
            .filter(|_| in_trees.is_some());
        LogState {
            purged: member.entries.purged(),
            last: member.entries.last(),
            committed: member.committed,
            applied,
            applied_note: applied.and_then(|applied| member.entries.note_by(applied.index)),
            last_note: (member.entries.last()).and_then(|last| member.entries.note_by(last.index)),
        }
    }

    /// The commit point for a checkpoint; `None` before the first entry is committed.
    pub(crate) fn commit_point(&self) -> Option<CommitPoint> {
        let state = self.shared.state.lock();
        let member = state.member.as_ref()?;
        let id = member.committed?;
        Some(CommitPoint {
            id,
            to: member.committed_to,
            note: member.entries.note_by(id.index),
        })
    }

    /// The position up to which everything is committed. In a log of a single server that is its end.
    pub(crate) fn committed_to(&self) -> u64 {
        let state = self.shared.state.lock();
        (state.member.as_ref()).map_or(state.end, |member| member.committed_to)
    }

    /// Waits a little until everything before a position is committed by the replica set.
    ///
    /// # Errors
    /// [`Error::Stalled`] if it is not.
    pub(crate) fn await_committed(&self, position: u64) -> Result<()> {
        let mut state = self.shared.state.lock();
        let until = std::time::Instant::now() + COMMIT_PATIENCE;
        loop {
            state.check()?;
            match &state.member {
                Some(member) if member.committed_to < position => {}
                _ => return Ok(()),
            }
            if !self.shared.is_inline && !state.stop {
                state.wanted = state.wanted.max(position);
                state.wake_for_group(false);
                let progress = &self.shared.progress;
                if !progress.wait_until(&mut state, until).timed_out() {
                    continue;
                }
            }
            return Err(Error::Stalled {
                disk_full: false,
                reason: "the replica set has not committed the last writes; it needs a majority of its members"
                    .to_owned(),
            });
        }
    }

    /// Whether commits are accepted.
    pub(crate) fn is_leading(&self) -> bool {
        let state = self.shared.state.lock();
        (state.member.as_ref()).is_some_and(|member| member.is_leading)
    }

    /// See [`frond_kv::MemberLog::request`].
    pub(crate) fn request_group(&self, position: u64) {
        let mut state = self.shared.state.lock();
        state.wanted = state.wanted.max(position.min(state.end));
        state.wake_for_group(self.shared.is_inline);
    }

    /// See [`frond_kv::MemberLog::poll_group`].
    pub(crate) fn poll_group(&self, context: &mut Context<'_>) -> Poll<u64> {
        let mut state = self.shared.state.lock();
        let is_ready = state.group_is_ready(self.shared.is_inline);
        let (end, has_failed) = (state.end, state.failure.is_some());
        let Some(member) = state.member.as_deref_mut() else {
            return Poll::Pending;
        };
        if is_ready {
            member.is_failure_known = has_failed;
            (member.group_asked, member.group_due) = (true, false);
            return Poll::Ready(end);
        }
        member.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// See [`frond_kv::MemberLog::set_leading`]. Everything up to the position `applied` is in the trees.
    pub(crate) fn set_leading(&self, is_leading: bool, applied: u64) -> Result<()> {
        let shared = &self.shared;
        if !is_leading {
            let mut state = shared.state.lock();
            let member = state.member_mut()?;
            (member.is_leading, member.group_asked) = (false, false);
            shared.report(state);
            return Ok(());
        }
        if shared.is_inline {
            shared.work(true)?;
        }
        // While it is held, no buffer is written.
        let writer = loop {
            let writer = shared.writer.lock();
            let mut state = shared.state.lock();
            state.check()?;
            let end = state.end;
            let member = state.member.as_deref().ok_or_else(not_a_member)?;
            if member.is_leading {
                return Ok(());
            }
            if applied != end || member.left.is_some() {
                return Err(Error::failed("the log has frames that are not applied"));
            }
            if state.has_frames(member) {
                // It led in this term before, and goes on with its buffers.
                state.member_mut()?.is_leading = true;
                return Ok(());
            }
            if !member.has_jobs() {
                break writer;
            }
            drop(writer);
            shared.progress.wait(&mut state);
        };
        let map = shared.state.lock().member_mut()?.map.clone();
        let [filling, free] = map()?;
        let mut state = shared.state.lock();
        let is_mapped = filling.is_mapped();
        shared
            .is_mapped
            .store(is_mapped, std::sync::atomic::Ordering::Relaxed);
        // The first frame of an epoch follows whatever the log has.
        (state.filling, state.free, state.last) = (Some(filling), Some(free), 0);
        state.member_mut()?.is_leading = true;
        drop((state, writer));
        Ok(())
    }

    /// See [`frond_kv::MemberLog::seal`].
    pub(crate) fn seal(&self, id: EntryId, note: &[u8], done: Done) -> Result<()> {
        let mut state = self.shared.state.lock();
        state.check()?;
        let member = state.member_mut()?;
        if !member.entries.follows(id) {
            return Err(bad_entry(id, "does not follow the last one"));
        }
        if note.len() > NOTE_BYTES_MAX {
            return Err(bad_entry(id, "has a note that is too long"));
        }
        let end = member.entries.end();
        member.entries.push(id, end, note);
        let note = note.into();
        member.jobs.push_back(Job::Seal { id, note, done });
        drop(state);
        self.after_job()
    }

    /// See [`frond_kv::MemberLog::append`]. Everything up to the position `applied` is in the trees.
    pub(crate) fn append_entry(&self, entry: LogEntry, applied: u64, done: Done) -> Result<()> {
        let LogEntry { id, from, to, .. } = entry;
        let sealed = SealedEntry::parse(entry.frames);
        let sealed = sealed.filter(|sealed| {
            let header = &sealed.header;
            sealed.mark.id == id && header.position == from && header.end() == to
        });
        let sealed = sealed.ok_or_else(|| Error::Corrupt {
            file: "an entry from another member".to_owned(),
            offset: from,
            what: "its checksum or its position is wrong",
        })?;
        if applied > from {
            return Err(Error::MustReopen);
        }
        self.discard_frames()?;
        let mut state = self.shared.state.lock();
        state.check()?;
        let member = state.member_mut()?;
        if !member.entries.follows(id) || member.entries.end() != from {
            return Err(bad_entry(id, "does not follow the last one"));
        }
        let sealed = if member.is_late {
            let committed = member.committed.map_or(0, |committed| committed.index + 1);
            sealed.with_committed(committed.min(id.index))
        } else {
            sealed
        };
        member.entries.push(id, to, sealed.note());
        member.cache.insert(id.index, sealed.clone());
        member.jobs.push_back(Job::Write {
            entry: sealed,
            buffer: None,
            done,
        });
        state.end = to;
        drop(state);
        self.after_job()
    }

    /// Lets the log thread do what is in the queue.
    fn after_job(&self) -> Result<()> {
        self.shared.work.notify_one();
        if self.shared.is_inline {
            // A failure that may pass leaves the job in the queue.
            let _ = self.shared.work(false);
            self.shared.state.lock().check()?;
        }
        Ok(())
    }

    /// Discards frames that are in no entry. They are in no tree.
    fn discard_frames(&self) -> Result<()> {
        let mut state = self.shared.state.lock();
        let end = state.end;
        let member = state.member_mut()?;
        if member.entries.end() == end {
            return Ok(());
        }
        drop(state);
        let writer = self.shared.writer.lock();
        let mut state = self.shared.state.lock();
        let member = state.member_mut()?;
        (member.left, member.large) = (None, None);
        let end = member.entries.end();
        (state.filling, state.free, state.stamped) = (None, None, None);
        state.end = end;
        drop(state);
        buffer::remove(&**writer.disk())
    }

    /// See [`frond_kv::MemberLog::truncate_after`]. Everything up to the position `applied` is in the trees.
    pub(crate) fn truncate_after(&self, last: Option<EntryId>, applied: u64) -> Result<()> {
        let shared = &self.shared;
        let mut writer = shared.writer.lock();
        // Those that wait for entries that are written get them durable, replaced or not.
        writer.sync().map_err(Failure::into_error)?;
        let mut state = shared.state.lock();
        state.check()?;
        let member = state.member_mut()?;
        let durable = member.take_unsynced();
        let index = last.map_or(0, |last| last.index + 1);
        let end = match member.entries.span(index) {
            Some((from, _)) => from,
            None => member.entries.end(),
        };
        if applied > end {
            return Err(Error::MustReopen);
        }
        assert!(
            member
                .committed
                .is_none_or(|committed| committed.index < index),
            "N2: a committed entry is truncated"
        );
        let place = member.entries.place(index);
        member.entries.truncate_after(last.map(|last| last.index));
        member.cache.truncate_from(index);
        (member.left, member.large) = (None, None);
        let mut dropped = Vec::new();
        while let Some(job) = member.jobs.pop_back_if(|job| job.index() >= index) {
            dropped.push(job.into_done());
        }
        member.written_to = member.written_to.min(end);
        (state.filling, state.free, state.stamped) = (None, None, None);
        (state.end, state.last) = (end, 0);
        let is_written = end <= writer.end();
        if is_written {
            (state.durable, state.readable) = (state.durable.min(end), state.readable.min(end));
            state.wanted = state.wanted.min(end);
        }
        drop(state);
        let cut = buffer::remove(&**writer.disk()).map_err(Failure::Retryable);
        let cut = cut.and_then(|()| {
            if is_written {
                writer.truncate(end, place)
            } else {
                Ok(())
            }
        });
        for done in durable {
            done(Ok(()));
        }
        for done in dropped {
            done(Err(Error::failed("the entry was replaced")));
        }
        let Err(failure) = cut else {
            return Ok(());
        };
        // The files have entries that the index does not have any more.
        let error = failure.into_error();
        shared.state.lock().failure = Some(error.to_string());
        Err(error)
    }

    /// See [`frond_kv::MemberLog::purge`].
    pub(crate) fn purge_entries(&self, through: EntryId) {
        let mut state = self.shared.state.lock();
        let Some(member) = state.member.as_deref_mut() else {
            return;
        };
        let written = member.written_to;
        let is_written = |(_, to): (u64, u64)| to <= written;
        if !member.entries.span(through.index).is_some_and(is_written) {
            return;
        }
        member.entries.purge(through.index);
        member.cache.purge(through.index);
        let (hold, from) = (member.hold, member.entries.start());
        state.release(hold, Some(from));
        drop(state);
        self.after_request();
    }

    /// Records that everything up to an entry is committed. Returns the position after it.
    pub(crate) fn commit_entries(&self, through: EntryId) -> Result<u64> {
        let mut state = self.shared.state.lock();
        state.check()?;
        let member = state.member_mut()?;
        if member
            .committed
            .is_some_and(|committed| committed >= through)
        {
            return Ok(member.entries.end_of(through.index).unwrap_or(0));
        }
        let known = member.entries.id(through.index);
        let span = member.entries.span(through.index);
        let (Some(known), Some((_, to))) = (known, span) else {
            return Err(bad_entry(through, "is committed, and is not in the log"));
        };
        if known != through {
            return Err(bad_entry(
                through,
                "is committed, and the log has another one",
            ));
        }
        member.committed = Some(through);
        member.committed_to = member.committed_to.max(to);
        // Those who read the log do not wait for the next write.
        state.readable = (state.readable).max(to.min(state.durable));
        self.shared.settle_stamps(&mut state);
        self.shared.progress.notify_all();
        Ok(to)
    }

    /// Records the stamps of commits that were applied, whose frames end at `position`.
    pub(crate) fn note_applied_stamps(&self, position: u64, stamped: super::Stamped) {
        let mut state = self.shared.state.lock();
        state.written_stamps.push_back((position, stamped));
        self.shared.settle_stamps(&mut state);
    }

    /// See [`frond_kv::MemberLog::read`].
    pub(crate) fn read_entries(
        &self,
        first: u64,
        end: u64,
        bytes_max: usize,
    ) -> Result<Vec<LogEntry>> {
        let (mut entries, mut bytes) = (Vec::new(), 0);
        let mut open: Option<Segment> = None;
        for index in first..end {
            let Some(sealed) = self.sealed_entry(index, &mut open)? else {
                break;
            };
            bytes += sealed.bytes.len();
            if !entries.is_empty() && bytes > bytes_max {
                break;
            }
            entries.push(LogEntry {
                id: sealed.mark.id,
                from: sealed.header.position,
                to: sealed.header.end(),
                note: sealed.note().into(),
                frames: sealed.bytes,
            });
        }
        Ok(entries)
    }

    /// Calls `visit` with the frames from a position on to the end of an entry: the position after each, the number of its first
    /// operation, and its payload, which it may change. `frames` is a buffer.
    pub(crate) fn visit_frames(
        &self,
        from: u64,
        through: EntryId,
        frames: &mut Vec<u8>,
        mut visit: impl FnMut(u64, u64, &mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let first = {
            let mut state = self.shared.state.lock();
            state.member_mut()?.entries.first_after(from)
        };
        let mut open: Option<Segment> = None;
        for index in first..=through.index {
            let Some(sealed) = self.sealed_entry(index, &mut open)? else {
                break;
            };
            let damaged = || malformed(&sealed);
            sealed.frames(frames).ok_or_else(damaged)?;
            let (mut position, mut sequence) = (sealed.header.position, sealed.header.sequence);
            let mut rest = &mut frames[..];
            while !rest.is_empty() {
                let payload = payloads(rest).next().flatten();
                let payload = payload.filter(|payload| is_sound(payload));
                let payload = payload.ok_or_else(damaged)?;
                let numbers = numbers_of(payload);
                let frame_bytes = FRAME_HEADER_BYTES + payload.len();
                let (frame, others) = std::mem::take(&mut rest).split_at_mut(frame_bytes);
                let start = position;
                position += frame.len() as u64;
                if start >= from {
                    visit(position, sequence, &mut frame[FRAME_HEADER_BYTES..])?;
                }
                sequence += numbers;
                rest = others;
            }
        }
        Ok(())
    }

    /// See [`frond_kv::MemberLog::set_late`].
    pub(crate) fn set_late(&self, is_late: bool) {
        let mut state = self.shared.state.lock();
        if let Ok(member) = state.member_mut() {
            member.is_late = is_late;
        }
    }

    /// See [`frond_kv::MemberLog::aged`]. Everything up to the position `applied` is in the trees.
    pub(crate) fn aged_entry(
        &self,
        applied: u64,
        through: EntryId,
        stamp: u64,
    ) -> Result<Option<EntryId>> {
        let first = {
            let mut state = self.shared.state.lock();
            state.member_mut()?.entries.first_after(applied)
        };
        let (mut open, mut found, mut bytes): (Option<Segment>, _, _) = (None, None, 0);
        let mut frames = Vec::new();
        for index in first..=through.index {
            let Some(sealed) = self.sealed_entry(index, &mut open)? else {
                break;
            };
            let damaged = || malformed(&sealed);
            sealed.frames(&mut frames).ok_or_else(damaged)?;
            for payload in payloads(&frames) {
                let payload = payload.filter(|payload| is_sound(payload));
                let payload = payload.ok_or_else(damaged)?;
                if first_stamp(payload).is_some_and(|its| its > stamp) {
                    return Ok(found);
                }
            }
            found = Some(sealed.mark.id);
            bytes += sealed.bytes.len();
            if bytes > AGED_BYTES {
                break;
            }
        }
        Ok(found)
    }

    /// An entry, from memory or from a segment; `None` if there is none of this number yet. Waits until its frames are gathered.
    pub(super) fn sealed_entry(
        &self,
        index: u64,
        open: &mut Option<Segment>,
    ) -> Result<Option<SealedEntry>> {
        let mut state = self.shared.state.lock();
        let (position, place) = loop {
            state.check()?;
            let member = state.member_mut()?;
            if let Some(sealed) = member.cache.get(index) {
                return Ok(Some(sealed));
            }
            if index >= member.entries.next() {
                return Ok(None);
            }
            let Some((from, _)) = member.entries.span(index) else {
                let position = member.entries.end();
                return Err(Error::LogGone { position });
            };
            if let Some(place) = member.entries.place(index) {
                break (from, place);
            }
            if self.shared.is_inline || state.stop {
                return Err(Error::failed("an entry of the log is not written yet"));
            }
            self.shared.progress.wait(&mut state);
        };
        drop(state);
        if open.as_ref().is_none_or(|open| open.start != place.segment) {
            let writer = self.shared.writer.lock();
            let disk = writer.disk().clone();
            let file = open_existing(&*disk, place.segment)?;
            drop(writer);
            let file = file.ok_or(Error::LogGone { position })?;
            *open = Some(Segment::of(&*disk, file, place.segment)?);
        }
        let segment = open.as_ref().ok_or(Error::LogGone { position })?;
        let bytes = segment.group(place.offset, place.bytes as usize)?;
        let sealed = bytes.and_then(|bytes| SealedEntry::parse(bytes.into()));
        let sealed = sealed
            .filter(|sealed| sealed.mark.id.index == index && sealed.header.position == position);
        sealed.map(Some).ok_or_else(|| Error::Corrupt {
            file: segment_name(place.segment),
            offset: place.offset,
            what: "an entry of the log is damaged",
        })
    }
}

impl Shared {
    /// Makes this the log of a member.
    pub(super) fn begin_member(&self, recovered: RecoveredMember, map: MapBuffers) {
        let writer = self.writer.lock();
        let mut state = self.state.lock();
        let hold = state.hold(recovered.entries.start());
        (state.durable, state.readable) =
            (writer.durable, recovered.committed_to.min(writer.durable));
        state.member = Some(Box::new(MemberState::new(recovered, map, hold)));
    }

    /// Makes what the buffers have durable. It becomes an entry if this member leads when it is opened again.
    pub(super) fn close_member(&self) -> Result<()> {
        let state = self.state.lock();
        state.check()?;
        let has_frames = self.is_mapped.load(std::sync::atomic::Ordering::Relaxed)
            && state
                .filling
                .as_ref()
                .is_some_and(|buffer| !buffer.is_empty());
        drop(state);
        if has_frames {
            buffer::sync(&**self.writer.lock().disk())?;
        }
        Ok(())
    }
}

/// The error of an entry whose frames cannot be read.
fn malformed(entry: &SealedEntry) -> Error {
    Error::Corrupt {
        file: segment_name(entry.header.position),
        offset: 0,
        what: "an entry of the log has malformed frames",
    }
}

/// The time that a flush waits for the commit of what it flushes.
const COMMIT_PATIENCE: std::time::Duration = std::time::Duration::from_millis(200);

impl Shared {
    /// Passes on the stamps that readers may rely on now.
    fn settle_stamps(&self, state: &mut State) {
        if let Some(stamped) = state.take_durable_stamp() {
            self.stamps.note_synced(stamped.sequence, stamped.last);
        }
    }

    /// As [`Shared::append_to_segment`], for a member: the frame becomes an entry of its own. It is in a segment when this
    /// returns, unless there is no log thread.
    pub(super) fn append_large(&self, frame: &Frame<'_>) -> Result<u64> {
        let mut state = self.state.lock();
        loop {
            state.check()?;
            state.check_leading()?;
            let is_empty = state.filling.as_ref().is_none_or(Buffer::is_empty);
            let member = state.member_mut()?;
            if is_empty && member.large.is_none() {
                break;
            }
            if self.is_inline {
                return Err(busy());
            }
            state.wants_room = true;
            state.wake_for_group(false);
            Wait::begin(WaitFor::Log)?.on(&self.progress, &mut state)?;
        }
        let before = (state.end, state.last, state.stamped);
        state.member_mut()?.large = Some(Large::new(frame));
        state.note_appended(frame);
        let end = state.end;
        state.wake_for_group(self.is_inline);
        if self.is_inline {
            return Ok(end);
        }
        loop {
            state.check()?;
            let member = state.member_mut()?;
            if member.written_to >= end {
                return Ok(end);
            }
            if !member.is_leading && member.large.take().is_some() {
                (state.end, state.last, state.stamped) = before;
                return Err(Error::NotLeading);
            }
            self.progress.wait(&mut state);
        }
    }
}
