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
    just_above_prefix(prefix).unwrap_or_default()
}

/// The least key above another one.
pub(crate) fn just_above(key: &[u8]) -> Vec<u8> {
    let mut above = Vec::with_capacity(key.len() + 1);
    above.extend_from_slice(key);
    above.push(0);
    above
}

/// The first key above all that begin with `prefix`.
pub(crate) fn just_above_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let keep = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut above = prefix[..=keep].to_vec();
    above[keep] += 1;
    Some(above)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_with_a_prefix_are_below_the_next_one() {
        let cases: [(&[u8], &[u8]); 4] = [
            (b"ab", b"ac"),
            (b"a\xff", b"b"),
            (b"a\xff\xff", b"b"),
            (b"t\0", b"t\x01"),
        ];
        for (prefix, expected) in cases {
            assert_eq!(after_prefix(prefix), expected, "{prefix:?}");
        }
    }
}
