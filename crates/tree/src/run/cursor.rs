//! A cursor over a list of runs with ascending key ranges.

use std::ops::Range;
use std::sync::Arc;

use frond_kv::{MemoryUse, Reservation};

use super::Run;
use crate::disk::AlignedBuf;
use crate::page::Page;
use crate::run_index::RunIndex;
use crate::{Kind, Result};

/// Bytes that a streaming cursor reads at once.
const STREAM_BYTES: usize = 128 << 10;
/// The first read of a cached cursor, in bytes: a short scan of small entries needs one read.
const FIRST_BYTES: usize = 16 << 10;
/// Each further read of a cached cursor is twice as long, up to this.
const AHEAD_BYTES_MAX: usize = 512 << 10;
/// Larger buffers than this are dropped with their page.
const LARGE_BUFFER_BYTES: usize = 2 * AHEAD_BYTES_MAX;
/// While memory is short, reads get shorter again, down to this.
const AHEAD_BYTES_TIGHT: usize = 32 << 10;
/// Pages of longer reads are cached only while there is room: a long scan must not evict everything.
const KEPT_BYTES_MAX: usize = 64 << 10;
/// Pages that are restored from compressed blocks after this number of them are not cached, for the same reason.
const RESTORED_KEPT_MAX: usize = 32;

/// The way in which pages are fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fetch {
    /// From the cache, else with reads that grow while the scan continues.
    Cached,
    /// Many with one read, bypassing the cache: for flushes and other scans over everything.
    Stream,
}

/// Consecutive bytes of the data file, read ahead.
#[derive(Default)]
struct Ahead {
    buffer: AlignedBuf,
    /// Offsets in the file of the buffer's start and end.
    start: u64,
    end: u64,
    /// The size of the next read.
    bytes: usize,
    /// The buffer's reservation of the memory budget.
    memory: Option<Reservation>,
}

impl Ahead {
    /// Whether the page at this range is in the buffer.
    fn holds(&self, place: &Range<u64>) -> bool {
        self.start <= place.start && place.end <= self.end
    }

    /// A block from the buffer, which [`holds`](Ahead::holds) it.
    fn block(&self, place: &Range<u64>) -> &[u8] {
        let range = (place.start - self.start) as usize..(place.end - self.start) as usize;
        &self.buffer[range]
    }

    /// Drops a buffer that is larger than what is read ahead: that of a single large page.
    fn drop_large(&mut self) {
        if self.buffer.len() > LARGE_BUFFER_BYTES {
            *self = Ahead {
                bytes: self.bytes,
                ..Ahead::default()
            };
        }
    }

    /// Reads a range of the file.
    fn read(&mut self, run: &Run, range: Range<u64>) -> Result<()> {
        // Even after an error the buffer has lost its previous content.
        self.end = 0;
        let len = (range.end - range.start) as usize;
        let budget = &run.store.budget;
        let held = self.memory.as_ref().map_or(0, Reservation::bytes);
        // Many long scans at a time would keep as many long buffers.
        let is_too_much = held >= 2 * len && held > AHEAD_BYTES_TIGHT && budget.is_tight();
        if is_too_much {
            self.buffer = AlignedBuf::default();
        }
        if held < len || is_too_much {
            self.memory = None;
            self.memory = Some(budget.reserve(MemoryUse::Runs, len));
        }
        let skip = run.store.data.read(range.start, len, &mut self.buffer)?;
        self.start = range.start - skip as u64;
        self.end = self.start + self.buffer.len() as u64;
        Ok(())
    }
}

/// A position in runs whose key ranges ascend and do not touch.
pub(crate) struct PartsCursor {
    parts: Vec<Arc<Run>>,
    fetch: Fetch,
    ahead: Ahead,
    /// Whether it has read far ahead.
    is_long: bool,
    /// The number of pages that were looked for among the compressed blocks.
    restored: usize,
    /// Whether the cache had room for more when this was last looked up. Then a long scan fills it.
    has_room: bool,
    /// Whether the first seek goes on with the read-ahead as it is.
    goes_on: bool,
    /// A bound for read-ahead: pages that start at or after this key are not read ahead.
    upper: Option<Vec<u8>>,
    part: usize,
    index: Option<Arc<RunIndex>>,
    page: Option<Arc<Page>>,
    page_index: usize,
    entry: usize,
}

