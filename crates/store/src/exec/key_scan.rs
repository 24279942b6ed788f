//! Reading the keys of one tree within bounds, jumping over the gaps.
//!
//! Each field has its ranges. A key is checked field by field; where it leaves a range, the cursor
//! seeks to the next key that can be inside. So `{a: {$in: [1, 9]}, b: {$gt: 5}}` on an index of
//! both reads two short stretches. (MongoDB calls the same idea an index bounds checker.)

use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

use frond_bson::key;

use super::operator::{ExecContext, Flow, Pulled};
use super::stats::OperatorStats;
use crate::plan::KeyInterval;
use crate::plan::key_range::{KeyRange, ScanField};
use frond_storage::error::{Result, corrupt};
use frond_storage::intervals::Interval;
use frond_storage::keyspace::after_prefix;
use frond_storage::keyspace::{Cursor, Direction, Snapshot, TreeId};
use frond_storage::record_layout::{PARTITION_BYTES, PartitionId, PartitionSpan};

/// The result of a check of a key.
enum Verdict {
    /// It is inside; the fields end here.
    Inside(usize),
    /// Continue at the first key not below this one (forward), or not above it (backward).
    Seek(Vec<u8>),
    /// No further key is inside.
    Done,
    /// The key is damaged: its fields cannot be decoded.
    Damaged,
}

/// The next step of the scan after a visit.
pub enum Step {
    /// Goes to the next key.
    Next,
    /// Seeks to the first key not below this one, in the direction of the scan.
    Seek(Vec<u8>),
    /// Return from the scan; the next call continues behind this key.
    Pause,
}

impl From<Flow> for Step {
    fn from(flow: Flow) -> Step {
        match flow {
            Flow::Continue => Step::Next,
            Flow::Pause => Step::Pause,
        }
    }
}

/// The keys inside the bounds, read by a cursor that is opened when the first key is asked for.
pub struct KeyScan {
    tree: TreeId,
    range: Option<KeyRange>,
    cursor: Option<Cursor>,
    /// The partitions that are read, and further bounds of the keys in each.
    partitions: Option<(Arc<[PartitionSpan]>, KeyInterval)>,
    fields: Vec<ScanField>,
    forward: bool,
    /// Whether keys count as examined.
    counts_keys: bool,
    /// Whether the cursor's bounds are those of the only field, so that its keys need no check.
    is_one_range: bool,
    /// Whether every key is inside the fields.
    is_whole: bool,
    /// Whether it is known to be long.
    is_long: bool,
}

impl KeyScan {
    /// A scan that has not begun.
    pub fn new(range: KeyRange) -> KeyScan {
        KeyScan {
            forward: range.direction == Direction::Forward,
            tree: range.tree,
            range: Some(range),
            cursor: None,
            partitions: None,
            fields: Vec::new(),
            counts_keys: true,
            is_one_range: false,
            is_whole: false,
            is_long: false,
        }
    }

    /// The same scan, as that of a whole collection: it examines documents, not keys.
    pub fn of_collection(mut self) -> KeyScan {
        self.counts_keys = false;
        self
    }

    /// Marks the scan as long, so that it reads far ahead and does not replace the cache.
    pub fn long(mut self) -> KeyScan {
        self.is_long = true;
        self
    }

    /// The tree that it reads.
    pub fn tree(&self) -> TreeId {
        self.tree
    }

    /// Ends the scan, and releases its snapshot.
    pub fn close(&mut self) {
        self.cursor = None;
    }

    /// Continues on another snapshot of the same moment.
    pub fn continue_on(&mut self, snapshot: &Snapshot) {
        if let Some(cursor) = &mut self.cursor {
            cursor.continue_on(snapshot);
        }
    }

