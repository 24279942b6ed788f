//! The order of one tree's entries in a memtable: a B+-tree in memory over entries in the arena.
//!
//! A node keeps a head of each key (eight bytes; PostgreSQL calls this an abbreviated key) beside the link to its entry,
//! so that a search touches few cache lines and hardly any entry. Heads are taken after the prefix that all keys of the
//! tree share; when a key comes that does not share it, all heads are recomputed. Entries are never removed. Where keys
//! ascend, nodes are filled completely.
//!
//! Order: key ascending, then sequence number descending, so that the newest version of a key comes first.

pub(super) mod batch;

use std::cmp::Ordering;

use super::arena::Arena;
use super::entry::{Entry, HEADER_BYTES, Link};
use crate::bytes::SHORT_KEY_BYTES_MAX;

/// Entries of a leaf and children of an inner node.
const WIDTH: usize = 32;
/// Nodes that are allocated at once.
const CHUNK: usize = 32;
/// More levels than a memtable can have: entries are addressed with 32 bits.
const HEIGHT_MAX: usize = 9;

/// The most bytes that an entry takes: in the arena, and in half full nodes.
pub(super) fn entry_bytes_max(key_len: usize, value_len: usize) -> usize {
    HEADER_BYTES as usize + key_len + value_len + 8 + 2 * (size_of::<Leaf>() / WIDTH + 1)
}

/// Bytes of an empty index.
pub(super) const EMPTY_BYTES: usize = size_of::<Leaf>() + size_of::<Index>() + 128;

/// Eight bytes of a key, for comparisons without the key.
type Head = u64;

/// The target of a search.
#[derive(Clone, Copy)]
struct Target<'a> {
    head: Head,
    key: &'a [u8],
    sequence: u64,
}

/// Neighbouring entries, and the leaves beside this one.
struct Leaf {
    count: usize,
    heads: [Head; WIDTH],
    links: [Link; WIDTH],
    next: u32,
    previous: u32,
}

/// Children, and the first entry below each of them.
struct Inner {
    count: usize,
    heads: [Head; WIDTH],
    links: [Link; WIDTH],
    children: [u32; WIDTH],
}

const NONE: u32 = u32::MAX;

/// A position among the entries.
#[derive(Clone, Copy)]
pub(super) struct Position {
    leaf: u32,
    slot: usize,
}

/// Nodes that are allocated in chunks.
struct Nodes<T> {
    chunks: Vec<Vec<T>>,
}

impl<T> Nodes<T> {
    fn push(&mut self, node: T) -> u32 {
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            // Many trees have few entries in a memtable: the first chunk starts with one node.
            let room = if self.chunks.is_empty() { 1 } else { CHUNK };
            self.chunks.push(Vec::with_capacity(room));
        }
        let chunks = self.chunks.len();
        let chunk = &mut self.chunks[chunks - 1];
        chunk.push(node);
        ((chunks - 1) * CHUNK + chunk.len() - 1) as u32
    }

    fn get(&self, index: u32) -> &T {
        &self.chunks[index as usize / CHUNK][index as usize % CHUNK]
    }

    fn get_mut(&mut self, index: u32) -> &mut T {
        &mut self.chunks[index as usize / CHUNK][index as usize % CHUNK]
    }

    fn count(&self) -> usize {
        let last = self.chunks.last().map_or(0, Vec::len);
        self.chunks.len().saturating_sub(1) * CHUNK + last
    }

    fn bytes(&self) -> usize {
        let room = match self.chunks.as_slice() {
            [only] => only.capacity(),
            chunks => chunks.len() * CHUNK,
        };
        room * size_of::<T>()
    }
}

/// The order of one tree's entries.
pub(super) struct Index {
    leaves: Nodes<Leaf>,
    inners: Nodes<Inner>,
    root: u32,
    /// Levels of inner nodes above the leaves.
    height: usize,
    /// The last leaf, where ascending keys go.
    last: u32,
    /// The prefix that all keys share; heads are taken after it. `None` while there are no keys.
    prefix: Option<Box<[u8]>>,
}

