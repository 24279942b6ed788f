//! The free space of the data file: extents are allocated in multiples of 4 KiB.
//!
//! An extent is freed when the last handle to it is dropped, that is, when no version and no snapshot
//! refers to it. The durable superblock may still refer to it, so it is reused only after the next
//! checkpoint that began later is durable. An extent that no checkpoint can refer to is reused at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::disk::ALIGNMENT;

/// Where the first extent may start: after the two superblocks.
pub(crate) const DATA_START: u64 = 2 * ALIGNMENT as u64;

/// An allocated range of the data file. Dropping it releases the range.
pub(crate) struct Extent {
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// Checkpoints that were captured before this was allocated.
    born: u64,
    space: Arc<Space>,
}

/// Older than every checkpoint.
const FROM_DISK: u64 = 0;

impl Drop for Extent {
    fn drop(&mut self) {
        let mut inner = self.space.inner.lock();
        if self.born == inner.captured {
            inner.give(self.offset, self.len);
        } else {
            inner.released.push((self.offset, self.len));
        }
    }
}

/// The allocator of one data file.
pub(crate) struct Space {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Free ranges by offset; adjacent ones are joined.
    free: BTreeMap<u64, u64>,
    /// Where the file ends.
    end: u64,
    /// The number of captured checkpoints, plus one.
    captured: u64,
    /// Released since the last checkpoint began.
    released: Vec<(u64, u64)>,
    /// Released before the running checkpoint began.
    waiting: Vec<(u64, u64)>,
}

/// Statistics of the data file, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpaceStats {
    /// Length of the file.
    pub file_bytes: u64,
    /// Free and ready for use.
    pub free_bytes: u64,
    /// Released, but the durable superblock still refers to it.
    pub waiting_bytes: u64,
}

impl Space {
    /// The allocator of an empty file.
    pub(crate) fn new() -> Arc<Space> {
        let inner = Inner {
            end: DATA_START,
            captured: FROM_DISK + 1,
            ..Inner::default()
        };
        Arc::new(Space {
            inner: Mutex::new(inner),
        })
    }

    /// Marks a stored extent as used, while a store is opened. `None` if it overlaps another one.
    pub(crate) fn claim(self: &Arc<Space>, offset: u64, len: u64) -> Option<Arc<Extent>> {
        let unit = ALIGNMENT as u64;
        let end = offset.checked_add(len)?;
        if offset < DATA_START
            || len == 0
            || !offset.is_multiple_of(unit)
            || !len.is_multiple_of(unit)
        {
            return None;
        }
        let mut inner = self.inner.lock();
        if end > inner.end {
            let (old_end, gap) = (inner.end, offset.saturating_sub(inner.end));
            if gap > 0 {
                inner.give(old_end, gap);
            }
            if offset < old_end {
                inner.carve(offset, old_end - offset)?;
            }
            inner.end = end;
        } else {
            inner.carve(offset, len)?;
        }
        drop(inner);
        Some(Arc::new(Extent {
            offset,
            len,
            born: FROM_DISK,
            space: self.clone(),
        }))
    }

    /// A range of at least `bytes` bytes.
    pub(crate) fn allocate(self: &Arc<Space>, bytes: usize) -> Arc<Extent> {
        let len = (bytes.max(1) as u64).next_multiple_of(ALIGNMENT as u64);
        let mut inner = self.inner.lock();
        let fitting = inner
            .free
            .iter()
            .find(|(_, free)| **free >= len)
            .map(|(at, free)| (*at, *free));
        let offset = match fitting {
            Some((at, free)) => {
                inner.free.remove(&at);
                if free > len {
                    inner.free.insert(at + len, free - len);
                }
                at
            }
            None => {
                // A free range at the end is used, and the file grows after it.
                let at = match inner.free.last_key_value() {
                    Some((at, free)) if at + free == inner.end => *at,
                    _ => inner.end,
                };
                inner.free.remove(&at);
                inner.end = at + len;
                at
            }
        };
        let born = inner.captured;
        drop(inner);
        Arc::new(Extent {
            offset,
            len,
            born,
            space: self.clone(),
        })
    }

    /// Calls `visit` with every free range of at least `least` bytes. The range is not allocated meanwhile.
    pub(crate) fn visit_free(&self, least: u64, mut visit: impl FnMut(u64, u64)) {
        let mut from = 0;
        loop {
            let mut inner = self.inner.lock();
            let next = inner.free.range(from..).find(|(_, len)| **len >= least);
            let Some((offset, len)) = next.map(|(offset, len)| (*offset, *len)) else {
                return;
            };
            inner.free.remove(&offset);
            drop(inner);
            visit(offset, len);
            self.inner.lock().give(offset, len);
            from = offset + len;
        }
    }

