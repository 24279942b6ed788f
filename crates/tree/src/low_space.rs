//! The engine on a disk that is nearly full: it refuses writes, and turns deletes into free space.
//!
//! # Rules
//!
//! They hold on a file system that reports its free space ([`crate::disk_space`]):
//!
//! - A reserve is kept: `Options::disk_reserve_bytes`. Memtables are sealed when they have a sixteenth of the room
//!   above it, so that what is in memory can always be flushed.
//! - When less is left, what is in memory is flushed and its log deleted. If that does not help, commits get
//!   `Error::Stalled` at once, and so do bulk loads. Write sets that free space (`WriteSet::set_frees_space`) are
//!   committed; they wait for the flush of small memtables.
//! - Meanwhile a flush adds a run to the root and does nothing below it, the log is kept for the last checkpoint only,
//!   and compaction turns deletes into free space: in small steps, each followed by a checkpoint, holes in the data
//!   file and its truncation.
//! - While the room is low, compaction empties the largest buffers first, one tree after the other. A part of a run
//!   that has 4 KiB ends where its child ends, so that its extent is free as soon as that child has its messages. Each
//!   step has room (`node/small_steps.rs`): a leaf has at most a sixth of the reserve that is usual for the file system.
//! - With less than three quarters of the reserve, pending deletes are compacted before more are flushed, with less than
//!   half of it after each memtable, and the commits of deletes wait. The last half is for compaction: no memtable is
//!   flushed as long as messages are pending, and compaction pauses when readers keep what a step has replaced.
//! - A commit fails only after an attempt to make room that was without success. A deletion then gives up the snapshot of
//!   its search and waits for one more attempt.
//! - A file of the log has at most a 256th of the file system: each new one takes its room at once, while a step of
//!   compaction is under way.
//! - A part of the reserve, at most 16 MiB, is held by `reserve.frond`. When a write fails for lack of space in spite
//!   of all that, because other programs filled the file system or a quota is used up, this file shrinks to a part that
//!   is only given up when a checkpoint has no room: what was superseded can be freed only after one. Commits are
//!   accepted again when there is room for the whole file, and a quarter more than the reserve.
//! - After a kill the store is opened on the full disk: what was in memory before is in memory again until there is
//!   room. What the log's buffers held goes to a segment. Where there is no room for that either, it stays in their
//!   file, which is synced; commits get `Error::Stalled` until it could be written (`log/recovered.rs`).
//! - Where holes cannot be punched, free space inside the data file counts as room, but the log cannot use it.

use std::cmp::Reverse;
use std::sync::atomic::Ordering;
use std::time::Duration;

use frond_kv::{Interrupt, Wait, WaitFor};

use crate::damage::Activity;
use crate::engine::Engine;
use crate::{Error, Result, TreeId};

/// Bytes of the data file for which it is worth its cost to return them to the file system.
const RELEASED_BYTES: u64 = 1 << 20;
/// On a small file system less is worth another attempt: this share of the reserve, but not less than this many bytes.
const RELEASED_SHARE: u64 = 64;
const RELEASED_BYTES_MIN: u64 = 32 << 10;
/// The interval at which a commit that waits for room checks whether the store still runs.
const AWAIT_CHECK: Duration = Duration::from_millis(100);
/// Its pause if there is room by now.
const ENOUGH_PAUSE: Duration = Duration::from_millis(10);

/// The state when space was made for the last time.
#[derive(Clone, Copy, Default)]
pub(crate) struct Considered {
    /// The number of the last commit.
    sequence: u64,
    /// Unused bytes of the data file.
    unused: u64,
    /// The room of the file system.
    room: u64,
}

impl Engine {
    /// Measures the room. When it is enough again, or not any more, the flusher is woken.
    pub(crate) fn check_space(&self) {
        let was_low = self.disk_space.is_low();
        let version = self.version.load();
        let in_memory = version.memtables().map(|memtable| memtable.bytes() as u64);
        let in_memory = in_memory.sum();
        drop(version);
        let inside = if self.runs.data.can_punch() {
            0
        } else {
            self.runs.data.space.stats().free_bytes
        };
        self.disk_space.measure(in_memory, inside);
        if was_low != self.disk_space.is_low() {
            self.flusher.wake();
        }
        self.report_low_disk();
        if was_low && let Some(log) = self.log.get() {
            log.retry_now();
        }
    }

    /// Fails if the disk is nearly full. Called for write sets that do not free space.
    pub(crate) fn check_room(&self) -> Result<()> {
        if !self.disk_space.is_low() {
            return Ok(());
        }
        if self.options.inline {
            // Without threads there is no other check whether there is room again.
            match self.make_space() {
                Err(error) if !self.is_retryable(&error) => return Err(error),
                _ => {}
            }
        }
        if self.disk_space.stays_low() {
            Err(self.disk_space.refuse())
        } else {
            Ok(())
        }
    }

