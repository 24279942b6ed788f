//! Writes sorted messages as one run after another.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use frond_kv::{MemoryUse, Reservation};

use super::{Run, RunInfo, RunStore};
use crate::bounds::{lower_bound, raise_to_upper_bound};
use crate::compress::Compressor;
use crate::page::{Page, PageBuilder};
use crate::run_index::{RunIndex, separator};
use crate::{Compression, Kind, Result, filter};

/// Larger buffers are not kept for the next writer of a thread.
const SPARE_BYTES_MAX: usize = 8 << 20;

/// All threads together keep at most this share of the engine's part of the memory: commands write runs too, while snapshots keep
/// too many memtables, and there may be hundreds of threads.
const SPARE_SHARE: u64 = 32;

/// A page that takes fewer bytes than this on disk is small: its fixed costs exceed those of its content. The next one is twice as
/// large, up to [`GROWTH`] times the size that was asked for. So documents that compress to a few bytes share a template and one
/// call of the codec, and a point read still takes a small read from the device.
const SMALL_BLOCK_BYTES: usize = 1 << 10;
const GROWTH: usize = 4;

/// The sizes of the pages of one writer, in memory.
#[derive(Clone, Copy)]
struct PageSizes {
    least: usize,
    next: usize,
}

impl PageSizes {
    fn new(least: usize) -> PageSizes {
        PageSizes { least, next: least }
    }

    /// Chooses the next size after a page that takes this many bytes on disk.
    fn after(&mut self, stored: usize) {
        if stored < SMALL_BLOCK_BYTES {
            self.next = (self.next * 2).min(self.least * GROWTH);
        } else if stored > 2 * SMALL_BLOCK_BYTES {
            self.next = (self.next / 2).max(self.least);
        }
    }
}

/// The buffers of a writer that are kept for the next one.
#[derive(Default)]
struct Buffers {
    /// The blocks of the current run, which has the size of a leaf.
    blocks: Vec<u8>,
    /// Hashes of its keys.
    hashes: Vec<u64>,
    /// The index of the current run.
    index: Vec<u8>,
    page: PageBuilder,
    payload: Vec<u8>,
    /// While they are kept.
    kept: Kept,
}

/// Bytes of all buffers that are kept.
static KEPT: AtomicU64 = AtomicU64::new(0);

/// A part of [`KEPT`].
#[derive(Default)]
struct Kept(u64);

impl Kept {
    /// Counts more bytes, if all are then at most `most`.
    fn take(bytes: u64, most: u64) -> Option<Kept> {
        let kept = Kept(bytes);
        (KEPT.fetch_add(bytes, Ordering::Relaxed) + bytes <= most).then_some(kept)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        KEPT.fetch_sub(self.0, Ordering::Relaxed);
    }
}

impl Buffers {
    fn bytes(&self) -> usize {
        let hashes = self.hashes.capacity() * size_of::<u64>();
        let others = self.index.capacity() + self.payload.capacity() + self.page.capacity();
        self.blocks.capacity() + hashes + others
    }
}

thread_local! {
    /// The buffers of a thread's last writer.
    static SPARE: Cell<Option<Buffers>> = const { Cell::new(None) };
}

/// Frees the buffers that this thread keeps.
pub(crate) fn free_buffers() {
    SPARE.take();
}

/// Bounds of keys: the lower one inclusive, and the upper one exclusive, if there is one.
struct Within {
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
}

/// Builds runs of about `run_bytes` bytes of keys and values from messages in key order. At most one run is in memory.
///
/// U1: keys ascend. That is checked from page to page and from run to run: pages that are read have keys in order, and lie between
/// their separators.
/// U2: a run has at least one page, then its index and its filter, in this order.
pub(crate) struct RunWriter {
    store: Arc<RunStore>,
    compressor: Compressor,
    page_sizes: PageSizes,
    run_bytes: u64,
    page: PageBuilder,
    payload: Vec<u8>,
    /// The blocks of the current run.
    blocks: Vec<u8>,
    /// Start of each block in `blocks`.
    starts: Vec<usize>,
    index: Vec<u8>,
    hashes: Vec<u64>,
    logical_bytes: u64,
    /// The bounds of all keys: those of long ones may be shortened within them.
    within: Option<Within>,
    /// The lower bound of the current run.
    min_key: Vec<u8>,
    /// Last key of the last finished page, and the separator before it.
    max_key: Vec<u8>,
    separator: Vec<u8>,
    /// The first pages of the current run, for the cache.
    kept: Vec<Arc<Page>>,
    done: Vec<Arc<Run>>,
    /// For the blocks, the hashes of keys and the index.
    _memory: Reservation,
}

