//! The cache of pages, indexes and filters of runs, bounded in bytes.
//!
//! Indexes and filters in use are pinned to their runs, so that a look-up finds them without a search, until they take
//! half of the cache. The rest is shared by pages, and by further indexes and filters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::sync::Cache;

use crate::page::Page;
use crate::run::RunIndex;

/// What an entry costs besides its bytes: the entry itself, its key and the shared handle.
const ENTRY_COST: u64 = 144;
/// Memory for entries is handed out in steps of about an eighth of their size; half of that is lost.
const STEP_SHARE: u64 = 16;
/// The "page number" of a run's index, and of its filter.
const INDEX: u32 = u32::MAX;
const FILTER: u32 = u32::MAX - 1;

#[derive(Clone)]
enum Cached {
    Page(Arc<Page>),
    Index(Arc<RunIndex>),
    Filter(Arc<[u8]>),
}

#[derive(Clone)]
struct Bytes;

impl quick_cache::Weighter<(u64, u32), Cached> for Bytes {
    fn weight(&self, _: &(u64, u32), cached: &Cached) -> u64 {
        let bytes = match cached {
            Cached::Page(page) => page.bytes(),
            Cached::Index(index) => index.bytes(),
            Cached::Filter(filter) => filter.len(),
        } as u64;
        ENTRY_COST + bytes + bytes / STEP_SHARE
    }
}

/// Pages, indexes and filters by run and page number.
pub(crate) struct PageCache {
    cache: Cache<(u64, u32), Cached, Bytes>,
    /// The most bytes of the cache and of what is pinned.
    bytes: u64,
    pinned: AtomicU64,
    /// What was pinned when the cache's share was last changed.
    taken: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl PageCache {
    /// An empty cache of at most `bytes` bytes.
    pub(crate) fn new(bytes: usize) -> PageCache {
        // An estimate for the cache's own tables.
        let items = (bytes / (6 << 10)).max(256);
        let bytes = bytes as u64;
        PageCache {
            cache: Cache::with_weighter(items, bytes, Bytes),
            bytes,
            pinned: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    fn get(&self, run: u64, page: u32) -> Option<Cached> {
        let found = self.cache.get(&(run, page));
        let counter = if found.is_some() {
            &self.hits
        } else {
            &self.misses
        };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    pub(crate) fn page(&self, run: u64, page: u32) -> Option<Arc<Page>> {
        match self.get(run, page)? {
            Cached::Page(page) => Some(page),
            _ => None,
        }
    }

    pub(crate) fn insert_page(&self, run: u64, page: u32, value: Arc<Page>) {
        self.cache.insert((run, page), Cached::Page(value));
    }

    pub(crate) fn index(&self, run: u64) -> Option<Arc<RunIndex>> {
        match self.get(run, INDEX)? {
            Cached::Index(index) => Some(index),
            _ => None,
        }
    }

    pub(crate) fn insert_index(&self, run: u64, value: Arc<RunIndex>) {
        self.cache.insert((run, INDEX), Cached::Index(value));
    }

    pub(crate) fn filter(&self, run: u64) -> Option<Arc<[u8]>> {
        match self.get(run, FILTER)? {
            Cached::Filter(filter) => Some(filter),
            _ => None,
        }
    }

    pub(crate) fn insert_filter(&self, run: u64, value: Arc<[u8]>) {
        self.cache.insert((run, FILTER), Cached::Filter(value));
    }

    /// Removes all that belongs to a run.
    pub(crate) fn forget(&self, run: u64, pages: u32) {
        for page in (0..pages).chain([INDEX, FILTER]) {
            self.cache.remove(&(run, page));
        }
    }

    /// Takes `bytes` for something that stays in memory outside of the cache. False if that is too much.
    pub(crate) fn pin(&self, bytes: usize) -> bool {
        let bytes = bytes as u64 + 32;
        if self.pinned.fetch_add(bytes, Ordering::Relaxed) + bytes > self.bytes / 2 {
            self.pinned.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        self.share();
        true
    }

    /// Gives back what `pin` has taken.
    pub(crate) fn unpin(&self, bytes: usize) {
        self.pinned.fetch_sub(bytes as u64 + 32, Ordering::Relaxed);
        self.share();
    }

    /// Gives up `wanted` bytes for a while: less if more than half would be taken, but not below `least`.
    pub(crate) fn lend(&self, wanted: usize, least: usize) -> usize {
        let free = (self.bytes / 2).saturating_sub(self.pinned.load(Ordering::Relaxed));
        let bytes = wanted.min(free as usize).max(least);
        self.pinned.fetch_add(bytes as u64, Ordering::Relaxed);
        self.share();
        bytes
    }

    /// Takes back what was lent.
    pub(crate) fn take_back(&self, bytes: usize) {
        self.pinned.fetch_sub(bytes as u64, Ordering::Relaxed);
        self.share();
    }

    /// Makes the cache as large as what is pinned allows, now and then.
    fn share(&self) {
        let pinned = self.pinned.load(Ordering::Relaxed);
        let taken = self.taken.load(Ordering::Relaxed);
        if pinned.abs_diff(taken) > self.bytes / 64
            && self
                .taken
                .compare_exchange(taken, pinned, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            self.cache.set_capacity(self.bytes.saturating_sub(pinned));
        }
    }

    /// Bytes held, hits and misses.
    pub(crate) fn figures(&self) -> (u64, u64, u64) {
        let counter = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (
            self.cache.weight() + counter(&self.pinned),
            counter(&self.hits),
            counter(&self.misses),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pinned_is_taken_from_the_pages() {
        let cache = PageCache::new(64 << 20);
        assert!(cache.pin(20 << 20));
        assert!(!cache.pin(20 << 20));
        assert!(cache.cache.capacity() <= 44 << 20);
        cache.unpin(20 << 20);
        assert!(cache.cache.capacity() >= 63 << 20);
        assert!(cache.pin(30 << 20));
    }
}