impl Index {
    pub(super) fn new() -> Index {
        let mut leaves = Nodes { chunks: Vec::new() };
        let root = leaves.push(Leaf::new());
        Index {
            leaves,
            inners: Nodes { chunks: Vec::new() },
            root,
            height: 0,
            last: root,
            prefix: None,
        }
    }

    /// Bytes of memory that the nodes take.
    pub(super) fn bytes(&self) -> usize {
        self.leaves.bytes() + self.inners.bytes()
    }

    /// The first entry at or after (`key`, `sequence`).
    pub(super) fn seek(&self, arena: &Arena, key: &[u8], sequence: u64) -> Position {
        let Some(head) = self.head(key) else {
            // The key does not share the prefix, so it comes before or after all others.
            return match self.first_link() {
                Some(link) if key < Entry::at(arena, link).key => self.first(),
                _ => self.end(),
            };
        };
        let target = Target {
            head,
            key,
            sequence,
        };
        let node = self.leaf_of(arena, target);
        let slot = self.leaves.get(node).search(arena, target);
        Position { leaf: node, slot }
    }

    pub(super) fn first(&self) -> Position {
        let mut leaf = self.root;
        for _ in 0..self.height {
            leaf = self.inners.get(leaf).children[0];
        }
        Position { leaf, slot: 0 }
    }

    /// The position after the last entry.
    pub(super) fn end(&self) -> Position {
        let (leaf, slot) = (self.last, self.leaves.get(self.last).count);
        Position { leaf, slot }
    }

    fn first_link(&self) -> Option<Link> {
        let leaf = self.leaves.get(self.first().leaf);
        (leaf.count > 0).then(|| leaf.links[0])
    }

    pub(super) fn last_link(&self) -> Option<Link> {
        let leaf = self.leaves.get(self.last);
        leaf.links[..leaf.count].last().copied()
    }

    /// The number of entries for which the leaves have room.
    pub(super) fn slots(&self) -> u64 {
        (self.leaves.count() * WIDTH) as u64
    }

    /// The entry in a slot of the leaves; `None` if the slot is empty.
    pub(super) fn entry_in(&self, slot: u64) -> Option<Link> {
        let (leaf, slot) = (slot / WIDTH as u64, slot as usize % WIDTH);
        let leaf = self.leaves.get(leaf as u32);
        leaf.links[..leaf.count].get(slot).copied()
    }

    /// Replaces `links` with some entries from a position on: none only at the end.
    pub(super) fn copy_from(&self, place: Position, links: &mut Vec<Link>) {
        links.clear();
        let leaf = self.leaves.get(place.leaf);
        links.extend_from_slice(&leaf.links[place.slot..leaf.count]);
        if links.is_empty() && leaf.next != NONE {
            let next = self.leaves.get(leaf.next);
            links.extend_from_slice(&next.links[..next.count]);
        }
    }

    /// Replaces `links` with at least `count` entries from a position on, or all that are left. Returns the position
    /// after them.
    pub(super) fn copy_many(
        &self,
        place: Position,
        count: usize,
        links: &mut Vec<Link>,
    ) -> Option<Position> {
        links.clear();
        let Position { mut leaf, mut slot } = place;
        while leaf != NONE && links.len() < count {
            let node = self.leaves.get(leaf);
            links.extend_from_slice(&node.links[slot..node.count]);
            (leaf, slot) = (node.next, 0);
        }
        (leaf != NONE).then_some(Position { leaf, slot })
    }

    /// Replaces `links` with some entries before a position, the nearest first: none only at the start.
    pub(super) fn copy_before(&self, place: Position, links: &mut Vec<Link>) {
        links.clear();
        let leaf = self.leaves.get(place.leaf);
        links.extend(leaf.links[..place.slot].iter().rev());
        if links.is_empty() && leaf.previous != NONE {
            let previous = self.leaves.get(leaf.previous);
            links.extend(previous.links[..previous.count].iter().rev());
        }
    }

