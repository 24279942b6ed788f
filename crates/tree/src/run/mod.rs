//! A run: sorted messages in pages, in one extent of the data file.
//!
//! Leaves and the parts of buffers have the same format. A leaf holds puts only; a buffer's run also holds
//! deletes and update messages. The pages are followed by the index, which locates them,
//! and a filter over all keys.

mod cursor;
mod writer;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use frond_kv::MemoryBudget;

use crate::block::Place;
use crate::cache::{LookedUp, PageCache, Turn};
use crate::damage::DamageRegistry;
use crate::data_file::{DataFile, corrupt, decode_checked, payload_bytes};
use crate::node_memory::NodeMemory;
use crate::orphans::Orphans;
use crate::page::Page;
use crate::run_index::RunIndex;
use crate::space::Extent;
use crate::{Error, Result, filter};
pub(crate) use cursor::{Fetch, PartsCursor};
pub(crate) use writer::{RunWriter, free_buffers};

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// The average page of a run whose pages are small has at most this many bytes in memory.
const SMALL_PAGE_BYTES: u64 = 64 << 10;
/// A leaf has up to 5 MiB by default. A run with more has a value that takes a page of its own.
const SMALL_RUN_BYTES: u64 = 6 << 20;

/// The state that all readers and writers of runs share.
pub(crate) struct RunStore {
    pub(crate) data: DataFile,
    pub(crate) cache: PageCache,
    pub(crate) budget: MemoryBudget,
    pub(crate) damage: Arc<DamageRegistry>,
    /// Internal nodes in memory.
    pub(crate) nodes: NodeMemory,
    /// Nodes that nothing refers to any more, and that must be read to free what is below.
    pub(crate) orphans: Orphans,
}

/// The metadata of a run that is kept in its parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunInfo {
    /// Offset of the index block in the extent, and its length, in bytes.
    pub(crate) index_at: u32,
    pub(crate) index_len: u32,
    /// Length of the filter's block, which follows the index.
    pub(crate) filter_len: u32,
    pub(crate) pages: u32,
    pub(crate) entries: u64,
    /// Bytes of the keys and values.
    pub(crate) logical_bytes: u64,
    /// The smallest key; if that is long, a key that is not above it ([`crate::bounds`]).
    pub(crate) min_key: Box<[u8]>,
    /// The largest key; if that is long, a key that is not below it.
    pub(crate) max_key: Box<[u8]>,
}

impl RunInfo {
    /// Bytes of the index and the filter.
    pub(crate) fn search_bytes(&self) -> u64 {
        u64::from(self.index_len) + u64::from(self.filter_len)
    }

    /// Bytes of the two bounds.
    pub(crate) fn bounds_bytes(&self) -> usize {
        self.min_key.len() + self.max_key.len()
    }

    /// Offset in the extent after the last block.
    pub(crate) fn end(&self) -> u64 {
        u64::from(self.index_at) + u64::from(self.index_len) + u64::from(self.filter_len)
    }
}

/// A handle to a run on disk.
pub(crate) struct Run {
    /// Identifies its pages in the cache; unique while the process lives.
    id: u64,
    pub(crate) extent: Arc<Extent>,
    pub(crate) info: RunInfo,
    store: Arc<RunStore>,
    /// Pinned on first use, unless the budget has no room.
    index: OnceLock<Arc<RunIndex>>,
    filter: OnceLock<Arc<[u8]>>,
    /// Whether a page or the index could not be read, and whether the filter could not.
    is_damaged: AtomicBool,
    lacks_filter: AtomicBool,
}

impl Run {
    pub(crate) fn new(store: &Arc<RunStore>, extent: Arc<Extent>, info: RunInfo) -> Arc<Run> {
        assert!(
            info.end() <= extent.len && info.min_key <= info.max_key,
            "U2: the blocks of a run are not in its extent"
        );
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Arc::new(Run {
            id,
            extent,
            info,
            store: store.clone(),
            index: OnceLock::new(),
            filter: OnceLock::new(),
            is_damaged: AtomicBool::new(false),
            lacks_filter: AtomicBool::new(false),
        })
    }

    /// The files and caches of the run.
    pub(crate) fn store(&self) -> &RunStore {
        &self.store
    }

    /// Whether a read of a page or of the index has failed.
    pub(crate) fn is_damaged(&self) -> bool {
        self.is_damaged.load(Ordering::Relaxed)
    }

