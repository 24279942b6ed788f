//! Ranges of keys, each deleted with one message, and operations on sets of them.
//!
//! # Rules
//!
//! A range delete is blind: it never conflicts.
//!
//! - In the memtable, range deletes are kept beside the entries. Sequence numbers determine which entries they delete.
//! - Flushes resolve that. The result is a run: range deletes that cover everything older, and messages above them. The
//!   ranges stay in memory with their node, sorted and joined.
//! - A child that a range covers becomes empty at once, without regard to older pending messages. So dropping most of a
//!   tree reads and writes nothing per key, and its extents are free after the next checkpoint and the last snapshot.
//!   For children that are covered in part the range stays pending. Where it covers a whole leaf further down, it
//!   reaches that leaf in the same flush.
//! - An update message above a range delete becomes a put or a delete as soon as the two meet.
//! - A cursor lets each source seek to the end of a range that a newer source has, and opens no path inside a range
//!   that a memtable has. It steps through deleted keys only in the memtable that holds the range.
//! - Appends at the right edge would be hidden by an older range that is still pending above the last leaf. Such a
//!   range keeps appends on the ordinary path. A range of the same memtable is flushed before them.
//!
//! A range delete counts as 4 KiB in write sets, memtables and buffers. That bounds the memory of the ranges, and the
//! number of them that a read checks.

use std::sync::Arc;

/// The keys from `lower` on and below `upper`; `None` is no upper bound. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyRange {
    pub(crate) lower: Arc<[u8]>,
    pub(crate) upper: Option<Arc<[u8]>>,
}

impl KeyRange {
    /// `None` for an empty range.
    pub(crate) fn new(lower: &[u8], upper: Option<&[u8]>) -> Option<KeyRange> {
        upper.is_none_or(|upper| lower < upper).then(|| KeyRange {
            lower: lower.into(),
            upper: upper.map(Arc::from),
        })
    }

    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        *self.lower <= *key && self.ends_above(key)
    }

    /// Whether `key` lies below the upper bound.
    fn ends_above(&self, key: &[u8]) -> bool {
        self.upper.as_deref().is_none_or(|upper| key < upper)
    }

    /// Whether the range contains all of `lower..upper`.
    pub(crate) fn covers(&self, lower: &[u8], upper: Option<&[u8]>) -> bool {
        *self.lower <= *lower
            && match (&self.upper, upper) {
                (None, _) => true,
                (Some(_), None) => false,
                (Some(own), Some(upper)) => **own >= *upper,
            }
    }

    fn clip(&self, lower: &[u8], upper: Option<&[u8]>) -> KeyRange {
        let upper_first = match (self.upper.as_deref(), upper) {
            (Some(own), Some(upper)) => upper < own,
            (None, Some(_)) => true,
            _ => false,
        };
        KeyRange {
            lower: if *self.lower < *lower {
                lower.into()
            } else {
                self.lower.clone()
            },
            upper: if upper_first {
                upper.map(Arc::from)
            } else {
                self.upper.clone()
            },
        }
    }
}

/// Ranges in key order that neither overlap nor touch. Clones share them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RangeSet(Arc<[KeyRange]>);

/// Whether a set covers a key.
pub(crate) enum Coverage<'a> {
    Covered(&'a KeyRange),
    /// Not covered: the bounds of the gap, `None` where there is no range on that side.
    Gap(Option<&'a Arc<[u8]>>, Option<&'a Arc<[u8]>>),
}

