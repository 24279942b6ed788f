//! The index of a run: the location of its pages, and their separators.
//!
//! Payload of the index block, little-endian: for each page its length in the extent (4 bytes), the length of its
//! separator (2, or 4 for a long one) and the separator. Pages follow each other from the start of the extent.

use crate::bytes::{Reader, SHORT_KEY_BYTES_MAX, Writer};

/// Set in the length of a page whose separator is long.
const LONG_SEPARATOR: u32 = 1 << 31;

/// The locations and separators of the pages of a run.
pub(crate) struct RunIndex {
    separators: Box<[u8]>,
    /// Where each page starts, and its separator, and where the last one ends.
    pages: Box<[PageEntry]>,
}

struct PageEntry {
    at: u32,
    separator_at: u32,
}

impl RunIndex {
    /// `None` for bytes that do not describe `pages` pages that end at or before `end`.
    pub(crate) fn decode(bytes: &[u8], pages: u32, end: u32) -> Option<RunIndex> {
        if pages == 0 || pages as usize > bytes.len() / 6 {
            return None;
        }
        let mut reader = Reader(bytes);
        let mut separators = Vec::with_capacity(bytes.len() - pages as usize * 6);
        let mut entries = Vec::with_capacity(pages as usize + 1);
        let mut at = 0u32;
        for _ in 0..pages {
            let separator_at = separators.len() as u32;
            entries.push(PageEntry { at, separator_at });
            let len = reader.u32()?;
            at = at.checked_add(len & !LONG_SEPARATOR)?;
            separators.extend_from_slice(match len & LONG_SEPARATOR {
                0 => reader.key()?,
                _ => reader.long_key()?,
            });
        }
        let separator_at = separators.len() as u32;
        entries.push(PageEntry { at, separator_at });
        (at <= end && reader.0.is_empty()).then(|| RunIndex {
            separators: separators.into(),
            pages: entries.into(),
        })
    }

    /// Appends a page to the encoded form. All keys of the page are at or above its separator, and all keys
    /// of the one before are below it.
    pub(crate) fn push(out: &mut Vec<u8>, len: u32, separator: &[u8]) {
        if separator.len() > SHORT_KEY_BYTES_MAX {
            out.put_u32(len | LONG_SEPARATOR);
            return out.put_long_key(separator);
        }
        out.put_u32(len);
        out.put_key(separator);
    }

    pub(crate) fn pages(&self) -> usize {
        self.pages.len() - 1
    }

    /// Offset in the extent and length of a page.
    pub(crate) fn block(&self, page: usize) -> (u32, u32) {
        let at = self.pages[page].at;
        (at, self.pages[page + 1].at - at)
    }

    /// Bytes of memory that this takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<RunIndex>() + self.separators.len() + self.pages.len() * size_of::<PageEntry>()
    }

    pub(crate) fn separator(&self, page: usize) -> &[u8] {
        let start = self.pages[page].separator_at as usize;
        &self.separators[start..self.pages[page + 1].separator_at as usize]
    }

    /// The page that holds `key`, if any does: the last one whose separator is at or before it, or the first.
    pub(crate) fn page_of(&self, key: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.pages());
        while low < high {
            let middle = (low + high) / 2;
            if self.separator(middle) <= key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low.saturating_sub(1)
    }
}

/// The shortest key that is above `before` and not above `first`; `before` is below `first`.
pub(crate) fn separator<'a>(before: &[u8], first: &'a [u8]) -> &'a [u8] {
    let shared = before.iter().zip(first).take_while(|(a, b)| a == b).count();
    &first[..first.len().min(shared + 1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_lie_between_their_keys() {
        for (before, first, expected) in [
            ("", "a", "a"),
            ("a", "ab", "ab"),
            ("abc", "abd", "abd"),
            ("abcx", "abdefg", "abd"),
            ("a", "zebra", "z"),
            ("ab", "abcdef", "abc"),
        ] {
            let found = separator(before.as_bytes(), first.as_bytes());
            assert_eq!(found, expected.as_bytes());
            assert!(before.as_bytes() < found && found <= first.as_bytes());
        }
    }

    #[test]
    fn finds_the_page_of_a_key() {
        let mut bytes = Vec::new();
        for (len, key) in [(10, ""), (20, "d"), (30, "dx"), (5, "m")] {
            RunIndex::push(&mut bytes, len, key.as_bytes());
        }
        let index = RunIndex::decode(&bytes, 4, 65).unwrap();
        assert_eq!(index.pages(), 4);
        let blocks: Vec<_> = (0..4).map(|page| index.block(page)).collect();
        assert_eq!(blocks, [(0, 10), (10, 20), (30, 30), (60, 5)]);
        for (key, page) in [("", 0), ("c", 0), ("d", 1), ("dw", 1), ("dx", 2), ("z", 3)] {
            assert_eq!(index.page_of(key.as_bytes()), page, "{key}");
        }
        assert!(RunIndex::decode(&bytes, 4, 64).is_none(), "behind the end");
        assert!(RunIndex::decode(&bytes, 3, 65).is_none());
        assert!(RunIndex::decode(&bytes, 5, 65).is_none());
        assert!(RunIndex::decode(&[], 0, 65).is_none());
        for cut in 0..bytes.len() {
            assert!(RunIndex::decode(&bytes[..cut], 4, 65).is_none());
        }
    }
}
