//! Hot keys: where a key has many consecutive update messages, they are folded into one, so that readers need not
//! apply all of them.
//!
//! Only visible messages are folded: no message can be inserted between them any more. The newest of them is replaced
//! in the index by an entry with the same sequence number that has the effect of all. Older snapshots still find the
//! other messages after it; readers that find it stop there.

use std::sync::Arc;

use super::entry::{Entry, Link};
use super::{Memtable, TreeIndex};
use crate::merge::{Fold, Resolver};
use crate::{Kind, TreeId};

/// This many consecutive update messages of a key are folded.
const FOLD_MIN: u16 = 16;

/// A key with many consecutive update messages.
pub(crate) struct HotKey {
    pub(crate) tree: TreeId,
    tree_index: Arc<TreeIndex>,
    /// One of its entries.
    link: Link,
}

/// The visible messages of a hot key, folded.
pub(crate) struct Folded {
    hot: HotKey,
    sequence: u64,
    kind: Kind,
    value: Vec<u8>,
}

impl HotKey {
    pub(super) fn new(tree: TreeId, tree_index: &Arc<TreeIndex>, link: Link) -> HotKey {
        HotKey {
            tree,
            tree_index: tree_index.clone(),
            link,
        }
    }
}

impl Memtable {
    /// Counts the consecutive update messages up to a new entry, which comes before `behind`. True if they
    /// should be folded. The caller holds the lock of the index.
    pub(super) fn count_depth(&self, link: Link, behind: Link) -> bool {
        let entry = Entry::at(&self.arena, link);
        if entry.kind != Kind::Merge {
            return false;
        }
        let below = if behind.is_none() {
            0
        } else {
            let older = Entry::at(&self.arena, behind);
            let counts = older.kind == Kind::Merge && !older.whole && older.key == entry.key;
            if counts { older.depth } else { 0 }
        };
        // If folding does not pay off yet, it is retried when there are twice as many.
        let depth = Entry::set_depth(&self.arena, link, below);
        depth >= FOLD_MIN && depth.is_power_of_two()
    }

    /// Folds the messages of a hot key up to `visible`: all commits up to there have been inserted. `None` if that does not
    /// pay off.
    pub(crate) fn fold(&self, hot: HotKey, visible: u64, resolver: &Resolver) -> Option<Folded> {
        let key = Entry::at(&self.arena, hot.link).key;
        let floor = hot.tree_index.ranges.floor(key, visible);
        let mut more = Vec::new();
        let newest = (hot.tree_index).versions(&self.arena, key, visible, floor, &mut more)?;
        let top = Entry::at(&self.arena, newest);
        let bottom = Entry::at(&self.arena, *more.last()?);
        let is_delta = |entry: &Entry<'_>| entry.kind == Kind::Merge && !entry.whole;
        let entries = || {
            let links = std::iter::once(newest).chain(more.iter().copied());
            links.map(|link| Entry::at(&self.arena, link))
        };
        // A large base is rewritten only for as many bytes of deltas.
        let bytes = entries().filter(is_delta).map(|entry| entry.value.len());
        if !is_delta(&bottom) && bottom.value.len() > bytes.sum() {
            return None;
        }
        let mut fold = Fold::default();
        let mut is_resolved = false;
        for entry in entries() {
            is_resolved = fold.add(resolver, key, entry.kind, entry.value);
        }
        if floor > 0 && !is_resolved {
            fold.add(resolver, key, Kind::Delete, &[]);
        }
        // Malformed messages stay as they are, for their readers to find.
        let (kind, value) = fold.finish(resolver, key).ok()?;
        Some(Folded {
            sequence: top.sequence,
            hot,
            kind,
            value,
        })
    }

    /// Bytes that a folded message takes.
    pub(crate) fn folded_bytes(&self, folded: &Folded) -> usize {
        let key = Entry::at(&self.arena, folded.hot.link).key;
        Memtable::op_bytes_max(key.len(), folded.value.len())
    }

    /// Inserts a folded message, for which `reserved` bytes are reserved, in the place of the newest one.
    pub(crate) fn insert_folded(&self, folded: &Folded, reserved: usize) {
        let entry = Entry {
            whole: true,
            ..Entry::new(
                Entry::at(&self.arena, folded.hot.link).key,
                folded.sequence,
                folded.kind,
                &folded.value,
            )
        };
        if let Some(link) = entry.store(&self.arena) {
            folded
                .hot
                .tree_index
                .index
                .write()
                .replace(&self.arena, link);
        }
        self.cancel(reserved);
    }
}
