//! Update messages whose order matters: changes of a list of named numbers. The list shows a change that was lost,
//! doubled, or applied in another order.

use frond_tree::{Malformed, MergeOperator, TreeId};

/// Keys that begin with this hold lists.
pub const PREFIX: &[u8] = b"list";

/// The effect of a change, unless it adds: sets a number, or removes the element.
const SET: i64 = 1;
const REMOVE: i64 = 2;

/// A change of one element. A value is a list of elements that are set, in the order in which they came.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Change {
    name: i64,
    what: i64,
    number: i64,
}

impl Change {
    /// Any number stands for a change.
    fn from_number(number: i64) -> Change {
        Change {
            name: number >> 2 & 15,
            what: (number & 3) % 3,
            number: number >> 6,
        }
    }

    fn to_bytes(self) -> [u8; 8] {
        (self.number << 6 | self.name << 2 | self.what).to_le_bytes()
    }

    /// The effect of this change and then of a newer one of the element; `None` if it takes both.
    fn and(self, newer: Change) -> Option<Change> {
        match (self.what, newer.what) {
            (_, REMOVE) => Some(newer),
            // The element is a new one, and comes at the end.
            (REMOVE, _) => None,
            (_, SET) => Some(newer),
            // An element that was removed before stays so, and one that was set is a number.
            _ => Some(Change {
                number: self.number.wrapping_add(newer.number) << 6 >> 6,
                ..self
            }),
        }
    }
}

/// The changes that a delta lists, or the elements of a value.
fn parse(bytes: &[u8]) -> impl Iterator<Item = Change> {
    let numbers = bytes.chunks_exact(8);
    numbers.map(|bytes| Change::from_number(i64::from_le_bytes(bytes.try_into().unwrap())))
}

fn to_bytes(changes: &[Change]) -> Vec<u8> {
    changes
        .iter()
        .flat_map(|change| change.to_bytes())
        .collect()
}

/// Adds a change to a list of changes.
fn push(changes: &mut Vec<Change>, newer: Change) {
    let older = changes.iter().rposition(|older| older.name == newer.name);
    let Some(at) = older else {
        changes.push(newer);
        return;
    };
    let removed = changes[..at]
        .iter()
        .any(|older| older.name == newer.name && older.what == REMOVE);
    match changes[at].and(newer) {
        // An older change says already that the element goes.
        Some(change) if change.what == REMOVE && removed => drop(changes.remove(at)),
        // A set element keeps its place if it had one.
        Some(change) => changes[at] = change,
        None => changes.push(newer),
    }
}

/// Changes the elements of a value.
fn change(elements: &mut Vec<Change>, change: Change) {
    let at = elements
        .iter()
        .position(|element| element.name == change.name);
    match (at, change.what) {
        (Some(at), REMOVE) => drop(elements.remove(at)),
        (None, REMOVE) => {}
        (Some(at), SET) => elements[at] = change,
        (Some(at), _) => {
            let sum = elements[at].number.wrapping_add(change.number);
            elements[at].number = sum << 6 >> 6;
        }
        (None, _) => elements.push(Change {
            what: SET,
            ..change
        }),
    }
}

/// The merge operator of lists.
pub struct Lists;

impl MergeOperator for Lists {
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
        assert!(!deltas.is_empty());
        let mut elements = Vec::new();
        // Anything may have been put there.
        for element in parse(base.unwrap_or_default()) {
            change(
                &mut elements,
                Change {
                    what: SET,
                    ..element
                },
            );
        }
        for delta in deltas.iter().flat_map(|delta| parse(delta)) {
            change(&mut elements, delta);
        }
        Ok((!elements.is_empty()).then(|| to_bytes(&elements)))
    }

    fn combine_all(&self, _: TreeId, _: &[u8], deltas: &[&[u8]]) -> Result<Vec<u8>, Malformed> {
        assert!(!deltas.is_empty());
        let mut changes = Vec::new();
        for delta in deltas.iter().flat_map(|delta| parse(delta)) {
            push(&mut changes, delta);
        }
        Ok(to_bytes(&changes))
    }

    fn check(&self, _: TreeId, _: &[u8], _: &[u8]) -> Result<(), Malformed> {
        Ok(())
    }
}

/// Whether the key holds a list.
pub fn is_list(key: &[u8]) -> bool {
    key.starts_with(PREFIX)
}

#[test]
fn lists_obey_the_law_of_deltas() {
    let tree = TreeId(1);
    let mut random = 5u64;
    let mut next = || {
        random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        // Few names, so that they meet.
        ((random >> 20) as i64 & 0xFFFF_FFFF) & !(12 << 2)
    };
    for round in 0..3000 {
        let deltas: Vec<Vec<u8>> = (0..round % 12 + 1)
            .map(|_| next().to_le_bytes().to_vec())
            .collect();
        let base: Vec<u8> = (0..round % 7).flat_map(|_| next().to_le_bytes()).collect();
        let mut base = (round % 5 > 0).then_some(base);
        let slices: Vec<&[u8]> = deltas.iter().map(Vec::as_slice).collect();
        let at_once = Lists
            .apply_all(tree, b"", base.as_deref(), &slices)
            .unwrap();
        let (older, newer) = slices.split_at(slices.len() / 2);
        let combined = match older {
            [] => newer[0].to_vec(),
            older => {
                let older = Lists.combine_all(tree, b"", older).unwrap();
                let newer = Lists.combine_all(tree, b"", newer).unwrap();
                Lists.combine(tree, b"", &older, &newer).unwrap()
            }
        };
        let with_combined = Lists.apply(tree, b"", base.as_deref(), &combined).unwrap();
        for delta in slices {
            base = Lists.apply(tree, b"", base.as_deref(), delta).unwrap();
        }
        assert_eq!(at_once, base);
        assert_eq!(with_combined, base);
    }
}