    /// Remembers that the run is damaged, if that is what the error says.
    fn record_damage(&self, error: &Error) {
        if error.is_damage() {
            self.is_damaged.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the run's key range overlaps `lower..upper`; `None` is no upper bound.
    pub(crate) fn overlaps(&self, lower: &[u8], upper: Option<&[u8]>) -> bool {
        &*self.info.max_key >= lower && upper.is_none_or(|upper| &*self.info.min_key < upper)
    }

    /// The index of the pages.
    pub(crate) fn index(&self) -> Result<Arc<RunIndex>> {
        if let Some(index) = self.index.get() {
            return Ok(index.clone());
        }
        if let Some(index) = self.store.cache.index(self.id) {
            self.pin(&self.index, &index, index.bytes());
            return Ok(index);
        }
        let index = Arc::new(self.read_index()?);
        if !self.pin(&self.index, &index, index.bytes()) {
            self.store.cache.insert_index(self.id, index.clone());
        }
        Ok(index)
    }

    /// Reads all blocks of the run from the disk, and calls `failed` for each that cannot be read.
    pub(crate) fn check_blocks(&self, mut failed: impl FnMut(Error)) {
        let data = &self.store.data;
        match self.read_index() {
            Ok(index) => {
                for page in 0..index.pages() {
                    let turn = self.store.cache.large.immediate_turn();
                    if let Err(error) = self.read_page(&index, page, &turn, |_, _| ()) {
                        failed(error);
                    }
                }
            }
            Err(error) => failed(error),
        }
        let (place, len) = self.filter_block();
        if let Err(error) = data.read_block(place, len, |_| ()) {
            failed(error);
        }
    }

    /// Keeps the index of a run that was just written while the cache has room for it: the first look-up need not read it.
    fn cache_written_index(&self, encoded: &[u8]) {
        let (pages, end) = (self.info.pages, self.info.index_at);
        if let Some(index) = RunIndex::decode(encoded, pages, end) {
            self.store.cache.insert_index(self.id, Arc::new(index));
        }
    }

    /// Reads the index from the disk.
    fn read_index(&self) -> Result<RunIndex> {
        let place = self.extent.place().plus(u64::from(self.info.index_at));
        let (pages, end) = (self.info.pages, self.info.index_at);
        let len = self.info.index_len as usize;
        let decode = |payload: &[u8]| RunIndex::decode(payload, pages, end);
        let read = self.store.data.read_block(place, len, decode);
        let malformed = || corrupt(place.offset, "the index of a run is malformed");
        let index = read.and_then(|index| index.ok_or_else(malformed));
        index.inspect_err(|error| self.record_damage(error))
    }

    /// Reads a page from the disk, and calls `keep` with its block.
    fn read_page(
        &self,
        index: &RunIndex,
        page: usize,
        turn: &Turn<'_>,
        keep: impl FnOnce(&[u8], &Page),
    ) -> Result<Arc<Page>> {
        let (at, len) = index.block(page);
        let offset = self.extent.offset + u64::from(at);
        let decoded = (self.store.data).read_stored(offset, len as usize, |block| {
            self.decode_page(index, page, block, turn, keep)
        });
        decoded.inspect_err(|error| self.record_damage(error))
    }

    /// Decodes a page from its block, checks both, and calls `keep` with the unencrypted block. If the page is large and
    /// an operation uses it, returns that.
    fn decode_page(
        &self,
        index: &RunIndex,
        page: usize,
        block: &[u8],
        turn: &Turn<'_>,
        keep: impl FnOnce(&[u8], &Page),
    ) -> Result<Arc<Page>> {
        let place = self.extent.place().plus(u64::from(index.block(page).0));
        let offset = place.offset;
        self.store.data.form.opened(block, place, |block| {
            if let Some(cached) = self.take_turn(page, turn, block)? {
                return Ok(cached);
            }
            let decoded = decode_checked(block, offset, Page::decode)?;
            let checked = decoded.and_then(|decoded| self.check_page(index, page, decoded));
            let decoded = Arc::new(checked.map_err(|what| corrupt(offset, what))?);
            keep(block, &decoded);
            self.note_large(page, turn, &decoded);
            Ok(decoded)
        })
    }

    /// Takes the turn to read a page whose block alone is large. Returns the page if an operation uses it.
    fn begin_read(
        &self,
        index: &RunIndex,
        page: usize,
        turn: &Turn<'_>,
    ) -> Result<Option<Arc<Page>>> {
        let (_, len) = index.block(page);
        let cache = &self.store.cache;
        cache.take_turn(self.id, page as u32, turn, 3 * len as usize)
    }

    /// Takes the turn to decode a block, if that takes much memory. Returns the page if an operation uses it.
    fn take_turn(&self, page: usize, turn: &Turn<'_>, block: &[u8]) -> Result<Option<Arc<Page>>> {
        let bytes = block.len() + 2 * payload_bytes(block);
        let cache = &self.store.cache;
        cache.take_turn(self.id, page as u32, turn, bytes)
    }

    fn note_large(&self, page: usize, turn: &Turn<'_>, read: &Arc<Page>) {
        let cache = &self.store.cache;
        cache.note_large(self.id, page as u32, turn, read);
    }

    /// A page that was read, if its keys are where the index and the reference to the run say. Otherwise keys would be
    /// merged out of order.
    fn check_page(&self, index: &RunIndex, page: usize, read: Page) -> Result<Page, &'static str> {
        let (first, last) = (read.key(0), read.last_key());
        let is_inside = if page + 1 < index.pages() {
            last < index.separator(page + 1)
        } else {
            last <= &*self.info.max_key
        };
        let lower = match page {
            0 => &*self.info.min_key,
            page => index.separator(page),
        };
        if is_inside && lower <= first {
            Ok(read)
        } else {
            Err("the keys of a page are not between its separators")
        }
    }

    /// Place and length of the filter's block.
    fn filter_block(&self) -> (Place, usize) {
        let at = u64::from(self.info.index_at) + u64::from(self.info.index_len);
        (self.extent.place().plus(at), self.info.filter_len as usize)
    }

    /// The last block. It is encrypted before all other blocks of the run, so if it has the current store key, the others have it too.
    pub(crate) fn last_block(&self) -> Place {
        self.filter_block().0
    }

    fn filter(&self) -> Result<Arc<[u8]>> {
        if let Some(filter) = self.filter.get() {
            return Ok(filter.clone());
        }
        if let Some(filter) = self.store.cache.filter(self.id) {
            return Ok(filter);
        }
        let (offset, len) = self.filter_block();
        let data = &self.store.data;
        let filter: Arc<[u8]> = data.read_block(offset, len, |payload| payload.into())?;
        if !self.pin(&self.filter, &filter, filter.len()) {
            self.store.cache.insert_filter(self.id, filter.clone());
        }
        Ok(filter)
    }

    /// Pins an object in the run. False if the budget has no room for it.
    fn pin<T: Clone>(&self, slot: &OnceLock<T>, value: &T, bytes: usize) -> bool {
        if !self.store.budget.pin(bytes) {
            return false;
        }
        if slot.set(value.clone()).is_err() {
            self.store.budget.unpin(bytes);
        }
        true
    }

    /// Reads a page from the disk for the cache.
    fn read_and_cache(&self, index: &RunIndex, page: usize, turn: &Turn<'_>) -> Result<Arc<Page>> {
        let read = || {
            self.read_page(index, page, turn, |block, page_of| {
                self.keep_block(page, block, page_of, true)
            })
        };
        let decoded = self.time_read(page, turn, read)?;
        self.cache_page(page, &decoded);
        Ok(decoded)
    }

    /// Runs a read of the device that begins with a page, and notes its time.
    fn time_read<T>(&self, page: usize, turn: &Turn<'_>, read: impl FnOnce() -> T) -> T {
        let cache = &self.store.cache;
        cache.time_read(self.id, page as u32, turn, read)
    }

    fn cached_page(&self, page: usize) -> Option<Arc<Page>> {
        self.store.cache.page(self.id, page as u32)
    }

    /// A page whose compressed block is in memory. It is cached.
    fn restore_page(&self, page: usize, turn: &Turn<'_>) -> Option<Arc<Page>> {
        let restored = self.restore(page, true, turn)?;
        self.cache_page(page, &restored);
        Some(restored)
    }

    /// A page whose compressed block is in memory. `is_use` indicates whether that is to be remembered.
    fn restore(&self, page: usize, is_use: bool, turn: &Turn<'_>) -> Option<Arc<Page>> {
        let decode = |block: &[u8]| self.restored(page, block, turn);
        let cache = &self.store.cache;
        cache.restore_page(self.id, page as u32, is_use, turn, decode)
    }

    /// Decodes a page from a block that was checked before. `None` also after an interruption, which then ends the read of the device.
    fn restored(&self, page: usize, block: &[u8], turn: &Turn<'_>) -> Option<Arc<Page>> {
        let in_use = self.take_turn(page, turn, block).ok()?;
        if in_use.is_some() {
            return in_use;
        }
        let decoded = decode_checked(block, 0, Page::decode_checked).ok()?;
        let decoded = Arc::new(decoded?);
        self.note_large(page, turn, &decoded);
        Some(decoded)
    }

    /// A page, for a scan that does not return to it.
    fn peek_page(&self, page: usize) -> Option<Arc<Page>> {
        self.store.cache.peek_page(self.id, page as u32)
    }

    fn cache_page(&self, page: usize, decoded: &Arc<Page>) {
        let cache = &self.store.cache;
        cache.insert_page(self.id, page as u32, decoded.clone());
    }

    /// Keeps the block of a page that was read, with a read of its own or as part of a longer one.
    fn keep_block(&self, page: usize, block: &[u8], decoded: &Page, is_read: bool) {
        let cache = &self.store.cache;
        cache.insert_read_block(self.id, page as u32, block, decoded, is_read);
    }

    /// Keeps the block of a page that was written at an offset of the extent.
    fn keep_written_block(&self, page: usize, at: usize, block: &[u8]) -> Result<()> {
        let cache = &self.store.cache;
        let keep = |block: &[u8]| cache.insert_written_block(self.id, page as u32, block);
        let form = &self.store.data.form;
        if form.is_encrypted() {
            let place = self.extent.place().plus(at as u64);
            form.opened(block, place, |block| {
                keep(block);
                Ok(())
            })
        } else {
            keep(block);
            Ok(())
        }
    }

    /// The page and index of a key's message, if the run has one. A filter that cannot be read is reported to `note`,
    /// and the run is searched without it. If the key is expected, no filter is read that is not in memory.
    pub(crate) fn get(
        &self,
        key: &[u8],
        hash: u64,
        is_expected: bool,
        note: impl FnOnce(&Error),
    ) -> Result<Option<(Arc<Page>, usize)>> {
        if key < &*self.info.min_key || key > &*self.info.max_key {
            return Ok(None);
        }
        let passes = match self.filter.get() {
            Some(filter) => filter::may_contain(filter, hash),
            None if is_expected || self.lacks_filter.load(Ordering::Relaxed) => true,
            None => match self.filter() {
                Ok(filter) => filter::may_contain(&filter, hash),
                Err(error) if error.is_damage() => {
                    self.lacks_filter.store(true, Ordering::Relaxed);
                    note(&error);
                    true
                }
                Err(error) => return Err(error),
            },
        };
        if !passes {
            return Ok(None);
        }
        match self.index.get() {
            Some(index) => self.look_up(index, key),
            None => self.look_up(&*self.index()?, key),
        }
    }

    /// The page and index of a key's message, through the cache. It may be a page of this message alone.
    fn look_up(&self, index: &RunIndex, key: &[u8]) -> Result<Option<(Arc<Page>, usize)>> {
        let number = index.page_of(key);
        let page = match self.cached_page(number) {
            Some(page) => page,
            None => {
                let turn = self.store.cache.large.turn();
                match self.begin_read(index, number, &turn)? {
                    Some(page) => page,
                    None => match self.look_up_block(number, key, &turn) {
                        Some(LookedUp::Entry(entry)) => return Ok(entry.map(|page| (page, 0))),
                        Some(LookedUp::Page(page)) => page,
                        None => self.read_and_cache(index, number, &turn)?,
                    },
                }
            }
        };
        match page.search(key) {
            (index, true) => Ok(Some((page, index))),
            _ => Ok(None),
        }
    }

    /// Whether several of its pages may be in work at a time, which are not counted as memory: all are small, and there is memory.
    pub(crate) fn has_small_pages(&self) -> bool {
        let bytes = self.info.logical_bytes;
        bytes <= SMALL_PAGE_BYTES * u64::from(self.info.pages)
            && bytes <= SMALL_RUN_BYTES
            && !self.store.budget.is_tight()
    }

    /// Whether the page that a key belongs to is in the cache, in either form, so that no look-up of the key reads the device.
    pub(crate) fn is_in_memory(&self, key: &[u8]) -> bool {
        let holds = |index: &RunIndex| {
            let page = index.page_of(key);
            self.store.cache.holds(self.id, page as u32)
        };
        match self.index.get() {
            Some(index) => holds(index),
            None => (self.store.cache.index(self.id)).is_some_and(|index| holds(&index)),
        }
    }

    /// Looks for a key in a page whose compressed block is in memory. A whole page is cached.
    fn look_up_block(&self, page: usize, key: &[u8], turn: &Turn<'_>) -> Option<LookedUp> {
        let find = |block: &[u8]| {
            self.take_turn(page, turn, block).ok()?;
            let find = |payload: &[u8]| Page::find_checked(payload, key);
            decode_checked(block, 0, find).ok()?
        };
        let decode = |block: &[u8]| self.restored(page, block, turn);
        let cache = &self.store.cache;
        let found = cache.look_up(self.id, page as u32, turn, find, decode)?;
        if let LookedUp::Page(decoded) = &found {
            self.cache_page(page, decoded);
        }
        Some(found)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.store.cache.forget(self.id, self.info.pages);
        let pins = [
            self.index.get().map(|index| index.bytes()),
            self.filter.get().map(|f| f.len()),
        ];
        for bytes in pins.into_iter().flatten() {
            self.store.budget.unpin(bytes);
        }
    }
}
