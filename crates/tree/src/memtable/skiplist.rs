//! A skip list of versioned entries in an arena: inserts from many threads, reads without locks.
//!
//! The structure is that of W. Pugh, "Skip Lists: A Probabilistic Alternative to Balanced Trees"
//! (CACM 1990), with compare-and-swap links. Entries are never removed; the arena frees them all.
//! One of the crate's two modules with `unsafe`.
//!
//! An entry lies in the arena as: sequence number (8 bytes), value length (4), key length (2),
//! kind (1), height (1), `height` links of 4 bytes, key, value. Order: key ascending, then
//! sequence number descending, so that the newest version of a key comes first.

use std::cmp::Ordering as Order;
use std::sync::atomic::Ordering;

use super::arena::Arena;
use crate::Kind;

/// Most levels of the list.
pub(super) const HEIGHT_MAX: usize = 14;
const HEADER_BYTES: u32 = 16;

/// The offset of an entry in the arena; 0 stands for none.
pub(super) type Link = u32;

/// Where an insert went, remembered as the start of the next search.
pub(super) type Splice = [Link; HEIGHT_MAX];

/// The most bytes that an entry takes in the arena.
pub(super) fn entry_bytes_max(key_len: usize, value_len: usize) -> usize {
    HEADER_BYTES as usize + 4 * HEIGHT_MAX + key_len + value_len + 8
}

/// One list: the links of its head are an entry of full height without a key.
#[derive(Clone, Copy)]
pub(super) struct List {
    head: Link,
}

/// A view of one entry.
pub(crate) struct Entry<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) sequence: u64,
    pub(crate) kind: Kind,
    pub(crate) value: &'a [u8],
}

impl List {
    /// An empty list, or `None` when the arena is full.
    pub(super) fn new(arena: &Arena) -> Option<List> {
        let head = arena.allocate(HEADER_BYTES as usize + 4 * HEIGHT_MAX)?;
        for level in 0..HEIGHT_MAX as u32 {
            // SAFETY: a word behind the header of the piece just allocated, only used as a link.
            unsafe { arena.word(head + HEADER_BYTES + 4 * level) }.store(0, Ordering::Relaxed);
        }
        Some(List { head })
    }

    /// A splice that starts every search at the head.
    pub(super) fn splice(&self) -> Splice {
        [self.head; HEIGHT_MAX]
    }

    fn link(&self, arena: &Arena, from: Link, level: usize) -> Link {
        // SAFETY: `from` is the head or a linked entry, `level` is below its height, and the
        // words behind the header are only used as atomic links.
        unsafe { arena.word(from + HEADER_BYTES + 4 * level as u32) }.load(Ordering::Acquire)
    }

