//! Many entries of one commit at once.
//!
//! What an insert of a random key costs is the wait for memory: nodes and entries are rarely in the processor's cache.
//! So the entries of a large commit are sorted, which keeps the upper nodes in the cache, and go in by groups: first
//! all leaves of a group are found and looked at, so that the processor waits for all of them side by side.

use std::hint::black_box;

use super::{Entry, Head, Index, Link, NONE, Target, WIDTH, head_of};
use crate::memtable::arena::Arena;

/// Entries that are put into the index under one lock.
pub(in crate::memtable) const GROUP: usize = 32;

/// An entry on its way into the index.
#[derive(Clone, Copy)]
pub(in crate::memtable) struct Waiting {
    head: Head,
    /// The eight bytes behind the head. The sort needs them where many keys begin alike, as names do.
    next: Head,
    link: Link,
}

impl Waiting {
    pub(in crate::memtable) fn new(link: Link) -> Waiting {
        let (head, next) = (0, 0);
        Waiting { head, next, link }
    }
}

/// How long the prefix was behind which the heads of waiting entries are taken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::memtable) struct PrefixLen(usize);

/// Puts entries in order whose heads are taken.
pub(in crate::memtable) fn sort(arena: &Arena, batch: &mut [Waiting]) {
    batch.sort_unstable_by(|a, b| {
        (a.head, a.next).cmp(&(b.head, b.next)).then_with(|| {
            let (a, b) = (Entry::at(arena, a.link), Entry::at(arena, b.link));
            (a.key.cmp(b.key)).then_with(|| b.sequence.cmp(&a.sequence))
        })
    });
}

/// Looks at entries, so that they are in the processor's cache when they are needed one after another.
pub(in crate::memtable) fn prefetch(arena: &Arena, links: &[Link]) {
    let ends = links.iter().map(|link| Entry::at(arena, *link).key.last());
    black_box(ends.fold(0, |sum, end| sum ^ end.copied().unwrap_or(0)));
}

impl Index {
    /// Takes the heads of entries that are going to be inserted, behind the prefix that all of them and those here share.
    pub(in crate::memtable) fn take_heads(
        &mut self,
        arena: &Arena,
        batch: &mut [Waiting],
    ) -> PrefixLen {
        for waiting in &*batch {
            let key = Entry::at(arena, waiting.link).key;
            if self.head(key).is_none() {
                self.share_less(arena, key);
            }
        }
        self.retake_heads(arena, batch)
    }

    fn retake_heads(&self, arena: &Arena, batch: &mut [Waiting]) -> PrefixLen {
        let len = self.prefix_len();
        for waiting in batch {
            let key = Entry::at(arena, waiting.link).key;
            let rest = key.get(len..).unwrap_or_default();
            waiting.head = head_of(rest);
            waiting.next = head_of(rest.get(size_of::<Head>()..).unwrap_or_default());
        }
        PrefixLen(len)
    }

    fn prefix_len(&self) -> usize {
        self.prefix.as_ref().map_or(0, |prefix| prefix.len())
    }

    /// Adds at most [`GROUP`] entries, in their order. `taken` is what [`Index::take_heads`] said. Others may have inserted
    /// since.
    pub(in crate::memtable) fn insert_group(
        &mut self,
        arena: &Arena,
        group: &mut [Waiting],
        taken: PrefixLen,
    ) {
        // The prefix only gets shorter, so these keys have it still.
        if taken != PrefixLen(self.prefix_len()) {
            self.retake_heads(arena, group);
        }
        let target = |waiting: &Waiting| {
            let entry = Entry::at(arena, waiting.link);
            Target {
                head: waiting.head,
                key: entry.key,
                sequence: entry.sequence,
            }
        };
        // Ascending keys need no search.
        let last = self.leaves.get(self.last);
        let ascends = match (group.first(), last.count.checked_sub(1)) {
            (Some(first), Some(at)) => last.compare(arena, at, target(first)).is_lt(),
            _ => true,
        };
        if ascends {
            for waiting in &*group {
                self.insert(arena, waiting.link);
            }
            return;
        }
        let mut nodes = [NONE; GROUP];
        for (node, waiting) in nodes.iter_mut().zip(&*group) {
            *node = self.leaf_of(arena, target(waiting));
        }
        let looked_at = nodes.iter().take(group.len()).fold(0, |sum, node| {
            let leaf = self.leaves.get(*node);
            let heads = [0, WIDTH / 4, WIDTH / 2, WIDTH * 3 / 4, WIDTH - 1];
            let heads = heads.iter().fold(0, |sum, at| sum ^ leaf.heads[*at]);
            sum ^ heads ^ u64::from(leaf.links[WIDTH / 2] ^ leaf.next) ^ leaf.count as u64
        });
        black_box(looked_at);
        let mut full = NONE;
        for (node, waiting) in nodes.into_iter().zip(&*group) {
            let leaf = self.leaves.get_mut(node);
            if node == full || leaf.count == WIDTH {
                // The leaf is split, so those that follow may belong to the new one.
                self.insert(arena, waiting.link);
                full = node;
                continue;
            }
            let slot = leaf.search(arena, target(waiting));
            leaf.insert(slot, waiting.head, waiting.link);
        }
    }

    /// The leaf where the target is, or belongs.
    pub(super) fn leaf_of(&self, arena: &Arena, target: Target<'_>) -> u32 {
        (0..self.height).fold(self.root, |node, _| {
            let inner = self.inners.get(node);
            inner.children[inner.child_of(arena, target)]
        })
    }
}
