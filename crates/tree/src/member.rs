//! The store of a member of a replica set: its log is the replicated log, and committed entries of other members are applied to
//! its trees.
//!
//! An entry is applied as a replay does it, beside readers: the frames have the numbers and the stamps that the leader gave them, and
//! become visible one after the other. Nothing is looked up; a conflict was found by the leader, if there was one.
//!
//! R6: what is applied is a beginning of the log, and its end is `Engine::log_position`. On a member that leads, that is
//! the end of the log, because its commits are in the trees at once.

use std::sync::Arc;
use std::task::{Context, Poll};

use frond_kv::operation::{self, Op};
use frond_kv::{ApplyListener, Done, EntryId, LogEntry, LogState, MemberLog};

use crate::engine::{Engine, Listening};
use crate::fail_stop::{FailStop, step};
use crate::log::{Log, Stamped};
use crate::recovery::payload_bytes_max;
use crate::{Error, Result, Store};

/// Bytes of the buffer that is kept between two applications of entries.
const APPLIED_FRAMES_MAX: usize = 4 << 20;

impl Engine {
    fn member_log(&self) -> Result<&Log> {
        let log = self.log.get().filter(|_| self.options.member);
        log.ok_or_else(|| Error::failed("this store is not a member of a replica set"))
    }

    /// Whether this is a member that does not lead.
    pub(crate) fn is_following(&self) -> bool {
        self.member_log().is_ok_and(|log| !log.is_leading())
    }

    /// Records on a member that leads that its entries are committed. `None` on another one.
    fn commit_own(&self, through: EntryId) -> Option<Result<()>> {
        let log = self.member_log().ok().filter(|log| log.is_leading())?;
        Some(log.commit_entries(through).map(|through_end| {
            // Its own commits are in the trees, or about to be: their frames are in the log before they have their numbers. Entries
            // without frames have a place in the log, too. A commit that holds the lock passes that place itself.
            if self.log_position() < through_end
                && let Some(_state) = self.commit_lock.try_lock()
            {
                self.advance_log_position(through_end);
            }
            self.notify_durable_stamp();
        }))
    }

    /// Inserts the frames of committed entries that the trees do not have.
    fn apply_through(&self, through: EntryId) -> Result<()> {
        if let Some(done) = self.commit_own(through) {
            return done;
        }
        let log = self.member_log()?;
        // First: a memtable that fills meanwhile can be flushed only if what it has is committed.
        let through_end = log.commit_entries(through)?;
        let mut position = {
            // A leadership that has just ended may have left a commit on its way.
            let _state = self.commit_lock.lock();
            self.log_position()
        };
        let mut frames = self.applied_frames.lock();
        log.visit_frames(position, through, &mut frames, |end, sequence, payload| {
            self.apply_frame(position, end, sequence, payload)?;
            position = end;
            Ok(())
        })?;
        frames.clear();
        frames.shrink_to(APPLIED_FRAMES_MAX);
        drop(frames);
        if self.log_position() < through_end {
            let _state = self.commit_lock.lock();
            self.advance_log_position(through_end);
        }
        self.notify_durable_stamp();
        Ok(())
    }

    /// Applies the frame between two positions of the log, whose first operation has the number `sequence`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the frame does not follow what was applied before.
    fn apply_frame(&self, from: u64, to: u64, sequence: u64, payload: &mut [u8]) -> Result<()> {
        let log = self.member_log()?;
        let (payload, last_stamp) = operation::add_stamps(payload);
        let bytes = payload_bytes_max(payload);
        let mut state = self.make_room(bytes, true)?;
        let fail_stop = FailStop::begin("applying an entry");
        let version = self.version.load();
        if sequence != state.next_sequence || from != self.log_position() {
            version.active.cancel(bytes);
            self.end_large_of(&mut state, bytes);
            fail_stop.finish();
            return Err(Error::Corrupt {
                file: crate::log::segment_name(from),
                offset: from,
                what: "an entry does not have the numbers that follow",
            });
        }
        // The listener may block its readers until `after`, so it is called only once the commit can no longer fail.
        let listener = self.apply_listener.load_full();
        let is_listening =
            (listener.as_ref()).is_some_and(|it| it.0.before(operation::decode(payload)));
        let numbers = operation::numbers_of(payload);
        assert!(numbers > 0, "R2: a frame has no number");
        let last = sequence + numbers - 1;
        let stamped = last_stamp.map(|stamp| Stamped {
            first: stamp,
            last: stamp,
            sequence: last,
        });
        state.give_out(sequence, last, stamped);
        self.advance_log_position(to);
        // Readers see it before the next one is applied.
        state.awaited = last;
        version.active.note_last_sequence(last);
        let changes = |op: Op<'_>| matches!(op, Op::CreateTree(..) | Op::DropTree(_));
        if operation::decode(payload).any(changes) {
            version.active.note_tree_changes();
            self.change_trees(&version, operation::decode(payload), last);
            for op in operation::decode(payload) {
                if let Op::DropTree(tree) = op {
                    state.recent.forget_tree(tree);
                }
            }
        }
        drop(state);
        step("an entry has its numbers");
        let ops = operation::decode(payload);
        let hot = (version.active).insert(ops, numbers as usize, sequence, bytes);
        self.publisher.publish(sequence, last, last);
        fail_stop.finish();
        self.end_large_of(&mut self.commit_lock.lock(), bytes);
        self.fold_hot(&version.active, hot);
        if let Some(stamped) = stamped {
            log.note_applied_stamps(to, stamped);
        }
        match listener.filter(|_| is_listening) {
            Some(listener) => listener.0.after(last_stamp),
            None => Ok(()),
        }
    }
}

