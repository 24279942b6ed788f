//! Bounds of runs of long keys.
//!
//! Nodes hold the bounds of the runs below them. Of short keys these are the smallest and the largest key. Of a long key only as
//! much is kept as distinguishes it from its neighbours: otherwise nodes would be as large as the leaves below them.

use crate::bytes::SHORT_KEY_BYTES_MAX;
use crate::run_index::separator;

/// At least this much of a long key is kept, so that reads of other keys rarely look into the run.
const KEPT_BYTES: usize = 1024;

/// A key that is not above `first`, the first key of a run, and not below `lower`, which is not above `first` either. Without
/// `lower` it is `first`.
pub(crate) fn lower_bound<'a>(first: &'a [u8], lower: Option<&[u8]>) -> &'a [u8] {
    match lower {
        Some(lower) if first.len() > SHORT_KEY_BYTES_MAX => {
            let kept = separator(lower, first).len().max(KEPT_BYTES);
            &first[..kept]
        }
        _ => first,
    }
}

/// Makes the last key of a run a key that is not below it, and below `upper`, which is above it. `Some(None)` is no upper bound;
/// without `upper` the key stays.
pub(crate) fn raise_to_upper_bound(last: &mut Vec<u8>, upper: Option<Option<&[u8]>>) {
    let Some(upper) = upper.filter(|_| last.len() > SHORT_KEY_BYTES_MAX) else {
        return;
    };
    let shared = upper.map_or(0, |upper| {
        let both = last.iter().zip(upper);
        both.take_while(|(a, b)| a == b).count()
    });
    // The byte after the shared ones is what makes it lower, so a later one is raised.
    let from = (shared + 1).max(KEPT_BYTES - 1);
    let raised = last.iter().skip(from).position(|byte| *byte != u8::MAX);
    if let Some(at) = raised.map(|at| from + at) {
        last.truncate(at + 1);
        last[at] += 1;
    }
}

/// Whether `first` and `last`, the first and the last key of a run, belong to these bounds.
pub(crate) fn fit(first: &[u8], last: &[u8], lower: &[u8], upper: &[u8]) -> bool {
    let is_lower = if first.len() > SHORT_KEY_BYTES_MAX {
        first.starts_with(lower)
    } else {
        first == lower
    };
    let is_upper = if last.len() > SHORT_KEY_BYTES_MAX {
        last <= upper
    } else {
        last == upper
    };
    is_lower && is_upper
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(begin: &[u8], rest: u8) -> Vec<u8> {
        let mut key = begin.to_vec();
        key.resize(SHORT_KEY_BYTES_MAX + 100, rest);
        key
    }

    fn upper_bound(last: &[u8], upper: Option<Option<&[u8]>>) -> Vec<u8> {
        let mut bound = last.to_vec();
        raise_to_upper_bound(&mut bound, upper);
        bound
    }

    #[test]
    fn bounds_of_short_keys_are_the_keys() {
        let key = vec![b'k'; SHORT_KEY_BYTES_MAX];
        assert_eq!(lower_bound(&key, Some(b"a")), key);
        assert_eq!(upper_bound(&key, Some(Some(b"z"))), key);
        assert_eq!(upper_bound(&key, Some(None)), key);
        assert!(fit(&key, &key, &key, &key));
        assert!(!fit(&key, &key, b"k", &key) && !fit(&key, &key, &key, b"z"));
    }

    #[test]
    fn bounds_of_long_keys_are_short_and_lie_between_their_neighbours() {
        let shared = vec![b'k'; 70_000];
        let keys = [
            long(b"", 0),
            long(b"a", 0),
            long(b"a", 1),
            long(b"a", 255),
            long(b"b", b'b'),
            [&shared[..], b"a"].concat(),
            [&shared[..], b"a\xff\xff"].concat(),
            [&shared[..], b"ab and more"].concat(),
            [&shared[..], b"b"].concat(),
            long(&[255; 2000], 0),
            long(&[255], 255),
        ];
        let mut keys = keys.to_vec();
        keys.sort();
        for pair in keys.windows(2) {
            let (before, after) = (&pair[0], &pair[1]);
            let upper = upper_bound(before, Some(Some(after)));
            assert!(*before <= upper && upper < *after);
            let lower = lower_bound(after, Some(&upper));
            assert!(&upper[..] < lower && lower <= &after[..]);
            assert!(fit(after, before, lower, &upper));
            let differ = before.iter().zip(after).position(|(a, b)| a != b);
            let needed = differ.unwrap_or(before.len()).max(KEPT_BYTES);
            assert!(lower.len() <= needed + 1, "{} bytes", lower.len());
            assert!(before.contains(&255) || upper.len() <= needed + 2);
        }
        for key in &keys {
            // Nothing is known of the neighbours.
            assert_eq!(lower_bound(key, None), key);
            assert_eq!(upper_bound(key, None), *key);
            // There are none.
            assert!(lower_bound(key, Some(b"")).len() == KEPT_BYTES);
            assert!(*key <= upper_bound(key, Some(None)));
        }
        assert_eq!(upper_bound(&long(b"", 7), Some(None)).len(), KEPT_BYTES);
    }
}
