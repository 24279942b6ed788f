//! Storage of keys that exceed TiKV's limit.
//!
//! Such a key is called *long*. This module splits it into a *head*, which has as many bytes as fit, and a *tail*. It is stored as
//!
//! | head | `0` | SHA-256 of the tail |
//! | --- | --- | --- |
//!
//! and its tail stands before its value. So a look-up, a write and a lock of a long key concern one stored key, as those of any other
//! key: two servers that write the same long key conflict, and nothing else is read or written for it.
//!
//! The long keys with one head are a *group*. In the order of whole keys a group comes directly after its head, because every other key
//! that begins with the head is longer than the head, and so is long itself. In the order of stored keys the group is at the same
//! place. Therefore a stored range is read in the right order but for the inside of groups:
//!
//! - [`LongKeys::arrange`] sorts the groups that a page has completely, and cuts the page before a group of which it has only a part;
//! - such a group is read by itself, as often as needed: each pass meets all of its rows, and [`Selection`] keeps those that come next, as many as
//!   memory permits.
//!
//! A bound of a range may be a long key, of which there need be no row. The stored range then has the whole group, and rows beyond the
//! bound are left out by their whole keys. The least long key with a head is the head with a zero byte behind it, which as a bound stands for
//! the begin of the group.

use std::borrow::Cow;
use std::collections::BTreeMap;

use frond_kv::Direction;
use sha2::{Digest, Sha256};

use crate::client::bound::{just_above, just_above_prefix};

/// Keys with their values.
type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// A range of whole keys: the first one, and the first one beyond it, if there is a bound.
pub(crate) type Range = (Vec<u8>, Option<Vec<u8>>);

/// Stored forms of the keys of trees.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LongKeys {
    /// The bytes of the longest key that is stored as it is, and of a head.
    head_bytes: usize,
}

/// The part of a stored range that a page has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reach {
    All,
    /// Up to its last row, since it is full.
    LastRow,
    /// Up to a stored key: the rows below it, or backward those from it on.
    Border(Vec<u8>),
}

/// A page in the order of whole keys.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arranged {
    Page {
        rows: Pairs,
        /// The part of the range that the page has, and the part beyond it.
        covered: Range,
        rest: Option<Range>,
    },
    /// The range begins, in the direction of the scan, within or at the group with this head, and the page has only a part of it.
    Group(Vec<u8>),
}

impl LongKeys {
    pub(crate) fn new(head_bytes: usize) -> LongKeys {
        LongKeys { head_bytes }
    }

    pub(crate) fn head_bytes(self) -> usize {
        self.head_bytes
    }

    /// Whether a whole key or its stored form is that of a long key.
    #[inline]
    pub(crate) fn is_long(self, key: &[u8]) -> bool {
        key.len() > self.head_bytes
    }

    /// The tail of a long key, which is not empty; nothing of others.
    #[inline]
    pub(crate) fn tail(self, key: &[u8]) -> &[u8] {
        key.get(self.head_bytes..).unwrap_or_default()
    }