    /// Notes that a write has failed for lack of space, if that is what the error says.
    pub(crate) fn note_if_full(&self, error: &Error) {
        if error.is_disk_full() && self.disk_space.note_full() {
            self.flusher.wake();
            self.report_low_disk();
        }
    }

    fn report_low_disk(&self) {
        let (is_low, room) = (self.disk_space.is_low(), self.disk_space.room());
        self.report_condition(Activity::LowDisk, is_low, room, None);
    }

    /// Whether [`Engine::make_space`] could free something now that it could not free the last time.
    pub(crate) fn could_make_space(&self, before: Considered) -> bool {
        let now = self.considered();
        let reserve = self.disk_space.stats().reserve_bytes;
        let released = (reserve / RELEASED_SHARE).clamp(RELEASED_BYTES_MIN, RELEASED_BYTES);
        now.sequence > before.sequence
            || now.unused >= before.unused + released
            || now.room >= before.room + released
    }

    /// The state that there is now.
    fn considered(&self) -> Considered {
        let space = self.runs.data.space.stats();
        Considered {
            sequence: self.publisher.visible(),
            unused: space.free_bytes + space.waiting_bytes,
            room: self.disk_space.room(),
        }
    }

    /// Flushes what is in memory, so that its log can be deleted, and moves pending messages to the leaves in small
    /// steps: deletes free space only there. Returns the space to the file system.
    pub(crate) fn make_space(&self) -> Result<Considered> {
        let attempt = self.disk_space.begin_attempt();
        let flushed_before = self.counters.memtables_flushed.load(Ordering::Relaxed);
        let result = self.flush_and_free();
        if let Err(error) = &result {
            self.note_if_full(error);
        }
        self.check_space();
        let flushed = self.counters.memtables_flushed.load(Ordering::Relaxed) > flushed_before;
        self.disk_space.end_attempt(&attempt, flushed);
        result
    }

    fn flush_and_free(&self) -> Result<Considered> {
        let sequence = self.publisher.visible();
        if self.version.load().sealed.is_empty() {
            self.seal_if_over(0);
        }
        if !self.disk_space.has_room_for_deletes() {
            // Memtables would take the room that compaction needs.
            match self.free_space() {
                Err(error) if !error.is_disk_full() => return Err(error),
                Ok(_)
                    if !self.disk_space.has_room_for_flushes()
                        && !self.pending_trees().is_empty() =>
                {
                    // More messages would only take the room that the next step needs.
                    let full = Err(self.disk_space.full());
                    self.note_outcome(&full);
                    full?;
                }
                _ => {}
            }
        }
        // Not those that are sealed meanwhile: first there must be room for them.
        let sealed = self.version.load().sealed.len();
        let mut flushed = self.flush_at_most(sealed.min(1));
        for _ in 1..sealed {
            self.check_space();
            if flushed.is_err() {
                break;
            }
            if !self.disk_space.has_room_for_flushes() {
                self.flusher.wake();
                break;
            }
            flushed = self.flush_at_most(1);
        }
        // Without room for the flush, compaction may still make some.
        let unused = match flushed {
            Err(error) if !error.is_disk_full() => return Err(error),
            flushed => self
                .free_space()
                .and_then(|unused| flushed.map(|()| unused))?,
        };
        Ok(Considered {
            sequence,
            unused,
            room: self.disk_space.room(),
        })
    }

    /// Waits until an attempt to make room is over that begins from now on, for a commit that failed for want of it and
    /// frees space. False if that was of no use, so that the commit must fail.
    pub(crate) fn await_space(&self) -> Result<bool> {
        if !self.disk_space.is_known() {
            return Ok(false);
        }
        let number = self.disk_space.next_attempt();
        let _wait = Wait::begin(WaitFor::Disk)?;
        loop {
            self.check_running()?;
            Interrupt::check_current()?;
            if !self.disk_space.is_low() {
                // The failure is not over before the flush is tried again.
                self.flusher.wake();
                std::thread::sleep(ENOUGH_PAUSE);
                return Ok(true);
            }
            if self.options.inline {
                match self.make_space() {
                    Err(error) if !self.is_retryable(&error) => return Err(error),
                    _ => {}
                }
            } else {
                self.flusher.wake();
            }
            if let Some(is_useful) = self.disk_space.outcome(number, AWAIT_CHECK) {
                return Ok(is_useful);
            }
        }
    }

