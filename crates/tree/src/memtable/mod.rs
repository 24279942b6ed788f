//! The memtable: the commits since the last one was sealed, for all trees of the store.
//!
//! Entries are versioned by sequence number, so that a snapshot sees exactly the commits before it.
//! A sealed memtable no longer changes; background threads flush it to the trees.

mod arena;
mod entry;
mod hot;
mod index;
mod ranges;
mod reservations;
mod source;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use frond_kv::operation::Op;
use frond_kv::{KEY_BYTES_MAX, Operations, VALUE_BYTES_MAX, range_delete_bytes};
use parking_lot::RwLock;

use crate::range::KeyRange;
use crate::{Kind, TreeId};
use arena::Arena;
pub(crate) use arena::SpareBlocks;
use entry::{Entry, LEN_MAX, Link};
pub(crate) use hot::HotKey;
use index::Index;
use index::batch::{self, GROUP, Waiting};
use ranges::Ranges;
use reservations::Reservations;
pub(crate) use source::{KeyPart, MemSource};

pub(crate) struct Memtable {
    /// M4: an insert finds the room that its write set has reserved. Nothing is removed before the memtable is dropped.
    arena: Arena,
    tree_indexes: RwLock<HashMap<TreeId, Arc<TreeIndex>>>,
    /// Some of them, each at a place that follows from its tree: these are found without a lock.
    front: [OnceLock<(TreeId, Arc<TreeIndex>)>; FRONT],
    reservations: Reservations,
    /// Whether a write set for this memtable creates or drops trees.
    changes_trees: AtomicBool,
    /// Bytes of the nodes that order the entries.
    node_bytes: AtomicUsize,
    /// Bytes that range deletes count as, outside of the arena.
    range_bytes: AtomicUsize,
    /// Position in the log of the first frame whose entries are here.
    pub(crate) log_start: u64,
    /// The last sequence number of the commits before.
    ///
    /// M3: all numbers here are above it.
    pub(crate) sequence_before: u64,
    /// The last stamp of the commits before, as far as it is known.
    pub(crate) stamp_before: u64,
    /// When it was made.
    since: Instant,
}

/// The entries of one tree.
pub(crate) struct TreeIndex {
    index: RwLock<Index>,
    ranges: Ranges,
    entries: AtomicU64,
    bytes: AtomicU64,
}

/// Statistics of one tree's entries in a memtable.
pub(crate) struct MemtableStats {
    pub(crate) entries: u64,
    /// Bytes of their keys and values.
    pub(crate) bytes: u64,
    /// Bytes of the nodes that order them.
    pub(crate) node_bytes: u64,
}

#[cfg(test)]
thread_local! {
    /// The age of every memtable in place of the real one, for this thread.
    static AGE: std::cell::Cell<Option<Duration>> = const { std::cell::Cell::new(None) };
}

/// Sets the age of every memtable for this thread.
#[cfg(test)]
pub(crate) fn set_age(age: Duration) {
    AGE.set(Some(age));
}

const _: () = assert!(KEY_BYTES_MAX <= LEN_MAX && VALUE_BYTES_MAX <= LEN_MAX);

/// From this many operations on, sorting a write set pays off.
const MANY: usize = 64;

/// Trees that are found without a lock.
const FRONT: usize = 32;

/// The index of a tree.
enum Found<'a> {
    InFront(&'a Arc<TreeIndex>),
    Shared(Arc<TreeIndex>),
}

impl Deref for Found<'_> {
    type Target = Arc<TreeIndex>;

    fn deref(&self) -> &Arc<TreeIndex> {
        match self {
            Found::InFront(tree_index) => tree_index,
            Found::Shared(tree_index) => tree_index,
        }
    }
}

/// The operations of a write set on one tree.
struct Part<'a> {
    tree: TreeId,
    tree_index: Found<'a>,
    /// Stored in the arena, but not in the index yet.
    waiting: Vec<Waiting>,
    entries: u64,
    bytes: u64,
}