    /// The stored form of a key.
    #[inline]
    pub(crate) fn stored(self, key: &[u8]) -> Cow<'_, [u8]> {
        if !self.is_long(key) {
            return Cow::Borrowed(key);
        }
        let (head, tail) = key.split_at(self.head_bytes);
        Cow::Owned([head, &[0], &Sha256::digest(tail)].concat())
    }

    /// The whole key of a stored form and the tail that was stored with it.
    pub(crate) fn whole(self, stored: &[u8], tail: &[u8]) -> Vec<u8> {
        [&stored[..self.head_bytes.min(stored.len())], tail].concat()
    }

    /// The first stored key of a range of whole keys that begins with `bound`.
    #[inline]
    pub(crate) fn stored_lower(self, bound: &[u8]) -> Cow<'_, [u8]> {
        if !self.is_long(bound) {
            return Cow::Borrowed(bound);
        }
        Cow::Owned(just_above(&bound[..self.head_bytes]))
    }

    /// The first stored key beyond a range of whole keys below `bound`.
    #[inline]
    pub(crate) fn stored_upper(self, bound: &[u8]) -> Cow<'_, [u8]> {
        if !self.is_long(bound) {
            return Cow::Borrowed(bound);
        }
        let (head, tail) = bound.split_at(self.head_bytes);
        let is_begin = tail == [0];
        Cow::Owned([head, &[u8::from(!is_begin)]].concat())
    }

    /// The stored keys of a group: the first one, and the first one beyond it.
    pub(crate) fn stored_group(self, head: &[u8]) -> (Vec<u8>, Vec<u8>) {
        ([head, &[0]].concat(), [head, &[1]].concat())
    }

    /// Brings a page into the order of whole keys. `rows` has the whole keys in the order of the stored ones, in the direction of the scan,
    /// and may have such as are not in the range.
    pub(crate) fn arrange(
        self,
        mut rows: Pairs,
        (lower, upper): (&[u8], Option<&[u8]>),
        reach: Reach,
        direction: Direction,
    ) -> Arranged {
        let all = || (lower.to_vec(), upper.map(<[u8]>::to_vec));
        let (border, group) = match &reach {
            Reach::All => return self.page(rows, all(), None, direction),
            Reach::LastRow => match rows.last() {
                Some((last, _)) if self.is_long(last) => self.begin_of_group(last, direction),
                Some((last, _)) => match direction {
                    Direction::Forward => (Some(just_above(last)), None),
                    Direction::Backward => (Some(last.clone()), None),
                },
                None => return self.page(rows, all(), None, direction),
            },
            Reach::Border(border) => match self.tail(border) {
                [] | [0] => (Some(border.clone()), None),
                _ => self.begin_of_group(border, direction),
            },
        };
        let moves = match (direction, &border) {
            (Direction::Forward, Some(border)) => border.as_slice() > lower,
            (Direction::Backward, Some(border)) => {
                upper.is_none_or(|upper| border.as_slice() < upper)
            }
            (_, None) => false,
        };
        let border = match (border, group) {
            (_, Some(head)) if !moves => return Arranged::Group(head),
            (Some(border), None) => border,
            (Some(border), Some(_)) => {
                rows.retain(|(key, _)| match direction {
                    Direction::Forward => *key < border,
                    Direction::Backward => *key >= border,
                });
                border
            }
            // A border is only missing behind the last group.
            (None, _) => return self.page(rows, all(), None, direction),
        };
        match direction {
            Direction::Forward if upper.is_some_and(|upper| upper <= border.as_slice()) => {
                self.page(rows, all(), None, direction)
            }
            Direction::Forward => {
                let rest = (border.clone(), upper.map(<[u8]>::to_vec));
                self.page(rows, (lower.to_vec(), Some(border)), Some(rest), direction)
            }
            Direction::Backward if border.as_slice() <= lower => {
                self.page(rows, all(), None, direction)
            }
            Direction::Backward => {
                let covered = (border.clone(), upper.map(<[u8]>::to_vec));
                let rest = (lower.to_vec(), Some(border));
                self.page(rows, covered, Some(rest), direction)
            }
        }
    }

    /// The border before the group of a long key, in the direction of a scan, if there is one, and the head of the group.
    fn begin_of_group(
        self,
        key: &[u8],
        direction: Direction,
    ) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
        let head = &key[..self.head_bytes];
        let border = match direction {
            Direction::Forward => Some(just_above(head)),
            Direction::Backward => just_above_prefix(head),
        };
        (border, Some(head.to_vec()))
    }

    fn page(
        self,
        mut rows: Pairs,
        covered: Range,
        rest: Option<Range>,
        direction: Direction,
    ) -> Arranged {
        // Only the order of long keys can be wrong, and only such can be beyond the bounds.
        if rows.iter().any(|(key, _)| self.is_long(key)) {
            let (lower, upper) = &covered;
            rows.retain(|(key, _)| is_within(key, lower, upper.as_deref()));
            rows.sort_unstable_by(|(a, _), (b, _)| match direction {
                Direction::Forward => a.cmp(b),
                Direction::Backward => b.cmp(a),
            });
        }
        Arranged::Page {
            rows,
            covered,
            rest,
        }
    }

    /// Begins to select rows of a group for a page of a range, which begins in the group.
    pub(crate) fn select(
        self,
        head: &[u8],
        (lower, upper): (&[u8], Option<&[u8]>),
        direction: Direction,
        bytes_max: usize,
    ) -> Selection {
        let begin = just_above(head);
        let from = lower.max(&begin).to_vec();
        let to = match (just_above_prefix(head), upper) {
            (Some(end), Some(upper)) => Some(upper.min(&end).to_vec()),
            (Some(end), None) => Some(end),
            (None, upper) => upper.map(<[u8]>::to_vec),
        };
        Selection {
            range: (lower.to_vec(), upper.map(<[u8]>::to_vec)),
            part: (from, to),
            direction,
            bytes_max,
            rows: BTreeMap::new(),
            bytes: 0,
            beyond: None,
        }
    }
}

