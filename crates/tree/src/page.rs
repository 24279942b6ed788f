//! A page: sorted messages, searched in place.
//!
//! Uncompressed form, little-endian: number of entries (4 bytes), length of the prefix that all keys share (2), two
//! zeros, the prefix, the offset of each entry in the page (4 each) and that of the end, the
//! entries. An entry is kind (1), length of the key behind the prefix (2), that rest, and the
//! value up to the next entry.

use std::cmp::Ordering;

use crate::Kind;

const HEADER_BYTES: usize = 8;
const ENTRY_HEADER_BYTES: usize = 3;

/// Bytes that an entry takes in a page besides its key and value.
pub(crate) const ENTRY_OVERHEAD_BYTES: usize = ENTRY_HEADER_BYTES + 4;

/// A page in memory.
pub(crate) struct Page {
    bytes: Vec<u8>,
    count: usize,
    prefix_len: usize,
}

impl Page {
    /// Takes the uncompressed bytes of a page, and checks that every entry lies inside.
    pub(crate) fn new(bytes: Vec<u8>) -> Result<Page, &'static str> {
        let word = |at: usize, len: usize| bytes.get(at..at + len);
        let count = word(0, 4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize);
        let prefix_len = word(4, 2).map(|b| u16::from_le_bytes([b[0], b[1]]) as usize);
        let (Some(count), Some(prefix_len)) = (count, prefix_len) else {
            return Err("a page is shorter than its header");
        };
        let page = Page {
            bytes,
            count,
            prefix_len,
        };
        let mut previous = page.entries_start();
        if count == 0 || previous > page.bytes.len() || page.offset(0) != previous {
            return Err("a page has no room for its entries");
        }
        for index in 1..=count {
            let here = page.offset(index);
            if here < previous + ENTRY_HEADER_BYTES || here > page.bytes.len() {
                return Err("an entry lies outside of its page");
            }
            if previous + ENTRY_HEADER_BYTES + page.suffix_len(previous) > here {
                return Err("a key lies outside of its entry");
            }
            previous = here;
        }
        Ok(page)
    }

    fn entries_start(&self) -> usize {
        HEADER_BYTES + self.prefix_len + 4 * (self.count + 1)
    }

    fn offset(&self, index: usize) -> usize {
        let at = HEADER_BYTES + self.prefix_len + 4 * index;
        let b = &self.bytes[at..at + 4];
        u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize
    }

    fn suffix_len(&self, entry: usize) -> usize {
        u16::from_le_bytes([self.bytes[entry + 1], self.bytes[entry + 2]]) as usize
    }

    /// Bytes of memory that the page takes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Number of entries, at least one.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    fn prefix(&self) -> &[u8] {
        &self.bytes[HEADER_BYTES..HEADER_BYTES + self.prefix_len]
    }

    fn suffix(&self, index: usize) -> &[u8] {
        let start = self.offset(index);
        let from = start + ENTRY_HEADER_BYTES;
        &self.bytes[from..from + self.suffix_len(start)]
    }

    /// Replaces `key` with the key of an entry.
    pub(crate) fn read_key(&self, index: usize, key: &mut Vec<u8>) {
        key.clear();
        key.extend_from_slice(self.prefix());
        key.extend_from_slice(self.suffix(index));
    }

    /// Kind and value of an entry.
    pub(crate) fn message(&self, index: usize) -> (Kind, &[u8]) {
        let (start, end) = (self.offset(index), self.offset(index + 1));
        let kind = Kind::from_byte(self.bytes[start]).unwrap_or(Kind::Delete);
        (
            kind,
            &self.bytes[start + ENTRY_HEADER_BYTES + self.suffix_len(start)..end],
        )
    }

    /// Index of the first entry at or after `key` (the count if there is none), and whether it is that key.
    pub(crate) fn search(&self, key: &[u8]) -> (usize, bool) {
        let prefix = self.prefix();
        let Some(rest) = key.strip_prefix(prefix) else {
            return if key < prefix {
                (0, false)
            } else {
                (self.count, false)
            };
        };
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = (low + high) / 2;
            match self.suffix(middle).cmp(rest) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return (middle, true),
                Ordering::Greater => high = middle,
            }
        }
        (low, false)
    }
}

/// Collects the entries of a page, in key order.
#[derive(Default)]
pub(crate) struct PageBuilder {
    keys: Vec<u8>,
    values: Vec<u8>,
    /// Kind, end in `keys`, end in `values`.
    entries: Vec<(Kind, u32, u32)>,
}