    /// Calls `visit` with the entries from a position on, until it returns false.
    pub(super) fn walk(&self, place: Position, mut visit: impl FnMut(Link) -> bool) {
        let (mut node, mut slot) = (place.leaf, place.slot);
        while node != NONE {
            let leaf = self.leaves.get(node);
            for link in &leaf.links[slot..leaf.count] {
                if !visit(*link) {
                    return;
                }
            }
            (node, slot) = (leaf.next, 0);
        }
    }

    /// Adds an entry of the arena. No other entry has the same key and sequence number. Returns the entry that
    /// comes after it, or none.
    pub(super) fn insert(&mut self, arena: &Arena, link: Link) -> Link {
        let entry = Entry::at(arena, link);
        let head = match self.head(entry.key) {
            Some(head) => head,
            None => self.share_less(arena, entry.key),
        };
        let target = Target {
            head,
            key: entry.key,
            sequence: entry.sequence,
        };
        // Ascending keys need no search.
        let last = self.leaves.get_mut(self.last);
        if last.count > 0
            && last.count < WIDTH
            && last.compare(arena, last.count - 1, target) == Ordering::Less
        {
            last.insert(last.count, head, link);
            return Link::NONE;
        }
        let mut path = [(NONE, 0); HEIGHT_MAX];
        let mut node = self.root;
        for step in path.iter_mut().take(self.height) {
            let inner = self.inners.get(node);
            let child = inner.child_of(arena, target);
            *step = (node, child);
            node = inner.children[child];
        }
        let leaf = self.leaves.get(node);
        let slot = leaf.search(arena, target);
        let behind = match leaf.links[..leaf.count].get(slot) {
            Some(link) => *link,
            None if leaf.next == NONE => Link::NONE,
            None => self.leaves.get(leaf.next).links[0],
        };
        let leaf = self.leaves.get_mut(node);
        if leaf.count < WIDTH {
            leaf.insert(slot, head, link);
            return behind;
        }
        let right = self.split_leaf(node, slot, head, link);
        let (head, link) = (
            self.leaves.get(right).heads[0],
            self.leaves.get(right).links[0],
        );
        self.insert_child(&path, head, link, right);
        behind
    }

    /// Replaces the entry with the same key and sequence number, which must exist.
    pub(super) fn replace(&mut self, arena: &Arena, link: Link) {
        let entry = Entry::at(arena, link);
        let Position { leaf, slot } = self.seek(arena, entry.key, entry.sequence);
        let leaf = self.leaves.get_mut(leaf);
        if let Some(there) = leaf.links[..leaf.count].get_mut(slot) {
            let old = Entry::at(arena, *there);
            debug_assert!((old.key, old.sequence) == (entry.key, entry.sequence));
            *there = link;
        }
    }

    /// Splits a full leaf and adds an entry at `slot`; returns the new leaf on the right.
    fn split_leaf(&mut self, node: u32, slot: usize, head: Head, link: Link) -> u32 {
        let right = self.leaves.push(Leaf::new());
        let leaf = self.leaves.get_mut(node);
        let (next, is_last) = (leaf.next, leaf.next == NONE);
        leaf.next = right;
        let mut new = Leaf::new();
        (new.next, new.previous) = (next, node);
        if is_last && slot == WIDTH {
            new.insert(0, head, link);
        } else {
            let middle = WIDTH / 2;
            new.heads[..WIDTH - middle].copy_from_slice(&leaf.heads[middle..]);
            new.links[..WIDTH - middle].copy_from_slice(&leaf.links[middle..]);
            new.count = WIDTH - middle;
            leaf.count = middle;
            if slot <= middle {
                leaf.insert(slot, head, link);
            } else {
                new.insert(slot - middle, head, link);
            }
        }
        *self.leaves.get_mut(right) = new;
        if is_last {
            self.last = right
        } else {
            self.leaves.get_mut(next).previous = right
        }
        right
    }

