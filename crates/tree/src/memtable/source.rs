//! An iterator over one tree's keys in a memtable, as a snapshot sees them.

use std::borrow::Cow;
use std::sync::Arc;

use super::arena::Arena;
use super::entry::{Entry, Link};
use super::index::batch::prefetch;
use super::index::{Index, Position};
use super::ranges::View;
use super::{Memtable, TreeIndex};
use crate::bytes::SHORT_KEY_BYTES_MAX;
use crate::merge::{Fold, Resolver};
use crate::range::RangeSet;
use crate::run_index::separator;
use crate::{Kind, Result, TreeId};

/// Versions of one key that are skipped one by one before the iterator searches for the next key.
const STEPS_MAX: usize = 8;

/// Entries that are copied from the index of a sealed memtable at once.
const AHEAD: usize = 128;

/// Keys of a tree in a sealed memtable, from `first` to the next part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyPart {
    pub(crate) first: Vec<u8>,
    /// Bytes of their messages, all versions of a key counted.
    pub(crate) bytes: u64,
}

/// Whether two keys are the same. Neighbours mostly differ in their last bytes.
fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.last_chunk::<8>() == b.last_chunk::<8>() && a == b
}

/// A position at a key, with its newest message that the snapshot sees. Messages that a newer range delete covers
/// are skipped.
///
/// Links are copied from the index in batches: entries never move, and entries inserted later are too new
/// for the snapshot.
pub(crate) struct MemSource {
    memtable: Arc<Memtable>,
    tree_index: Arc<TreeIndex>,
    sequence: u64,
    resolver: Resolver,
    /// The visible range deletes, if there are any.
    ranges: Option<Arc<View>>,
    /// Consecutive entries in the direction of the walk. Forward, `links[next]` is `at`;
    /// backward, it is the first one that was not visited.
    links: Vec<Link>,
    next: usize,
    /// The newest visible version of the key here; none past either end.
    at: Link,
    /// Where a forward walk over a sealed memtable continues after `links`.
    behind: Option<Position>,
    is_sealed: bool,
}

impl MemSource {
    /// A source over a tree's entries up to `sequence`, or `None` if the memtable has none of that tree.
    pub(crate) fn new(
        memtable: &Arc<Memtable>,
        tree: TreeId,
        sequence: u64,
        resolver: Resolver,
    ) -> Option<MemSource> {
        let tree_index = memtable.tree_index(tree)?.clone();
        let memtable = memtable.clone();
        let ranges = tree_index.ranges.view(sequence);
        Some(MemSource {
            memtable,
            tree_index,
            sequence,
            resolver,
            ranges,
            links: Vec::new(),
            next: 0,
            at: Link::NONE,
            behind: None,
            is_sealed: false,
        })
    }

    /// A source over all of a tree's entries in a sealed memtable: faster for a walk over all of them, slower for a
    /// few.
    pub(crate) fn of_sealed(
        memtable: &Arc<Memtable>,
        tree: TreeId,
        resolver: Resolver,
    ) -> Option<MemSource> {
        let source = MemSource::new(memtable, tree, u64::MAX, resolver)?;
        Some(MemSource {
            is_sealed: true,
            ..source
        })
    }

    /// Divides the keys from `first` on into parts of about `bytes` bytes, and at least that many but for one that
    /// is alone. Only for a sealed memtable.
    pub(crate) fn key_parts(&self, first: &[u8], bytes: u64) -> Vec<KeyPart> {
        let arena = &self.memtable.arena;
        let index = self.tree_index.index.read();
        let mut parts: Vec<KeyPart> = Vec::new();
        let (mut links, mut last_key): (_, &[u8]) = (Vec::new(), &[]);
        let mut place = Some(index.seek(arena, first, u64::MAX));
        while let Some(from) = place {
            place = index.copy_many(from, AHEAD, &mut links);
            prefetch(arena, &links);
            for link in &links {
                let Entry { key, value, .. } = Entry::at(arena, *link);
                // All versions of a key are in one part.
                if parts
                    .last()
                    .is_none_or(|part| part.bytes >= bytes && key != last_key)
                {
                    let is_long = !parts.is_empty() && key.len() > SHORT_KEY_BYTES_MAX;
                    let first = if is_long {
                        separator(last_key, key).to_vec()
                    } else {
                        key.to_vec()
                    };
                    parts.push(KeyPart { first, bytes: 0 });
                }
                if let Some(part) = parts.last_mut() {
                    part.bytes += (key.len() + value.len()) as u64;
                }
                last_key = key;
            }
        }
        if let [.., before, last] = parts.as_mut_slice()
            && last.bytes < bytes
        {
            before.bytes += last.bytes;
            parts.pop();
        }
        parts
    }