impl RunWriter {
    pub(crate) fn new(
        store: &Arc<RunStore>,
        compression: Compression,
        page_bytes: usize,
        run_bytes: u64,
    ) -> RunWriter {
        let Buffers {
            blocks,
            hashes,
            index,
            page,
            payload,
            kept: _,
        } = SPARE.take().unwrap_or_default();
        RunWriter {
            store: store.clone(),
            compressor: Compressor::new(compression),
            page_sizes: PageSizes::new(page_bytes),
            run_bytes,
            page,
            payload,
            blocks,
            starts: Vec::new(),
            index,
            hashes,
            logical_bytes: 0,
            within: None,
            min_key: Vec::new(),
            max_key: Vec::new(),
            separator: Vec::new(),
            kept: Vec::new(),
            done: Vec::new(),
            _memory: store
                .budget
                .reserve(MemoryUse::Runs, run_bytes as usize / 2 * 3),
        }
    }

    /// Promises that all keys are in `lower..upper`, and that nothing else will be between them and these bounds.
    pub(crate) fn within(self, lower: &[u8], upper: Option<&[u8]>) -> RunWriter {
        let within = Within {
            lower: lower.to_vec(),
            upper: upper.map(<[u8]>::to_vec),
        };
        RunWriter {
            within: Some(within),
            ..self
        }
    }

    /// Adds a message; its key is greater than the previous one.
    pub(crate) fn add(&mut self, key: &[u8], kind: Kind, value: &[u8]) -> Result<()> {
        debug_assert!(self.page.is_empty() || self.page.last_key() < key);
        let bytes = key.len() + value.len();
        if !self.page.is_empty() && self.page.bytes_with(bytes) > self.page_sizes.next {
            self.finish_page();
            if self.logical_bytes >= self.run_bytes {
                self.finish_run(Some(key))?;
            }
        }
        if self.hashes.is_empty() {
            let lower = match self.done.last() {
                Some(run) => Some(&*run.info.max_key),
                None => self.within.as_ref().map(|within| &*within.lower),
            };
            assert!(
                lower.is_none_or(|lower| *lower <= *key) || self.done.is_empty(),
                "U1: a run begins before the end of the one before"
            );
            self.min_key.clear();
            self.min_key.extend_from_slice(lower_bound(key, lower));
        }
        self.page.add(key, kind, value);
        self.hashes.push(filter::hash(key));
        self.logical_bytes += bytes as u64;
        Ok(())
    }

    /// Ends the current run before the key `next` if its keys and values have at least `bytes` bytes.
    pub(crate) fn end_run_from(&mut self, bytes: u64, next: &[u8]) -> Result<()> {
        if self.logical_bytes >= bytes {
            self.finish_run(Some(next))
        } else {
            Ok(())
        }
    }

    /// Finishes the last run and returns all of them in key order.
    pub(crate) fn finish(mut self) -> Result<Vec<Arc<Run>>> {
        self.finish_run(None)?;
        let mut buffers = Buffers {
            blocks: std::mem::take(&mut self.blocks),
            hashes: std::mem::take(&mut self.hashes),
            index: std::mem::take(&mut self.index),
            page: std::mem::take(&mut self.page),
            payload: std::mem::take(&mut self.payload),
            kept: Kept::default(),
        };
        let most = self.store.budget.bytes() / SPARE_SHARE;
        if buffers.bytes() <= SPARE_BYTES_MAX
            && let Some(kept) = Kept::take(buffers.bytes() as u64, most)
        {
            buffers.kept = kept;
            SPARE.set(Some(buffers));
        }
        Ok(self.done)
    }