impl RangeSet {
    /// The set of all keys that any of the ranges holds.
    pub(crate) fn new(mut ranges: Vec<KeyRange>) -> RangeSet {
        ranges.sort_unstable_by(|a, b| a.lower.cmp(&b.lower));
        let mut merged: Vec<KeyRange> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match merged.last_mut() {
                Some(last)
                    if last
                        .upper
                        .as_ref()
                        .is_none_or(|upper| *upper >= range.lower) =>
                {
                    let longer = match (&last.upper, &range.upper) {
                        (None, _) => false,
                        (Some(_), None) => true,
                        (Some(own), Some(upper)) => upper > own,
                    };
                    if longer {
                        last.upper = range.upper;
                    }
                }
                _ => merged.push(range),
            }
        }
        RangeSet(merged.into())
    }

    /// The keys that are in any of the sets.
    pub(crate) fn union<'a>(sets: impl IntoIterator<Item = &'a RangeSet>) -> RangeSet {
        let mut sets = sets.into_iter().filter(|set| !set.is_empty());
        let Some(first) = sets.next() else {
            return RangeSet::default();
        };
        let mut ranges: Vec<KeyRange> = Vec::new();
        for set in sets {
            ranges.extend_from_slice(&set.0);
        }
        if ranges.is_empty() {
            return first.clone();
        }
        ranges.extend_from_slice(&first.0);
        RangeSet::new(ranges)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn ranges(&self) -> &[KeyRange] {
        &self.0
    }

    /// The range that covers `key`, or the gap around it.
    pub(crate) fn coverage(&self, key: &[u8]) -> Coverage<'_> {
        let after = self.0.partition_point(|range| *range.lower <= *key);
        let before = after.checked_sub(1).and_then(|index| self.0.get(index));
        match before {
            Some(range) if range.ends_above(key) => Coverage::Covered(range),
            _ => Coverage::Gap(
                before.and_then(|range| range.upper.as_ref()),
                self.0.get(after).map(|range| &range.lower),
            ),
        }
    }

    /// The range that covers `key`.
    pub(crate) fn covering(&self, key: &[u8]) -> Option<&KeyRange> {
        match self.coverage(key) {
            Coverage::Covered(range) => Some(range),
            Coverage::Gap(..) => None,
        }
    }

    /// The range that covers the keys just below `key`; with `None`, those at the end of the key space.
    pub(crate) fn covering_below(&self, key: Option<&[u8]>) -> Option<&KeyRange> {
        let below = match key {
            Some(key) => self.0.partition_point(|range| *range.lower < *key),
            None => self.0.len(),
        };
        let range = self.0.get(below.checked_sub(1)?)?;
        match (&range.upper, key) {
            (None, _) => Some(range),
            (Some(upper), Some(key)) if **upper >= *key => Some(range),
            _ => None,
        }
    }

    /// Whether all of `lower..upper` is in the set.
    pub(crate) fn covers(&self, lower: &[u8], upper: Option<&[u8]>) -> bool {
        self.covering(lower)
            .is_some_and(|range| range.covers(lower, upper))
    }

    /// Whether the keys from `first` to `last`, both included, are in the set.
    pub(crate) fn covers_keys(&self, first: &[u8], last: &[u8]) -> bool {
        self.covering(first)
            .is_some_and(|range| range.ends_above(last))
    }

    /// The ranges that overlap `lower..upper`.
    pub(crate) fn overlapping(&self, lower: &[u8], upper: Option<&[u8]>) -> &[KeyRange] {
        let start = self.0.partition_point(|range| !range.ends_above(lower));
        let end = match upper {
            Some(upper) => self.0.partition_point(|range| *range.lower < *upper),
            None => self.0.len(),
        };
        // A client may give bounds of which the lower one is above the upper one: nothing is between them.
        &self.0[start.min(end)..end]
    }

    /// The set, clipped to `lower..upper`.
    pub(crate) fn clip(&self, lower: &[u8], upper: Option<&[u8]>) -> RangeSet {
        let inside = self.overlapping(lower, upper);
        let (Some(first), Some(last)) = (inside.first(), inside.last()) else {
            return RangeSet::default();
        };
        let last_ends_inside = match (&last.upper, upper) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(own), Some(upper)) => **own <= *upper,
        };
        if inside.len() == self.0.len() && *first.lower >= *lower && last_ends_inside {
            return self.clone();
        }
        RangeSet(
            inside
                .iter()
                .map(|range| range.clip(lower, upper))
                .collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `"a-c e-"` is from a to c and from e on; a leading `-` begins at the empty key.
    fn parse(text: &str) -> Vec<KeyRange> {
        text.split_whitespace()
            .map(|range| {
                let (lower, upper) = range.split_once('-').unwrap();
                let upper = (!upper.is_empty()).then_some(upper.as_bytes());
                KeyRange::new(lower.as_bytes(), upper).unwrap()
            })
            .collect()
    }

    fn set(text: &str) -> RangeSet {
        RangeSet::new(parse(text))
    }

    fn show(set: &RangeSet) -> String {
        let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
        let show = |range: &KeyRange| {
            let upper = range.upper.as_deref().map_or(String::new(), text);
            format!("{}-{upper}", text(&range.lower))
        };
        set.0.iter().map(show).collect::<Vec<_>>().join(" ")
    }

    fn bound(text: &str) -> Option<&[u8]> {
        (!text.is_empty()).then_some(text.as_bytes())
    }

    #[test]
    fn nothing_lies_between_equal_bounds() {
        assert!(KeyRange::new(b"b", Some(b"b")).is_none());
        assert!(KeyRange::new(b"b", Some(b"a")).is_none());
        assert!(KeyRange::new(b"", Some(b"")).is_none());
        assert!(KeyRange::new(b"", None).is_some());
    }

    #[test]
    fn new_sorts_and_joins() {
        for (given, expected) in [
            ("", ""),
            ("d-e a-b", "a-b d-e"),
            ("a-c b-d", "a-d"),
            ("a-b b-c", "a-c"),
            ("a-f b-c", "a-f"),
            ("b-c a-", "a-"),
            ("a-b c- d-e", "a-b c-"),
            ("-a a-", "-"),
            ("a-b a-c a-", "a-"),
        ] {
            assert_eq!(show(&set(given)), expected, "{given}");
        }
    }

    #[test]
    fn unites() {
        for (sets, expected) in [
            (&["", ""][..], ""),
            (&["a-b", ""], "a-b"),
            (&["a-b", "b-c", "x-"], "a-c x-"),
            (&["a-c m-o", "b-n"], "a-o"),
            (&["-"], "-"),
        ] {
            let sets: Vec<RangeSet> = sets.iter().map(|text| set(text)).collect();
            assert_eq!(show(&RangeSet::union(&sets)), expected);
        }
    }

    #[test]
    fn clips() {
        for (given, lower, upper, expected) in [
            ("a-c e-g", "", "", "a-c e-g"),
            ("a-c e-g", "b", "f", "b-c e-f"),
            ("a-c e-g", "c", "e", ""),
            ("a-c e-g", "c", "", "e-g"),
            ("a-c e-", "f", "", "f-"),
            ("a-c e-", "", "x", "a-c e-x"),
            ("-", "k", "m", "k-m"),
            ("a-b", "a", "b", "a-b"),
            ("a-b", "b", "", ""),
        ] {
            let clipped = set(given).clip(lower.as_bytes(), bound(upper));
            assert_eq!(show(&clipped), expected, "{given} {lower}..{upper}");
            let overlapping = set(given);
            let overlapping = overlapping.overlapping(lower.as_bytes(), bound(upper));
            assert_eq!(overlapping.is_empty(), expected.is_empty());
        }
    }

    #[test]
    fn covers_ranges_and_keys() {
        for (given, lower, upper, whole) in [
            ("a-c e-g", "a", "c", true),
            ("a-c e-g", "b", "c", true),
            ("a-c e-g", "b", "d", false),
            ("a-c e-g", "b", "f", false),
            ("a-c e-g", "e", "", false),
            ("a-c e-", "e", "", true),
            ("a-c e-", "x", "y", true),
            ("-", "", "", true),
            ("a-", "", "b", false),
        ] {
            assert_eq!(set(given).covers(lower.as_bytes(), bound(upper)), whole);
        }
        for (given, first, last, all) in [
            ("a-c", "a", "b", true),
            ("a-c", "a", "c", false),
            ("a-", "a", "zz", true),
            ("a-c d-e", "b", "d", false),
            ("", "b", "b", false),
        ] {
            let covers = set(given).covers_keys(first.as_bytes(), last.as_bytes());
            assert_eq!(covers, all, "{given} {first}..={last}");
        }
    }

    #[test]
    fn finds_the_range_of_a_key_or_the_gap_around_it() {
        for (key, expected) in [
            ("", "gap ?..b"),
            ("a", "gap ?..b"),
            ("b", "b-d"),
            ("cz", "b-d"),
            ("d", "gap d..f"),
            ("e", "gap d..f"),
            ("f", "f-g"),
            ("g", "gap g..?"),
            ("z", "gap g..?"),
        ] {
            let set = set("b-d f-g");
            let text = |key: Option<&Arc<[u8]>>| {
                key.map_or("?".to_owned(), |key| {
                    String::from_utf8_lossy(key).into_owned()
                })
            };
            let found = match set.coverage(key.as_bytes()) {
                Coverage::Covered(range) => show(&RangeSet::new(vec![range.clone()])),
                Coverage::Gap(after, before) => format!("gap {}..{}", text(after), text(before)),
            };
            assert_eq!(found, expected, "{key}");
        }
    }

    #[test]
    fn finds_the_range_below_a_key() {
        for (given, key, expected) in [
            ("b-d f-", None, "f-"),
            ("b-d f-g", None, ""),
            ("b-d f-", Some("z"), "f-"),
            ("b-d f-", Some("f"), ""),
            ("b-d f-", Some("d"), "b-d"),
            ("b-d f-", Some("c"), "b-d"),
            ("b-d f-", Some("e"), ""),
            ("b-d f-", Some("b"), ""),
            ("-d", Some(""), ""),
        ] {
            let set = set(given);
            let found = set.covering_below(key.map(str::as_bytes));
            let found = found.map_or(String::new(), |range| {
                show(&RangeSet::new(vec![range.clone()]))
            });
            assert_eq!(found, expected, "{given} {key:?}");
        }
    }
}
