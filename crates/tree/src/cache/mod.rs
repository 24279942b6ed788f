//! The cache of pages, indexes and filters of runs, bounded in bytes.
//!
//! It has two tiers. The first one has pages as they are read, and the indexes and filters that are not pinned. The second
//! one (`blocks.rs`) has blocks as they are on disk: compressed, a third of the page or less, with the checksum checked already.
//! Pages that are read from the disk, and those that are written while there is room, enter both. `balance.rs` divides the memory between
//! them. Data that fits into the first tier pushes the second one out.
//!
//! Indexes and filters in use are pinned in their runs, so that a look-up needs no search in the cache, until they take
//! half of it.
//!
//! A miss of the first tier costs a decompression instead of a read of the device. Blocks lie in a log of segments without gaps
//! (`blocks.rs`); eviction frees the oldest segment, and moves those of its blocks that were used to the end. Each tier remembers
//! what it evicted last: a miss of such a page shows what a little more memory would have saved, in time as measured, and the
//! division of the memory follows from that. Until pages take half of the memory, no blocks are kept. Long scans leave both
//! tiers as they are.
//!
//! # Design
//! ```text
//! page(run, n):  first tier                                     hit: no copy
//!                else second tier: decompress                   assumed to take 10 µs, then measured; enters the first tier,
//!                                                               unless a look-up uses the block for the first time
//!                else read, check, decompress                   assumed to take 100 µs, then measured; enters both
//! memory:        all = what the budget leaves; blocks get `share` of it, or what pages leave (H5)
//! each round:    the tier whose evicted pages would have saved more time gets more
//! ```
//! - Both tiers together never have more than the budget leaves, but for one step while it shrinks. So the sum is what an
//!   operator sets, and the share is no setting.
//! - A page that is in both tiers costs its block twice. That is why pages alone get the first half of the memory: without
//!   pressure, blocks would only be in the way.
//! - Blocks need neither locks for reading their content nor a check of it: it was checked when it came from the disk.
//!
//! Alternatives: one tier of compressed blocks alone would decompress hot pages again and again. An exclusive second tier, which gets
//! pages when they leave the first, would have to compress them again; here the block comes from the disk as it is. A fixed share
//! would have to be right for every load, and the best one depends on whether the data fits as pages, as blocks, or not at all.

mod balance;
mod blocks;
mod large;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use frond_kv::MemoryBudget;
use frond_striped::Striped;
use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, Lifecycle};

use crate::Result;
use crate::page::{FoundEntry, Page};
use crate::run_index::RunIndex;
use balance::{Balance, Miss};
use blocks::BlockTier;
use large::LargePages;
pub(crate) use large::Turn;

/// The overhead of an entry in bytes: the entry itself, its key and the shared handle.
const ENTRY_COST: u64 = 192;
/// Allocators round sizes up in steps of about an eighth; half of a step is lost on average.
const STEP_SHARE: u64 = 16;
/// The "page number" of a run's index, and of its filter.
const INDEX: u32 = u32::MAX;
const FILTER: u32 = u32::MAX - 1;
/// A step of growth or shrinkage is this part of the budget, but at least `STEP_BYTES_MIN`.
const STEPS: u64 = 64;
const STEP_BYTES_MIN: u64 = 64 << 10;
/// The tiers are compared with their limits once for this number of insertions.
const CHECK_EVERY: u64 = 8;
/// Compressed blocks are kept only if they have at most 3/4 of the page's bytes.
const SMALLER_PART: (usize, usize) = (3, 4);
/// Larger buffers are not kept for the next block of a thread.
const SPARE_BYTES_MAX: usize = 256 << 10;

thread_local! {
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A page, an index or a filter of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    run: u64,
    page: u32,
}

impl Key {
    /// A hash: the finalizer of SplitMix64.
    fn mixed(self) -> u64 {
        let mut hash = (self.run << 32 ^ self.run >> 32 ^ u64::from(self.page))
            .wrapping_add(0x9e37_79b9_7f4a_7c15);
        hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^ hash >> 31
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.mixed());
    }
}

#[derive(Clone)]
enum Cached {
    Page(Arc<Page>),
    Index(Arc<RunIndex>),
    Filter(Arc<[u8]>),
}

#[derive(Clone)]
struct Bytes;

impl quick_cache::Weighter<Key, Cached> for Bytes {
    fn weight(&self, _: &Key, cached: &Cached) -> u64 {
        let bytes = match cached {
            Cached::Page(page) => page.bytes(),
            Cached::Index(index) => index.bytes(),
            Cached::Filter(filter) => filter.len(),
        } as u64;
        ENTRY_COST + bytes + bytes / STEP_SHARE
    }
}