    /// Opens the cursor between the outermost bounds.
    #[inline(never)]
    fn open(
        &mut self,
        snapshot: &Snapshot,
        range: KeyRange,
        stats: &mut OperatorStats,
    ) -> Result<()> {
        let KeyRange {
            tree,
            fields,
            interval,
            direction,
            partitions,
        } = range;
        self.fields = fields;
        if self.fields.iter().any(|field| field.ranges.is_none()) {
            return Ok(());
        }
        stats.seeks += u64::from(self.counts_keys);
        if let Some(spans) = partitions {
            let (Some(first), Some(last)) = (spans.first(), spans.last()) else {
                return Ok(());
            };
            let low = first.0.bytes();
            let high = last.1.0.checked_add(1).map(|end| PartitionId(end).bytes());
            let high = match &high {
                Some(high) => Bound::Excluded(high.as_slice()),
                None => Bound::Unbounded,
            };
            self.cursor = Some(snapshot.cursor(tree, Bound::Included(&low), high, direction)?);
            self.partitions = Some((spans, interval));
            return Ok(());
        }
        let (low, high) = outer_bounds(&self.fields);
        let low = interval.low.map_or(low.clone(), |other| other.max(low));
        let high = match (interval.high, high) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let upper = match &high {
            Some(high) => Bound::Excluded(high.as_slice()),
            None => Bound::Unbounded,
        };
        let lower = if low.is_empty() {
            Bound::Unbounded
        } else {
            Bound::Included(low.as_slice())
        };
        self.is_one_range = match self.fields.as_slice() {
            [field] => field.ranges.as_slice().len() == 1,
            _ => false,
        };
        self.is_whole = !self.counts_keys && self.fields.iter().all(|field| field.ranges.is_all());
        let mut cursor = snapshot.cursor(tree, lower, upper, direction)?;
        if self.is_long {
            cursor.expect_long();
        }
        self.cursor = Some(cursor);
        Ok(())
    }

    /// Calls `visit` with key, value and the end of the fields in the key, for each key inside, until it asks for a
    /// pause. The next call goes on behind the last key.
    ///
    /// # Errors
    /// Errors of the visitor and the engine.
    #[inline(always)] // As a call of its own it costs a scan of the collection 5%.
    pub fn for_each(
        &mut self,
        cx: &ExecContext,
        stats: &mut OperatorStats,
        mut visit: impl FnMut(&[u8], &[u8], usize, &mut OperatorStats) -> Result<Step>,
    ) -> Result<Pulled> {
        if let Some(range) = self.range.take() {
            self.open(cx.snapshot(), range, stats)?;
        }
        let Some(cursor) = &mut self.cursor else {
            return Ok(Pulled::End);
        };
        loop {
            if cx.must_stop() {
                return Ok(Pulled::Paused);
            }
            let Some((key, value)) = cursor.next()? else {
                break;
            };
            if cx.is_out_of_work() {
                return Ok(Pulled::Paused);
            }
            cx.step()?;
            stats.works += 1;
            if self.counts_keys {
                stats.keys_examined += 1;
                cx.spend();
            }
            let direction = self.fields.first().map(|field| field.direction);
            let verdict = match direction.filter(|_| self.is_one_range) {
                _ if self.is_whole => Verdict::Inside(key.len()),
                // The whole key is the field, so the cursor's bounds are those of the range.
                Some(direction) if key::skip(key, direction) == Some(key.len()) => {
                    Verdict::Inside(key.len())
                }
                _ => match &self.partitions {
                    None => check(&self.fields, key, self.forward),
                    Some((spans, interval)) => {
                        check_in_partitions(spans, interval, &self.fields, key, self.forward)
                    }
                },
            };
            let target = match verdict {
                Verdict::Inside(fields_end) => match visit(key, value, fields_end, stats)? {
                    Step::Next => continue,
                    Step::Pause => return Ok(Pulled::Paused),
                    Step::Seek(target) => target,
                },
                // A backward seek may find the end of a range, which is outside: continue below it.
                Verdict::Seek(target) if target == key => continue,
                Verdict::Seek(target) => target,
                Verdict::Done => break,
                Verdict::Damaged => return Err(corrupt("an index key")),
            };
            stats.seeks += 1;
            cursor.seek(&target)?;
        }
        self.cursor = None;
        Ok(Pulled::End)
    }
}

/// The bytes below and above all keys inside: the leading points and the first range behind them.
fn outer_bounds(fields: &[ScanField]) -> (Vec<u8>, Option<Vec<u8>>) {
    let mut prefix = Vec::new();
    for field in fields {
        let (Some(first), Some(last)) = (
            field.ranges.as_slice().first(),
            field.ranges.as_slice().last(),
        ) else {
            break;
        };
        if field.ranges.is_point() {
            prefix.extend_from_slice(&first.low);
            continue;
        }
        let mut low = prefix.clone();
        low.extend_from_slice(&first.low);
        let high = match &last.high {
            Some(high) => {
                let mut bound = prefix;
                bound.extend_from_slice(high);
                Some(bound)
            }
            None => after_prefix(&prefix),
        };
        return (low, high);
    }
    let high = after_prefix(&prefix);
    (prefix, high)
}

