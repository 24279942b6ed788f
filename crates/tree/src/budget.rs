//! The memory budget of a store.
//!
//! Memtables, nodes that are being built, loaders and read-ahead take what they need; indexes and filters of runs may
//! be pinned up to a share; the cache of pages has what is left.
//!
//! What writing takes while it goes on is kept free for it also while it rests: the memory of pages that are dropped
//! is scattered among that of others, and no allocator can give it to anybody else.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The cache of pages never shrinks below this share of the budget.
const CACHE_SHARE_MIN: u64 = 8;
/// What a pinned thing costs besides its bytes.
const PIN_COST: u64 = 32;

/// Counts who has how much of the budget.
pub(crate) struct Budget {
    bytes: u64,
    /// Of these, kept free for writers.
    for_writers: u64,
    pinned: AtomicU64,
    reserved: AtomicU64,
}

impl Budget {
    /// A budget of `bytes` bytes, of which `for_writers` are taken, or kept free.
    pub(crate) fn new(bytes: usize, for_writers: usize) -> Arc<Budget> {
        Arc::new(Budget {
            bytes: bytes as u64,
            for_writers: for_writers as u64,
            pinned: AtomicU64::new(0),
            reserved: AtomicU64::new(0),
        })
    }

    /// Takes `bytes` for an index or a filter that stays with its run. False if all of them would have more
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

    /// Gives back what `pin` has taken.
    pub(crate) fn unpin(&self, bytes: usize) {
        (self.pinned).fetch_sub(bytes as u64 + PIN_COST, Ordering::Relaxed);
    }

    /// Takes `bytes` until the answer is dropped.
    pub(crate) fn reserve(self: &Arc<Budget>, bytes: usize) -> Reservation {
        self.reserved.fetch_add(bytes as u64, Ordering::Relaxed);
        Reservation {
            budget: self.clone(),
            bytes,
        }
    }

    /// Takes `wanted` bytes: less if more than half of the budget would be taken, but not below `least`.
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

    /// Whether the cache has little left: then nobody should read far ahead.
    pub(crate) fn is_tight(&self) -> bool {
        self.pinned() + self.taken() > self.bytes / 4 * 3
    }

    /// All of the budget.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What the cache of pages may have now.
    pub(crate) fn for_cache(&self) -> u64 {
        let rest = self.bytes.saturating_sub(self.pinned() + self.taken());
        rest.max(self.bytes / CACHE_SHARE_MIN)
    }
}

/// A part of the budget that somebody has.
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
    fn the_cache_has_what_nobody_else_takes() {
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
