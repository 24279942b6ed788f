//! The stored form of the free space, which a checkpoint writes and the next open reads.
//!
//! Payload: the end of the space (a varint), the number of free ranges (a varint), and for each range in the order of
//! offsets the gap before it and its length (a varint each), all in units of 4 KiB, and zeros up to the end of the extent.

use crate::bytes::Reader;
use crate::disk::ALIGNMENT;

/// Where the first extent may start: after the two superblocks.
pub(crate) const DATA_START: u64 = 2 * ALIGNMENT as u64;

const UNIT: u64 = ALIGNMENT as u64;

/// The free ranges of a data file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FreeMap {
    /// Where the used part of the file ends, in bytes. All of it but the ranges is used.
    pub(crate) end: u64,
    /// Offset and length in bytes.
    ///
    /// S6: ascending, neither overlapping nor adjacent, and the last one ends before the end.
    pub(crate) ranges: Vec<(u64, u64)>,
}

impl FreeMap {
    /// A map of ranges in any order, which may touch. A range that overlaps one before it is left out, so it stays used;
    /// `overlap` is called with its offset.
    pub(crate) fn new(
        mut end: u64,
        mut ranges: Vec<(u64, u64)>,
        mut overlap: impl FnMut(u64),
    ) -> FreeMap {
        ranges.sort_unstable();
        let mut joined: Vec<(u64, u64)> = Vec::with_capacity(ranges.len());
        for (offset, len) in ranges {
            match joined.last_mut() {
                Some((before, before_len)) if *before + *before_len > offset => overlap(offset),
                Some((before, before_len)) if *before + *before_len == offset => *before_len += len,
                _ => joined.push((offset, len)),
            }
        }
        if let Some((offset, len)) = joined.last().copied()
            && offset + len == end
        {
            joined.pop();
            end = offset;
        }
        FreeMap {
            end,
            ranges: joined,
        }
    }

    /// The payload, without the zeros at its end.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, self.end / UNIT);
        put_varint(&mut out, self.ranges.len() as u64);
        let mut at = DATA_START;
        assert!(self.end >= DATA_START, "S6: a map ends in the superblocks");
        for (offset, len) in &self.ranges {
            assert!(
                *offset >= at && *len > 0,
                "S6: the ranges of a map do not ascend"
            );
            put_varint(&mut out, (offset - at) / UNIT);
            put_varint(&mut out, len / UNIT);
            at = offset + len;
        }
        assert!(at <= self.end, "S6: a range of a map is behind its end");
        out
    }

    /// `None` if the bytes are malformed.
    pub(crate) fn parse(payload: &[u8]) -> Option<FreeMap> {
        let mut reader = Reader(payload);
        let bytes = |units: u64| units.checked_mul(UNIT);
        let end = bytes(varint(&mut reader)?)?;
        let count = varint(&mut reader)?;
        let mut ranges = Vec::new();
        let mut at = DATA_START;
        for index in 0..count {
            let gap = bytes(varint(&mut reader)?)?;
            let len = bytes(varint(&mut reader)?)?;
            let offset = at.checked_add(gap)?;
            at = offset.checked_add(len)?;
            if len == 0 || (gap == 0 && index > 0) || at >= end {
                return None;
            }
            ranges.push((offset, len));
        }
        let is_rest_zero = reader.0.iter().all(|byte| *byte == 0);
        (is_rest_zero && end >= DATA_START).then_some(FreeMap { end, ranges })
    }

    /// The ranges that are used, in the order of offsets.
    pub(crate) fn used(&self) -> Vec<(u64, u64)> {
        let mut used = Vec::with_capacity(self.ranges.len() + 1);
        let mut at = DATA_START;
        for (offset, len) in self.ranges.iter().copied().chain([(self.end, 0)]) {
            if offset > at {
                used.push((at, offset - at));
            }
            at = offset + len;
        }
        used
    }
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn varint(reader: &mut Reader<'_>) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = reader.u8()?;
        let bits = u64::from(byte & 0x7F);
        value |= bits << shift;
        if (bits << shift) >> shift != bits {
            return None;
        }
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// The ranges of `used` that `reachable` has not. Both are sorted; `reachable` may overlap itself.
pub(crate) fn unreachable(used: &[(u64, u64)], reachable: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut left = Vec::new();
    let mut reachable = reachable.iter().copied().peekable();
    for (offset, len) in used.iter().copied() {
        let (mut at, end) = (offset, offset + len);
        while let Some((from, from_len)) = reachable.peek().copied()
            && from < end
        {
            if from > at {
                left.push((at, from - at));
            }
            at = at.max(from.saturating_add(from_len));
            if at > end {
                // It reaches into the next used range.
                break;
            }
            reachable.next();
        }
        if at < end {
            left.push((at, end - at));
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(ranges: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let scaled = ranges.iter();
        scaled.map(|(at, len)| (at * UNIT, len * UNIT)).collect()
    }

    fn no_overlap(offset: u64) {
        panic!("an overlap at {offset}");
    }

    #[test]
    fn ranges_that_overlap_are_never_written() {
        let mut overlaps = Vec::new();
        let ranges = units(&[(2, 3), (4, 2), (5, 1), (5, 1), (9, 1)]);
        let map = FreeMap::new(20 * UNIT, ranges, |at| overlaps.push(at / UNIT));
        assert_eq!(map.ranges, units(&[(2, 4), (9, 1)]));
        assert_eq!(overlaps, [4, 5]);
        assert_eq!(FreeMap::parse(&map.encode()), Some(map));
    }

    #[test]
    fn a_map_is_read_as_it_was_written() {
        for (ranges, joined) in [
            (&[][..], &[][..]),
            (&[(2, 1)], &[(2, 1)]),
            (&[(9, 3), (2, 1), (12, 300_000)], &[(2, 1), (9, 300_003)]),
        ] {
            let map = FreeMap::new(1 << 40, units(ranges), no_overlap);
            assert_eq!(map.ranges, units(joined));
            let mut bytes = map.encode();
            assert_eq!(FreeMap::parse(&bytes).as_ref(), Some(&map));
            bytes.resize(bytes.len() + 100, 0);
            assert_eq!(FreeMap::parse(&bytes).as_ref(), Some(&map));
            bytes.push(1);
            assert_eq!(FreeMap::parse(&bytes), None);
        }
        let cut = FreeMap::new(20 * UNIT, units(&[(3, 1), (15, 5)]), no_overlap);
        assert_eq!((cut.end, cut.ranges), (15 * UNIT, units(&[(3, 1)])));
        assert_eq!(FreeMap::parse(&[]), None);
        assert_eq!(FreeMap::parse(&[0xFF; 40]), None);
        // A range beyond the end.
        assert_eq!(FreeMap::parse(&[4, 1, 1, 1]), None);
    }

    #[test]
    fn used_ranges_that_nothing_refers_to_are_found() {
        let used = FreeMap::new(30 * UNIT, units(&[(5, 2), (20, 1)]), no_overlap).used();
        assert_eq!(used, units(&[(2, 3), (7, 13), (21, 9)]));
        let reachable = units(&[(2, 1), (4, 1), (8, 4), (8, 4), (12, 1), (19, 1), (22, 8)]);
        let left = unreachable(&used, &reachable);
        assert_eq!(left, units(&[(3, 1), (7, 1), (13, 6), (21, 1)]));
        assert_eq!(unreachable(&used, &units(&[(2, 50)])), []);
        assert_eq!(unreachable(&used, &[]), used);
    }
}