impl PartsCursor {
    /// A cursor without a position yet. `upper` only limits read-ahead.
    pub(crate) fn new(parts: Vec<Arc<Run>>, fetch: Fetch, upper: Option<&[u8]>) -> PartsCursor {
        let bytes = match fetch {
            Fetch::Cached => FIRST_BYTES,
            Fetch::Stream => STREAM_BYTES,
        };
        let ahead = Ahead {
            bytes,
            ..Ahead::default()
        };
        PartsCursor {
            parts,
            fetch,
            ahead,
            is_long: false,
            restored: 0,
            has_room: false,
            goes_on: false,
            upper: upper.map(<[u8]>::to_vec),
            part: 0,
            index: None,
            page: None,
            page_index: 0,
            entry: 0,
        }
    }

    /// Goes on with the read-ahead of the cursor over the run before: a scan that has become long stays long, and keeps its buffer.
    pub(crate) fn continue_after(&mut self, before: PartsCursor) {
        self.ahead = before.ahead;
        // It holds bytes of another run, whose place may be used again.
        self.ahead.end = 0;
        (self.is_long, self.restored) = (before.is_long, before.restored);
        self.goes_on = true;
        self.look_for_room();
    }

    /// Looks whether the cache has room for what a long scan reads.
    fn look_for_room(&mut self) {
        let run = self.parts.first();
        self.has_room = run.is_some_and(|run| run.store.cache.has_room());
    }

    /// Expects that everything will be read, and not soon again.
    pub(crate) fn expect_long(&mut self) {
        self.is_long = true;
        let is_tight = (self.parts.first()).is_some_and(|run| run.store.budget.is_tight());
        self.ahead.bytes = if is_tight {
            AHEAD_BYTES_TIGHT
        } else {
            AHEAD_BYTES_MAX
        };
        self.goes_on = self.page.is_none();
        self.look_for_room();
    }

    pub(crate) fn key(&self) -> Option<&[u8]> {
        Some(self.page.as_ref()?.key(self.entry))
    }

    /// The message here; only called at a key.
    pub(crate) fn message(&self) -> (Kind, &[u8]) {
        match &self.page {
            Some(page) => page.message(self.entry),
            None => (Kind::Delete, &[]),
        }
    }

    /// The number of entries of this page, from this one on, that are below `limit`.
    pub(crate) fn entries_below(&self, limit: Option<&[u8]>) -> usize {
        self.page.as_ref().map_or(0, |page| {
            let end = limit.map_or(page.count(), |limit| page.search(limit).0);
            end.saturating_sub(self.entry)
        })
    }

    /// Goes to the first entry at or after `key`.
    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<()> {
        let part = self.parts.partition_point(|run| &*run.info.max_key < key);
        self.start_over();
        if !self.open_part(part)? {
            return Ok(());
        }
        let page = self.index.as_ref().map_or(0, |index| index.page_of(key));
        self.open_page(page, false)?;
        let Some(page) = &self.page else {
            return Ok(());
        };
        let (entry, _) = page.search(key);
        if entry < page.count() {
            self.entry = entry;
        } else {
            self.next_page()?;
        }
        Ok(())
    }

