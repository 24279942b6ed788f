//! The free space of the data file: extents are allocated in multiples of 4 KiB.
//!
//! An extent is freed when the last handle to it is dropped, that is, when no version and no snapshot
//! refers to it. The durable superblock may still refer to it, so it is reused only after the next
//! checkpoint that began later is durable. An extent that no checkpoint can refer to is reused at once.
//!
//! Each checkpoint stores what is free after it. What was allocated for a snapshot, or for a load that is not
//! finished, counts as used there, so a store that was not closed may have used space that nothing refers to. It is
//! found by a walk in the background.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::block::Place;
use crate::disk::ALIGNMENT;
use crate::free_map::{DATA_START, FreeMap};
use crate::free_ranges::FreeRanges;

/// An allocated range of the data file. Dropping it releases the range.
///
/// S1: it is a whole number of units of 4 KiB behind the superblocks, and not empty. It ends inside the file, unless damaged
/// metadata refers to it twice.
pub(crate) struct Extent {
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// The newest durable checkpoint when this was allocated. With offset and length this names the content: the range
    /// is allocated again only after a later checkpoint.
    pub(crate) birth: u64,
    /// Checkpoints that were captured before this was allocated.
    born: u64,
    /// False if another handle has taken over.
    is_armed: AtomicBool,
    space: Arc<Space>,
}

impl Extent {
    /// The place of its first block.
    pub(crate) fn place(&self) -> Place {
        Place::new(self.offset, self.birth)
    }

    /// Drops the handle without releasing the range. The next handle for the range is responsible for it.
    pub(crate) fn disarm(&self) {
        self.is_armed.store(false, Ordering::Relaxed);
    }

    /// Whether the range is released when this is dropped.
    pub(crate) fn is_armed(&self) -> bool {
        self.is_armed.load(Ordering::Relaxed)
    }
}

/// Older than every checkpoint.
const FROM_DISK: u64 = 0;

impl Drop for Extent {
    fn drop(&mut self) {
        if !self.is_armed() {
            return;
        }
        assert!(
            is_possible(self.offset, self.len),
            "S1: an extent is not one of the data file"
        );
        let mut inner = self.space.inner.lock();
        assert!(
            self.born <= inner.captured,
            "S4: an extent is of a later checkpoint"
        );
        if self.born == inner.captured {
            inner.give(self.offset, self.len);
        } else {
            inner.released.push((self.offset, self.len));
        }
    }
}

/// Whether a range can be an extent.
fn is_possible(offset: u64, len: u64) -> bool {
    let unit = ALIGNMENT as u64;
    offset >= DATA_START && len > 0 && offset.is_multiple_of(unit) && len.is_multiple_of(unit)
}

/// The bits of a birth that have the generation. In an encrypted store the others count allocations; the highest one is 0.
pub(crate) const GENERATION_BITS: u32 = 40;
const ALLOCATION_BITS: u32 = 63 - GENERATION_BITS;

/// The allocator of one data file.
pub(crate) struct Space {
    inner: Mutex<Inner>,
}

impl Inner {
    /// The birth of an extent that is allocated now.
    fn next_birth(&mut self) -> u64 {
        let Some(number) = &mut self.births else {
            return self.generation;
        };
        *number = number.wrapping_add(1);
        let allocation = *number & ((1 << ALLOCATION_BITS) - 1);
        allocation << GENERATION_BITS | self.generation
    }
}

#[derive(Default)]
struct Inner {
    /// S2: free ranges are disjoint, lie behind the superblocks and end at `end` or before.
    free: FreeRanges,
    /// A free range that `visit_free` has taken for a moment; one at a time.
    visited: Option<(u64, u64)>,
    /// The number of times that used space was noted that nothing may refer to.
    leaks: u64,
    /// S3: the number of these notes that a search has dealt with.
    leaks_found: u64,
    /// Offsets of ranges that were released while they were free already; see [`Space::take_overlaps`].
    overlaps: BTreeSet<u64>,
    /// The end of the file: no allocated extent ends behind it.
    end: u64,
    /// S4: the number of captured checkpoints, plus one.
    captured: u64,
    /// S5: the newest durable checkpoint; it only grows.
    generation: u64,
    /// In an encrypted store: counts allocations, from a random number on.
    births: Option<u64>,
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