impl Memtable {
    /// An empty memtable of `bytes` bytes.
    pub(crate) fn new(bytes: usize, log_start: u64, spare: &Arc<SpareBlocks>) -> Memtable {
        Memtable {
            arena: Arena::new(bytes, spare),
            tree_indexes: RwLock::default(),
            front: [const { OnceLock::new() }; FRONT],
            reservations: Reservations::new(),
            changes_trees: AtomicBool::new(false),
            node_bytes: AtomicUsize::new(0),
            range_bytes: AtomicUsize::new(0),
            log_start,
            sequence_before: 0,
            stamp_before: 0,
            since: Instant::now(),
        }
    }

    /// The one after another memtable, with the last sequence number and the last stamp of the commits so far, or 0 if the
    /// stamp is not known.
    pub(crate) fn after(self, before: &Memtable, last_sequence: u64, last_stamp: u64) -> Memtable {
        self.after_commits(last_sequence, before.stamp_before.max(last_stamp))
    }

    /// Notes the last sequence number and the last stamp of the commits before.
    pub(crate) fn after_commits(self, sequence_before: u64, stamp_before: u64) -> Memtable {
        Memtable {
            sequence_before,
            stamp_before,
            ..self
        }
    }

    /// The time since it was made.
    pub(crate) fn age(&self) -> Duration {
        #[cfg(test)]
        if let Some(age) = AGE.get() {
            return age;
        }
        self.since.elapsed()
    }

    /// The most bytes that an operation takes.
    pub(crate) fn op_bytes_max(key_len: usize, value_len: usize) -> usize {
        index::entry_bytes_max(key_len, value_len)
    }

    /// The approximate number of bytes of operations whose encoding has `encoded` bytes.
    pub(crate) fn ops_bytes(ops: usize, encoded: usize) -> usize {
        encoded + ops * 14
    }

    /// The most bytes that the operations of a write set take. A range delete takes less than it counts as.
    pub(crate) fn set_bytes_max(set: &Operations) -> usize {
        let entries = set.entry_bytes() + set.entries() * Memtable::op_bytes_max(0, 0);
        entries + set.range_bytes() + set.tree_count() * Memtable::TREE_INDEX_BYTES
    }

    /// Further bytes of the first operation on a tree.
    pub(crate) const TREE_INDEX_BYTES: usize = index::EMPTY_BYTES;

    /// Reserves room and registers a writer; called under the commit lock. False if it is full.
    pub(crate) fn reserve(&self, bytes: usize) -> bool {
        let capacity = self.arena.capacity();
        self.reservations.reserve(bytes, || self.bytes(), capacity)
    }

    /// Releases an unused reservation.
    pub(crate) fn cancel(&self, bytes: usize) {
        self.reservations.leave(bytes);
    }

    /// Called under the commit lock, for each write set.
    pub(crate) fn note_last_sequence(&self, sequence: u64) {
        assert!(
            sequence > self.sequence_before.max(self.last_sequence()),
            "M3: the numbers of a memtable do not ascend"
        );
        self.reservations.note_last_sequence(sequence);
    }

    /// Called under the commit lock, for a write set that creates or drops trees.
    pub(crate) fn note_tree_changes(&self) {
        self.changes_trees.store(true, Ordering::Release);
    }

    pub(crate) fn changes_trees(&self) -> bool {
        self.changes_trees.load(Ordering::Acquire)
    }

    /// The last sequence number in a sealed memtable.
    pub(crate) fn last_sequence(&self) -> u64 {
        self.reservations.last_sequence()
    }