fn check(fields: &[ScanField], key: &[u8], forward: bool) -> Verdict {
    let mut start = 0;
    for field in fields {
        let rest = key.get(start..).unwrap_or_default();
        let Some(len) = key::skip(rest, field.direction) else {
            return Verdict::Damaged;
        };
        let value = rest.get(..len).unwrap_or_default();
        if !field.ranges.is_all() {
            let ranges = field.ranges.as_slice();
            let before = key.get(..start).unwrap_or_default();
            let verdict = if forward {
                upwards(ranges, before, value)
            } else {
                downwards(ranges, before, value)
            };
            if let Some(verdict) = verdict {
                return verdict;
            }
        }
        start += len;
    }
    Verdict::Inside(start)
}

/// Checks a key that begins with the number of its partition. At the end of a partition the scan goes on in the next one.
fn check_in_partitions(
    spans: &[PartitionSpan],
    interval: &KeyInterval,
    fields: &[ScanField],
    key: &[u8],
    forward: bool,
) -> Verdict {
    let Some((prefix, own)) = key.split_at_checked(PARTITION_BYTES) else {
        return Verdict::Damaged;
    };
    let Some(id) = PartitionId::of_key(prefix) else {
        return Verdict::Damaged;
    };
    let at = spans.partition_point(|(_, last)| *last < id);
    let (first, _) = match spans.get(at) {
        Some(span) => *span,
        None if forward => return Verdict::Done,
        // The search went to the end of the last span.
        None => (PartitionId(u64::MAX), id),
    };
    if first > id {
        if forward {
            return Verdict::Seek(first.bytes().to_vec());
        }
        let before = at.checked_sub(1).and_then(|before| spans.get(before));
        let end = before.and_then(|(_, last)| last.0.checked_add(1));
        return end.map_or(Verdict::Done, |end| {
            Verdict::Seek(PartitionId(end).bytes().to_vec())
        });
    }
    let is_below = interval
        .low
        .as_ref()
        .is_some_and(|low| own < low.as_slice());
    let is_above = interval
        .high
        .as_ref()
        .is_some_and(|high| own >= high.as_slice());
    let verdict = match (is_below, is_above, forward) {
        (true, _, true) => Verdict::Seek(interval.low.clone().unwrap_or_default()),
        (_, true, false) => Verdict::Seek(interval.high.clone().unwrap_or_default()),
        (true, _, false) | (_, true, true) => Verdict::Done,
        (false, false, _) => check(fields, own, forward),
    };
    match verdict {
        Verdict::Inside(fields_end) => Verdict::Inside(PARTITION_BYTES + fields_end),
        Verdict::Seek(target) => Verdict::Seek(with_prefix(prefix, &target)),
        Verdict::Done if forward => id.0.checked_add(1).map_or(Verdict::Done, |next| {
            Verdict::Seek(PartitionId(next).bytes().to_vec())
        }),
        // All keys of the partition are longer than its number.
        Verdict::Done => Verdict::Seek(prefix.to_vec()),
        Verdict::Damaged => Verdict::Damaged,
    }
}

fn with_prefix(prefix: &[u8], bytes: &[u8]) -> Vec<u8> {
    [prefix, bytes].concat()
}

/// `None` if `value` is inside.
fn upwards(ranges: &[Interval], before: &[u8], value: &[u8]) -> Option<Verdict> {
    let at = ranges.partition_point(|range| range.locate(value) == Ordering::Greater);
    match ranges.get(at) {
        Some(range) if range.locate(value) == Ordering::Equal => None,
        Some(range) => Some(Verdict::Seek(with_prefix(before, &range.low))),
        // Beyond the last range: continue behind all keys with this prefix.
        None if before.is_empty() => Some(Verdict::Done),
        None => Some(after_prefix(before).map_or(Verdict::Done, Verdict::Seek)),
    }
}

