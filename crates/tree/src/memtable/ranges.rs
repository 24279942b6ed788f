//! The range deletes of one tree in a memtable.
//!
//! Usually there are few, so readers first check a counter. Where there are many, most of them are
//! kept resolved: as ranges that do not overlap, each with its newest sequence number.

use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;

use crate::range::{KeyRange, RangeSet};

/// This many range deletes may be unresolved, and an eighth as many as are resolved.
const TAIL_MAX: usize = 32;

/// Range deletes in the order they came in.
#[derive(Default)]
pub(super) struct Ranges {
    count: AtomicUsize,
    inner: RwLock<Inner>,
}

#[derive(Default)]
struct Inner {
    all: Vec<Fragment>,
    /// The first `view.count` of them, resolved.
    view: Arc<View>,
}

/// A range and the newest sequence number of a delete over it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Fragment {
    range: KeyRange,
    sequence: u64,
}

/// Range deletes as a reader sees them.
#[derive(Default)]
pub(super) struct View {
    /// In key order, without overlaps.
    fragments: Vec<Fragment>,
    /// All of them together.
    set: RangeSet,
    /// The number of range deletes that this holds, and the newest sequence number among them.
    count: usize,
    newest: u64,
}

impl Ranges {
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    pub(super) fn insert(&self, range: KeyRange, sequence: u64) {
        let mut inner = self.inner.write();
        inner.all.push(Fragment { range, sequence });
        let resolved = inner.view.count;
        if inner.all.len() - resolved > TAIL_MAX + resolved / 8 {
            inner.view = Arc::new(inner.resolve(u64::MAX));
        }
        self.count.store(inner.all.len(), Ordering::Release);
    }

    /// The newest sequence number up to `sequence` of a delete over `key`; 0 for none.
    pub(super) fn floor(&self, key: &[u8], sequence: u64) -> u64 {
        if self.is_empty() {
            return 0;
        }
        let inner = self.inner.read();
        let (resolved, rest) = if sequence >= inner.view.newest {
            (inner.view.floor(key), &inner.all[inner.view.count..])
        } else {
            (0, inner.all.as_slice())
        };
        rest.iter()
            .filter(|delete| delete.sequence <= sequence && delete.range.contains(key))
            .map(|delete| delete.sequence)
            .fold(resolved, u64::max)
    }

    /// All deletes up to `sequence`; `None` if there are none.
    pub(super) fn view(&self, sequence: u64) -> Option<Arc<View>> {
        if self.is_empty() {
            return None;
        }
        let inner = self.inner.read();
        let rest = &inner.all[inner.view.count..];
        let view = match sequence >= inner.view.newest
            && rest.iter().all(|delete| delete.sequence > sequence)
        {
            true => inner.view.clone(),
            false => Arc::new(inner.resolve(sequence)),
        };
        let is_whole = view.count == inner.all.len() && view.count > inner.view.count;
        drop(inner);
        if is_whole {
            // For the next reader.
            let mut inner = self.inner.write();
            if inner.view.count < view.count {
                inner.view = view.clone();
            }
        }
        (view.count > 0).then_some(view)
    }
}

impl Inner {
    /// The deletes up to `sequence`.
    fn resolve(&self, sequence: u64) -> View {
        let (resolved, rest) = if sequence >= self.view.newest {
            (&*self.view, &self.all[self.view.count..])
        } else {
            (&View::default(), self.all.as_slice())
        };
        let visible: Vec<&Fragment> = rest
            .iter()
            .filter(|delete| delete.sequence <= sequence)
            .collect();
        let count = resolved.count + visible.len();
        let fragments = fragments(resolved.fragments.iter().chain(visible).collect());
        let ranges = fragments.iter().map(|fragment| fragment.range.clone());
        View {
            set: RangeSet::new(ranges.collect()),
            count,
            newest: fragments.iter().map(|f| f.sequence).max().unwrap_or(0),
            fragments,
        }
    }
}

impl View {
    /// The newest sequence number over `key`; 0 for none.
    pub(super) fn floor(&self, key: &[u8]) -> u64 {
        let after = self
            .fragments
            .partition_point(|fragment| *fragment.range.lower <= *key);
        match after.checked_sub(1).map(|index| &self.fragments[index]) {
            Some(fragment) if fragment.range.contains(key) => fragment.sequence,
            _ => 0,
        }
    }

    /// The keys that the deletes cover.
    pub(super) fn set(&self) -> &RangeSet {
        &self.set
    }
}

