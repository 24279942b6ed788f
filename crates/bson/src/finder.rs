//! Finding the same fields in many documents.

use crate::raw::{RawElement, value_len};
use crate::{Doc, tag};

/// Bytes of an element's head that are compared at once.
const WORD: usize = 8;
/// A layout is given up when it missed this many more documents than it matched.
const MISSES_MAX: u32 = 1000;
/// The most fields of a layout.
const STEPS_MAX: usize = 32;

/// Finds top-level fields by their names in one document after the other. Most documents of a collection have the same
/// fields in the same order; then each name is compared once, and none is searched for.
#[derive(Debug)]
pub struct FieldFinder {
    names: Vec<Box<str>>,
    /// The elements of the last documents, up to the last one that is wanted.
    layout: Vec<Step>,
    /// Whether the document ends with them, because a field is missing.
    ends: bool,
    /// Documents with another layout, less those with this one.
    misses: u32,
}

/// An element of the layout.
#[derive(Debug)]
struct Step {
    /// The type byte, the name and its zero byte.
    head: Box<[u8]>,
    /// The first bytes of them, if they fit a word.
    word: Option<(u64, u64)>,
    /// The name that it has.
    slot: Option<usize>,
}

impl FieldFinder {
    /// A finder of these names.
    pub fn new(names: Vec<Box<str>>) -> FieldFinder {
        FieldFinder {
            names,
            layout: Vec::new(),
            ends: false,
            misses: 0,
        }
    }

    /// Puts the first element of each name into the slot of that name, `None` if there is none. There are as many slots as
    /// names.
    #[inline]
    pub fn find<'d>(&mut self, doc: &'d Doc, found: &mut [Option<RawElement<'d>>]) {
        if !self.find_by_layout(doc, found) {
            self.search(doc, found);
        }
    }

    /// False if the document has another layout.
    #[inline]
    fn find_by_layout<'d>(&self, doc: &'d Doc, found: &mut [Option<RawElement<'d>>]) -> bool {
        if self.layout.is_empty() {
            return false;
        }
        let Some(mut rest) = doc.as_bytes().get(4..) else {
            return false;
        };
        for step in &self.layout {
            let is_same = match (step.word, rest.first_chunk::<WORD>()) {
                (Some((mask, head)), Some(word)) => u64::from_le_bytes(*word) & mask == head,
                _ => rest.starts_with(&step.head),
            };
            let head_len = step.head.len();
            let (true, Some(tag), Some(at)) = (is_same, step.head.first(), rest.get(head_len..))
            else {
                return false;
            };
            let Some((whole, after)) = value_len(*tag, at)
                .and_then(|value_len| rest.split_at_checked(head_len + value_len))
            else {
                return false;
            };
            if let Some(slot) = step.slot.and_then(|slot| found.get_mut(slot)) {
                *slot = Some(RawElement {
                    tag: *tag,
                    name: whole.get(1..head_len - 1).unwrap_or_default(),
                    value: whole.get(head_len..).unwrap_or_default(),
                    whole,
                });
            }
            rest = after;
        }
        if self.ends {
            if rest.first() != Some(&0) {
                return false;
            }
            // Slots of missing fields may have been filled by another document.
            for (slot, found) in found.iter_mut().enumerate() {
                if self.layout.iter().all(|step| step.slot != Some(slot)) {
                    *found = None;
                }
            }
        }
        true
    }

