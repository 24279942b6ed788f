//! Inserting many entries of one commit.
//!
//! Cache misses dominate the cost of inserting a random key: nodes and entries are rarely in the processor's cache.
//! So the entries of a large commit are sorted, which keeps the upper nodes in the cache, and inserted in groups: first
//! all leaves of a group are found and prefetched, so that their cache misses overlap.

use std::hint::black_box;

use super::{Entry, Head, Index, Link, NONE, Target, WIDTH, head_of};
use crate::memtable::arena::Arena;

/// Entries that are inserted while the lock is held once.
pub(in crate::memtable) const GROUP: usize = 32;

/// An entry that is not in the index yet.
#[derive(Clone, Copy)]
pub(in crate::memtable) struct Waiting {
    head: Head,
    /// The eight bytes after the head. The sort needs them where many keys have long common prefixes, as names do.
    next: Head,
    link: Link,
}

impl Waiting {
    pub(in crate::memtable) fn new(link: Link) -> Waiting {
        let (head, next) = (0, 0);
        Waiting { head, next, link }
    }
}

/// The length of the prefix after which the heads of waiting entries are taken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::memtable) struct PrefixLen(usize);

/// Sorts entries whose heads are set.
pub(in crate::memtable) fn sort(arena: &Arena, batch: &mut [Waiting]) {
    batch.sort_unstable_by(|a, b| {
        (a.head, a.next).cmp(&(b.head, b.next)).then_with(|| {
            let (a, b) = (Entry::at(arena, a.link), Entry::at(arena, b.link));
            (a.key.cmp(b.key)).then_with(|| b.sequence.cmp(&a.sequence))
        })
    });
}

/// Reads entries ahead into the processor's cache, so that their cache misses overlap.
pub(in crate::memtable) fn prefetch(arena: &Arena, links: &[Link]) {
    let ends = links.iter().map(|link| Entry::at(arena, *link).key.last());
    black_box(ends.fold(0, |sum, end| sum ^ end.copied().unwrap_or(0)));
}

impl Index {
    /// Sets the heads of entries to be inserted, after the prefix that they share with the entries in the index.
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
            // All keys of the index and of the batch begin with the prefix.
            let rest = &key[len..];
            waiting.head = head_of(rest);
            waiting.next = head_of(&rest[rest.len().min(size_of::<Head>())..]);
        }
        PrefixLen(len)
    }

    fn prefix_len(&self) -> usize {
        self.prefix.as_ref().map_or(0, |prefix| prefix.len())
    }

    /// Adds at most [`GROUP`] entries, in their order. `taken` is the result of [`Index::take_heads`]. Others may have
    /// inserted since.
    pub(in crate::memtable) fn insert_group(
        &mut self,
        arena: &Arena,
        group: &mut [Waiting],
        taken: PrefixLen,
    ) {
        // The shared prefix only gets shorter, so these keys still have it.
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
        let mut before = None;
        for (node, waiting) in nodes.iter_mut().zip(&*group) {
            *node = self.next_leaf_of(arena, target(waiting), &mut before);
        }
        let looked_at = nodes.iter().take(group.len()).fold(0, |sum, node| {
            let leaf = self.leaves.get(*node);
            let heads = [0, WIDTH / 4, WIDTH / 2, WIDTH * 3 / 4, WIDTH - 1];
            let heads = heads.iter().fold(0, |sum, at| sum ^ leaf.heads[*at]);
            sum ^ heads ^ u64::from(leaf.links[WIDTH / 2].offset() ^ leaf.next) ^ leaf.count as u64
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

    /// As [`Index::leaf_of`], for targets that ascend. `before` has the lowest inner node and the child of the target before:
    /// mostly the leaf is one of the next children.
    fn next_leaf_of(
        &self,
        arena: &Arena,
        target: Target<'_>,
        before: &mut Option<(u32, usize)>,
    ) -> u32 {
        if let Some((node, child)) = before {
            let inner = self.inners.get(*node);
            // The first head of a node is never read.
            if inner.count > 1 && target.head < inner.heads[inner.count - 1] {
                while *child + 1 < inner.count && inner.is_at_or_before(arena, *child + 1, target) {
                    *child += 1;
                }
                return inner.children[*child];
            }
        }
        (0..self.height).fold(self.root, |node, _| {
            let inner = self.inners.get(node);
            let child = inner.child_of(arena, target);
            *before = Some((node, child));
            inner.children[child]
        })
    }

    /// The leaf where the target is, or belongs.
    pub(super) fn leaf_of(&self, arena: &Arena, target: Target<'_>) -> u32 {
        (0..self.height).fold(self.root, |node, _| {
            let inner = self.inners.get(node);
            inner.children[inner.child_of(arena, target)]
        })
    }
}
