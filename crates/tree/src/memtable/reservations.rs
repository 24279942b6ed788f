//! Reservations of space in a memtable, and its active writers: how committers, the sealing of the memtable and its
//! flush are synchronised without a lock.
//!
//! A committer reserves under the commit lock, inserts outside of it, and leaves. Sealing happens under the commit
//! lock too, so no writer enters afterwards. A flush that then sees no writers sees all entries.

use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The reservations and writers of one memtable.
pub(crate) struct Reservations {
    /// M1: the bytes reserved by the write sets that are being inserted, each until it leaves.
    reserved: AtomicUsize,
    /// M2: the write sets that are being inserted. None enters after the memtable was sealed.
    writers: AtomicUsize,
    /// M3: the last sequence number that was given to a write set for this memtable; it only grows.
    last_sequence: AtomicU64,
}

impl Reservations {
    pub(crate) fn new() -> Reservations {
        Reservations {
            reserved: AtomicUsize::new(0),
            writers: AtomicUsize::new(0),
            last_sequence: AtomicU64::new(0),
        }
    }

    /// Reserves `bytes` for a writer that enters; false if they exceed `capacity` together with the bytes `used`.
    /// Called under the commit lock.
    pub(crate) fn reserve(
        &self,
        bytes: usize,
        used: impl FnOnce() -> usize,
        capacity: usize,
    ) -> bool {
        // In this order a writer that leaves in between is counted twice rather than not at all.
        let reserved = self.reserved.load(Ordering::Acquire);
        if reserved + used() + bytes > capacity {
            return false;
        }
        self.reserved.fetch_add(bytes, Ordering::AcqRel);
        self.writers.fetch_add(1, Ordering::AcqRel);
        true
    }

    /// A writer leaves: it has used or cancelled its reservation.
    pub(crate) fn leave(&self, bytes: usize) {
        let reserved = self.reserved.fetch_sub(bytes, Ordering::AcqRel);
        assert!(reserved >= bytes, "M1: more is released than was reserved");
        let writers = self.writers.fetch_sub(1, Ordering::AcqRel);
        assert!(writers > 0, "M2: a writer leaves that has not entered");
    }

    /// Whether no write set is being inserted.
    pub(crate) fn has_no_writers(&self) -> bool {
        self.writers.load(Ordering::Acquire) == 0
    }

    /// Called under the commit lock, for each write set.
    pub(crate) fn note_last_sequence(&self, sequence: u64) {
        self.last_sequence.store(sequence, Ordering::Release);
    }

    pub(crate) fn last_sequence(&self) -> u64 {
        self.last_sequence.load(Ordering::Acquire)
    }
}