    /// As [`Space::new`], for an encrypted store: of the extents that were ever at one place no two have one birth, but for an
    /// accident of random numbers between the lives of two processes. FORMAT.md has the reason.
    pub(crate) fn with_unique_births(random: [u8; 16]) -> Arc<Space> {
        let space = Space::new();
        let (number, _) = random.split_first_chunk().expect("it has 16 bytes");
        space.inner.lock().births = Some(u64::from_le_bytes(*number));
        space
    }

    /// Marks a stored extent as used, of which the birth is not known, while a store is opened. `None` if it overlaps another
    /// one.
    pub(crate) fn claim(self: &Arc<Space>, offset: u64, len: u64) -> Option<Arc<Extent>> {
        let end = offset.checked_add(len)?;
        if !is_possible(offset, len) {
            return None;
        }
        let mut inner = self.inner.lock();
        if end > inner.end {
            let (old_end, gap) = (inner.end, offset.saturating_sub(inner.end));
            if offset < old_end {
                inner.free.carve(offset, old_end - offset)?;
            }
            inner.end = end;
            if gap > 0 {
                inner.give(old_end, gap);
            }
        } else {
            inner.free.carve(offset, len)?;
        }
        drop(inner);
        Some(Arc::new(Extent {
            offset,
            len,
            birth: 0,
            born: FROM_DISK,
            is_armed: AtomicBool::new(true),
            space: self.clone(),
        }))
    }

    /// A range of at least `bytes` bytes.
    pub(crate) fn allocate(self: &Arc<Space>, bytes: usize) -> Arc<Extent> {
        let len = (bytes.max(1) as u64).next_multiple_of(ALIGNMENT as u64);
        let mut inner = self.inner.lock();
        let offset = match inner.free.take(len) {
            Some(at) => at,
            None => {
                // A free range at the end is used, and the file grows after it.
                let at = match inner.free.last() {
                    Some((at, free)) if at + free == inner.end => at,
                    _ => inner.end,
                };
                inner.free.remove(at);
                inner.end = at + len;
                at
            }
        };
        assert!(
            is_possible(offset, len) && offset + len <= inner.end,
            "S1: an extent is allocated outside of the file"
        );
        assert!(
            !inner.free.overlaps(offset, len),
            "S2: an allocated extent is free"
        );
        let (born, birth) = (inner.captured, inner.next_birth());
        drop(inner);
        Arc::new(Extent {
            offset,
            len,
            birth,
            born,
            is_armed: AtomicBool::new(true),
            space: self.clone(),
        })
    }

    /// Calls `visit` with every free range of at least `least` bytes. The range is not allocated meanwhile.
    pub(crate) fn visit_free(&self, least: u64, mut visit: impl FnMut(u64, u64)) {
        let mut from = 0;
        loop {
            let mut inner = self.inner.lock();
            let Some((offset, len)) = inner.free.next(from, least) else {
                return;
            };
            inner.free.remove(offset);
            inner.visited = Some((offset, len));
            drop(inner);
            visit(offset, len);
            let mut inner = self.inner.lock();
            inner.visited = None;
            inner.give(offset, len);
            from = offset + len;
        }
    }

    /// The map of a checkpoint that captures the state now; see [`Space::checkpoint_captured`].
    pub(crate) fn free_map(&self, superseded: &[(u64, u64)]) -> FreeMap {
        self.inner.lock().free_map(superseded)
    }

    /// Called when a checkpoint has captured the state that it will make durable. Returns what is free once it is
    /// durable: all that is released by now, and `superseded`, which only the previous checkpoint needs. What is allocated from
    /// now on counts as free, since this checkpoint does not refer to it.
    pub(crate) fn checkpoint_captured(&self, superseded: &[(u64, u64)]) -> FreeMap {
        let mut inner = self.inner.lock();
        inner.captured += 1;
        let mut released = std::mem::take(&mut inner.released);
        inner.waiting.append(&mut released);
        inner.free_map(superseded)
    }

    /// Called when that checkpoint is durable, with its number. Returns where the file may end now.
    pub(crate) fn checkpoint_durable(&self, generation: u64) -> u64 {
        let mut inner = self.inner.lock();
        assert!(
            generation > inner.generation,
            "S5: a checkpoint is not newer than the one before"
        );
        assert!(
            inner.captured > FROM_DISK + 1,
            "S4: a checkpoint is durable that was not captured"
        );
        inner.generation = generation;
        for (offset, len) in std::mem::take(&mut inner.waiting) {
            inner.give(offset, len);
        }
        if let Some((at, free)) = inner.free.last()
            && at + free == inner.end
        {
            inner.free.remove(at);
            inner.end = at;
        }
        assert!(
            inner.end >= DATA_START,
            "S2: the file ends in its superblocks"
        );
        inner.end
    }

