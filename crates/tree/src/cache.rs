//! The cache of pages, indexes and filters of runs, bounded in bytes.
//!
//! Indexes and filters in use are pinned in their runs, so that a look-up needs no search in the cache, until they take
//! half of it. Pages share the rest with the indexes and filters that are not pinned.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::sync::Cache;

use crate::budget::MemoryBudget;
use crate::page::Page;
use crate::run_index::RunIndex;

/// The overhead of an entry in bytes: the entry itself, its key and the shared handle.
const ENTRY_COST: u64 = 192;
/// Allocators round sizes up in steps of about an eighth; half of a step is lost on average.
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
    budget: MemoryBudget,
    /// The current capacity in bytes.
    bytes: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl PageCache {
    /// An empty cache with the capacity that the budget leaves.
    pub(crate) fn new(budget: &MemoryBudget) -> PageCache {
        let bytes = budget.for_cache();
        // An estimate for the cache's own tables.
        let items = (bytes / (6 << 10)).max(256) as usize;
        PageCache {
            cache: Cache::with_weighter(items, bytes, Bytes),
            budget: budget.clone(),
            bytes: AtomicU64::new(bytes),
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

    /// A page, without counting the access as a use.
    pub(crate) fn peek_page(&self, run: u64, page: u32) -> Option<Arc<Page>> {
        match self.cache.peek(&(run, page))? {
            Cached::Page(page) => Some(page),
            _ => None,
        }
    }

    /// Whether there is enough room to keep written pages that were not read yet.
    pub(crate) fn has_room(&self) -> bool {
        self.cache.weight() < self.budget.for_cache() / 4 * 3
    }

    pub(crate) fn insert_page(&self, run: u64, page: u32, value: Arc<Page>) {
        self.share();
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

    /// Removes everything of a run.
    pub(crate) fn forget(&self, run: u64, pages: u32) {
        for page in (0..pages).chain([INDEX, FILTER]) {
            self.cache.remove(&(run, page));
        }
    }

    /// Adapts the capacity to what the budget leaves now. Cheap unless that changed much.
    pub(crate) fn share(&self) {
        let (now, before) = (self.budget.for_cache(), self.bytes.load(Ordering::Relaxed));
        if now.abs_diff(before) > self.budget.bytes() / 64
            && self
                .bytes
                .compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            self.cache.set_capacity(now);
        }
    }

    /// Bytes held, hits and misses.
    pub(crate) fn stats(&self) -> (u64, u64, u64) {
        let counter = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (
            self.cache.weight() + self.budget.pinned(),
            counter(&self.hits),
            counter(&self.misses),
        )
    }
}
