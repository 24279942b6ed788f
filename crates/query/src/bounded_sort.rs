//! Sorting that can be interrupted.
//!
//! The sorts of the standard library run to their end. Those of a few values take them; more values are sorted in runs, and the
//! runs are merged with a check at intervals.

use crate::bounds;
use frond_bson::Value;
use frond_error::Result;
use std::cmp::Ordering;

/// The most values, and the most bytes of values, that are sorted without a check.
const FEW: usize = 32;
const RUN_VALUES_MAX: usize = 1024;
const RUN_BYTES_MAX: usize = 64 << 10;

/// Sorts values; equal ones keep their order.
///
/// # Errors
/// Those of the bounds of the evaluation.
pub(crate) fn sort_values<'v>(
    values: &mut Vec<Value<'v>>,
    compare: impl FnMut(&Value<'v>, &Value<'v>) -> Ordering,
) -> Result<()> {
    sort_by(values, Value::len_bytes, compare)
}

/// Sorts items; equal ones keep their order. `bytes` is the most that a comparison reads of an item. Items own no memory,
/// because a merge copies them and only their own size is reserved.
///
/// # Errors
/// Those of the bounds of the evaluation.
pub(crate) fn sort_by<T: Copy>(
    items: &mut Vec<T>,
    bytes: impl Fn(&T) -> usize,
    mut compare: impl FnMut(&T, &T) -> Ordering,
) -> Result<()> {
    if items.len() <= FEW && items.iter().map(&bytes).sum::<usize>() <= RUN_BYTES_MAX {
        items.sort_by(compare);
        return Ok(());
    }
    let mut ends = Vec::new();
    let mut start = 0;
    while start < items.len() {
        let end = end_of_run(items, start, &bytes);
        if let Some(run) = items.get_mut(start..end) {
            bounds::work(run.len())?;
            run.sort_by(&mut compare);
        }
        ends.push(end);
        start = end;
    }
    if ends.len() < 2 {
        return Ok(());
    }
    // A merge reads one list and writes the other one.
    bounds::reserve_list::<T>(items.len())?;
    let mut merged = Vec::with_capacity(items.len());
    while ends.len() > 1 {
        merged.clear();
        let mut merged_ends = Vec::with_capacity(ends.len().div_ceil(2));
        let mut start = 0;
        for pair in ends.chunks(2) {
            let middle = pair.first().copied().unwrap_or(start);
            let end = pair.last().copied().unwrap_or(middle);
            let left = items.get(start..middle).unwrap_or_default();
            let right = items.get(middle..end).unwrap_or_default();
            merge(left, right, &mut merged, &bytes, &mut compare)?;
            merged_ends.push(end);
            start = end;
        }
        std::mem::swap(items, &mut merged);
        ends = merged_ends;
    }
    Ok(())
}

/// Drops each item that is equal to the one before it.
///
/// # Errors
/// Those of the bounds of the evaluation.
pub(crate) fn dedup_by<T: Copy>(
    items: &mut Vec<T>,
    mut compare: impl FnMut(&T, &T) -> Result<Ordering>,
) -> Result<()> {
    let mut kept = 0;
    for at in 1..items.len() {
        let (Some(last), Some(item)) = (items.get(kept).copied(), items.get(at).copied()) else {
            break;
        };
        if compare(&last, &item)?.is_ne() {
            kept += 1;
            if let Some(place) = items.get_mut(kept) {
                *place = item;
            }
        }
    }
    items.truncate(kept + 1);
    Ok(())
}

/// The end of a run that is short enough, at least one item behind its start.
fn end_of_run<T>(items: &[T], start: usize, bytes: &impl Fn(&T) -> usize) -> usize {
    let mut total = 0;
    let more = items.iter().skip(start).take(RUN_VALUES_MAX);
    let count = more
        .take_while(|item| {
            total += bytes(item);
            total <= RUN_BYTES_MAX
        })
        .count();
    start + count.max(1)
}

/// Appends the items of two sorted runs in order.
fn merge<T: Copy>(
    mut left: &[T],
    mut right: &[T],
    merged: &mut Vec<T>,
    bytes: &impl Fn(&T) -> usize,
    compare: &mut impl FnMut(&T, &T) -> Ordering,
) -> Result<()> {
    while let (Some((a, after_a)), Some((b, after_b))) = (left.split_first(), right.split_first()) {
        bounds::work_on(bytes(a).max(bytes(b)))?;
        if compare(a, b).is_le() {
            merged.push(*a);
            left = after_a;
        } else {
            merged.push(*b);
            right = after_b;
        }
    }
    merged.extend_from_slice(left);
    merged.extend_from_slice(right);
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::random::Random;

    #[test]
    fn long_lists_are_sorted_as_by_the_standard_library() {
        let random = Random::new();
        for count in [0, 1, 2, 1023, 1024, 1025, 5000, 20_000] {
            for size in [1, 100, 100_000] {
                let items: Vec<(u32, usize)> = (0..count)
                    .map(|at| ((random.fraction() * 100.0) as u32, at))
                    .collect();
                let mut expected = items.clone();
                expected.sort_by_key(|(key, _)| *key);
                let mut sorted = items;
                sort_by(&mut sorted, |_| size, |a, b| a.0.cmp(&b.0)).unwrap();
                assert_eq!(sorted, expected, "{count} items of {size} bytes");
            }
        }
    }
}
