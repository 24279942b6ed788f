//! A walk over a list of runs that follow each other in key order.

use std::sync::Arc;

use super::{Run, RunMeta};
use crate::data_file::{corrupt, decode_block};
use crate::disk::AlignedBuf;
use crate::page::Page;
use crate::{Kind, Result};

/// How many bytes a streaming walk reads at once.
const STREAM_BYTES: usize = 128 << 10;

/// How pages are fetched.
pub(crate) enum Fetch {
    /// One by one, through the cache.
    Cached,
    /// Many with one read, past the cache: for flushes and other walks over everything.
    Stream(Stream),
}

impl Fetch {
    pub(crate) fn stream() -> Fetch {
        Fetch::Stream(Stream::default())
    }
}

/// Consecutive bytes of one extent, read ahead.
#[derive(Default)]
pub(crate) struct Stream {
    buffer: AlignedBuf,
    /// Offset in the file of the buffer's first byte, and the end of what it holds.
    start: u64,
    end: u64,
}

impl Stream {
    /// A page of a walk that will go on up to `last`.
    fn page(&mut self, run: &Run, meta: &RunMeta, index: usize, last: usize) -> Result<Page> {
        let (at, len) = meta.place(index);
        let offset = run.extent.offset + u64::from(at);
        let end = offset + u64::from(len);
        if offset < self.start || end > self.end {
            let mut upto = end;
            for page in index + 1..=last.min(meta.pages() - 1) {
                let (at, len) = meta.place(page);
                let page_end = run.extent.offset + u64::from(at) + u64::from(len);
                if page_end - offset > STREAM_BYTES as u64 {
                    break;
                }
                upto = page_end;
            }
            let wanted = (upto - offset) as usize;
            let skip = run.store.data.read(offset, wanted, &mut self.buffer)?;
            self.start = offset - skip as u64;
            self.end = self.start + self.buffer.len() as u64;
        }
        let from = (offset - self.start) as usize;
        let block = self
            .buffer
            .get(from..from + len as usize)
            .unwrap_or_default();
        Page::new(decode_block(block, offset)?).map_err(|what| corrupt(offset, what))
    }
}

/// A position in runs whose key ranges ascend and do not touch.
pub(crate) struct PartsCursor {
    parts: Vec<Arc<Run>>,
    fetch: Fetch,
    /// Where a walk may stop: pages that start at or after this key are not read ahead.
    upper: Option<Vec<u8>>,
    part: usize,
    meta: Option<Arc<RunMeta>>,
    page: Option<Arc<Page>>,
    page_index: usize,
    entry: usize,
    key: Vec<u8>,
}

impl PartsCursor {
    /// A cursor that stands nowhere yet. `upper` only limits read-ahead.
    pub(crate) fn new(parts: Vec<Arc<Run>>, fetch: Fetch, upper: Option<&[u8]>) -> PartsCursor {
        PartsCursor {
            parts,
            fetch,
            upper: upper.map(<[u8]>::to_vec),
            part: 0,
            meta: None,
            page: None,
            page_index: 0,
            entry: 0,
            key: Vec::new(),
        }
    }

    pub(crate) fn key(&self) -> Option<&[u8]> {
        self.page.is_some().then_some(self.key.as_slice())
    }

    /// The message here; only called at a key.
    pub(crate) fn message(&self) -> (Kind, &[u8]) {
        match &self.page {
            Some(page) => page.message(self.entry),
            None => (Kind::Delete, &[]),
        }
    }

    /// Goes to the first entry at or after `key`.
    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<()> {
        let part = self.parts.partition_point(|run| &*run.info.max_key < key);
        if !self.open_part(part)? {
            return Ok(());
        }
        let page = self.meta.as_ref().map_or(0, |meta| meta.page_of(key));
        self.open_page(page)?;
        let Some(page) = &self.page else {
            return Ok(());
        };
        let (entry, _) = page.search(key);
        if entry < page.count() {
            self.set_entry(entry);
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
        if !self.open_part(part)? {
            return Ok(());
        }
        let Some(meta) = self.meta.clone() else {
            return Ok(());
        };
        let page = key.map_or(meta.pages() - 1, |key| meta.page_of(key));
        self.open_page(page)?;
        let Some(page) = &self.page else {
            return Ok(());
        };
        let entry = key.map_or(page.count(), |key| page.search(key).0);
        match entry.checked_sub(1) {
            Some(entry) => self.set_entry(entry),
            None => self.previous_page()?,
        }
        Ok(())
    }

    pub(crate) fn step(&mut self) -> Result<()> {
        let Some(page) = &self.page else {
            return Ok(());
        };
        if self.entry + 1 < page.count() {
            self.set_entry(self.entry + 1);
            return Ok(());
        }
        self.next_page()
    }

    pub(crate) fn step_back(&mut self) -> Result<()> {
        if self.page.is_none() {
            return Ok(());
        }
        match self.entry.checked_sub(1) {
            Some(entry) => {
                self.set_entry(entry);
                Ok(())
            }
            None => self.previous_page(),
        }
    }

    fn next_page(&mut self) -> Result<()> {
        let pages = self.meta.as_ref().map_or(0, |meta| meta.pages());
        if self.page_index + 1 < pages {
            self.open_page(self.page_index + 1)?;
        } else if self.open_part(self.part + 1)? {
            self.open_page(0)?;
        }
        if self.page.is_some() {
            self.set_entry(0);
        }
        Ok(())
    }

    fn previous_page(&mut self) -> Result<()> {
        if let Some(page) = self.page_index.checked_sub(1) {
            self.open_page(page)?;
        } else {
            let Some(part) = self.part.checked_sub(1) else {
                self.page = None;
                return Ok(());
            };
            if self.open_part(part)? {
                let last = self.meta.as_ref().map_or(0, |meta| meta.pages() - 1);
                self.open_page(last)?;
            }
        }
        if let Some(page) = &self.page {
            self.set_entry(page.count() - 1);
        }
        Ok(())
    }

    /// False past the last part; then the cursor stands nowhere.
    fn open_part(&mut self, part: usize) -> Result<bool> {
        self.page = None;
        let Some(run) = self.parts.get(part) else {
            return Ok(false);
        };
        if self.part != part || self.meta.is_none() {
            self.meta = Some(run.meta()?);
            self.part = part;
        }
        Ok(true)
    }

    fn open_page(&mut self, index: usize) -> Result<()> {
        let (Some(run), Some(meta)) = (self.parts.get(self.part), &self.meta) else {
            return Ok(());
        };
        let page = match &mut self.fetch {
            Fetch::Cached => run.page(meta, index)?,
            Fetch::Stream(stream) => {
                let last = match &self.upper {
                    Some(upper) => meta.page_of(upper),
                    None => meta.pages() - 1,
                };
                Arc::new(stream.page(run, meta, index, last)?)
            }
        };
        self.page = Some(page);
        self.page_index = index;
        Ok(())
    }

    fn set_entry(&mut self, entry: usize) {
        self.entry = entry;
        if let Some(page) = &self.page {
            page.read_key(entry, &mut self.key);
        }
    }
}