    /// Sets the number of the newest durable checkpoint, while a store is opened.
    pub(crate) fn set_generation(&self, generation: u64) {
        self.inner.lock().generation = generation;
    }

    /// Takes over a stored map, while a store is opened.
    pub(crate) fn restore(&self, map: &FreeMap) {
        let mut inner = self.inner.lock();
        inner.free = FreeRanges::default();
        inner.end = map.end;
        for (offset, len) in &map.ranges {
            inner.give(*offset, *len);
        }
    }

    /// A handle to a stored extent, which the map has as used. `None` if it is impossible, or if the map has it as free.
    pub(crate) fn adopt(
        self: &Arc<Space>,
        offset: u64,
        len: u64,
        birth: u64,
    ) -> Option<Arc<Extent>> {
        let end = offset.checked_add(len)?;
        let inner = self.inner.lock();
        let is_used = end <= inner.end && !inner.free.overlaps(offset, len);
        (is_possible(offset, len) && is_used).then(|| {
            Arc::new(Extent {
                offset,
                len,
                birth,
                born: FROM_DISK,
                is_armed: AtomicBool::new(true),
                space: self.clone(),
            })
        })
    }

    /// Notes that there may be used space that nothing refers to.
    pub(crate) fn note_leaks(&self) {
        self.inner.lock().leaks += 1;
    }

    /// The number of times that this was noted.
    pub(crate) fn leaks_noted(&self) -> u64 {
        self.inner.lock().leaks
    }

    /// Whether there may be used space that nothing refers to.
    pub(crate) fn has_leaks(&self) -> bool {
        let inner = self.inner.lock();
        inner.leaks != inner.leaks_found
    }

    /// Whether anything that the last captured checkpoint has as used was released since.
    pub(crate) fn has_released(&self) -> bool {
        !self.inner.lock().released.is_empty()
    }

    /// Frees used space that nothing refers to. There is no more of it, but for what was noted after the first `noted` times.
    pub(crate) fn give_leaked(&self, ranges: &[(u64, u64)], noted: u64) {
        let mut inner = self.inner.lock();
        for (offset, len) in ranges {
            inner.give(*offset, *len);
        }
        assert!(
            inner.leaks_found <= noted && noted <= inner.leaks,
            "S3: a search has found leaks that were not noted"
        );
        inner.leaks_found = noted;
    }

    /// Takes the offsets of ranges that were released while they were free already: damaged metadata refers to them twice.
    pub(crate) fn take_overlaps(&self) -> BTreeSet<u64> {
        std::mem::take(&mut self.inner.lock().overlaps)
    }

    /// Calls `visit` with where the file may end, while no extent can be allocated beyond it.
    pub(crate) fn with_end<R>(&self, visit: impl FnOnce(u64) -> R) -> R {
        visit(self.inner.lock().end)
    }

    /// Whether an allocated extent, which was not released, holds the byte at `offset`.
    pub(crate) fn is_used(&self, offset: u64) -> bool {
        let inner = self.inner.lock();
        let holds = |(at, len): &(u64, u64)| (*at..at + len).contains(&offset);
        let is_free = inner.free.overlaps(offset, 1);
        let is_released = inner.released.iter().chain(&inner.waiting).any(holds);
        offset < inner.end && !is_free && !is_released
    }

    pub(crate) fn stats(&self) -> SpaceStats {
        let inner = self.inner.lock();
        let sum = |ranges: &[(u64, u64)]| ranges.iter().map(|(_, len)| len).sum::<u64>();
        SpaceStats {
            file_bytes: inner.end,
            free_bytes: inner.free.bytes() + inner.visited.map_or(0, |(_, len)| len),
            waiting_bytes: sum(&inner.released) + sum(&inner.waiting),
        }
    }
}

impl Inner {
    /// Frees a range. What is free already, or was cut off with the end of the file, was released by another reference to it:
    /// the space is not given twice.
    fn give(&mut self, offset: u64, len: u64) {
        if offset + len > self.end || !self.free.give(offset, len) {
            self.note_overlap(offset);
        }
    }

    fn note_overlap(&mut self, offset: u64) {
        // The range stays used as far as it is not free.
        self.leaks += 1;
        self.overlaps.insert(offset);
    }

