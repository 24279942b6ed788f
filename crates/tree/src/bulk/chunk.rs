//! Unsorted entries in memory.

use std::cmp::Ordering;

/// Size of a block in bytes. A larger entry gets a block of its own.
const BLOCK_BYTES: usize = 64 << 10;
/// Bytes before an entry's key: the lengths of the key (4) and of the value (4).
const HEADER_BYTES: usize = 8;

/// The location of an entry. Ordered by the time it was added.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct EntryRef {
    block: u32,
    at: u32,
}

/// Entries of one tree, sorted only when they are taken out.
#[derive(Default)]
pub(super) struct Chunk {
    blocks: Vec<Vec<u8>>,
    entries: Vec<EntryRef>,
    block_bytes: usize,
    /// Whether each key so far was above the one before.
    in_order: bool,
}

impl Chunk {
    pub(super) fn new() -> Chunk {
        Chunk {
            in_order: true,
            ..Chunk::default()
        }
    }

    /// Bytes of memory that this takes.
    pub(super) fn bytes(&self) -> usize {
        let sorted = self.entries.len() * size_of::<(u64, EntryRef)>();
        self.block_bytes + self.entries.capacity() * size_of::<EntryRef>() + sorted
    }

    /// Whether the entries were added in ascending order, without equal keys.
    pub(super) fn is_in_order(&self) -> bool {
        self.in_order
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The key that was added last.
    pub(super) fn last_key(&self) -> &[u8] {
        self.entries.last().map_or(&[], |last| self.key(*last))
    }

    /// Adds an entry. `spare` has blocks for reuse.
    pub(super) fn add(&mut self, key: &[u8], value: &[u8], spare: &mut Vec<Vec<u8>>) {
        if self.in_order
            && let Some(last) = self.entries.last()
        {
            self.in_order = self.key(*last) < key;
        }
        let len = HEADER_BYTES + key.len() + value.len();
        let has_room = |block: &Vec<u8>| block.capacity() - block.len() >= len;
        if !self.blocks.last().is_some_and(has_room) {
            let block = match spare.pop() {
                Some(block) if len <= BLOCK_BYTES => block,
                _ => Vec::with_capacity(BLOCK_BYTES.max(len)),
            };
            self.block_bytes += block.capacity();
            self.blocks.push(block);
        }
        let index = self.blocks.len() - 1;
        let block = &mut self.blocks[index];
        self.entries.push(EntryRef {
            block: index as u32,
            at: block.len() as u32,
        });
        for len in [key.len(), value.len()] {
            block.extend_from_slice(&(len as u32).to_le_bytes());
        }
        block.extend_from_slice(key);
        block.extend_from_slice(value);
    }

    fn entry(&self, entry_ref: EntryRef) -> (&[u8], &[u8]) {
        let bytes = &self.blocks[entry_ref.block as usize][entry_ref.at as usize..];
        let (header, bytes) = bytes.split_at(HEADER_BYTES);
        let len = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
                as usize
        };
        let (key_len, value_len) = (len(0), len(4));
        let (key, bytes) = bytes.split_at(key_len);
        (key, &bytes[..value_len])
    }

    fn key(&self, entry_ref: EntryRef) -> &[u8] {
        self.entry(entry_ref).0
    }

    /// Calls `visit` for each entry in key order, entries with equal keys in the order in which they were added, and
    /// empties the chunk. The last argument is whether another entry with the same key follows.
    pub(super) fn drain<E>(
        &mut self,
        spare: &mut Vec<Vec<u8>>,
        mut visit: impl FnMut(&[u8], &[u8], bool) -> Result<(), E>,
    ) -> Result<(), E> {
        let sorted = if self.in_order {
            None
        } else {
            Some(self.sorted())
        };
        let entry_ref = |index: usize| match &sorted {
            Some(sorted) => sorted.get(index).map(|(_, entry_ref)| *entry_ref),
            None => self.entries.get(index).copied(),
        };
        let mut next = entry_ref(0).map(|entry_ref| self.entry(entry_ref));
        let mut index = 0;
        while let Some((key, value)) = next {
            index += 1;
            next = entry_ref(index).map(|entry_ref| self.entry(entry_ref));
            visit(key, value, next.is_some_and(|(next, _)| next == key))?;
        }
        self.entries.clear();
        for mut block in self.blocks.drain(..) {
            if block.capacity() == BLOCK_BYTES {
                block.clear();
                spare.push(block);
            }
        }
        (self.block_bytes, self.in_order) = (0, true);
        Ok(())
    }

