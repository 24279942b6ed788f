//! A page: sorted messages, the unit that is read, compressed and cached.
//!
//! On disk a page is columnar: equal lengths take one field, the prefix that all keys share is stored once, so are
//! the bytes that values of one length and the ends of keys share, and keys are stored apart from values. FORMAT.md describes it. In
//! memory every entry has its whole key before its value, so that readers can borrow both.

mod stored;

use std::cmp::Ordering;

use frond_kv::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

use crate::Kind;
use crate::buffers::PageBytes;
use crate::bytes::{SHORT_KEY_BYTES_MAX, Writer};
use crate::template::{self, Template};
use stored::{Column, Stored};

/// Bytes of an entry's slot in memory: offset of its key (32 bits), length of the key (30), kind (2).
const PLACE_BYTES: usize = 8;
const KIND_AT: u32 = 62;
const KEY_LEN_MASK: u32 = (1 << 30) - 1;
/// Bytes of a key's head in memory.
const HEAD_BYTES: usize = 8;

/// The largest page in memory: one with the largest key and value.
const BYTES_MAX: usize = 64 << 20;
const _: () = assert!(KEY_BYTES_MAX + VALUE_BYTES_MAX + (2 << 20) <= BYTES_MAX);

/// Set in the number of entries of a page that has a template of values.
const HAS_TEMPLATE: u32 = 1 << 31;
/// The same for a template of the ends of keys.
const HAS_KEY_TEMPLATE: u32 = 1 << 30;

/// The result of a look-up in a stored page.
pub(crate) struct FoundEntry {
    /// The bytes that the whole page would take in memory.
    pub(crate) page_bytes: usize,
    /// A page of this entry alone, if the key is there.
    pub(crate) entry: Option<Page>,
}

/// A page in memory: a head of each key, the slots of the entries and of the end, then keys and values.
///
/// A head is eight bytes of a key after the prefix that all keys share, so that a search compares adjacent
/// numbers and hardly any keys.
pub(crate) struct Page {
    bytes: PageBytes,
    count: usize,
    prefix_len: usize,
}

impl Page {
    /// Decodes a stored page, and checks that every entry lies inside and that the keys ascend.
    pub(crate) fn decode(payload: &[u8]) -> Result<Page, &'static str> {
        let page = Page::decode_any_order(payload)?;
        if page.ascends() {
            Ok(page)
        } else {
            Err("the keys of a page are out of order")
        }
    }

    /// As [`Page::decode`], but the keys may be in any order: for those who only look at all entries.
    pub(crate) fn decode_any_order(payload: &[u8]) -> Result<Page, &'static str> {
        Page::restore(payload).ok_or("a page is malformed")
    }

    /// Decodes a stored page that passed [`Page::decode`] before.
    pub(crate) fn decode_checked(payload: &[u8]) -> Option<Page> {
        Page::restore(payload)
    }

    /// Whether each key is above the one before it.
    fn ascends(&self) -> bool {
        (1..self.count).all(|index| {
            let order = self.head(index - 1).cmp(&self.head(index));
            order
                .then_with(|| self.key(index - 1).cmp(self.key(index)))
                .is_lt()
        })
    }

    fn restore(payload: &[u8]) -> Option<Page> {
        Stored::read(payload)?.restore()
    }

    /// Finds one entry of a stored page that passed [`Page::decode`] before. `None` if it is malformed.
    pub(crate) fn find_checked(payload: &[u8], key: &[u8]) -> Option<FoundEntry> {
        let stored = Stored::read(payload)?;
        Some(FoundEntry {
            page_bytes: stored.page_bytes()?,
            entry: stored.find(key)?,
        })
    }

    /// Offset of an entry, length of its key, kind.
    fn place(&self, index: usize) -> (usize, usize, u8) {
        let mut place = [0; PLACE_BYTES];
        let at = HEAD_BYTES * self.count + PLACE_BYTES * index;
        place.copy_from_slice(&self.bytes[at..][..PLACE_BYTES]);
        let place = u64::from_le_bytes(place);
        (
            place as u32 as usize,
            ((place >> 32) as u32 & KEY_LEN_MASK) as usize,
            (place >> KIND_AT) as u8,
        )
    }

    /// Bytes of memory that the page takes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// The key of the last entry.
    pub(crate) fn last_key(&self) -> &[u8] {
        self.key(self.count - 1)
    }

    /// Number of entries, at least one.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The key of an entry.
    pub(crate) fn key(&self, index: usize) -> &[u8] {
        let (at, key_len, _) = self.place(index);
        &self.bytes[at..at + key_len]
    }

    /// Kind and value of an entry.
    pub(crate) fn message(&self, index: usize) -> (Kind, &[u8]) {
        let (at, key_len, kind) = self.place(index);
        let (end, ..) = self.place(index + 1);
        let kind = Kind::from_byte(kind).expect("the kinds were checked when the page was decoded");
        (kind, &self.bytes[at + key_len..end])
    }

    fn head(&self, index: usize) -> u64 {
        let mut head = [0; HEAD_BYTES];
        head.copy_from_slice(&self.bytes[HEAD_BYTES * index..][..HEAD_BYTES]);
        u64::from_ne_bytes(head)
    }

    /// Index of the first entry at or after `key` (the count if there is none), and whether it is that key.
    pub(crate) fn search(&self, key: &[u8]) -> (usize, bool) {
        let shared = &self.key(0)[..self.prefix_len];
        let Some(suffix) = key.strip_prefix(shared) else {
            return if key < shared {
                (0, false)
            } else {
                (self.count, false)
            };
        };
        let target = head(suffix);
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = (low + high) / 2;
            let order = (self.head(middle).cmp(&target)).then_with(|| self.key(middle).cmp(key));
            match order {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return (middle, true),
                Ordering::Greater => high = middle,
            }
        }
        (low, false)
    }
}