/// `None` if `value` is inside.
fn downwards(ranges: &[Interval], before: &[u8], value: &[u8]) -> Option<Verdict> {
    let above = ranges.partition_point(|range| range.locate(value) != Ordering::Less);
    match above.checked_sub(1).and_then(|at| ranges.get(at)) {
        Some(range) if range.locate(value) == Ordering::Equal => None,
        Some(range) => {
            // The greatest key below the range's end. The end itself is no key of this tree: it is
            // no whole encoding, or the encoding of a value that is outside and then checked again.
            let end = range.high.as_deref().unwrap_or_default();
            Some(Verdict::Seek(with_prefix(before, end)))
        }
        None if before.is_empty() => Some(Verdict::Done),
        // Every key is longer than this prefix, so this seeks to the keys below it.
        None => Some(Verdict::Seek(before.to_vec())),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use frond_bson::Value;
    use frond_storage::intervals::Intervals;

    fn encoded(values: &[i32]) -> Vec<u8> {
        let mut out = Vec::new();
        for value in values {
            key::encode(&Value::Int32(*value), &mut out);
        }
        out
    }

    fn field(parts: &[(i32, i32)]) -> ScanField {
        let part = |&(low, high): &(i32, i32)| Interval {
            low: encoded(&[low]),
            high: after_prefix(&encoded(&[high])),
            point: low == high,
            ..Interval::all()
        };
        ScanField {
            ranges: Intervals::union_of(parts.iter().map(part).collect()),
            direction: key::Direction::Ascending,
        }
    }

    /// Walks sorted keys by the verdicts, as a cursor would.
    fn walk(fields: &[ScanField], keys: &[Vec<u8>], forward: bool) -> (Vec<Vec<u8>>, usize) {
        let mut found = Vec::new();
        let mut looked_at = 0;
        let mut at = if forward { 0 } else { keys.len() };
        loop {
            let key = if forward {
                keys.get(at)
            } else {
                at.checked_sub(1).and_then(|below| keys.get(below))
            };
            let Some(key) = key else { break };
            looked_at += 1;
            let step = if forward { at + 1 } else { at - 1 };
            at = match check(fields, key, forward) {
                Verdict::Inside(_) => {
                    found.push(key.clone());
                    step
                }
                Verdict::Seek(target) if forward => {
                    assert!(target > *key, "a seek goes on");
                    keys.partition_point(|other| *other < target)
                }
                Verdict::Seek(target) => {
                    assert!(target <= *key, "a seek goes on");
                    let next = keys.partition_point(|other| *other <= target);
                    assert!(next <= at);
                    if next == at { step } else { next }
                }
                Verdict::Done => break,
                Verdict::Damaged => panic!("damaged"),
            };
        }
        (found, looked_at)
    }

    #[test]
    fn both_directions_find_exactly_the_keys_inside() {
        let mut keys = Vec::new();
        for a in 0..20 {
            for b in 0..20 {
                keys.push(encoded(&[a, b, a * 100 + b]));
            }
        }
        keys.sort();
        for (fields, looks_max) in [
            (vec![field(&[(3, 3)])], 22),
            (vec![field(&[(3, 5), (9, 9)])], 83),
            (
                vec![field(&[(2, 2), (7, 7)]), field(&[(5, 6), (19, 19)])],
                20,
            ),
            (vec![field(&[(0, 19)]), field(&[(7, 7)])], 62),
            (
                vec![
                    ScanField {
                        ranges: Intervals::all(),
                        ..field(&[])
                    },
                    field(&[(18, 30)]),
                ],
                82,
            ),
            (vec![field(&[(30, 40)])], 1),
        ] {
            let inside = |key: &&Vec<u8>| {
                let mut start = 0;
                fields.iter().all(|field| {
                    let len = key::skip(&key[start..], field.direction).unwrap();
                    let value = &key[start..start + len];
                    start += len;
                    field.ranges.contains(value)
                })
            };
            let mut expected: Vec<_> = keys.iter().filter(inside).cloned().collect();
            let (found, looks) = walk(&fields, &keys, true);
            assert_eq!(found, expected);
            assert!(looks <= looks_max, "{looks} keys for {}", found.len());
            expected.reverse();
            let (found, looks) = walk(&fields, &keys, false);
            assert_eq!(found, expected);
            assert!(
                looks <= looks_max,
                "{looks} keys downwards for {}",
                found.len()
            );
        }
    }
}