    /// Inserts the `count` operations of a write set that has reserved `reserved` bytes. The first of them has the
    /// sequence number `sequence`. Returns the keys whose update messages should be folded.
    pub(crate) fn insert<'a>(
        &self,
        ops: impl Iterator<Item = Op<'a>>,
        count: usize,
        mut sequence: u64,
        reserved: usize,
    ) -> Vec<HotKey> {
        assert!(
            sequence > self.sequence_before,
            "M3: a memtable gets the number of an older commit"
        );
        let end = sequence + count.max(1) as u64;
        let are_many = count >= MANY;
        let mut hot = Vec::new();
        let mut parts: Vec<Part> = Vec::new();
        let mut at = 0;
        for op in ops {
            let tree = match &op {
                Op::Entry { tree, .. } | Op::DeleteRange { tree, .. } => *tree,
                Op::CreateTree(..) | Op::DropTree(_) => {
                    sequence += 1;
                    continue;
                }
            };
            at = self.part_of(&mut parts, at, tree);
            let part = &mut parts[at];
            match op {
                Op::Entry {
                    kind, key, value, ..
                } => {
                    let link = Entry::new(key, sequence, kind, value)
                        .store(&self.arena)
                        .expect("M4: a memtable has room for what was reserved");
                    part.entries += 1;
                    part.bytes += (key.len() + value.len()) as u64;
                    if are_many && kind != Kind::Merge {
                        part.waiting.push(Waiting::new(link));
                    } else if self.insert_link(&part.tree_index, link) {
                        hot.push(HotKey::new(tree, &part.tree_index, link));
                    }
                }
                Op::DeleteRange { lower, upper, .. } => {
                    self.insert_range(&part.tree_index, lower, upper, sequence);
                }
                Op::CreateTree(..) | Op::DropTree(_) => {}
            }
            sequence += 1;
        }
        assert!(
            sequence <= end,
            "M3: a write set has more operations than numbers"
        );
        for mut part in parts {
            self.insert_waiting(&part.tree_index, &mut part.waiting);
            part.tree_index
                .entries
                .fetch_add(part.entries, Ordering::Relaxed);
            part.tree_index
                .bytes
                .fetch_add(part.bytes, Ordering::Relaxed);
        }
        self.cancel(reserved);
        hot
    }

    /// The index of a tree's part, which is added if missing. The trees of a write set often alternate, so the part
    /// after the one at `before` is likely.
    fn part_of<'a>(&'a self, parts: &mut Vec<Part<'a>>, before: usize, tree: TreeId) -> usize {
        let is_of = |at: &usize| parts.get(*at).is_some_and(|part| part.tree == tree);
        let likely = [before, before + 1, 0].into_iter().find(is_of);
        if let Some(at) = likely.or_else(|| parts.iter().position(|part| part.tree == tree)) {
            return at;
        }
        parts.push(Part {
            tree,
            tree_index: self.tree_index_or_new(tree),
            waiting: Vec::new(),
            entries: 0,
            bytes: 0,
        });
        parts.len() - 1
    }

    /// Inserts entries into the index of their tree.
    fn insert_waiting(&self, tree_index: &TreeIndex, waiting: &mut [Waiting]) {
        if waiting.is_empty() {
            return;
        }
        let taken = self.change_index(tree_index, |index| index.take_heads(&self.arena, waiting));
        if waiting.len() > 1 {
            batch::sort(&self.arena, waiting);
        }
        for group in waiting.chunks_mut(GROUP) {
            self.change_index(tree_index, |index| {
                index.insert_group(&self.arena, group, taken)
            });
        }
    }

    /// Changes the order of a tree's entries under its lock.
    fn change_index<T>(&self, tree_index: &TreeIndex, change: impl FnOnce(&mut Index) -> T) -> T {
        let mut index = tree_index.index.write();
        let before = index.bytes();
        let answer = change(&mut index);
        assert!(
            index.bytes() >= before,
            "M4: the index of a memtable shrinks"
        );
        let more = index.bytes() - before;
        drop(index);
        if more > 0 {
            self.node_bytes.fetch_add(more, Ordering::AcqRel);
        }
        answer
    }

    /// True for an update message that should be folded with the older ones.
    fn insert_link(&self, tree_index: &TreeIndex, link: Link) -> bool {
        self.change_index(tree_index, |index| {
            let behind = index.insert(&self.arena, link);
            self.count_depth(link, behind)
        })
    }

    fn insert_range(
        &self,
        tree_index: &TreeIndex,
        lower: &[u8],
        upper: Option<&[u8]>,
        sequence: u64,
    ) {
        if let Some(range) = KeyRange::new(lower, upper) {
            tree_index.ranges.insert(range, sequence);
            let bytes = range_delete_bytes(lower, upper);
            self.range_bytes.fetch_add(bytes, Ordering::AcqRel);
        }
    }

    /// Whether no write set is being inserted.
    pub(crate) fn has_no_writers(&self) -> bool {
        self.reservations.has_no_writers()
    }

    /// Whether nothing was inserted.
    pub(crate) fn is_empty(&self) -> bool {
        self.tree_indexes.read().is_empty()
    }

    /// The share that is used, 0 to 1.
    pub(crate) fn fill(&self) -> f64 {
        self.bytes() as f64 / self.arena.capacity() as f64
    }

    /// Bytes of memory that it takes at most.
    pub(crate) fn capacity(&self) -> usize {
        self.arena.capacity()
    }

    /// Bytes used, range deletes included.
    pub(crate) fn bytes(&self) -> usize {
        let others = [&self.node_bytes, &self.range_bytes];
        let others = others.map(|bytes| bytes.load(Ordering::Acquire));
        self.arena.used() + others.iter().sum::<usize>()
    }

    /// The trees that have entries here, with the number of entries and their bytes.
    pub(crate) fn trees(&self) -> Vec<(TreeId, u64, u64)> {
        let tree_indexes = self.tree_indexes.read();
        let sizes = |tree_index: &TreeIndex| {
            (
                tree_index.entries.load(Ordering::Relaxed),
                tree_index.bytes.load(Ordering::Relaxed),
            )
        };
        tree_indexes
            .iter()
            .map(|(id, tree_index)| (*id, sizes(tree_index).0, sizes(tree_index).1))
            .collect()
    }

    /// Statistics of one tree's entries.
    pub(crate) fn tree_stats(&self, tree: TreeId) -> Option<MemtableStats> {
        let tree_index = self.tree_index(tree)?;
        Some(MemtableStats {
            entries: tree_index.entries.load(Ordering::Relaxed),
            bytes: tree_index.bytes.load(Ordering::Relaxed),
            node_bytes: tree_index.index.read().bytes() as u64,
        })
    }

    /// Raises `last` to the last key of a tree here.
    pub(crate) fn raise_to_last_key(&self, tree: TreeId, last: &mut Vec<u8>) {
        let Some(tree_index) = self.tree_index(tree) else {
            return;
        };
        let link = tree_index.index.read().last_link();
        let key = link.map(|link| Entry::at(&self.arena, link).key);
        if let Some(key) = key.filter(|key| *key > last.as_slice()) {
            last.clear();
            last.extend_from_slice(key);
        }
    }

    /// The number of entries of a tree for which the index has room.
    pub(crate) fn slots(&self, tree: TreeId) -> u64 {
        self.tree_index(tree)
            .map_or(0, |tree_index| tree_index.index.read().slots())
    }

    /// The key and the sequence number of the entry in a slot of a tree's index.
    pub(crate) fn entry_in(&self, tree: TreeId, slot: u64) -> Option<(&[u8], u64)> {
        let tree_index = self.tree_index(tree)?;
        let link = tree_index.index.read().entry_in(slot)?;
        let entry = Entry::at(&self.arena, link);
        Some((entry.key, entry.sequence))
    }

    /// The sequence number of the newest entry of a key up to `sequence`, unless a range delete is newer.
    pub(crate) fn newest(&self, tree: TreeId, key: &[u8], sequence: u64) -> Option<u64> {
        let tree_index = self.tree_index(tree)?;
        let floor = tree_index.ranges.floor(key, sequence);
        let newest = tree_index.versions(&self.arena, key, sequence, floor, &mut Vec::new())?;
        Some(Entry::at(&self.arena, newest).sequence)
    }

    fn tree_index(&self, tree: TreeId) -> Option<Found<'_>> {
        if let Some((id, tree_index)) = self.in_front(tree).get()
            && *id == tree
        {
            return Some(Found::InFront(tree_index));
        }
        // Every tree index has a node. A snapshot that sees an entry also sees that there is one.
        if self.node_bytes.load(Ordering::Acquire) == 0 {
            return None;
        }
        let found = self.tree_indexes.read().get(&tree).cloned();
        found.map(Found::Shared)
    }

    /// The place of a tree among those that are found without a lock.
    fn in_front(&self, tree: TreeId) -> &OnceLock<(TreeId, Arc<TreeIndex>)> {
        &self.front[tree.0 as usize % FRONT]
    }

    fn tree_index_or_new(&self, tree: TreeId) -> Found<'_> {
        if let Some(tree_index) = self.tree_index(tree) {
            return tree_index;
        }
        let mut tree_indexes = self.tree_indexes.write();
        if let Some(tree_index) = tree_indexes.get(&tree) {
            return Found::Shared(tree_index.clone());
        }
        let index = Index::new();
        (self.node_bytes).fetch_add(index.bytes(), Ordering::AcqRel);
        let new = Arc::new(TreeIndex {
            index: RwLock::new(index),
            ranges: Ranges::default(),
            entries: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        });
        tree_indexes.insert(tree, new.clone());
        // Unless another tree is there.
        let _ = self.in_front(tree).set((tree, new.clone()));
        Found::Shared(new)
    }
}

