//! The alternatives that an index method computes for one document.

use frond_bson::Value;
use frond_query::paths::MultikeyPaths;

use super::field::{Holds, IndexField};

/// One value of an alternative.
#[derive(Clone, Debug)]
pub enum Part<'a> {
    /// A value of the document, or a constant.
    Value(Value<'a>),
    /// A string that the kind made.
    Text(String),
}

impl Part<'_> {
    pub fn as_value(&self) -> Value<'_> {
        match self {
            Part::Value(value) => *value,
            Part::Text(text) => Value::String(text),
        }
    }
}

impl<'a> From<Value<'a>> for Part<'a> {
    fn from(value: Value<'a>) -> Part<'a> {
        Part::Value(value)
    }
}

/// The alternatives of the computed fields of one document.
#[derive(Debug, Default)]
pub struct Slots<'a> {
    slots: Vec<Slot<'a>>,
    multikey: MultikeyPaths,
}

#[derive(Debug)]
struct Slot<'a> {
    /// Parts of one alternative.
    width: usize,
    /// The alternatives, one after the other.
    parts: Vec<Part<'a>>,
    /// Whether the document lacks the field.
    missing: bool,
}

impl<'a> Slots<'a> {
    /// No alternatives yet, for an index with these parts.
    pub(in crate::index) fn for_fields(fields: &[IndexField]) -> Slots<'a> {
        let mut slots: Vec<Slot<'a>> = Vec::new();
        for field in fields {
            if let Holds::Computed(number) = field.holds {
                slots.resize_with(slots.len().max(number + 1), || Slot {
                    width: 0,
                    parts: Vec::new(),
                    missing: true,
                });
                slots[number].width += 1;
            }
        }
        Slots {
            slots,
            multikey: MultikeyPaths::default(),
        }
    }

    /// Adds an alternative of a computed field, with a value for each of its parts.
    pub fn push(&mut self, slot: usize, parts: impl IntoIterator<Item = Part<'a>>) {
        self.add(slot, parts);
        if let Some(slot) = self.slots.get_mut(slot) {
            slot.missing = false;
        }
    }

    /// Adds an alternative that stands for a field that the document lacks.
    pub fn push_missing(&mut self, slot: usize, parts: impl IntoIterator<Item = Part<'a>>) {
        self.add(slot, parts);
    }

    fn add(&mut self, slot: usize, parts: impl IntoIterator<Item = Part<'a>>) {
        let Some(slot) = self.slots.get_mut(slot) else {
            return;
        };
        slot.parts.extend(parts);
        debug_assert_eq!(slot.parts.len() % slot.width, 0, "whole alternatives");
    }

    /// Marks the part with this number as one for which the document has, or may have, several entries.
    pub fn set_multikey(&mut self, part: usize) {
        self.multikey.insert_all(part);
    }

    pub(in crate::index) fn multikey(&self) -> &MultikeyPaths {
        &self.multikey
    }

    pub(in crate::index) fn all_missing(&self) -> bool {
        self.slots.iter().all(|slot| slot.missing)
    }

    /// The number of combinations.
    pub(in crate::index) fn combinations(&self) -> usize {
        let count = |slot: &Slot<'_>| slot.parts.len() / slot.width.max(1);
        self.slots
            .iter()
            .map(count)
            .fold(1, |all, one| all.saturating_mul(one))
    }

    /// The parts of a computed field in one of the combinations.
    pub(in crate::index) fn alternative(&self, slot: usize, combination: usize) -> &[Part<'a>] {
        let mut rest = combination;
        for (number, slot_here) in self.slots.iter().enumerate() {
            let width = slot_here.width.max(1);
            let count = (slot_here.parts.len() / width).max(1);
            if number == slot {
                let start = rest % count * width;
                return slot_here
                    .parts
                    .get(start..start + width)
                    .unwrap_or_default();
            }
            rest /= count;
        }
        &[]
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use frond_bson::key;

    fn field(holds: Holds) -> IndexField {
        IndexField {
            path: "x".to_owned(),
            direction: key::Direction::Ascending,
            holds,
        }
    }

    #[test]
    fn every_combination_of_alternatives_comes_once() {
        let fields = [
            Holds::Computed(0),
            Holds::Value,
            Holds::Computed(1),
            Holds::Computed(1),
        ]
        .map(field);
        let mut slots = Slots::for_fields(&fields);
        assert!(slots.all_missing());
        assert_eq!(slots.combinations(), 0);
        let number = |number: i32| Part::Value(Value::Int32(number));
        for one in [1, 2, 3] {
            slots.push(0, [number(one)]);
        }
        for two in [10, 20] {
            slots.push_missing(1, [number(two), number(two + 1)]);
        }
        assert!(!slots.all_missing());
        assert_eq!(slots.combinations(), 6);
        let mut seen: Vec<Vec<i64>> = (0..6)
            .map(|combination| {
                let parts = [0, 1].map(|slot| slots.alternative(slot, combination));
                parts
                    .concat()
                    .iter()
                    .map(|part| part.as_value().as_i64_lossless().unwrap())
                    .collect()
            })
            .collect();
        seen.sort();
        let expected = [1, 2, 3].map(|one| [10, 20].map(|two| vec![one, two, two + 1]));
        assert_eq!(seen, expected.concat());
    }
}
