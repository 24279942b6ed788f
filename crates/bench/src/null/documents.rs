//! The one document that every find of a null server returns, with a projection applied.

use frond_bson::{Doc, DocBuf, Value};

/// Segments of `c` and `pad`, and the digits of one.
const C_SEGMENTS: usize = 10;
const PAD_SEGMENTS: usize = 5;
const SEGMENT_DIGITS: usize = 11;

/// Digits in segments, with a hyphen between them.
pub fn segments(count: usize, shift: usize) -> String {
    let segment = |n: usize| -> String {
        let digit = |at: usize| char::from(b'0' + ((n * 7 + at * 3 + shift) % 10) as u8);
        (0..SEGMENT_DIGITS).map(digit).collect()
    };
    (0..count).map(segment).collect::<Vec<_>>().join("-")
}

/// The `c` of a document.
pub fn text(shift: usize) -> String {
    segments(C_SEGMENTS, shift)
}

/// The fields of the document that a find returns.
#[derive(Clone, Debug)]
pub struct Shape {
    with_id: bool,
    /// The elements after `_id`, and the zero byte at the end.
    rest: Vec<u8>,
}

impl Shape {
    /// The fields that a projection leaves. Only names of whole fields count.
    pub fn new(projection: &Doc) -> Shape {
        let mut names = projection.iter().filter(|(name, _)| *name != "_id");
        let id = projection.get("_id").map(|value| value.truthy());
        // Names are either those that stay, or those that go.
        let stay = match names.next() {
            Some((_, value)) => value.truthy(),
            None => id == Some(true),
        };
        let mut fields = DocBuf::new();
        for (name, value) in [
            ("k", Value::Int32(5_000_000)),
            ("c", Value::String(&text(0))),
            ("pad", Value::String(&segments(PAD_SEGMENTS, 4))),
        ] {
            if projection.contains_key(name) == stay {
                fields.push(name, value);
            }
        }
        let mut rest = fields.elements_bytes().to_vec();
        rest.push(0);
        Shape {
            with_id: id.unwrap_or(true),
            rest,
        }
    }

    /// Bytes of a document whose `_id` has `id_bytes`.
    pub fn document_bytes(&self, id_bytes: usize) -> usize {
        let id = if self.with_id { 1 + 4 + id_bytes } else { 0 };
        4 + id + self.rest.len()
    }

    /// Appends the document with this `_id`, a type and an encoded value. Returns where the value
    /// is, if the document has it.
    pub fn append(&self, (tag, value): (u8, &[u8]), out: &mut Vec<u8>) -> Option<usize> {
        let length = self.document_bytes(value.len()) as u32;
        out.extend_from_slice(&length.to_le_bytes());
        let mut place = None;
        if self.with_id {
            out.push(tag);
            out.extend_from_slice(b"_id\0");
            place = Some(out.len());
            out.extend_from_slice(value);
        }
        out.extend_from_slice(&self.rest);
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frond_bson::{doc, tag};

    #[test]
    fn a_projection_chooses_fields() {
        for (projection, names) in [
            (doc! {}, &["_id", "k", "c", "pad"][..]),
            (doc! {"c": 1}, &["_id", "c"][..]),
            (doc! {"c": 1, "_id": 0}, &["c"][..]),
            (
                doc! {"_id": false, "k": true, "pad": 1.0},
                &["k", "pad"][..],
            ),
            (doc! {"_id": 1}, &["_id"][..]),
            (doc! {"_id": 0}, &["k", "c", "pad"][..]),
            (doc! {"pad": 0}, &["_id", "k", "c"][..]),
            (doc! {"pad": 0, "_id": 0}, &["k", "c"][..]),
            (doc! {"other": 1}, &["_id"][..]),
        ] {
            let mut bytes = Vec::new();
            Shape::new(&projection).append((tag::INT32, &[7, 0, 0, 0]), &mut bytes);
            let found = Doc::validate(&bytes).unwrap();
            let found: Vec<&str> = found.iter().map(|(name, _)| name).collect();
            assert_eq!(found, names, "{projection:?}");
        }
    }

    #[test]
    fn texts_are_as_long_as_those_of_the_workload() {
        assert_eq!(text(0).len(), 119);
        assert_eq!(segments(PAD_SEGMENTS, 4).len(), 59);
        assert_ne!(text(0), text(1));
    }
}