/// The result of a look-up in a page.
pub(crate) enum LookedUp {
    /// The whole page, in which the key is to be searched.
    Page(Arc<Page>),
    /// A page of the entry alone, if the key is there.
    Entry(Option<Arc<Page>>),
}

/// Notes which pages leave the first tier.
#[derive(Clone)]
struct Leaving {
    balance: Arc<Balance>,
}

impl Lifecycle<Key, Cached> for Leaving {
    /// The first ones to leave are dropped after the lock was released.
    type RequestState = [Option<Cached>; 2];

    fn on_evict(&self, state: &mut Self::RequestState, key: Key, cached: Cached) {
        if let Cached::Page(page) = &cached {
            self.balance.page_left(key, page.bytes() as u64);
        }
        if let Some(empty) = state.iter_mut().find(|slot| slot.is_none()) {
            *empty = Some(cached);
        }
    }
}

/// The figures of the cache.
#[derive(Default)]
pub(crate) struct CacheStats {
    /// Bytes of both tiers, and of what is pinned.
    pub(crate) bytes: u64,
    /// Bytes of the compressed blocks.
    pub(crate) block_bytes: u64,
    /// The bytes that compressed blocks may take while pages need the memory too.
    pub(crate) block_bytes_max: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    /// Of the misses, those for which the compressed block was in memory.
    pub(crate) block_hits: u64,
    /// Of the misses, those for which it was not.
    pub(crate) block_misses: u64,
}

/// Pages, indexes and filters by run and page number.
pub(crate) struct PageCache {
    cache: Cache<Key, Cached, Bytes, DefaultHashBuilder, Leaving>,
    blocks: BlockTier,
    balance: Arc<Balance>,
    budget: MemoryBudget,
    /// The turns of readers of large pages.
    pub(crate) large: LargePages,
    /// Whether times are measured. Otherwise nothing depends on them.
    is_timed: bool,
    /// The current capacity of the first tier in bytes.
    bytes: AtomicU64,
    insertions: AtomicU64,
    counts: Striped<Counts>,
}

/// Uses of the cache. Every look-up of every thread counts here.
#[derive(Default)]
struct Counts {
    hits: AtomicU64,
    misses: AtomicU64,
    block_hits: AtomicU64,
    block_misses: AtomicU64,
}

impl PageCache {
    /// An empty cache with the capacity that the budget leaves. Without `is_timed`, costs are assumed instead of measured.
    pub(crate) fn new(budget: &MemoryBudget, is_timed: bool) -> PageCache {
        let bytes = budget.for_cache();
        // An estimate for the cache's own tables.
        let items = (bytes / (6 << 10)).max(256) as usize;
        budget.note_cache(bytes);
        let balance = Arc::new(Balance::new(bytes));
        let leaving = Leaving {
            balance: balance.clone(),
        };
        let hasher = DefaultHashBuilder::default();
        PageCache {
            cache: Cache::with(items, bytes, Bytes, hasher, leaving),
            blocks: BlockTier::new(budget.bytes()),
            balance,
            budget: budget.clone(),
            large: LargePages::new(budget),
            is_timed,
            bytes: AtomicU64::new(bytes),
            insertions: AtomicU64::new(0),
            counts: Striped::default(),
        }
    }

