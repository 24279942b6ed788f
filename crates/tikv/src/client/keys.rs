//! The layout of keys in the cluster.
//!
//! | after the prefix of the deployment | value |
//! | --- | --- |
//! | `c`, tree, key, writer | what one writer has added to a counter |
//! | `m`, `d`, tree | a dropped tree whose keys are still there |
//! | `m`, `i` | the number of the last instance of a server |
//! | `m`, `n` | the first tree id that is not reserved |
//! | `m`, `s`, instance | how many slots an instance has reserved, and when it was fenced |
//! | `m`, `t`, tree | a tree |
//! | `p`, tree, timestamp, place, number | a part of a large value; under the last number, a byte and the key of the value |
//! | `r`, writer | the last commit of a writer |
//! | `t`, tree, key | a value; of a key that is too long for that, see `long_keys.rs` |
//!
//! Numbers are big-endian; a tree and an instance have 4 bytes, a writer 8.

use std::borrow::Cow;

use frond_kv::TreeId;

use crate::client::long_keys::LongKeys;

/// A key of a tree that takes more bytes with the prefix is long. TiKV takes keys of 8 KiB; the rest is left for the stored form of
/// long keys. Deployments depend on it: with another number they would not find their keys.
const PLAIN_KEY_BYTES_MAX: usize = 7 << 10;

/// Makes and reads keys.
#[derive(Clone)]
pub(crate) struct Keys {
    prefix: Vec<u8>,
    long: LongKeys,
}

/// Identifies who writes: the instance of a server, and one of its slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Writer {
    pub(crate) instance: u32,
    pub(crate) slot: u32,
}

impl Writer {
    pub(crate) const BYTES: usize = 8;

    pub(crate) fn to_bytes(self) -> [u8; Writer::BYTES] {
        (u64::from(self.instance) << 32 | u64::from(self.slot)).to_be_bytes()
    }
}

impl Keys {
    pub(crate) fn new(prefix: &[u8]) -> Keys {
        let mut keys = Keys {
            prefix: prefix.to_vec(),
            long: LongKeys::new(0),
        };
        let head_bytes = PLAIN_KEY_BYTES_MAX.saturating_sub(keys.value_prefix_len());
        keys.long = LongKeys::new(head_bytes);
        keys
    }

    /// The stored forms of keys within trees.
    #[inline]
    pub(crate) fn long(&self) -> LongKeys {
        self.long
    }

    fn make(&self, parts: &[&[u8]]) -> Vec<u8> {
        let len = self.prefix.len() + parts.iter().map(|part| part.len()).sum::<usize>();
        let mut key = Vec::with_capacity(len);
        key.extend_from_slice(&self.prefix);
        parts.iter().for_each(|part| key.extend_from_slice(part));
        key
    }

    /// The key of a value.
    pub(crate) fn value(&self, tree: TreeId, key: &[u8]) -> Vec<u8> {
        self.stored_value(tree, &self.long.stored(key))
    }

    /// The same, of the stored form of the key within the tree.
    pub(crate) fn stored_value(&self, tree: TreeId, stored: &[u8]) -> Vec<u8> {
        self.make(&[b"t", &tree.0.to_be_bytes(), stored])
    }

    /// All keys of a tree: from the first one on, below the second one.
    pub(crate) fn tree(&self, tree: TreeId) -> (Vec<u8>, Vec<u8>) {
        (self.value(tree, &[]), self.end_of(b't', tree))
    }

    /// The keys of a tree between two bounds. Of the long keys with the same head as a bound there may be others, too.
    pub(crate) fn range(
        &self,
        tree: TreeId,
        lower: &[u8],
        upper: Option<&[u8]>,
    ) -> (Vec<u8>, Vec<u8>) {
        let stored = |bound: Cow<'_, [u8]>| self.stored_value(tree, &bound);
        let upper = upper.map(|upper| stored(self.long.stored_upper(upper)));
        (
            stored(self.long.stored_lower(lower)),
            upper.unwrap_or_else(|| self.end_of(b't', tree)),
        )
    }

    fn end_of(&self, kind: u8, tree: TreeId) -> Vec<u8> {
        match tree.0.checked_add(1) {
            Some(next) => self.make(&[&[kind], &next.to_be_bytes()]),
            None => self.make(&[&[kind + 1]]),
        }
    }