    /// Called when a checkpoint has captured the state that it will make durable.
    pub(crate) fn checkpoint_captured(&self) {
        let mut inner = self.inner.lock();
        inner.captured += 1;
        let mut released = std::mem::take(&mut inner.released);
        inner.waiting.append(&mut released);
    }

    /// Called when that checkpoint is durable. Returns where the file may end now.
    pub(crate) fn checkpoint_durable(&self) -> u64 {
        let mut inner = self.inner.lock();
        for (offset, len) in std::mem::take(&mut inner.waiting) {
            inner.give(offset, len);
        }
        if let Some((at, free)) = inner.free.last_key_value().map(|(at, free)| (*at, *free))
            && at + free == inner.end
        {
            inner.free.remove(&at);
            inner.end = at;
        }
        inner.end
    }

    /// Calls `visit` with where the file may end, while no extent can be allocated beyond it.
    pub(crate) fn with_end<R>(&self, visit: impl FnOnce(u64) -> R) -> R {
        visit(self.inner.lock().end)
    }

    /// Whether an allocated extent, which was not released, holds the byte at `offset`.
    pub(crate) fn is_used(&self, offset: u64) -> bool {
        let inner = self.inner.lock();
        let holds = |(at, len): &(u64, u64)| (*at..at + len).contains(&offset);
        let before = inner.free.range(..=offset).next_back();
        let is_free = before.is_some_and(|(at, len)| holds(&(*at, *len)));
        let is_released = inner.released.iter().chain(&inner.waiting).any(holds);
        offset < inner.end && !is_free && !is_released
    }

    pub(crate) fn stats(&self) -> SpaceStats {
        let inner = self.inner.lock();
        let sum = |ranges: &[(u64, u64)]| ranges.iter().map(|(_, len)| len).sum::<u64>();
        SpaceStats {
            file_bytes: inner.end,
            free_bytes: inner.free.values().sum(),
            waiting_bytes: sum(&inner.released) + sum(&inner.waiting),
        }
    }
}

impl Inner {
    /// Adds a free range and joins it with the adjacent ones.
    fn give(&mut self, mut offset: u64, mut len: u64) {
        if let Some((before, before_len)) = self.free.range(..offset).next_back() {
            let (before, before_len) = (*before, *before_len);
            assert!(before + before_len <= offset, "an extent was freed twice");
            if before + before_len == offset {
                self.free.remove(&before);
                (offset, len) = (before, len + before_len);
            }
        }
        if let Some((after, after_len)) = self.free.range(offset + 1..).next() {
            let (after, after_len) = (*after, *after_len);
            assert!(offset + len <= after, "an extent was freed twice");
            if offset + len == after {
                self.free.remove(&after);
                len += after_len;
            }
        }
        self.free.insert(offset, len);
    }

    /// Allocates exactly this range; `None` if it is not all free.
    fn carve(&mut self, offset: u64, len: u64) -> Option<()> {
        let (at, free) = self
            .free
            .range(..=offset)
            .next_back()
            .map(|(at, free)| (*at, *free))?;
        if at + free < offset + len {
            return None;
        }
        self.free.remove(&at);
        if at < offset {
            self.free.insert(at, offset - at);
        }
        if at + free > offset + len {
            self.free.insert(offset + len, at + free - offset - len);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const K4: u64 = 4096;

    #[test]
    fn reuses_only_after_a_checkpoint() {
        let space = Space::new();
        let first = space.allocate(5000);
        let second = space.allocate(1);
        assert_eq!((first.offset, first.len), (DATA_START, 2 * K4));
        assert_eq!(second.offset, DATA_START + 2 * K4);
        space.checkpoint_captured();
        drop(first);
        assert_eq!(space.allocate(1).offset, DATA_START + 3 * K4);
        space.checkpoint_captured();
        assert_eq!(space.checkpoint_durable(), DATA_START + 3 * K4);
        let third = space.allocate(4096);
        assert_eq!(third.offset, DATA_START);
        assert_eq!(space.stats().free_bytes, K4);
        drop((second, third));
        space.checkpoint_captured();
        assert_eq!(space.checkpoint_durable(), DATA_START);
    }

    #[test]
    fn claims_in_any_order_and_refuses_overlap() {
        let space = Space::new();
        let high = space.claim(DATA_START + 10 * K4, 2 * K4).unwrap();
        let low = space.claim(DATA_START + 2 * K4, 3 * K4).unwrap();
        for (offset, len) in [(2, 1), (4, 2), (9, 2), (11, 5), (0, 0)] {
            assert!(
                space.claim(DATA_START + offset * K4, len * K4).is_none(),
                "{offset} {len}"
            );
        }
        assert!(space.claim(DATA_START + 1, K4).is_none());
        assert!(space.claim(0, K4).is_none());
        let between = space.allocate(5 * K4 as usize);
        assert_eq!(between.offset, DATA_START + 5 * K4);
        drop((high, low));
    }
}