impl PageBuilder {
    pub(crate) fn add(&mut self, key: &[u8], kind: Kind, value: &[u8]) {
        self.keys.extend_from_slice(key);
        self.values.extend_from_slice(value);
        self.entries
            .push((kind, self.keys.len() as u32, self.values.len() as u32));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Size of the page if it were built now, in bytes, its shared prefix not counted.
    pub(crate) fn bytes(&self) -> usize {
        self.keys.len() + self.values.len() + self.entries.len() * ENTRY_OVERHEAD_BYTES
    }

    pub(crate) fn first_key(&self) -> &[u8] {
        let end = self.entries.first().map_or(0, |entry| entry.1 as usize);
        &self.keys[..end]
    }

    pub(crate) fn last_key(&self) -> &[u8] {
        let start = match self.entries.len() {
            0 | 1 => 0,
            len => self.entries[len - 2].1 as usize,
        };
        &self.keys[start..]
    }

    /// Replaces `out` with the page and empties the builder.
    pub(crate) fn build(&mut self, out: &mut Vec<u8>) {
        let (first, last) = (self.first_key(), self.last_key());
        let prefix_len = first.iter().zip(last).take_while(|(a, b)| a == b).count();
        out.clear();
        out.extend_from_slice(&(self.entries.len() as u32).to_le_bytes());
        out.extend_from_slice(&(prefix_len as u16).to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&first[..prefix_len]);
        let mut at = out.len() + 4 * (self.entries.len() + 1);
        let (mut key_start, mut value_start) = (0, 0);
        for (_, key_end, value_end) in &self.entries {
            out.extend_from_slice(&(at as u32).to_le_bytes());
            at += ENTRY_HEADER_BYTES + (key_end - key_start) as usize - prefix_len;
            at += (value_end - value_start) as usize;
            (key_start, value_start) = (*key_end, *value_end);
        }
        out.extend_from_slice(&(at as u32).to_le_bytes());
        let (mut key_start, mut value_start) = (0, 0);
        for (kind, key_end, value_end) in &self.entries {
            let (key_end, value_end) = (*key_end as usize, *value_end as usize);
            let suffix = &self.keys[key_start + prefix_len..key_end];
            out.push(kind.to_byte());
            out.extend_from_slice(&(suffix.len() as u16).to_le_bytes());
            out.extend_from_slice(suffix);
            out.extend_from_slice(&self.values[value_start..value_end]);
            (key_start, value_start) = (key_end, value_end);
        }
        self.keys.clear();
        self.values.clear();
        self.entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(keys: &[&str]) -> Vec<u8> {
        let mut builder = PageBuilder::default();
        for (index, key) in keys.iter().enumerate() {
            let kind = Kind::from_byte((index % 3) as u8).unwrap();
            builder.add(key.as_bytes(), kind, format!("value of {key}").as_bytes());
        }
        assert_eq!(builder.first_key(), keys[0].as_bytes());
        assert_eq!(builder.last_key(), keys[keys.len() - 1].as_bytes());
        let mut out = vec![1];
        builder.build(&mut out);
        assert!(builder.is_empty());
        out
    }

    #[test]
    fn finds_its_entries() {
        for keys in [
            &["only"][..],
            &["", "a", "ab"],
            &["http://a", "http://ab", "http://b"],
            &["same", "same1", "same12", "same2"],
        ] {
            let page = Page::new(page(keys)).unwrap();
            assert_eq!(page.count(), keys.len());
            let mut key = Vec::new();
            for (index, expected) in keys.iter().enumerate() {
                assert_eq!(page.search(expected.as_bytes()), (index, true));
                page.read_key(index, &mut key);
                assert_eq!(key, expected.as_bytes());
                let (kind, value) = page.message(index);
                assert_eq!(kind, Kind::from_byte((index % 3) as u8).unwrap());
                assert_eq!(value, format!("value of {expected}").as_bytes());
                let above = format!("{expected}\0");
                assert_eq!(page.search(above.as_bytes()), (index + 1, false));
            }
            assert_eq!(page.search(b"zzz"), (keys.len(), false));
            assert_eq!(page.search(b""), (0, keys[0].is_empty()));
        }
    }

    #[test]
    fn damaged_pages_are_refused_or_harmless() {
        let good = page(&["alpha", "alpine", "beta"]);
        for cut in 0..good.len() {
            assert!(Page::new(good[..cut].to_vec()).is_err());
        }
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0xff;
            if let Ok(page) = Page::new(bad) {
                let mut key = Vec::new();
                for index in 0..page.count() {
                    page.read_key(index, &mut key);
                    page.message(index);
                }
                page.search(b"alpine");
            }
        }
    }
}
