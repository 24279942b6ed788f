//! Free ranges of the data file, by offset and by size.

use std::collections::{BTreeMap, BTreeSet};

use crate::disk::ALIGNMENT;

/// Ranges of about one size, of which the lowest are tried before a larger one is split.
const TRIED_MAX: usize = 32;

/// Free ranges. Adjacent ones are joined.
///
/// Beside the map by offset there is a set of offsets for each class of sizes, four for each power of two. A range
/// of a higher class always fits, so an allocation looks at the first range of each class above its own, and at a few
/// of its own, however many ranges there are.
#[derive(Default)]
pub(crate) struct FreeRanges {
    /// A1: ranges neither overlap nor touch.
    by_offset: BTreeMap<u64, u64>,
    /// A2: the offsets of the ranges of a class; no set is empty.
    by_class: BTreeMap<u32, BTreeSet<u64>>,
    /// A3: the sum of the lengths.
    bytes: u64,
}

/// The class of a size, monotonic. Classes of sizes below eight units hold one size each.
fn class(len: u64) -> u32 {
    let units = len / ALIGNMENT as u64;
    if units < 8 {
        return units as u32;
    }
    let log = units.ilog2();
    log * 4 + (units >> (log - 2) & 3) as u32
}

impl FreeRanges {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The ranges in the order of their offsets.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.by_offset.iter().map(|(offset, len)| (*offset, *len))
    }

    /// The first range at or after `from` of at least `least` bytes.
    pub(crate) fn next(&self, from: u64, least: u64) -> Option<(u64, u64)> {
        let mut ranges = self.by_offset.range(from..);
        let found = ranges.find(|(_, len)| **len >= least)?;
        Some((*found.0, *found.1))
    }

    /// The range with the highest offset.
    pub(crate) fn last(&self) -> Option<(u64, u64)> {
        let (offset, len) = self.by_offset.last_key_value()?;
        Some((*offset, *len))
    }

    /// Whether any byte of a range is free.
    pub(crate) fn overlaps(&self, offset: u64, len: u64) -> bool {
        let mut before = self.by_offset.range(..offset.saturating_add(len));
        before
            .next_back()
            .is_some_and(|(at, free)| at.saturating_add(*free) > offset)
    }

    fn insert(&mut self, offset: u64, len: u64) {
        assert!(len > 0, "A1: a free range is empty");
        let before = self.by_offset.insert(offset, len);
        assert!(before.is_none(), "A1: a range is free twice");
        let is_new = self.by_class.entry(class(len)).or_default().insert(offset);
        assert!(is_new, "A2: a class has a range that is not free");
        self.bytes += len;
    }

    /// Removes the range that begins at `offset`.
    pub(crate) fn remove(&mut self, offset: u64) -> Option<u64> {
        let len = self.by_offset.remove(&offset)?;
        let class = class(len);
        let offsets = self.by_class.get_mut(&class);
        let offsets = offsets.expect("A2: each free range has a class");
        let was_here = offsets.remove(&offset);
        assert!(was_here, "A2: a free range is not in its class");
        if offsets.is_empty() {
            self.by_class.remove(&class);
        }
        assert!(self.bytes >= len, "A3: more is taken than is free");
        self.bytes -= len;
        Some(len)
    }

    /// Takes `len` bytes out of a range, at a low offset. `None` if no range is known to have as many.
    pub(crate) fn take(&mut self, len: u64) -> Option<u64> {
        let own = class(len);
        let of_own = self.by_class.get(&own).into_iter().flatten();
        let fitting = of_own
            .take(TRIED_MAX)
            .find(|offset| self.by_offset.get(offset).is_some_and(|free| *free >= len));
        let larger = self.by_class.range(own + 1..);
        let larger = larger.filter_map(|(_, offsets)| offsets.first());
        let offset = *larger.chain(fitting).min()?;
        let free = self.remove(offset)?;
        assert!(free >= len, "A2: a range is shorter than its class");
        if free > len {
            self.insert(offset + len, free - len);
        }
        Some(offset)
    }

    /// Adds a range and joins it with the adjacent ones. False, without a change, if a part of it is free already.
    #[must_use = "a range that was not added is lost"]
    pub(crate) fn give(&mut self, mut offset: u64, mut len: u64) -> bool {
        if self.overlaps(offset, len) {
            return false;
        }
        if let Some((before, before_len)) = self.by_offset.range(..offset).next_back() {
            let (before, before_len) = (*before, *before_len);
            if before + before_len == offset {
                self.remove(before);
                (offset, len) = (before, len + before_len);
            }
        }
        if let Some((after, after_len)) = self.by_offset.range(offset..).next() {
            let (after, after_len) = (*after, *after_len);
            if offset + len == after {
                self.remove(after);
                len += after_len;
            }
        }
        self.insert(offset, len);
        true
    }

    /// Takes exactly this range; `None` if it is not all free.
    pub(crate) fn carve(&mut self, offset: u64, len: u64) -> Option<()> {
        let (at, free) = self.by_offset.range(..=offset).next_back()?;
        let (at, free) = (*at, *free);
        if at + free < offset + len {
            return None;
        }
        self.remove(at);
        if at < offset {
            self.insert(at, offset - at);
        }
        if at + free > offset + len {
            self.insert(offset + len, at + free - offset - len);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: u64 = ALIGNMENT as u64;

    #[test]
    fn classes_ascend_with_the_size() {
        let mut last = 0;
        for units in 1..5000 {
            let class = class(units * UNIT);
            assert!(class == last || (class > last && units > 1) || units == 1);
            assert!(class >= last);
            last = class;
        }
    }

    /// Beside a bitmap: what is taken was free, nothing is lost, and space is found while there is enough in one place.
    #[test]
    fn finds_what_a_bitmap_finds() {
        let mut free = FreeRanges::default();
        let mut map = vec![true; 4000];
        assert!(free.give(0, 4000 * UNIT));
        let mut held: Vec<(u64, u64)> = Vec::new();
        let mut random = 5u64;
        for step in 0..20_000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            if random.is_multiple_of(3) && !held.is_empty() {
                let (offset, len) = held.swap_remove((random >> 8) as usize % held.len());
                for at in offset..offset + len {
                    assert!(!std::mem::replace(&mut map[at as usize], true));
                }
                assert!(free.give(offset * UNIT, len * UNIT));
            } else {
                let len = 1 + (random >> 16) % 40;
                let longest = map.split(|free| !free).map(<[bool]>::len).max();
                match free.take(len * UNIT) {
                    Some(offset) => {
                        let offset = offset / UNIT;
                        for at in offset..offset + len {
                            assert!(std::mem::replace(&mut map[at as usize], false));
                        }
                        held.push((offset, len));
                    }
                    // A range of the same class may be passed over when there are many that are too short.
                    None => assert!(
                        longest.unwrap() < (len + len.div_ceil(4)) as usize,
                        "{step}"
                    ),
                }
            }
            let count = map.iter().filter(|free| **free).count() as u64;
            assert_eq!(free.bytes(), count * UNIT);
            let probe = random % 4000;
            assert_eq!(free.overlaps(probe * UNIT, UNIT), map[probe as usize]);
        }
        let ranges: Vec<_> = free.iter().collect();
        assert!(
            ranges
                .windows(2)
                .all(|pair| pair[0].0 + pair[0].1 < pair[1].0)
        );
    }

    #[test]
    fn fills_holes_at_low_offsets_first() {
        let mut free = FreeRanges::default();
        for (offset, len) in [(100, 9), (40, 3), (10, 2), (200, 500)] {
            assert!(free.give(offset * UNIT, len * UNIT));
        }
        let taken = [2, 1, 2, 5, 4].map(|len| free.take(len * UNIT).map(|at| at / UNIT));
        assert_eq!(taken, [Some(10), Some(40), Some(41), Some(100), Some(105)]);
        assert_eq!(free.take(501 * UNIT), None);
    }
}