/// The next rows of a group, as many as memory permits and at least one.
#[derive(Debug)]
pub(crate) struct Selection {
    range: Range,
    /// The part of the range that is the group's.
    part: Range,
    direction: Direction,
    bytes_max: usize,
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    bytes: usize,
    /// The first key, in the direction of the scan, that is left to a later pass.
    beyond: Option<Vec<u8>>,
}

impl Selection {
    /// Adds a row of the group, in any order. Rows that are not in the range, or are for a later pass, are dropped.
    pub(crate) fn add(&mut self, key: Vec<u8>, value: Vec<u8>) {
        let (from, to) = &self.part;
        let is_beyond = |beyond: &Vec<u8>| match self.direction {
            Direction::Forward => key > *beyond,
            Direction::Backward => key < *beyond,
        };
        if !is_within(&key, from, to.as_deref()) || self.beyond.as_ref().is_some_and(is_beyond) {
            return;
        }
        self.bytes += key.len() + value.len();
        self.rows.insert(key, value);
        while self.bytes > self.bytes_max && self.rows.len() > 1 {
            let last = match self.direction {
                Direction::Forward => self.rows.pop_last(),
                Direction::Backward => self.rows.pop_first(),
            };
            let Some((key, value)) = last else {
                break;
            };
            self.bytes -= key.len() + value.len();
            self.beyond = Some(key);
        }
    }

    /// The rows in the direction of the scan, the part of the range that they are all rows of, and the part beyond it.
    pub(crate) fn finish(self) -> (Pairs, Range, Option<Range>) {
        let ((lower, upper), (from, to)) = (self.range, self.part);
        let some = self.beyond.is_some();
        let (covered, rest) = match self.direction {
            Direction::Forward => {
                let last = self.rows.last_key_value().filter(|_| some);
                let end = last.map_or(to, |(last, _)| Some(just_above(last)));
                let rest = match &end {
                    Some(end) if upper.as_ref().is_none_or(|upper| end < upper) => {
                        Some((end.clone(), upper))
                    }
                    _ => None,
                };
                ((lower, end), rest)
            }
            Direction::Backward => {
                let last = self.rows.first_key_value().filter(|_| some);
                let begin = last.map_or(from, |(last, _)| last.clone());
                let rest = (lower < begin).then(|| (lower, Some(begin.clone())));
                ((begin, upper), rest)
            }
        };
        let rows = match self.direction {
            Direction::Forward => self.rows.into_iter().collect(),
            Direction::Backward => self.rows.into_iter().rev().collect(),
        };
        (rows, covered, rest)
    }
}

