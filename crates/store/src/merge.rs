//! The merge operator of the store: counters that add up, multikey paths that grow, and path messages to large
//! documents.
//!
//! Every write to a collection sends one delta of (documents, bytes) to the collection's counter in
//! the catalog tree, in the same write set as the documents. No writer reads the counter, no two
//! writers conflict on it, and after a crash it agrees with the documents. In the same way a writer
//! adds the path components that were arrays to an index's multikey paths.

use std::sync::Arc;

use frond_query::paths::{MAX_KEY_FIELDS, MultikeyPaths};

use crate::keyspace::{CATALOG_TREE, MergeOperator, TreeId};
use crate::record::message;

/// Documents and their bytes in a collection; also a change of both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of documents.
    pub documents: i64,
    /// Sum of the documents' BSON sizes.
    pub bytes: i64,
}

impl Counts {
    /// Size of the stored form: two 64-bit little-endian integers.
    pub const STORED_BYTES: usize = 16;

    /// The stored form.
    pub fn to_bytes(self) -> [u8; Self::STORED_BYTES] {
        let mut out = [0; Self::STORED_BYTES];
        let (documents, bytes) = out.split_at_mut(8);
        documents.copy_from_slice(&self.documents.to_le_bytes());
        bytes.copy_from_slice(&self.bytes.to_le_bytes());
        out
    }

    /// Reads the stored form; `None` if it has another length.
    pub fn from_bytes(stored: &[u8]) -> Option<Counts> {
        let (documents, bytes) = stored.split_at_checked(8)?;
        Some(Counts {
            documents: i64::from_le_bytes(documents.try_into().ok()?),
            bytes: i64::from_le_bytes(bytes.try_into().ok()?),
        })
    }

    /// One document of this size more.
    pub fn add_document(&mut self, bytes: usize) {
        self.documents += 1;
        self.bytes += bytes as i64;
    }

    /// One document of this size less.
    pub fn remove_document(&mut self, bytes: usize) {
        self.documents -= 1;
        self.bytes -= bytes as i64;
    }
}

impl std::ops::Add for Counts {
    type Output = Counts;

    fn add(self, other: Counts) -> Counts {
        Counts {
            documents: self.documents.wrapping_add(other.documents),
            bytes: self.bytes.wrapping_add(other.bytes),
        }
    }
}

/// The first byte of a key of the catalog tree, which decides how its messages merge. The catalog lists all kinds.
pub mod kind {
    /// Adds [`super::Counts`].
    pub const COUNTER: u8 = 4;
    /// Unites [`MultikeyPaths`](frond_query::paths::MultikeyPaths): a 1, then a set of components for each field, 4
    /// bytes, little-endian. Before that: 4 bytes, little-endian, with one bit for each field.
    pub const MULTIKEY: u8 = 5;
}

/// Dispatches on the tree, and in the catalog on the first byte of the key. Messages in other trees change large
/// documents; their first byte tells their type.
struct StoreMerge;

/// Reads a counter or a delta; a malformed one counts as zero, and verification reports the difference.
fn read(stored: &[u8]) -> Counts {
    Counts::from_bytes(stored).unwrap_or_default()
}

/// The first byte of multikey paths with a set of components for each field. The older form has 4 bytes without it,
/// with one bit for each field.
const MULTIKEY_COMPONENTS: u8 = 1;

/// Multikey paths as they are stored.
pub fn multikey_bytes(paths: &MultikeyPaths) -> Vec<u8> {
    let mut stored = vec![MULTIKEY_COMPONENTS];
    for components in paths.sets() {
        stored.extend_from_slice(&components.to_le_bytes());
    }
    stored
}

/// Reads multikey paths. The older form marks whole fields: all components of these count as arrays. In malformed
/// ones all components of all fields do, which is safe.
pub fn read_multikey(stored: &[u8]) -> MultikeyPaths {
    let sets = match *stored {
        [a, b, c, d] => {
            let bits = u32::from_le_bytes([a, b, c, d]);
            let fields = (0..MAX_KEY_FIELDS).map(|field| bits & (1 << field) != 0);
            fields.map(|met| if met { u32::MAX } else { 0 }).collect()
        }
        [MULTIKEY_COMPONENTS, ref sets @ ..] if sets.len().is_multiple_of(4) => {
            let sets = sets.as_chunks::<4>().0.iter();
            sets.copied().map(u32::from_le_bytes).collect()
        }
        _ => vec![u32::MAX; MAX_KEY_FIELDS],
    };
    MultikeyPaths::from_sets(sets)
}