    fn finish_page(&mut self) {
        let start = self.blocks.len();
        let first_key = self.page.first_key();
        self.separator.clear();
        if start > 0 {
            assert!(
                self.max_key.as_slice() < first_key,
                "U1: a page begins before the end of the one before"
            );
            self.separator
                .extend_from_slice(separator(&self.max_key, first_key));
        }
        self.max_key.clear();
        self.max_key.extend_from_slice(self.page.last_key());
        self.keep_page();
        self.page.build(&mut self.payload);
        let form = &self.store.data.form;
        form.push_with(&mut self.blocks, &mut self.compressor, &self.payload);
        let len = self.blocks.len() - start;
        self.page_sizes.after(len);
        RunIndex::push(&mut self.index, len as u32, &self.separator);
        self.starts.push(start);
    }

    /// Keeps the page for the cache while that has room, so that it need not be read.
    fn keep_page(&mut self) {
        if self.kept.len() == self.starts.len()
            && self.store.cache.has_room()
            && let Some(page) = self.page.page()
        {
            self.kept.push(Arc::new(page));
        }
    }

    /// Ends the current run; the next one begins with the key `next`, if there is one.
    fn finish_run(&mut self, next: Option<&[u8]>) -> Result<()> {
        if self.hashes.is_empty() {
            return Ok(());
        }
        if !self.page.is_empty() {
            self.finish_page();
        }
        let upper = match (next, &self.within) {
            (Some(next), _) => Some(Some(next)),
            (None, Some(within)) => Some(within.upper.as_deref()),
            (None, None) => None,
        };
        raise_to_upper_bound(&mut self.max_key, upper);
        let pages = self.starts.len() as u32;
        assert!(pages > 0, "U2: a run has no pages");
        assert!(
            self.min_key <= self.max_key,
            "U1: a run ends before it begins"
        );
        let index_at = self.blocks.len();
        let form = &self.store.data.form;
        form.push(&mut self.blocks, Compression::None, &self.index);
        self.starts.push(index_at);
        let filter_at = self.blocks.len();
        form.push(
            &mut self.blocks,
            Compression::None,
            &filter::build(&self.hashes),
        );
        self.starts.push(filter_at);

        let data = &self.store.data;
        let extent = data.write_new(&mut self.blocks, &self.starts, None)?;
        let info = RunInfo {
            index_at: index_at as u32,
            index_len: (filter_at - index_at) as u32,
            filter_len: (self.blocks.len() - filter_at) as u32,
            pages,
            entries: self.hashes.len() as u64,
            logical_bytes: self.logical_bytes,
            min_key: self.min_key.as_slice().into(),
            max_key: self.max_key.as_slice().into(),
        };
        assert!(
            info.end() == self.blocks.len() as u64 && info.end() <= extent.len,
            "U2: the blocks of a run do not fill it"
        );
        assert!(
            self.kept.len() <= pages as usize,
            "U2: more pages are kept than a run has"
        );
        let run = Run::new(&self.store, extent, info);
        run.cache_written_index(&self.index);
        for (index, page) in self.kept.drain(..).enumerate() {
            run.cache_page(index, &page);
        }
        if pages > 0 && self.store.cache.has_room_for_blocks() {
            // The index follows the last page.
            for (page, place) in self.starts.windows(2).take(pages as usize).enumerate() {
                run.keep_written_block(page, place[0], &self.blocks[place[0]..place[1]])?;
            }
        }
        self.starts.clear();
        self.done.push(run);
        self.blocks.clear();
        self.index.clear();
        self.hashes.clear();
        self.logical_bytes = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_grow_while_they_take_little_on_disk() {
        let mut sizes = PageSizes::new(8 << 10);
        let mut after = |stored| {
            sizes.after(stored);
            sizes.next >> 10
        };
        let stored = [300, 500, 900, 1500, 2049, 900, 1024, 3000, 5000, 9000];
        let expected = [16, 32, 32, 32, 16, 32, 32, 16, 8, 8];
        assert_eq!(stored.map(&mut after), expected);
    }

    /// Hundreds of threads kept up to 8 MiB each.
    #[test]
    fn all_threads_together_keep_few_buffers() {
        // Other tests keep some, too.
        let most = KEPT.load(Ordering::Relaxed) + (64 << 20);
        let mut kept: Vec<Kept> = Vec::new();
        while let Some(one) = Kept::take(8 << 20, most) {
            kept.push(one);
        }
        assert!(kept.len() <= 8, "{}", kept.len());
        kept.clear();
        assert!(Kept::take(8 << 20, most).is_some());
    }
}
