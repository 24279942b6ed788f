//! Segments of a document with very many fields, and the messages that change them.

use std::collections::HashMap;

use frond_tree::{Malformed, MergeOperator, TreeId};

use crate::workload::Random;

/// Segments of a document: the keys of a group.
pub const SEGMENTS: u64 = 190;
/// Fields of a document, spread over its segments.
pub const FIELDS: u64 = 16_000;
/// Bytes of a key: a document's id, and the segment.
pub const KEY_BYTES: usize = 17;
const ID_BYTES: usize = 13;

const NAME: &str = "page views by country and device of ";

pub fn segment_of(field: u64) -> u64 {
    Random::new(field).below(SEGMENTS)
}

/// The key of a segment; that of the next document's first one for [`SEGMENTS`].
pub fn key(document: u64, segment: u64) -> [u8; KEY_BYTES] {
    let (document, segment) = (document + segment / SEGMENTS, segment % SEGMENTS);
    let mut key = [7; KEY_BYTES];
    key[ID_BYTES - 8..ID_BYTES].copy_from_slice(&document.to_be_bytes());
    key[ID_BYTES..].copy_from_slice(&(segment as u32).to_be_bytes());
    key
}

/// Adds an element: length of its name, name, number. Values and deltas are lists of elements.
fn push(list: &mut Vec<u8>, name: &[u8], number: i64) {
    list.push(name.len() as u8);
    list.extend_from_slice(name);
    list.extend_from_slice(&number.to_le_bytes());
}

/// The delta that adds 1 to a field.
pub fn delta(field: u64, out: &mut Vec<u8>) {
    out.clear();
    push(out, format!("{NAME}{field:05}").as_bytes(), 1);
}

/// The first values of a document's segments: all numbers are zero.
pub fn values() -> Vec<Vec<u8>> {
    let mut values = vec![Vec::new(); SEGMENTS as usize];
    for field in 0..FIELDS {
        let value = &mut values[segment_of(field) as usize];
        push(value, format!("{NAME}{field:05}").as_bytes(), 0);
    }
    values
}

/// The elements of a list: name, number, and where the number stands.
fn elements(list: &[u8]) -> impl Iterator<Item = (&[u8], i64, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let len = usize::from(*list.get(at)?);
        let number_at = at + 1 + len;
        let name = list.get(at + 1..number_at)?;
        let number = list.get(number_at..number_at + 8)?.try_into().ok()?;
        at = number_at + 8;
        Some((name, i64::from_le_bytes(number), number_at))
    })
}

pub fn sum(value: &[u8]) -> i64 {
    elements(value).map(|(_, number, _)| number).sum()
}

/// Adds the numbers of deltas to those of the elements with their names.
pub struct Adder;

impl MergeOperator for Adder {
    fn apply(
        &self,
        tree: TreeId,
        key: &[u8],
        base: Option<&[u8]>,
        delta: &[u8],
    ) -> Result<Option<Vec<u8>>, Malformed> {
        self.apply_all(tree, key, base, &[delta])
    }

    fn combine(
        &self,
        tree: TreeId,
        key: &[u8],
        older: &[u8],
        newer: &[u8],
    ) -> Result<Vec<u8>, Malformed> {
        self.combine_all(tree, key, &[older, newer])
    }

    fn apply_all(
        &self,
        _: TreeId,
        _: &[u8],
        base: Option<&[u8]>,
        deltas: &[&[u8]],
    ) -> Result<Option<Vec<u8>>, Malformed> {
        let mut sums: HashMap<&[u8], i64> = HashMap::new();
        for (name, number, _) in deltas.iter().flat_map(|delta| elements(delta)) {
            *sums.entry(name).or_default() += number;
        }
        let mut value = base.unwrap_or_default().to_vec();
        for (name, number, at) in elements(base.unwrap_or_default()) {
            if let Some(more) = sums.remove(name) {
                value[at..at + 8].copy_from_slice(&(number + more).to_le_bytes());
            }
        }
        for (name, number) in sums {
            push(&mut value, name, number);
        }
        Ok(Some(value))
    }

    fn combine_all(&self, _: TreeId, _: &[u8], deltas: &[&[u8]]) -> Result<Vec<u8>, Malformed> {
        let mut places: HashMap<&[u8], usize> = HashMap::new();
        let mut combined: Vec<(&[u8], i64)> = Vec::new();
        for (name, number, _) in deltas.iter().flat_map(|delta| elements(delta)) {
            let place = *places.entry(name).or_insert(combined.len());
            match combined.get_mut(place) {
                Some(element) => element.1 += number,
                None => combined.push((name, number)),
            }
        }
        let mut out = Vec::new();
        for (name, number) in combined {
            push(&mut out, name, number);
        }
        Ok(out)
    }

    fn check(&self, _: TreeId, _: &[u8], _: &[u8]) -> Result<(), Malformed> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deltas_add_up() {
        let tree = TreeId(1);
        let values = values();
        let bytes: usize = values.iter().map(Vec::len).sum();
        assert!((3500..5000).contains(&(bytes / values.len())));
        let (mut one, mut other) = (Vec::new(), Vec::new());
        delta(3, &mut one);
        delta(4, &mut other);
        assert!((40..60).contains(&one.len()));
        let value = &values[segment_of(3) as usize];
        let combined = Adder.combine_all(tree, b"", &[&one, &other, &one]).unwrap();
        assert_eq!(combined.len(), one.len() + other.len());
        for deltas in [&[&one[..], &other, &one][..], &[&combined]] {
            let value = Adder.apply_all(tree, b"", Some(value), deltas);
            assert_eq!(sum(&value.unwrap().unwrap_or_default()), 3);
        }
        assert!(key(5, 189) < key(5, 190) && key(5, 190) == key(6, 0));
    }
}
