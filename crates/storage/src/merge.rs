//! The merge operator of the store: counters that add up, multikey paths that grow, and path messages to large
//! documents.
//!
//! Every write to a collection sends one delta of (documents, bytes) to the collection's counter in
//! the catalog tree, in the same write set as the documents. No writer reads the counter, no two
//! writers conflict on it, and after a crash it agrees with the documents. In the same way a writer
//! adds the path components that were arrays to an index's multikey paths.

use std::sync::Arc;

use frond_query::paths::{MAX_KEY_FIELDS, MultikeyPaths};

use crate::keyspace::{CATALOG_TREE, Malformed, MergeOperator, TreeId};
use crate::record::fast_update::{self, FastUpdateStats};
use crate::record::message;

/// Documents and their bytes in a collection; also a change of both.
///
/// A fast update does not know whether it inserts a document, nor by how much it makes one larger. It is counted instead, so
/// that the count and the size are known to be inexact. To count the documents of a snapshot makes them exact again: the change by
/// the difference also takes away the fast updates that the snapshot has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub documents: i64,
    /// Sum of the documents' BSON sizes.
    pub bytes: i64,
    /// Fast updates that are not in `documents`: upserts.
    pub upserts: i64,
    /// Fast updates that are not in `bytes`: all.
    pub updates: i64,
}

impl Counts {
    /// Size of the stored form: 64-bit little-endian integers.
    const EXACT_BYTES: usize = 16;

    /// The stored form. Without fast updates it has only the first two numbers, as before there were any.
    pub fn to_bytes(self) -> Vec<u8> {
        let mut out = [self.documents.to_le_bytes(), self.bytes.to_le_bytes()].concat();
        if (self.upserts, self.updates) != (0, 0) {
            out.extend_from_slice(&self.upserts.to_le_bytes());
            out.extend_from_slice(&self.updates.to_le_bytes());
        }
        out
    }

    /// Reads the stored form; `None` if it has another length.
    pub fn from_bytes(stored: &[u8]) -> Option<Counts> {
        let (numbers, rest) = stored.as_chunks::<8>();
        if !rest.is_empty() || !matches!(stored.len() / Self::EXACT_BYTES, 1 | 2) {
            return None;
        }
        let number = |at: usize| numbers.get(at).copied().map_or(0, i64::from_le_bytes);
        (numbers.len() % 2 == 0).then(|| Counts {
            documents: number(0),
            bytes: number(1),
            upserts: number(2),
            updates: number(3),
        })
    }

    /// Whether no document of the collection is missing in the count.
    pub fn has_all_documents(self) -> bool {
        self.upserts == 0
    }

    /// Whether the collection is known to have no documents.
    pub fn are_zero(self) -> bool {
        self.documents == 0 && self.has_all_documents()
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
            upserts: self.upserts.wrapping_add(other.upserts),
            updates: self.updates.wrapping_add(other.updates),
        }
    }
}

impl std::ops::Sub for Counts {
    type Output = Counts;

