//! The merge operator of the store: counters that add up, sets of bits that grow, and path messages to large documents.
//!
//! Every write to a collection sends one delta of (documents, bytes) to the collection's counter in
//! the catalog tree, in the same write set as the documents. No writer reads the counter, no two
//! writers conflict on it, and after a crash it agrees with the documents. In the same way a writer
//! adds the bits of fields that met an array to an index's set of multikey fields.

use std::sync::Arc;

use crate::keyspace::{CATALOG_TREE, MergeOperator, TreeId};
use crate::large::message;

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

/// The bytes before a message's value that say how values of its key merge: the first byte of every
/// key of the catalog tree, see the table of the catalog.
pub mod kind {
    /// Adds [`super::Counts`].
    pub const COUNTER: u8 = 4;
    /// Unites sets of bits: 4 bytes, little-endian.
    pub const BITS: u8 = 5;
}

/// Dispatches on the tree, and in the catalog on the first byte of the key. The messages of other trees are about large
/// documents, and say themselves what they are.
struct StoreMerge;

/// What a malformed counter or delta counts as. Verification reports the difference.
fn read(stored: &[u8]) -> Counts {
    Counts::from_bytes(stored).unwrap_or_default()
}

/// Reads a set of bits; a malformed one is full, which is the safe side for multikey fields.
pub fn read_bits(stored: &[u8]) -> u32 {
    stored.try_into().map_or(u32::MAX, u32::from_le_bytes)
}

fn merge(key: &[u8], older: Option<&[u8]>, newer: &[u8]) -> Vec<u8> {
    match key.first() {
        Some(&kind::BITS) => {
            let both = older.map_or(0, read_bits) | read_bits(newer);
            both.to_le_bytes().to_vec()
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
    const BITS_KEY: &[u8] = &[kind::BITS, 1];

    #[test]
    fn combining_then_applying_equals_applying_in_turn() {
        let counts = |documents, bytes| Counts { documents, bytes }.to_bytes().to_vec();
        let bits = |bits: u32| bits.to_le_bytes().to_vec();
        for (key, deltas, expected) in [
            (
                COUNTER_KEY,
                [counts(3, 100), counts(-1, -40), counts(5, 0)],
                counts(7, 60),
            ),
            (BITS_KEY, [bits(1), bits(4), bits(5)], bits(5)),
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
        assert_eq!(read_bits(b"x"), u32::MAX);
    }
}