/// Splits overlapping deletes into disjoint pieces, each with the newest number over it.
fn fragments(mut deletes: Vec<&Fragment>) -> Vec<Fragment> {
    deletes.sort_unstable_by(|a, b| a.range.lower.cmp(&b.range.lower));
    let mut bounds: Vec<&Arc<[u8]>> = deletes
        .iter()
        .flat_map(|delete| std::iter::once(&delete.range.lower).chain(&delete.range.upper))
        .collect();
    bounds.sort_unstable();
    bounds.dedup();
    let mut pieces: Vec<Fragment> = Vec::with_capacity(deletes.len());
    // A heap of the deletes that have begun, newest on top; ended ones are popped when they reach the top.
    let mut begun: BinaryHeap<(u64, usize)> = BinaryHeap::new();
    let mut next = 0;
    for (index, start) in bounds.iter().enumerate() {
        while let Some(delete) = deletes.get(next).filter(|d| d.range.lower <= **start) {
            begun.push((delete.sequence, next));
            next += 1;
        }
        let ended = |delete: &Fragment| {
            let upper = delete.range.upper.as_ref();
            upper.is_some_and(|upper| upper <= *start)
        };
        while begun.peek().is_some_and(|(_, at)| ended(deletes[*at])) {
            begun.pop();
        }
        let Some((sequence, _)) = begun.peek().copied() else {
            continue;
        };
        let upper = bounds.get(index + 1).map(|upper| Arc::clone(upper));
        match pieces.last_mut() {
            Some(last) if last.sequence == sequence && last.range.upper.as_ref() == Some(start) => {
                last.range.upper = upper;
            }
            _ => pieces.push(Fragment {
                range: KeyRange {
                    lower: Arc::clone(start),
                    upper,
                },
                sequence,
            }),
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(lower: &str, upper: &str) -> KeyRange {
        let upper = (!upper.is_empty()).then_some(upper.as_bytes());
        KeyRange::new(lower.as_bytes(), upper).unwrap()
    }

    fn delete(lower: &str, upper: &str, sequence: u64) -> Fragment {
        let range = range(lower, upper);
        Fragment { range, sequence }
    }

    #[test]
    fn the_newest_delete_counts_in_every_piece() {
        for (deletes, expected) in [
            (vec![], vec![]),
            (vec![delete("a", "c", 1)], vec![delete("a", "c", 1)]),
            (
                vec![delete("a", "z", 1), delete("c", "f", 2)],
                vec![
                    delete("a", "c", 1),
                    delete("c", "f", 2),
                    delete("f", "z", 1),
                ],
            ),
            (
                vec![delete("a", "z", 3), delete("c", "f", 2)],
                vec![delete("a", "z", 3)],
            ),
            (
                vec![delete("a", "", 1), delete("b", "c", 5), delete("c", "", 4)],
                vec![delete("a", "b", 1), delete("b", "c", 5), delete("c", "", 4)],
            ),
            (
                vec![delete("x", "y", 1), delete("a", "b", 2)],
                vec![delete("a", "b", 2), delete("x", "y", 1)],
            ),
        ] {
            assert_eq!(fragments(deletes.iter().collect()), expected);
        }
    }

    #[test]
    fn every_snapshot_sees_the_deletes_before_it() {
        let ranges = Ranges::default();
        assert!(ranges.is_empty() && ranges.view(u64::MAX).is_none());
        let mut random = 7u64;
        let mut model: Vec<(Vec<u8>, Option<Vec<u8>>, u64)> = Vec::new();
        for sequence in 1..=300u64 {
            random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
            let lower = (random >> 33) as u8;
            let upper = lower.saturating_add(1 + (random >> 50) as u8 % 40);
            let upper = (random >> 60 != 0 && upper > lower).then(|| vec![upper]);
            let range = KeyRange::new(&[lower], upper.as_deref()).unwrap();
            ranges.insert(range, sequence);
            model.push((vec![lower], upper, sequence));
            if sequence % 7 != 0 {
                continue;
            }
            for seen in [1, sequence / 2, sequence - 1, sequence, u64::MAX] {
                let view = ranges.view(seen).unwrap();
                for key in 0..=255u8 {
                    let covers = |(lower, upper, at): &&(Vec<u8>, Option<Vec<u8>>, u64)| {
                        *at <= seen
                            && lower.as_slice() <= [key].as_slice()
                            && upper
                                .as_deref()
                                .is_none_or(|upper| [key].as_slice() < upper)
                    };
                    let floor = model.iter().filter(covers).map(|(_, _, at)| *at).max();
                    let floor = floor.unwrap_or(0);
                    assert_eq!(ranges.floor(&[key], seen), floor);
                    assert_eq!(view.floor(&[key]), floor);
                    assert_eq!(view.set().covering(&[key]).is_some(), floor > 0);
                }
            }
        }
    }
}
