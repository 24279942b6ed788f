//! The memory budget of a store.
//!
//! Memtables, nodes under construction, loaders and read-ahead reserve what they need; indexes and filters of runs may
//! be pinned up to a share; the page cache gets the rest.
//!
//! The memory that writes need is kept free even while there are none: evicted pages lie scattered on the heap, so the
//! allocator could not reuse their memory for a memtable.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The cache of pages never shrinks below this share of the budget.
const CACHE_SHARE_MIN: u64 = 8;
/// The overhead of a pinned object, in bytes.
const PIN_COST: u64 = 32;

/// Accounts for the budget.
pub(crate) struct Budget {
    bytes: u64,
    /// The part of `bytes` that is kept free for writers.
    for_writers: u64,
    pinned: AtomicU64,
    reserved: AtomicU64,
}

impl Budget {
    /// A budget of `bytes` bytes, of which `for_writers` are used by writers or kept free.
    pub(crate) fn new(bytes: usize, for_writers: usize) -> Arc<Budget> {
        Arc::new(Budget {
            bytes: bytes as u64,
            for_writers: for_writers as u64,
            pinned: AtomicU64::new(0),
            reserved: AtomicU64::new(0),
        })
    }

    /// Pins `bytes` of an index or a filter in memory with its run. False if pinned objects would take more
    /// than half of what is not reserved.
    pub(crate) fn pin(&self, bytes: usize) -> bool {
        let bytes = bytes as u64 + PIN_COST;
        let limit = self.bytes.saturating_sub(self.taken()) / 2;
        if self.pinned.fetch_add(bytes, Ordering::Relaxed) + bytes > limit {
            self.pinned.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Counts `bytes` as pinned, whatever the limit.
    pub(crate) fn pin_always(&self, bytes: usize) {
        (self.pinned).fetch_add(bytes as u64 + PIN_COST, Ordering::Relaxed);
    }

    /// Reverts a `pin`.
    pub(crate) fn unpin(&self, bytes: usize) {
        (self.pinned).fetch_sub(bytes as u64 + PIN_COST, Ordering::Relaxed);
    }

    /// Reserves `bytes` until the result is dropped.
    pub(crate) fn reserve(self: &Arc<Budget>, bytes: usize) -> Reservation {
        self.reserved.fetch_add(bytes as u64, Ordering::Relaxed);
        Reservation {
            budget: self.clone(),
            bytes,
        }
    }

    /// Reserves `wanted` bytes, or fewer if more than half of the budget would be in use, but at least `least`.
    pub(crate) fn reserve_up_to(self: &Arc<Budget>, wanted: usize, least: usize) -> Reservation {
        let free = (self.bytes / 2).saturating_sub(self.pinned() + self.reserved());
        self.reserve(wanted.min(free as usize).max(least))
    }

    pub(crate) fn pinned(&self) -> u64 {
        self.pinned.load(Ordering::Relaxed)
    }

    fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Relaxed)
    }

    /// What is reserved or kept free.
    fn taken(&self) -> u64 {
        self.reserved().max(self.for_writers)
    }

    /// Whether little is left for the cache: then read-ahead should be short.
    pub(crate) fn is_tight(&self) -> bool {
        self.pinned() + self.taken() > self.bytes / 4 * 3
    }

    /// All of the budget.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The bytes that the page cache may use now.
    pub(crate) fn for_cache(&self) -> u64 {
        let rest = self.bytes.saturating_sub(self.pinned() + self.taken());
        rest.max(self.bytes / CACHE_SHARE_MIN)
    }
}

/// A reserved part of the budget.
pub(crate) struct Reservation {
    budget: Arc<Budget>,
    pub(crate) bytes: usize,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let bytes = self.bytes as u64;
        self.budget.reserved.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn the_cache_gets_what_is_not_reserved() {
        let budget = Budget::new(64 * MIB, 0);
        assert!(budget.pin(20 * MIB));
        assert!(!budget.pin(20 * MIB), "more than half");
        assert!(budget.for_cache() <= 44 << 20);
        let reserved = budget.reserve(30 * MIB);
        assert!(budget.for_cache() <= 14 << 20);
        assert!(!budget.pin(MIB), "more than half of the rest");
        let more = budget.reserve(100 * MIB);
        assert_eq!(budget.for_cache(), 8 << 20);
        drop((reserved, more));
        budget.unpin(20 * MIB);
        assert_eq!(budget.for_cache(), 64 << 20);
        assert_eq!(budget.reserve_up_to(100 * MIB, MIB).bytes, 32 * MIB);
        let _most = budget.reserve(60 * MIB);
        assert_eq!(budget.reserve_up_to(100 * MIB, MIB).bytes, MIB);

        let budget = Budget::new(64 * MIB, 24 * MIB);
        assert_eq!(budget.for_cache(), 40 << 20);
        let _lent = budget.reserve(20 * MIB);
        assert_eq!(budget.for_cache(), 40 << 20, "kept free for this");
    }
}