    /// Returns the unused bytes of the data file that are left.
    fn free_space(&self) -> Result<u64> {
        let mut unused = self.return_space()?;
        while self.disk_space.is_low() {
            let room = self.disk_space.room();
            let saved = self.written_bytes();
            let kept = self.kept_bytes();
            if !self.pending_trees().is_empty() {
                self.disk_space.use_reserve();
            }
            let trees = self.pending_trees();
            let compacted = if trees.is_empty() {
                Ok(false)
            } else {
                self.report(Activity::Compaction, self.pending_bytes(&trees), || {
                    self.compact_some(saved)
                })
            };
            if self.written_bytes() > saved {
                unused = self.return_space()?;
                let step = self.written_bytes() - saved;
                let is_kept = self.kept_bytes() > kept + step / 2;
                if is_kept && !self.disk_space.has_room_for_flushes() {
                    // Readers keep what the step has replaced. When they are gone, the next step needs room.
                    break;
                }
            }
            match compacted {
                Ok(true) => {}
                Ok(false) => break,
                // The room that the steps before it have freed may suffice to go on.
                Err(error) if error.is_disk_full() && self.disk_space.room() > room => {}
                Err(error) => return Err(error),
            }
            // Commits wait for the flush of their memtable, unless there is little room left for it.
            if self.flusher.has_work() && self.disk_space.has_room_for_deletes() {
                return Ok(unused);
            }
        }
        if !self.runs.data.can_punch() && unused >= RELEASED_BYTES {
            // Only the end of the file can be returned. The manifest lies there, the next one does not, and the one after
            // that makes the first one's place free.
            self.return_space()?;
            unused = self.return_space()?;
        }
        if let Some(log) = self.log.get() {
            log.leave_segment();
        }
        Ok(unused)
    }

    /// Makes released extents free by a checkpoint, and returns them to the file system. Returns the number of unused bytes
    /// that are left in the file, without those that others release meanwhile.
    fn return_space(&self) -> Result<u64> {
        // Nodes that were dropped unread count too.
        while self.release_orphans(usize::MAX) {}
        // The blocks of a step that failed for want of room are free at once, and the checkpoint may need them.
        self.runs.data.return_free()?;
        let before = self.considered().unused;
        match self.checkpoint_unflushed() {
            Err(error) if error.is_disk_full() && self.disk_space.use_checkpoint_reserve() => {
                self.checkpoint_unflushed()?;
            }
            written => written?,
        }
        let returned = self.runs.data.return_free();
        self.check_space();
        self.disk_space.keep_checkpoint_reserve();
        returned.map(|()| before.min(self.considered().unused))
    }

    /// Compacts until that has written so much that a checkpoint is due; the data file had `saved` written bytes before.
    /// False if nothing is pending any more for which there is room.
    ///
    /// It goes on in the same tree until half of its buffers are empty, because those that are emptied only in part take
    /// their room still. The tree with the largest buffers is next.
    fn compact_some(&self, saved: u64) -> Result<bool> {
        let last = *self.flusher.emptied.lock();
        let is_begun = |(id, bytes): &(TreeId, u64)| {
            let left = self.buffered_bytes(*id);
            left.is_ok_and(|left| left > bytes / 2)
        };
        let last = last.filter(is_begun).map(|(id, _)| id);
        if let Some(id) = last
            && self.compact_part(id, saved)?
        {
            return Ok(true);
        }
        let mut trees = Vec::new();
        for id in self.pending_trees() {
            match self.buffered_bytes(id) {
                Err(error) if !error.is_damage() => return Err(error),
                bytes => trees.push((bytes.unwrap_or(0), id)),
            }
        }
        trees.sort_unstable_by_key(|(bytes, id)| (Reverse(*bytes), *id));
        for (bytes, id) in trees.into_iter().filter(|(_, id)| Some(*id) != last) {
            *self.flusher.emptied.lock() = Some((id, bytes));
            if self.compact_part(id, saved)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Compacts one tree so far; false if nothing is pending there any more for which there is room.
    fn compact_part(&self, id: TreeId, saved: u64) -> Result<bool> {
        while self.disk_space.is_low() && self.compact_tree_once(id)? {
            // The next step has what this one has left.
            self.check_space();
            if self.written_bytes() - saved >= self.disk_space.step_bytes() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn buffered_bytes(&self, id: TreeId) -> Result<u64> {
        let trees = self.trees();
        trees
            .get(id)
            .map_or(Ok(0), |tree| tree.root.buffered_bytes())
    }

    /// Bytes of the data file that are in use and do not belong to the present trees: readers of earlier ones need them.
    fn kept_bytes(&self) -> u64 {
        let space = self.runs.data.space.stats();
        let used = space.file_bytes - space.free_bytes - space.waiting_bytes;
        let trees = self.trees();
        let trees = trees.pages().iter().flat_map(|page| page.trees());
        let present = trees.map(|(_, tree)| tree.root.stats().disk_bytes);
        used.saturating_sub(present.sum())
    }

    pub(crate) fn written_bytes(&self) -> u64 {
        let (_, _, written) = self.runs.data.io_stats();
        written
    }
}