    /// The visible range deletes, which cover the entries of older sources.
    pub(crate) fn ranges(&self) -> RangeSet {
        let view = self.ranges.as_ref();
        view.map_or_else(RangeSet::default, |view| view.set().clone())
    }

    /// Entries of the key with a lower sequence number were deleted by a range delete.
    fn floor(&self, key: &[u8]) -> u64 {
        self.ranges.as_ref().map_or(0, |view| view.floor(key))
    }

    fn entry_at(&self, at: Link) -> Entry<'_> {
        Entry::at(&self.memtable.arena, at)
    }

    pub(crate) fn key(&self) -> Option<&[u8]> {
        (!self.at.is_none()).then(|| self.entry_at(self.at).key)
    }

    /// The key here and its newest message.
    pub(crate) fn entry(&self) -> Option<(&[u8], Kind, &[u8])> {
        let entry = (!self.at.is_none()).then(|| self.entry_at(self.at))?;
        Some((entry.key, entry.kind, entry.value))
    }

    /// The newest message of the key here; only called at a key.
    pub(crate) fn message(&self) -> (Kind, &[u8]) {
        let entry = self.entry_at(self.at);
        (entry.kind, entry.value)
    }

    /// Adds the messages of the key here, newest first. True when nothing older matters.
    pub(crate) fn gather(&self, fold: &mut Fold) -> bool {
        let Entry {
            key,
            sequence,
            kind,
            value,
            ..
        } = self.entry_at(self.at);
        if kind != Kind::Merge {
            return fold.add(&self.resolver, key, kind, value);
        }
        let floor = self.floor(key);
        let (arena, mut more) = (&self.memtable.arena, Vec::new());
        let newest = (self.tree_index).versions(arena, key, sequence, floor, &mut more);
        for link in newest.into_iter().chain(more) {
            let entry = Entry::at(arena, link);
            if fold.add(&self.resolver, key, entry.kind, entry.value) {
                return true;
            }
        }
        floor > 0 && fold.add(&self.resolver, key, Kind::Delete, &[])
    }

    /// The messages of the key here, folded; only called at a key.
    pub(crate) fn folded(&self) -> Result<(Kind, Cow<'_, [u8]>)> {
        let (kind, value) = self.message();
        if kind != Kind::Merge {
            return Ok((kind, value.into()));
        }
        let mut fold = Fold::default();
        self.gather(&mut fold);
        let (kind, value) = fold.finish(&self.resolver, self.entry_at(self.at).key)?;
        Ok((kind, value.into()))
    }

    /// Goes to the first key, or the first at or after `key`.
    pub(crate) fn seek(&mut self, key: Option<&[u8]>) {
        self.take_from(|index, arena| match key {
            Some(key) => index.seek(arena, key, u64::MAX),
            None => index.first(),
        });
        self.find_forward();
    }

    /// Goes to the last key, or the last one below `key`.
    pub(crate) fn seek_before(&mut self, key: Option<&[u8]>) {
        let index = self.tree_index.index.read();
        let place = match key {
            Some(key) => index.seek(&self.memtable.arena, key, u64::MAX),
            None => index.end(),
        };
        index.copy_before(place, &mut self.links);
        drop(index);
        self.next = 0;
        self.find_backward();
    }

    pub(crate) fn step(&mut self) {
        if !self.at.is_none() {
            self.leave_key();
            self.find_forward();
        }
    }

    pub(crate) fn step_back(&mut self) {
        if !self.at.is_none() {
            self.find_backward();
        }
    }

    /// The entry at `next` of a forward walk, or none.
    fn here(&self) -> Link {
        self.links.get(self.next).copied().unwrap_or(Link::NONE)
    }

    /// Moves a forward walk to the next entry.
    fn advance(&mut self) {
        self.next += 1;
        if self.next < self.links.len() {
            return;
        }
        let Some(last) = self.links.last().copied() else {
            return;
        };
        match self.behind {
            Some(behind) => self.take_from(|_, _| behind),
            None if self.is_sealed => self.links.clear(),
            None => self.take_from(|index, arena| {
                let entry = Entry::at(arena, last);
                // The position after an entry is that of the next older version of its key.
                index.seek(arena, entry.key, entry.sequence - 1)
            }),
        }
    }

    /// Copies links from the index from a position on.
    fn take_from(&mut self, find: impl FnOnce(&Index, &Arena) -> Position) {
        let arena = &self.memtable.arena;
        let index = self.tree_index.index.read();
        let place = find(&index, arena);
        if self.is_sealed {
            self.behind = index.copy_many(place, AHEAD, &mut self.links);
            prefetch(arena, &self.links);
        } else {
            index.copy_from(place, &mut self.links);
        }
        self.next = 0;
    }

    /// Moves a forward walk to the first entry at or after version `sequence` of the key of `link`.
    fn jump(&mut self, link: Link, sequence: u64) {
        self.take_from(|index, arena| index.seek(arena, Entry::at(arena, link).key, sequence));
    }

    /// Moves a forward walk past all versions of the current key.
    fn leave_key(&mut self) {
        let from = self.here();
        for _ in 0..STEPS_MAX {
            self.advance();
            let here = self.here();
            if here.is_none() || !is_same(self.entry_at(here).key, self.entry_at(from).key) {
                return;
            }
        }
        // Sequence numbers begin with 1.
        self.jump(from, 0);
    }

    /// Skips versions that are too new, and keys that are deleted.
    fn find_forward(&mut self) {
        if self.is_sealed && self.ranges.is_none() {
            self.at = self.here();
            return;
        }
        let mut steps = 0;
        loop {
            let here = self.here();
            if here.is_none() {
                break;
            }
            let entry = self.entry_at(here);
            if entry.sequence > self.sequence {
                steps += 1;
                if steps < STEPS_MAX {
                    self.advance();
                } else {
                    self.jump(here, self.sequence);
                    steps = 0;
                }
            } else if entry.sequence < self.floor(entry.key) {
                self.leave_key();
            } else {
                break;
            }
        }
        self.at = self.here();
    }

    /// Finds the newest visible version of the next key before. Older versions of a key come first here.
    fn find_backward(&mut self) {
        let (mut found, mut steps) = (Link::NONE, 0);
        loop {
            if self.next == self.links.len() && !self.refill_backward() {
                break;
            }
            let here = self.links[self.next];
            let entry = self.entry_at(here);
            if !found.is_none() && self.entry_at(found).key != entry.key {
                break;
            }
            if steps == STEPS_MAX {
                found = self.jump_back(here);
                if !found.is_none() {
                    break;
                }
                steps = 0;
                continue;
            }
            if entry.sequence <= self.sequence && entry.sequence >= self.floor(entry.key) {
                found = here;
            }
            self.next += 1;
            steps += 1;
        }
        self.at = found;
    }

    /// Moves a backward walk before all versions of the key of `link`. Returns the newest visible one, or none.
    fn jump_back(&mut self, link: Link) -> Link {
        let arena = &self.memtable.arena;
        let key = Entry::at(arena, link).key;
        let floor = self.floor(key);
        let mut newest = Link::NONE;
        let index = self.tree_index.index.read();
        index.walk(index.seek(arena, key, self.sequence), |link| {
            let entry = Entry::at(arena, link);
            if entry.key == key && entry.sequence >= floor {
                newest = link;
            }
            false
        });
        index.copy_before(index.seek(arena, key, u64::MAX), &mut self.links);
        drop(index);
        self.next = 0;
        newest
    }

    /// False at the start.
    fn refill_backward(&mut self) -> bool {
        let Some(last) = self.links.last() else {
            return false;
        };
        let arena = &self.memtable.arena;
        let entry = Entry::at(arena, *last);
        let index = self.tree_index.index.read();
        let place = index.seek(arena, entry.key, entry.sequence);
        index.copy_before(place, &mut self.links);
        drop(index);
        self.next = 0;
        !self.links.is_empty()
    }
}