    /// The entries in key order, each with the eight bytes after the prefix that all keys share. Those decide most
    /// comparisons without an access to the key.
    fn sorted(&self) -> Vec<(u64, EntryRef)> {
        let shared = self.shared_prefix();
        let head = |entry_ref: EntryRef| {
            let rest = &self.key(entry_ref)[shared..];
            let mut head = [0; 8];
            let len = rest.len().min(8);
            head[..len].copy_from_slice(&rest[..len]);
            u64::from_be_bytes(head)
        };
        let mut sorted: Vec<(u64, EntryRef)> = self
            .entries
            .iter()
            .map(|&entry_ref| (head(entry_ref), entry_ref))
            .collect();
        sorted.sort_unstable_by(|(head_a, a), (head_b, b)| match head_a.cmp(head_b) {
            Ordering::Equal => self.key(*a).cmp(self.key(*b)).then(a.cmp(b)),
            order => order,
        });
        sorted
    }

    fn shared_prefix(&self) -> usize {
        let Some(first) = self.entries.first() else {
            return 0;
        };
        let first = self.key(*first);
        let mut shared = first.len();
        for entry_ref in &self.entries {
            let key = self.key(*entry_ref);
            if !key.starts_with(&first[..shared]) {
                let same = first.iter().zip(key).take_while(|(a, b)| a == b);
                shared = same.count();
            }
        }
        shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drained(entries: &[(&[u8], &[u8])], in_order: bool) -> Vec<(Vec<u8>, Vec<u8>, bool)> {
        let (mut chunk, mut spare, mut found) = (Chunk::new(), Vec::new(), Vec::new());
        for (key, value) in entries {
            chunk.add(key, value, &mut spare);
        }
        assert_eq!(chunk.is_in_order(), in_order);
        let visit = |key: &[u8], value: &[u8], again| -> Result<(), ()> {
            found.push((key.to_vec(), value.to_vec(), again));
            Ok(())
        };
        chunk.drain(&mut spare, visit).unwrap();
        assert!(chunk.is_empty() && chunk.is_in_order());
        found
    }

    #[test]
    fn sorts_by_key_and_then_by_time() {
        let cases: [&[(&[u8], &[u8])]; 5] = [
            &[],
            &[(b"", b"1"), (b"a", b"2"), (b"b", b"3")],
            &[(b"shared.z", b"1"), (b"shared.", b"2"), (b"shared.a", b"3")],
            &[
                (b"same", b"1"),
                (b"other", b""),
                (b"same", b"2"),
                (b"same", b"3"),
            ],
            &[
                (b"eight by", b"1"),
                (b"eight byt", b"2"),
                (b"eight by\0", b"3"),
                (b"e", b"4"),
            ],
        ];
        for entries in cases {
            let mut expected: Vec<_> = entries.to_vec();
            expected.sort_by_key(|(key, _)| *key);
            let in_order = entries.windows(2).all(|pair| pair[0].0 < pair[1].0);
            let found = drained(entries, in_order);
            let plain: Vec<_> = found
                .iter()
                .map(|(key, value, _)| (&key[..], &value[..]))
                .collect();
            assert_eq!(plain, expected);
            for (index, (key, _, again)) in found.iter().enumerate() {
                assert_eq!(
                    *again,
                    found.get(index + 1).is_some_and(|next| next.0 == *key)
                );
            }
        }
    }

    #[test]
    fn takes_entries_larger_than_a_block() {
        let large = vec![7; BLOCK_BYTES + 1];
        let found = drained(&[(b"b", &large), (b"a", b"small"), (b"c", &large)], false);
        assert_eq!(found.len(), 3);
        assert_eq!((&found[0].1[..], &found[1].1), (&b"small"[..], &large));
    }
}
