//! What the engine does while the disk is nearly full: it refuses writes, and turns deletes into free space.

use crate::engine::Engine;
use crate::{Error, Result};

/// Bytes of the data file for which it is worth its cost to return them to the file system.
const RELEASED_BYTES: u64 = 1 << 20;

/// What there was when space was made for the last time.
#[derive(Clone, Copy, Default)]
pub(crate) struct Considered {
    /// The last commit.
    sequence: u64,
    /// Unused bytes of the data file.
    unused: u64,
}

impl Engine {
    /// Measures the room. When it is enough again, or not any more, the flusher is woken.
    pub(crate) fn check_space(&self) {
        let was_low = self.disk_space.is_low();
        let version = self.version.load();
        let in_memory = version.memtables().map(|memtable| memtable.bytes() as u64);
        let in_memory = in_memory.sum();
        drop(version);
        let inside = match self.runs.data.can_punch() {
            true => 0,
            false => self.runs.data.space.stats().free_bytes,
        };
        self.disk_space.measure(in_memory, inside);
        if was_low != self.disk_space.is_low() {
            self.flusher.wake();
        }
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
            // Without threads nobody else looks whether there is room again.
            match self.make_space() {
                Err(error) if !self.is_retryable(&error) => return Err(error),
                _ => {}
            }
        }
        match self.disk_space.stays_low() {
            true => Err(self.disk_space.refuse()),
            false => Ok(()),
        }
    }

    /// Notes that a write has failed for want of room, if that is what the error says.
    pub(crate) fn note_if_full(&self, error: &Error) {
        if error.is_disk_full() && self.disk_space.note_full() {
            self.flusher.wake();
        }
    }

    /// Whether [`Engine::make_space`] could free anything that it could not before.
    pub(crate) fn could_make_space(&self, before: Considered) -> bool {
        let now = self.considered();
        now.sequence > before.sequence || now.unused >= before.unused + RELEASED_BYTES
    }

    /// What there is now.
    fn considered(&self) -> Considered {
        let space = self.runs.data.space.stats();
        Considered {
            sequence: self.publisher.visible(),
            unused: space.free_bytes + space.waiting_bytes,
        }
    }

    /// Flushes what is in memory, so that its log can be deleted, and moves pending messages to the leaves in small
    /// steps: deletes free space only there. Returns the space to the file system.
    pub(crate) fn make_space(&self) -> Result<Considered> {
        let sequence = self.publisher.visible();
        if self.version.load().sealed.is_empty() {
            self.seal_if_over(0);
        }
        let flushed = self.flush_all();
        // Without room for the flush, compaction may still make some.
        let result = match flushed {
            Err(error) if !error.is_disk_full() => Err(error),
            flushed => self
                .free_space()
                .and_then(|unused| flushed.map(|()| unused)),
        };
        if let Err(error) = &result {
            self.note_if_full(error);
        }
        self.check_space();
        self.disk_space.settle();
        result.map(|unused| Considered { sequence, unused })
    }

    /// Returns the unused bytes of the data file that are left.
    fn free_space(&self) -> Result<u64> {
        let mut unused = self.return_space()?;
        let mut saved = self.written_bytes();
        for id in self.pending_trees() {
            while self.disk_space.is_low() && self.compact_tree_once(id)? {
                if self.written_bytes() - saved < self.disk_space.step_bytes() {
                    continue;
                }
                unused = self.return_space()?;
                saved = self.written_bytes();
                // Commits wait for the flush of their memtable, unless there is little room left for it.
                let stats = self.disk_space.stats();
                if self.flusher.has_work() && stats.available_bytes > stats.reserve_bytes / 4 * 3 {
                    return Ok(unused);
                }
            }
        }
        if self.written_bytes() > saved {
            unused = self.return_space()?;
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

    /// Makes released extents free by a checkpoint, and returns them to the file system. The answer are the unused bytes
    /// that are left in the file, without those that others release meanwhile.
    fn return_space(&self) -> Result<u64> {
        let before = self.considered().unused;
        self.checkpoint_unflushed()?;
        let returned = self.runs.data.return_free();
        self.check_space();
        returned.map(|()| before.min(self.considered().unused))
    }

    fn written_bytes(&self) -> u64 {
        let (_, _, written) = self.runs.data.io_stats();
        written
    }
}