    /// Adds a child after the one on the path, from the lowest level up.
    fn insert_child(
        &mut self,
        path: &[(u32, usize); HEIGHT_MAX],
        mut head: Head,
        mut link: Link,
        mut child: u32,
    ) {
        for (node, slot) in path[..self.height].iter().rev() {
            let inner = self.inners.get_mut(*node);
            if inner.count < WIDTH {
                inner.insert(slot + 1, head, link, child);
                return;
            }
            let mut new = Inner::new();
            if slot + 1 == WIDTH {
                new.insert(0, head, link, child);
            } else {
                let middle = WIDTH / 2;
                let moved = WIDTH - middle;
                new.heads[..moved].copy_from_slice(&inner.heads[middle..]);
                new.links[..moved].copy_from_slice(&inner.links[middle..]);
                new.children[..moved].copy_from_slice(&inner.children[middle..]);
                (new.count, inner.count) = (moved, middle);
                match (slot + 1).checked_sub(middle) {
                    Some(slot) if slot > 0 => new.insert(slot, head, link, child),
                    _ => inner.insert(slot + 1, head, link, child),
                }
            }
            (head, link) = (new.heads[0], new.links[0]);
            child = self.inners.push(new);
        }
        // The root was split. The head and the link of its first child are never read.
        let mut root = Inner::new();
        root.insert(0, 0, Link::NONE, self.root);
        root.insert(1, head, link, child);
        self.root = self.inners.push(root);
        self.height += 1;
    }

    /// The head of a key; `None` if it does not share the prefix of the others.
    fn head(&self, key: &[u8]) -> Option<Head> {
        key.strip_prefix(&**self.prefix.as_ref()?).map(head_of)
    }

    /// Recomputes all heads, after the prefix that `key` shares with the others. Returns the key's head.
    fn share_less(&mut self, arena: &Arena, key: &[u8]) -> Head {
        let shared = match &self.prefix {
            Some(prefix) => prefix.iter().zip(key).take_while(|(a, b)| a == b).count(),
            None => key.len(),
        };
        // Of a long key all but the prefix is only in the arena.
        let shared = shared.min(SHORT_KEY_BYTES_MAX);
        self.prefix = Some(key[..shared].into());
        let new_head = |link: Link| {
            if link.is_none() {
                0
            } else {
                head_of(&Entry::at(arena, link).key[shared..])
            }
        };
        for leaf in self.leaves.chunks.iter_mut().flatten() {
            for slot in 0..leaf.count {
                leaf.heads[slot] = new_head(leaf.links[slot]);
            }
        }
        for inner in self.inners.chunks.iter_mut().flatten() {
            for slot in 0..inner.count {
                inner.heads[slot] = new_head(inner.links[slot]);
            }
        }
        head_of(&key[shared..])
    }
}

/// The first eight bytes, padded with zeros: of two keys with different heads the one with the lower head is lower.
fn head_of(key: &[u8]) -> Head {
    match key.first_chunk() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 8];
            bytes[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(bytes)
        }
    }
}

/// The order of an entry and a target with the same head.
fn compare_entry(arena: &Arena, link: Link, target: Target<'_>) -> Ordering {
    let entry = Entry::at(arena, link);
    entry
        .key
        .cmp(target.key)
        .then_with(|| target.sequence.cmp(&entry.sequence))
}

impl Leaf {
    fn new() -> Leaf {
        Leaf {
            count: 0,
            heads: [0; WIDTH],
            links: [Link::NONE; WIDTH],
            next: NONE,
            previous: NONE,
        }
    }

    fn compare(&self, arena: &Arena, slot: usize, target: Target<'_>) -> Ordering {
        (self.heads[slot].cmp(&target.head))
            .then_with(|| compare_entry(arena, self.links[slot], target))
    }

    /// The first slot at or after the target.
    fn search(&self, arena: &Arena, target: Target<'_>) -> usize {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = (low + high) / 2;
            match self.compare(arena, middle, target) {
                Ordering::Less => low = middle + 1,
                _ => high = middle,
            }
        }
        low
    }

    fn insert(&mut self, slot: usize, head: Head, link: Link) {
        self.heads.copy_within(slot..self.count, slot + 1);
        self.links.copy_within(slot..self.count, slot + 1);
        (self.heads[slot], self.links[slot]) = (head, link);
        self.count += 1;
    }
}

impl Inner {
    fn new() -> Inner {
        Inner {
            count: 0,
            heads: [0; WIDTH],
            links: [Link::NONE; WIDTH],
            children: [NONE; WIDTH],
        }
    }