    /// The entry at a link other than 0 and the head.
    pub(super) fn entry<'a>(&self, arena: &'a Arena, at: Link) -> Entry<'a> {
        // SAFETY: links are only taken from acquiring loads of published entries, whose header,
        // key and value were written before and never change.
        unsafe {
            let header = arena.bytes(at, HEADER_BYTES as usize);
            let word = |range: std::ops::Range<usize>| {
                header[range]
                    .iter()
                    .rev()
                    .fold(0u64, |value, byte| value << 8 | u64::from(*byte))
            };
            let (key_len, value_len) = (word(12..14) as usize, word(8..12) as usize);
            let key_at = at + HEADER_BYTES + 4 * u32::from(header[15]);
            Entry {
                key: arena.bytes(key_at, key_len),
                sequence: word(0..8),
                kind: Kind::from_byte(header[14]).unwrap_or(Kind::Delete),
                value: arena.bytes(key_at + key_len as u32, value_len),
            }
        }
    }

    fn compare(&self, arena: &Arena, at: Link, key: &[u8], sequence: u64) -> Order {
        let entry = self.entry(arena, at);
        entry
            .key
            .cmp(key)
            .then_with(|| sequence.cmp(&entry.sequence))
    }

    /// The last entry before (`key`, `sequence`) on `level`, searching from `from`, and the one
    /// after it. `bound` is an entry known to lie at or after the key; it is not compared again.
    fn search_level(
        &self,
        arena: &Arena,
        mut from: Link,
        level: usize,
        target: (&[u8], u64),
        bound: Link,
    ) -> (Link, Link) {
        loop {
            let next = self.link(arena, from, level);
            if next == 0
                || next == bound
                || self.compare(arena, next, target.0, target.1) != Order::Less
            {
                return (from, next);
            }
            from = next;
        }
    }

    /// The first entry at or after (`key`, `sequence`), or 0.
    pub(super) fn seek(&self, arena: &Arena, key: &[u8], sequence: u64) -> Link {
        let mut at = self.head;
        let mut next = 0;
        for level in (0..HEIGHT_MAX).rev() {
            (at, next) = self.search_level(arena, at, level, (key, sequence), next);
        }
        next
    }

    /// The last entry with a key below `key` (or the very last for `None`), or 0.
    pub(super) fn seek_before(&self, arena: &Arena, key: Option<&[u8]>) -> Link {
        let mut at = self.head;
        for level in (0..HEIGHT_MAX).rev() {
            at = match key {
                Some(key) => self.search_level(arena, at, level, (key, u64::MAX), 0).0,
                None => {
                    let mut last = at;
                    loop {
                        let next = self.link(arena, last, level);
                        if next == 0 {
                            break last;
                        }
                        last = next;
                    }
                }
            };
        }
        if at == self.head { 0 } else { at }
    }

    /// The first entry, or 0.
    pub(super) fn first(&self, arena: &Arena) -> Link {
        self.link(arena, self.head, 0)
    }

    /// The entry after `at`, or 0.
    pub(super) fn next(&self, arena: &Arena, at: Link) -> Link {
        self.link(arena, at, 0)
    }

    /// Inserts an entry. (`key`, `sequence`) must be new. `splice` is where the last insert of the
    /// caller went; it is updated. Returns false when the arena is full.
    pub(super) fn insert(
        &self,
        arena: &Arena,
        splice: &mut Splice,
        height: usize,
        entry: &Entry<'_>,
    ) -> bool {
        let height = height.clamp(1, HEIGHT_MAX);
        let (key, sequence) = (entry.key, entry.sequence);
        let bytes = HEADER_BYTES as usize + 4 * height + key.len() + entry.value.len();
        let Some(at) = arena.allocate(bytes) else {
            return false;
        };
        let mut header = [0; HEADER_BYTES as usize];
        header[0..8].copy_from_slice(&sequence.to_le_bytes());
        header[8..12].copy_from_slice(&(entry.value.len() as u32).to_le_bytes());
        header[12..14].copy_from_slice(&(key.len() as u16).to_le_bytes());
        header[14] = entry.kind.to_byte();
        header[15] = height as u8;
        let key_at = at + HEADER_BYTES + 4 * height as u32;
        // SAFETY: all three ranges lie in the piece just allocated, which nobody else knows yet.
        unsafe {
            arena.write(at, &header);
            arena.write(key_at, key);
            arena.write(key_at + key.len() as u32, entry.value);
        }

        let mut after = [0; HEIGHT_MAX];
        self.find_splice(arena, splice, &mut after, height, (key, sequence));
        for level in 0..height {
            let (mut before, mut next) = (splice[level], after[level]);
            loop {
                // SAFETY: words behind the headers of two entries, below both heights: `before`
                // was found on `level`, and `level < height`.
                let (own, link) = unsafe {
                    let offset = HEADER_BYTES + 4 * level as u32;
                    (arena.word(at + offset), arena.word(before + offset))
                };
                own.store(next, Ordering::Relaxed);
                if link
                    .compare_exchange(next, at, Ordering::Release, Ordering::Relaxed)
                    .is_ok()
                {
                    break;
                }
                (before, next) = self.search_level(arena, before, level, (key, sequence), 0);
            }
            splice[level] = at;
        }
        true
    }

    /// Fills `splice` and `after` with the neighbours of `target` on every level below `height`. Climbs
    /// from the old splice only as far as it does not enclose the target, so that ascending inserts
    /// search nothing. (The entries of a splice never ascend with the level, so whatever lies above
    /// an enclosing level starts before the target too.)
    fn find_splice(
        &self,
        arena: &Arena,
        splice: &mut Splice,
        after: &mut Splice,
        height: usize,
        target: (&[u8], u64),
    ) {
        let (key, sequence) = target;
        let mut level = 0;
        loop {
            let before = splice[level];
            let starts_before =
                before == self.head || self.compare(arena, before, key, sequence) == Order::Less;
            let last = level + 1 == HEIGHT_MAX;
            if starts_before {
                let next = self.link(arena, before, level);
                if last || next == 0 || self.compare(arena, next, key, sequence) != Order::Less {
                    break;
                }
            } else if last {
                splice[level] = self.head;
                break;
            }
            level += 1;
        }
        for above in level + 1..height {
            (splice[above], after[above]) =
                self.search_level(arena, splice[above], above, target, 0);
        }
        let (mut at, mut bound) = (splice[level], 0);
        for below in (0..=level).rev() {
            (at, bound) = self.search_level(arena, at, below, target, bound);
            (splice[below], after[below]) = (at, bound);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;

    fn next_random(state: &mut u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state
    }

    fn insert(
        list: &List,
        arena: &Arena,
        splice: &mut Splice,
        key: u32,
        sequence: u64,
        random: u64,
    ) {
        let key = key.to_be_bytes();
        let entry = Entry {
            key: &key,
            sequence,
            kind: Kind::Put,
            value: &sequence.to_le_bytes(),
        };
        assert!(list.insert(
            arena,
            splice,
            1 + random.trailing_ones() as usize / 2,
            &entry
        ));
    }

    #[test]
    fn keeps_order_and_versions() {
        let arena = Arena::new(1 << 20, &Arc::default());
        let list = List::new(&arena).unwrap();
        let mut splice = list.splice();
        let mut model = BTreeMap::new();
        let mut random = 42;
        for sequence in 1..=4000u64 {
            let key = match sequence % 3 {
                0 => sequence as u32,
                _ => (next_random(&mut random) % 500) as u32,
            };
            insert(
                &list,
                &arena,
                &mut splice,
                key,
                sequence,
                next_random(&mut random),
            );
            model.insert((key, u64::MAX - sequence), sequence);
        }
        let mut at = list.first(&arena);
        for ((key, _), sequence) in &model {
            let entry = list.entry(&arena, at);
            assert_eq!(entry.key, key.to_be_bytes());
            assert_eq!(entry.sequence, *sequence);
            assert_eq!(entry.value, sequence.to_le_bytes());
            at = list.next(&arena, at);
        }
        assert_eq!(at, 0);
        for key in 0..600u32 {
            let found = list.seek(&arena, &key.to_be_bytes(), 2000);
            let expected = model
                .range((key, u64::MAX - 2000)..)
                .next()
                .map(|(_, s)| *s);
            assert_eq!(
                (found != 0).then(|| list.entry(&arena, found).sequence),
                expected
            );
            let found = list.seek_before(&arena, Some(&key.to_be_bytes()));
            let expected = model.range(..(key, 0)).next_back().map(|(_, s)| *s);
            assert_eq!(
                (found != 0).then(|| list.entry(&arena, found).sequence),
                expected
            );
        }
    }

    #[test]
    fn takes_inserts_from_many_threads() {
        let arena = Arena::new(4 << 20, &Arc::default());
        let list = List::new(&arena).unwrap();
        let (threads, each) = (4u64, if cfg!(miri) { 50 } else { 5000 });
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (arena, list) = (&arena, &list);
                scope.spawn(move || {
                    let (mut splice, mut random) = (list.splice(), thread + 1);
                    for i in 0..each {
                        let height = next_random(&mut random);
                        let key = (next_random(&mut random) % 10_000) as u32;
                        insert(
                            list,
                            arena,
                            &mut splice,
                            key,
                            1 + thread + i * threads,
                            height,
                        );
                    }
                });
            }
        });
        let (mut at, mut count, mut last) = (list.first(&arena), 0, (Vec::new(), 0));
        while at != 0 {
            let entry = list.entry(&arena, at);
            let here = (entry.key.to_vec(), u64::MAX - entry.sequence);
            assert!(count == 0 || last < here);
            (last, count) = (here, count + 1);
            at = list.next(&arena, at);
        }
        assert_eq!(count, threads * each);
    }

    #[test]
    fn a_full_arena_refuses() {
        let arena = Arena::new(256, &Arc::default());
        let list = List::new(&arena).unwrap();
        let entry = Entry {
            key: &[1; 300],
            sequence: 1,
            kind: Kind::Put,
            value: &[],
        };
        assert!(!list.insert(&arena, &mut list.splice(), 1, &entry));
        assert_eq!(list.first(&arena), 0);
    }
}
