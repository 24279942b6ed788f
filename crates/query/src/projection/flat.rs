//! Projections that only name fields of the top level, `{c: 1, _id: 0}`, applied without being parsed into rules.

use frond_bson::{Doc, DocBuf, Value};

/// Specifications of more fields are parsed.
const FIELDS_MAX: usize = 8;

/// A projection by names of the top level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlatProjection<'a> {
    /// The fields that are kept, or those that are left out.
    names: [&'a [u8]; FIELDS_MAX],
    count: usize,
    is_inclusion: bool,
}

impl<'a> FlatProjection<'a> {
    /// The projection, if it is of this kind. `None` says nothing about whether it is valid.
    pub fn parse(spec: &'a Doc) -> Option<FlatProjection<'a>> {
        let mut flat = FlatProjection {
            names: [&[]; FIELDS_MAX],
            count: 0,
            is_inclusion: false,
        };
        let mut shows_id = None;
        for (at, (name, value)) in spec.iter().enumerate() {
            let is_shown = match value {
                Value::Bool(_) | Value::Int32(_) | Value::Int64(_) | Value::Double(_) => {
                    value.truthy()
                }
                _ => return None,
            };
            if name.is_empty() || name.starts_with('$') || name.contains('.') {
                return None;
            }
            if name == "_id" {
                // Twice is for the parser to judge, as is any other name.
                if shows_id.replace(is_shown).is_some() {
                    return None;
                }
                continue;
            }
            let is_first = flat.count == 0;
            if at >= FIELDS_MAX || (!is_first && flat.is_inclusion != is_shown) || flat.has(name) {
                return None;
            }
            flat.is_inclusion = is_shown;
            *flat.names.get_mut(flat.count)? = name.as_bytes();
            flat.count += 1;
        }
        if flat.count == 0 {
            flat.is_inclusion = shows_id == Some(true);
        }
        // The names include `_id` if that is not what happens to fields that have no name.
        let is_named = if flat.is_inclusion {
            shows_id != Some(false)
        } else {
            shows_id == Some(false)
        };
        if !flat.is_inclusion && flat.count > 0 && shows_id == Some(true) {
            return None;
        }
        if is_named {
            *flat.names.get_mut(flat.count)? = b"_id";
            flat.count += 1;
        }
        Some(flat)
    }

    fn has(&self, name: &str) -> bool {
        self.names().contains(&name.as_bytes())
    }

    fn names(&self) -> &[&'a [u8]] {
        self.names.get(..self.count).unwrap_or_default()
    }

    /// Adds the fields of the projection of `doc` to `out`, in the order of the document.
    pub fn apply(&self, doc: &Doc, out: &mut DocBuf) {
        if !self.is_inclusion && self.count == 0 {
            out.push_all(doc);
            return;
        }
        // Of an inclusion the rest is not read once all fields were found.
        let mut missing = (1u32 << self.count) - 1;
        for element in doc.iter_raw() {
            let name = element.name_bytes();
            let position = self.names().iter().position(|one| *one == name);
            if position.is_some() == self.is_inclusion {
                out.push_raw(&element);
            }
            missing &= position.map_or(u32::MAX, |position| !(1 << position));
            if self.is_inclusion && missing == 0 {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use super::super::Projection;
    use super::*;

    #[test]
    fn it_does_what_the_parsed_projection_does() {
        let mut repeated = doc! {"a": 1, "_id": 1};
        repeated.push("a", 2);
        let documents = [
            doc! {"_id": 1, "a": 1, "b": {"c": 2}, "c": [1, {"d": 3}], "d": null},
            doc! {"c": 1, "_id": 2, "a": "x"},
            doc! {},
            doc! {"z": 1},
            repeated,
        ];
        let specs = [
            doc! {},
            doc! {"_id": 0},
            doc! {"_id": 1},
            doc! {"a": 1},
            doc! {"a": true, "_id": 0},
            doc! {"_id": 0, "c": 1.5, "a": 1i64},
            doc! {"b": 1, "_id": 1},
            doc! {"a": 0},
            doc! {"a": false, "_id": false, "z": 0.0},
            doc! {"missing": 1},
        ];
        for spec in &specs {
            let flat = FlatProjection::parse(spec).unwrap();
            let parsed = Projection::parse(spec).unwrap();
            for document in &documents {
                let mut out = DocBuf::new();
                flat.apply(document, &mut out);
                assert_eq!(
                    out,
                    parsed.apply(document).unwrap(),
                    "{spec:?} of {document:?}"
                );
            }
        }
    }

    #[test]
    fn all_others_are_left_to_the_parser() {
        let mut twice = doc! {"a": 1};
        twice.push("a", 1);
        let specs = [
            doc! {"a.b": 1},
            doc! {"a": {"b": 1}},
            doc! {"a": "$b"},
            doc! {"a": 1, "b": 0},
            doc! {"a": 0, "_id": 1},
            doc! {"$a": 1},
            doc! {"": 1},
            doc! {"a": null},
            doc! {"a": {"$slice": 1}},
            doc! {"a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1, "g": 1, "h": 1, "i": 1},
            twice,
        ];
        for spec in &specs {
            assert_eq!(FlatProjection::parse(spec), None, "{spec:?}");
        }
    }
}