    /// Goes to the last entry below `key`, or to the last one for `None`.
    pub(crate) fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        let part = match key {
            Some(key) => self.parts.partition_point(|run| &*run.info.min_key < key),
            None => self.parts.len(),
        };
        let Some(part) = part.checked_sub(1) else {
            self.page = None;
            return Ok(());
        };
        self.start_over();
        if !self.open_part(part)? {
            return Ok(());
        }
        let Some(index) = self.index.clone() else {
            return Ok(());
        };
        let page = key.map_or(index.pages() - 1, |key| index.page_of(key));
        self.open_page(page, true)?;
        let Some(page) = &self.page else {
            return Ok(());
        };
        let entry = key.map_or(page.count(), |key| page.search(key).0);
        match entry.checked_sub(1) {
            Some(entry) => self.entry = entry,
            None => self.previous_page()?,
        }
        Ok(())
    }

    pub(crate) fn step(&mut self) -> Result<()> {
        match &self.page {
            Some(page) if self.entry + 1 < page.count() => {
                self.entry += 1;
                Ok(())
            }
            Some(_) => self.next_page(),
            None => Ok(()),
        }
    }

    pub(crate) fn step_back(&mut self) -> Result<()> {
        match self.entry.checked_sub(1) {
            _ if self.page.is_none() => Ok(()),
            Some(entry) => {
                self.entry = entry;
                Ok(())
            }
            None => self.previous_page(),
        }
    }

    fn next_page(&mut self) -> Result<()> {
        let pages = self.index.as_ref().map_or(0, |index| index.pages());
        if self.page_index + 1 < pages {
            self.open_page(self.page_index + 1, false)?;
        } else if self.open_part(self.part + 1)? {
            self.open_page(0, false)?;
        }
        self.entry = 0;
        Ok(())
    }

    fn previous_page(&mut self) -> Result<()> {
        if let Some(page) = self.page_index.checked_sub(1) {
            self.open_page(page, true)?;
        } else {
            let Some(part) = self.part.checked_sub(1) else {
                self.page = None;
                return Ok(());
            };
            if self.open_part(part)? {
                let last = self.index.as_ref().map_or(0, |index| index.pages() - 1);
                self.open_page(last, true)?;
            }
        }
        self.entry = self.page.as_ref().map_or(0, |page| page.count() - 1);
        Ok(())
    }

    /// Resets read-ahead after a seek to the size of the first read.
    fn start_over(&mut self) {
        if self.fetch == Fetch::Cached && !std::mem::take(&mut self.goes_on) {
            self.ahead.bytes = FIRST_BYTES;
            self.is_long = false;
        }
    }

    /// False past the last part; then the cursor has no position.
    fn open_part(&mut self, part: usize) -> Result<bool> {
        self.page = None;
        let Some(run) = self.parts.get(part) else {
            return Ok(false);
        };
        if self.part != part || self.index.is_none() {
            self.index = Some(run.index()?);
            self.part = part;
        }
        Ok(true)
    }

    fn open_page(&mut self, page: usize, backward: bool) -> Result<()> {
        self.page = None;
        let (Some(run), Some(index)) = (self.parts.get(self.part), &self.index) else {
            return Ok(());
        };
        let place = place(run, index, page);
        let is_ahead = self.ahead.holds(&place);
        let large = &run.store.cache.large;
        let turn = match self.fetch {
            Fetch::Cached => large.turn(),
            Fetch::Stream => large.immediate_turn(),
        };
        let mut cached = match self.keeps() {
            _ if is_ahead => None,
            true => run.cached_page(page),
            false => run.peek_page(page),
        };
        if cached.is_none() && !is_ahead {
            cached = run.begin_read(index, page, &turn)?;
        }
        let cached = match cached {
            None if !is_ahead && self.keeps() => {
                self.restored += 1;
                run.restore_page(page, &turn)
            }
            None if !is_ahead => run.restore(page, false, &turn),
            cached => cached,
        };
        let found = match cached {
            Some(found) => found,
            None => {
                if !is_ahead {
                    let range = self.range_ahead(run, index, page, backward);
                    let is_longer = range != place;
                    let ahead = &mut self.ahead;
                    if let Err(error) = run.time_read(page, &turn, || ahead.read(run, range)) {
                        // The page itself may be readable.
                        if !is_longer || !error.is_damage() {
                            run.record_damage(&error);
                            return Err(error);
                        }
                        let alone = self.ahead.read(run, place.clone());
                        alone.inspect_err(|error| run.record_damage(error))?;
                    }
                    if self.fetch == Fetch::Cached {
                        let bytes = self.ahead.bytes;
                        self.ahead.bytes = if run.store.budget.is_tight() {
                            bytes.min(AHEAD_BYTES_TIGHT.max(bytes / 2))
                        } else {
                            (bytes * 2).min(AHEAD_BYTES_MAX)
                        };
                        self.is_long |= self.ahead.bytes > KEPT_BYTES_MAX;
                        self.has_room = run.store.cache.has_room();
                    }
                }
                let keeps = self.keeps();
                let block = self.ahead.block(&place);
                let decoded = run.decode_page(index, page, block, &turn, |block, decoded| {
                    if keeps {
                        run.keep_block(page, block, decoded, !is_ahead);
                    }
                });
                let decoded = decoded.inspect_err(|error| run.record_damage(error))?;
                self.ahead.drop_large();
                if keeps {
                    run.cache_page(page, &decoded);
                }
                decoded
            }
        };
        self.page = Some(found);
        self.page_index = page;
        self.entry = 0;
        Ok(())
    }

    /// Whether the pages of this scan are cached.
    fn keeps(&self) -> bool {
        let is_short = !self.is_long && self.restored <= RESTORED_KEPT_MAX;
        self.fetch == Fetch::Cached && (is_short || self.has_room)
    }

    /// The range of a page in the file, extended by the pages after or before it that fit one read and may be needed.
    fn range_ahead(&self, run: &Run, index: &RunIndex, page: usize, backward: bool) -> Range<u64> {
        let mut range = place(run, index, page);
        let bytes = self.ahead.bytes as u64;
        if backward {
            for page in (0..page).rev() {
                let start = place(run, index, page).start;
                if range.end - start > bytes {
                    break;
                }
                range.start = start;
            }
        } else {
            let last = match &self.upper {
                Some(upper) => index.page_of(upper),
                None => index.pages() - 1,
            };
            for page in page + 1..=last {
                let end = place(run, index, page).end;
                if end - range.start > bytes {
                    break;
                }
                range.end = end;
            }
        }
        range
    }
}