fn is_within(key: &[u8], lower: &[u8], upper: Option<&[u8]>) -> bool {
    key >= lower && upper.is_none_or(|upper| key < upper)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    use std::ops::Bound;

    const KEYS: LongKeys = LongKeys { head_bytes: 3 };
    const DIRECTIONS: [Direction; 2] = [Direction::Forward, Direction::Backward];

    /// A generator of numbers (splitmix64).
    struct Random(u64);

    impl Random {
        fn below(&mut self, limit: usize) -> usize {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = self.0;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((mixed ^ (mixed >> 31)) % limit as u64) as usize
        }

        /// A key of few different bytes, so that many have the same head; some heads have no key above them.
        fn key(&mut self) -> Vec<u8> {
            let bytes = [0, 1, 7, 0xfe, 0xff];
            let kinds = 2 + self.below(4);
            let begin = match self.below(4) {
                0 => vec![0xff; 3],
                1 => vec![7, 0, 0xff],
                _ => Vec::new(),
            };
            let len = self.below(9);
            let mut rest = || bytes[self.below(kinds)];
            let mut key = begin;
            key.extend((0..len).map(|_| rest()));
            key
        }
    }

    /// Stored rows: of each stored key the tail and the value.
    type Stored = BTreeMap<Vec<u8>, (Vec<u8>, Vec<u8>)>;

    fn store(rows: &BTreeMap<Vec<u8>, Vec<u8>>) -> Stored {
        let stored = rows.iter().map(|(key, value)| {
            let tail = KEYS.tail(key).to_vec();
            (KEYS.stored(key).into_owned(), (tail, value.clone()))
        });
        stored.collect()
    }

    fn read(stored: &Stored, from: &[u8], to: Option<&[u8]>) -> Pairs {
        let range = (
            Bound::Included(from),
            to.map_or(Bound::Unbounded, Bound::Excluded),
        );
        let rows = if to.is_some_and(|to| to <= from) {
            None
        } else {
            Some(stored.range::<[u8], _>(range))
        };
        let rows = rows.into_iter().flatten();
        rows.map(|(key, (tail, value))| (KEYS.whole(key, tail), value.clone()))
            .collect()
    }

    /// Scans a range by pages of at most `rows` rows that end at the borders of regions. Returns the rows, and how often a group was
    /// read by itself.
    fn scan(
        stored: &Stored,
        range: &Range,
        direction: Direction,
        (page_rows, bytes_max): (usize, usize),
        regions: &[Vec<u8>],
    ) -> (Pairs, usize) {
        let mut rest = Some(range.clone());
        let (mut found, mut passes, mut steps) = (Pairs::new(), 0, 0);
        while let Some((lower, upper)) = rest.take() {
            steps += 1;
            assert!(
                steps < 10_000,
                "the scan does not move: {lower:?} {upper:?}"
            );
            if upper.as_ref().is_some_and(|upper| *upper <= lower) {
                break;
            }
            let from = KEYS.stored_lower(&lower).into_owned();
            let to = upper
                .as_ref()
                .map(|upper| KEYS.stored_upper(upper).into_owned());
            let inside =
                |border: &&Vec<u8>| from < **border && to.as_ref().is_none_or(|to| *border < to);
            let border = match direction {
                Direction::Forward => regions.iter().find(inside),
                Direction::Backward => regions.iter().rfind(inside),
            };
            let mut rows = match (direction, border) {
                (Direction::Forward, Some(border)) => read(stored, &from, Some(border)),
                (Direction::Backward, Some(border)) => read(stored, border, to.as_deref()),
                (_, None) => read(stored, &from, to.as_deref()),
            };
            if direction == Direction::Backward {
                rows.reverse();
            }
            let is_full = rows.len() >= page_rows;
            rows.truncate(page_rows);
            let reach = match border {
                _ if is_full => Reach::LastRow,
                Some(border) => Reach::Border(border.clone()),
                None => Reach::All,
            };
            let bounds = (lower.as_slice(), upper.as_deref());
            let (rows, covered, after) = match KEYS.arrange(rows, bounds, reach, direction) {
                Arranged::Page {
                    rows,
                    covered,
                    rest,
                } => (rows, covered, rest),
                Arranged::Group(head) => {
                    passes += 1;
                    let mut selection = KEYS.select(&head, bounds, direction, bytes_max);
                    let (from, to) = KEYS.stored_group(&head);
                    for (key, value) in read(stored, &from, Some(&to)) {
                        selection.add(key, value);
                        assert!(selection.bytes <= bytes_max || selection.rows.len() == 1);
                    }
                    selection.finish()
                }
            };
            for (key, _) in &rows {
                assert!(
                    is_within(key, &covered.0, covered.1.as_deref()),
                    "{key:?} {covered:?}"
                );
            }
            found.extend(rows);
            rest = after;
        }
        (found, passes)
    }

    #[test]
    fn scans_are_those_of_an_ordered_map() {
        let mut random = Random(39);
        let (mut long, mut passes) = (0, 0);
        for _ in 0..400 {
            let count = random.below(60);
            let rows: BTreeMap<Vec<u8>, Vec<u8>> = (0..count)
                .map(|n| (random.key(), vec![b'v'; n % 5]))
                .collect();
            long += rows.keys().filter(|key| KEYS.is_long(key)).count();
            let stored = store(&rows);
            assert_eq!(stored.len(), rows.len());
            let mut regions: Vec<Vec<u8>> = (0..random.below(6))
                .map(|n| match n % 2 {
                    0 => random.key(),
                    _ => KEYS.stored(&random.key()).into_owned(),
                })
                .collect();
            regions.sort();
            for _ in 0..20 {
                let lower = match random.below(4) {
                    0 => Vec::new(),
                    _ => random.key(),
                };
                let upper = (random.below(4) > 0).then(|| random.key());
                let expected: Pairs = match &upper {
                    Some(upper) if *upper <= lower => Pairs::new(),
                    Some(upper) => clone(rows.range(lower.clone()..upper.clone())),
                    None => clone(rows.range(lower.clone()..)),
                };
                let range = (lower, upper);
                for direction in DIRECTIONS {
                    let sizes = (1 + random.below(12), 1 + random.below(60));
                    let (mut found, selected) = scan(&stored, &range, direction, sizes, &regions);
                    passes += selected;
                    if direction == Direction::Backward {
                        found.reverse();
                    }
                    assert_eq!(
                        found, expected,
                        "{range:?} {direction:?} {sizes:?} {regions:?}"
                    );
                }
            }
        }
        assert!(long > 1000 && passes > 1000, "{long} {passes}");
    }

    fn clone<'a>(rows: impl Iterator<Item = (&'a Vec<u8>, &'a Vec<u8>)>) -> Pairs {
        rows.map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    }

    #[test]
    fn short_keys_are_stored_as_they_are() {
        for key in [&b""[..], b"a", b"abc", &[0xff; 3]] {
            assert!(!KEYS.is_long(key));
            assert_eq!(&*KEYS.stored(key), key);
            assert_eq!(&*KEYS.stored_lower(key), key);
            assert_eq!(&*KEYS.stored_upper(key), key);
            assert!(KEYS.tail(key).is_empty());
        }
    }

    #[test]
    fn a_long_key_has_one_stored_form_between_its_head_and_the_next_key() {
        for key in [&b"abc\0"[..], b"abcd", b"abc\xff\xff", &[b'x'; 4000]] {
            let stored = KEYS.stored(key);
            assert_eq!(stored.len(), 3 + 1 + 32);
            assert_eq!(stored, KEYS.stored(key));
            assert!(stored[..] > key[..3] && stored[..] < [key[0], key[1], key[2] + 1][..]);
            assert_eq!(KEYS.whole(&stored, KEYS.tail(key)), key);
            let (from, to) = KEYS.stored_group(&key[..3]);
            assert!(from[..] < stored[..] && stored[..] < to[..]);
        }
        assert_ne!(KEYS.stored(b"abcd"), KEYS.stored(b"abce"));
    }

    #[test]
    fn bounds_within_a_group_read_all_of_it() {
        let cases: [(&[u8], &[u8], &[u8]); 4] = [
            (b"abc\0", b"abc\0", b"abc\0"),
            (b"abc\0\0", b"abc\0", b"abc\x01"),
            (b"abcd", b"abc\0", b"abc\x01"),
            (b"\xff\xff\xff\xff", b"\xff\xff\xff\0", b"\xff\xff\xff\x01"),
        ];
        for (bound, lower, upper) in cases {
            assert_eq!(&*KEYS.stored_lower(bound), lower, "{bound:?}");
            assert_eq!(&*KEYS.stored_upper(bound), upper, "{bound:?}");
        }
    }
}