    fn get(&self, run: u64, page: u32) -> Option<Cached> {
        let found = self.cache.get(&Key { run, page });
        let counts = self.counts.own();
        let counter = if found.is_some() {
            &counts.hits
        } else {
            &counts.misses
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
        match self.cache.peek(&Key { run, page })? {
            Cached::Page(page) => Some(page),
            _ => None,
        }
    }

    /// Whether a page is in either tier.
    pub(crate) fn holds(&self, run: u64, page: u32) -> bool {
        let key = Key { run, page };
        self.cache.contains_key(&key) || self.blocks.holds(key)
    }

    /// Takes the turn to read a page, which needs `bytes`. Returns the page if that is large and an operation uses it.
    pub(crate) fn take_turn(
        &self,
        run: u64,
        page: u32,
        turn: &Turn<'_>,
        bytes: usize,
    ) -> Result<Option<Arc<Page>>> {
        turn.take(Key { run, page }, bytes)
    }

    /// Notes a page that was read in a turn.
    pub(crate) fn note_large(&self, run: u64, page: u32, turn: &Turn<'_>, read: &Arc<Page>) {
        turn.note(Key { run, page }, read);
    }

    /// A page that is not in the first tier, restored by `decode` if its block is in the second one. `is_use` indicates whether
    /// that is to be remembered.
    pub(crate) fn restore_page(
        &self,
        run: u64,
        page: u32,
        is_use: bool,
        turn: &Turn<'_>,
        decode: impl FnOnce(&[u8]) -> Option<Arc<Page>>,
    ) -> Option<Arc<Page>> {
        let key = Key { run, page };
        let decoded = self.with_block(key, is_use, turn, |block, _| decode(block));
        let decoded = decoded.flatten();
        if is_use {
            self.count_block(decoded.is_some());
            if let Some(decoded) = &decoded {
                self.note_miss(key, decoded.bytes(), false);
            }
        }
        decoded
    }

    /// Looks for a key in a page that is not in the first tier, if its block is in the second one. The first use of a block takes the
    /// entry from it with `find`, and leaves the first tier to pages that are used again; unless that has room, or the
    /// block was used before: then the whole page is restored with `decode`.
    pub(crate) fn look_up(
        &self,
        run: u64,
        page: u32,
        turn: &Turn<'_>,
        find: impl FnOnce(&[u8]) -> Option<FoundEntry>,
        decode: impl FnOnce(&[u8]) -> Option<Arc<Page>>,
    ) -> Option<LookedUp> {
        let key = Key { run, page };
        let found = self.with_block(key, true, turn, |block, was_used| {
            if was_used || self.has_room() {
                return decode(block).map(LookedUp::Page);
            }
            let found = find(block)?;
            self.note_miss(key, found.page_bytes, false);
            // A larger first tier would have it.
            self.balance.page_left(key, found.page_bytes as u64);
            Some(LookedUp::Entry(found.entry.map(Arc::new)))
        });
        let found = found.flatten();
        self.count_block(found.is_some());
        if let Some(LookedUp::Page(page)) = &found {
            self.note_miss(key, page.bytes(), false);
        }
        found
    }

    /// Calls `decode` with a block of the second tier, if it is there, and whether it was used before.
    fn with_block<T>(
        &self,
        key: Key,
        is_use: bool,
        turn: &Turn<'_>,
        decode: impl FnOnce(&[u8], bool) -> T,
    ) -> Option<T> {
        let mut block = SPARE.take();
        let was_used = self.blocks.get(key, is_use, &mut block);
        let decoded =
            was_used.map(|was_used| self.time_decode(key, turn, || decode(&block, was_used)));
        if block.capacity() <= SPARE_BYTES_MAX {
            SPARE.set(block);
        }
        decoded
    }

    fn count_block(&self, is_here: bool) {
        let counts = self.counts.own();
        let counter = if is_here {
            &counts.block_hits
        } else {
            &counts.block_misses
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn note_miss(&self, key: Key, page_bytes: usize, is_read: bool) {
        if !self.balance.samples(key) {
            return;
        }
        let for_blocks = self.balance.for_blocks(self.budget.cache());
        self.balance.note_miss(&Miss {
            key,
            bytes: page_bytes as u64,
            is_read,
            has_room: self.blocks.has_room(for_blocks),
        });
    }

    /// Runs `work`, and notes its time for some pages, but not for those that had to wait for their turn.
    fn time_decode<T>(&self, key: Key, turn: &Turn<'_>, work: impl FnOnce() -> T) -> T {
        if !self.is_timed || !self.balance.samples(key) {
            return work();
        }
        let began = Instant::now();
        let result = work();
        if !turn.is_taken() {
            self.balance.note_decode(began.elapsed());
        }
        result
    }

    /// Runs a read of the device that begins with a page, and notes its time as [`PageCache::time_decode`] does.
    pub(crate) fn time_read<T>(
        &self,
        run: u64,
        page: u32,
        turn: &Turn<'_>,
        read: impl FnOnce() -> T,
    ) -> T {
        if !self.is_timed || !self.balance.samples(Key { run, page }) {
            return read();
        }
        let began = Instant::now();
        let result = read();
        if !turn.is_taken() {
            self.balance.note_read(began.elapsed());
        }
        result
    }

    /// Whether there is enough room to keep written pages that were not read yet.
    pub(crate) fn has_room(&self) -> bool {
        self.cache.weight() < self.bytes.load(Ordering::Relaxed) / 4 * 3
    }

    /// Whether there is enough room to keep written blocks that were not read yet.
    pub(crate) fn has_room_for_blocks(&self) -> bool {
        let limit = self.block_limit();
        self.is_filling() && self.blocks.live() < limit / 8 * 7
    }

    /// Whether pages take so much that compressed blocks may be worth the memory soon.
    fn is_filling(&self) -> bool {
        self.cache.weight() + self.blocks.bytes() > self.budget.cache() / 2
    }

    /// The bytes that compressed blocks may take now: those that pages leave, or their share.
    fn block_limit(&self) -> u64 {
        let all = self.budget.cache();
        let left = all.saturating_sub(self.cache.weight());
        left.max(self.balance.for_blocks(all))
    }

    /// Keeps a page that was read from the device or written.
    pub(crate) fn insert_page(&self, run: u64, page: u32, value: Arc<Page>) {
        self.share();
        self.cache.insert(Key { run, page }, Cached::Page(value));
        let insertion = self.insertions.fetch_add(1, Ordering::Relaxed);
        if insertion.is_multiple_of(CHECK_EVERY) {
            self.trim_blocks();
        }
    }

    /// Keeps the block of a page that was read from the device. `is_read` indicates whether that took a read of its own.
    pub(crate) fn insert_read_block(
        &self,
        run: u64,
        page: u32,
        block: &[u8],
        decoded: &Page,
        is_read: bool,
    ) {
        let key = Key { run, page };
        self.note_miss(key, decoded.bytes(), is_read);
        let is_smaller = block.len() * SMALLER_PART.1 <= decoded.bytes() * SMALLER_PART.0;
        if is_smaller && self.is_filling() {
            self.insert_block(key, block);
        }
    }

    /// Keeps a block that was written; the caller has checked that there is room.
    pub(crate) fn insert_written_block(&self, run: u64, page: u32, block: &[u8]) {
        self.insert_block(Key { run, page }, block);
    }

    fn insert_block(&self, key: Key, block: &[u8]) {
        let left = |key, bytes| self.balance.block_left(key, bytes as u64);
        let limit = self.block_limit();
        self.blocks.insert(key, block, limit, &mut { left });
    }

    pub(crate) fn index(&self, run: u64) -> Option<Arc<RunIndex>> {
        match self.get(run, INDEX)? {
            Cached::Index(index) => Some(index),
            _ => None,
        }
    }

    pub(crate) fn insert_index(&self, run: u64, value: Arc<RunIndex>) {
        let key = Key { run, page: INDEX };
        self.cache.insert(key, Cached::Index(value));
    }

    pub(crate) fn filter(&self, run: u64) -> Option<Arc<[u8]>> {
        match self.get(run, FILTER)? {
            Cached::Filter(filter) => Some(filter),
            _ => None,
        }
    }

    pub(crate) fn insert_filter(&self, run: u64, value: Arc<[u8]>) {
        let key = Key { run, page: FILTER };
        self.cache.insert(key, Cached::Filter(value));
    }

    /// Removes everything of a run.
    pub(crate) fn forget(&self, run: u64, pages: u32) {
        for page in (0..pages).chain([INDEX, FILTER]) {
            let key = Key { run, page };
            self.cache.remove(&key);
            self.blocks.remove(key);
        }
    }

    /// Adapts the capacities to what the budget leaves now. Cheap unless that changed much. Shrinks by one step at most, so that
    /// no caller waits for long.
    pub(crate) fn share(&self) {
        self.adapt();
    }

    /// As [`PageCache::share`], but shrinks as far as it must.
    pub(crate) fn give_way(&self) {
        while self.adapt() {}
        self.trim_blocks();
    }

    /// True if there is still more to give back.
    fn adapt(&self) -> bool {
        let (wanted, before) = (self.budget.for_cache(), self.budget.cache());
        let step = (self.budget.bytes() / STEPS).max(STEP_BYTES_MIN);
        let all = wanted.max(before.saturating_sub(step));
        self.budget.note_cache(all);
        let for_blocks = self.balance.for_blocks(all).min(self.blocks.bytes());
        assert!(
            for_blocks <= all,
            "H5: compressed blocks get more than the cache"
        );
        let (now, before) = (all - for_blocks, self.bytes.load(Ordering::Relaxed));
        if now.abs_diff(before) > self.budget.bytes() / STEPS / 2
            && self
                .bytes
                .compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            self.cache.set_capacity(now);
            self.trim_blocks();
        }
        all > wanted
    }

    /// Evicts compressed blocks that are beyond their part.
    fn trim_blocks(&self) {
        let bytes = self.blocks.bytes();
        if bytes > self.balance.for_blocks(self.budget.cache()) {
            let limit = self.block_limit();
            if bytes > limit {
                let left = |key, bytes| self.balance.block_left(key, bytes as u64);
                self.blocks.trim(limit, &mut { left });
            }
        }
    }

    /// Bytes held, hits and misses.
    pub(crate) fn stats(&self) -> CacheStats {
        let sum = |of: fn(&Counts) -> &AtomicU64| {
            let each = self.counts.iter();
            each.map(|counts| of(counts).load(Ordering::Relaxed)).sum()
        };
        let block_bytes = self.blocks.bytes();
        CacheStats {
            bytes: self.cache.weight() + block_bytes + self.budget.pinned(),
            block_bytes,
            block_bytes_max: self.balance.for_blocks(self.budget.cache()),
            hits: sum(|counts| &counts.hits),
            misses: sum(|counts| &counts.misses),
            block_hits: sum(|counts| &counts.block_hits),
            block_misses: sum(|counts| &counts.block_misses),
        }
    }
}
