//! Documents rebuilt from index entries, for queries that need no more than an index holds.

use frond_bson::{DocBuf, key};

use super::entry::EntryParts;
use super::spec::{IndexField, IndexSpec};

/// The fields of an entry under their whole paths: `{"a.b": 1, c: 2}`. `None` if the entry is
/// damaged.
pub fn fields_document(spec: &IndexSpec, fields: &[u8], lost: &[u8]) -> Option<DocBuf> {
    fields_by(spec, fields, key::TypeBitsReader::new(lost))
}

/// As above, from the key alone: numbers get a type that can hold them.
pub fn fields_without_types(spec: &IndexSpec, fields: &[u8]) -> Option<DocBuf> {
    fields_by(spec, fields, key::TypeBitsReader::unknown())
}

fn fields_by(spec: &IndexSpec, fields: &[u8], mut bits: key::TypeBitsReader<'_>) -> Option<DocBuf> {
    let mut out = DocBuf::new();
    let mut rest = fields;
    for field in &spec.fields {
        rest = key::decode_into(rest, field.direction, &mut bits, &field.path, &mut out).ok()?;
    }
    Some(out)
}

/// Whether [`document`] can rebuild all of an index's fields: each holds the value at its path, not the sort
/// key of a collation, and no path leads to another one or through an array.
pub fn can_rebuild(spec: &IndexSpec) -> bool {
    let leads_to = |a: &IndexField, b: &IndexField| {
        b.path
            .strip_prefix(a.path.as_str())
            .is_some_and(|rest| rest.starts_with('.'))
    };
    spec.method.is_none()
        && spec.collator.is_binary()
        && spec
            .fields
            .iter()
            .all(|a| !a.path.contains('.') && !spec.fields.iter().any(|b| leads_to(a, b)))
}

/// The document that an entry shows: its fields, and the `_id`. Fields that the document lacked are
/// null. `None` if the entry is damaged.
pub fn document(spec: &IndexSpec, parts: &EntryParts<'_>) -> Option<DocBuf> {
    let has_id = spec.fields.iter().any(|field| field.path == "_id");
    let mut fields = DocBuf::with_capacity(parts.fields.len() + parts.id.len() + 64);
    let mut bits = key::TypeBitsReader::new(parts.lost);
    let mut rest = parts.fields;
    for field in &spec.fields {
        rest = key::decode_into(rest, field.direction, &mut bits, &field.path, &mut fields).ok()?;
    }
    if has_id {
        return Some(fields);
    }
    // The bits of the `_id` follow those of the fields, but it is shown first.
    let mut out = DocBuf::with_capacity(fields.len_bytes() + parts.id.len() + 16);
    key::decode_into(
        parts.id,
        key::Direction::Ascending,
        &mut bits,
        "_id",
        &mut out,
    )
    .ok()?;
    out.push_all(&fields);
    Some(out)
}
