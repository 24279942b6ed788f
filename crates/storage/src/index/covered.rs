//! Documents rebuilt from index entries, for queries that need no more than an index holds.

use frond_bson::path::get_path;
use frond_bson::{Doc, DocBuf, Value, key};

use super::entry::EntryParts;
use super::field::IndexField;
use super::spec::IndexSpec;
use crate::intervals::conditions::has_number;

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

/// The fields of a document of a primary key, as [`fields_document`] shows them.
pub fn fields_of(spec: &IndexSpec, doc: &Doc) -> DocBuf {
    let mut out = DocBuf::new();
    for field in &spec.fields {
        out.push(
            &field.path,
            get_path(doc, &field.path).unwrap_or(Value::Null),
        );
    }
    out
}

/// Whether [`document`] can rebuild all of an index's fields: each holds the value at its path, not the sort
/// key of a collation, and no path leads to another one or, by a number, into an array.
pub fn can_rebuild(spec: &IndexSpec) -> bool {
    let leads_to = |a: &IndexField, b: &IndexField| {
        b.path
            .strip_prefix(a.path.as_str())
            .is_some_and(|rest| rest.starts_with('.'))
    };
    // The types of numbers are in the documents, not in the keys, of a primary key.
    !spec.primary
        && spec.method.is_none()
        && spec.collator.is_binary()
        && spec
            .fields
            .iter()
            .all(|a| !has_number(&a.path) && !spec.fields.iter().any(|b| leads_to(a, b)))
        // The `_id` behind the fields is shown, too.
        && !spec.fields.iter().any(|field| field.path.starts_with("_id."))
}

/// The document that an entry shows: its fields at their paths and, unless keys are record ids, the `_id`. The
/// outer `None` says that the entry is damaged; the inner one that a field is null, so that only the document itself
/// shows whether it is null or missing.
pub fn document(
    spec: &IndexSpec,
    parts: &EntryParts<'_>,
    by_record: bool,
) -> Option<Option<DocBuf>> {
    let mut fields = DocBuf::with_capacity(parts.fields.len() + parts.id.len() + 64);
    let mut bits = key::TypeBitsReader::new(parts.lost);
    let mut rest = parts.fields;
    for field in &spec.fields {
        rest = key::decode_into(rest, field.direction, &mut bits, &field.path, &mut fields).ok()?;
    }
    let is_null = |(name, value): (&str, Value<'_>)| name != "_id" && value.is_nullish();
    if fields.iter().any(is_null) {
        return Some(None);
    }
    let has_id = by_record || spec.fields.iter().any(|field| field.path == "_id");
    let fields = nested(spec, fields);
    if has_id {
        return Some(Some(fields));
    }
    // The bits of the `_id` follow those of the fields, but it is shown first.
    let mut out = DocBuf::with_capacity(fields.len_bytes() + parts.id.len() + 16);
    let ascending = key::Direction::Ascending;
    key::decode_into(parts.id, ascending, &mut bits, "_id", &mut out).ok()?;
    out.push_all(&fields);
    Some(Some(out))
}

/// The fields of an entry at their paths, for conditions that do not distinguish null from missing. `None` if the entry is
/// damaged.
pub fn key_document(spec: &IndexSpec, parts: &EntryParts<'_>) -> Option<DocBuf> {
    Some(nested(
        spec,
        fields_document(spec, parts.fields, parts.lost)?,
    ))
}

/// Fields under their dotted paths as documents inside of documents.
fn nested(spec: &IndexSpec, flat: DocBuf) -> DocBuf {
    if !spec.fields.iter().any(|field| field.path.contains('.')) {
        return flat;
    }
    let fields: Vec<(&str, Value<'_>)> = flat.iter().collect();
    let mut out = DocBuf::with_capacity(flat.len_bytes() + 32);
    push_nested(&fields, &mut out);
    out
}

fn push_nested(fields: &[(&str, Value<'_>)], out: &mut DocBuf) {
    let mut pushed: Vec<&str> = Vec::new();
    for (path, value) in fields {
        let Some((first, _)) = path.split_once('.') else {
            out.push_value(path, value);
            continue;
        };
        if pushed.contains(&first) {
            continue;
        }
        pushed.push(first);
        let inside = fields.iter().filter_map(|(path, value)| {
            let rest = path.strip_prefix(first)?.strip_prefix('.')?;
            Some((rest, *value))
        });
        let inside: Vec<_> = inside.collect();
        out.push_doc(first, |out| push_nested(&inside, out));
    }
}