/// The first eight bytes, padded with zeros: of two keys with different heads the one with the lower head is lower.
fn head(suffix: &[u8]) -> u64 {
    match suffix.first_chunk() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; HEAD_BYTES];
            bytes[..suffix.len()].copy_from_slice(suffix);
            u64::from_be_bytes(bytes)
        }
    }
}

/// Collects the entries of a page, in key order.
#[derive(Default)]
pub(crate) struct PageBuilder {
    keys: Vec<u8>,
    values: Vec<u8>,
    entries: Vec<BuilderEntry>,
}

#[derive(Clone, Copy)]
struct BuilderEntry {
    kind: Kind,
    key_len: u32,
    value_len: u32,
}

impl PageBuilder {
    pub(crate) fn add(&mut self, key: &[u8], kind: Kind, value: &[u8]) {
        self.keys.extend_from_slice(key);
        self.values.extend_from_slice(value);
        self.entries.push(BuilderEntry {
            kind,
            key_len: key.len() as u32,
            value_len: value.len() as u32,
        });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of memory that the builder takes.
    pub(crate) fn capacity(&self) -> usize {
        let entries = self.entries.capacity() * size_of::<BuilderEntry>();
        self.keys.capacity() + self.values.capacity() + entries
    }

    /// The size in memory of the page with one more entry of `more` bytes of key and value, in bytes.
    pub(crate) fn bytes_with(&self, more: usize) -> usize {
        let entries = self.entries.len() + 1;
        self.keys.len()
            + self.values.len()
            + more
            + entries * (HEAD_BYTES + PLACE_BYTES)
            + PLACE_BYTES
    }

    pub(crate) fn first_key(&self) -> &[u8] {
        let end = self
            .entries
            .first()
            .map_or(0, |entry| entry.key_len as usize);
        &self.keys[..end]
    }

    pub(crate) fn last_key(&self) -> &[u8] {
        let len = self
            .entries
            .last()
            .map_or(0, |entry| entry.key_len as usize);
        &self.keys[self.keys.len() - len..]
    }

    fn values(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.values.as_slice();
        self.entries.iter().map(move |entry| {
            let (value, after) = rest.split_at(entry.value_len as usize);
            rest = after;
            value
        })
    }

    /// The template of most of the values, if it saves enough.
    fn template(&self) -> Option<Template> {
        let len = template::common_len(self.entries.iter().map(|entry| entry.value_len))?;
        Template::of(len, self.values().filter(|value| value.len() == len))
    }

    fn keys(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let mut rest = self.keys.as_slice();
        self.entries.iter().map(move |entry| {
            let (key, after) = rest.split_at(entry.key_len as usize);
            rest = after;
            key
        })
    }

    /// The template of the ends of the keys, if it saves enough. None of it is in the prefix.
    fn key_template(&self, prefix_len: usize) -> Option<Template> {
        let lens = self.entries.iter().map(|entry| entry.key_len as usize);
        Template::of_key_ends(lens.min()? - prefix_len, self.keys())
    }

    /// Length of the prefix that all keys share, as far as it is stored once.
    fn prefix_len(&self) -> usize {
        let ends = self.first_key().iter().zip(self.last_key());
        let ends = ends.take(SHORT_KEY_BYTES_MAX);
        ends.take_while(|(a, b)| a == b).count()
    }

    /// The page in memory, as it is when it is read again. `None` for one that would not be read.
    pub(crate) fn page(&self) -> Option<Page> {
        let (count, prefix_len) = (self.entries.len(), self.prefix_len());
        let heads = HEAD_BYTES * count;
        let places = heads + PLACE_BYTES * (count + 1);
        let size = places + self.keys.len() + self.values.len();
        if count == 0 || size > BYTES_MAX {
            return None;
        }
        let mut buffer = PageBytes::with_capacity(size);
        let bytes = buffer.bytes_mut();
        bytes.resize(places, 0);
        let entries = self.entries.iter().zip(self.keys().zip(self.values()));
        for (index, (entry, (key, value))) in entries.enumerate() {
            let kind = u64::from(entry.kind.to_byte());
            let place = bytes.len() as u64 | u64::from(entry.key_len) << 32 | kind << KIND_AT;
            bytes[heads + PLACE_BYTES * index..][..PLACE_BYTES]
                .copy_from_slice(&place.to_le_bytes());
            let head = head(&key[prefix_len..]).to_ne_bytes();
            bytes[HEAD_BYTES * index..][..HEAD_BYTES].copy_from_slice(&head);
            bytes.extend_from_slice(key);
            bytes.extend_from_slice(value);
        }
        bytes[heads + PLACE_BYTES * count..][..PLACE_BYTES]
            .copy_from_slice(&(size as u64).to_le_bytes());
        Some(Page {
            bytes: buffer,
            count,
            prefix_len,
        })
    }

    /// Replaces `out` with the page and empties the builder.
    pub(crate) fn build(&mut self, out: &mut Vec<u8>) {
        let (first, prefix_len) = (self.first_key(), self.prefix_len());
        let (template, key_template) = (self.template(), self.key_template(prefix_len));
        let mark = template.as_ref().map_or(0, |_| HAS_TEMPLATE)
            | key_template.as_ref().map_or(0, |_| HAS_KEY_TEMPLATE);
        out.clear();
        out.put_u32(self.entries.len() as u32 | mark);
        out.put_key(&first[..prefix_len]);
        let entries = self.entries.iter();
        Column::write(
            out,
            entries.clone().map(|entry| u32::from(entry.kind.to_byte())),
        );
        Column::write(
            out,
            entries
                .clone()
                .map(|entry| entry.key_len - prefix_len as u32),
        );
        Column::write(out, entries.map(|entry| entry.value_len));
        for template in template.iter().chain(&key_template) {
            template.write(out);
        }
        match key_template {
            None => {
                for key in self.keys() {
                    out.extend_from_slice(&key[prefix_len..]);
                }
            }
            Some(template) => {
                let mut at = out.len();
                out.resize(at + self.keys.len() + template.room(), 0);
                let mut end = 0;
                for entry in &self.entries {
                    let start = end + prefix_len;
                    end += entry.key_len as usize;
                    let split = end - template.len();
                    out[at..at + split - start].copy_from_slice(&self.keys[start..split]);
                    at = template.take_own(&self.keys, split, out, at + split - start);
                }
                out.truncate(at);
            }
        }
        match template {
            None => out.extend_from_slice(&self.values),
            Some(template) => {
                let mut at = out.len();
                out.resize(at + self.values.len() + template.room(), 0);
                let mut read = 0;
                for entry in &self.entries {
                    let len = entry.value_len as usize;
                    if len == template.len() {
                        at = template.take_own(&self.values, read, out, at);
                    } else {
                        out[at..at + len].copy_from_slice(&self.values[read..read + len]);
                        at += len;
                    }
                    read += len;
                }
                out.truncate(at);
            }
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
            builder.add(key.as_bytes(), kind, value(key).as_bytes());
        }
        assert_eq!(builder.first_key(), keys[0].as_bytes());
        assert_eq!(builder.last_key(), keys[keys.len() - 1].as_bytes());
        let mut out = vec![1];
        builder.build(&mut out);
        assert!(builder.is_empty());
        out
    }

    fn value(key: &str) -> String {
        match key.len() {
            3 => format!("a record with the key {key}, and no more"),
            8 => key.repeat(100),
            9 => key.repeat(10_000),
            _ => format!("value of {key}"),
        }
    }

    /// Keys that end with an identifier.
    const IDENTIFIED: [&str; 16] = [
        "x-1-the-id",
        "x2-2-the-id",
        "xa-3-the-id",
        "xb-1-the-id",
        "xc-5-the-id",
        "xd-5-the-id",
        "xe-5-the-id",
        "xf-6-the-id",
        "xg-7-the-id",
        "xh-5-the-id",
        "xi-5-the-id",
        "xj-5-the-id",
        "xk-5-the-id",
        "xl-5-the-id",
        "xm-5-the-id",
        "xn-5-the-id",
    ];

    #[test]
    fn finds_its_entries() {
        for keys in [
            &["only"][..],
            &["", "a", "ab"],
            &["aa", "ab", "ac"],
            &["http://a", "http://ab", "http://b"],
            &["same", "same1", "same12", "same2"],
            &["aa1", "aa2", "aa3", "aa44", "aa5", "aa6"],
            &IDENTIFIED,
        ] {
            let stored = page(keys);
            let page = Page::decode(&stored).unwrap();
            assert_eq!(page.count(), keys.len());
            for (index, expected) in keys.iter().enumerate() {
                assert_eq!(page.search(expected.as_bytes()), (index, true));
                assert_eq!(page.key(index), expected.as_bytes());
                let (kind, found) = page.message(index);
                assert_eq!(kind, Kind::from_byte((index % 3) as u8).unwrap());
                assert_eq!(found, value(expected).as_bytes());
                let above = format!("{expected}\0");
                assert_eq!(page.search(above.as_bytes()), (index + 1, false));
            }
            assert_eq!(page.search(b"zzz"), (keys.len(), false));
            assert_eq!(page.search(b""), (0, keys[0].is_empty()));
            let others = [b"zzz".to_vec(), Vec::new(), b"same".to_vec()];
            let above = keys.iter().map(|key| format!("{key}\0").into_bytes());
            let keys = keys.iter().map(|key| key.as_bytes().to_vec());
            for key in keys.chain(above).chain(others) {
                find(&stored, &page, &key);
            }
        }
    }

    /// A key is found in a stored page as it is in the page in memory.
    fn find(stored: &[u8], page: &Page, key: &[u8]) {
        let found = Page::find_checked(stored, key).unwrap();
        assert!(found.page_bytes <= page.bytes());
        match (page.search(key), found.entry) {
            ((_, false), None) => {}
            ((index, true), Some(entry)) => {
                assert_eq!((entry.count(), entry.search(key)), (1, (0, true)));
                assert_eq!(entry.key(0), key);
                assert_eq!(entry.message(0), page.message(index));
            }
            (at, entry) => panic!("{at:?}, {}", entry.is_some()),
        }
    }

    #[test]
    fn damaged_pages_are_refused_or_harmless() {
        damage(page(&["alpha", "alpine", "beta"]));
        let with_template = page(&["aa1", "aa2", "aa3", "aa44", "aa5"]);
        assert_eq!(with_template[3], 0x80);
        damage(with_template);
        let with_key_template = page(&IDENTIFIED);
        assert_eq!(with_key_template[3] & 0x40, 0x40);
        damage(with_key_template);
    }

    /// Keys and values of any kind, as they are after a page was stored and read.
    #[test]
    fn pages_of_random_keys_are_restored() {
        let mut state = 88_172_645_463_325_252_u64;
        let mut below = |limit: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % limit
        };
        let (mut builder, mut stored, mut templates) = (PageBuilder::default(), Vec::new(), 0);
        for _ in 0..400 {
            let (count, letters) = (1 + below(60), 1 + below(26));
            let (shared, varied, ending) = (below(6), below(20), below(90));
            let varies_in_ending = below(4);
            let mut entries = std::collections::BTreeMap::new();
            for number in 0..count {
                let mut key = vec![b'p'; shared as usize];
                key.extend((0..below(varied + 1)).map(|_| b'a' + below(letters) as u8));
                let ending = (0..ending).map(|at| {
                    if at < varies_in_ending {
                        below(256) as u8
                    } else {
                        b'0' + (at % 10) as u8
                    }
                });
                key.extend(ending);
                let value = vec![number as u8; below(40) as usize];
                entries.insert(key, value);
            }
            for (key, value) in &entries {
                builder.add(key, Kind::Put, value);
            }
            let built = builder.page().unwrap();
            builder.build(&mut stored);
            templates += u32::from(stored[3] & 0x40 != 0);
            let page = Page::decode(&stored).unwrap();
            let found = (0..page.count()).map(|index| (page.key(index), page.message(index).1));
            let expected = entries.iter().map(|(key, value)| (&**key, &**value));
            assert!(found.eq(expected));
            for key in entries.keys() {
                find(&stored, &page, key);
                find(&stored, &page, &key[..key.len() / 2]);
            }
            // The page for the cache is the same, without reading it.
            assert_eq!(built.bytes[..], page.bytes[..]);
            assert_eq!(
                (built.count, built.prefix_len),
                (page.count, page.prefix_len)
            );
        }
        assert!(templates > 100, "{templates}");
    }