    fn sub(self, other: Counts) -> Counts {
        Counts {
            documents: self.documents.wrapping_sub(other.documents),
            bytes: self.bytes.wrapping_sub(other.bytes),
            upserts: self.upserts.wrapping_sub(other.upserts),
            updates: self.updates.wrapping_sub(other.updates),
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

/// Dispatches on the tree, and in the catalog on the first byte of the key. Messages in other trees change documents; their
/// first byte is their type.
struct StoreMerge {
    stats: Arc<FastUpdateStats>,
}

/// Applies messages to a document or a part of one.
fn apply_messages(
    base: Option<&[u8]>,
    deltas: &[&[u8]],
    stats: Option<&FastUpdateStats>,
) -> Result<Option<Vec<u8>>, Malformed> {
    if deltas
        .iter()
        .any(|delta| fast_update::message::is_fast(delta))
    {
        fast_update::message::apply(base, deltas.iter().copied(), stats)
    } else {
        message::apply(base, deltas.iter().copied())
    }
}

fn combine_messages(deltas: &[&[u8]]) -> Result<Vec<u8>, Malformed> {
    if deltas
        .iter()
        .any(|delta| fast_update::message::is_fast(delta))
    {
        fast_update::message::combine(deltas.iter().copied())
    } else {
        message::combine(deltas.iter().copied())
    }
}

/// Reads a counter or a delta.
fn read(stored: &[u8]) -> Result<Counts, Malformed> {
    let what = Malformed("a counter of documents and bytes has a wrong length");
    Counts::from_bytes(stored).ok_or(what)
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

/// Reads multikey paths. The older form marks whole fields: all components of these count as arrays.
///
/// # Errors
/// If they are malformed.
pub fn read_multikey(stored: &[u8]) -> Result<MultikeyPaths, Malformed> {
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
        _ => {
            return Err(Malformed(
                "the multikey paths of an index are in no known form",
            ));
        }
    };
    Ok(MultikeyPaths::from_sets(sets))
}

fn merge(key: &[u8], older: Option<&[u8]>, newer: &[u8]) -> Result<Vec<u8>, Malformed> {
    match key.first() {
        Some(&kind::MULTIKEY) => {
            let mut both = older.map(read_multikey).transpose()?.unwrap_or_default();
            both.extend(&read_multikey(newer)?);
            Ok(multikey_bytes(&both))
        }
        Some(&kind::COUNTER) => {
            let older = older.map(read).transpose()?.unwrap_or_default();
            Ok((older + read(newer)?).to_bytes())
        }
        _ => Err(Malformed("a key of the catalog takes no update messages")),
    }
}

impl MergeOperator for StoreMerge {
    fn apply(
        &self,
        tree: TreeId,
        key: &[u8],
        base: Option<&[u8]>,
        delta: &[u8],
    ) -> Result<Option<Vec<u8>>, Malformed> {
        match tree {
            CATALOG_TREE => merge(key, base, delta).map(Some),
            _ => apply_messages(base, &[delta], None),
        }
    }

    fn apply_all(
        &self,
        tree: TreeId,
        key: &[u8],
        base: Option<&[u8]>,
        deltas: &[&[u8]],
    ) -> Result<Option<Vec<u8>>, Malformed> {
        if tree != CATALOG_TREE {
            return apply_messages(base, deltas, None);
        }
        let mut state = None;
        for delta in deltas {
            state = Some(merge(key, state.as_deref().or(base), delta)?);
        }
        Ok(state)
    }

    fn settle(
        &self,
        tree: TreeId,
        key: &[u8],
        base: Option<&[u8]>,
        deltas: &[&[u8]],
    ) -> Result<Option<Vec<u8>>, Malformed> {
        if tree == CATALOG_TREE {
            return self.apply_all(tree, key, base, deltas);
        }
        apply_messages(base, deltas, Some(&self.stats))
    }

    fn combine_all(
        &self,
        tree: TreeId,
        key: &[u8],
        deltas: &[&[u8]],
    ) -> Result<Vec<u8>, Malformed> {
        if tree != CATALOG_TREE {
            return combine_messages(deltas);
        }
        let mut rest = deltas.iter();
        let first = rest.next().map_or_else(Vec::new, |first| first.to_vec());
        rest.try_fold(first, |older, newer| merge(key, Some(&older), newer))
    }

    fn combine(
        &self,
        tree: TreeId,
        key: &[u8],
        older: &[u8],
        newer: &[u8],
    ) -> Result<Vec<u8>, Malformed> {
        match tree {
            CATALOG_TREE => merge(key, Some(older), newer),
            _ => combine_messages(&[older, newer]),
        }
    }

    fn check(&self, tree: TreeId, key: &[u8], delta: &[u8]) -> Result<(), Malformed> {
        match tree {
            CATALOG_TREE => merge(key, None, delta).map(|_| ()),
            _ if fast_update::message::is_fast(delta) => fast_update::message::check(delta),
            _ => message::check(delta),
        }
    }
}

/// The operator that an engine below a document store must be opened with.
pub fn merge_operator() -> Arc<dyn MergeOperator> {
    merge_operator_counting(Arc::default())
}

/// Makes the merge operator of a store that counts the fast updates that fail.
pub fn merge_operator_counting(stats: Arc<FastUpdateStats>) -> Arc<dyn MergeOperator> {
    Arc::new(StoreMerge { stats })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const COUNTER_KEY: &[u8] = &[kind::COUNTER, 1];
    const MULTIKEY_KEY: &[u8] = &[kind::MULTIKEY, 1];

    #[test]
    fn an_empty_delta_is_refused() {
        let operator = merge_operator();
        for (tree, key) in [
            (CATALOG_TREE, COUNTER_KEY),
            (CATALOG_TREE, MULTIKEY_KEY),
            (TreeId(7), b"any key"),
        ] {
            assert!(operator.check(tree, key, &[]).is_err(), "{tree:?} {key:?}");
        }
    }

    #[test]
    fn combining_then_applying_equals_applying_in_turn() {
        let counts = |documents, bytes| {
            let exact = Counts {
                documents,
                bytes,
                ..Counts::default()
            };
            exact.to_bytes()
        };
        let fast = |upserts, updates| {
            let counts = Counts {
                upserts,
                updates,
                ..Counts::default()
            };
            counts.to_bytes()
        };
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
                COUNTER_KEY,
                [counts(3, 100), fast(2, 5), fast(-2, -5)],
                counts(3, 100),
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
                in_turn = operator
                    .apply(tree, key, in_turn.as_deref(), delta)
                    .unwrap();
            }
            let combined = operator.combine(tree, key, &deltas[1], &deltas[2]).unwrap();
            let combined = operator.combine(tree, key, &deltas[0], &combined).unwrap();
            assert_eq!(
                operator.apply(tree, key, None, &combined),
                Ok(in_turn.clone())
            );
            assert_eq!(in_turn, Some(expected));
        }
    }

    /// A key, a message for it that can be read, and some that cannot.
    type Case<'a> = (&'a [u8], &'a [u8], &'a [&'a [u8]]);

    #[test]
    fn malformed_values_are_refused() {
        let operator = merge_operator();
        let good = Counts {
            documents: 1,
            bytes: 9,
            ..Counts::default()
        }
        .to_bytes();
        let cases: [Case<'_>; 3] = [
            (
                COUNTER_KEY,
                &good,
                &[b"short", b"", &[0; 17], &[0; 24], &[0; 40]],
            ),
            (
                MULTIKEY_KEY,
                &[1, 1, 0, 0, 0],
                &[b"x", b"", &[1, 0, 0], &[2, 0, 0, 0, 0]],
            ),
            // No update message goes to a collection's entry.
            (&[1, b'a'], b"", &[&good, b""]),
        ];
        for (key, good, malformed) in cases {
            for bad in malformed {
                let tree = CATALOG_TREE;
                assert!(operator.check(tree, key, bad).is_err());
                assert!(operator.apply(tree, key, None, bad).is_err());
                assert!(operator.apply(tree, key, Some(good), bad).is_err());
                assert!(operator.apply(tree, key, Some(bad), good).is_err());
                assert!(operator.combine(tree, key, good, bad).is_err());
                assert!(operator.combine(tree, key, bad, good).is_err());
                assert!(operator.apply_all(tree, key, None, &[good, bad]).is_err());
                assert!(operator.combine_all(tree, key, &[good, bad, good]).is_err());
            }
        }
    }

    #[test]
    fn multikey_fields_of_older_stores_count_with_all_components() {
        for (bits, sets) in [
            (0u32, vec![]),
            (1, vec![u32::MAX]),
            (0b101, vec![u32::MAX, 0, u32::MAX]),
        ] {
            assert_eq!(read_multikey(&bits.to_le_bytes()).unwrap().sets(), sets);
        }
        let paths = MultikeyPaths::from_sets(vec![0, 0b11]);
        assert_eq!(read_multikey(&multikey_bytes(&paths)), Ok(paths));
    }
}