    /// The tree and the stored form of the key within it, of the key of a value.
    pub(crate) fn split<'a>(&self, key: &'a [u8]) -> Option<(TreeId, &'a [u8])> {
        let rest = key
            .strip_prefix(self.prefix.as_slice())?
            .strip_prefix(b"t")?;
        let (tree, key) = rest.split_first_chunk()?;
        Some((TreeId(u32::from_be_bytes(*tree)), key))
    }

    /// Whether the stored key of a value is that of a long key.
    #[inline]
    pub(crate) fn is_long(&self, stored: &[u8]) -> bool {
        stored.len() > self.value_prefix_len() + self.long.head_bytes()
    }

    /// Bytes before the key within a tree.
    pub(crate) fn value_prefix_len(&self) -> usize {
        self.prefix.len() + 5
    }

    /// The key of the additions of one writer to a counter.
    pub(crate) fn counter(&self, tree: TreeId, key: &[u8], writer: Writer) -> Vec<u8> {
        self.make(&[b"c", &tree.0.to_be_bytes(), key, &writer.to_bytes()])
    }

    /// The keys of the additions of all writers to one counter.
    pub(crate) fn counter_range(&self, tree: TreeId, key: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let from = self.make(&[b"c", &tree.0.to_be_bytes(), key]);
        let mut to = from.clone();
        to.extend_from_slice(&[0xff; Writer::BYTES + 1]);
        (from, to)
    }

    /// The keys of the additions of all writers to all counters of a tree.
    pub(crate) fn all_counters(&self, tree: TreeId) -> (Vec<u8>, Vec<u8>) {
        (
            self.make(&[b"c", &tree.0.to_be_bytes()]),
            self.end_of(b'c', tree),
        )
    }

    /// The key within the tree, and the writer, of the key of a counter.
    pub(crate) fn split_counter<'a>(&self, key: &'a [u8]) -> Option<(&'a [u8], Writer)> {
        let rest = key.get(self.prefix.len() + 5..)?;
        let (key, writer) = rest.split_last_chunk::<{ Writer::BYTES }>()?;
        let writer = u64::from_be_bytes(*writer);
        let writer = Writer {
            instance: (writer >> 32) as u32,
            slot: writer as u32,
        };
        Some((key, writer))
    }

    /// The record of a writer's last commit.
    pub(crate) fn record(&self, writer: Writer) -> Vec<u8> {
        self.make(&[b"r", &writer.to_bytes()])
    }

    /// A part of a large value. `place` distinguishes the large values of one commit.
    pub(crate) fn part(&self, tree: TreeId, at: u64, place: u32, number: u16) -> Vec<u8> {
        self.make(&[
            b"p",
            &tree.0.to_be_bytes(),
            &at.to_be_bytes(),
            &place.to_be_bytes(),
            &number.to_be_bytes(),
        ])
    }

    /// The key of the value that the parts of a large value belong to.
    pub(crate) fn owner(&self, tree: TreeId, at: u64, place: u32) -> Vec<u8> {
        self.part(tree, at, place, u16::MAX)
    }

    /// The tree, the timestamp, the place and the number of a part, of its key.
    pub(crate) fn split_part(&self, key: &[u8]) -> Option<(TreeId, u64, u32, u16)> {
        let rest = key.get(self.prefix.len() + 1..)?;
        let (tree, rest) = rest.split_first_chunk()?;
        let (at, rest) = rest.split_first_chunk()?;
        let (place, number) = rest.split_first_chunk()?;
        Some((
            TreeId(u32::from_be_bytes(*tree)),
            u64::from_be_bytes(*at),
            u32::from_be_bytes(*place),
            u16::from_be_bytes(number.try_into().ok()?),
        ))
    }

    /// The parts of all large values of a tree.
    pub(crate) fn parts(&self, tree: TreeId) -> (Vec<u8>, Vec<u8>) {
        (
            self.make(&[b"p", &tree.0.to_be_bytes()]),
            self.end_of(b'p', tree),
        )
    }

    /// The parts of all large values.
    pub(crate) fn all_parts(&self) -> (Vec<u8>, Vec<u8>) {
        (self.make(&[b"p"]), self.make(&[b"q"]))
    }

    pub(crate) fn tree_entry(&self, tree: TreeId) -> Vec<u8> {
        self.make(&[b"mt", &tree.0.to_be_bytes()])
    }

    pub(crate) fn tree_entries(&self) -> (Vec<u8>, Vec<u8>) {
        (self.make(&[b"mt"]), self.make(&[b"mu"]))
    }

    pub(crate) fn dropped_entry(&self, tree: TreeId) -> Vec<u8> {
        self.make(&[b"md", &tree.0.to_be_bytes()])
    }

    pub(crate) fn dropped_entries(&self) -> (Vec<u8>, Vec<u8>) {
        (self.make(&[b"md"]), self.make(&[b"me"]))
    }

    pub(crate) fn instances(&self) -> (Vec<u8>, Vec<u8>) {
        (self.make(&[b"ms"]), self.make(&[b"mt"]))
    }

    /// The prefix in hexadecimal digits.
    pub(crate) fn prefix_as_text(&self) -> Vec<u8> {
        let digits = self.prefix.iter().map(|byte| format!("{byte:02x}"));
        digits.collect::<String>().into_bytes()
    }

    /// The tree of one of the entries above, or the instance.
    pub(crate) fn split_entry(&self, key: &[u8]) -> Option<TreeId> {
        let tree = key.get(self.prefix.len() + 2..)?.try_into().ok()?;
        Some(TreeId(u32::from_be_bytes(tree)))
    }

    /// The key of the record of an instance of a server.
    pub(crate) fn instance(&self, instance: u32) -> Vec<u8> {
        self.make(&[b"ms", &instance.to_be_bytes()])
    }

    pub(crate) fn next_tree(&self) -> Vec<u8> {
        self.make(&[b"mn"])
    }

    pub(crate) fn last_instance(&self) -> Vec<u8> {
        self.make(&[b"mi"])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_they_were_made() {
        let keys = Keys::new(b"x/");
        let writer = Writer {
            instance: 7,
            slot: 300,
        };
        let key = keys.value(TreeId(5), b"abc");
        assert_eq!(keys.split(&key), Some((TreeId(5), &b"abc"[..])));
        let (from, to) = keys.tree(TreeId(5));
        assert!(from <= key && key < to && to == keys.value(TreeId(6), b""));
        let key = keys.counter(TreeId(0), b"count", writer);
        assert_eq!(keys.split_counter(&key), Some((&b"count"[..], writer)));
        let (from, to) = keys.counter_range(TreeId(0), b"count");
        assert!(from <= key && key < to);
        let (from, to) = keys.all_counters(TreeId(0));
        assert!(from <= key && key < to);
        let key = keys.part(TreeId(9), 1 << 50, 2, 3);
        assert_eq!(keys.split(&key), None);
        assert_eq!(keys.split_part(&key), Some((TreeId(9), 1 << 50, 2, 3)));
        let owner = keys.owner(TreeId(9), 1 << 50, 2);
        assert!(key < owner && owner < keys.parts(TreeId(9)).1);
        assert!(keys.all_parts().0 < key && owner < keys.all_parts().1);
        assert_eq!(
            keys.split_entry(&keys.tree_entry(TreeId(8))),
            Some(TreeId(8))
        );
        let (_, end) = keys.tree(TreeId(u32::MAX));
        assert!(keys.value(TreeId(u32::MAX), &[0xff; 20]) < end);
        assert_eq!(keys.range(TreeId(5), b"", None), keys.tree(TreeId(5)));
    }

    #[test]
    fn keys_of_every_length_fit_into_the_cluster() {
        let keys = Keys::new(b"x/");
        let longest_plain = vec![b'k'; (7 << 10) - 7];
        let plain = keys.value(TreeId(5), &longest_plain);
        assert_eq!(plain.len(), 7 << 10);
        assert_eq!(keys.split(&plain), Some((TreeId(5), &longest_plain[..])));
        let long = keys.value(TreeId(5), &vec![b'k'; 1 << 20]);
        assert!(long.len() <= 8 << 10 && long > plain);
        let (from, to) = keys.range(TreeId(5), &longest_plain, Some(&vec![b'k'; 1 << 20]));
        assert!(from == plain && long < to);
    }
}