impl TreeIndex {
    /// The newest version of `key` up to `sequence`, and in `more` the older ones down to the first put or delete.
    /// Versions below `floor` are deleted.
    fn versions(
        &self,
        arena: &Arena,
        key: &[u8],
        sequence: u64,
        floor: u64,
        more: &mut Vec<Link>,
    ) -> Option<Link> {
        let mut newest = None;
        let index = self.index.read();
        index.walk(index.seek(arena, key, sequence), |link| {
            let entry = Entry::at(arena, link);
            if entry.key != key || entry.sequence < floor {
                return false;
            }
            match newest {
                None => newest = Some(link),
                Some(_) => more.push(link),
            }
            entry.kind == Kind::Merge && !entry.whole
        });
        newest
    }
}

/// A value in a memtable, which it keeps in memory.
pub(crate) struct MemValue {
    memtable: Arc<Memtable>,
    link: Link,
}

impl Deref for MemValue {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        Entry::at(&self.memtable.arena, self.link).value
    }
}

/// Calls `visit` with the versions of `key` up to `sequence`, newest first, until it returns false. A range delete
/// over the key is a delete of it. The last argument of `visit` pins the value.
pub(crate) fn for_versions(
    memtable: &Arc<Memtable>,
    tree: TreeId,
    key: &[u8],
    sequence: u64,
    mut visit: impl FnMut(Kind, &[u8], &dyn Fn() -> MemValue) -> bool,
) {
    let pinned = |link| MemValue {
        memtable: memtable.clone(),
        link,
    };
    let Some(tree_index) = memtable.tree_index(tree) else {
        return;
    };
    let floor = tree_index.ranges.floor(key, sequence);
    let mut more = Vec::new();
    // `visit` may take long with an update message, so it is not called under the lock.
    let newest = tree_index.versions(&memtable.arena, key, sequence, floor, &mut more);
    for link in newest.into_iter().chain(more) {
        let entry = Entry::at(&memtable.arena, link);
        if !visit(entry.kind, entry.value, &|| pinned(link)) {
            return;
        }
    }
    if floor > 0 {
        visit(Kind::Delete, &[], &|| pinned(Link::NONE));
    }
}
