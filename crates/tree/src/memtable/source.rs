//! A walk over one tree's keys in a memtable, as a snapshot sees them.

use std::sync::Arc;

use super::ranges::View;
use super::skiplist::{Entry, Link};
use super::{Memtable, TreeList};
use crate::merge::Resolver;
use crate::range::RangeSet;
use crate::{Kind, TreeId};

/// A position at a key, with its newest message that the snapshot sees. Update messages of a key
/// are folded into one. Messages that a newer range delete covers are passed over.
pub(crate) struct MemSource {
    memtable: Arc<Memtable>,
    list: Arc<TreeList>,
    sequence: u64,
    resolver: Resolver,
    /// The visible range deletes, if there are any.
    ranges: Option<Arc<View>>,
    /// The newest visible version of the key here; 0 past either end.
    at: Link,
    /// What the versions of the key amount to, when it takes more than one of them.
    folded: Option<(Kind, Vec<u8>)>,
}

impl MemSource {
    /// A source over a tree's entries up to `sequence`, or `None` if the memtable has none of that tree.
    pub(crate) fn new(
        memtable: &Arc<Memtable>,
        tree: TreeId,
        sequence: u64,
        resolver: Resolver,
    ) -> Option<MemSource> {
        let list = memtable.list(tree)?;
        let memtable = memtable.clone();
        let ranges = list.ranges.view(sequence);
        Some(MemSource {
            memtable,
            list,
            sequence,
            resolver,
            ranges,
            at: 0,
            folded: None,
        })
    }

    /// The visible range deletes: what older sources have there is gone.
    pub(crate) fn ranges(&self) -> RangeSet {
        let view = self.ranges.as_ref();
        view.map_or_else(RangeSet::default, |view| view.set().clone())
    }

    /// Entries of the key with a lower sequence number were deleted by a range delete.
    fn floor(&self, key: &[u8]) -> u64 {
        self.ranges.as_ref().map_or(0, |view| view.floor(key))
    }

    /// Whether the entry was deleted by a range delete.
    fn is_deleted(&self, at: Link) -> bool {
        let Some(view) = &self.ranges else {
            return false;
        };
        let entry = self.entry_at(at);
        entry.sequence < view.floor(entry.key)
    }

    fn entry_at(&self, at: Link) -> Entry<'_> {
        self.list.list.entry(&self.memtable.arena, at)
    }

    fn after(&self, at: Link) -> Link {
        self.list.list.next(&self.memtable.arena, at)
    }

    pub(crate) fn key(&self) -> Option<&[u8]> {
        (self.at != 0).then(|| self.entry_at(self.at).key)
    }

    /// The message of the key here; only called at a key.
    pub(crate) fn message(&self) -> (Kind, &[u8]) {
        match &self.folded {
            Some((kind, value)) => (*kind, value),
            None => {
                let entry = self.entry_at(self.at);
                (entry.kind, entry.value)
            }
        }
    }

    /// Goes to the first key, or the first at or after `key`.
    pub(crate) fn seek(&mut self, key: Option<&[u8]>) {
        let (list, arena) = (&self.list.list, &self.memtable.arena);
        let at = match key {
            Some(key) => list.seek(arena, key, u64::MAX),
            None => list.first(arena),
        };
        self.settle_forward(at);
    }

    /// Goes to the last key, or the last one below `key`.
    pub(crate) fn seek_before(&mut self, key: Option<&[u8]>) {
        let (list, arena) = (&self.list.list, &self.memtable.arena);
        let mut oldest = list.seek_before(arena, key);
        let mut found = 0;
        while oldest != 0 {
            let key = self.entry_at(oldest).key;
            let newest = list.seek(arena, key, self.sequence);
            if newest != 0 && self.entry_at(newest).key == key && !self.is_deleted(newest) {
                found = newest;
                break;
            }
            oldest = list.seek_before(arena, Some(key));
        }
        self.settle(found);
    }

    pub(crate) fn step(&mut self) {
        if self.at == 0 {
            return;
        }
        self.settle_forward(self.next_key(self.at));
    }

    /// The first entry of the next key.
    fn next_key(&self, at: Link) -> Link {
        let mut next = self.after(at);
        while next != 0 && self.entry_at(next).key == self.entry_at(at).key {
            next = self.after(next);
        }
        next
    }

    pub(crate) fn step_back(&mut self) {
        if self.at != 0 {
            let key = self.entry_at(self.at).key.to_vec();
            self.seek_before(Some(&key));
        }
    }

    /// Skips versions that are too new, and keys that are deleted, from `at` on.
    fn settle_forward(&mut self, mut at: Link) {
        while at != 0 {
            at = if self.entry_at(at).sequence > self.sequence {
                self.after(at)
            } else if self.is_deleted(at) {
                self.next_key(at)
            } else {
                break;
            };
        }
        self.settle(at);
    }

    fn settle(&mut self, at: Link) {
        self.at = at;
        self.folded = None;
        if at == 0 || self.entry_at(at).kind != Kind::Merge {
            return;
        }
        let key = self.entry_at(at).key;
        let floor = self.floor(key);
        let mut fold = self.resolver.fold(self.entry_at(at).value);
        let mut next = self.after(at);
        while next != 0 {
            let entry = self.entry_at(next);
            if entry.key != key || entry.sequence < floor {
                break;
            }
            if fold.add(key, entry.kind, entry.value) {
                self.folded = Some(fold.finish(key));
                return;
            }
            next = self.after(next);
        }
        if floor > 0 {
            fold.add(key, Kind::Delete, &[]);
        }
        self.folded = Some(fold.finish(key));
    }
}