    fn free_map(&mut self, superseded: &[(u64, u64)]) -> FreeMap {
        let others = self.released.iter().chain(&self.waiting);
        let others = others.chain(&self.visited).chain(superseded).copied();
        let end = self.end;
        let is_inside = |(offset, len): &(u64, u64)| offset + len <= end;
        let (others, cut_off): (Vec<_>, Vec<_>) = others.partition(is_inside);
        let ranges = self.free.iter().chain(others).collect();
        let mut overlaps: Vec<u64> = cut_off.iter().map(|(offset, _)| *offset).collect();
        let map = FreeMap::new(self.end, ranges, |offset| overlaps.push(offset));
        overlaps.into_iter().for_each(|at| self.note_overlap(at));
        map
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
        space.checkpoint_captured(&[]);
        drop(first);
        assert_eq!(space.allocate(1).offset, DATA_START + 3 * K4);
        space.checkpoint_captured(&[]);
        assert_eq!(space.checkpoint_durable(1), DATA_START + 3 * K4);
        let third = space.allocate(4096);
        assert_eq!(third.offset, DATA_START);
        assert_eq!(space.stats().free_bytes, K4);
        drop((second, third));
        space.checkpoint_captured(&[]);
        assert_eq!(space.checkpoint_durable(2), DATA_START);
    }

    /// A panic in the destructor of an extent ended the process.
    #[test]
    fn a_range_that_is_referred_to_twice_is_freed_once() {
        let space = Space::new();
        drop(space.allocate(10 * K4 as usize));
        let map = FreeMap::new(DATA_START + 10 * K4, Vec::new(), |_| unreachable!());
        space.restore(&map);
        for (generation, held_at_capture) in [(3, false), (4, true)] {
            let twice = [(2, 2), (3, 3), (2, 2)]
                .map(|(at, len)| space.adopt(DATA_START + at * K4, len * K4, 0).unwrap());
            if held_at_capture {
                space.checkpoint_captured(&[]);
            }
            drop(twice);
            let map = space.checkpoint_captured(&[]);
            let free = (DATA_START + 2 * K4, 2 * K4);
            assert_eq!(map.ranges, [free]);
            space.checkpoint_durable(generation);
            assert!(space.has_leaks());
            let overlaps = space.take_overlaps();
            assert!(overlaps.contains(&(DATA_START + 2 * K4)), "{overlaps:?}");
            assert!(overlaps.contains(&(DATA_START + 3 * K4)), "{overlaps:?}");
            assert_eq!(space.take_overlaps().len(), 0);
            space.restore(&FreeMap::new(
                DATA_START + 10 * K4,
                Vec::new(),
                |_| unreachable!(),
            ));
        }
    }

    /// The range that was cut off was free behind the end of the file, and was allocated there.
    #[test]
    fn a_second_reference_to_what_was_cut_off_frees_nothing() {
        let space = Space::new();
        drop(space.allocate(10 * K4 as usize));
        space.restore(&FreeMap::new(
            DATA_START + 10 * K4,
            Vec::new(),
            |_| unreachable!(),
        ));
        let twice = [(); 2].map(|()| space.adopt(DATA_START + 6 * K4, 4 * K4, 0).unwrap());
        let [first, second] = twice;
        drop(first);
        space.checkpoint_captured(&[]);
        assert_eq!(space.checkpoint_durable(1), DATA_START + 6 * K4);
        drop(second);
        space.checkpoint_captured(&[]);
        assert_eq!(space.checkpoint_durable(2), DATA_START + 6 * K4);
        assert!(space.has_leaks());
        assert_eq!(space.allocate(1).offset, DATA_START + 6 * K4);
    }

    /// A user of space that is gone since the capture has released it: the map, which has it as used, is not exact.
    #[test]
    fn a_release_since_the_capture_is_noticed() {
        let space = Space::new();
        let loaded = space.allocate(1);
        space.checkpoint_captured(&[]);
        assert!(!space.has_released());
        drop(space.allocate(1));
        assert!(
            !space.has_released(),
            "the capture does not have it as used"
        );
        drop(loaded);
        assert!(space.has_released());
        space.checkpoint_captured(&[]);
        assert!(!space.has_released());
    }

    /// The end of a search forgot what was noted while it ran.
    #[test]
    fn leaks_that_are_noted_during_a_search_stay_noted() {
        let space = Space::new();
        assert!(!space.has_leaks());
        space.note_leaks();
        let noted = space.leaks_noted();
        space.note_leaks();
        space.give_leaked(&[], noted);
        assert!(space.has_leaks());
        space.give_leaked(&[], space.leaks_noted());
        assert!(!space.has_leaks());
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