/// The range of a page in the data file.
fn place(run: &Run, index: &RunIndex, page: usize) -> Range<u64> {
    let (at, len) = index.block(page);
    let start = run.extent.offset + u64::from(at);
    start..start + u64::from(len)
}

#[cfg(test)]
mod tests {
    use std::ops::Bound;

    use super::*;
    use crate::{Direction, Durability, Options, Store, TreeOptions, WriteSet};

    /// Values of 1,000 bytes, the first of which cannot be compressed.
    fn values(random_bytes: usize) -> impl FnMut() -> Vec<u8> {
        let mut random = 1u64;
        move || {
            let mut next = || {
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                (random >> 56) as u8
            };
            let mut value: Vec<u8> = (0..random_bytes).map(|_| next()).collect();
            value.resize(1000, b'x');
            value
        }
    }

    /// At each leaf it began with short reads again, whose pages were cached. Of leaves that compress well that was all of them.
    #[test]
    fn a_scan_that_became_long_is_long_in_the_next_leaves_too() {
        let directory = tempfile::tempdir().unwrap();
        let mut options = Options::new(directory.path());
        options.cache_bytes = 16 << 20;
        let store = Store::open(options).unwrap();
        let tree = store.allocate_tree();
        let mut set = WriteSet::new();
        set.create_tree(tree, &TreeOptions::default());
        store.commit(set, Durability::Logged).unwrap();
        let key = |number: u32| number.to_be_bytes();
        let mut value = values(200);
        for batch in 0..64u32 {
            let mut set = WriteSet::new();
            for number in batch * 1000..(batch + 1) * 1000 {
                set.put(tree, &key(number), &value());
            }
            store.commit(set, Durability::Logged).unwrap();
        }
        store.compact().unwrap();
        let pages = 64_000 / 8;
        let snapshot = store.snapshot();
        let scan = |direction, is_long: bool| {
            let before = store.stats().cache_misses;
            let mut cursor = snapshot
                .cursor(tree, Bound::Unbounded, Bound::Unbounded, direction)
                .unwrap();
            if is_long {
                cursor.expect_long();
            }
            let mut entries = 0;
            while cursor.next().unwrap().is_some() {
                entries += 1;
            }
            assert_eq!(entries, 64_000);
            store.stats().cache_misses - before
        };
        // The first one may fill the cache.
        scan(Direction::Forward, false);
        for (direction, is_long, most) in [
            (Direction::Forward, false, pages / 3),
            (Direction::Backward, false, pages / 3),
            (Direction::Forward, true, pages / 20),
        ] {
            let misses = scan(direction, is_long);
            assert!(misses < most, "{misses} of {pages} pages, {direction:?}");
        }
    }

    /// Each kept the buffer of its longest read, so that fifty sorts held tens of MiB for what they read next.
    #[test]
    fn a_long_scan_reads_less_ahead_while_memory_is_short() {
        let directory = tempfile::tempdir().unwrap();
        let mut options = Options::new(directory.path());
        options.cache_bytes = 16 << 20;
        let store = Store::open(options).unwrap();
        let tree = store.allocate_tree();
        let mut set = WriteSet::new();
        set.create_tree(tree, &TreeOptions::default());
        store.commit(set, Durability::Logged).unwrap();
        let mut value = values(1000);
        for batch in 0..64u32 {
            let mut set = WriteSet::new();
            for key in 0..1000u32 {
                set.put(tree, &(batch * 1000 + key).to_be_bytes(), &value());
            }
            store.commit(set, Durability::Logged).unwrap();
        }
        store.compact().unwrap();
        // Spare blocks of memtables are freed a little later.
        while store.memory().is_tight() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let used = || store.memory().used(MemoryUse::Runs);
        let before = used();
        let snapshot = store.snapshot();
        let mut cursor = snapshot
            .cursor(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward)
            .unwrap();
        let mut entries = 0;
        while used() - before < AHEAD_BYTES_MAX as u64 / 2 {
            assert!(cursor.next().unwrap().is_some(), "it reads ahead");
            entries += 1;
        }
        let held = store.memory().bytes() as usize;
        let memtables = store.memory().reserve(MemoryUse::Loads, held);
        for _ in 0..3000 {
            assert!(cursor.next().unwrap().is_some());
            entries += 1;
        }
        let left = used() - before;
        assert!(left <= 2 * AHEAD_BYTES_TIGHT as u64, "{left} bytes");
        drop(memtables);
        while cursor.next().unwrap().is_some() {
            entries += 1;
        }
        assert_eq!(entries, 64_000);
    }
}
