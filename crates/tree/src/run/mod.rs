//! A run: sorted messages in pages, in one extent of the data file.
//!
//! Leaves and the parts of buffers have this one form. A leaf holds puts only; a buffer's run also holds
//! deletes and update messages. The pages follow each other, then the run's meta block: for each page its
//! first key and place, and a filter over all keys.

mod cursor;
mod meta;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::cache::PageCache;
use crate::data_file::{DataFile, corrupt};
use crate::page::Page;
use crate::space::Extent;
use crate::{Result, filter};
pub(crate) use cursor::{Fetch, PartsCursor};
pub(crate) use meta::RunMeta;
pub(crate) use writer::RunWriter;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// What all readers and writers of runs share.
pub(crate) struct RunStore {
    pub(crate) data: DataFile,
    pub(crate) cache: PageCache,
}

/// The figures of a run that are kept in its parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunInfo {
    /// Offset of the meta block in the extent, and its length, in bytes.
    pub(crate) meta_at: u32,
    pub(crate) meta_len: u32,
    pub(crate) pages: u32,
    pub(crate) entries: u64,
    /// Bytes of the keys and values.
    pub(crate) logical_bytes: u64,
    pub(crate) min_key: Box<[u8]>,
    pub(crate) max_key: Box<[u8]>,
}

/// A handle to a run on disk.
pub(crate) struct Run {
    /// Identifies its pages in the cache; unique while the process lives.
    id: u64,
    pub(crate) extent: Arc<Extent>,
    pub(crate) info: RunInfo,
    store: Arc<RunStore>,
}

impl Run {
    pub(crate) fn new(store: &Arc<RunStore>, extent: Arc<Extent>, info: RunInfo) -> Arc<Run> {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Arc::new(Run {
            id,
            extent,
            info,
            store: store.clone(),
        })
    }

    /// Whether the run's keys reach into `lower..upper`; `None` is no upper bound.
    pub(crate) fn overlaps(&self, lower: &[u8], upper: Option<&[u8]>) -> bool {
        &*self.info.max_key >= lower && upper.is_none_or(|upper| &*self.info.min_key < upper)
    }

    /// Places of the pages, and the filter.
    pub(crate) fn meta(&self) -> Result<Arc<RunMeta>> {
        if let Some(meta) = self.store.cache.meta(self.id) {
            return Ok(meta);
        }
        let meta = Arc::new(self.read_meta()?);
        self.store.cache.insert_meta(self.id, meta.clone());
        Ok(meta)
    }

    fn read_meta(&self) -> Result<RunMeta> {
        let offset = self.extent.offset + u64::from(self.info.meta_at);
        let payload = self
            .store
            .data
            .read_block(offset, self.info.meta_len as usize)?;
        RunMeta::decode(&payload, self.info.pages, self.info.meta_at)
            .ok_or_else(|| corrupt(offset, "the index of a run is malformed"))
    }

    /// A page, through the cache.
    pub(crate) fn page(&self, meta: &RunMeta, index: usize) -> Result<Arc<Page>> {
        if let Some(page) = self.store.cache.page(self.id, index as u32) {
            return Ok(page);
        }
        let (at, len) = meta.place(index);
        let offset = self.extent.offset + u64::from(at);
        let bytes = self.store.data.read_block(offset, len as usize)?;
        let page = Arc::new(Page::new(bytes).map_err(|what| corrupt(offset, what))?);
        self.store
            .cache
            .insert_page(self.id, index as u32, page.clone());
        Ok(page)
    }

    /// The page and index of a key's message, if the run has one.
    pub(crate) fn get(&self, key: &[u8], hash: u64) -> Result<Option<(Arc<Page>, usize)>> {
        if key < &*self.info.min_key || key > &*self.info.max_key {
            return Ok(None);
        }
        let meta = self.meta()?;
        if !filter::may_contain(meta.filter(), hash) {
            return Ok(None);
        }
        let page = self.page(&meta, meta.page_of(key))?;
        match page.search(key) {
            (index, true) => Ok(Some((page, index))),
            _ => Ok(None),
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.store.cache.forget(self.id, self.info.pages);
    }
}
