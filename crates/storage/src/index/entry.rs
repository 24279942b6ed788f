//! The layout of index entries.
//!
//! | index | key | value |
//! | --- | --- | --- |
//! | not unique | fields, `_id` | lost bits |
//! | unique | fields | `_id`, lost bits |
//! | clustering | as above | as above, with the document before the lost bits |
//!
//! The `_id` stands for the key of the document, which is a record id or a primary key in some collections. In a partitioned one the
//! number of the partition precedes the fields ([`RecordLayout`](crate::record_layout::RecordLayout)). The entries of a primary key
//! are the documents themselves.
//!
//! Fields and `_id` are encoded so that bytes compare as values do. The lost bits restore what that
//! loses. In a unique index the fields alone are the key: two documents with the same fields meet
//! in one key, so that a point read finds a duplicate and the engine's conflict check stops two
//! writers that insert the same value at the same time.

use frond_bson::{Doc, key};

use super::spec::IndexSpec;
use crate::error::{Result, corrupt};

/// The parts of one stored entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryParts<'a> {
    pub fields: &'a [u8],
    /// The encoded `_id`: the key of the document.
    pub id: &'a [u8],
    /// The information that the encoding of the fields, and then of the `_id`, lost.
    pub lost: &'a [u8],
    /// The document, in a clustering index.
    pub doc: Option<&'a Doc>,
}

/// Writes the key and the value of an entry of `doc` into two buffers, which are cleared first.
pub fn write(
    spec: &IndexSpec,
    fields: &[u8],
    id: &[u8],
    lost: &[u8],
    doc: &Doc,
    key: &mut Vec<u8>,
    value: &mut Vec<u8>,
) {
    write_key(spec, fields, id, key);
    value.clear();
    if spec.unique {
        value.extend_from_slice(id);
    }
    write_payload(spec, lost, doc, value);
}

/// Writes the key of an entry into a buffer, which is cleared first.
pub fn write_key(spec: &IndexSpec, fields: &[u8], id: &[u8], key: &mut Vec<u8>) {
    key.clear();
    spec.records.write_prefix(id, key);
    key.extend_from_slice(fields);
    if !spec.unique {
        key.extend_from_slice(id);
    }
}

/// Appends the payload of an entry: what its value holds after the `_id`.
pub(super) fn write_payload(spec: &IndexSpec, lost: &[u8], doc: &Doc, value: &mut Vec<u8>) {
    if spec.clustering {
        value.extend_from_slice(doc.as_bytes());
    }
    value.extend_from_slice(lost);
}

/// The document, if there is one, and the lost bits.
fn split_payload<'a>(spec: &IndexSpec, payload: &'a [u8]) -> Option<(Option<&'a Doc>, &'a [u8])> {
    if !spec.clustering {
        return Some((None, payload));
    }
    let length = payload
        .first_chunk()
        .map(|length| i32::from_le_bytes(*length))?;
    let (doc, lost) = payload.split_at_checked(usize::try_from(length).ok()?)?;
    Some((Some(Doc::from_trusted(doc)), lost))
}

/// Takes a stored entry apart. `fields_end` is where the fields end in the key.
pub fn split_at<'a>(
    spec: &IndexSpec,
    key: &'a [u8],
    value: &'a [u8],
    fields_end: usize,
) -> Option<EntryParts<'a>> {
    if spec.primary {
        return Some(EntryParts {
            fields: key,
            id: key,
            lost: &[],
            doc: None,
        });
    }
    let (fields, id_in_key) = key.split_at_checked(fields_end)?;
    let fields = fields.get(spec.records.prefix_bytes()..)?;
    let (id, payload) = if spec.unique {
        value.split_at_checked(spec.records.skip(value)?)?
    } else {
        (id_in_key, value)
    };
    let (doc, lost) = split_payload(spec, payload)?;
    Some(EntryParts {
        fields,
        id,
        lost,
        doc,
    })
}

/// Returns the position behind the fields in the key of an entry.
pub fn fields_end(spec: &IndexSpec, key: &[u8]) -> Option<usize> {
    let mut fields = spec.fields.iter();
    fields.try_fold(spec.records.prefix_bytes(), |end, field| {
        Some(end + key::skip(key.get(end..)?, field.direction)?)
    })
}

/// Takes a stored entry apart.
pub fn split<'a>(spec: &IndexSpec, key: &'a [u8], value: &'a [u8]) -> Result<EntryParts<'a>> {
    let parts = if spec.unique {
        split_at(spec, key, value, key.len())
    } else {
        fields_end(spec, key).and_then(|end| split_at(spec, key, value, end))
    };
    parts.ok_or_else(|| corrupt(format!("an entry of index '{}'", spec.name)))
}
