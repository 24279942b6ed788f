//! A walk over one tree's keys in a memtable, as a snapshot sees them.

use std::sync::Arc;

use super::skiplist::{Entry, Link};
use super::{Memtable, TreeList};
use crate::merge::Resolver;
use crate::{Kind, TreeId};

/// A position at a key, with its newest message that the snapshot sees. Update messages of a key
/// are folded into one.
pub(crate) struct MemSource {
    memtable: Arc<Memtable>,
    list: Arc<TreeList>,
    sequence: u64,
    resolver: Resolver,
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
        Some(MemSource {
            memtable,
            list,
            sequence,
            resolver,
            at: 0,
            folded: None,
        })
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
            if newest != 0 && self.entry_at(newest).key == key {
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
        let mut next = self.after(self.at);
        while next != 0 && self.entry_at(next).key == self.entry_at(self.at).key {
            next = self.after(next);
        }
        self.settle_forward(next);
    }

    pub(crate) fn step_back(&mut self) {
        if self.at != 0 {
            let key = self.entry_at(self.at).key.to_vec();
            self.seek_before(Some(&key));
        }
    }

    /// Skips versions that are too new, from `at` on.
    fn settle_forward(&mut self, mut at: Link) {
        while at != 0 && self.entry_at(at).sequence > self.sequence {
            at = self.after(at);
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
        let mut fold = self.resolver.fold(self.entry_at(at).value);
        let mut next = self.after(at);
        while next != 0 {
            let entry = self.entry_at(next);
            if entry.key != key || fold.add(key, entry.kind, entry.value) {
                break;
            }
            next = self.after(next);
        }
        self.folded = Some(fold.finish(key));
    }
}