    /// Walks the document, and learns its layout.
    #[cold]
    fn search<'d>(&mut self, doc: &'d Doc, found: &mut [Option<RawElement<'d>>]) {
        let learns = self.misses < MISSES_MAX;
        self.misses = self.misses.saturating_add(1).min(2 * MISSES_MAX);
        found.fill(None);
        let mut missing = self.names.len().min(found.len());
        let mut layout = Vec::new();
        for element in doc.iter_raw() {
            if missing == 0 {
                break;
            }
            let mut names = self.names.iter();
            let slot = names.position(|name| name.as_bytes() == element.name);
            let slot = slot.filter(|slot| found.get(*slot).is_some_and(Option::is_none));
            if let Some(found) = slot.and_then(|slot| found.get_mut(slot)) {
                *found = Some(element);
                missing -= 1;
            }
            if learns {
                layout.push(Step::new(&element, slot));
            }
        }
        if learns {
            let is_usable = layout.len() <= STEPS_MAX
                && layout
                    .iter()
                    .all(|step| step.head.first() != Some(&tag::ELSEWHERE));
            self.ends = missing > 0;
            self.layout = if is_usable { layout } else { Vec::new() };
        }
    }
}

impl Step {
    fn new(element: &RawElement<'_>, slot: Option<usize>) -> Step {
        let head_len = element.whole.len() - element.value.len();
        let head = element.whole.get(..head_len).unwrap_or_default();
        let word = (head_len <= WORD).then(|| {
            let (mut mask, mut word) = ([0; WORD], [0; WORD]);
            for (at, byte) in head.iter().enumerate() {
                (mask[at], word[at]) = (0xff, *byte);
            }
            (u64::from_le_bytes(mask), u64::from_le_bytes(word))
        });
        Step {
            head: head.into(),
            word,
            slot,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{DocBuf, Value, doc};

    #[test]
    fn the_first_element_of_each_name_is_found_in_documents_of_any_layout() {
        let mut twice = doc! {"a": 1, "b": 2};
        twice.push("a", 3);
        let docs = [
            doc! {"_id": 1, "a": 5, "b": "text", "c": 1.5},
            doc! {"_id": 2, "a": 6, "b": "longer text", "c": 2.5},
            // Another type, another order, fields missing, a name that is the beginning of another one.
            doc! {"_id": 3, "a": "6", "b": "x", "c": 2.5},
            doc! {"b": 1, "a": 2},
            doc! {"_id": 4, "a": 7},
            doc! {"_id": 4, "a": 8, "d": 5},
            doc! {"_id": 4, "a": 9},
            doc! {},
            doc! {"ab": 1, "bc": 2, "a": 5},
            doc! {"a long name of a field": 1, "a": 5, "b": null},
            doc! {"a long name of a field": 1, "a": 6, "b": null},
            doc! {"in": {"a": 5, "b": 6}, "b": [1, 2]},
            doc! {"in": {"a": 5, "b": 6, "c": 7}, "b": [1, 2, 3], "a": null},
            twice,
        ];
        let names: [&[&str]; 5] = [
            &["a", "b"],
            &["b"],
            &["c", "_id", "a"],
            &["missing"],
            &["a long name of a field", "b", "missing"],
        ];
        for names in names {
            let boxed = names.iter().map(|name| Box::from(*name)).collect();
            let mut finder = FieldFinder::new(boxed);
            let mut found = vec![None; names.len()];
            // Each document behind each other one.
            for (first, second) in docs.iter().flat_map(|a| docs.iter().map(move |b| (a, b))) {
                for doc in [first, second] {
                    finder.misses = 0;
                    finder.find(doc, &mut found);
                    for (name, found) in names.iter().zip(&found) {
                        let value: Option<Value<'_>> = found.and_then(|e| e.value());
                        assert_eq!(value, doc.get(name), "{name} of {doc:?}");
                        assert_eq!(found.map(|e| e.name()), value.map(|_| *name));
                    }
                }
            }
        }
    }

    #[test]
    fn a_layout_that_is_seldom_right_is_kept() {
        let mut finder = FieldFinder::new(vec!["x".into()]);
        for number in 0..3 * MISSES_MAX {
            let name = format!("n{number}");
            let mut document = DocBuf::new();
            document.push(&name, 1);
            document.push("x", number as i32);
            let mut found = [None];
            finder.find(&document, &mut found);
            assert_eq!(found[0].unwrap().value(), Some(Value::Int32(number as i32)));
        }
    }
}
