//! Bounds of ranges.

use std::ops::Bound;

/// The first key that may be in a range, and the first one beyond it.
pub(crate) fn half_open(lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> (Vec<u8>, Option<Vec<u8>>) {
    let lower = match lower {
        Bound::Included(lower) => lower.to_vec(),
        Bound::Excluded(lower) => just_above(lower),
        Bound::Unbounded => Vec::new(),
    };
    let upper = match upper {
        Bound::Included(upper) => Some(just_above(upper)),
        Bound::Excluded(upper) => Some(upper.to_vec()),
        Bound::Unbounded => None,
    };
    (lower, upper)
}

/// The first key above all that begin with a prefix of a stored key, which has a byte below 255.
pub(crate) fn after_prefix(prefix: &[u8]) -> Vec<u8> {
    let mut above = prefix.to_vec();
    while let Some(last) = above.pop() {
        if last < u8::MAX {
            above.push(last + 1);
            break;
        }
    }
    above
}

/// The least key above another one.
pub(crate) fn just_above(key: &[u8]) -> Vec<u8> {
    let mut above = Vec::with_capacity(key.len() + 1);
    above.extend_from_slice(key);
    above.push(0);
    above
}
