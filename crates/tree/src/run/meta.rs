//! The index and filter of a run.
//!
//! Payload of the meta block, little-endian: for each page its offset in the extent (4 bytes), its length there
//! (4), the length of its first key (2) and that key; then the filter up to the end.

/// Where the pages of a run are, and which keys it may hold.
pub(crate) struct RunMeta {
    keys: Vec<u8>,
    pages: Vec<PagePlace>,
    filter: Vec<u8>,
}

struct PagePlace {
    key_end: u32,
    at: u32,
    len: u32,
}

impl RunMeta {
    /// `None` for bytes that do not describe `pages` pages below `end`.
    pub(crate) fn decode(bytes: &[u8], pages: u32, end: u32) -> Option<RunMeta> {
        let mut rest = bytes;
        let mut take = |len: usize| {
            let (taken, after) = rest.split_at_checked(len)?;
            rest = after;
            Some(taken)
        };
        if pages == 0 || pages as usize > bytes.len() / 10 {
            return None;
        }
        let mut meta = RunMeta {
            keys: Vec::new(),
            pages: Vec::with_capacity(pages as usize),
            filter: Vec::new(),
        };
        for _ in 0..pages {
            let at = u32::from_le_bytes(take(4)?.try_into().ok()?);
            let len = u32::from_le_bytes(take(4)?.try_into().ok()?);
            let key_len = u16::from_le_bytes(take(2)?.try_into().ok()?);
            meta.keys.extend_from_slice(take(key_len as usize)?);
            if at.checked_add(len)? > end {
                return None;
            }
            meta.pages.push(PagePlace {
                key_end: meta.keys.len() as u32,
                at,
                len,
            });
        }
        meta.filter = rest.to_vec();
        meta.keys.shrink_to_fit();
        Some(meta)
    }

    /// Appends a page to the encoded form.
    pub(super) fn push(out: &mut Vec<u8>, at: u32, len: u32, first_key: &[u8]) {
        out.extend_from_slice(&at.to_le_bytes());
        out.extend_from_slice(&len.to_le_bytes());
        out.extend_from_slice(&(first_key.len() as u16).to_le_bytes());
        out.extend_from_slice(first_key);
    }

    /// Number of pages.
    pub(crate) fn pages(&self) -> usize {
        self.pages.len()
    }

    /// Offset in the extent and length of a page.
    pub(crate) fn place(&self, index: usize) -> (u32, u32) {
        (self.pages[index].at, self.pages[index].len)
    }

    pub(crate) fn filter(&self) -> &[u8] {
        &self.filter
    }

    /// Bytes of memory that this takes.
    pub(crate) fn bytes(&self) -> usize {
        self.keys.len() + self.pages.len() * size_of::<PagePlace>() + self.filter.len()
    }

    fn first_key(&self, index: usize) -> &[u8] {
        let start = if index == 0 {
            0
        } else {
            self.pages[index - 1].key_end as usize
        };
        &self.keys[start..self.pages[index].key_end as usize]
    }

    /// The page that holds `key`, if any does: the last one that starts at or before it, or the first.
    pub(crate) fn page_of(&self, key: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.pages.len());
        while low < high {
            let middle = (low + high) / 2;
            if self.first_key(middle) <= key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low.saturating_sub(1)
    }
}