    #[test]
    fn a_page_whose_keys_do_not_ascend_is_damaged() {
        for (good, from, to) in [
            (page(&["alpha", "alpine", "beta"]), b"pine", b"paaa"),
            (page(&["abcdefghijkl1", "abcdefghijkl2"]), b"2val", b"1val"),
        ] {
            let at = good.windows(4).position(|part| part == from).unwrap();
            let mut bad = good.clone();
            bad[at..at + 4].copy_from_slice(to);
            assert!(Page::decode(&good).is_ok());
            let what = Page::decode(&bad).err();
            assert_eq!(what, Some("the keys of a page are out of order"));
            assert!(Page::decode_any_order(&bad).is_ok());
        }
    }

    fn damage(good: Vec<u8>) {
        for cut in 0..good.len() {
            assert!(Page::decode(&good[..cut]).is_err());
            assert!(Page::find_checked(&good[..cut], b"alpine").is_none());
        }
        for at in 0..good.len() {
            for flip in [0xff, 1, 0x80] {
                let mut bad = good.clone();
                bad[at] ^= flip;
                if let Ok(page) = Page::decode(&bad) {
                    for index in 0..page.count() {
                        page.key(index);
                        page.message(index);
                    }
                    page.search(b"alpine");
                    for index in 0..page.count() {
                        find(&bad, &page, page.key(index));
                    }
                }
            }
        }
    }
}