impl Store {
    /// Sets what gets the commits that this store applies as a member of a replica set.
    pub fn set_apply_listener(&self, listener: Arc<dyn ApplyListener>) {
        let listening = Arc::new(Listening(listener));
        self.engine().apply_listener.store(Some(listening));
    }
}

impl MemberLog for Store {
    fn state(&self) -> LogState {
        let engine = self.engine();
        match engine.member_log() {
            Ok(log) => log.member_state(engine.log_position()),
            Err(_) => LogState::default(),
        }
    }

    fn vote(&self) -> Result<Option<Vec<u8>>> {
        crate::vote::read(&*self.engine().options.disk)
    }

    fn save_vote(&self, vote: &[u8]) -> Result<()> {
        crate::vote::save(&*self.engine().options.disk, vote)
    }

    fn set_leading(&self, is_leading: bool) -> Result<()> {
        let engine = self.engine();
        let log = engine.member_log()?;
        if is_leading {
            let mut state = engine.commit_lock.lock();
            // Keys that other leaders have changed are not known.
            let last = state.next_sequence - 1;
            state.recent.forget_before(last);
            return log.set_leading(true, engine.log_position());
        }
        log.set_leading(false, 0)?;
        let last = engine.commit_lock.lock().next_sequence - 1;
        engine.publisher.wait(last);
        Ok(())
    }

    fn poll_group(&self, context: &mut Context<'_>) -> Poll<u64> {
        match self.engine().member_log() {
            Ok(log) => log.poll_group(context),
            Err(_) => Poll::Pending,
        }
    }

    fn request(&self, position: u64) {
        if let Ok(log) = self.engine().member_log() {
            log.request_group(position);
        }
    }

    fn seal(&self, id: EntryId, note: &[u8], done: Done) -> Result<()> {
        self.engine().member_log()?.seal(id, note, done)
    }

    fn append(&self, entry: LogEntry, done: Done) -> Result<()> {
        let engine = self.engine();
        let applied = engine.log_position();
        engine.member_log()?.append_entry(entry, applied, done)
    }

    fn read(&self, first: u64, end: u64, bytes_max: usize) -> Result<Vec<LogEntry>> {
        let log = self.engine().member_log()?;
        log.read_entries(first, end, bytes_max)
    }

    fn truncate_after(&self, last: Option<EntryId>) -> Result<()> {
        let engine = self.engine();
        let applied = engine.log_position();
        engine.member_log()?.truncate_after(last, applied)
    }

    fn purge(&self, through: EntryId) {
        if let Ok(log) = self.engine().member_log() {
            log.purge_entries(through);
        }
    }

    fn apply(&self, through: EntryId) -> Result<()> {
        self.engine().apply_through(through)
    }

    fn apply_own(&self, through: EntryId) -> Option<Result<()>> {
        self.engine().commit_own(through)
    }

    fn set_late(&self, is_late: bool) {
        if let Ok(log) = self.engine().member_log() {
            log.set_late(is_late);
        }
    }

    fn aged(&self, through: EntryId, stamp: u64) -> Result<Option<EntryId>> {
        let engine = self.engine();
        let applied = engine.log_position();
        engine.member_log()?.aged_entry(applied, through, stamp)
    }

    fn committed_position(&self) -> u64 {
        self.engine().log.get().map_or(0, Log::committed_to)
    }

    fn end_position(&self) -> u64 {
        self.engine().log.get().map_or(0, Log::end)
    }
}