fn merge(key: &[u8], older: Option<&[u8]>, newer: &[u8]) -> Vec<u8> {
    match key.first() {
        Some(&kind::MULTIKEY) => {
            let mut both = older.map(read_multikey).unwrap_or_default();
            both.extend(&read_multikey(newer));
            multikey_bytes(&both)
        }
        _ => {
            let older = older.map(read).unwrap_or_default();
            (older + read(newer)).to_bytes().to_vec()
        }
    }
}

impl MergeOperator for StoreMerge {
    fn apply(
        &self,
        tree: TreeId,
        key: &[u8],
        base: Option<&[u8]>,
        delta: &[u8],
    ) -> Option<Vec<u8>> {
        match tree {
            CATALOG_TREE => Some(merge(key, base, delta)),
            _ => message::apply(base, std::iter::once(delta)),
        }
    }

    fn apply_all(
        &self,
        tree: TreeId,
        key: &[u8],
        base: Option<&[u8]>,
        deltas: &[&[u8]],
    ) -> Option<Vec<u8>> {
        if tree != CATALOG_TREE {
            return message::apply(base, deltas.iter().copied());
        }
        let mut state = None;
        for delta in deltas {
            state = Some(merge(key, state.as_deref().or(base), delta));
        }
        state
    }

    fn combine_all(&self, tree: TreeId, key: &[u8], deltas: &[&[u8]]) -> Vec<u8> {
        if tree != CATALOG_TREE {
            return message::combine(deltas.iter().copied());
        }
        let mut rest = deltas.iter();
        let first = rest.next().map_or_else(Vec::new, |first| first.to_vec());
        rest.fold(first, |older, newer| merge(key, Some(&older), newer))
    }

    fn combine(&self, tree: TreeId, key: &[u8], older: &[u8], newer: &[u8]) -> Vec<u8> {
        match tree {
            CATALOG_TREE => merge(key, Some(older), newer),
            _ => message::combine([older, newer].into_iter()),
        }
    }
}

/// The operator that an engine below a [`crate::DocumentStore`] must be opened with.
pub fn merge_operator() -> Arc<dyn MergeOperator> {
    Arc::new(StoreMerge)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const COUNTER_KEY: &[u8] = &[kind::COUNTER, 1];
    const MULTIKEY_KEY: &[u8] = &[kind::MULTIKEY, 1];

    #[test]
    fn combining_then_applying_equals_applying_in_turn() {
        let counts = |documents, bytes| Counts { documents, bytes }.to_bytes().to_vec();
        let paths = |sets: &[u32]| multikey_bytes(&MultikeyPaths::from_sets(sets.to_vec()));
        // The older form.
        let fields = |bits: u32| bits.to_le_bytes().to_vec();
        for (key, deltas, expected) in [
            (
                COUNTER_KEY,
                [counts(3, 100), counts(-1, -40), counts(5, 0)],
                counts(7, 60),
            ),
            (
                MULTIKEY_KEY,
                [paths(&[1]), paths(&[2, 0, 4]), paths(&[])],
                paths(&[3, 0, 4]),
            ),
            (
                MULTIKEY_KEY,
                [fields(1), fields(4), paths(&[1, 6])],
                paths(&[u32::MAX, 6, u32::MAX]),
            ),
        ] {
            let operator = merge_operator();
            let tree = CATALOG_TREE;
            let mut in_turn: Option<Vec<u8>> = None;
            for delta in &deltas {
                in_turn = operator.apply(tree, key, in_turn.as_deref(), delta);
            }
            let combined = operator.combine(tree, key, &deltas[1], &deltas[2]);
            let combined = operator.combine(tree, key, &deltas[0], &combined);
            assert_eq!(operator.apply(tree, key, None, &combined), in_turn);
            assert_eq!(in_turn, Some(expected));
        }
    }

    #[test]
    fn malformed_values_do_no_harm() {
        assert_eq!(Counts::from_bytes(b"short"), None);
        assert_eq!(Counts::from_bytes(&[0; 17]), None);
        for malformed in [&b"x"[..], b"", &[1, 0, 0], &[2, 0, 0, 0, 0]] {
            let paths = read_multikey(malformed);
            assert!((0..MAX_KEY_FIELDS).all(|field| paths.set(field) == u32::MAX));
        }
    }

    #[test]
    fn multikey_fields_of_older_stores_count_with_all_components() {
        for (bits, sets) in [
            (0u32, vec![]),
            (1, vec![u32::MAX]),
            (0b101, vec![u32::MAX, 0, u32::MAX]),
        ] {
            assert_eq!(read_multikey(&bits.to_le_bytes()).sets(), sets);
        }
        let paths = MultikeyPaths::from_sets(vec![0, 0b11]);
        assert_eq!(read_multikey(&multikey_bytes(&paths)), paths);
    }
}
