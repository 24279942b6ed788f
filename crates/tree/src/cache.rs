//! The cache of pages and run indexes, bounded in bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::sync::Cache;

use crate::page::Page;
use crate::run::RunMeta;

/// What an entry costs besides its bytes: the entry itself, its key and the shared handle.
const ENTRY_COST: u64 = 160;
/// The "page number" of a run's index and filter.
const META: u32 = u32::MAX;

#[derive(Clone)]
enum Cached {
    Page(Arc<Page>),
    Meta(Arc<RunMeta>),
}

#[derive(Clone)]
struct Bytes;

impl quick_cache::Weighter<(u64, u32), Cached> for Bytes {
    fn weight(&self, _: &(u64, u32), cached: &Cached) -> u64 {
        ENTRY_COST
            + match cached {
                Cached::Page(page) => page.bytes() as u64,
                Cached::Meta(meta) => meta.bytes() as u64,
            }
    }
}

/// Pages, indexes and filters by run and page number.
pub(crate) struct PageCache {
    cache: Cache<(u64, u32), Cached, Bytes>,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl PageCache {
    /// An empty cache of at most `bytes` bytes.
    pub(crate) fn new(bytes: usize) -> PageCache {
        // An estimate for the cache's own tables; pages are 64 KiB unless a tree says otherwise.
        let items = (bytes / (32 << 10)).max(256);
        PageCache {
            cache: Cache::with_weighter(items, bytes as u64, Bytes),
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
            Cached::Meta(_) => None,
        }
    }

    pub(crate) fn meta(&self, run: u64) -> Option<Arc<RunMeta>> {
        match self.get(run, META)? {
            Cached::Meta(meta) => Some(meta),
            Cached::Page(_) => None,
        }
    }

    pub(crate) fn insert_page(&self, run: u64, page: u32, value: Arc<Page>) {
        self.cache.insert((run, page), Cached::Page(value));
    }

    pub(crate) fn insert_meta(&self, run: u64, value: Arc<RunMeta>) {
        self.cache.insert((run, META), Cached::Meta(value));
    }

    /// Removes all that belongs to a run.
    pub(crate) fn forget(&self, run: u64, pages: u32) {
        for page in (0..pages).chain([META]) {
            self.cache.remove(&(run, page));
        }
    }

    /// Bytes held, hits and misses.
    pub(crate) fn figures(&self) -> (u64, u64, u64) {
        let counter = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (
            self.cache.weight(),
            counter(&self.hits),
            counter(&self.misses),
        )
    }
}