    /// The child that the target belongs to: the last whose first entry is at or before it, or the first.
    fn child_of(&self, arena: &Arena, target: Target<'_>) -> usize {
        let (mut low, mut high) = (1, self.count);
        while low < high {
            let middle = (low + high) / 2;
            if self.is_at_or_before(arena, middle, target) {
                low = middle + 1
            } else {
                high = middle
            }
        }
        low - 1
    }

    /// Whether the first entry below a child is at or before the target.
    fn is_at_or_before(&self, arena: &Arena, child: usize, target: Target<'_>) -> bool {
        (self.heads[child].cmp(&target.head))
            .then_with(|| compare_entry(arena, self.links[child], target))
            .is_le()
    }

    fn insert(&mut self, slot: usize, head: Head, link: Link, child: u32) {
        self.heads.copy_within(slot..self.count, slot + 1);
        self.links.copy_within(slot..self.count, slot + 1);
        self.children.copy_within(slot..self.count, slot + 1);
        (self.heads[slot], self.links[slot], self.children[slot]) = (head, link, child);
        self.count += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    use super::*;
    use crate::Kind;

    struct List {
        arena: Arena,
        index: Index,
        model: BTreeMap<(Vec<u8>, u64), u64>,
        sequence: u64,
    }

    impl List {
        fn new() -> List {
            List {
                arena: Arena::new(4 << 20, &Arc::default()),
                index: Index::new(),
                model: BTreeMap::new(),
                sequence: 0,
            }
        }

        fn insert(&mut self, key: &[u8]) {
            self.sequence += 1;
            let value = self.sequence.to_le_bytes();
            let entry = Entry::new(key, self.sequence, Kind::Put, &value);
            let link = entry.store(&self.arena).unwrap();
            let behind = self.index.insert(&self.arena, link);
            let order = (key.to_vec(), u64::MAX - self.sequence);
            let expected = self.model.range(&order..).next();
            let found = (!behind.is_none()).then(|| Entry::at(&self.arena, behind).sequence);
            assert_eq!(found, expected.map(|(_, sequence)| *sequence));
            self.model.insert(order, self.sequence);
            if self.sequence.is_multiple_of(5) {
                let link = entry.store(&self.arena).unwrap();
                self.index.replace(&self.arena, link);
            }
        }

        /// Inserts as a large commit does. Between its groups others insert `between`.
        fn insert_many(&mut self, keys: &[Vec<u8>], between: &[Vec<u8>]) {
            let mut waiting = Vec::new();
            for key in keys {
                self.sequence += 1;
                let value = self.sequence.to_le_bytes();
                let entry = Entry::new(key, self.sequence, Kind::Put, &value);
                waiting.push(batch::Waiting::new(entry.store(&self.arena).unwrap()));
                let order = (key.clone(), u64::MAX - self.sequence);
                self.model.insert(order, self.sequence);
            }
            let taken = self.index.take_heads(&self.arena, &mut waiting);
            batch::sort(&self.arena, &mut waiting);
            let mut between = between.iter();
            for group in waiting.chunks_mut(batch::GROUP) {
                self.index.insert_group(&self.arena, group, taken);
                for key in between.by_ref().take(3) {
                    self.sequence += 1;
                    let entry = Entry::new(key, self.sequence, Kind::Put, b"");
                    let link = entry.store(&self.arena).unwrap();
                    self.index.insert(&self.arena, link);
                    let order = (key.clone(), u64::MAX - self.sequence);
                    self.model.insert(order, self.sequence);
                }
            }
        }

        fn sequences(&self, links: &[Link]) -> Vec<u64> {
            let sequence = |link: &Link| Entry::at(&self.arena, *link).sequence;
            links.iter().map(sequence).collect()
        }

        /// All entries, found by steps in one direction.
        fn walk(&self, forward: bool) -> Vec<u64> {
            let (mut found, mut links) = (Vec::new(), Vec::new());
            let mut place = if forward {
                self.index.first()
            } else {
                self.index.end()
            };
            loop {
                if forward {
                    self.index.copy_from(place, &mut links)
                } else {
                    self.index.copy_before(place, &mut links)
                }
                let Some(last) = links.last() else {
                    return found;
                };
                found.extend(self.sequences(&links));
                let last = Entry::at(&self.arena, *last);
                // Behind an entry is where the next older version of its key would be.
                let sequence = last.sequence - u64::from(forward);
                place = self.index.seek(&self.arena, last.key, sequence);
            }
        }

        fn check(&self, keys: &[Vec<u8>]) {
            let expected: Vec<u64> = self.model.values().copied().collect();
            assert_eq!(self.walk(true), expected);
            let backward: Vec<u64> = expected.into_iter().rev().collect();
            assert_eq!(self.walk(false), backward);
            let mut links = Vec::new();
            for key in keys {
                for sequence in [0, self.sequence / 2, u64::MAX] {
                    let target = (key.clone(), u64::MAX - sequence);
                    let place = self.index.seek(&self.arena, key, sequence);
                    self.index.copy_from(place, &mut links);
                    let expected = self.model.range(&target..).next().map(|(_, s)| *s);
                    assert_eq!(self.sequences(&links).first().copied(), expected);
                    self.index.copy_before(place, &mut links);
                    let expected = self.model.range(..&target).next_back().map(|(_, s)| *s);
                    assert_eq!(self.sequences(&links).first().copied(), expected);
                }
            }
        }
    }

    #[test]
    fn keeps_order_and_versions() {
        let numbers = |random: u64, _: u64| (random as u32 % 500).to_be_bytes().to_vec();
        let ascending = |_: u64, step: u64| step.to_be_bytes().to_vec();
        let descending = |_: u64, step: u64| (u64::MAX - step).to_be_bytes().to_vec();
        let mixed = |random: u64, step: u64| match step % 3 {
            0 => step.to_be_bytes().to_vec(),
            _ => random.to_be_bytes()[..random as usize % 9].to_vec(),
        };
        // Each key shares less with those before it, until nothing is left.
        let shrinking = |random: u64, step: u64| {
            let shared = 20usize.saturating_sub(step as usize / 100);
            let rest = random.to_string();
            [&b"http://www.site.example"[..shared], rest.as_bytes()].concat()
        };
        let long =
            |random: u64, _: u64| format!("the same beginning {}", random % 900).into_bytes();
        let kinds: [&dyn Fn(u64, u64) -> Vec<u8>; 6] =
            [&numbers, &ascending, &descending, &mixed, &shrinking, &long];
        for (kind, many) in kinds.iter().flat_map(|kind| [(kind, false), (kind, true)]) {
            let (mut list, mut keys) = (List::new(), Vec::new());
            let mut random = SmallRng::seed_from_u64(42);
            assert!(list.walk(true).is_empty() && list.walk(false).is_empty());
            let (mut batch, mut between) = (Vec::new(), Vec::new());
            for step in 0..4000 {
                let key = kind(random.random(), step);
                match step % 9 {
                    _ if !many => list.insert(&key),
                    0 => between.push(key.clone()),
                    _ => batch.push(key.clone()),
                }
                if batch.len() > random.random_range(0..400) {
                    list.insert_many(&batch, &between);
                    (batch, between) = Default::default();
                }
                if step % 40 == 0 {
                    let above = [&key[..], b"\0"].concat();
                    keys.extend([key[..key.len() / 2].to_vec(), above, key]);
                }
            }
            keys.push(b"\xff\xff".to_vec());
            list.check(&keys);
        }
    }

    #[test]
    fn ascending_keys_fill_the_nodes() {
        let mut list = List::new();
        for step in 0..10_000u64 {
            list.insert(&step.to_be_bytes());
        }
        assert!(list.index.bytes() < 10_000 * size_of::<Leaf>() / WIDTH * 5 / 4);
    }

    #[test]
    fn a_full_arena_refuses() {
        let arena = Arena::new(256, &Arc::default());
        let entry = Entry::new(&[1; 300], 1, Kind::Put, &[]);
        assert!(entry.store(&arena).is_none());
    }
}
